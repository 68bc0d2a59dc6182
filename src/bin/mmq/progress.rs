//! The line on a terminal that says how far a command has come.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use crate::console::Console;
use crate::units;

/// Nothing is drawn for a command that takes no longer.
const PATIENCE: Duration = Duration::from_millis(300);
const EVERY: Duration = Duration::from_millis(100);
const WIDTH: usize = 30;

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
        let line = self.line(bytes, now - self.start, &beside());
        self.drawn |= io::stderr().write_all(line.as_bytes()).is_ok();
    }

    /// Removes the line until it is time again, so that something else can be said.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            let _ = io::stderr().write_all(b"\r\x1b[K");
        }
    }

    fn line(&self, bytes: u64, spent: Duration, beside: &str) -> String {
        let rate = bytes as f64 / spent.as_secs_f64();
        let mut line = String::from("\r");
        if let Some(total) = self.total.filter(|total| *total > 0) {
            let part = (bytes as f64 / total as f64).min(1.0);
            let full = "#".repeat((part * WIDTH as f64) as usize);
            line += &format!("[{full:<WIDTH$}] {:3.0} %  ", part * 100.0);
            if let Ok(left) = Duration::try_from_secs_f64(total.saturating_sub(bytes) as f64 / rate)
            {
                line += &format!("{} left  ", units::duration(left));
            }
        }
        let (done, rate) = (units::size(bytes), units::size(rate as u64));
        line += &format!("{done}, {rate}/s{beside}\x1b[K");
        line
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.clear();
    }
}
