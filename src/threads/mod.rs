//! Synchronization of the queue's threads.
//!
//! | file | what it holds | what it does |
//! |---|---|---|
//! | `waiting` | the line of waiting threads and futures | wakes them in order |
//! | `ready` | a consumer's descriptor | makes it readable while there is news |
//! | `worker` | a worker's thread and its requests | starts, wakes and stops it |
//! | `requests` | the requests to the storage and the delivery worker | |
//! | `ranks` | the order of locks | checks it in tests |
//! | `own` | `OwnMutex`, `JoinHandle`: a forked child takes no lock, lets go of no thread | |
//! | `padded` | data on its own cache lines | |
//! | `real` | locks, atomics, threads, clock | (tests use those of a schedule) |
//!
//! Every folder that is part of one open queue takes its locks, condition variables, atomics,
//! threads and clock from here. In tests each use of them is a step of a schedule, if one runs the
//! calling thread: a seed chooses which thread runs next (`src/tests/schedule/`).
//!
//! # Atomics and their orderings
//!
//! Every atomic of the library: who writes and who reads it with which ordering, and why that is
//! enough on a processor that reorders more than x86 does. "Loom" is said where `tests/loom` tries
//! the product's own file in every order that the memory model allows. A lock named here orders
//! whatever its holders do; words that are called figures order nothing.
//! (`tests/sources/atomics.rs` finds an atomic that is missing here.)
//!
//! | file | atomics | written | read | why it is enough |
//! |---|---|---|---|---|
//! | state/committed_tail.rs | `position`, `seq` | the holder of the producers' lock (with `durable_only` also the flush leader): `seq` Relaxed, then `position` Release | Acquire, `position` first | Who sees a position sees the bytes before it, and that number or a higher one. Who reads `seq` alone takes it for a count; who needs both exactly takes the lock (`visible_end`). Loom. |
//! | state/places.rs | `position`, `seq`, `changes`, `taken` | the holder of the consumer's lock: Release, the counts last | Acquire, no lock | A reader of the place has finished with all bytes before it, so their segment may be used again. Who counts a change and then syncs covers it. Each is one word that only grows: one that is seen late makes a flush or a reclaim wait for the next look. |
//! | state/places.rs | `in_flight` | the same: Relaxed | Relaxed | A figure. |
//! | state/places.rs | `removed_moves`, `removed_taken` | AcqRel additions under the lock of the list | Acquire under the same lock | The lock orders them. |
//! | state/mod.rs | `message_waiters` | SeqCst additions; upwards under the flush lock, then the waiter touches the producers' lock and looks | Relaxed: by the producer after it has unlocked, by the flush leader under its lock, or after the consumer's lock | Waiter and producer change the word of one lock: either the producer sees the count, or the waiter sees the message. Loom. |
//! | state/mod.rs | `interrupts` | SeqCst addition, before all are woken | SeqCst, after the waiter stands in line | The lock of the line: a waiter that the wake did not find sees the count. |
//! | state/mod.rs | `oldest_seq` | AcqRel maximum | Acquire | Only grows; behind the list of segments it is a bound, and a lower one costs a look. |
//! | state/mod.rs | `reserved` | the storage worker, when the checkpoint is on the disk: Release | the producer: Acquire | Who uses a number sees that it is reserved; one seen late asks once more. |
//! | state/mod.rs | `files_unsynced` | the flush leader, after the syncs: Release | Acquire | Goes to false once; one seen late syncs once more. |
//! | state/mod.rs | `wakes_owed` | SeqCst | Relaxed, then a SeqCst swap | The swap hands the wakes to one thread; the look before it spares the swap. |
//! | state/mod.rs | `window_wanted`, `many_open` | Relaxed | a Relaxed swap by the thread that set it, at the end of its read | A thread sees its own store; to others they are hints. |
//! | state/known_gaps.rs | `has_known` | never after the opening | Relaxed | Made before other threads have the queue. |
//! | state/known_gaps.rs | `reported`, `lost`, `dropped`, `expired`, `rejected`, `unclaimed` | Relaxed additions | Relaxed or Acquire | Figures: no other memory depends on them. |
//! | state/run_counts.rs | `count`, `nanos`, `longest`, `refused`, `waited_nanos` | Relaxed additions | Relaxed | Figures. |
//! | consume/consumer_state.rs | `exists`, `has_ledger`, `has_redelivery` | under the consumer's lock: Release | Acquire | Only says whether the lock is worth taking; what it speaks of is read under that lock. |
//! | consume/consumer_state.rs | `removals` | SeqCst addition under the lock, before waiters are woken | SeqCst, after the waiter stands in line | As `interrupts`. |
//! | consume/consumer_state.rs | `forwarded`, `forwarded_at` | the forwarder: `forwarded_at` Relaxed, `forwarded` Release | Acquire, and Relaxed for the time | Each counts alone; the time is a figure. |
//! | consume/consumer_state.rs | `is_forwarding` | AcqRel swap to true, Release store of false | by the swap | A lock that nobody waits for: the next forwarder sees what the one before has left. |
//! | consume/consumer_state.rs | `moves_seen` | AcqRel swap | by the swap | Two looks at a count; what is released is under the lock. |
//! | engine/operations.rs | `counted`, `flushed` | AcqRel addition, AcqRel maximum | Acquire | Each is one word that only grows; a lower `flushed` costs a flush. |
//! | index/syncs.rs | `begun`, `done` | fence SeqCst after the addition; `done` Release, after the sync | fence SeqCst before the load; `done` Acquire | Either a ticket counts the sync that has begun, or that sync covers the stores before the ticket. Loom. |
//! | index/mod.rs | `has_origins` | after the sync of the header: Release | Acquire | Goes to true once; a segment that needs the version is made under the producers' lock, as the store. |
//! | index/mod.rs | `len` | under the lock of the extents: Relaxed | Relaxed | A figure of disk. |
//! | segment/mod.rs | `synced_changes` | after the sync of the directory: Release | Acquire | Only grows; a lower one syncs once more. |
//! | segment/mod.rs | `passed` | under the lock of the list: Relaxed | Relaxed | A count of what the lock orders: compared before and after a search that takes it. |
//! | segment/files.rs | `allocated` | under the lock of the list or the producers' lock: Release | Acquire | Bytes below it are part of the file. It is lowered only while no reader has the segment. |
//! | segment/files.rs | `filled` | under the producers' lock: Relaxed | Relaxed, by the same threads | The lock orders them. |
//! | storage/poison.rs | `status` | AcqRel or Release bits; the reason is stored before | Relaxed on quick paths, Acquire before the reason | A call that does not see a bit counts as earlier; who must see it looks under a lock that the setter has held. |
//! | storage/file.rs | `by_map` | at the opening of a file and under the producers' lock: Relaxed | Relaxed | The segment's writer stores and reads it; another thread gets the file through a lock. |
//! | storage/overlay.rs | `drawn` | Relaxed addition | by the addition | Numbers that differ. |
//! | share/connection.rs | `next` | Relaxed addition | by the addition | Numbers that differ. |
//! | threads/worker.rs | `running` | under the lock of the requests: Release | Acquire | A hint; a request looks at `stop` under the lock. |
//! | threads/worker.rs | `waits`, `own_waits`, `HERE` | SeqCst store of its own | SeqCst load of the other's, after its own store | Of two workers that would wait for each other one sees the other. |
//! | memory/references.rs | `References` | Relaxed up, Release down | Acquire | The last one sees what all did. Loom. |
//! | memory/bytes.rs | `word64`, `word32` | Release where a word ends what it speaks of (the first word of a record's header, the last of a row), else Relaxed | Relaxed below a position that was read with Acquire; Acquire for the check word of the tail, which holds for the words beside it by its value | Records are found by the tail alone. After a kill the kernel has all stores of the thread, in whatever order they are. |
//! | memory/fork.rs | `word`, `NO_WORD`, `NEXT` | Relaxed | Relaxed | A word changes once, before there is a guard of it; numbers that differ. |
//! | memory/fork.rs | `WORD`, `the_word`, `word_wiped_on_fork`, `made` | AcqRel exchange | Acquire | What a pointer points to was made before it. |
//! | memory/futex.rs | `RawLock` | Acquire exchange, AcqRel swap; `touch`: AcqRel | Relaxed before trying | A lock: what is done under it is seen by the next holder. `touch` stands before or behind each unlocking in the order of the word's changes: the later of the two sees what came before the earlier. The kernel compares the word itself. |
//! | memory/futex.rs | `news`, `waiters` | Relaxed additions, `waiters` under the mutex | Relaxed | The mutex orders condition and count; the kernel compares `news` itself. |
//! | ffi/c_handle.rs | `magic`, `word` | Release when the body is made, AcqRel exchange or Release at its end | Acquire | Who sees the word of a live handle sees its body. |
//! | ffi/mmq_gap.rs | `NEXT` | Relaxed addition | by the addition | Numbers that differ. |
//! | engine/mod.rs | `came` | any | any | Of the tests alone. |
//! | state/space.rs | `looks_only_when_woken` | any | any | Of the tests alone. |

pub(crate) mod own;
pub(crate) mod padded;
pub(crate) mod ranks;
pub(crate) mod ready;
#[cfg(not(test))]
mod real;
pub(crate) mod requests;
pub(crate) mod waiting;
pub(crate) mod worker;

pub use self::own::OwnMutex;
#[cfg(not(test))]
pub(crate) use self::own::{JoinHandle, spawn};
pub(crate) use self::ready::above_standard;
#[cfg(not(test))]
pub(crate) use self::real::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Condvar, Mutex, MutexGuard, OnceLock, RwLock,
    Thread, current, fence, is_waited_for, now, park, park_timeout, touch, yield_now,
};
#[cfg(test)]
pub(crate) use crate::tests::schedule::{
    atomics::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, OnceLock, fence},
    locks::{Condvar, Mutex, MutexGuard, RwLock, is_waited_for, touch},
    threads::{JoinHandle, Thread, current, now, park, park_timeout, spawn, yield_now},
};
