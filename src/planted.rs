//! For tests alone: bugs planted in the product code, one line each, and points at which a test can
//! make something happen.

/// Whether one of these bugs is planted; `false` outside of tests.
#[cfg(test)]
macro_rules! planted {
    ($($mutant:ident),+) => {
        $(crate::tests::sim::Mutant::$mutant.is_planted())||+
    };
}

#[cfg(not(test))]
macro_rules! planted {
    ($($mutant:ident),+) => {
        false
    };
}

/// The calling thread has reached this point: runs what a test has asked for there.
macro_rules! reached {
    ($place:literal) => {
        #[cfg(test)]
        crate::tests::sim::reached($place);
    };
}
