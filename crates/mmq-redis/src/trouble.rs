//! What an error of the server or of its client means, and what to do about it.

use std::time::Duration;

use mmq::forward::Trouble;
use redis::RedisError;

/// The pause when a server is full, starts, fails over or must not write now.
const LATER: Duration = Duration::from_secs(5);

/// What a later try may mend, in a sentence.
pub(crate) fn again(key: &str, why: impl std::fmt::Display) -> Trouble {
    Trouble::Again(format!("stream {key} of Redis: {why}").into(), Duration::ZERO)
}

/// What only a person mends, in a sentence.
pub(crate) fn lost(key: &str, why: impl std::fmt::Display) -> Trouble {
    Trouble::Lost(format!("stream {key} of Redis: {why}").into())
}

/// Whether the error may pass, and what to do about it. `waited`: how long the answer had time.
pub(crate) fn trouble(key: &str, error: &RedisError, waited: Duration) -> Trouble {
    if error.is_timeout() {
        return again(key, format!("no answer for {} s", waited.as_secs()));
    }
    let text = error.to_string();
    let advice = match error.code().unwrap_or_default() {
        "NOAUTH" | "WRONGPASS" => "look at user and password",
        "ERR" if text.contains("without any password") => {
            "look at user and password: this server has none"
        }
        "NOPERM" => {
            "the user needs EVAL, EVALSHA, SCRIPT, EXISTS, XINFO, XREVRANGE and XADD on the key"
        }
        "WRONGTYPE" => "the key holds something else: name another one",
        _ => return passing(key, error, &text),
    };
    lost(key, format!("{text}; {advice}"))
}

/// An error that a later minute may mend.
fn passing(key: &str, error: &RedisError, text: &str) -> Trouble {
    let (advice, pause) = match error.code().unwrap_or_default() {
        "OOM" => ("; the server is at its maxmemory: trim the stream or raise it", LATER),
        "MISCONF" => ("; the server cannot save to its disk and refuses writes", LATER),
        "READONLY" => ("; the server is a replica: name the primary", LATER),
        "LOADING" => ("; the server reads its data set and is not ready yet", LATER),
        "MASTERDOWN" => ("; the server is a replica that has lost its primary", LATER),
        "NOREPLICAS" => ("; the server has fewer replicas than min-replicas-to-write", LATER),
        "BUSY" => ("; the server runs a long script of another client", LATER),
        _ => ("", Duration::ZERO),
    };
    Trouble::Again(format!("stream {key} of Redis: {text}{advice}").into(), pause)
}
