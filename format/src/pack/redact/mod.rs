//! Taking secrets out of a trace while it is written anew.
//!
//! `SPEC.md` says where a trace holds which contents. Notes and meta entries are kept only if they
//! are listed here, so that what a later version adds is not in a redacted trace by mistake.

mod notes;
mod redaction;
mod redactor;
mod tables;
mod texts;

pub(crate) use notes::ChangedNote;
pub use redaction::{REDACTED, Redaction, Secret, Secrets, Subject};
pub(crate) use redactor::Redactor;
