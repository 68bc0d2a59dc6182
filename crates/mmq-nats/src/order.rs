//! What it takes to begin a session.

use std::path::PathBuf;
use std::time::Duration;

use async_nats::ServerAddr;
use percent_encoding::percent_decode_str;

use crate::{NatsMode, lost};
use mmq::forward::{Halt, Source};

/// What it takes to begin a session.
#[derive(Clone)]
pub(super) struct NatsOrder {
    pub(super) servers: Vec<ServerAddr>,
    pub(super) stream: String,
    pub(super) subject: Option<String>,
    pub(super) mode: Option<NatsMode>,
    pub(super) domain: Option<String>,
    /// How the subjects begin that answers are sent to.
    pub(super) inbox: String,
    /// How long the stream keeps a message.
    pub(super) ttl: Option<Duration>,
    /// How many messages of the queue go in one at the most.
    pub(super) pack: u64,
    pub(super) access: Access,
}

/// How the servers know us, and we them.
#[derive(Clone, Default)]
pub(super) struct Access {
    pub(super) credentials: Option<PathBuf>,
    pub(super) nkey: Option<String>,
    pub(super) user: Option<(String, String)>,
    pub(super) token: Option<String>,
    pub(super) roots: Vec<PathBuf>,
    pub(super) certificate: Option<(PathBuf, PathBuf)>,
    pub(super) tls_first: bool,
}

impl NatsOrder {
    /// The stream of that name on the servers at `urls`.
    pub(super) fn new(urls: &str, stream: &str) -> Result<NatsOrder, Halt> {
        let mut servers = Vec::new();
        for url in urls.split(',') {
            let server: ServerAddr = url.trim().parse().map_err(|error| {
                lost(format!("not a URL of NATS ({error}): it looks like nats://host:4222"))
            })?;
            if !matches!(server.scheme(), "nats" | "tls") {
                return Err(lost("not a URL of NATS: it looks like nats://host:4222".into()));
            }
            servers.push(server);
        }
        if stream.is_empty() || stream.contains(|c: char| ".*>/\\".contains(c) || !is_word(c)) {
            return Err(lost(format!("not a name of a stream: {stream:?}; it looks like EVENTS")));
        }
        let mut access = Access::default();
        if let Some(server) = servers.iter().find(|server| server.has_user_pass()) {
            // The client takes them as they stand in the URL.
            let decoded = |text| percent_decode_str(text).decode_utf8_lossy().into_owned();
            let user = decoded(server.username().unwrap_or_default());
            match server.password() {
                Some(password) => access.user = Some((user, decoded(password))),
                None => access.token = Some(user),
            }
        }
        Ok(NatsOrder {
            servers,
            stream: stream.to_owned(),
            subject: None,
            mode: None,
            domain: None,
            inbox: "_INBOX".to_owned(),
            ttl: None,
            pack: 1,
            access,
        })
    }

    /// The subject of a source, unless one is named.
    pub(super) fn subject_of(&self, source: &Source) -> String {
        let word = |c: char| if is_word(c) && !".*>".contains(c) { c } else { '_' };
        let words = |name: &str| name.chars().map(word).collect();
        let template = self.subject.as_deref().unwrap_or("mmq.{dir}");
        source.filled(template, words).unwrap_or_default()
    }
}

/// A subject without wildcards, which may have the names in it that [`Source::filled`] knows.
pub(super) fn is_template(subject: &str) -> bool {
    // (Any source will do for a look at the names.)
    let filled = Source::new([0; 16], "name").filled(subject, |_| "name".to_owned());
    filled.is_some_and(|subject| is_subject(&subject))
}

/// A subject without wildcards.
pub(super) fn is_subject(subject: &str) -> bool {
    let is_token = |it: &str| !it.is_empty() && !it.contains(|c| "*>{}".contains(c) || !is_word(c));
    subject.split('.').all(is_token)
}

pub(super) fn is_word(c: char) -> bool {
    !c.is_whitespace() && !c.is_control()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_may_have_any_character() {
        let access = |url| NatsOrder::new(url, "EVENTS").unwrap().access;
        let user = access("nats://edge%2B:s%20%40%2F%3A%25@host").user;
        assert_eq!(user, Some(("edge+".to_owned(), "s @/:%".to_owned())));
        assert_eq!(access("nats://t%40ken@host").token.as_deref(), Some("t@ken"));
    }
}
