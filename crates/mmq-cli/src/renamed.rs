//! What the consumers of a source are called in mmq.

use std::collections::{BTreeMap, BTreeSet};

use mmq_import::{Finding, LONGEST, Severity, SourceConsumer, encoded};

use crate::ending::ExitStatus;
use crate::failure::{Failure, Tried};

/// bigqueue's name of the consumer that reads without a name.
const DEFAULT: &[u8] = b"__default__";

/// `--rename OLD=NEW`: OLD is a name's bytes, or how a report writes them.
#[derive(Debug, Default)]
pub(crate) struct Renamed(BTreeMap<Vec<u8>, String>);

impl Renamed {
    pub(crate) fn add(&mut self, old: &[u8], new: &[u8]) -> Tried<()> {
        let new = std::str::from_utf8(new).ok().filter(|new| (1..=LONGEST).contains(&new.len()));
        let Some(new) = new else {
            let advice = format!("--rename: a name has 1 to {LONGEST} bytes of UTF-8");
            return Err(Failure::usage(advice));
        };
        match self.0.insert(old.to_vec(), new.to_owned()) {
            None => Ok(()),
            Some(_) => Err(Failure::usage(format!("--rename {}= is given twice", encoded(old)))),
        }
    }

    /// The names in mmq, in the order of the consumers. The empty one is the queue's own.
    pub(crate) fn apply(
        &self,
        consumers: &[SourceConsumer],
        findings: &mut Vec<Finding>,
    ) -> Tried<Vec<String>> {
        let (mut names, mut given, mut used) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        for (row, consumer) in consumers.iter().enumerate() {
            let old = consumer.name.as_deref().unwrap_or(DEFAULT);
            let written = encoded(old);
            let keys = [old, written.as_bytes()];
            let by_hand = keys.iter().find_map(|key| self.0.get_key_value(*key));
            let name = match by_hand {
                Some((key, name)) => {
                    used.insert(key);
                    name.clone()
                }
                None if old == DEFAULT => String::new(),
                None => fitting(old, row, findings),
            };
            if !given.insert(name.clone()) {
                let message = format!(
                    "two consumers would be called {name:?}, one of them {written:?} in the source; give --rename {written}=NEW"
                );
                return Err(Failure::new(ExitStatus::Refused, "exists", message));
            }
            names.push(name);
        }
        match self.0.keys().find(|key| !used.contains(key)) {
            None => Ok(names),
            Some(key) => {
                let message = format!("--rename: DIR has no consumer {}", encoded(key));
                Err(Failure::new(ExitStatus::Missing, "no_consumer", message))
            }
        }
    }
}

/// The same name where mmq takes it, else one made from it.
fn fitting(old: &[u8], row: usize, findings: &mut Vec<Finding>) -> String {
    if let Some(name) = std::str::from_utf8(old).ok().filter(|name| !name.is_empty())
        && name.len() <= LONGEST
    {
        return name.to_owned();
    }
    let written = encoded(old);
    let name = match written.len() {
        ..=LONGEST => written.clone(),
        // All of it is ASCII. The number of the row keeps apart what is cut to the same.
        _ => format!("{}%~{row}", written.chars().take(LONGEST - 22).collect::<String>()),
    };
    let text = format!(
        "mmq allows no consumer name of {} bytes (1 to {LONGEST} bytes of UTF-8); the consumer is called {name:?}; --rename {name}=NEW changes that",
        old.len()
    );
    findings.push(Finding::new(Severity::Warning, "consumer", text));
    name
}
