//! What holds of the sources themselves: layers, widths, the C header and the documents.

mod circles;
mod header;
mod layering;
mod readme;
mod width;
