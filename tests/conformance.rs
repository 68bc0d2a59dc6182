//! The answers of Rust to the calls of `tests/conformance.json`. The same file holds for the other
//! languages: for C and C++ in `tests/c_api/conformance.rs`, for Go and Python in `bindings/`.

#![cfg(unix)]

#[path = "support/conformance.rs"]
mod conformance_file;
mod support;

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use mmq::{Consumer, Delivery, Error, Gap, GapCause, Message, OnFull, Options, Queue, Redelivery};

#[test]
fn rust_answers_as_the_conformance_file_says() {
    conformance_file::check(|dir| {
        let mut speaker = Speaker { dir: dir.join("queue"), ..Speaker::default() };
        move |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            speaker.answer(words[0], &words[1..]).unwrap_or_else(told)
        }
    });
}

/// What the program that a scenario stands for has open.
#[derive(Default)]
struct Speaker {
    dir: PathBuf,
    queue: Option<Queue>,
    consumers: HashMap<String, Consumer>,
    deliveries: HashMap<String, Delivery>,
}

/// A read through the queue's own consumer, which is called `-`, or through another one.
macro_rules! read {
    ($speaker:expr, $handle:expr, $call:ident($($argument:expr),*)) => {
        match $speaker.consumers.get($handle) {
            Some(consumer) => consumer.$call($($argument),*)?,
            None => $speaker.queue().$call($($argument),*)?,
        }
    };
}

impl Speaker {
    fn queue(&self) -> &Queue {
        self.queue.as_ref().expect("the queue is open")
    }

    fn delivery(&mut self, name: &str) -> Delivery {
        self.deliveries.remove(name).expect("a delivery that was received")
    }

    fn answer(&mut self, call: &str, words: &[&str]) -> mmq::Result<String> {
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        let ms = |at: usize| Duration::from_millis(number(at));
        match call {
            "open" => self.queue = Some(options(words).open(&self.dir)?),
            "close" => self.queue.take().expect("the queue is open").close()?,
            "enqueue" => return Ok(format!("ok {}", self.queue().enqueue(decoded(words[0]))?)),
            "enqueue_batch" => {
                let messages: Vec<Vec<u8>> = words.iter().map(|word| decoded(word)).collect();
                return Ok(format!("ok {}", self.queue().enqueue_batch(&messages)?.start));
            }
            "flush" => self.queue().flush()?,
            "durable_seq" => return Ok(format!("ok {}", self.queue().durable_seq())),
            "wait_durable" => self.queue().wait_durable(number(0))?,
            "stats" => return Ok(figures(&self.queue().stats())),
            "consumer" => {
                let consumer = self.queue().consumer(&name(words[1]))?;
                self.consumers.insert(words[0].into(), consumer);
            }
            "remove_consumer" => self.queue().remove_consumer(&name(words[0]))?,
            "seek" => self.consumers[words[0]].seek(number(1))?,
            "redelivery" => {
                let mut rules = Redelivery::new();
                if number(1) > 0 {
                    rules = rules.lease(ms(1));
                }
                if number(2) > 0 {
                    rules = rules.backoff(ms(2), ms(2));
                }
                if number(3) > 0 {
                    rules = rules.max_attempts(number(3) as u32);
                }
                read!(self, words[0], set_redelivery(rules));
            }
            "peek" => return Ok(message(read!(self, words[0], peek()))),
            "dequeue" => return Ok(message(read!(self, words[0], dequeue()))),
            "receive" => {
                let Some(delivery) = read!(self, words[0], receive_timeout(ms(2))) else {
                    return Ok("none".into());
                };
                let (seq, attempts) = (delivery.seq(), delivery.attempts());
                let answer = format!("delivery {seq} {attempts} {}", encoded(&delivery));
                self.deliveries.insert(words[1].into(), delivery);
                return Ok(answer);
            }
            "ack" => self.delivery(words[0]).ack()?,
            "nack" => self.delivery(words[0]).nack(),
            "nack_after" => self.delivery(words[0]).nack_after(ms(1)),
            "extend" => self.deliveries[words[0]].extend(ms(1))?,
            "reject" => self.delivery(words[0]).reject()?,
            _ => panic!("no such call: {call}"),
        }
        Ok("ok".into())
    }
}

fn options(words: &[&str]) -> Options {
    words.iter().fold(Options::new(), |options, word| match word.split_once('=') {
        Some(("max_bytes", bytes)) => options.max_bytes(bytes.parse::<u64>().expect("bytes")),
        Some(("arena_size", bytes)) => options.arena_size(bytes.parse().expect("bytes")),
        Some(("on_full", "drop-oldest")) => options.on_full(OnFull::DropOldest),
        Some(("create", "false")) => options.create(false),
        _ => panic!("no such option: {word}"),
    })
}

fn figures(stats: &mmq::Stats) -> String {
    format!(
        "stats {} {} {} {} {} {} {} {} {}",
        stats.messages,
        stats.next_seq,
        stats.enqueued,
        stats.dequeued,
        stats.consumers,
        stats.gaps,
        stats.lost_messages,
        stats.refused,
        stats.rejected
    )
}

fn message(message: Option<Message>) -> String {
    message
        .map_or("none".into(), |message| format!("message {} {}", message.seq(), encoded(&message)))
}

fn told(error: Error) -> String {
    let number = match error {
        Error::Gap(Gap { first, last, cause }) => {
            let cause = match cause {
                GapCause::Damaged => 1,
                GapCause::Dropped => 3,
                GapCause::Rejected => 5,
                other => panic!("no scenario has this cause: {other}"),
            };
            return format!("gap {first} {last} {cause}");
        }
        Error::InvalidArgument { .. } => 16,
        Error::InvalidOption { .. } => 17,
        Error::MessageTooLarge { .. } => 18,
        Error::Full { .. } => 19,
        Error::Locked { .. } => 20,
        Error::NotFound { .. } => 21,
        Error::Closed => 25,
        Error::Expired => 27,
        other => return other.to_string(),
    };
    format!("error {number}")
}

fn decoded(word: &str) -> Vec<u8> {
    if let Some((count, byte)) = word.split_once('*') {
        return byte.repeat(count.parse().expect("how many")).into();
    }
    let mut parts = word.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts.filter(|part| !part.is_empty()) {
        bytes.push(u8::from_str_radix(&part[..2], 16).expect("two digits"));
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    bytes
}

fn name(word: &str) -> String {
    String::from_utf8(decoded(word)).expect("UTF-8")
}

fn encoded(bytes: &[u8]) -> String {
    match bytes {
        [] => "%".into(),
        [first, ..] if bytes.len() > 64 && bytes.iter().all(|byte| byte == first) => {
            format!("{}*{}", bytes.len(), char::from(*first))
        }
        _ => bytes.iter().fold(String::new(), |word, byte| match byte {
            b'a'..=b'z' => word + &char::from(*byte).to_string(),
            _ => word + &format!("%{byte:02x}"),
        }),
    }
}
