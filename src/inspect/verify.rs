//! Checks every part of every file of a queue.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::finding::Finding;
use super::header_findings::header_findings;
use super::onlooker::{Onlooker, Reported};
use super::parts;
use super::picture::{Kept, Picture};
use crate::error::{Error, GapCause, Result};
use crate::format::{
    self, ACKS_ROW_LEN, ACKS_SLOT_LEN, Acks, CHECKPOINT_LEN, Checkpoint, ConsumerAt, ExtentKind,
    FIGURES_LEN, FORWARD_SLOT_LEN, Figures, ForwardSlot, INDEX_NAME, NAME_ROW_LEN, PLACE_SLOT_LEN,
    Place, RUN_LEN, SEGMENT_HEADER_LEN, SEGMENT_ROW_LEN, SegmentHeader, index_at, live_at,
    place_at,
};
use crate::index::IndexFile;
use crate::index::image::{ConsumerRow, IndexImage, NO_ROW, u32_at, u64_at};
use crate::index::run::Run;
use crate::segment::Row;
use crate::storage::Storage;

/// The result of a verification: [`Inspector::verify`](crate::Inspector::verify).
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let dir = dir.path();
/// # let queue = mmq::Queue::open(dir)?;
/// # queue.enqueue("a message")?;
/// # let inspector = mmq::Inspector::open(dir)?;
/// let mmq::Verified { messages, bytes, .. } = inspector.verify(|_| ())?;
/// assert_eq!((messages, bytes), (1, 9));
/// # Ok::<(), mmq::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// Segment files with a readable header, spares included.
    pub segments: u64,
    /// Intact messages that were read.
    pub messages: u64,
    /// Payload bytes of those messages.
    pub bytes: u64,
    /// Numbers that are missing for another cause than damage, by the files' statements.
    pub missing: u64,
    /// Messages that the owner reclaimed before they could be read.
    pub overtaken: u64,
    /// How many findings were reported.
    pub findings: u64,
}

/// A step of [`Inspector::verify_while`](crate::Inspector::verify_while).
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let dir = dir.path();
/// # let queue = mmq::Queue::open(dir)?;
/// # queue.enqueue("a message")?;
/// # let inspector = mmq::Inspector::open(dir)?;
/// use std::ops::ControlFlow;
///
/// // Ends at the first finding.
/// inspector.verify_while(|step| match step {
///     mmq::VerifyStep::Finding(_) => ControlFlow::Break(()),
///     _ => ControlFlow::Continue(()),
/// })?;
/// # Ok::<(), mmq::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum VerifyStep {
    /// A part of a file is damaged or inconsistent.
    Finding(Finding),
    /// Progress of the reading, in bytes of segments.
    Read {
        /// Bytes read so far.
        bytes: u64,
        /// Bytes to read in all.
        total: u64,
    },
}

/// Receives each step, and may end the verification.
pub(crate) type OnStep<'a> = &'a mut dyn FnMut(VerifyStep) -> ControlFlow<()>;

/// Hands the findings to `each`, and never ends.
pub(crate) fn findings_alone(
    each: &mut dyn FnMut(Finding),
) -> impl FnMut(VerifyStep) -> ControlFlow<()> {
    |step| {
        if let VerifyStep::Finding(finding) = step {
            each(finding);
        }
        ControlFlow::Continue(())
    }
}

/// How much `verify` reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// The index and the headers of all segments.
    Headers,
    /// Every message as well.
    Messages,
}

/// Checks the files, and passes each step to `each`.
pub(crate) fn verify<S: Storage>(
    storage: &Arc<S>,
    depth: Depth,
    each: OnStep<'_>,
) -> Result<Verified> {
    let (picture, kept) = Picture::take(storage)?;
    let mut work = Verifying { verified: Verified::default(), each };
    reached!("behind a picture");
    let index = index_findings(&**storage, &picture)?;
    let (headers, findings) = header_findings(storage, &picture)?;
    work.verified.segments = headers;
    for finding in index.into_iter().chain(findings) {
        if work.report(finding).is_break() {
            return Ok(work.verified);
        }
    }
    if depth == Depth::Messages {
        // A consumer may wait for messages of lost segments.
        let places = picture.consumers.iter().map(|consumer| consumer.place.spot());
        let from = places.chain([picture.oldest()]).min().unwrap_or_default();
        let end = picture.tail.position;
        match kept {
            Kept::InFiles(files) => work.read_all(&*files, Onlooker::new(picture, from), end)?,
            Kept::InOverlay(files) => work.read_all(&*files, Onlooker::new(picture, from), end)?,
        }
    }
    Ok(work.verified)
}

