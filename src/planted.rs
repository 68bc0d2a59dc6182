//! For tests alone: bugs planted in the product, a line each, and places at which a test has
//! something happen.

/// Whether that bug is planted, or one of those; never outside of tests.
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

/// The calling thread has come to that place: what a test wants to happen there happens.
macro_rules! reached {
    ($place:literal) => {
        #[cfg(test)]
        crate::tests::sim::reached($place);
    };
}
