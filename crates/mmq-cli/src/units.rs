//! Sizes and durations, as people write and read them.
//!
//! By hand: to bytesize `64K` is 64000, and what overflows the largest; humantime refuses `90`,
//! `.5h` and `1.2345h`, and takes `1M` for a month; jiff refuses `90` and `2d`.

use std::time::Duration;

/// Letters of a size, and the power of 1024 that each stands for.
const PREFIXES: [(char, u32); 5] = [('k', 1), ('m', 2), ('g', 3), ('t', 4), ('p', 5)];

/// A number of messages or the like.
pub(crate) fn parse_number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "write a number without a unit, such as 1000".to_owned())
}

/// The same, from 1 on.
pub(crate) fn parse_count(text: &str) -> Result<u64, String> {
    match parse_number(text)? {
        0 => Err("the least is 1".to_owned()),
        count => Ok(count),
    }
}

/// Reads `4096`, `64K`, `64KiB` (1024 bytes each) and `64kB` (1000 each).
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let advice = || format!("{text:?} is not a size: write 65536, 64K or 64KiB (of 1024), or 64kB");
    let (number, unit) = split(text);
    let unit = unit.trim().to_ascii_lowercase();
    let factor = match unit.as_str() {
        "" | "b" => 1,
        unit => {
            let power = |base: u64, letter: &str| {
                let letter = letter.chars().next()?;
                let (_, power) = PREFIXES.into_iter().find(|(prefix, _)| *prefix == letter)?;
                Some(base.pow(power))
            };
            let rest = unit.get(1..).unwrap_or("");
            let base = match rest {
                "" | "i" | "ib" => 1024,
                "b" => 1000,
                _ => return Err(advice()),
            };
            power(base, unit).ok_or_else(advice)?
        }
    };
    scaled(number, factor).ok_or_else(advice)
}

/// Reads `90s`, `1.5h`, `250ms`, `2d`; a bare number is seconds.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let advice = || format!("{text:?} is not a duration: write 90s, 15m, 1.5h, 2d or 250ms");
    let (number, unit) = split(text);
    let nanos = match unit.trim() {
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "" | "s" | "sec" => 1_000_000_000,
        "m" | "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        "w" => 604_800_000_000_000,
        _ => return Err(advice()),
    };
    scaled(number, nanos).map(Duration::from_nanos).ok_or_else(advice)
}

/// Reads `640`, `0640` and `0o640`. Which bits there may be, the library says.
pub(crate) fn parse_mode(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix("0o").unwrap_or(text);
    let parsed = u32::from_str_radix(digits, 8).ok().filter(|_| !digits.starts_with('+'));
    parsed.ok_or_else(|| format!("{text:?} is not a mode: write octal digits, for example 640"))
}

fn split(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    text.split_at(end)
}

/// A number, with a fraction or without, times a factor.
fn scaled(number: &str, factor: u64) -> Option<u64> {
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor);
    }
    let (whole, fraction) = number.split_once('.')?;
    let whole = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()? };
    let part = format!("0.{fraction}").parse::<f64>().ok().filter(|_| !fraction.is_empty())?;
    whole.checked_mul(factor)?.checked_add((part * factor as f64).round() as u64)
}

/// As `1.5 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB", "TiB"] {
        if value < 1023.95 {
            return match unit {
                "B" => format!("{bytes} B"),
                _ => format!("{value:.1} {unit}"),
            };
        }
        value /= 1024.0;
    }
    format!("{value:.1} PiB")
}

/// As `31.4 s`, `12 min`, `5 h 20 min`, `3 d 4 h`.
pub(crate) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 if duration.as_millis() < 1 => format!("{} us", duration.as_micros()),
        0 => format!("{} ms", duration.as_millis()),
        1..60 => format!("{:.1} s", duration.as_secs_f64()),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// `1 message`, `2 messages`.
pub(crate) fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        for (text, bytes) in [
            ("0", 0),
            ("65536", 65536),
            ("64K", 65536),
            ("64KiB", 65536),
            ("64kb", 64000),
            ("1.5MiB", 3 << 19),
            ("2g", 2 << 30),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "x", "64Q", "1.", "-1", "99999999999T", "1 2"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
        assert_eq!(
            [size(0), size(1023), size(1024), size(3 << 19)],
            ["0 B", "1023 B", "1.0 KiB", "1.5 MiB"]
        );
    }

    #[test]
    fn numbers_are_read() {
        assert_eq!((parse_number("0"), parse_count("7")), (Ok(0), Ok(7)));
        for text in ["", "x", "-1", "1 K", "99999999999999999999999"] {
            assert!(parse_count(text).unwrap_err().contains("such as 1000"), "{text}");
        }
        assert_eq!(parse_count("0").unwrap_err(), "the least is 1");
    }

    #[test]
    fn modes_are_read() {
        for text in ["640", "0640", "0o640"] {
            assert_eq!(parse_mode(text), Ok(0o640), "{text}");
        }
        for text in ["", "8", "rw", "+640", "-1", "0x1", "640 ", "77777777777777"] {
            assert!(parse_mode(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_read_and_written() {
        for (text, millis) in [
            ("90s", 90_000),
            ("90", 90_000),
            ("15m", 900_000),
            ("1.5h", 5_400_000),
            ("250ms", 250),
            ("0", 0),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "s", "5 parsecs", "-1s", "99999999999999d"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        assert_eq!(duration(Duration::from_millis(31_400)), "31.4 s");
        assert_eq!(duration(Duration::from_secs(19_200)), "5 h 20 min");
    }
}
