//! A connection to one of the servers.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::{Client, ConnectErrorKind, ConnectOptions};

use super::alarm::Alarm;
use super::order::{Access, NatsOrder};
use super::words::Letterhead;
use mmq::forward::Trouble;

/// The longest wait for a connection with TLS and login, and for each answer to a question. (Over
/// 8 kB/s with 600 ms each way a connection takes about five seconds.)
const PATIENCE: Duration = Duration::from_secs(15);
/// Commands and acknowledgements that wait, to be written or to be heard: more than are ever in
/// flight, so that nobody waits for room who should hear that the connection was lost.
const ROOM: usize = 8_192;
/// The client ends a connection when it hears nothing for three of these, however many bytes are on
/// their way: never. [`Session::pulse`](super::session) asks for a sign of life when none are.
const NEVER: Duration = Duration::from_secs(30 * 24 * 3600);

/// Connects to the first server that takes us, beginning with any of them.
///
/// Only if each of them refuses us, a person must act.
pub(super) async fn login(
    order: &NatsOrder,
    letterhead: &Letterhead,
    alarm: &Arc<Alarm>,
) -> Result<Client, Trouble> {
    let mut servers = order.servers.clone();
    let first = random() as usize % servers.len().max(1);
    servers.rotate_left(first);
    let (mut reported, mut refused) = (Vec::new(), Vec::new());
    for server in servers {
        let is_connected = Arc::new(AtomicBool::new(false));
        let options = options(order, letterhead, alarm, &is_connected).await?;
        let error = match options.connect(server.clone()).await {
            Ok(client) => {
                is_connected.store(true, Ordering::Relaxed);
                return Ok(client);
            }
            Err(error) => error,
        };
        let why = with_causes(&error);
        // (The client reports a certificate that one side does not take as any error of the link.)
        let is_of_tls = error.kind() == ConnectErrorKind::Tls || why.contains("ertificate");
        reported.push(format!("{}:{}: {why}", server.host(), server.port()));
        match error.kind() {
            ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
                refused.push("user and password in the URL, the credentials file or the nkey");
            }
            _ if is_of_tls => refused.push("the files of certificates and keys"),
            _ => {}
        }
    }
    let is_lost = refused.len() == reported.len();
    let mut reported = reported.join(", ");
    if let Some(what) = refused.first() {
        reported = format!("{reported}; look at {what}");
    } else if order.servers.len() == 1 {
        reported += "; of a cluster, name the other servers too";
    }
    Err(if is_lost { letterhead.lost(reported) } else { letterhead.again(reported) })
}

/// The client's options. It does not connect a second time.
async fn options(
    order: &NatsOrder,
    letterhead: &Letterhead,
    alarm: &Arc<Alarm>,
    is_connected: &Arc<AtomicBool>,
) -> Result<ConnectOptions, Trouble> {
    let Access { credentials, nkey, user, token, roots, certificate, tls_first } =
        order.access.clone();
    let (heard, was_connected) = (alarm.clone(), is_connected.clone());
    let mut options = ConnectOptions::new()
        .name("mmq")
        .custom_inbox_prefix(&order.inbox)
        .ignore_discovered_servers()
        .connection_timeout(PATIENCE)
        .request_timeout(Some(PATIENCE))
        .ping_interval(NEVER)
        .client_capacity(ROOM)
        .subscription_capacity(ROOM)
        .event_callback(move |event| {
            heard.ring(event);
            std::future::ready(())
        })
        .reconnect_delay_callback(move |_| match was_connected.load(Ordering::Relaxed) {
            true => Duration::MAX,
            false => Duration::ZERO,
        });
    if let Some(path) = credentials {
        options = options.credentials_file(&path).await.map_err(|error| {
            letterhead.lost(format!("credentials file {}: {error}", path.display()))
        })?;
    }
    if let Some(seed) = nkey {
        options = options.nkey(seed);
    }
    if let Some((user, password)) = user {
        options = options.user_and_password(user, password);
    }
    if let Some(token) = token {
        options = options.token(token);
    }
    if tls_first {
        options = options.tls_first();
    }
    if !roots.is_empty() || certificate.is_some() || tls_first {
        options = options.require_tls(true);
    }
    for path in roots {
        options = options.add_root_certificates(path);
    }
    if let Some((certificate, key)) = certificate {
        options = options.add_client_certificate(certificate, key);
    }
    Ok(options)
}

/// Any number.
pub(super) fn random() -> u64 {
    RandomState::new().hash_one(0)
}

/// An error with its causes. (The client's own texts have some of them in it.)
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut reported = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !reported.contains(&more) {
            reported = format!("{reported}: {more}");
        }
        cause = error.source();
    }
    reported
}
