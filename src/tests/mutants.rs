//! Bugs that can be planted in the product, a line each (`planted!`), so that tests can be seen to
//! find them: the table of all, with the rule or the promise that each breaks.
//!
//! A bug is planted by a test in its own thread ([`Mutant::plant`]), or in the whole process by
//! `MMQ_MUTANT=Name`, as `tests/mutants.rs` does to find out who catches it.

use std::cell::Cell;
use std::sync::OnceLock;

macro_rules! mutants {
    ($($(#[doc = $doc:literal])+ $name:ident => $rule:literal,)+) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Mutant {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Mutant {
            /// Each with the rule or the promise that it breaks.
            pub(crate) const ALL: &[(Mutant, &str)] = &[$((Mutant::$name, $rule),)+];
        }
    };
}

mutants! {
    /// A checkpoint is written before the messages that it names as durable are synced (R0).
    CheckpointBeforeData => "R0: what a checkpoint names is on the disk before it",
    /// Checksums are not seeded from the segment's queue, life, base and salt (R5).
    ChecksumNotSeeded => "R5: a record counts in its place and its life alone",
    /// The directory is never synced, so new and removed names never become durable (R2).
    DirectoryNotSynced => "R2: names are on the disk before anything rests on them",
    /// Recovery delivers those records of a torn batch that are whole.
    TornBatchAccepted => "a batch is whole or absent",
    /// Recovery does not check seals: records of two tries at a batch count as one batch.
    SealNotChecked => "a batch is of one try",
    /// Segments are recycled before the places behind them are synced (R8).
    RecycledBeforePlacesAreSynced => "R8: a segment goes when a synced place is behind it",
    /// A half of the checkpoint is overwritten while the other half may exist in the page cache
    /// alone (R1).
    HalfOverwrittenWithoutR1 => "R1: the half that won is on the disk before the other is written",
    /// Pages that a failed sync left off the disk are not stored again before the next sync (R4).
    SuspectNotStoredAgain => "R4: what a failed sync left off the disk is stored again",
    /// Segments of dropped or expired messages are removed before the cause is durable.
    CauseNotDurable => "the disk knows why a segment was given up before it goes",
    /// The run record does not say that segments are being changed.
    ChangingNotSaid => "rows are not believed while segments are changed",
    /// The mark of a clean end stays when segments are recycled or removed.
    CleanMarkKept => "segments that go end the clean end",
    /// The header of a segment that becomes a spare still says that it is live.
    SpareLeftLive => "a spare says that it is one",
    /// An opening goes on when it cannot overwrite the pieces of a unit that it gave up.
    TornRestKept => "what recovery gives up is overwritten, or the opening fails",
    /// The rows of the index are believed without reading the headers of the first and the last
    /// segment.
    EndsNotLookedAt => "rows are held against the files",
    /// A seek clears the consumer's acknowledgements without a sync.
    SeekNotSynced => "what a seek forgets is forgotten on the disk first",
    /// Recovery does not count acknowledgements among the stated numbers, so it gives an
    /// acknowledged number out again.
    AcknowledgedNumberGivenAgain => "no number is given out twice, whoever alone speaks of it",
    /// A flush opens a segment when it is no longer known to be live (audit A1).
    SyncedWithoutBeingLive => "P1: what is stored again is stored to a live segment",
    /// What was found is delivered although its pieces were given away (audit A2).
    PiecesNotAtHand => "P9: no consumer answers an error for ever",
    /// The windows of a drained segment are looked at before its references (audit A3).
    WindowsLookedAtFirst => "P3: a segment that a message lends is not used again",
    /// Calls from within the closure of `enqueue_with` are not refused (audit A5).
    CallsFromWithin => "P9: no order of calls deadlocks",
    /// Whether the queue is open is not asked again once the registry is locked (audit A6).
    RegistryAfterClose => "P7: nothing is written after the close",
    /// A waiter that cannot use the news keeps them (audit A9).
    NewsNotPassedOn => "P9: no wake-up is lost",
    /// Wakers are called with the flush lock held (audit A10).
    WokenUnderTheFlushLock => "P9: no lock is held while a caller's code runs",
    /// A gap met behind a batch is taken for told (audit A11, B9).
    GapOfABatchNotTold => "P4: each missing number is told",
    /// The directory counts as synced while the sync is under way (audit B2).
    DirectorySyncSaidEarly => "P1: what is said to be durable is",
    /// A sync of the index that fails does not poison the queue (audit B3).
    IndexSyncNotHeeded => "R6: the first sync that fails poisons the queue",
}

thread_local! {
    static HERE: Cell<Option<Mutant>> = const { Cell::new(None) };
}

impl Mutant {
    /// The bug that is planted in what the calling thread does.
    pub(crate) fn planted() -> Option<Mutant> {
        static EVERYWHERE: OnceLock<Option<Mutant>> = OnceLock::new();
        HERE.get().or(*EVERYWHERE.get_or_init(|| {
            let name = std::env::var("MMQ_MUTANT").ok()?;
            let found = Mutant::ALL.iter().find(|(mutant, _)| format!("{mutant:?}") == name);
            Some(found.unwrap_or_else(|| panic!("MMQ_MUTANT: there is no {name}")).0)
        }))
    }

    /// Whether this bug is planted in what the calling thread does.
    #[inline]
    pub(crate) fn is_planted(self) -> bool {
        Mutant::planted() == Some(self)
    }

    /// Plants a bug, or pulls it out again.
    pub(crate) fn plant(mutant: Option<Mutant>) {
        HERE.set(mutant);
    }
}

/// What `tests/mutants.rs` asks for: the names of all, with their rules.
#[test]
fn all_that_can_be_planted() {
    for (mutant, rule) in Mutant::ALL {
        println!("mutant {mutant:?}: {rule}");
    }
}
