//! Keeps data that different threads write on different cache lines.

use std::ops::{Deref, DerefMut};

/// Keeps its content on cache lines of its own: two, as some processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(T);

impl<T> Padded<T> {
    pub(crate) fn new(content: T) -> Padded<T> {
        Padded(content)
    }
}

impl<T> Deref for Padded<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Padded<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
