//! How a queue is forwarded.

use std::ffi::{c_char, c_int};
use std::time::Duration;

use super::guard::{Answer, invalid};
use super::pointers::{in_sized, utf8_or_null};
use crate::forward::{FarAddress, ForwardOptions, IfForgotten, OnRefused};

/// How long forwarding goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum mmq_forward_until {
    /// Until mmq_forwarder_stop, or until the queue is closed.
    MMQ_UNTIL_STOPPED = 0,
    /// The same, and at the latest until the far side has all messages of the queue.
    MMQ_UNTIL_EMPTY = 1,
}

/// What happens to a message that the far side refuses for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum mmq_on_refused {
    /// Forwarding ends with MMQ_FAR_SIDE. The message waits in the queue. The default.
    MMQ_REFUSED_STOP = 0,
    /// The message is left out, and reported to the far side as missing.
    MMQ_REFUSED_SKIP = 1,
}

/// What happens when the far side holds no message of the queue, although it had acknowledged some:
/// somebody removed the stream or the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum mmq_if_forgotten {
    /// Forwarding ends with MMQ_FAR_SIDE, unless the far side's positions show that it only removed
    /// what it had: then it goes on. The default.
    MMQ_FORGOTTEN_STOP = 0,
    /// The kept messages are sent again, and the others are reported as missing.
    MMQ_FORGOTTEN_RESEND = 1,
    /// Forwarding goes on with the first message that was not acknowledged.
    MMQ_FORGOTTEN_CONTINUE = 2,
}

/// An `mmq_forward_until` from C, unchecked.
pub(super) type raw_forward_until = c_int;

/// An `mmq_on_refused` from C, unchecked.
type raw_on_refused = c_int;

/// An `mmq_if_forgotten` from C, unchecked.
type raw_if_forgotten = c_int;

/// How a queue is forwarded. A field that is zero or NULL has its default. Later versions append
/// fields: set struct_size to sizeof(mmq_forward_options), and the rest to zero.
///
/// All texts are UTF-8. The library copies what it needs before mmq_forwarder_new returns.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct mmq_forward_options {
    /// The caller's sizeof(mmq_forward_options).
    pub struct_size: usize,
    /// The consumer that forwarding reads through, 1 to 255 bytes. It is made if it is missing, and
    /// nobody else may use it. Default "forward".
    pub consumer: *const c_char,
    /// The queue's name at the far side. Default: the last part of its directory's path.
    pub name: *const c_char,
    /// The password of the user in the URL. Without a user there it is that of the default user of
    /// Redis, or a token of NATS. No error text has it. Default: what the URL says.
    pub password: *const c_char,
    /// NATS: the stream, which must exist. Needed there.
    pub stream: *const c_char,
    /// NATS: the subject, in which {dir} is the queue's name. Default "mmq." and that name.
    pub subject: *const c_char,
    /// Redis: the stream's key, in which {dir} is the queue's name and {host} the machine's. Needed
    /// there.
    pub key: *const c_char,
    /// NATS: the path of a credentials file. Default: none.
    pub credentials_file: *const c_char,
    /// The path of a file (PEM) with the authorities that may sign the server's certificate.
    /// Default: the system's.
    pub ca_file: *const c_char,
    /// The path of our own certificate (PEM), for servers that ask for it. Default: none.
    pub certificate_file: *const c_char,
    /// The path of that certificate's private key (PEM).
    pub private_key_file: *const c_char,
    /// How many acknowledged messages the queue keeps, to send them again if the far side loses
    /// them. Below 0: none. Default 10000.
    pub keep_messages: i64,
    /// How many bytes of them it keeps; below 0: none. Default 67108864 (64 MiB), and at most a
    /// quarter of mmq_options_set_max_bytes.
    pub keep_bytes: i64,
    /// A session ends, and another one begins, when messages are on their way and the far side
    /// acknowledges none for so many milliseconds. Default 30000.
    pub patience_ms: i64,
    /// What happens to a message that the far side refuses for good.
    pub on_refused: raw_on_refused,
    /// What happens when the far side holds no message of the queue any more.
    pub if_forgotten: raw_if_forgotten,
    /// Not 0: each message carries a time in milliseconds since 1970, before which it was not
    /// enqueued (header Mmq-Time of NATS, field time of Redis): when its segment was begun.
    pub times: c_int,
}

/// Where messages go: what a client of the far side is made of.
#[derive(Debug)]
pub struct FarPlace<'a> {
    /// With the password.
    pub address: FarAddress,
    /// Each option of `mmq_forward_options` that only some engines have, by its name there.
    pub given: [(&'static str, Option<&'a str>); 7],
}

impl<'a> FarPlace<'a> {
    /// Returns the option of that name.
    #[must_use]
    pub fn option(&self, name: &str) -> Option<&'a str> {
        self.given.iter().find(|(option, _)| *option == name).and_then(|(_, given)| *given)
    }
}

