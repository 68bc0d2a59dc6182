//! One consumer: its place, the quick way to its next message (`standing`), the long way with
//! deliveries or a descriptor (`slow`), the ledger of its deliveries, what becomes of these
//! (`deliveries`, `returns`, `redelivery`), and how it begins and ends (`existence`).

pub(crate) mod deliveries;
pub(crate) mod existence;
pub(crate) mod ledger;
mod ranges;
pub(crate) mod redelivery;
mod returns;
pub(crate) mod slow;
pub(crate) mod standing;

#[cfg(test)]
mod tests;
