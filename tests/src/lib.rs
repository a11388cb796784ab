//! End-to-end tests: small C programs, run bare, recorded, replayed and checked.
//!
//! Invariant: nothing here knows how a part works inside; it runs the built programs and reads what
//! they print and write.

mod browser;
mod case;
mod commands;
mod compiler;
pub mod documents;
mod findings;
mod interface;
pub mod loading;
mod parts;
mod process;
mod program;
mod screen;
mod stable;
mod suite;
mod verb;

pub use browser::Browser;
pub use case::{Case, Mode, Recording, cases, compiled};
pub use commands::{
    bare, calls_of, changed, ending, files, names, play, record, replay, with_macros,
};
pub use compiler::compile;
pub use findings::{Finding, read_findings};
pub use interface::{Members, compare_interface};
pub use parts::{Parts, clean_up, parts, root};
pub use process::{Output, run, run_within, without_settings};
pub use program::{Program, Variant, endings, programs};
pub use screen::Screen;
pub use stable::stable_dump;
pub use suite::{Outcome, Suite, Verdict};
pub use verb::{Reader, Verb, readers, verbs};

/// Adds these functions to the suite, each with a folder of its own.
#[macro_export]
macro_rules! tests {
    ($($test:ident),* $(,)?) => {
        pub(crate) fn add_to(suite: &mut $crate::Suite) {
            $(suite.test(stringify!($test), $test);)*
        }
    };
}
