//! One consumer.
//!
//! | File | Its data | What it does |
//! |---|---|---|
//! | `consumer_state` | `ConsumerState`, and `LockedState` under its lock | the quick way to the next message |
//! | `step` | `Read`, `Lane`, `Step`: what the parts of a read hand to each other | |
//! | `slow`, `find` | | the long way, with deliveries, lanes or a descriptor |
//! | `ledger`, `ranges` | `Ledger`: the numbers that are open and done | |
//! | `deliveries`, `returns` | | ends, extends and returns deliveries |
//! | `redelivery_state` | `Rules`, `Redeliveries`: attempts, leases, dead letters | |
//! | `two_lanes`, `stretches` | `TwoLanes`: the rules of lanes, and which is next; what was left behind | |
//! | `lane_choice` | | reads in lanes, leaves a backlog behind |
//! | `release` | | closes what a consumer keeps open between reads |
//! | `existence` | | begins and removes a consumer |

pub(crate) mod consumer_state;
pub(crate) mod deliveries;
pub(crate) mod existence;
mod find_next;
pub(crate) mod lane_choice;
pub(crate) mod ledger;
mod ranges;
pub(crate) mod redelivery_state;
mod release;
mod returns;
pub(crate) mod slow;
pub(crate) mod step;
mod stretches;
pub(crate) mod two_lanes;

#[cfg(test)]
mod tests;
