//! Messages as another program shows them: `--decode CMD`.

use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;

use crate::failure::{Failure, Tried};

/// A pipe holds at least so much. A longer message is written beside reading the answer.
const FITS: usize = 4 << 10;

/// One process for all messages, which begins with the first. It reads and writes them in `length`
/// framing, and has to answer each before it reads the next.
#[derive(Debug)]
pub(super) struct Decoder {
    command: String,
    running: Option<(Child, ChildStdin, BufReader<ChildStdout>)>,
}

impl Decoder {
    pub(super) fn new(command: String) -> Decoder {
        Decoder { command, running: None }
    }

    /// The message as the program answers it.
    pub(super) fn decode(&mut self, message: &[u8]) -> Tried<Vec<u8>> {
        let running = match self.running.take() {
            Some(running) => running,
            None => begin(&self.command).map_err(|error| self.failed(&error))?,
        };
        let (_, input, output) = self.running.insert(running);
        ask(input, output, message).map_err(|error| self.failed(&error))
    }

    /// What there is to say of it. A pipe that is closed says no more than that the process has
    /// ended or will end: how it does is what its user can go by.
    fn failed(&mut self, error: &io::Error) -> Failure {
        let what = format!("--decode {}", self.command);
        let is_closed = matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof);
        let ended = self.running.take().filter(|_| is_closed).map(|(mut child, input, output)| {
            drop((input, output));
            child.wait()
        });
        match ended {
            Some(Ok(status)) => {
                let message = format!(
                    "{what}: the command ended ({status}) before it answered a message; it must answer each one, in length framing"
                );
                Failure::decoder(message)
            }
            Some(Err(error)) => Failure::io(what, &error),
            None => Failure::io(what, error),
        }
    }
}

fn begin(command: &str) -> io::Result<(Child, ChildStdin, BufReader<ChildStdout>)> {
    let mut shell = Command::new("sh");
    let mut child =
        shell.args(["-c", command]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let pipes = child.stdin.take().zip(child.stdout.take());
    let (input, output) = pipes.ok_or_else(|| io::Error::other("it has no pipes"))?;
    Ok((child, input, BufReader::new(output)))
}

fn ask(input: &mut ChildStdin, output: &mut impl Read, message: &[u8]) -> io::Result<Vec<u8>> {
    let mut write = || {
        input.write_all(&super::write::length_head(message))?;
        input.write_all(message)
    };
    if message.len() < FITS {
        write()?;
        return answer(output);
    }
    thread::scope(|scope| {
        let writing = thread::Builder::new().spawn_scoped(scope, write)?;
        let answer = answer(output);
        let written = writing.join().map_err(|_| io::Error::other("a thread panicked"))?;
        answer.and_then(|answer| written.map(|()| answer))
    })
}

fn answer(output: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut head = [0; 4];
    output.read_exact(&mut head)?;
    let length = head.iter().fold(0, |length, byte| length << 8 | u64::from(*byte));
    let mut answer = Vec::new();
    // No more is allocated than comes.
    match output.take(length).read_to_end(&mut answer)? as u64 {
        read if read == length => Ok(answer),
        _ => Err(ErrorKind::UnexpectedEof.into()),
    }
}

impl Drop for Decoder {
    fn drop(&mut self) {
        if let Some((mut child, input, output)) = self.running.take() {
            drop((input, output));
            let _ = child.wait();
        }
    }
}
