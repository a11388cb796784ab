//! Browses a trace in the terminal.
//!
//! [`run`] shows a trace until the user quits. `state` is what is shown, and how keys and replies
//! change it; `engine` runs the threads that read the trace, from any call on; `draw` draws the
//! state.
//!
//! Invariant: `state` knows neither trace nor terminal, but for the terminal's events; `engine` and
//! `draw` know it and not each other. The terminal is restored, whatever ends the viewer.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod draw;
mod engine;
mod state;
mod terminal;
#[cfg(test)]
mod tests;
mod viewer;

pub use viewer::{End, Settings, run};