/// The counts so far, and the receiver of the reports.
struct Verifying<'a> {
    verified: Verified,
    each: OnStep<'a>,
}

impl Verifying<'_> {
    fn report(&mut self, finding: Finding) -> ControlFlow<()> {
        self.verified.findings += 1;
        (self.each)(VerifyStep::Finding(finding))
    }

    /// Reads every message up to the position `end`.
    fn read_all<S: Storage>(
        &mut self,
        storage: &S,
        mut onlooker: Onlooker<S::File>,
        end: u64,
    ) -> Result<()> {
        let at = |row: Option<Row>, position: u64| {
            row.map_or((INDEX_NAME.to_owned(), None), |row| {
                let within = position.max(row.header.base) - row.header.base;
                (format::segment_name(row.slot), Some(SEGMENT_HEADER_LEN + within))
            })
        };
        let start = onlooker.at().position;
        let total = end.saturating_sub(start);
        loop {
            // Taken before the step: an invalid message begins there.
            let before = onlooker.at().position;
            let row = onlooker.segment_at(before);
            let reported = onlooker.next(storage)?;
            if let Some(position) = onlooker.take_broken_seal() {
                let (file, offset) = at(onlooker.segment_at(position), position);
                let what =
                    "the checksum of the batch that ends here is damaged; its messages are intact";
                let what = what.to_owned();
                if self.report(Finding { file, offset, what, lost: None }).is_break() {
                    return Ok(());
                }
            }
            let step = match reported {
                None => return Ok(()),
                Some(Reported::Gap(gap)) if gap.cause == GapCause::Damaged => {
                    let (file, offset) = at(row, before);
                    let what = "the bytes here are not those that were written".to_owned();
                    self.report(Finding { file, offset, what, lost: Some(gap) })
                }
                Some(reported) => {
                    self.verified.count(&reported);
                    let bytes = (onlooker.at().position - start).min(total);
                    (self.each)(VerifyStep::Read { bytes, total })
                }
            };
            if step.is_break() {
                return Ok(());
            }
        }
    }
}

impl Verified {
    fn count(&mut self, reported: &Reported) {
        match reported {
            Reported::Message { payload, .. } => {
                self.messages += 1;
                self.bytes += payload.len() as u64;
            }
            Reported::Overtaken { first, last } => self.overtaken += last - first + 1,
            Reported::Gap(gap) => self.missing += gap.count(),
        }
    }
}

/// Findings in the index. In a queue in use only those count that every one of several passes
/// finds, for its holder stores to the index meanwhile.
fn index_findings<S: Storage>(storage: &S, picture: &Picture) -> Result<Vec<Finding>> {
    const TIMES: usize = 5;
    let mut findings: Option<Vec<Finding>> = None;
    for _ in 0..TIMES {
        let now = index_findings_now(storage, picture)?;
        let both = match findings {
            None => now,
            Some(before) => before.into_iter().filter(|found| now.contains(found)).collect(),
        };
        if both.is_empty() || !picture.users.came(storage) {
            return Ok(both);
        }
        findings = Some(both);
    }
    Ok(findings.unwrap_or_default())
}

