//! One consumer: its place, the quick way to its next message (`standing`), the long way with
//! deliveries or a descriptor (`slow`), and the ledger of its deliveries.

pub(crate) mod ledger;
pub(crate) mod slow;
pub(crate) mod standing;

#[cfg(test)]
mod tests;
