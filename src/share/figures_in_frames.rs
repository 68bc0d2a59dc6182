//! The figures of a queue and of its consumers as bodies of answers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::fields::{Fields, TooShort, put_nanoseconds, put_optional, put_text, put_u32, put_u64};
use crate::stats::{ConsumerStats, Stats};

/// The counts of a queue, in the order in which they are sent. New ones come at the end.
fn counts(stats: &mut Stats) -> [&mut u64; 27] {
    [
        &mut stats.messages,
        &mut stats.bytes,
        &mut stats.segments,
        &mut stats.spare_segments,
        &mut stats.mapped_arenas,
        &mut stats.mapped_bytes,
        &mut stats.disk_bytes,
        &mut stats.next_seq,
        &mut stats.oldest_seq,
        &mut stats.durable_seq,
        &mut stats.enqueued,
        &mut stats.dequeued,
        &mut stats.consumers,
        &mut stats.gaps,
        &mut stats.lost_messages,
        &mut stats.lost_damaged,
        &mut stats.lost_unflushed,
        &mut stats.lost_dropped,
        &mut stats.lost_expired,
        &mut stats.lost_rejected,
        &mut stats.reserved_numbers,
        &mut stats.flushes,
        &mut stats.refused,
        &mut stats.dropped,
        &mut stats.expired,
        &mut stats.rejected,
        &mut stats.unclaimed,
    ]
}

pub(super) fn put_stats(body: &mut Vec<u8>, mut stats: Stats) {
    let times = [Some(stats.flush_time), Some(stats.longest_flush), Some(stats.wait_time)];
    let times = [stats.oldest_age].into_iter().chain(times);
    let error = stats.last_flush_error.take().unwrap_or_default();
    let counts = counts(&mut stats);
    put_u32(body, counts.len() as u32);
    counts.into_iter().for_each(|count| put_u64(body, *count));
    times.for_each(|time| put_nanoseconds(body, time));
    put_text(body, &error);
}

/// Reads figures. A later owner may send more counts than this version knows.
pub(super) fn read_stats(body: &[u8]) -> Result<Stats, TooShort> {
    let mut body = Fields(body);
    let sent = body.u32()? as usize;
    let mut stats = Stats::default();
    let known = counts(&mut stats);
    let later = sent.checked_sub(known.len()).ok_or(TooShort)?;
    for count in known {
        *count = body.u64()?;
    }
    body.bytes(later.checked_mul(8).ok_or(TooShort)?)?;
    stats.oldest_age = body.nanoseconds()?;
    let mut time = || Ok(body.nanoseconds()?.unwrap_or_default());
    (stats.flush_time, stats.longest_flush, stats.wait_time) = (time()?, time()?, time()?);
    stats.last_flush_error = Some(body.text()?).filter(|text| !text.is_empty());
    Ok(stats)
}

pub(super) fn put_consumers(body: &mut Vec<u8>, consumers: &[ConsumerStats]) {
    put_u32(body, consumers.len() as u32);
    for stats in consumers {
        put_text(body, &stats.name);
        let counts = [stats.next_seq, stats.messages, stats.bytes, stats.in_flight, stats.kept];
        counts.into_iter().for_each(|count| put_u64(body, count));
        put_u64(body, stats.holds_oldest.into());
        put_nanoseconds(body, stats.oldest_age);
        let at = stats.acknowledged_at.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        put_optional(body, at.and_then(|at| u64::try_from(at.as_millis()).ok()));
    }
}

pub(super) fn read_consumers(body: &[u8]) -> Result<Vec<ConsumerStats>, TooShort> {
    let mut body = Fields(body);
    // Each is read before the next one gets memory, whatever number is stated.
    (0..body.u32()?).map(|_| read_consumer(&mut body)).collect()
}

fn read_consumer(body: &mut Fields<'_>) -> Result<ConsumerStats, TooShort> {
    Ok(ConsumerStats {
        name: body.text()?,
        next_seq: body.u64()?,
        messages: body.u64()?,
        bytes: body.u64()?,
        in_flight: body.u64()?,
        kept: body.u64()?,
        holds_oldest: body.u64()? != 0,
        oldest_age: body.nanoseconds()?,
        acknowledged_at: acknowledged_at(body.milliseconds()?),
    })
}

fn acknowledged_at(since: Option<Duration>) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(since?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_arrive_as_they_were_sent() {
        let mut stats = Stats {
            oldest_age: Some(Duration::from_secs(3)),
            flush_time: Duration::from_nanos(17),
            last_flush_error: Some("no".into()),
            unclaimed: 77,
            ..Stats::default()
        };
        counts(&mut stats).into_iter().zip(1..).for_each(|(count, number)| *count = number);
        let mut body = Vec::new();
        put_stats(&mut body, stats.clone());
        assert_eq!(read_stats(&body), Ok(stats));
        for cut in 0..body.len() {
            assert_eq!(read_stats(&body[..cut]), Err(TooShort));
        }
    }

    #[test]
    fn consumers_arrive_as_they_were_sent() {
        let one = |name: &str, at| ConsumerStats {
            name: name.into(),
            messages: 5,
            holds_oldest: true,
            acknowledged_at: at,
            ..ConsumerStats::default()
        };
        let at = UNIX_EPOCH.checked_add(Duration::from_millis(1_700_000_000_123));
        let consumers = vec![one("", None), one("w", at)];
        let mut body = Vec::new();
        put_consumers(&mut body, &consumers);
        assert_eq!(read_consumers(&body), Ok(consumers));
        body[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(read_consumers(&body), Err(TooShort));
    }
}
