//! Lanes: fresh messages first, and the backlog beside them.

use std::ffi::c_int;
use std::time::Duration;

use super::c_handle::{CHandle, Retired, RetiredShared, body, free, give};
use super::guard::{Answer, guard, invalid};
use super::mmq_consumer::mmq_consumer;
use super::mmq_delivery::{give_delivery, mmq_delivery};
use super::mmq_gap::{ReportedGaps, last_gap, mmq_gap};
use super::mmq_status::mmq_status;
use super::pointers::{Array, array, out, out_or_null, put};
use super::reads::timeout;
use crate::delivery::Delivery;
use crate::error::Result;
use crate::lanes::{Backlog, Fresh, LaneOptions, Lanes};

/// Reads one consumer in two lanes: fresh messages in their order, and beside them the backlog,
/// also in its order. For a program that sends messages over a link that may be down: after an
/// outage it sends the newest messages first, and the ones that waited beside them. It sends none
/// twice and forgets none, over any number of outages and openings.
///
/// When the next message of the fresh lane is no longer fresh (mmq_lane_options), the lane jumps to
/// the end of the queue. The skipped messages become a stretch of the backlog. A message that was
/// delivered before the jump and must be delivered again also belongs to the backlog.
///
/// The queue stores only acknowledgements (mmq_delivery_ack): after an opening, the unacknowledged
/// messages between acknowledged ones are the backlog. So each unfinished stretch costs a stored
/// range. With more stretches than mmq_delivery_ack can store ranges, messages acknowledged between
/// stretches are delivered again after an opening, in the backlog. The queue keeps all messages
/// from the oldest one of the backlog on.
pub struct mmq_lanes {
    _opaque: (),
}

/// The lanes, and the gaps reported through this handle.
pub(super) struct LanesBody {
    lanes: Lanes,
    gaps: ReportedGaps,
}

impl CHandle for mmq_lanes {
    type Body = LanesBody;
    const MAGIC: u64 = 0x6d6d_7120_6c61_6e65;
    const NAME: &'static str = "lanes";

    fn retired<R>(with: impl FnOnce(&mut Retired<LanesBody>) -> R) -> Option<R> {
        static RETIRED: RetiredShared<LanesBody> = RetiredShared::new();
        Some(RETIRED.with(with))
    }
}

/// How the library decides that a message is no longer fresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum mmq_fresh {
    /// Messages are fresh until mmq_lanes_jump. The default.
    MMQ_FRESH_MANUAL = 0,
    /// A message is fresh for fresh_within milliseconds after it was enqueued, and at most an
    /// eighth longer. From mmq_lanes_open on the queue remembers, in memory and to an eighth of
    /// this time, when messages were enqueued. Messages enqueued earlier in this opening may count
    /// as younger than they are; messages of earlier openings belong to the backlog.
    MMQ_FRESH_AGE = 1,
    /// A message is fresh while it is among the last fresh_within messages, by sequence number.
    MMQ_FRESH_MESSAGES = 2,
}

/// In which order the backlog is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum mmq_backlog_order {
    /// In the order in which the messages were enqueued. The default.
    MMQ_OLDEST_FIRST = 0,
    /// The stretch that was skipped last, then the one before it: a stretch is what the fresh lane
    /// skipped in one jump (see mmq_lanes). Within a stretch, messages keep the order in which they
    /// were enqueued.
    MMQ_NEWEST_STRETCH_FIRST = 1,
}

/// An `mmq_fresh` from C, unchecked.
type raw_fresh = c_int;

/// An `mmq_backlog_order` from C, unchecked.
type raw_backlog_order = c_int;

