//! The line of figures that ends a spool.

use std::fmt;

use super::lines::Tally;
use super::lines::Wanted;
use crate::ending::ExitStatus;
use crate::units::count;

pub(super) struct Report {
    pub(super) put_in: Tally,
    pub(super) taken_out: Tally,
    /// Messages in the queue when it was closed and opened again.
    pub(super) inside: u64,
    /// Messages in the queue at the end.
    pub(super) left: u64,
    pub(super) wanted: Wanted,
    pub(super) seconds: f64,
    pub(super) disk: u64,
}

impl Report {
    fn complete(&self) -> bool {
        self.left == 0 && self.put_in.agrees_with(&self.taken_out)
    }

    pub(super) fn ending(&self) -> ExitStatus {
        match self.wanted {
            Wanted::More if !self.complete() => ExitStatus::Bad,
            _ => ExitStatus::Done,
        }
    }

    pub(super) fn json(&self) -> String {
        let Report { put_in, taken_out, inside, left, wanted, seconds, disk } = self;
        let figures = serde_json::json!({
            "messages": put_in.messages,
            "bytes": put_in.bytes,
            "messages_out": taken_out.messages,
            "bytes_out": taken_out.bytes,
            "missing": taken_out.missing,
            "inside": inside,
            "left": left,
            "seconds": seconds,
            "disk_bytes": disk,
            "output_closed": *wanted == Wanted::NoMore,
            "complete": self.complete(),
        });
        figures.to_string()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { put_in, taken_out, inside, left, wanted, seconds, disk } = self;
        for gap in &taken_out.reported {
            writeln!(f, "{gap}")?;
        }
        if *wanted == Wanted::NoMore {
            return write!(
                f,
                "the reader closed the output: {} messages put in, {} taken out, {left} left in the queue",
                put_in.messages, taken_out.messages
            );
        }
        let rate = if *seconds > 0.0 { put_in.messages as f64 / seconds } else { 0.0 };
        write!(
            f,
            "{}, {} bytes, {seconds:.3} s, {rate:.0} messages/s, {disk} bytes of disk at most, \
             reopened with {inside} inside: ",
            count(put_in.messages, "message"),
            put_in.bytes
        )?;
        if self.complete() {
            f.write_str("everything came out, byte for byte and in order")
        } else {
            write!(
                f,
                "NOT everything came out as it went in ({} messages, {} bytes came out, {} are missing, {left} are left)",
                taken_out.messages, taken_out.bytes, taken_out.missing
            )
        }
    }
}
