//! What an error of the server or of its client means, and what to do about it.

use std::fmt::Display;
use std::time::Duration;

use mmq::forward::Trouble;
use redis::{ErrorKind, RedisError};

/// The pause when a server is full, starts, fails over or must not write now.
const LATER: Duration = Duration::from_millis(500);

/// What a later try may mend, in a sentence.
pub(crate) fn again(place: &str, why: impl Display) -> Trouble {
    Trouble::Again(format!("{place}: {why}").into(), Duration::ZERO)
}

/// What a later try may mend, but not one at once.
pub(crate) fn later(place: &str, why: impl Display) -> Trouble {
    Trouble::Again(format!("{place}: {why}").into(), LATER)
}

/// What only a person mends, in a sentence.
pub(crate) fn lost(place: &str, why: impl Display) -> Trouble {
    Trouble::Lost(format!("{place}: {why}").into())
}

/// Whether the error may pass, and what to do about it. `waited`: how long the answer had time.
pub(crate) fn trouble(place: &str, error: &RedisError, waited: Duration) -> Trouble {
    if error.is_timeout() {
        return again(place, format!("no answer for {} s", waited.as_secs()));
    }
    let code = error.code().unwrap_or_default();
    let text = match error.detail() {
        Some(detail) if !code.is_empty() => format!("{code} {}", without_echo(detail)),
        _ => error.to_string(),
    };
    // The advice behind it ends the sentence.
    let text = text.trim_end_matches('.');
    let advice = match code {
        "NOAUTH" | "WRONGPASS" => "look at user and password",
        "ERR" if text.contains("without any password") => {
            "look at user and password: this server has none"
        }
        "ERR" if text.contains("DB index") => "look at the number of the database in the URL",
        "ERR"
            if ["unknown command", "Unknown Redis command"].iter().any(|it| text.contains(it)) =>
        {
            "this is no Redis from 6.2 on, or somebody took the command away"
        }
        "NOPERM" | "ERR" if code == "NOPERM" || text.contains("can't run this command") => {
            "the user needs EVAL, EVALSHA, SCRIPT, XINFO, XREVRANGE and XADD on the key \
             (and WAIT and XSETID, to wait for replicas)"
        }
        "WRONGTYPE" => "the key holds something else: name another one",
        "MOVED" | "ASK" | "CROSSSLOT" | "CLUSTERDOWN" => {
            "this is a cluster, which a stream of one key gains nothing from and which this does \
             not speak to: name a server by itself, or one with sentinels"
        }
        _ if error.kind() == ErrorKind::InvalidClientConfig => "look at the URL and certificates",
        _ => return passing(place, code, text),
    };
    lost(place, format!("{text}; {advice}"))
}

/// What the server says before it repeats the words of the command, of which one may be a password,
/// or the hash of the script.
fn without_echo(detail: &str) -> &str {
    let end = [", with args beginning", " script: "].iter().filter_map(|it| detail.find(it)).min();
    end.and_then(|end| detail.get(..end)).unwrap_or(detail)
}

/// An error that a later minute may mend.
fn passing(place: &str, code: &str, text: &str) -> Trouble {
    let advice = match code {
        "OOM" => "the server is at its maxmemory: trim the stream or raise it",
        "MISCONF" => "the server cannot save to its disk and refuses writes",
        "READONLY" => "the server is a replica: name the primary, or the sentinels",
        "LOADING" => "the server still reads its data",
        "MASTERDOWN" => "the server is a replica that has lost its primary",
        "NOREPLICAS" => "the server has fewer replicas than its min-replicas-to-write",
        "BUSY" => "the server runs a long script of somebody else",
        _ => return again(place, text),
    };
    later(place, format!("{text}; {advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_of_the_server_goes_on_with_the_advice() {
        let answer = b"-READONLY You can't write against a read only replica.\r\n";
        let error = redis::parse_redis_value(answer).and_then(redis::Value::extract_error);
        let said = match trouble("stream k of Redis", &error.unwrap_err(), Duration::ZERO) {
            Trouble::Again(said, _) => said.to_string(),
            other => panic!("it is to try again: {other:?}"),
        };
        let advice = "a read only replica; the server is a replica";
        assert!(said.contains(advice), "{said}");
    }
}
