//! The far side's address: with its password for the client, without secrets for everybody else.

use std::fmt;

use clap::ArgMatches;
use mmq::forward::FarAddress;

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
    #[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "only Redis has sentinels"))]
    login: Option<(String, String)>,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl From<FarAddress> for Address {
    fn from(far: FarAddress) -> Address {
        Address { url: far.url().to_owned(), shown: far.to_string(), login: None }
    }
}

impl Address {
    /// The address of the command line, with the password of `--password-file` or the environment.
    pub(super) fn of(matches: &ArgMatches) -> Tried<Address> {
        let given = text_of(matches, "url").unwrap_or_default();
        if child::SCHEMES.iter().any(|scheme| given.starts_with(scheme)) {
            let shown = without_arguments(given);
            return Ok(Address { url: given.to_owned(), shown, login: None });
        }
        let far = FarAddress::new(given);
        let Some(password) = password(matches)? else { return Ok(Address::from(far)) };
        if matches.contains_id("sentinel") {
            let (user, sentinels) = far.without_user();
            return Ok(Address { login: Some((user, password)), ..Address::from(sentinels) });
        }
        match far.with_password(&password) {
            Some(whole) => Ok(Address::from(whole)),
            // The one in the environment may be meant for other calls.
            None if path_of(matches, "password-file").is_none() => Ok(Address::from(far)),
            None => Err(Failure::usage(format!(
                "{far} has a password: leave it out of the URL, or leave out --password-file"
            ))),
        }
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

/// A command without its arguments and variables, which may hold secrets. (ssh has its own keys.)
fn without_arguments(url: &str) -> String {
    let Some(command) = url.strip_prefix("exec:") else { return url.to_owned() };
    let first = command.split_whitespace().next().unwrap_or_default();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-".contains(c);
    format!("exec:{}", if first.chars().all(is_plain) { first } else { "..." })
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

#[cfg(test)]
mod tests {
    use super::without_arguments;

    #[test]
    fn a_command_is_shown_without_what_may_be_secret() {
        for (url, shown) in [
            ("exec:mmq accept /mnt/q", "exec:mmq"),
            ("exec: /opt/engine.py --key=s3cret", "exec:/opt/engine.py"),
            ("exec:TOKEN=s3cret engine", "exec:..."),
            ("exec:'a b' c", "exec:..."),
            ("ssh://edge@host/~/q", "ssh://edge@host/~/q"),
        ] {
            assert_eq!(without_arguments(url), shown);
        }
    }
}
