//! Points of time as RFC 3339 writes them, in UTC.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DAY: u64 = 86_400;

/// As `2026-11-22T03:00:00Z`, with milliseconds where they are not zero.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / DAY, since.as_secs() % DAY);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let millis = match since.subsec_millis() {
        0 => String::new(),
        millis => format!(".{millis:03}"),
    };
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{millis}Z")
}

/// Reads `2026-11-22`, `2026-11-22T03:00Z` and `2026-11-22T03:00:00.250+01:00`; a blank may stand
/// for the `T`. Without an offset it is UTC.
pub(crate) fn parse(text: &str) -> Option<SystemTime> {
    let (date, rest) = text.split_at_checked(10)?;
    let mut parts = date.splitn(3, '-').map(digits);
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let longest = match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=longest).contains(&day) || year < 1970 {
        return None;
    }
    let midnight = UNIX_EPOCH + Duration::from_secs(days_before(year, month, day) * DAY);
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
    let seconds = hour * 3600 + minute * 60 + second;
    valid.then_some(Duration::from_secs(seconds) + Duration::from_nanos(fraction))
}

fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Days from 1970-01-01 to that day. A year that begins in March has its leap day at its end.
fn days_before(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month < 3 { (year - 1, month + 9) } else { (year, month - 3) };
    let leaps = year / 4 - year / 100 + year / 400;
    year * 365 + leaps + (153 * month + 2) / 5 + day - 1 - 719_468
}

/// Year, month and day of the day that is `days` after 1970-01-01. 400 years have 146,097 days.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // since 0000-03-01
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153; // 0 is March
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + later, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_day_of_six_centuries_comes_back() {
        for day in 0..220_000 {
            let time = UNIX_EPOCH + Duration::from_secs(day * DAY + day % DAY);
            assert_eq!(parse(&rfc3339(time)), Some(time), "{}", rfc3339(time));
        }
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
            "2026-11-22x",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
