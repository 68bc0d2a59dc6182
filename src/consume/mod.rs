//! One consumer: its cursor, its stored place, and the deliveries that it has not acknowledged.
//!
//! | File | What it holds | What it does |
//! |---|---|---|
//! | `consumer_state` | `ConsumerState`, `LockedState`, `Stand` | reads on the fast path, moves the place |
//! | `offers` | | finds a message at the cursor, and passes it to a delivery |
//! | `step` | `Read`, `Lane`, `Step`: parameters and result of a read | |
//! | `batch_reads` | | takes many messages, and stores one place |
//! | `slow` | | finds and delivers on the slow path, stores progress |
//! | `lane_search` | | finds the next message of a lane |
//! | `ledger` | `Ledger`: open and done numbers | counts the messages in flight |
//! | `ranges` | `Ranges`: disjoint number ranges | |
//! | `deliveries` | `DeadLetter` | acknowledges, extends, returns, rejects deliveries |
//! | `returns` | | the ledger's side of returns, rejections and leases |
//! | `redelivery_state` | `Rules`, `Redeliveries`: attempts and timers | stores the attempts |
//! | `two_lanes` | `TwoLanes`: the lane rules | chooses the lane whose turn it is |
//! | `stretches` | `Stretches`: the skipped messages | |
//! | `lane_choice` | | reads in lanes, skips a backlog |
//! | `existence` | | creates and removes a consumer, closes what it keeps open between reads |

mod batch_reads;
pub(crate) mod consumer_state;
pub(crate) mod deliveries;
pub(crate) mod existence;
pub(crate) mod lane_choice;
mod lane_search;
pub(crate) mod ledger;
#[cfg(any(test, fuzzing, mmq_holds))]
mod ledger_checks;
mod offers;
mod ranges;
pub(crate) mod redelivery_state;
mod returns;
pub(crate) mod slow;
pub(crate) mod step;
mod stretches;
pub(crate) mod two_lanes;

#[cfg(test)]
mod tests;
