//! A delivery that the owner has handed out to this client.

use std::sync::Arc;
use std::time::Duration;

use super::connection::Connection;
use super::fields::{put_milliseconds, put_u64};
use super::frame::Call;
use crate::error::Result;

/// Where the acknowledgement of a client's delivery goes.
#[derive(Debug)]
pub(crate) struct RemoteDelivery {
    connection: Arc<Connection>,
    number: u64,
}

impl RemoteDelivery {
    pub(super) fn new(connection: &Arc<Connection>, number: u64) -> RemoteDelivery {
        RemoteDelivery { connection: Arc::clone(connection), number }
    }

    pub(crate) fn ack(&self) -> Result<()> {
        self.settle(Call::Ack, None)
    }

    /// Acknowledges many, with one question for each connection that they came by.
    pub(crate) fn ack_all(mut deliveries: Vec<RemoteDelivery>) -> Result<()> {
        let mut outcome = Ok(());
        while let Some(first) = deliveries.first() {
            let connection = Arc::clone(&first.connection);
            let mut body = Vec::new();
            deliveries.retain(|delivery| {
                let is_of_it = Arc::ptr_eq(&delivery.connection, &connection);
                if is_of_it {
                    put_u64(&mut body, delivery.number);
                }
                !is_of_it
            });
            outcome = outcome.and(connection.ask(Call::Ack, 0, &body).map(drop));
        }
        outcome
    }

    /// Gives the message back, without waiting for the owner.
    pub(crate) fn nack(&self, delay: Option<Duration>) {
        let mut body = Vec::new();
        put_u64(&mut body, self.number);
        put_milliseconds(&mut body, delay);
        self.connection.tell(Call::Nack, 0, &body);
    }

    pub(crate) fn extend(&self, by: Duration) -> Result<()> {
        self.settle(Call::Extend, Some(by))
    }

    pub(crate) fn reject(&self) -> Result<()> {
        self.settle(Call::Reject, None)
    }

    fn settle(&self, call: Call, time: Option<Duration>) -> Result<()> {
        let mut body = Vec::new();
        put_u64(&mut body, self.number);
        if time.is_some() {
            put_milliseconds(&mut body, time);
        }
        self.connection.ask(call, 0, &body).map(drop)
    }
}
