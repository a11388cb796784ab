//! Calls as text and JSON: arguments decoded, objects labelled, images and launches described;
//! numbers with units; and texts of a trace and paths, so that they fit.
//!
//! [`Renderer`] takes the calls of a trace in order and decodes those that are shown. [`notes`] has
//! what the recorder noted about a call.
//!
//! Invariant: no bytes of a trace cause a panic. Memory is bounded by distinct handles and images,
//! not by the length of the trace.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(any(test, feature = "test")),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic)
)]

mod completeness;
mod element;
mod images;
pub mod labels;
mod launch;
pub mod notes;
pub mod npy;
pub mod quantity;
mod renderer;
#[cfg(any(test, feature = "test"))]
pub mod test_trace;
pub mod text;

pub use completeness::{CallsLeftOut, Completeness};
pub use element::{ELEMENTS, Element};
pub use images::{ImageFacts, ImageReader};
pub use launch::Launch;
pub use renderer::{CallRenderer, Known, Limits, RenderedCall, Renderer};
