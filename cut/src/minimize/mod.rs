//! The search for the smallest trace that still shows something.
//!
//! `search` tries smaller traces, with fewer calls (`reduce`) and with less in each (`simplify`).
//! `judge` says whether one still shows it, `files` keeps the smallest so far, from which a later
//! search goes on.

mod environment;
mod files;
mod judge;
mod reduce;
mod search;
mod simplify;

pub use environment::{Environment, OtherReplay};
pub use judge::Kept;
pub use search::{Outcome, Search, Stop, Wanted};