fn index_findings_now<S: Storage>(storage: &S, picture: &Picture) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let mut find = |offset: Option<usize>, what: String| {
        let offset = offset.map(|offset| offset as u64);
        findings.push(Finding { file: INDEX_NAME.to_owned(), offset, what, lost: None });
    };
    let read = IndexFile::read(storage);
    if read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::InvalidData) {
        find(
            None,
            "it is not a regular file; the next opening renames it and makes a new one".to_owned(),
        );
        return Ok(findings);
    }
    let read = read.map_err(|error| Error::io("read", storage.path().join(INDEX_NAME), error))?;
    let Some(file) = read else {
        find(
            None,
            "it is missing; the next opening makes it again, without consumers and places"
                .to_owned(),
        );
        return Ok(findings);
    };
    let (bytes, id) = (&file.bytes[..], picture.queue_id);
    if file.unreadable {
        find(None, "the disk cannot read some sectors of it".to_owned());
    }
    match file.header {
        Err(_) => find(Some(0), "its header is damaged".to_owned()),
        Ok(found) if found != id => find(Some(0), "it belongs to another queue".to_owned()),
        Ok(_) if format::index_version(bytes, &id) < picture.version => {
            let what = "its version is lower than that of a segment; the next opening raises it";
            find(Some(0), what.to_owned());
        }
        Ok(_) => {}
    }
    let part = |at: usize, len: usize| bytes.get(at..at + len).unwrap_or(&[]);
    let is_blank = |at: usize, len: usize| part(at, len).iter().all(|byte| *byte == 0);
    for at in [index_at::CHECKPOINT_A, index_at::CHECKPOINT_B] {
        let slot = part(at, CHECKPOINT_LEN);
        if !is_blank(at, CHECKPOINT_LEN) && Checkpoint::decode(slot, &id).is_none() {
            find(Some(at), "this slot of the checkpoint is damaged".to_owned());
        }
    }
    for at in [live_at::RUN_A, live_at::RUN_B].map(|at| index_at::LIVE + at) {
        if !is_blank(at, RUN_LEN) && Run::decode(part(at, RUN_LEN), &id).is_none() {
            find(Some(at), "this copy of the run record is damaged".to_owned());
        }
    }
    let image = IndexImage::read(bytes, &id);
    if !picture.live.is_empty() {
        parts::missing(bytes, &image).into_iter().for_each(|(at, what)| find(Some(at), what));
    }
    if bytes.len() >= index_at::END && image.lost.iter().any(|lost| lost.row == NO_ROW) {
        let what = "rows of consumers are missing; the next opening makes one, unreadable-consumer";
        find(Some(bytes.len()), what.to_owned());
    }
    let tail = index_at::LIVE + live_at::TAIL_SEQ;
    if image.live.tail.is_none() && !is_blank(tail, 24) {
        find(Some(tail), "the stored end of the queue is inconsistent".to_owned());
    }
    for at in [index_at::FIGURES, index_at::FIGURES + FIGURES_LEN] {
        let copy = part(at, FIGURES_LEN);
        if !is_blank(at, FIGURES_LEN) && Figures::decode_copy(copy, &id).is_none() {
            find(Some(at), "this copy of the owner's figures is damaged".to_owned());
        }
    }
    let key = format::tail_key(&id);
    for at in [live_at::SYNCED_A, live_at::SYNCED_B].map(|at| index_at::LIVE + at) {
        let word = |at: usize| u64_at(bytes, at);
        let check = format::tail_check(key, word(at), word(at + 8));
        if !is_blank(at, 24) && word(at + 16) != check {
            find(Some(at), "this record of a flush is damaged".to_owned());
        }
    }
    row_findings(bytes, &image, &id, &mut find);
    Ok(findings)
}

