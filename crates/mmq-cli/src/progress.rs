//! The line on a terminal that says how far a command has come.
//!
//! By hand: indicatif brings more crates, and this draws one line, as wide as there is room.

use std::io;
use std::time::{Duration, Instant};

use crate::console::Console;
use crate::signals;
use crate::units;
use crate::width::Width;

/// Nothing is drawn for a command that takes no longer.
const PATIENCE: Duration = Duration::from_millis(300);
const EVERY: Duration = Duration::from_millis(100);
/// The bar itself: so wide, or left out where there is no room for the other.
const WIDEST: usize = 30;
const NARROWEST: usize = 5;

/// The line. It is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Bar {
    /// `None`: there is no terminal to draw on.
    next: Option<Instant>,
    start: Instant,
    total: Option<u64>,
    drawn: bool,
}

impl Bar {
    /// `total` is in bytes; `None` when nobody knows.
    pub(crate) fn new(console: Console, total: Option<u64>) -> Bar {
        let start = Instant::now();
        Bar { next: console.draws().then(|| start + PATIENCE), start, total, drawn: false }
    }

    /// As [`at`](Self::at), of a total that is known by now.
    pub(crate) fn of(&mut self, bytes: u64, total: u64, beside: impl FnOnce() -> String) {
        self.total = Some(total);
        self.at(bytes, beside);
    }

    /// Draws the line when it is time.
    pub(crate) fn at(&mut self, bytes: u64, beside: impl FnOnce() -> String) {
        let Some(next) = self.next else { return };
        let now = Instant::now();
        if now < next {
            return;
        }
        self.next = Some(now + EVERY);
        let line = self.line(bytes, now - self.start, &beside(), Width::of(&io::stderr()));
        signals::say(line.as_bytes());
        self.drawn = true;
    }

    /// Removes the line until it is time again, so that something else can be said.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            signals::say(b"\r\x1b[K");
        }
    }

    fn line(&self, bytes: u64, spent: Duration, beside: &str, width: Width) -> String {
        let rate = bytes as f64 / spent.as_secs_f64();
        let total = self.total.filter(|total| *total > 0);
        let part = total.map(|total| (bytes as f64 / total as f64).min(1.0));
        let mut text = String::new();
        if let (Some(total), Some(part)) = (total, part) {
            text += &format!("{:3.0} %  ", part * 100.0);
            if let Ok(left) = Duration::try_from_secs_f64(total.saturating_sub(bytes) as f64 / rate)
            {
                text += &format!("{} left  ", units::duration(left));
            }
        }
        let (done, rate) = (units::size(bytes), units::size(rate as u64));
        text += &format!("{done}, {rate}/s{beside}");
        let room = width.beside(&text).saturating_sub("[] ".len()).min(WIDEST);
        if let Some(part) = part.filter(|_| room >= NARROWEST) {
            let full = "#".repeat((part * room as f64) as usize);
            text = format!("[{full:<room$}] {text}");
        }
        format!("\r{}\x1b[K", width.cut(&text))
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_fits_and_says_first_what_is_wanted_first() {
        let bar = Bar { next: None, start: Instant::now(), total: Some(4 << 30), drawn: false };
        let line = |columns| {
            let spent = Duration::from_secs(90);
            let line = bar.line(1 << 30, spent, ", verified", Width::of_columns(columns));
            let line = line.strip_prefix('\r').and_then(|line| line.strip_suffix("\x1b[K"));
            line.expect("it begins and ends so").to_owned()
        };
        let text = " 25 %  4 min 30 s left  1.0 GiB, 11.4 MiB/s, verified";
        assert_eq!(line(40), text[..39]);
        assert_eq!(line(80), format!("[{:<23}] {text}", "#".repeat(5)));
        assert_eq!(line(130), format!("[{:<30}] {text}", "#".repeat(7)));
    }
}
