//! Who uses a shared queue through its owner.

use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use mmq::{Client, ConnectedClient};

use crate::human;
use crate::json_object::Object;
use crate::times;
use crate::units::count;

/// How soon an owner has to say who is connected. One that is stopped never does.
const PATIENCE: Duration = Duration::from_millis(500);

/// A process that uses the queue.
pub(super) type User = ConnectedClient;

/// Asks the owner of a queue, again and again, with one question at a time.
#[derive(Debug, Default)]
pub(super) struct Users {
    asked: Option<Receiver<mmq::Result<Vec<User>>>>,
}

impl Users {
    /// Who uses the queue, without this process. `None`: its owner does not say so in time.
    pub(super) fn ask(&mut self, dir: &Path) -> Option<Vec<User>> {
        if self.asked.is_none() {
            let (tell, told) = mpsc::sync_channel(1);
            let dir = dir.to_owned();
            // It waits for a stopped owner for seconds. Nobody waits for the thread.
            let ask = move || tell.send(Client::connect(dir).and_then(|client| client.connected()));
            thread::Builder::new().spawn(ask).ok()?;
            self.asked = Some(told);
        }
        let answer = self.asked.as_ref()?.recv_timeout(PATIENCE);
        if !matches!(answer, Err(RecvTimeoutError::Timeout)) {
            self.asked = None;
        }
        let mut users = answer.ok()?.ok()?;
        users.retain(|user| user.pid != std::process::id());
        Some(users)
    }
}

/// The line for people, where there is something to say.
pub(super) fn line(users: Option<&[User]>) -> String {
    let Some(users) = users else { return String::new() };
    let of = |user: &User| {
        let since = times::rfc3339(user.since);
        format!("process {} of user {} since {since}", user.pid, user.uid)
    };
    let listed: Vec<String> = users.iter().map(of).collect();
    let text = match listed.len() {
        0 => "no process but its owner, which shares it".to_owned(),
        _ => format!("{}: {}", count(listed.len() as u64, "connection"), listed.join(", ")),
    };
    human::line("used by", &text)
}

/// The object for programs, with the users.
pub(super) fn with(line: Object, users: Option<&[User]>) -> Object {
    let Some(users) = users else { return line.with_json("users", "null") };
    let of = |user: &User| {
        let object = Object::new().with("pid", user.pid).with("uid", user.uid);
        object.with_time("since", Some(user.since)).text()
    };
    line.with_all("users", users.iter().map(of))
}
