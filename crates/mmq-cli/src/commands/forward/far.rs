//! The far side that an address names, if this build has a client for it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
#[cfg(feature = "nats")]
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, value_parser};
use mmq::forward::Destination;
#[cfg(any(feature = "nats", feature = "redis"))]
use mmq::forward::Halt;
#[cfg(feature = "redis")]
use mmq_redis::RedisStream;

use super::address::Address;
use super::child::{self, AnotherQueue};
use super::{choice, duration, file, text};
#[cfg(any(feature = "nats", feature = "redis-tls"))]
use crate::arguments::path_of;
#[cfg(any(feature = "nats", feature = "redis"))]
use crate::arguments::text_of;
use crate::arguments::{flag, number};
use crate::console::Console;
use crate::failure::{Failure, Tried};

/// An engine that messages can go on to.
struct FarEngine {
    /// How its addresses begin.
    schemes: &'static [&'static str],
    /// The feature that has its client.
    feature: &'static str,
    /// What only this engine has a use for.
    options: &'static str,
}

const ENGINES: [FarEngine; 3] = [
    FarEngine {
        schemes: &["nats://", "tls://"],
        feature: "nats",
        options: "succeed pack stream subject mode domain ttl inbox-prefix creds nkey tls-first ca cert \
                  cert-key",
    },
    FarEngine {
        schemes: &["redis://", "rediss://", "unix://", "redis+unix://"],
        feature: "redis",
        options: "pack succeed key max-len replicas sentinel ca cert cert-key",
    },
    FarEngine { schemes: &child::SCHEMES, feature: "mmq", options: "" },
];

/// The options of each engine, under a heading of their own.
pub(super) fn with_options(forward: Command) -> Command {
    let of_nats = |arg: Arg| arg.help_heading("Options of NATS");
    let of_redis = |arg: Arg| arg.help_heading("Options of Redis");
    let of_tls = |arg: Arg| arg.help_heading("Options of TLS");
    forward
        .arg(number(
            "pack",
            "Put up to N messages in one message of NATS or one entry of Redis; readers unpack it [default: 1]",
        ))
        .arg(
            number("zstd", "Compress these packs with zstd, at the level N of 1 to 19 [default: not]")
                .value_parser(value_parser!(i32).range(1..=19))
                .requires("pack"),
        )
        .arg(of_redis(text(
            "key",
            "KEY",
            "The stream's key; {dir} is NAME, {consumer} the consumer's name, {host} the machine's",
        )))
        .arg(of_redis(number("max-len", "Trim the stream to about the newest N entries")))
        .arg(of_redis(
            number("replicas", "Wait until N replicas have each message [default: 0]")
                .value_parser(value_parser!(u32)),
        ))
        .arg(of_redis(text(
            "sentinel",
            "PRIMARY",
            "URL is that of sentinels, with commas between: ask them for this primary",
        )))
        .arg(of_nats(text("stream", "STREAM", "The name of the stream")))
        .arg(of_nats(text(
            "subject",
            "SUBJECT",
            "The subject, with the same names in braces as in KEY [default: mmq.{dir}]",
        )))
        .arg(of_nats(
            choice("mode", &["batch", "chain", "window"])
                .help("How messages are sent [default: as the stream allows]"),
        ))
        .arg(of_nats(text("domain", "DOMAIN", "The domain of JetStream that the stream is in")))
        .arg(of_nats(duration(
            "ttl",
            "How long the stream keeps each message [default: as it says]",
        )))
        .arg(of_nats(text(
            "inbox-prefix",
            "PREFIX",
            "How the subjects of answers begin [default: _INBOX]",
        )))
        .arg(of_nats(file("creds", "The credentials file")))
        .arg(of_nats(file("nkey", "The file with the seed of an nkey")))
        .arg(of_tls(flag("tls-first", "Begin with TLS, before the server of NATS says anything")))
        .arg(of_tls(file("ca", "The certificates of authorities to trust")))
        .arg(of_tls(file("cert", "The client's certificate").requires("cert-key")))
        .arg(of_tls(file("cert-key", "The client's private key").requires("cert")))
}

/// The far side at that address. It waits for nothing once it is stopped.
pub(super) fn destination(
    address: &Address,
    matches: &ArgMatches,
    is_stopped: &Arc<AtomicBool>,
    console: Console,
) -> Tried<Box<dyn Destination>> {
    let is_of = |scheme: &&str| address.url().starts_with(*scheme);
    let Some(engine) = ENGINES.iter().find(|engine| engine.schemes.iter().any(is_of)) else {
        let schemes: Vec<&str> =
            ENGINES.iter().flat_map(|engine| engine.schemes).copied().collect();
        return Err(Failure::usage(format!(
            "{address} is not a known address; an address begins with {}",
            schemes.join(", ")
        )));
    };
    let others = ["password-file", "times"].into_iter().filter(|_| engine.feature == "mmq");
    let options = |engine: &FarEngine| engine.options.split_whitespace();
    for option in ENGINES.iter().flat_map(options).chain(others) {
        let is_given = matches.value_source(option) == Some(ValueSource::CommandLine);
        if is_given && !options(engine).any(|it| it == option) {
            return Err(Failure::usage(format!("--{option} does not apply to {address}")));
        }
    }
    match engine.feature {
        "mmq" => Ok(Box::new(AnotherQueue::at(address.url(), Arc::clone(is_stopped), console)?)),
        #[cfg(feature = "nats")]
        "nats" => nats(address, matches),
        #[cfg(feature = "redis")]
        "redis" => redis(address, matches),
        feature => Err(Failure::usage(format!(
            "this mmq was built without a client for {address}; `cargo install --path crates/mmq-cli --features {feature}` builds one with it"
        ))),
    }
}

