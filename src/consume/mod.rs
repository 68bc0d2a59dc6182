//! One consumer: its place, the quick way to its next message, the slow way with deliveries, and
//! the ledger of those.

pub(crate) mod ledger;
pub(crate) mod slow;
pub(crate) mod standing;

#[cfg(test)]
mod tests;
