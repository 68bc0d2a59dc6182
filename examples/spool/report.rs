//! The line of figures that ends the run.

use super::ends::Tally;

pub(crate) struct Report {
    pub(crate) put_in: Tally,
    pub(crate) taken_out: Tally,
    /// Messages in the queue when it was closed and opened again.
    pub(crate) inside: u64,
    /// Messages in the queue at the end.
    pub(crate) left: u64,
    /// The reader of the output took all of it.
    pub(crate) wanted: bool,
    pub(crate) seconds: f64,
    pub(crate) disk: u64,
}

impl Report {
    fn complete(&self) -> bool {
        self.left == 0 && self.put_in.agrees_with(&self.taken_out)
    }

    pub(crate) fn exit_code(&self) -> u8 {
        u8::from(self.wanted && !self.complete())
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Report { put_in, taken_out, inside, left, wanted, seconds, disk } = self;
        if !wanted {
            return write!(
                f,
                "the output was closed by its reader: {} messages put in, {} taken out, {left} left in the queue",
                put_in.messages, taken_out.messages
            );
        }
        let rate = if *seconds > 0.0 { put_in.messages as f64 / seconds } else { 0.0 };
        write!(
            f,
            "{} messages, {} bytes, {seconds:.3} s, {rate:.0} messages/s, {disk} bytes of disk at most, \
             reopened with {inside} inside: ",
            put_in.messages, put_in.bytes
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
