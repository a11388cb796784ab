//! End-to-end tests: small C programs, run bare, recorded, replayed and checked.
//!
//! Invariant: nothing here knows how a part works inside; it runs the built programs and reads what they print and write.

mod case;
mod findings;
pub mod loading;
mod parts;
mod process;
mod program;
mod stable;

pub use case::{Case, Recording, Way};
pub use findings::{Finding, read_findings};
pub use parts::{Parts, parts, root};
pub use process::{Output, run};
pub use program::{Program, Variant, endings, programs};
pub use stable::stable_dump;
