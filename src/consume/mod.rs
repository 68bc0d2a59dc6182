//! One consumer: its place, the quick way to its next message (`consumer_state`), the long way with
//! deliveries or a descriptor (`slow`, `find`), the ledger of its deliveries, what becomes of these
//! (`deliveries`, `returns`, `redelivery`), what is left behind and read beside the rest (`lanes`,
//! `stretches`), what it keeps open between reads (`release`), and how it begins and ends
//! (`existence`).

pub(crate) mod consumer_state;
pub(crate) mod deliveries;
pub(crate) mod existence;
mod find;
pub(crate) mod lanes;
pub(crate) mod ledger;
mod ranges;
pub(crate) mod redelivery;
mod release;
mod returns;
pub(crate) mod slow;
pub(crate) mod step;
mod stretches;
pub(crate) mod two_lanes;

#[cfg(test)]
mod tests;
