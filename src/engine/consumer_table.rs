//! The consumers of an open queue.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::waited_for::Carriers;
use crate::consume::consumer_state::ConsumerState;
use crate::index::{DEFAULT_ROW, PlaceRow};
use crate::storage::Storage;
use crate::threads::Mutex;
use crate::threads::ranks::{Rank, ranked};

/// The default consumer's name. A name that a user gives is never empty.
pub(super) const DEFAULT: &str = "";

/// The consumers that exist.
#[derive(Debug)]
pub(crate) struct Consumers<S: Storage> {
    pub(crate) by_name: Mutex<BTreeMap<String, Arc<ConsumerState<S>>>>,
    /// The default consumer, also when it does not exist.
    pub(super) default: Arc<ConsumerState<S>>,
    /// A thread holds it while it creates, moves or removes a consumer (see `Engine::registry`).
    pub(crate) registry: Mutex<()>,
    pub(super) carriers: Carriers,
}

impl<S: Storage> Consumers<S> {
    pub(super) fn new(default_row: PlaceRow<S::File>) -> Consumers<S> {
        Consumers {
            by_name: Mutex::default(),
            default: Arc::new(ConsumerState::new(DEFAULT, DEFAULT_ROW, default_row)),
            registry: ranked(Rank::Registry, ()),
            carriers: Carriers::default(),
        }
    }
}
