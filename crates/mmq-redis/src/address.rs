//! Where the server is, and how to get in.

use std::time::Duration;

use redis::{Client, Connection, Pipeline, RedisConnectionInfo, RedisError};

/// A server.
#[derive(Clone)]
pub(crate) struct Address {
    client: Client,
    db: i64,
    user: Option<String>,
    password: Option<String>,
}

impl Address {
    pub(crate) fn parse(url: &str) -> Result<Address, RedisError> {
        let client = Client::open(url)?;
        let info = client.get_connection_info().clone();
        let settings = info.redis_settings();
        let (db, user) = (settings.db(), settings.username().map(str::to_owned));
        let password = settings.password().map(str::to_owned);
        // The client turns each error of a login into "authentication failed", so the session logs
        // in itself, in one go with its question.
        let bare = RedisConnectionInfo::default().set_skip_set_lib_name();
        let client = Client::open(info.set_redis_settings(bare))?;
        Ok(Address { client, db, user, password })
    }

    pub(crate) fn connect(&self, patience: Duration) -> Result<Connection, RedisError> {
        self.client.get_connection_with_timeout(patience)
    }

    /// What comes before the first question.
    pub(crate) fn greeting(&self) -> Pipeline {
        let mut calls = redis::pipe();
        if let Some(password) = &self.password {
            calls.cmd("AUTH").arg(self.user.as_deref()).arg(password);
        }
        if self.db != 0 {
            calls.cmd("SELECT").arg(self.db);
        }
        calls
    }
}