/// How lanes are read. A field that is zero has its default (mmq_lane_options options = {0}; in C++
/// {}).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct mmq_lane_options {
    /// How the library decides that a message is no longer fresh.
    pub fresh: raw_fresh,
    /// How long a message is fresh: milliseconds with MMQ_FRESH_AGE, messages with
    /// MMQ_FRESH_MESSAGES, at least 1. Ignored with MMQ_FRESH_MANUAL.
    pub fresh_within: i64,
    /// While both lanes have messages, reads take share_fresh messages of the fresh lane, then
    /// share_backlog of the backlog. While one lane is empty, they take only from the other. Both
    /// 0: the default, 4 to 1.
    pub share_fresh: u32,
    /// See share_fresh. With 1 to 0, reads take from the backlog only while the fresh lane is
    /// empty.
    pub share_backlog: u32,
    /// The most messages per second from the backlog. 0: no limit. While this limit delays a
    /// message, the descriptor of mmq_consumer_ready_fd is readable all the same.
    pub backlog_rate: u64,
    /// In which order the backlog is read.
    pub order: raw_backlog_order,
}

/// A stretch of the backlog: the sequence numbers from first on that are below end.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct mmq_stretch {
    /// The first sequence number.
    pub first: u64,
    /// The sequence number behind the last one.
    pub end: u64,
}

/// Converts the options from C. The queue checks how long messages are fresh.
fn meant(given: &mmq_lane_options) -> Answer<LaneOptions> {
    let kinds =
        [mmq_fresh::MMQ_FRESH_MANUAL, mmq_fresh::MMQ_FRESH_AGE, mmq_fresh::MMQ_FRESH_MESSAGES];
    let within = u64::try_from(given.fresh_within).unwrap_or(0);
    let fresh = match kinds.into_iter().find(|known| *known as c_int == given.fresh) {
        Some(mmq_fresh::MMQ_FRESH_MANUAL) => Fresh::Manual,
        Some(mmq_fresh::MMQ_FRESH_AGE) => Fresh::Age(Duration::from_millis(within)),
        Some(mmq_fresh::MMQ_FRESH_MESSAGES) => Fresh::Messages(within),
        None => {
            let known = "not one of MMQ_FRESH_MANUAL, MMQ_FRESH_AGE, MMQ_FRESH_MESSAGES";
            return Err(invalid("fresh", known));
        }
    };
    let orders = [mmq_backlog_order::MMQ_OLDEST_FIRST, mmq_backlog_order::MMQ_NEWEST_STRETCH_FIRST];
    let order = match orders.into_iter().find(|known| *known as c_int == given.order) {
        Some(mmq_backlog_order::MMQ_OLDEST_FIRST) => Backlog::OldestFirst,
        Some(mmq_backlog_order::MMQ_NEWEST_STRETCH_FIRST) => Backlog::NewestStretchFirst,
        None => {
            return Err(invalid("order", "not one of MMQ_OLDEST_FIRST, MMQ_NEWEST_STRETCH_FIRST"));
        }
    };
    let rate = (given.backlog_rate != 0).then_some(given.backlog_rate);
    let options = LaneOptions::new().fresh_within(fresh).backlog_rate(rate).order(order);
    Ok(match (given.share_fresh, given.share_backlog) {
        (0, 0) => options,
        (fresh, backlog) => options.share(fresh, backlog),
    })
}

/// Reads a consumer in two lanes from now on. A second call, also through another handle, only
/// changes how the lanes are read: all handles share the consumer's two lanes. The options are not
/// stored. mmq_consumer_receive and the consumer's other reads take the oldest message of both
/// lanes. A seek adds nothing to the backlog.
///
/// @param consumer Not NULL. It may be freed before the lanes are.
/// @param options How the lanes are read. May be NULL: the defaults.
/// @param out Receives the handle; free it with mmq_lanes_free. Not NULL.
/// @return MMQ_OK; MMQ_INVALID_ARGUMENT, also for an unknown number for an enum and when no message
///   could be fresh; MMQ_IO when the library cannot read which messages an earlier run skipped,
///   MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the queue was closed, MMQ_FORKED.
///   Nothing has changed then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_lanes_open(
    consumer: *mut mmq_consumer,
    options: *const mmq_lane_options,
    out: *mut *mut mmq_lanes,
) -> mmq_status {
    guard(|| {
        // SAFETY: the header's contract: NULL or valid.
        let (consumer, out) = unsafe { (body(consumer)?, self::out(out, "out")?) };
        // SAFETY: as above. Any bytes are such options.
        let given = unsafe { array(options, usize::from(!options.is_null()), "options") }?;
        let options = given.first().map_or_else(|| Ok(LaneOptions::new()), meant)?;
        let lanes = consumer.reader.lanes(options)?;
        out.write(give(LanesBody { lanes, gaps: ReportedGaps::new() }));
        Ok(mmq_status::MMQ_OK)
    })
}

