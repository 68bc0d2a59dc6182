//! What holds of the sources themselves: layers, widths, the C header and the documents.

mod atomics;
mod circles;
mod examples;
mod header;
mod layering;
mod readme;
mod width;

#[path = "../support/skip.rs"]
mod skip;
