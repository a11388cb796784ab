//! Takes parts of traces: smaller traces that replay and check like a part of their source, images,
//! and launches as programs.
//!
//! [`needs`] reads what each call needs, [`part()`] adds to chosen calls what they need, and
//! [`write()`] writes the result with its [`Provenance`](cutape_format::Provenance). Calls keep their
//! records, so a cut never changes what a call says. [`trim`] also leaves out what only computed
//! memory contents; these are written as notes ([`MemoryState`]). [`minimize`] searches for a small
//! part that still shows something. [`extract`] writes images and launches.
//!
//! What replays a trace comes from the caller, who knows how to start a child process for it.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic)
)]

mod error;
pub mod extract;
mod image_files;
mod images;
pub mod minimize;
mod part;
pub mod snapshots;
mod state;
pub mod trim;
pub mod window;
mod write;

use cutape_replay::{Observation, Observed};

pub use error::Error;
pub use part::{Part, Walks, needs, part};
pub use state::{Memory, MemoryState};
pub use write::write;

/// Replays a trace in a child process, and reads memory; an error is a message.
pub type Observe<'a> = dyn Fn(&Observation) -> Result<Observed, String> + 'a;
