//! Where threads meet: those that wait for a message, and the wishes of all to the keeper's thread.

pub(crate) mod bell;
pub(crate) mod padded;
pub(crate) mod ready;
pub(crate) mod waiting;
