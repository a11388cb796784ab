//! Moves through the calls of a trace, forward and back, and looks at memory there: the engine of
//! `cutape debug`.
//!
//! [`Debugger`] is a session: [`Debugger::execute`] does what a line of the prompt asks for.
//! `command` has the words, `answer` what they answer, `points` the breakpoints and watchpoints.
//! `tape` finds calls and what is known before them; that takes no replay. [`Memory`] is the
//! replay, which the caller makes: it starts when memory is looked at or watched. `script` does the
//! lines of a file, `dap` is a session for editors.
//!
//! Start with `debugger.rs`.
//!
//! Invariant: no I/O but through traits. Only memory needs a replay. Going back gives the same
//! answers as going forward. No bytes of a trace cause a panic.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic)
)]

mod answer;
mod command;
pub mod dap;
mod debugger;
mod memory;
mod points;
mod script;
mod tape;

pub use answer::Answer;
pub use command::completions;
pub use debugger::Debugger;
pub use memory::{Changes, Memory};
pub use script::{End, PROMPT, run_script};