/// What the engine says of an option or the address. Nothing was sent yet.
#[cfg(any(feature = "nats", feature = "redis"))]
fn wrong(address: &Address) -> impl Fn(Halt) -> Failure {
    |halt| match halt {
        Halt::Lost(why) => address.wrong(&why.to_string()),
        other => address.wrong(&other.to_string()),
    }
}

/// An option without which the engine does not know where to put messages.
#[cfg(any(feature = "nats", feature = "redis"))]
fn needed<'a>(matches: &'a ArgMatches, option: &str, address: &Address) -> Tried<&'a str> {
    text_of(matches, option).ok_or_else(|| {
        Failure::usage(format!("{address} needs --{option}, which says where the messages go"))
    })
}

#[cfg(feature = "redis")]
fn redis(address: &Address, matches: &ArgMatches) -> Tried<Box<dyn Destination>> {
    let key = needed(matches, "key", address)?;
    let far = match text_of(matches, "sentinel") {
        Some(primary) => {
            let sentinels: Vec<&str> = address.url().split(',').map(str::trim).collect();
            RedisStream::sentinel(&sentinels, primary, key)
        }
        None => RedisStream::new(address.url(), key),
    };
    let mut far = far.map_err(wrong(address))?;
    if let Some((user, password)) = address.login() {
        far = far.credentials(user, password);
    }
    if let Some(entries) = matches.get_one::<u64>("max-len") {
        far = far.max_len(*entries);
    }
    if let Some(count) = matches.get_one::<u32>("replicas") {
        far = far.replicas(*count);
    }
    if let Some(messages) = matches.get_one::<u64>("pack") {
        far = far.pack(*messages);
    }
    Ok(Box::new(with_certificates(far, matches)?))
}

#[cfg(feature = "redis-tls")]
fn with_certificates(far: RedisStream, matches: &ArgMatches) -> Tried<RedisStream> {
    let mut far = far;
    if let Some(path) = path_of(matches, "ca") {
        far = far.root_certificates(path);
    }
    if let Some((certificate, key)) = path_of(matches, "cert").zip(path_of(matches, "cert-key")) {
        far = far.client_certificate(certificate, key);
    }
    Ok(far)
}

#[cfg(all(feature = "redis", not(feature = "redis-tls")))]
fn with_certificates(far: RedisStream, matches: &ArgMatches) -> Tried<RedisStream> {
    match ["ca", "cert"].into_iter().find(|option| matches.contains_id(option)) {
        Some(option) => Err(Failure::usage(format!(
            "this mmq was built without TLS for Redis, which --{option} needs; `cargo install --path crates/mmq-cli --features redis-tls` builds one with it"
        ))),
        None => Ok(far),
    }
}

#[cfg(feature = "nats")]
fn nats(address: &Address, matches: &ArgMatches) -> Tried<Box<dyn Destination>> {
    use mmq_nats::{NatsMode, NatsStream};

    let wrong = wrong(address);
    let stream = needed(matches, "stream", address)?;
    let mut far = NatsStream::new(address.url(), stream).map_err(&wrong)?;
    if let Some(subject) = text_of(matches, "subject") {
        far = far.subject(subject).map_err(&wrong)?;
    }
    if let Some(domain) = text_of(matches, "domain") {
        far = far.domain(domain).map_err(&wrong)?;
    }
    if let Some(prefix) = text_of(matches, "inbox-prefix") {
        far = far.inbox_prefix(prefix).map_err(&wrong)?;
    }
    if let Some(ttl) = matches.get_one::<Duration>("ttl") {
        far = far.message_ttl(*ttl);
    }
    if matches.get_flag("tls-first") {
        far = far.tls_first();
    }
    if let Some(messages) = matches.get_one::<u64>("pack") {
        far = far.pack(*messages);
    }
    far = match text_of(matches, "mode") {
        Some("batch") => far.mode(NatsMode::Batch),
        Some("chain") => far.mode(NatsMode::Chain),
        Some("window") => far.mode(NatsMode::Window),
        _ => far,
    };
    if let Some(path) = path_of(matches, "creds") {
        far = far.credentials_file(path);
    }
    if let Some(path) = path_of(matches, "nkey") {
        let seed = std::fs::read_to_string(path);
        let seed = seed.map_err(|error| Failure::io(path.display(), &error))?;
        far = far.nkey(seed.trim());
    }
    if let Some(path) = path_of(matches, "ca") {
        far = far.root_certificates(path);
    }
    if let (Some(certificate), Some(key)) = (path_of(matches, "cert"), path_of(matches, "cert-key"))
    {
        far = far.client_certificate(certificate, key);
    }
    Ok(Box::new(far))
}
