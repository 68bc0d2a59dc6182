//! The URL of a far side: whole for its client, without secrets for everybody else.

use std::fmt;

/// The URL of a far side. It is displayed without its passwords and tokens.
///
/// ```
/// use mmq::forward::FarAddress;
///
/// let address = FarAddress::new("nats://edge@broker:4222").with_password("p@ss").unwrap();
/// assert_eq!(address.url(), "nats://edge:p%40ss@broker:4222");
/// assert_eq!(address.to_string(), "nats://edge@broker:4222");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct FarAddress {
    url: String,
    shown: String,
}

impl fmt::Display for FarAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for FarAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FarAddress").field(&self.shown).finish()
    }
}

impl FarAddress {
    /// Takes a URL, or several with commas between.
    #[must_use]
    pub fn new(url: impl Into<String>) -> FarAddress {
        let url = url.into();
        FarAddress { shown: without_secrets(&url), url }
    }

    /// Returns the whole URL, with its secrets.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Adds this password to each of its servers: that of the user in the URL. Without a user it is
    /// that of the default user of Redis, or a token of NATS. `None` if the URL has one already.
    #[must_use]
    pub fn with_password(&self, password: &str) -> Option<FarAddress> {
        with_password(&self.url, password).map(FarAddress::new)
    }

    /// Returns the user in the URL, and the URL without it. A user with a password stays: at
    /// sentinels of Redis that is a login of theirs.
    ///
    /// ```
    /// use mmq::forward::FarAddress;
    ///
    /// let (user, sentinels) = FarAddress::new("redis://edge@s1,redis://edge@s2").without_user();
    /// assert_eq!((&*user, sentinels.url()), ("edge", "redis://s1,redis://s2"));
    /// ```
    #[must_use]
    pub fn without_user(&self) -> (String, FarAddress) {
        let (user, url) = without_users(&self.url);
        (user, FarAddress::new(url))
    }

    /// Returns a text, such as an error of a client, in which the URL stands without its secrets.
    ///
    /// ```
    /// use mmq::forward::FarAddress;
    ///
    /// let address = FarAddress::new("redis://:secret@broker/");
    /// let shown = address.hide("cannot connect to redis://:secret@broker/");
    /// assert_eq!(shown, "cannot connect to redis://broker/");
    /// ```
    #[must_use]
    pub fn hide(&self, text: &str) -> String {
        if self.url.is_empty() { text.to_owned() } else { text.replace(&self.url, &self.shown) }
    }
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
