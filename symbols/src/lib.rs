//! Functions, files and lines behind the addresses and call stacks of a trace.
//!
//! [`Resolver`] reads the files of a trace's memory map, with their debug information; [`stacks`]
//! weaves the frames of Python into those of the interpreter; [`SymbolContext`] gives both to the
//! analyzer.
//!
//! Invariant: a file whose build ID is not the recorded one names nothing. Each file is read once.
#![forbid(unsafe_code)]

mod context;
mod debug_file;
mod regular_file;
mod resolver;
pub mod stacks;

pub use context::SymbolContext;
pub use resolver::{Resolver, of_callers};
