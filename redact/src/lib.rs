//! Takes secrets out of traces: contents, parameters, environment, paths, names.
//!
//! [`redact()`] writes a trace anew, with `pack`'s rewriting, which knows where a trace has which
//! contents. This crate adds what it takes to know the driver API: which strings are paths
//! ([`subject`]), and which words of a kernel's parameters are addresses ([`KeptWords`]).
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic)
)]

mod kept_words;
mod subject;

use std::io;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use cutape_format::{
    Contents, PackSummary, PayloadPolicies, REDACT, REDACTED, Redaction, Secret, Secrets, Symbol,
    Trace,
};

pub use kept_words::KeptWords;
pub use subject::subject;

/// What is removed if a user does not say it: all but what kernels are found by.
pub const USUAL: [Secret; 4] = [
    Secret::Payloads,
    Secret::Parameters,
    Secret::Environment,
    Secret::Paths,
];

/// What to remove, and what takes the place of payloads.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// What to remove.
    pub secrets: Secrets,
    /// In the place of payloads.
    pub contents: Contents,
    /// What is kept of payloads that stay.
    pub policies: PayloadPolicies,
}

/// What a trace is to be redacted of when it is packed, and has not been yet.
pub fn asked(trace: &Trace) -> Secrets {
    let secrets = |key| Secrets::of_words(trace.meta_value(key).unwrap_or_default());
    let done = secrets(REDACTED);
    let asked = secrets(REDACT).iter();
    asked.filter(|&secret| !done.has(secret)).collect()
}

/// Packs a trace, without what its recorder was told to remove.
///
/// # Errors
/// As [`cutape_format::pack_counting`] and [`redact()`].
pub fn pack(
    trace: &Trace,
    target: &Path,
    (meta, symbols): (&[(String, String)], &[Symbol]),
    policies: PayloadPolicies,
    written: &AtomicU64,
) -> io::Result<PackSummary> {
    let secrets = asked(trace);
    if secrets.is_empty() {
        return cutape_format::pack_counting(trace, target, meta, symbols, policies, written);
    }
    let choice = Choice {
        secrets,
        contents: Contents::Zeros,
        policies,
    };
    redact(trace, target, (meta, symbols), choice, written)
}

/// Writes `trace` to `target` without the chosen secrets, adding `meta` entries and `symbols`. Keeps
/// the number of bytes written so far in `written`.
///
/// # Errors
/// As [`cutape_format::pack_redacted`].
pub fn redact(
    trace: &Trace,
    target: &Path,
    (meta, symbols): (&[(String, String)], &[Symbol]),
    choice: Choice,
    written: &AtomicU64,
) -> io::Result<PackSummary> {
    let words = match choice.secrets.has(Secret::Parameters) {
        true => KeptWords::of(trace)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?,
        false => KeptWords::default(),
    };
    let redaction = Redaction {
        secrets: choice.secrets,
        contents: choice.contents,
        policies: choice.policies,
        subject: &subject,
        parameters: &|bytes| words.only(bytes),
    };
    cutape_format::pack_redacted(trace, target, meta, symbols, &redaction, written)
}
