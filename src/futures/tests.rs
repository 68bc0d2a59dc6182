//! A stream alone.

use std::io::ErrorKind;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use futures_core::Stream;

use super::Messages;
use crate::error::Error;

#[test]
fn a_stream_that_cannot_begin_says_why_and_ends() {
    let refused = Error::io("make room for", Path::new("jobs"), ErrorKind::StorageFull.into());
    let mut stream = Messages::new(Err(refused));
    let mut context = Context::from_waker(Waker::noop());
    let mut next = || Pin::new(&mut stream).poll_next(&mut context);
    assert!(matches!(next(), Poll::Ready(Some(Err(error))) if error.is_full()));
    assert!(matches!(next(), Poll::Ready(None)));
}