/// What the options mean.
pub(super) struct ForwardMeant<'a> {
    pub(super) consumer: &'a str,
    pub(super) name: Option<&'a str>,
    pub(super) place: FarPlace<'a>,
    pub(super) options: ForwardOptions,
}

impl<'a> ForwardMeant<'a> {
    /// # Safety
    ///
    /// `options` is NULL or as the header demands; its texts can be read for as long as this is
    /// used.
    pub(super) unsafe fn of(url: &str, options: *const mmq_forward_options) -> Answer<Self> {
        let unset = "struct_size was not set to sizeof(mmq_forward_options)";
        // SAFETY: the caller's promise; the struct is made of numbers and pointers.
        let given = unsafe { in_sized(options, "options", unset) }?;
        let Some(given) = given else {
            return Ok(ForwardMeant {
                consumer: CONSUMER,
                name: None,
                place: FarPlace { address: FarAddress::new(url), given: [("", None); 7] },
                options: ForwardOptions::default(),
            });
        };
        // SAFETY: the caller's promise.
        let text = |text, what| unsafe { utf8_or_null::<'a>(text, what) };
        let mut address = FarAddress::new(url);
        if let Some(password) = text(given.password, "password")? {
            if password.is_empty() {
                return Err(invalid("password", "empty; without one it is NULL"));
            }
            let whole = address.with_password(password);
            address = whole.ok_or_else(|| {
                let both = format!("{address} has one already: leave it out of the URL");
                invalid("password", &both)
            })?;
        }
        let place = FarPlace {
            address,
            given: [
                ("stream", text(given.stream, "stream")?),
                ("subject", text(given.subject, "subject")?),
                ("key", text(given.key, "key")?),
                ("credentials_file", text(given.credentials_file, "credentials_file")?),
                ("ca_file", text(given.ca_file, "ca_file")?),
                ("certificate_file", text(given.certificate_file, "certificate_file")?),
                ("private_key_file", text(given.private_key_file, "private_key_file")?),
            ],
        };
        Ok(ForwardMeant {
            consumer: text(given.consumer, "consumer")?.unwrap_or(CONSUMER),
            name: text(given.name, "name")?,
            place,
            options: rules(&given)?,
        })
    }
}

/// The consumer, where nobody says another: that of the tool.
const CONSUMER: &str = "forward";

/// The options that the driver follows, whatever the far side is.
fn rules(given: &mmq_forward_options) -> Answer<ForwardOptions> {
    let mut options = ForwardOptions::default();
    let kept = |asked: i64, default| match asked {
        0 => default,
        asked => u64::try_from(asked).unwrap_or(0),
    };
    options.keep_messages = kept(given.keep_messages, options.keep_messages);
    options.keep_bytes = kept(given.keep_bytes, options.keep_bytes);
    match u64::try_from(given.patience_ms) {
        Ok(0) => {}
        Ok(ms) => options.patience = Duration::from_millis(ms),
        Err(_) => return Err(invalid("patience_ms", "below 0")),
    }
    options.times = given.times != 0;
    let refused = [mmq_on_refused::MMQ_REFUSED_STOP, mmq_on_refused::MMQ_REFUSED_SKIP];
    options.on_refused = match refused.into_iter().find(|it| *it as c_int == given.on_refused) {
        Some(mmq_on_refused::MMQ_REFUSED_STOP) => OnRefused::Stop,
        Some(mmq_on_refused::MMQ_REFUSED_SKIP) => OnRefused::Skip,
        None => {
            return Err(invalid("on_refused", "not one of MMQ_REFUSED_STOP, MMQ_REFUSED_SKIP"));
        }
    };
    let forgotten = [
        mmq_if_forgotten::MMQ_FORGOTTEN_STOP,
        mmq_if_forgotten::MMQ_FORGOTTEN_RESEND,
        mmq_if_forgotten::MMQ_FORGOTTEN_CONTINUE,
    ];
    let forgotten = forgotten.into_iter().find(|it| *it as c_int == given.if_forgotten);
    options.if_forgotten = match forgotten {
        Some(mmq_if_forgotten::MMQ_FORGOTTEN_STOP) => None,
        Some(mmq_if_forgotten::MMQ_FORGOTTEN_RESEND) => Some(IfForgotten::Resend),
        Some(mmq_if_forgotten::MMQ_FORGOTTEN_CONTINUE) => Some(IfForgotten::Continue),
        None => {
            let known =
                "not one of MMQ_FORGOTTEN_STOP, MMQ_FORGOTTEN_RESEND, MMQ_FORGOTTEN_CONTINUE";
            return Err(invalid("if_forgotten", known));
        }
    };
    Ok(options)
}
