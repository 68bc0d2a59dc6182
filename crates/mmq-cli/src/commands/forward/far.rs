//! The far side that an address names, if this build has a client for it.

use clap::ArgMatches;
use mmq::forward::Destination;

#[cfg(any(feature = "nats", feature = "redis"))]
use crate::arguments;
use crate::failure::{Failure, Tried};

/// An engine that messages can go on to.
struct FarEngine {
    /// How its addresses begin.
    schemes: &'static [&'static str],
    /// The feature that has its client.
    feature: &'static str,
    /// What only this engine has a use for.
    options: &'static [&'static str],
}

const ENGINES: [FarEngine; 2] = [
    FarEngine {
        schemes: &["nats://", "tls://"],
        feature: "nats",
        options: &["stream", "subject", "mode", "creds", "nkey", "ca", "cert", "cert-key"],
    },
    FarEngine { schemes: &["redis://"], feature: "redis", options: &["key"] },
];

/// The far side at `url`.
pub(super) fn destination(url: &str, matches: &ArgMatches) -> Tried<Box<dyn Destination>> {
    let is_of = |engine: &&FarEngine| engine.schemes.iter().any(|scheme| url.starts_with(scheme));
    let Some(engine) = ENGINES.iter().find(is_of) else {
        let schemes: Vec<&str> =
            ENGINES.iter().flat_map(|engine| engine.schemes).copied().collect();
        let message =
            format!("{url} is not a known address; an address begins with {}", schemes.join(", "));
        return Err(Failure::usage(message));
    };
    let others = ENGINES.iter().filter(|other| other.feature != engine.feature);
    for option in others.flat_map(|other| other.options) {
        if matches.contains_id(option) {
            return Err(Failure::usage(format!("--{option} does not apply to {url}")));
        }
    }
    match engine.feature {
        #[cfg(feature = "nats")]
        "nats" => nats(url, matches),
        #[cfg(feature = "redis")]
        "redis" => redis(url, matches),
        feature => Err(Failure::usage(format!(
            "this mmq was built without a client for {url}; `cargo install --path crates/mmq-cli --features {feature}` builds one with it"
        ))),
    }
}

/// An option without which the engine does not know where to put messages.
#[cfg(any(feature = "nats", feature = "redis"))]
fn needed<'a>(matches: &'a ArgMatches, option: &str, url: &str) -> Tried<&'a str> {
    arguments::text_of(matches, option).ok_or_else(|| {
        Failure::usage(format!("{url} needs --{option}, which says where the messages go"))
    })
}

#[cfg(feature = "redis")]
fn redis(url: &str, matches: &ArgMatches) -> Tried<Box<dyn Destination>> {
    let key = needed(matches, "key", url)?;
    Ok(Box::new(mmq_redis::RedisStream::new(url, key).map_err(super::halted)?))
}

#[cfg(feature = "nats")]
fn nats(url: &str, matches: &ArgMatches) -> Tried<Box<dyn Destination>> {
    use mmq_nats::{NatsMode, NatsStream};

    let mut far = NatsStream::new(url, needed(matches, "stream", url)?).map_err(super::halted)?;
    if let Some(subject) = arguments::text_of(matches, "subject") {
        far = far.subject(subject).map_err(super::halted)?;
    }
    far = match arguments::text_of(matches, "mode") {
        Some("batch") => far.mode(NatsMode::Batch),
        Some("chain") => far.mode(NatsMode::Chain),
        Some("window") => far.mode(NatsMode::Window),
        _ => far,
    };
    if let Some(path) = arguments::path_of(matches, "creds") {
        far = far.credentials_file(path);
    }
    if let Some(path) = arguments::path_of(matches, "nkey") {
        let seed = std::fs::read_to_string(path);
        let seed = seed.map_err(|error| Failure::io(path.display(), &error))?;
        far = far.nkey(seed.trim());
    }
    if let Some(path) = arguments::path_of(matches, "ca") {
        far = far.root_certificates(path);
    }
    if let (Some(certificate), Some(key)) =
        (arguments::path_of(matches, "cert"), arguments::path_of(matches, "cert-key"))
    {
        far = far.client_certificate(certificate, key);
    }
    Ok(Box::new(far))
}