/// Frees a handle. The lanes stay as they are, and so does the consumer. Allowed after mmq_close.
///
/// @param lanes From mmq_lanes_open, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_lanes_free(lanes: *mut mmq_lanes) {
    // SAFETY: the header's contract: NULL or a handle that no other thread uses now.
    guard(|| unsafe { free(lanes) });
}

/// Delivers a message, for all calls that do so, which keeps the library small. Returns `none` when
/// there is no message.
///
/// # Safety
///
/// The arguments are valid for [`body`] and [`out`].
unsafe fn guarded(
    lanes: *const mmq_lanes,
    delivery: *mut *mut mmq_delivery,
    none: mmq_status,
    receive: impl Fn(&Lanes) -> Result<Option<Delivery>>,
) -> mmq_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (body, delivery) = unsafe { (body(lanes)?, out(delivery, "out")?) };
        body.gaps.give(receive(&body.lanes), delivery, none, give_delivery)
    })
}

/// Delivers the next message of the two lanes, in the proportion of their shares (see
/// mmq_consumer_receive). mmq_delivery_is_backlog tells from which lane a message comes.
///
/// @param lanes Not NULL.
/// @param out Receives the delivery; end it with mmq_delivery_ack, _nack or _free. Not NULL.
/// @return As mmq_consumer_receive; MMQ_EMPTY when neither lane has a message that may be delivered
///   now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_lanes_receive(
    lanes: *mut mmq_lanes,
    out: *mut *mut mmq_delivery,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid.
    unsafe { guarded(lanes, out, mmq_status::MMQ_EMPTY, Lanes::receive) }
}

/// Delivers the next message of the fresh lane.
///
/// @param lanes Not NULL.
/// @param out Receives the delivery; end it with mmq_delivery_ack, _nack or _free. Not NULL.
/// @return As mmq_lanes_receive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_lanes_receive_fresh(
    lanes: *mut mmq_lanes,
    out: *mut *mut mmq_delivery,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid.
    unsafe { guarded(lanes, out, mmq_status::MMQ_EMPTY, Lanes::receive_fresh) }
}

/// Delivers the next message of the backlog, if backlog_rate allows one now.
///
/// @param lanes Not NULL.
/// @param out Receives the delivery; end it with mmq_delivery_ack, _nack or _free. Not NULL.
/// @return As mmq_lanes_receive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_lanes_receive_backlog(
    lanes: *mut mmq_lanes,
    out: *mut *mut mmq_delivery,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid.
    unsafe { guarded(lanes, out, mmq_status::MMQ_EMPTY, Lanes::receive_backlog) }
}

/// Delivers the next message of the two lanes, and waits for one, also until backlog_rate allows
/// one (see mmq_lanes_receive). Does not poll.
///
/// @param lanes Not NULL.
/// @param timeout_ms Milliseconds to wait; 0: not at all; below 0: for ever.
/// @param out Receives the delivery; end it with mmq_delivery_ack, _nack or _free. Not NULL.
/// @return As mmq_consumer_receive_timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_lanes_receive_timeout(
    lanes: *mut mmq_lanes,
    timeout_ms: i64,
    out: *mut *mut mmq_delivery,
) -> mmq_status {
    let receive = |lanes: &Lanes| lanes.receive_timeout(timeout(timeout_ms));
    // SAFETY: the header's contract: NULL or valid.
    unsafe { guarded(lanes, out, mmq_status::MMQ_TIMED_OUT, receive) }
}

