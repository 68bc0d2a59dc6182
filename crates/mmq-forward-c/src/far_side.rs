//! The client of a far side, by its URL.

use mmq::forward::{Destination, Halt};
use mmq::forward_door::FarPlace;

type Made = Result<Box<dyn Destination>, String>;

/// An engine that messages can go on to.
struct FarEngine {
    schemes: &'static [&'static str],
    /// The options that only some engines have.
    options: &'static [&'static str],
    make: fn(&FarPlace<'_>) -> Made,
}

const ENGINES: &[FarEngine] = &[
    #[cfg(feature = "nats")]
    FarEngine {
        schemes: &["nats", "tls"],
        options: &[
            "stream",
            "subject",
            "credentials_file",
            "ca_file",
            "certificate_file",
            "private_key_file",
        ],
        make: nats,
    },
    #[cfg(feature = "redis")]
    FarEngine {
        schemes: &["redis", "rediss", "unix", "redis+unix"],
        #[cfg(feature = "redis-tls")]
        options: &["key", "ca_file", "certificate_file", "private_key_file"],
        #[cfg(not(feature = "redis-tls"))]
        options: &["key"],
        make: redis,
    },
];

/// Makes the client, which has not connected yet.
pub(crate) fn far_side(place: &FarPlace<'_>) -> Made {
    let address = &place.address;
    let scheme = address.url().split_once("://").map_or("", |(scheme, _)| scheme);
    let Some(engine) = ENGINES.iter().find(|engine| engine.schemes.contains(&scheme)) else {
        let schemes: Vec<_> = ENGINES.iter().flat_map(|engine| engine.schemes).copied().collect();
        return Err(format!(
            "{address} is no address that this library has a client for; they begin with {}://",
            schemes.join("://, ")
        ));
    };
    for (option, given) in place.given {
        if given.is_some() && !engine.options.contains(&option) {
            return Err(format!("{address} has no use for the option {option}"));
        }
    }
    (engine.make)(place)
}

#[cfg(any(feature = "nats", feature = "redis"))]
fn needed<'a>(place: &FarPlace<'a>, option: &str) -> Result<&'a str, String> {
    let missing = || format!("{} needs the option {option}: where the messages go", place.address);
    place.option(option).ok_or_else(missing)
}

/// Our own certificate and its key: both or none.
#[cfg(any(feature = "nats", feature = "redis-tls"))]
fn certificate<'a>(place: &FarPlace<'a>) -> Result<Option<(&'a str, &'a str)>, String> {
    match (place.option("certificate_file"), place.option("private_key_file")) {
        (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
        (None, None) => Ok(None),
        _ => Err("certificate_file and private_key_file go together".to_owned()),
    }
}

#[cfg(any(feature = "nats", feature = "redis"))]
fn wrong(halt: Halt) -> String {
    match halt {
        Halt::Lost(why) => why.to_string(),
        other => other.to_string(),
    }
}

#[cfg(feature = "nats")]
fn nats(place: &FarPlace<'_>) -> Made {
    let stream = needed(place, "stream")?;
    let mut far = mmq_nats::NatsStream::new(place.address.url(), stream).map_err(wrong)?;
    if let Some(subject) = place.option("subject") {
        far = far.subject(subject).map_err(wrong)?;
    }
    if let Some(path) = place.option("credentials_file") {
        far = far.credentials_file(path);
    }
    if let Some(path) = place.option("ca_file") {
        far = far.root_certificates(path);
    }
    if let Some((certificate, key)) = certificate(place)? {
        far = far.client_certificate(certificate, key);
    }
    Ok(Box::new(far))
}

#[cfg(feature = "redis")]
fn redis(place: &FarPlace<'_>) -> Made {
    let key = needed(place, "key")?;
    let far = mmq_redis::RedisStream::new(place.address.url(), key).map_err(wrong)?;
    #[cfg(feature = "redis-tls")]
    let far = {
        let mut far = far;
        if let Some(path) = place.option("ca_file") {
            far = far.root_certificates(path);
        }
        if let Some((certificate, key)) = certificate(place)? {
            far = far.client_certificate(certificate, key);
        }
        far
    };
    Ok(Box::new(far))
}
