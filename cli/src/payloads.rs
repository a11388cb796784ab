//! What is kept of the bytes that a program copied, and of those that came back: the words for it, and what a trace says of it.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use cutape_format::layout::FILE_PACKED;
use cutape_format::{PayloadPolicies, PayloadPolicy, Trace};

use crate::failure::Failure;

/// Reads `all`, `hash` or `none`.
pub(crate) fn words() -> impl TypedValueParser<Value = PayloadPolicy> {
    let words = PayloadPolicy::EVERY.map(|payloads| {
        let what = match payloads {
            PayloadPolicy::All => "All bytes",
            PayloadPolicy::Hash => "Their number and a blake3 hash, taken when the trace is packed",
            PayloadPolicy::None => "Their number",
        };
        PossibleValue::new(payloads.word()).help(what)
    });
    PossibleValuesParser::new(words)
        .map(|word| PayloadPolicy::from_word(word.as_bytes()).unwrap_or_default())
}

/// Refuses to leave a trace unpacked whose payloads are to be hashes.
pub(crate) fn can_stay_unpacked(kept: PayloadPolicies) -> Result<(), Failure> {
    let option = match (kept.payloads, kept.outputs) {
        (PayloadPolicy::Hash, _) => "--payloads",
        (_, PayloadPolicy::Hash) => "--outputs",
        _ => return Ok(()),
    };
    Err(Failure::unusable(format!(
        "{option} hash does not go with --no-pack: while the program runs the trace holds all bytes, and packing makes hashes of them; leave out --no-pack, or record all bytes and `cutape pack {option} hash` later"
    )))
}

/// Whether a trace still holds bytes of which packing it leaves only hashes.
pub(crate) fn are_to_be_hashed(trace: &Trace) -> bool {
    let hash = PayloadPolicy::Hash.word();
    let is_hash = |key| trace.meta_value(key) == Some(hash);
    trace.head().flags & FILE_PACKED == 0 && (is_hash("payloads") || is_hash("outputs"))
}
