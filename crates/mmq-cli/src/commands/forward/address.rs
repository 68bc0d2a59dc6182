//! The far side's address: with its password for the client, without secrets for everybody else.

use std::fmt;

use clap::ArgMatches;

use super::child;
use crate::arguments::{path_of, text_of};
use crate::failure::{Failure, Tried};

/// The variable that holds the password where no option names a file.
const VARIABLE: &str = "MMQ_FORWARD_PASSWORD";

/// An address. It is displayed without its password or token.
pub(super) struct Address {
    url: String,
    shown: String,
    /// User and password of the server that sentinels name.
    login: Option<(String, String)>,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl Address {
    /// The address of the command line, with the password of `--password-file` or the environment.
    pub(super) fn of(matches: &ArgMatches) -> Tried<Address> {
        let given = text_of(matches, "url").unwrap_or_default();
        if child::SCHEMES.iter().any(|scheme| given.starts_with(scheme)) {
            // It holds no secret: ssh has its own keys.
            return Ok(Address { url: given.to_owned(), shown: given.to_owned(), login: None });
        }
        let mut address =
            Address { url: given.to_owned(), shown: without_secrets(given), login: None };
        let Some(password) = password(matches)? else { return Ok(address) };
        if matches.contains_id("sentinel") {
            let (user, url) = without_users(given);
            (address.login, address.url) = (Some((user, password)), url);
            return Ok(address);
        }
        match with_password(given, &password) {
            Some(url) => (address.shown, address.url) = (without_secrets(&url), url),
            // The one in the environment may be meant for other calls.
            None if path_of(matches, "password-file").is_none() => {}
            None => {
                return Err(Failure::usage(format!(
                    "{address} has a password: leave it out of the URL, or leave out --password-file"
                )));
            }
        }
        Ok(address)
    }

    /// The whole URL.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// User and password that do not stand in the URL.
    #[cfg(feature = "redis")]
    pub(super) fn login(&self) -> Option<(&str, &str)> {
        self.login.as_ref().map(|(user, password)| (&**user, &**password))
    }

    /// What an engine says of the address, without its secrets.
    #[cfg(any(feature = "nats", feature = "redis"))]
    pub(super) fn wrong(&self, why: &str) -> Failure {
        Failure::usage(why.replace(&self.url, &self.shown))
    }
}

/// The password, if one is given outside the URL.
fn password(matches: &ArgMatches) -> Tried<Option<String>> {
    let (password, place) = match path_of(matches, "password-file") {
        Some(path) => {
            let text = std::fs::read_to_string(path);
            let text = text.map_err(|error| Failure::io(path.display(), &error))?;
            (text.trim_end_matches(['\r', '\n']).to_owned(), path.display().to_string())
        }
        // Another login was chosen.
        None if ["creds", "nkey"].iter().any(|it| matches.contains_id(it)) => {
            return Ok(None);
        }
        None => match std::env::var(VARIABLE) {
            Ok(password) => (password, VARIABLE.to_owned()),
            Err(std::env::VarError::NotPresent) => return Ok(None),
            Err(std::env::VarError::NotUnicode(_)) => {
                return Err(Failure::usage(format!("{VARIABLE} is not valid UTF-8")));
            }
        },
    };
    if password.is_empty() {
        return Err(Failure::usage(format!("{place} holds no password: it is empty")));
    }
    Ok(Some(password))
}

/// The URL with this password for each of its servers: that of the user in the URL. Without a user
/// it is that of the default user of Redis, or a token of NATS. `None` if the URL has one already.
fn with_password(url: &str, password: &str) -> Option<String> {
    let password = percent_encoded(password);
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    if scheme.ends_with("unix") {
        let mark = if url.contains('?') { '&' } else { '?' };
        return (!url.contains("pass=")).then(|| format!("{url}{mark}pass={password}"));
    }
    let is_token = matches!(scheme, "nats" | "tls");
    let servers = url.split(',').map(|server| {
        let (scheme, rest) = after_scheme(server);
        match rest.rsplit_once('@') {
            Some((user, _)) if user.contains(':') => None,
            Some((user, host)) => Some(format!("{scheme}{user}:{password}@{host}")),
            None if is_token => Some(format!("{scheme}{password}@{rest}")),
            None => Some(format!("{scheme}:{password}@{rest}")),
        }
    });
    Some(servers.collect::<Option<Vec<_>>>()?.join(","))
}

/// The user of a URL of sentinels, and the URL without it: a login with a password there is that of
/// the sentinels.
fn without_users(url: &str) -> (String, String) {
    let mut user = "";
    let servers = url.split(',').map(|server| {
        let (scheme, rest) = after_scheme(server);
        match rest.rsplit_once('@') {
            Some((login, host)) if !login.contains(':') => {
                user = login;
                format!("{scheme}{host}")
            }
            _ => server.to_owned(),
        }
    });
    let url = servers.collect::<Vec<_>>().join(",");
    (user.to_owned(), url)
}

/// The URL without its passwords and tokens. A user without a password is a token of NATS, so it is
/// left out, too.
fn without_secrets(url: &str) -> String {
    // A comma before no scheme may belong to a password.
    let mut servers: Vec<String> = Vec::new();
    for part in url.split(',') {
        let begins = after_scheme(part).0;
        match servers.last_mut() {
            Some(server) if begins.is_empty() => *server += &format!(",{part}"),
            _ => servers.push(part.to_owned()),
        }
    }
    let shown = servers.iter().map(|server| {
        let (scheme, rest) = after_scheme(server);
        let without_query = |host: &str| host.split('?').next().unwrap_or_default().to_owned();
        if scheme.ends_with("unix://") {
            return format!("{scheme}{}", without_query(rest));
        }
        // A password that is not encoded may hold any character.
        let (login, host) = rest.rsplit_once('@').unwrap_or(("", rest));
        let user = login.split_once(':').map_or("", |(user, _)| user);
        let at = if user.is_empty() { "" } else { "@" };
        format!("{scheme}{user}{at}{}", without_query(host))
    });
    shown.collect::<Vec<_>>().join(",")
}

/// The scheme with what separates it from the rest, and the rest.
fn after_scheme(server: &str) -> (&str, &str) {
    let is_scheme = |it: &str| it.chars().all(|c| c.is_ascii_alphanumeric() || c == '+');
    match server.find("://").and_then(|at| server.split_at_checked(at + 3)) {
        Some((scheme, rest)) if is_scheme(scheme.trim().trim_end_matches("://")) => (scheme, rest),
        _ => ("", server),
    }
}

/// The password as it stands in a URL.
fn percent_encoded(password: &str) -> String {
    let encoded = password.bytes().map(|byte| match byte {
        byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    });
    encoded.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_of_an_address_is_shown() {
        for (url, shown) in [
            ("nats://host:4222", "nats://host:4222"),
            ("nats://edge:secret@host", "nats://edge@host"),
            ("nats://secret@host", "nats://host"),
            ("nats://a:secret@n1, nats://a:secret@n2", "nats://a@n1, nats://a@n2"),
            ("nats://a:se,cret@n1,tls://n2", "nats://a@n1,tls://n2"),
            ("nats://a:se/c?r@et@host:1/x?secret", "nats://a@host:1/x"),
            ("redis://:secret@host:6379/0", "redis://host:6379/0"),
            ("rediss://edge:secret@[::1]:6379/0?secret=1", "rediss://edge@[::1]:6379/0"),
            ("redis+unix:///run/r.sock?user=edge&pass=se@cret", "redis+unix:///run/r.sock"),
            ("edge:secret@host", "edge@host"),
        ] {
            assert_eq!(without_secrets(url), shown, "of {url}");
            assert!(!without_secrets(url).contains("secret"));
        }
    }

    #[test]
    fn the_user_of_a_server_behind_sentinels_is_taken_out() {
        let (user, url) = without_users("redis://edge@s1,redis://edge@s2,redis://a:b@s3");
        assert_eq!((&*user, &*url), ("edge", "redis://s1,redis://s2,redis://a:b@s3"));
    }

    #[test]
    fn the_password_stands_in_the_url() {
        for (url, whole) in [
            ("nats://edge@host", "nats://edge:s%40%2F%25@host"),
            ("nats://e@a:1,nats://e@b:2", "nats://e:s%40%2F%25@a:1,nats://e:s%40%2F%25@b:2"),
            ("tls://host", "tls://s%40%2F%25@host"),
            ("redis://host/0", "redis://:s%40%2F%25@host/0"),
            ("redis://edge@host/0", "redis://edge:s%40%2F%25@host/0"),
            ("unix:///r.sock", "unix:///r.sock?pass=s%40%2F%25"),
            ("unix:///r.sock?db=1", "unix:///r.sock?db=1&pass=s%40%2F%25"),
        ] {
            assert_eq!(with_password(url, "s@/%").as_deref(), Some(whole), "of {url}");
        }
        for url in ["nats://a:b@host", "redis://:b@host", "unix:///r.sock?pass=b"] {
            assert_eq!(with_password(url, "s"), None, "{url} has one");
        }
    }
}
