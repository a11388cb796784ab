//! How the verbs of the command line speak with their user: messages on stderr, progress, failures
//! with their exit statuses; how they open traces, find the driver and cutape's libraries, and write
//! files that must not exist.
//!
//! Invariant: a closed or full stdout or stderr never causes a panic. What is written appears whole
//! or not at all. Every failure is one line that says what, where and what to do.

#![deny(clippy::print_stdout, clippy::print_stderr)]

// First, for its macro.
#[macro_use]
pub mod output;

pub mod clock;
pub mod ending;
pub mod failure;
pub mod input;
pub mod library;
pub mod output_folder;
pub mod overwrite;
pub mod private_folder;
pub mod progress;
pub mod rank_folder;
pub mod signals;
mod stdout;
