//! Atomics as `crate::threads` has them, each access to which is a step of the schedule that runs
//! the calling thread. (One after the other: weaker orders than that are for `loom` and Miri.)

use std::fmt;
use std::sync::atomic::Ordering;

use super::locks::Mutex;
use super::step;

/// One value that is set once.
pub(crate) struct OnceLock<T> {
    value: std::sync::OnceLock<T>,
    setting: Mutex<()>,
}

impl<T> Default for OnceLock<T> {
    fn default() -> OnceLock<T> {
        OnceLock::new()
    }
}

impl<T> OnceLock<T> {
    pub(crate) const fn new() -> OnceLock<T> {
        OnceLock { value: std::sync::OnceLock::new(), setting: Mutex::new(()) }
    }

    pub(crate) fn get(&self) -> Option<&T> {
        step();
        self.value.get()
    }

    pub(crate) fn set(&self, value: T) -> Result<(), T> {
        let _one_at_a_time = self.setting.lock();
        self.value.set(value)
    }
}

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

macro_rules! atomic {
    ($name:ident, $value:ty) => {
        #[derive(Debug, Default)]
        pub(crate) struct $name(std::sync::atomic::$name);

        #[allow(dead_code, reason = "each type has the methods of all")]
        impl $name {
            pub(crate) const fn new(value: $value) -> $name {
                $name(std::sync::atomic::$name::new(value))
            }

            #[inline]
            pub(crate) fn load(&self, order: Ordering) -> $value {
                step();
                self.0.load(order)
            }

            #[inline]
            pub(crate) fn store(&self, value: $value, order: Ordering) {
                step();
                self.0.store(value, order);
            }

            pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.swap(value, order)
            }

            pub(crate) fn compare_exchange(
                &self,
                from: $value,
                to: $value,
                done: Ordering,
                failed: Ordering,
            ) -> Result<$value, $value> {
                step();
                self.0.compare_exchange(from, to, done, failed)
            }
        }
    };
}

macro_rules! arithmetic {
    ($name:ident, $value:ty, $($method:ident),+) => {
        #[allow(dead_code, reason = "each type has the methods of all")]
        impl $name {
            $(pub(crate) fn $method(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.$method(value, order)
            })+
        }
    };
}

atomic!(AtomicBool, bool);
atomic!(AtomicU32, u32);
atomic!(AtomicU64, u64);
atomic!(AtomicUsize, usize);
arithmetic!(AtomicU32, u32, fetch_add, fetch_sub, fetch_max, fetch_or, fetch_and);
arithmetic!(AtomicU64, u64, fetch_add, fetch_sub, fetch_max, fetch_or, fetch_and);
arithmetic!(AtomicUsize, usize, fetch_add, fetch_sub, fetch_max, fetch_or, fetch_and);

pub(crate) fn fence(order: Ordering) {
    step();
    std::sync::atomic::fence(order);
}