/// Findings in the rows of the extents.
fn row_findings(
    bytes: &[u8],
    image: &IndexImage,
    id: &[u8; 16],
    find: &mut impl FnMut(Option<usize>, String),
) {
    let part = |at: usize, len: usize| bytes.get(at..at + len).unwrap_or(&[]);
    let is_blank = |at: usize, len: usize| part(at, len).iter().all(|byte| *byte == 0);
    let mut consumer = 0;
    for extent in &image.extents {
        let rows = extent.rows;
        let start = extent.offset as usize;
        for row in 0..rows {
            let at = start + row as usize * extent.row_len();
            match extent.kind {
                ExtentKind::Segments => {
                    let header = part(at, SEGMENT_ROW_LEN).try_into().ok();
                    let holds = header.is_some_and(|row| SegmentHeader::decode(row).is_ok());
                    if !holds && !is_blank(at, SEGMENT_ROW_LEN) {
                        find(Some(at), "this row of a segment is damaged".to_owned());
                    }
                }
                ExtentKind::Consumers => {
                    let parts = ConsumerAt::new(row, rows);
                    consumer_findings(bytes, start, parts, (consumer, image), id, find);
                    consumer += 1;
                }
                ExtentKind::Acks => {
                    let slots = [at, at + ACKS_ROW_LEN / 2];
                    for slot in slots {
                        let holds = || acks_hold(bytes, slot, slots, image, id);
                        if !is_blank(slot, ACKS_SLOT_LEN) && !holds() {
                            find(Some(slot), "these acknowledgements are damaged".to_owned());
                        }
                    }
                }
                ExtentKind::Forwards => {
                    for slot in [at, at + FORWARD_SLOT_LEN] {
                        let holds = image.consumers.iter().any(|consumer| {
                            let seed = Place::seed(id, consumer.name.as_bytes());
                            let bytes = part(slot, FORWARD_SLOT_LEN);
                            ForwardSlot::decode(bytes, consumer.row, seed).is_some()
                        });
                        if !is_blank(slot, FORWARD_SLOT_LEN) && !holds {
                            find(Some(slot), "this row of a forwarder is damaged".to_owned());
                        }
                    }
                }
                ExtentKind::Later(_) => {}
            }
        }
    }
}

/// Whether the slot of a row of acknowledgements validates for a consumer that one of the slots
/// names. (The removal of a consumer clears its row.)
fn acks_hold(
    bytes: &[u8],
    slot: usize,
    slots: [usize; 2],
    image: &IndexImage,
    id: &[u8; 16],
) -> bool {
    let owners = slots.map(|slot| u32_at(bytes, slot + format::acks_at::ACKS_OWNER));
    let named = |consumer: &&ConsumerRow| owners.contains(&consumer.row);
    image.consumers.iter().filter(named).any(|consumer| {
        let seed = Place::seed(id, consumer.name.as_bytes());
        bytes.get(slot..).and_then(|slot| Acks::decode(slot, consumer.row, seed)).is_some()
    })
}

/// Findings in the name and the places of the consumer in `row`, in an extent that begins at
/// `start`.
fn consumer_findings(
    bytes: &[u8],
    start: usize,
    parts: ConsumerAt,
    (row, image): (u32, &IndexImage),
    id: &[u8; 16],
    find: &mut impl FnMut(Option<usize>, String),
) {
    let part = |at: usize, len: usize| bytes.get(at..at + len).unwrap_or(&[]);
    let is_blank = |at: usize, len: usize| part(at, len).iter().all(|byte| *byte == 0);
    // Only the first row is the default consumer's.
    let is_default = row == 0;
    let name_at = start + parts.name;
    let said = format::decode_name(part(name_at, NAME_ROW_LEN)).unwrap_or("");
    if !is_default && said.is_empty() {
        let is_lost = image.lost.iter().any(|lost| lost.row == row);
        if is_lost || !is_blank(name_at, NAME_ROW_LEN) {
            find(Some(name_at), "the name of this consumer is damaged".to_owned());
        }
        // Otherwise the row is free. It may have old places.
        return;
    }
    let seed = Place::seed(id, said.as_bytes());
    let who = if is_default { "the default consumer".to_owned() } else { format!("{said:?}") };
    for place in parts.places().map(|place| start + place) {
        let holds = Place::decode(part(place, PLACE_SLOT_LEN), seed).is_some();
        if !holds && !is_blank(place, place_at::PLACE_NAME) {
            find(Some(place), format!("this copy of the place of {who} is damaged"));
        }
    }
    let again = start + parts.copy + place_at::PLACE_NAME;
    let wanted = Place::empty_copy(said);
    let wanted = &wanted[place_at::PLACE_NAME..];
    if !is_default && !is_blank(start + parts.copy, wanted.len()) {
        let found = part(again, wanted.len());
        if found != wanted {
            find(Some(again), format!("the second copy of the name {said:?} is damaged"));
        }
    }
}
