//! Where threads meet: waiters for messages, descriptors, and the keeper's bell.

pub(crate) mod bell;
pub(crate) mod padded;
pub(crate) mod ready;
pub(crate) mod waiting;
