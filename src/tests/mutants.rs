//! Bugs that can be planted in the product, a line each (`planted!`), so that tests can be seen to
//! find them: the table of all, with the rule or the promise that each breaks.
//!
//! A bug is planted by a test in its own thread ([`Mutant::plant`]), or in the whole process by
//! `MMQ_MUTANT=Name`, as `tests/mutants.rs` does to find out who catches it.

#[macro_use]
mod plant;

use plant::{
    CLOSED_MEANWHILE, CRASH, JOBS, LENT, NEWS_PASSED_ON, REPORTED_DURABLE, STORED_AGAIN, VISITED,
    WORLD,
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
    /// A half of the checkpoint is overwritten while the other may be in the page cache alone (R1).
    HalfOverwrittenWithoutR1 => "R1: the half that won is on the disk before the other is written",
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
    /// A commit goes on when the index could not store the tail.
    IndexTailNotHeeded => "a record is committed in the index too, or rolled back",
    /// Each message of a batch is committed by itself.
    BatchVisibleInParts => "a batch is whole or absent",
    /// A rollback leaves the tail behind the refused record.
    RefusedRecordStays => "what is refused is never delivered",
    /// The header of a refused record is not cleared.
    RefusedHeaderStays => "what is refused is never delivered",
    /// Segments begun for a refused record stay live.
    RefusedSegmentsStay => "a refused record leaves nothing behind",
    /// After a rollback the next segment does not say again which numbers are missing.
    SuccessionNotTakenBack => "P4: each missing number is reported",
    /// A run gives numbers out without a reservation on the disk.
    ReservationNotWritten => "no number is given out twice after a power cut",
    /// A reservation that is used up is not renewed.
    ReservationNotRenewed => "no number is given out twice after a power cut",
    /// A reservation counts before the checkpoint that has it is on the disk.
    ReservationSaidEarly => "no number is given out twice after a power cut",
    /// A consumer whose place cannot be read is left out.
    LostLeftOut => "a consumer whose place cannot be read costs no message",
    /// An extent of consumers' rows is named before the file that is to hold it is synced.
    ConsumersNamedUnsynced => "a row of consumers that was cut off is damage, not a power cut",
    /// Numbers that only the page cache has as reserved are reported as a gap.
    GapOnlyCached => "P4: no number that was reported as missing is given out later",
    /// A removal clears a long name, too.
    LongNameCleared => "a place whose name is nowhere is damage, not a power cut",
    /// The header of a segment that an opening drains as the last one says that all may be held.
    SparesOfAnOpeningForget => "no number is given out twice when the index is lost",
    /// A read that ends the count of a message wakes nobody.
    TakingWakesNobody => "P9: whoever waits for what may go out now is woken",
    /// A queue for dead letters whose lock could not be had is asked again for the next consumer.
    BusyAskedAgain => "deliveries of others do not wait for a queue of dead letters",
    /// The places of a consumer with a long name are stored before that name is synced.
    LongNameNotSynced => "a place whose name is nowhere is damage, not a power cut",
    /// An index that is made in the place of a damaged one is not durable before that one goes.
    NewIndexNotSynced => "a damaged index costs no place, whenever the opening dies",
    /// An opening that finds no index does not look for one that was made and not renamed.
    NewIndexForgotten => "a damaged index costs no place, whenever the opening dies",
    /// A segment that an opening closes keeps the space that it had ahead.
    ClosedStaysLong => "a start that is killed takes no more disk than it holds",
    /// Of two files of one segment both stay live.
    CopiesStayLive => "a copy of a segment costs nothing",
    /// A left `index.new` stays beside an index that is whole.
    LeftIndexStays => "an index that was left does not come back",
    /// The run record does not say that the run took the mark of a clean end back.
    BegunNotSaid => "no number is given out twice, whichever half is damaged",
    /// A closed run goes on saying that it took the mark of a clean end back.
    EndOfTheRunNotSaid => "a clean end leaves no reserved number",
    /// A new reservation may be lower than the one before.
    ReservationGoesBack => "no number is given out twice after a power cut",
    /// A record stored by calls gets its header before its payload.
    HeaderBeforePayload => "a valid header proves that the record is whole",
    /// A store to a segment that was opened again as the tail is not noted.
    ReopenedTailNotNoted => "P1: what is said to be durable is",
    /// The storage worker takes a tail for committed that is stored in the index alone.
    UncommittedTailFlushed => "the durable mark never passes the committed tail",
    /// The tail's segment is drained although the header of a refused record may stand there.
    DrainedUncleared => "what is refused is never delivered",
    /// A clean end is not written down.
    CleanEndNotWritten => "after a clean end nothing is reported as missing",
    /// The storage worker's flush waits for the producers' lock, whose holder may wait for the
    /// storage worker.
    KeeperWaitsForProducers => "P9: no order of calls deadlocks",
    /// The end of the storage worker does not wake who waits for it.
    KeeperLeavesInSilence => "P9: no wake-up is lost",
    /// A producer does the storage worker's requests itself, although that thread runs.
    RequestsDoneHere => "P9: no sync on the thread of a caller that asked for none",
    /// The storage worker does not wake the producer whose request is done.
    AnswerWakesNobody => "P9: no wake-up is lost",
    /// Segments that the storage worker drops ahead of need are no reason to try again without
    /// room.
    RoomAheadNotCounted => "P5: a queue with room takes messages, and drops no more than it must",
    /// Messages are dropped ahead of need behind the visible end, where a record may be half there.
    UncommittedDropped => "P1: what is being written is not evicted",
    /// A queue that drops its oldest messages is flushed for what it has dropped.
    EvictedFlushed => "P9: nobody waits for a flush that nobody needs",
    /// Near the limit a file grows by a page at a time.
    SmallSteps => "space comes in large steps near the limit, too",
    /// The storage worker is not woken to end.
    KeeperNotRungToEnd => "P9: a close ends",
    /// The storage worker does not flush when `flush_every` has passed.
    TimerDoesNotFlush => "P1: with a timer, messages are durable in time",
    /// The durable mark moves before the sync.
    MarkBeforeSync => "P1: what is said to be durable is",
    /// The end of a flush does not wake who waits for it.
    FlushEndWakesNobody => "P9: no wake-up is lost",
    /// After a flush that failed, its leader still counts as leading.
    LeaderStays => "P9: an error leaves no lock behind",
    /// The durable mark moves although the flush failed.
    FailedFlushIsDone => "P1: what is said to be durable is",
    /// A flush that makes messages visible wakes no reader.
    ReadersOfDurableNotWoken => "P9: no wake-up is lost",
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
    /// A checkpoint may be overwritten by an earlier one.
    CheckpointGoesBack => "a checkpoint never goes back",
    /// The end of a run does not wait for the flush under way.
    LeaderOutlivesTheRun => "P7: nothing is written after the close",
    /// The end of a run does not end reclaiming.
    ReclaimedAfterTheEnd => "P7: nothing is written after the close",
    /// Drained segments are reclaimed after a failed sync.
    ReclaimedPoisoned => "R8: a segment goes when a synced place is behind it",
    /// Segments are given back while a consumer's new place is chosen.
    DrainedWhileChosen => "a consumer's place is not given back",
    /// New room does not wake producers that wait for it.
    SpaceWakesNobody => "P9: no wake-up is lost",
    /// The tail's position is published before its number.
    PositionBeforeNumber => "a position never comes with a number before it";
        equivalent: "tests/loom/models.rs finds it, which is none of the groups",
    /// The storage worker is rung before the wish is noted.
    RungBeforeTheWish => "P9: no wake-up is lost",
    /// After the descriptor was cleared, news are not looked for again.
    ReadyNotLookedAtAgain => "P9: no wake-up is lost",
    /// Wakers are called with the line's lock held.
    WokenUnderTheLine => "P9: no lock is held while a caller's code runs",
    /// News wake a waiter of one consumer alone.
    OneWaiterOfAll => "P9: no wake-up is lost",
    /// Segments that were drained while the places were synced are used again, too.
    DrainedDuringSyncGoes => "R8: a segment goes when a synced place is behind it",
    /// Who reclaims does not ask whether the run has ended.
    ReclaimingNotAsked => "P7: nothing is written after the close",
    /// Whether space is coming is asked under another lock than whether there is room.
    ComingAskedApart => "P5: a queue with room takes messages"; equivalent:
        "Who saw that nothing comes, and is refused, asks whether consumers or ages drained \
         anything since it began (regain). Who saw that space comes reclaims once more, and \
         sees that nothing comes if there is nothing left to reclaim.",
    /// What is dropped is not noted as dropped.
    DropNotNoted => "P4: each missing number is reported with its cause",
    /// A reader within the tail's segment does not learn that it was drained.
    ReaderNotSentOn => "P9: no consumer waits beside a message"; equivalent:
        "The reader searches the rest of the segment. What a refused record left there has numbers \
         of the next segment, which a search does not take. So it goes on there, only later.",
    /// When the only segment is drained, it is not noted up to which number.
    DrainedUpToNotNoted => "the disk knows which numbers were given back",
    /// The oldest segment is drained as if it were the tail's.
    TailDrainedBeforeOthers => "no message goes before its time",
    /// Segments in which an opening found messages that may not be durable are not synced by the
    /// next flush.
    FoundNotNoted => "R4: what a flush covers is on the disk, whoever stored it",
    /// The segment in which a consumer stands is drained.
    DrainedTooFar => "no message goes before its time",
    /// Segments that are on their way out do not count.
    TransitNotCounted => "P5: `max_bytes` holds at every moment",
    /// A drained segment becomes a spare although a reader has it open.
    SharedSegmentUsedAgain => "P3: a segment that a message lends is not used again",
    /// A drained segment becomes a spare although messages are lent from it.
    LentSegmentUsedAgain => "P3: a segment that a message lends is not used again",
    /// A store to a full segment while it is synced counts as synced.
    StoreDuringSyncForgotten => "P1: what is said to be durable is",
    /// A segment that was stored to is not kept open until it is synced.
    DescriptorNotKept => "R6: a failed write-back is reported to a descriptor that was open",
    /// The growth of a segment's file is not reported to the pool.
    GrowthNotReported => "P3: a lent message stays as it is after the close",
    /// The index does not count for `max_bytes`.
    IndexNotCounted => "P5: `max_bytes` holds at every moment",
    /// A window is taken for idle although somebody refers to it.
    EvictedInUse => "P3: a lent message stays as it is after the close",
    /// The windows of a spare keep its old life.
    WindowsNotRenewed => "a window belongs to one life of a segment",
    /// A reader enters a segment that begins behind the visible end.
    UncommittedSegmentEntered => "what is refused is never delivered",
    /// A reader that found no segment does not look again with the visible end at hand.
    SegmentsNotLookedAtAgain => "P4: nothing is reported as missing that is there",
    /// A search that found nothing does not ask whether messages came meanwhile.
    TailNotLookedAtAgain => "P4: nothing is reported as missing that is there",
    /// A number ahead of the position is taken for nothing new.
    NumbersAtTheEndNotReported => "P4: each missing number is reported"; equivalent:
        "An opening puts the tail behind a word of positions that stands for the numbers missing \
         before it, so who stands at the end has the end's number. Otherwise the number is ahead \
         only while a producer publishes, who wakes the reader then. (After each life of a world \
         every consumer is read to its end and must have the end's number.)",
    /// Other threads see a place before the index has it.
    PlacePublishedBeforeStored => "R8: a segment goes when a stored place is behind it",
    /// A read does not count as a move of its consumer.
    MoveNotCounted => "P2: a flushed place is durable",
    /// A read that waited for its consumer's lock does not ask again whether the queue is open.
    ClosedNotAskedByReaders => "P7: nothing is written after the close",
    /// The end of a run leaves a consumer's quick way open.
    ReadersNotStopped => "P7: nothing is written after the close",
    /// Whether a consumer was removed is not asked under its lock.
    RemovedNotAsked => "a removed consumer stores nothing",
    /// A seek does not call deliveries off.
    DeliveriesOutliveASeek => "a seek forgets what was handed out",
    /// The place passes messages that are handed out and not acknowledged.
    HandedOutIsDone => "a delivery that is not acknowledged comes again",
    /// Acknowledgements beyond the place are kept in memory alone.
    AcksNotStored => "P2: what was acknowledged does not come again after a kill",
    /// A delivery from before a seek can be acknowledged.
    EpochNotAsked => "a seek forgets what was handed out",
    /// More messages are handed out than `max_in_flight` allows.
    AllowanceNotAsked => "`max_in_flight` holds at every moment",
    /// Whether the queue is open is not asked again once the producers' lock is held.
    WriterAfterClose => "P7: nothing is written after the close",
    /// A producer flushes and wakes with the producers' lock held.
    FlushedUnderTheLock => "P9: no order of calls deadlocks",
    /// A header that a call cannot write is not stored through a mapping.
    HeaderByCallAlone => "P4: a power cut's loss is reported as that",
    /// A damaged header stays so as long as the rows of the index are believed.
    DamagedHeaderStays => "P2: damage costs no more than was damaged",
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
    /// Room wakes one future, which may be dropped.
    RoomWakesOneFuture => "P9: no wake-up is lost",
    /// New room does not wake futures that wait for it.
    RoomWakesNoFuture => "P9: no wake-up is lost",
    /// A close, an interrupt and the storage worker's end wake no future.
    FuturesLeftAsleep => "P9: no wake-up is lost",
    /// A future that is dropped while it waits for room stays in line.
    DroppedFutureStays => "a future that is dropped leaves nothing behind",
    /// A future that joins the line does not ask whether it was interrupted before.
    InterruptedBeforeTheLine => "an interrupt ends every wait",
    /// Without workers, a future notes how much room came only after it looked for some.
    RoomCountedLate => "P9: no wake-up is lost",
    /// An enqueue that was interrupted has put its message in.
    InterruptedThoughDone => "an interrupt changes nothing",
    /// A reader that is interrupted has taken a message.
    InterruptedHavingTaken => "an interrupt changes nothing",
    /// The removal of a consumer is not stored in the index.
    RemovalNotStored => "a removed consumer stays removed",
    /// The default consumer's place keeps segments after it was removed.
    RemovedKeepsItsPlace => "P5: what a removed consumer kept is given back",
    /// The removal of a consumer does not wake who waits for it.
    RemovalWakesNobody => "P9: no wake-up is lost",
    /// Who waits for a consumer that is removed and made again at once waits on.
    RemovalMissedByWaiters => "a removal ends the waits for the consumer",
    /// Who waits does not ask whether it was interrupted.
    InterruptNotAsked => "an interrupt ends every wait",
    /// An interrupt wakes nobody.
    InterruptWakesNobody => "an interrupt ends every wait",
    /// A waiter is not counted, so producers do not wake it.
    WaitersNotCounted => "P9: no wake-up is lost",
    /// A waiter that leaves does not wake the next one.
    LeaverKeepsTheNews => "P9: no wake-up is lost",
    /// An acknowledgement, which leaves an allowance, wakes no waiter.
    AckWakesNobody => "P9: no wake-up is lost",
    /// A delivery that is given back wakes no waiter.
    NackWakesNobody => "P9: no wake-up is lost",
    /// A close wakes no reader.
    CloseWakesNobody => "P7: a close ends every wait",
    /// A close does not wait for who makes, moves or removes a consumer.
    ClosedWhileConsumersAreMade => "P7: nothing is written after the close",
    /// Lent messages stay mapped to the files after the close.
    LentStaysMapped => "P3: a lent message stays as it is after the close",
    /// While a consumer is made, nothing keeps the segments from its place on.
    NoStandIn => "a consumer's place is not given back",
    /// A consumer is forked without holding its lock.
    ForkedWithoutItsLock => "a consumer's place is not given back",
    /// A seek wakes no waiter.
    SeekWakesNobody => "P9: no wake-up is lost",
    /// A producer waits for a seek with its lock held, for which the seek may wait.
    RoomWaitsForASeek => "P9: no order of calls deadlocks",
    /// Consumers are not asked to release segments that were dropped.
    RemovedStaysOpen => "P5: space that was given up comes back",
    /// A mapped record's header is stored before its payload (R0).
    MappedHeaderBeforePayload => "R0: the payload is stored before the header that makes it valid",
    /// The checksum of a consumer's place is not checked.
    PlaceNotChecked => "a place is one that was stored",
    /// The checksum of stored acknowledgements is not checked.
    AcksNotChecked => "what is acknowledged was acknowledged by this consumer",
    /// The checksum of a checkpoint is not checked.
    CheckpointNotChecked => "a torn checkpoint does not count",
    /// The checksum of a row that says where an extent lies is not checked.
    ExtentNotChecked => "an extent is one that was made",
    /// The checksum of the index's header is not checked.
    IndexHeaderNotChecked => "P4: a damaged index is made anew",
    /// The checksum of a segment's header is not checked.
    SegmentHeaderNotChecked => "P4: a damaged header is no segment",
    /// The check of a fragment's header is not checked (R5).
    FragmentHeaderNotChecked => "R5: a record counts in its place and its life alone",
    /// The checksum of a payload is not checked.
    PayloadNotChecked => "P3: no changed byte is delivered",
    /// The number of a record is not held against the number that is expected (R5).
    NumberNotChecked => "R5: a record counts under its own number alone",
    /// The checksum of the run record is not checked.
    RunNotChecked => "a torn run record does not count",
    /// The check words of the tail and of the durable mark are not checked.
    TailNotChecked => "a torn tail does not count",
    /// The number of an invalid half of the checkpoint does not count (R9).
    TornHalfNotCounted => "R9: a half's number lies above every number in either half",
    /// A consumer's place is always stored in the same half.
    PlaceOverwritten => "one half of a place is whole at any time",
    /// A consumer's acknowledgements are always stored in the same half.
    AcksOverwritten => "one half of the acknowledgements is whole at any time",
    /// The row of a removed consumer is given to another before the removal is durable.
    RemovedRowUsedAtOnce => "a row never holds parts of two consumers",
    /// What a removed consumer of the same name left is not cleared from its row.
    FormerNotCleared => "P2: a new consumer begins anew",
    /// The name that a removed consumer left in its row is not cleared before the row is given to
    /// another one.
    FormerNameLeft => "a consumer that an opening found removed does not come back",
    /// What a removed consumer left is cleared without a sync.
    FormerClearedUnsynced => "P2: a new consumer begins anew after a power cut, too",
    /// Acknowledgements go from the row as soon as the unsynced place has passed them (audit B10).
    PassedAcksLeftOut => "P2: a flushed acknowledgement stays",
    /// A checkpoint overwrites the newest half (R1).
    NewestHalfOverwritten => "R1: the newest durable half is never overwritten",
    /// The token of the page cache is stored before the live part that it vouches for.
    TokenFirst => "the live part is whole when it is believed",
    /// The durable mark of an earlier run stays when the live part begins anew.
    OldMarkKept => "a mark of what is durable is of this run, or was believed",
    /// The token is cleared before the mark of what an opening found durable is stored.
    MarkBehindTheToken => "what a power cut left is durable when it was found",
    /// The run record is stored in one of its two copies.
    RunInOneCopy => "one copy of the run record is whole at any time",
    /// The durable mark is always stored in the same half.
    SyncedMarkOverwritten => "one half of the durable mark is whole at any time",
    /// The run record is changed with its lock released between.
    RunChangedUnlocked => "two changes of the run record are both stored",
    /// A dead letter is stored before the version in the index's header is on the disk.
    VersionNotSynced => "what older code must not overlook has a higher version, on the disk first",
    /// An index that is made anew has the lowest version, whatever the segments bear.
    VersionForgotten => "what older code must not overlook has a higher version",
    /// A dead letter goes to a segment whose header was written before.
    DeadLetterInAnOlderSegment => "a dead letter lies in a segment of version 2 alone",
    /// Syncs go on after one has failed (R6).
    SyncedAfterFailure => "R6: after a sync that failed none is made",
    /// Two threads sync the index at the same time: one succeeds over the failure of the other.
    TwoSyncsAtOnce => "R6: a failure is noted before another sync can succeed",
    /// A sync of the index leaves out the bytes that could not be written before.
    LateNotWritten => "P1: a sync of the index covers all that was stored in it",
    /// A sync that was under way when bytes were stored counts for them.
    SyncUnderWayCounts => "what is taken for synced was stored before the sync began",
    /// The row that says where an extent lies is stored before there is such an extent.
    ExtentBeforeItsRows => "an extent is there when the index says so"; equivalent:
        "A row that names bytes behind the end of the file does not count, and the next extent takes \
         that row. Fresh space reads as zeros, and each row in an extent has a check of its own.",
    /// The page cache of another mount is believed.
    AnyMountBelieved => "the live part is believed in the life of the cache it was stored in",
    /// Pages that are to be stored again are only read (R4).
    PagesNotStoredAgain => "R4: what was left off the disk is made dirty again",
    /// An index of which few sectors can be read is made anew.
    UnreadableIndexMadeAnew => "a disk that is away for a while costs no consumer",
    /// A page that cannot be read makes the flush fail that is to store it again.
    UnreadableEndsTheFlush => "a page that cannot be read costs its own messages",
    /// A store in the index that was refused stays in its memory, as if it had been made.
    RefusedStoreKept => "what a call refused is not there",
    /// A store in the index that was refused is not made up for later.
    RefusedStoreForgotten => "what is stored late is stored",
    /// An index older than its segments is believed (audit B4).
    OutdatedIndexBelieved => "P4: an old index put back is found out",
    /// After a remount in the same boot everything is believed that reaches the stated tail.
    MountBelieved => "after a remount every record is looked at",
    /// The run's word on what was dropped or expired is not heeded.
    LossesOfTheRunForgotten => "P4: a loss is reported with its cause",
    /// What was dropped or expired counts as held, if its segment is still there.
    EvictedComesBack => "what was evicted stays so",
    /// A segment that was begun behind a clean end counts.
    BegunBehindTheEnd => "P4: no number is reported missing that nobody got",
    /// Damage before the durable mark is repaired as if it were torn (R7).
    DamageTakenForTorn => "R7: what does not validate before the mark is damage",
    /// Holes are not overwritten.
    HoleLeft => "behind a hole the records count on after the next opening, too",
    /// A consumer whose place lies in what was overwritten stays there.
    PlaceLeftInTheEmpty => "a place is the beginning of a record",
    /// A consumer whose place lies in padding behind the tail goes to the padding's end.
    PlaceBehindTheNextSegment => "nothing is given out before any consumer's place",
    /// The directory is not synced once segments were discarded (R2).
    DiscardedUnsynced => "R2: what an opening gives up is gone before the first append",
    /// Numbers that were reserved are given out again after a power cut.
    ReservationOfTheRunForgotten => "no number is given out twice",
    /// What recovery overwrites is not synced.
    OverwrittenUnsynced => "R3: what is given up does not come back",
    /// A header that states anew what is missing is not synced.
    HeaderUnsynced => "P4: a number that was reported missing stays so",
    /// The rest of the last segment is left as it is behind the tail (R3).
    TailNotClosed => "R3: no old record stands up behind the tail",
    /// The last segment is written on after a power cut (R3).
    TailWrittenOn => "R3: the next message begins another segment",
    /// Rows are believed that the run record calls unsettled.
    ChangingNotHeeded => "rows are not believed while segments are changed",
    /// Rows are believed without a look at which files there are.
    FilesNotLookedAt => "P4: rows are held against the directory",
    /// Of segments that contradict each other, the older ones count, too (R9).
    OutlivedKept => "R9: the segment with the highest life counts",
    /// The index is not stored again after a run that did not end in order (R4).
    IndexNotStoredAgain => "R4: the next sync of the index takes its pages, too",
    /// A holder whose last flush failed clears its process id, as if it had closed in order.
    HolderGoesUnflushed => "R4: what a failed sync left off the disk stays suspect",
    /// Places that a killed run left in the page cache count as durable.
    PlacesTakenForDurable => "R8: a segment goes when a synced place is behind it",
    /// Of what a power cut left, only what lies before the checkpoint counts as durable.
    FoundIsNotConfirmed => "R4: what was confirmed stays durable over two power cuts",
    /// What an opening mended and failed to sync is not stored again by the next one.
    MendedNotStoredAgain => "R4: what a failed sync left off the disk is stored again",
    /// Everything up to the tail counts as durable once the queue is opened.
    DurableTooFar => "R4: what an opening found is synced before it is promised",
    /// The life of a segment that is gone is used again (R9).
    LifeUsedAgain => "R9: no life is used again",
    /// What does not validate is stepped over, and no hole is noted.
    HoleNotSeen => "P4: each missing number is reported",
    /// A record whose commit is refused, and which cannot be cleared, is said to be refused.
    RefusedAndWhole => "what is refused is never delivered",
    /// The next segment is begun, and the one before stays live without an end.
    LeftSegmentOpenEnded => "P3: what is refused is never delivered",
    /// An opening believes the row of a file that grew right before a kill.
    GrownFileNotMeasured => "max_bytes holds at every step",
    /// Segments stay short however long the backlog is.
    LengthsStay => "P6: few files for a long backlog",
    /// A record longer than the present length of segments gets no longer one.
    LongRecordCut => "P6: a record lies in one piece where an arena has room for it",
    /// Spares that are not as long as the tail's segment stay.
    OtherSparesStay => "P6: drained space goes back to the disk",
    /// An idle queue keeps a long segment of which all is read.
    LongTailKept => "P6: drained space goes back to the disk",
    /// Windows are mapped beyond the cap.
    MappedBeyondTheCap => "P6: mapped memory stays within the cap",
    /// Of a refused record that begins a segment the header is not cleared.
    OwnSegmentUncleared => "what is refused is never delivered",
    /// A caller whose message is in the queue gets the error that refuses the calls behind it.
    RefusedThoughDone => "what is refused is never delivered",
    /// A sync that failed before a message was stored is reported as one that came behind it.
    RefusedAsFlush => "P1: what a call reports to be in the queue is there",
    /// A spare that cannot be looked at is quarantined, where its bytes count for ever.
    SpareQuarantined => "P5: a queue that was full works again",
    /// An opening has the run record forget what a segment states that is not durable.
    StatementMayBeLost => "P4: each missing number is reported with its cause",
    /// A clean end is believed although the run behind it gave up messages.
    ExpiredComesBack => "P4: what was evicted does not come back",
    /// A kill in an opening that believes the live part counts as a power cut.
    BelievedIsDoubted => "what an opening that dies has read is reported as it would have been",
    /// Where a kill left no tail, the walk begins with the last segment.
    WalkFromTheLastSegment => "P2: what is acknowledged is there after a kill",
    /// A spare that cannot be removed is reclaimed again, and again.
    SpareGoesRound => "P9: a call without room ends",
    /// An opening behind a power cut marks as durable what is missing before the next segment.
    MarkBeyondTheMissing => "P4: each missing number is reported with its cause";
        audit: "4", VISITED, 1099511627897,
    /// Where a segment was closed at the end of its file, an opening that searches sees a hole.
    FileEndIsAHole => "P2: what is durable is there after a power cut",
    /// Where numbers go on at the end of the reservation, what was begun for a unit that died stays
    /// live.
    TornSegmentsKept => "P4: each missing number is reported with its cause";
        audit: "5", WORLD, 795638819543,
    /// Another mount has a place within what an opening behind a power cut filled, and it stays.
    PlaceLeftInTheMended => "P4: each missing number is reported with its cause",
    /// Where headers are read, a segment is live by its header that its row has as a spare.
    SpareLiveByItsHeader => "P4: no number is reported missing that nobody got",
    /// An opening stores over the copy of the run record that counts, the other being torn or old.
    OnlyCopyOverwritten => "one copy of the run record is whole at any time",
    /// Where an older copy of the index was put back, the walk does not go by what the headers say
    /// was given back.
    HeldOfTheHeadersForgotten => "the rest of a batch that was half given back is there",
    /// A file that cannot be measured counts for its length by the list, though a cut failed.
    UnmeasuredCountsForItsLength => "max_bytes holds at every step",
    /// A file that an opening cannot measure is not counted.
    UnmeasuredNotCounted => "max_bytes holds at every step",
    /// A flush that comes behind the end of the run says that it is done.
    FlushedAfterTheEnd => "P1: what is said to be durable is",
    /// An opening that found bytes lost with a mount leaves the token in the index.
    TokenKeptAfterALoss => "what an opening that dies has mended is reported as it would have been";
        equivalent: "Behind another mount numbers go on at the end of the reservation, whatever was found, and \
         what was mended reports the same. (Before that the next opening went on at the tail.)",
    /// A process that died behind a clean end counts as one that closed its queue.
    DeathBehindACleanEnd => "a message is handed out so often at most",
    /// A live part whose bytes are late bears the token.
    TokenOfTheLate => "what speaks for the live part is stored when the live part is",
    /// The next life may be late although a header bears the one before it.
    NextLifeLate => "an older copy of the index is known by lives alone",
    /// Numbers go on at the tail that another mount found.
    NumbersOfAnotherMount => "no number is given out twice",
    /// Rows are complete although the first segments have none.
    FirstRowsNotMissed => "rows are held against the files"; equivalent:
        "Where the first segment's file is there, it is a file without a row, and the rows are not \
         believed. Where it is not, the headers report no more than the rows.",
    /// Behind a power cut messages count as damaged that every consumer had passed.
    PassedIsDamaged => "nothing is called damaged that nobody misses",
    /// An opening does not look for lives in the checkpoint.
    LivesOfTheCheckpointForgotten => "R5: no life is used twice",
    /// The checkpoint of a reservation does not say which lives were used.
    LivesNotReserved => "R5: no life is used twice",
    /// Headers say of a segment that was drained during a sync that its places are on the disk.
    HeldTakenAfterTheSync => "a header says what was given back durably",
    /// A clock that is set back leaves the time of the first look at the tail's segment.
    FirstLookStays => "what bears a time to come does not stay for ever",
    /// A file of zeros is removed though the checkpoint says that it held messages.
    BlankOfMessagesRemoved => "what is damaged is quarantined, not removed",
    /// Segments may bear a version before the index says so on the disk.
    VersionSaidEarly => "an older mmq refuses what it cannot read",
    /// A salvage hands out the beginning of a batch that was never put in.
    UnfinishedSalvaged => "a batch is whole or absent",
    /// In a look at a queue a quarantined file has its old name, too.
    OldNameStays => "a look says what an opening would do",
    /// Room ahead of need is for a segment without the blocks that say where it lies.
    HeadroomWithoutOverhead => "room is made before it is needed",
    /// What several headers state as missing is subtracted from the figures as often.
    GapsCountedTwice => "the figures say how many there are",
    /// A reader that searches behind damage takes a record for one of the next segment.
    FoundBeyondTheSegment => "P3: what is refused is never delivered",
    /// A piece of a record that lies in several is delivered unchecked.
    PieceNotChecked => "P3: every message is checked",
    /// A new file that could be neither completed nor removed is not counted.
    FailedFileNotCounted => "max_bytes holds at every step",
    /// Where a kill left no tail, the walk ends at the first bytes that do not validate.
    DamageTakenForTheEnd => "P4: damage costs its message alone",
    /// After the clock was set back, a segment that goes on says that it began only now.
    TailDatedBack => "a clock that was set back and is set right makes nothing older",
    /// A message that goes to a segment without a date counts as old as those before it.
    LaterOnesNotLookedFor => "a message is held for its age at least",
    /// Figures are stored when the run has ended.
    FiguresStoredAfterTheEnd => "P7: nothing is written after the close",
    /// Figures that another opening stored count as those of the last one.
    FiguresOfAnotherOpening => "what the holder counts is the holder's",
    /// Figures that the disk refuses wait to be written, before all that is stored later.
    FiguresWait => "figures that cannot be stored change nothing else",
    /// An interrupt ends the flush of a message that is in the queue.
    FlushOfAMessageInterrupted => "a call that says nothing was changed changed nothing";
        audit: "T10", JOBS, 2199023255570,
    /// A call that reads while another thread removes the default consumer fails.
    RemovedBetweenSteps => "a read by the default consumer has it begin",
    /// Segments that the clock closed early keep the space behind their messages.
    EarlyEndsStay => "a segment that was closed by the clock takes what it holds",
    /// Their files are cut although somebody reads from them.
    CutUnderReaders => "a look behind the end of a file kills nobody",
    /// They count for what they take at once, though a power cut may bring longer ones back.
    CutCountsAtOnce => "P5: the files take no more than the limit, also after a power cut",
    /// So is a spare that was cut before.
    CutSpareCountsAtOnce => "P5: the files take no more than the limit, also after a power cut",
    /// The durable mark passes what was drained before the places are durable that say so.
    MarkRestsOnPlaces => "P1: what is said to be durable is",
    /// The marks of when messages were written become more and more.
    MarksWithoutEnd => "memory stays bounded",
    /// What an earlier opening left counts as fresh for an age more.
    FoundIsFresh => "after an opening what was there before is the backlog's",
    /// A full disk is asked for space for each place that is stored.
    FullDiskAskedEachTime => "a full disk drains at the speed of a disk that is not",
    /// The times of messages that were taken back stay.
    TakenBackStaysMarked => "a message is fresh for its age",
    /// Dead letters go in one piece, however large they are together.
    DeadLettersOfAnySize => "memory stays bounded",
    /// A close ends dead letters under way: they go again.
    DeadLettersUnderWayDoubled => "an orderly close costs no dead letter a copy",
    /// A producer that looks for room looks at deliveries, with its lock held.
    DeliveriesByProducers => "who is waited for takes no lock that a waiter may hold";
        audit: "T1", JOBS, 2199023255556,
    /// The storage worker calls the wakers of futures.
    StorageWorkerCallsWakers => "the storage worker runs no code of the program's";
        audit: "T3", JOBS, 2199023255553,
    /// A close returns while another one is under way.
    CloseNotWaitedFor => "after a close all is durable",
    /// A close does not wait for the calls that carry dead letters.
    CarriersNotWaitedFor => "an orderly close costs no dead letter a copy",
    /// A second close ends the run while the first one sends dead letters.
    ClosedUnderDeadLetters => "after a close all is durable",
    /// A worker waits for the end of another one that waits for it.
    WorkersWaitInACircle => "P9: no order of calls deadlocks",
    /// A close leaves rejected messages that could go.
    LastDeadLettersStay => "a close sends what is rejected";
        audit: "T11", JOBS, 2199023255821,
    /// A row of attempts counts whatever its checksum says.
    AttemptsNotChecked => "what is read from the index validates",
    /// How often a message was handed out is not stored.
    AttemptsNotStored => "attempts survive the death of the process",
    /// A death does not count against the message that was alone.
    DeathNotCounted => "a message whose work ends the process ends among the dead letters",
    /// An opening that dies after a power cut counts against the message that was alone before it.
    CutTakenForDeath => "a power cut counts against no message",
    /// After a death, what had been handed out goes out together.
    SuspectsTogether => "no other message dies with the poison",
    /// A delivery whose lease has ended is acknowledged.
    LeaseNotChecked => "an acknowledgement that comes too late says so",
    /// A message comes again after the first delay, however often it was given back.
    DelaysStay => "what is given back comes again after a growing delay",
    /// A message that is to come again after a while comes at once.
    DelayForgotten => "what is given back for a while does not come before",
    /// A lease ends when it would have without its extension.
    ExtensionForgotten => "an extended lease lasts",
    /// That a message was rejected is not stored.
    RejectionNotStored => "what is rejected is handed out no more, by no later run",
    /// A message that was reported as rejected is handed out again.
    RejectedComesAgain => "what is rejected is handed out no more",
    /// New rules do not hold for messages that were given back before.
    NewRulesForLaterOnes => "a message is handed out so often at most",
    /// A death counts against the message that was handed out last, whoever else was out.
    InnocentsBlamed => "only a death with a message alone in flight counts against it",
    /// What was handed out is under suspicion after a run that ended in order.
    SuspectsAfterTheEnd => "only a death makes suspects",
    /// Dead letters may come back to their queue.
    CircleNotSeen => "a dead letter comes to rest",
    /// A dead letter is acknowledged before it is durable.
    DeadLettersNotFlushed => "a dead letter is never lost",
    /// A dead letter that could not be made durable is put in again with each attempt.
    UnflushedPutInAgain => "a dead letter comes once, where nothing ends a process",
    /// The place moves on although messages were left behind.
    LeftBehindForgotten => "what lanes leave behind comes later, also after a crash",
    /// A gap that the backlog meets is reported beyond its stretch.
    GapBeyondTheStretch => "a missing number is reported once, in the lane that has it",
    /// After an opening what lies between place and ranges is not the backlog's.
    StretchesNotTakenUp => "after an opening the backlog is what was left behind",
    /// After a death, messages are suspected that were left behind and never handed out.
    LeftBehindSuspected => "after a death what was in flight goes out alone, and nothing else",
    /// Of more acknowledged ranges than fit, those of the fresh lane are not stored.
    FreshRangesLeftOut => "what comes again after many outages comes as the backlog's",
    /// What an earlier run counted is reached only where it lies.
    CountedLeftBehind => "P9: what is there is handed out",
    /// Who reads in lanes does not say that an earlier run rejected messages.
    DeadLettersNotNotified => "a dead letter comes to rest",
    /// What an earlier run counted comes where it lies, too.
    TakenBackMetAgain => "nothing comes again that was acknowledged, unless a crash took that back",
    /// Who waits for the backlog does not learn that the fresh lane has left messages behind.
    JumpWakesNobody => "P9: no wake-up is lost",
    /// A flush opens a segment when it is no longer known to be live (audit A1).
    SyncedWithoutBeingLive => "P1: what is stored again is stored to a live segment";
        audit: "A1", STORED_AGAIN, 606,
    /// What was found is delivered although its pieces were given away (audit A2).
    PiecesNotAtHand => "P9: no consumer answers an error for ever";
        audit: "A2", WORLD, 2264,
    /// The windows of a drained segment are looked at before its references (audit A3).
    WindowsLookedAtFirst => "P3: a segment that a message lends is not used again";
        audit: "A3", LENT, 69,
    /// Whether the queue is open is not asked again once the registry is locked (audit A6).
    RegistryAfterClose => "P7: nothing is written after the close";
        audit: "A6", CLOSED_MEANWHILE, 2,
    /// A waiter that cannot use the news keeps them (audit A9).
    NewsNotPassedOn => "P9: no wake-up is lost";
        audit: "A9", NEWS_PASSED_ON, 46,
    /// Wakers are called with the flush lock held (audit A10).
    WokenUnderTheFlushLock => "P9: no lock is held while a caller's code runs";
        audit: "A10", WORLD, 18,
    /// A gap met behind a batch counts as reported (audit A11, B9).
    GapOfABatchNotReported => "P4: each missing number is reported";
        audit: "A11, B9", WORLD, 2894,
    /// The directory counts as synced while the sync is under way (audit B2).
    DirectorySyncSaidEarly => "P1: what is said to be durable is";
        audit: "B2", REPORTED_DURABLE, 154,
    /// A sync of the index that fails does not poison the queue (audit B3).
    IndexSyncNotHeeded => "R6: the first sync that fails poisons the queue";
        audit: "B3", WORLD, 692,
    /// A forwarder goes on after a trouble without asking the far side.
    ForwardNotAskedAgain => "forward: any trouble ends the session, and the next one asks",
    /// A forwarder sends a batch again whose fate it does not know.
    ForwardSentAgain => "forward: nothing is sent twice within a session",
    /// A forwarder does not compare the far side's last number with the next one here.
    ForwardAheadNotSeen => "forward: an older copy stops",
    /// A forwarder does not compare checksums.
    ForwardSumNotCompared => "forward: an older copy stops",
    /// A forwarder goes on at its place, though the far side holds more.
    ForwardFromThePlace => "forward: nothing is there twice",
    /// A forwarder goes on at its place, though the far side holds less.
    ForwardLossNotSeen => "forward: what the far side lost is sent again",
    /// A forwarder sends everything that is kept again when the far side lost something.
    ForwardSentFromOldest => "forward: nothing is there twice",
    /// What the far side lost and nobody can send again is not reported.
    ForwardLossNotReported => "forward: each number that is missing is reported",
    /// A far side that has forgotten the queue counts as one that takes up where it was.
    ForwardForgottenNotSeen => "forward: a far side that forgot is reported to the user",
    /// What is kept is not sent again to a far side that forgot.
    ForwardKeptNotResent => "forward: what is kept is sent again when asked for",
    /// More is sent than the far side takes at once.
    ForwardWindowNotHeld => "forward: the far side says how much is in flight",
    /// The place moves when messages are sent.
    ForwardPlaceAtSent => "forward: what is not acknowledged there is not acknowledged here",
    /// The places are never flushed.
    ForwardNeverFlushed => "forward: the places are durable within a second or so",
    /// A session in which nothing is answered goes on for ever.
    ForwardWaitsForEver => "forward: no answer is a trouble",
    /// Nothing is kept for a far side that forgets.
    ForwardKeepsNothing => "forward: what is kept is there when the far side lost it",
    /// The kept place never moves.
    ForwardKeepsAll => "forward: no more is kept than asked for",
    /// Gaps of the queue are not reported to the far side.
    ForwardGapNotReported => "forward: each number that is missing is reported",
    /// A gap's own message has no checksum of the message before it.
    ForwardGapWithoutSum => "forward: asking for the last finds the last message",
    /// A message is given up at its first refusal.
    ForwardRefusedAtOnce => "forward: a message is given up after five refusals",
    /// A message is never given up.
    ForwardRefusedForEver => "forward: a message that is refused for good does not block the line",
    /// A message that was left out is not reported to the far side.
    ForwardRefusedNotReported => "forward: each number that is missing is reported",
    /// A message is left out before it is put away.
    ForwardDeadLetterForgotten => "forward: a refused message is put away first",
    /// The pause between sessions stays as short as the first.
    ForwardBackoffStays => "forward: pauses double",
    /// An acknowledgement does not shorten the pauses.
    ForwardBackoffNotReset => "forward: an acknowledgement ends the long pauses",
    /// A session begins before the pause is over.
    ForwardNoPause => "forward: a trouble is followed by a pause",
    /// A message is sent that is longer than the far side takes.
    ForwardLongSent => "forward: what is too long is not sent",
    /// The bytes of what is kept are not counted.
    ForwardKeptUnweighed => "forward: no more is kept than asked for",
    /// A far side that never had anything counts as one that has forgotten.
    ForwardNewIsForgotten => "forward: a new far side begins at the oldest message",
    /// The far side of the tests stores what comes.
    ForwardFarUnconditional => "forward: a write is stored right behind the one before, or not",
    /// The far side of the tests knows the message before by its position alone.
    ForwardFarByPosition => "forward: a late write finds the very message before it",
}