/// Delivers the next message of the fresh lane, and waits for one.
///
/// @param lanes Not NULL.
/// @param timeout_ms Milliseconds to wait; 0: not at all; below 0: for ever.
/// @param out Receives the delivery; end it with mmq_delivery_ack, _nack or _free. Not NULL.
/// @return As mmq_lanes_receive_timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_lanes_receive_fresh_timeout(
    lanes: *mut mmq_lanes,
    timeout_ms: i64,
    out: *mut *mut mmq_delivery,
) -> mmq_status {
    let receive = |lanes: &Lanes| lanes.receive_fresh_timeout(timeout(timeout_ms));
    // SAFETY: the header's contract: NULL or valid.
    unsafe { guarded(lanes, out, mmq_status::MMQ_TIMED_OUT, receive) }
}

/// Delivers the next message of the backlog, and waits for one, also until backlog_rate allows one.
///
/// @param lanes Not NULL.
/// @param timeout_ms Milliseconds to wait; 0: not at all; below 0: for ever.
/// @param out Receives the delivery; end it with mmq_delivery_ack, _nack or _free. Not NULL.
/// @return As mmq_lanes_receive_timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_lanes_receive_backlog_timeout(
    lanes: *mut mmq_lanes,
    timeout_ms: i64,
    out: *mut *mut mmq_delivery,
) -> mmq_status {
    let receive = |lanes: &Lanes| lanes.receive_backlog_timeout(timeout(timeout_ms));
    // SAFETY: the header's contract: NULL or valid.
    unsafe { guarded(lanes, out, mmq_status::MMQ_TIMED_OUT, receive) }
}

/// Returns the gap of the latest MMQ_GAP that a read through this handle returned (see
/// mmq_last_gap).
///
/// @param lanes Not NULL.
/// @param out Receives the gap. Not NULL.
/// @return MMQ_OK, MMQ_EMPTY when there was none, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_lanes_last_gap(
    lanes: *mut mmq_lanes,
    out: *mut mmq_gap,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid.
    guard(|| unsafe { last_gap(lanes, out, |body| &body.gaps) })
}

/// Moves all messages that wait in the fresh lane to the backlog: the fresh lane continues with the
/// next message enqueued.
///
/// @param lanes Not NULL.
/// @param first Receives the first sequence number moved. May be NULL.
/// @param end Receives the sequence number after the last one moved: the same as first when no
///   message waited. May be NULL.
/// @return MMQ_OK, MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the queue was
///   closed, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_lanes_jump(
    lanes: *mut mmq_lanes,
    first: *mut u64,
    end: *mut u64,
) -> mmq_status {
    guard(|| {
        // SAFETY: the header's contract: NULL or valid.
        let (lanes, first, end) =
            unsafe { (body(lanes)?, out_or_null(first, "first")?, out_or_null(end, "end")?) };
        let left = lanes.lanes.jump()?;
        put(first, left.start);
        put(end, left.end);
        Ok(mmq_status::MMQ_OK)
    })
}

/// Lists the stretches of the backlog that are still to be delivered, the oldest first. They do not
/// include messages in flight. There are none once the consumer was removed.
///
/// @param lanes Not NULL.
/// @param out An array of room places, where the stretches go; at most room are written. May be
///   NULL when room is 0.
/// @param room The length of out.
/// @param count_out Receives the number of all stretches, which may be more than room. Not NULL.
/// @return MMQ_OK, MMQ_CLOSED once the queue was closed, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_lanes_backlog(
    lanes: *mut mmq_lanes,
    out: *mut mmq_stretch,
    room: usize,
    count_out: *mut usize,
) -> mmq_status {
    guard(|| {
        // SAFETY: the header's contract: NULL or valid.
        let (lanes, count_out) = unsafe { (body(lanes)?, self::out(count_out, "count_out")?) };
        let places = Array::new(out, room, "out")?;
        let stretches = lanes.lanes.stretches()?;
        count_out.write(stretches.len());
        let stretches = stretches.iter();
        let stretches = stretches.map(|left| mmq_stretch { first: left.start, end: left.end });
        // SAFETY: the header's contract: the array has that much room.
        unsafe { places.fill(stretches) };
        Ok(mmq_status::MMQ_OK)
    })
}
