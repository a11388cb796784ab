//! Images, and launches as programs that check themselves.
//!
//! [`write_images`] writes every image once and unpacked. For launches, a replay reads the memory
//! that each can reach; `description` writes the text that the programs read, which are the same
//! for all launches (`program/`).

mod description;
mod folder;
mod images;
mod programs;
mod readme;
mod selection;

pub use folder::OutputFolder;
pub use images::{ImageIndex, write_images};
pub use programs::{Extracted, Extraction, LaunchIndex};
pub use selection::{Launch, Number, launch, launches, sample};
