//! The commands that a page of the documentation shows: run, and compared with the output beside
//! them.
//!
//! A page is run in one folder by one shell, from top to bottom. Blocks of the kind `console` have
//! commands behind `$ ` and their output, blocks of the kind `sh` commands only. Comments
//! `<!-- test: ... -->` say what the page needs (`Directive`).

mod compare;
mod page;
mod run;
mod words;

pub use compare::{differences, stable};
pub use page::{Block, Directive, Page, Step};
pub use run::{Counts, PageRun};
pub use words::{command_lines, inline_commands};
