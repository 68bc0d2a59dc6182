//! Bugs that can be planted in the product, a line each (`planted!`), so that tests can be seen to
//! find them: the table of all, with the rule or the promise that each breaks.
//!
//! A bug is planted by a test in its own thread ([`Mutant::plant`]), or in the whole process by
//! `MMQ_MUTANT=Name`, as `tests/mutants.rs` does to find out who catches it.

#[macro_use]
mod plant;

use plant::{
    CLOSED_MEANWHILE, CRASH, FORWARD, JOBS, LENT, NEWS_PASSED_ON, REPORTED_DURABLE, WORLD,
};

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
    /// A slot of the checkpoint is overwritten while the other may be in the page cache alone (R1).
    SlotOverwrittenWithoutR1 => "R1: the slot that won is on the disk before the other is written",
    /// What an opening found is not stored again before the first sync (R4).
    SuspectNotStoredAgain => "R4: what a failed sync left off the disk is stored again",
    /// Segments of dropped or expired messages are removed before the cause is durable.
    CauseNotDurable => "the disk knows why a segment was evicted before it goes",
    /// The run record does not say that segments are being changed.
    ChangingNotSaid => "rows are not believed while segments are changed",
    /// The mark of a clean end stays when segments are recycled or removed.
    CleanMarkKept => "segments that go end the clean end",
    /// The header of a segment that becomes a spare still says that it is live.
    SpareLeftLive => "a spare says that it is one",
    /// An opening goes on when it cannot overwrite the pieces of a unit that it gave up.
    TornRestKept => "what recovery gives up is overwritten, or the opening fails";
        audit: "B6", CRASH, 356,
    /// The rows of the index are believed without reading the headers of the first and the last
    /// segment.
    EndsNotLookedAt => "rows are held against the files",
    /// A seek clears the consumer's acknowledgements without a sync.
    SeekNotSynced => "what a seek forgets is forgotten on the disk first",
    /// Recovery does not count acknowledgements among the stated numbers, so it gives an
    /// acknowledged number out again.
    AcknowledgedNumberGivenAgain => "no number is given out twice, whoever alone speaks of it",
    /// The tail is published before the index has it.
    PublishedBeforeTheIndex => "after a kill no number that was reported is given out again",
    /// Each message of a batch is committed by itself.
    BatchVisibleInParts => "a batch is whole or absent",
    /// The header of a refused record is not cleared.
    RefusedHeaderStays => "what is refused is never delivered",
    /// A run gives numbers out without a reservation on the disk.
    ReservationNotWritten => "no number is given out twice after a power cut",
    /// A reservation counts before the checkpoint that has it is on the disk.
    ReservationSaidEarly => "no number is given out twice after a power cut",
    /// An extent of consumers' rows is named before the file that is to hold it is synced.
    ConsumersNamedUnsynced => "a row of consumers that was cut off is damage, not a power cut",
    /// The places of a consumer with a long name are stored before that name is synced.
    LongNameNotSynced => "a place whose name is nowhere is damage, not a power cut",
    /// An index that is made in the place of a damaged one is not durable before that one goes.
    NewIndexNotSynced => "a damaged index costs no place, whenever the opening dies",
    /// The run record does not say that the run took the mark of a clean end back.
    BegunNotSaid => "no number is given out twice, whichever slot is damaged",
    /// A record stored by calls gets its header before its payload.
    HeaderBeforePayload => "a valid header proves that the record is whole",
    /// The storage worker takes a tail for committed that is stored in the index alone.
    UncommittedTailFlushed => "the durable mark never passes the committed tail",
    /// The storage worker's flush waits for the producers' lock, whose holder may wait for the
    /// storage worker.
    KeeperWaitsForProducers => "P9: no order of calls deadlocks",
    /// The durable mark moves before the sync.
    MarkBeforeSync => "P1: what is said to be durable is",
    /// The end of a flush does not wake who waits for it.
    FlushEndWakesNobody => "P9: no wake-up is lost",
    /// The durable mark moves although the flush failed.
    FailedFlushIsDone => "P1: what is said to be durable is",
    /// A flush does not look at segments before the durable mark that were stored to.
    OlderSegmentNotSynced => "P1: what is said to be durable is",
    /// A sync of a segment that fails does not count.
    SegmentSyncNotHeeded => "R6: the first sync that fails poisons the queue",
    /// A flush does not sync the directory.
    FlushWithoutNames => "R2: names are on the disk before anything rests on them",
    /// Places that moved while the index was synced count as synced.
    MovesCountedAfterSync => "P2: a flushed place is durable",
    /// A flush of places that waited for the last one goes on after the end of the run.
    PlacesFlushedAfterTheEnd => "P7: nothing is written after the close",
    /// The end of a run does not wait for the flush under way.
    LeaderOutlivesTheRun => "P7: nothing is written after the close",
    /// Segments are given back while a consumer's new place is chosen.
    DrainedWhileChosen => "a consumer's place is not given back",
    /// The tail's position is published before its number.
    PositionBeforeNumber => "a position never comes with a number before it";
        equivalent: "tests/loom/models.rs finds it, which is none of the groups",
    /// The storage worker is rung before the wish is noted.
    RungBeforeTheWish => "P9: no wake-up is lost",
    /// After the descriptor was cleared, news are not looked for again.
    ReadyNotLookedAtAgain => "P9: no wake-up is lost",
    /// Wakers are called with the line's lock held.
    WokenUnderTheLine => "P9: no lock is held while a caller's code runs",
    /// Segments that were drained while the places were synced are used again, too.
    DrainedDuringSyncGoes => "R8: a segment goes when a synced place is behind it",
    /// Whether space is coming is asked under another lock than whether there is room.
    ComingAskedApart => "P5: a queue with room takes messages"; equivalent:
        "Who saw that nothing comes, and is refused, asks whether consumers or ages drained \
         anything since it began (regain). Who saw that space comes reclaims once more, and \
         sees that nothing comes if there is nothing left to reclaim.",
    /// A drained segment becomes a spare although a reader has it open.
    SharedSegmentUsedAgain => "P3: a segment that a message lends is not used again",
    /// A drained segment becomes a spare although messages are lent from it.
    LentSegmentUsedAgain => "P3: a segment that a message lends is not used again",
    /// A store to a full segment while it is synced counts as synced.
    StoreDuringSyncForgotten => "P1: what is said to be durable is",
    /// A segment that was stored to is not kept open until it is synced.
    DescriptorNotKept => "R6: a failed write-back is reported to a descriptor that was open",
    /// A window is taken for idle although somebody refers to it.
    EvictedInUse => "P3: a lent message stays as it is after the close",
    /// Other threads see a place before the index has it.
    PlacePublishedBeforeStored => "R8: a segment goes when a stored place is behind it",
    /// A delivery from before a seek can be acknowledged.
    EpochNotAsked => "a seek forgets what was handed out",
    /// Whether the queue is open is not asked again once the producers' lock is held.
    WriterAfterClose => "P7: nothing is written after the close",
    /// A header that a call cannot write is not stored through a mapping.
    HeaderByCallAlone => "P4: a power cut's loss is reported as that",
    /// What only a row of the index states is not written into the header.
    StatedByTheRowAlone => "P4: a power cut's loss is reported as that",
    /// A hole is filled before the header of the segment behind it states what is missing.
    FilledBeforeStated => "P4: a power cut's loss is reported as that",
    /// A checkpoint within the numbers that the next segment is to state says nothing of them.
    StatedAtTheBaseAlone => "P4: a power cut's loss is reported as that",
    /// A future that waits for room has its waker put in after it looked.
    RearmedAfterTheLook => "P9: no wake-up is lost",
    /// A future does not look for room again once it is in line.
    RoomLookedForOnce => "P9: no wake-up is lost",
    /// An enqueue that was interrupted has put its message in.
    InterruptedThoughDone => "an interrupt changes nothing",
    /// A reader that is interrupted has taken a message.
    InterruptedHavingTaken => "an interrupt changes nothing",
    /// While a consumer is made, nothing keeps the segments from its place on.
    NoStandIn => "a consumer's place is not given back",
    /// A producer waits for a seek with its lock held, for which the seek may wait.
    RoomWaitsForASeek => "P9: no order of calls deadlocks",
    /// A mapped record's header is stored before its payload (R0).
    MappedHeaderBeforePayload => "R0: the payload is stored before the header that makes it valid",
    /// The number of an invalid slot of the checkpoint does not count (R9).
    TornSlotNotCounted => "R9: a slot's number lies above every number in either slot",
    /// The row of a removed consumer is given to another before the removal is durable.
    RemovedRowUsedAtOnce => "a row never holds parts of two consumers",
    /// Acknowledgements go from the row as soon as the unsynced place has passed them (audit B10).
    PassedAcksLeftOut => "P2: a flushed acknowledgement stays",
    /// A checkpoint overwrites the newest slot (R1).
    NewestSlotOverwritten => "R1: the newest durable slot is never overwritten",
    /// The token of the page cache is stored before the live part that it vouches for.
    TokenFirst => "the live part is whole when it is believed",
    /// The token is cleared before the mark of what an opening found durable is stored.
    MarkBehindTheToken => "what a power cut left is durable when it was found",
    /// The run record is stored in one of its two copies.
    RunInOneCopy => "one copy of the run record is whole at any time",
    /// The run record is changed with its lock released between.
    RunChangedUnlocked => "two changes of the run record are both stored",
    /// Two threads sync the index at the same time: one succeeds over the failure of the other.
    TwoSyncsAtOnce => "R6: a failure is noted before another sync can succeed",
    /// A sync that was under way when bytes were stored counts for them.
    SyncUnderWayCounts => "what is taken for synced was stored before the sync began",
    /// The row that says where an extent lies is stored before there is such an extent.
    ExtentBeforeItsRows => "an extent is there when the index says so"; equivalent:
        "A row that names bytes behind the end of the file does not count, and the next extent takes \
         that row. Fresh space reads as zeros, and each row in an extent has a check of its own.",
    /// The run's word on what was dropped or expired is not heeded.
    LossesOfTheRunForgotten => "P4: a loss is reported with its cause",
    /// The directory is not synced once segments were discarded (R2).
    DiscardedUnsynced => "R2: what an opening gives up is gone before the first append",
    /// What recovery overwrites is not synced.
    OverwrittenUnsynced => "R3: what is given up does not come back",
    /// The last segment is written on after a power cut (R3).
    TailWrittenOn => "R3: the next message begins another segment",
    /// Of segments that contradict each other, the older ones count, too (R9).
    OutlivedKept => "R9: the segment with the highest life counts",
    /// The index is not stored again after a run that did not end in order (R4).
    IndexNotStoredAgain => "R4: the next sync of the index takes its pages, too",
    /// A holder whose last flush failed clears its process id, as if it had closed in order.
    /// The life of a segment that is gone is used again (R9).
    LifeUsedAgain => "R9: no life is used again",
    /// An opening has the run record forget what a segment states that is not durable.
    StatementMayBeLost => "P4: each missing number is reported with its cause",
    /// The next life may be late although a header bears the one before it.
    NextLifeLate => "an older copy of the index is known by lives alone",
    /// Numbers go on at the tail that another mount found.
    NumbersOfAnotherMount => "no number is given out twice",
    /// Headers say of a segment that was drained during a sync that its places are on the disk.
    HeldTakenAfterTheSync => "a header says what was given back durably",
    /// Their files are cut although somebody reads from them.
    CutUnderReaders => "a look behind the end of a file kills nobody",
    /// They count for what they take at once, though a power cut may bring longer ones back.
    CutCountsAtOnce => "P5: the files take no more than the limit, also after a power cut",
    /// The durable mark passes what was drained before the places are durable that say so.
    MarkRestsOnPlaces => "P1: what is said to be durable is",
    /// A producer that looks for room looks at deliveries, with its lock held.
    DeliveriesByProducers => "who is waited for takes no lock that a waiter may hold";
        audit: "T1", JOBS, 2199023255556,
    /// The storage worker calls the wakers of futures.
    StorageWorkerCallsWakers => "the storage worker runs no code of the program's";
        audit: "T3", JOBS, 2199023255553,
    /// A close returns while another one is under way.
    CloseNotWaitedFor => "after a close all is durable",
    /// An opening that dies after a power cut counts against what was in flight before it.
    CutTakenForDeath => "a power cut counts against no message",
    /// That a message was rejected is not stored.
    RejectionNotStored => "what is rejected is handed out no more, by no later run",
    /// That a message is in flight is not stored.
    InFlightNotStored => "a death counts as an attempt for each message in flight",
    /// A dead letter is acknowledged before it is durable.
    DeadLettersNotFlushed => "a dead letter is never lost",
    /// The windows of a drained segment are looked at before its references (audit A3).
    WindowsLookedAtFirst => "P3: a segment that a message lends is not used again";
        audit: "A3", LENT, 249,
    /// Whether the queue is open is not asked again once the registry is locked (audit A6).
    RegistryAfterClose => "P7: nothing is written after the close";
        audit: "A6", CLOSED_MEANWHILE, 2,
    /// A waiter that cannot use the news keeps them (audit A9).
    NewsNotPassedOn => "P9: no wake-up is lost";
        audit: "A9", NEWS_PASSED_ON, 37,
    /// Wakers are called with the flush lock held (audit A10).
    WokenUnderTheFlushLock => "P9: no lock is held while a caller's code runs";
        audit: "A10", WORLD, 18,
    /// A gap met behind a batch counts as reported (audit A11, B9).
    GapOfABatchNotReported => "P4: each missing number is reported";
        audit: "A11, B9", WORLD, 1556,
    /// The directory counts as synced while the sync is under way (audit B2).
    DirectorySyncSaidEarly => "P1: what is said to be durable is";
        audit: "B2", REPORTED_DURABLE, 1613,
    /// A sync of the index that fails does not poison the queue (audit B3).
    IndexSyncNotHeeded => "R6: the first sync that fails poisons the queue";
        audit: "B3", WORLD, 7610,
    /// A forwarder compares no sums with the far side.
    ForwardCopyNotSeen => "forward: an older copy is found by the chain of sums",
    /// A forwarder goes on at its place, though the far side holds less.
    ForwardLossNotSeen => "forward: what the far side lost is sent again",
    /// A forwarder sends everything that is kept again when the far side lost something.
    ForwardSentFromOldest => "forward: nothing is there twice",
    /// A forwarder takes a store that was set back for one that removed its messages.
    ForwardSetBackIsRemoved => "forward: what a set-back far side lost is sent again";
        audit: "F1", FORWARD, 252139,
    /// A forwarder does not count what was stored and removed before it was acknowledged.
    ForwardStoredNotCounted => "forward: what was stored before it was removed is not sent again";
        audit: "F2", FORWARD, 1034487,
    /// A forwarder counts messages that somebody else wrote and removed as messages of the queue.
    ForwardOthersCounted => "forward: what somebody else wrote is not counted",
    /// A forwarder counts positions, though a message without one was left out.
    ForwardLeftOutCounted => "forward: a message that was left out has no position",
    /// Of a pack that the far side acknowledged, only the first message counts.
    ForwardPackFirst => "forward: a pack that is acknowledged is acknowledged as a whole",
    /// The place moves when messages are sent.
    ForwardPlaceAtSent => "forward: what is not acknowledged there is not acknowledged here",
    /// A forwarder that begins behind the first number takes a new far side for one that forgot.
    ForwardBeganForgotten => "forward: who never acknowledged anything has forgotten nothing";
        audit: "F3", FORWARD, 52,
    /// What the far side removed by its own rules counts as lost there.
    ForwardRemovedIsLost => "forward: what was removed there is not sent again";
        audit: "F7", FORWARD, 1034487,
    /// A forwarder sends all that the far side takes, however slow the link is.
    ForwardAllAtOnce => "forward: no more is under way than the link takes in seconds";
        audit: "F5", FORWARD, 11,
    /// The time that the far side has for an answer does not grow with what is under way.
    ForwardPatienceFixed => "forward: what is under way on a slow link is not sent again";
        audit: "F5", FORWARD, 57,
    /// A message's sum covers that message alone.
    ForwardSumOfOne => "forward: a copy with the same last text is found";
        audit: "F8", FORWARD, 1472,
}
