//! Points of time as RFC 3339 writes them, in UTC.
//!
//! Offsets and clocks are read by hand: humantime knows UTC alone. jiff would cost every first
//! build of the tool 3 s, and refuses `3:00`, ten digits of a second and the last day of 9999.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The last second that RFC 3339 can write, in the year 9999.
const LAST: Duration = Duration::from_secs(253_402_300_799);

/// As `2026-11-22T03:00:00Z`, with milliseconds where they are not zero.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default().min(LAST);
    let time = UNIX_EPOCH + since;
    match since.subsec_millis() {
        0 => humantime::format_rfc3339_seconds(time).to_string(),
        _ => humantime::format_rfc3339_millis(time).to_string(),
    }
}

/// Reads `2026-11-22`, `2026-11-22T03:00Z` and `2026-11-22T03:00:00.250+01:00`; a blank may stand
/// for the `T`. Without an offset it is UTC.
pub(crate) fn parse(text: &str) -> Option<SystemTime> {
    let (date, rest) = text.split_at_checked(10)?;
    let midnight = humantime::parse_rfc3339(&format!("{date}T00:00:00Z")).ok()?;
    let Some(rest) = rest.strip_prefix(['T', 't', ' ']) else {
        return rest.is_empty().then_some(midnight);
    };
    let (clock, ahead) = offset(rest)?;
    let time = midnight + clock_time(clock)?;
    match ahead {
        Offset::Ahead(by) => time.checked_sub(by),
        Offset::Behind(by) => time.checked_add(by),
    }
}

/// How far a clock is from UTC.
enum Offset {
    Ahead(Duration),
    Behind(Duration),
}

fn offset(text: &str) -> Option<(&str, Offset)> {
    if let Some(clock) = text.strip_suffix(['Z', 'z']) {
        return Some((clock, Offset::Ahead(Duration::ZERO)));
    }
    let Some(at) = text.rfind(['+', '-']) else {
        return Some((text, Offset::Ahead(Duration::ZERO)));
    };
    let (clock, by) = text.split_at_checked(at)?;
    let by_time = clock_time(by.get(1..)?)?;
    Some((
        clock,
        if by.starts_with('+') { Offset::Ahead(by_time) } else { Offset::Behind(by_time) },
    ))
}

/// `HH:MM` or `HH:MM:SS`, with a fraction or without.
fn clock_time(text: &str) -> Option<Duration> {
    let mut parts = text.splitn(3, ':');
    let (hour, minute) = (digits(parts.next()?)?, digits(parts.next()?)?);
    let (second, fraction) = match parts.next() {
        None => (0, 0),
        Some(second) => match second.split_once('.') {
            None => (digits(second)?, 0),
            Some((second, fraction)) => {
                let nanos = format!("{fraction:0<9}");
                (digits(second)?, digits(nanos.get(..9)?)?)
            }
        },
    };
    let valid = hour < 24 && minute < 60 && second <= 60;
    let seconds = || Duration::from_secs(hour * 3600 + minute * 60 + second);
    valid.then(|| seconds() + Duration::from_nanos(fraction))
}

fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;

    #[test]
    fn each_day_of_six_centuries_comes_back() {
        for day in 0..220_000 {
            let time = UNIX_EPOCH + Duration::from_secs(day * DAY + day % DAY);
            assert_eq!(parse(&rfc3339(time)), Some(time), "{}", rfc3339(time));
        }
    }

    #[test]
    fn a_time_that_cannot_be_written_is_the_nearest_one() {
        let after = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(rfc3339(UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(after(253_402_300_800)), "9999-12-31T23:59:59Z");
        assert_eq!(parse("9999-12-31T23:59:59Z"), Some(after(253_402_300_799)));
    }

    #[test]
    fn times_are_read_as_people_write_them() {
        let at = |seconds, millis| {
            Some(UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_millis(millis))
        };
        for text in [
            "2026-11-22T03:00Z",
            "2026-11-22T03:00:00Z",
            "2026-11-22 03:00",
            "2026-11-22T04:30+01:30",
            "2026-11-21T22:00:00.000-05:00",
            "2026-11-22 3:00",
            "2026-11-22T02:59:60.0000000000Z",
        ] {
            assert_eq!(parse(text), at(1_795_316_400, 0), "{text}");
        }
        assert_eq!(parse("2026-11-22T03:00:00.25Z"), at(1_795_316_400, 250));
        assert_eq!(parse("2026-11-22"), at(1_795_316_400 - 3 * 3600, 0));
        for text in [
            "",
            "2026",
            "2026-13-01",
            "2026-02-29",
            "1969-12-31",
            "2026-11-22T24:00",
            "2026-11-22T9999999999999999999:00",
            "2026-11-22x",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
