//! How `--payloads` and `--outputs` combine with packing.

use cutape_format::layout::FILE_PACKED;
use cutape_format::{PayloadPolicies, PayloadPolicy, Trace};

use cutape_terminal::failure::Failure;

/// Rejects `--no-pack` with `hash`, which needs packing.
///
/// # Errors
/// If `kept` has `hash`.
pub(crate) fn check_no_pack(kept: PayloadPolicies) -> Result<(), Failure> {
    let option = match (kept.payloads, kept.outputs) {
        (PayloadPolicy::Hash, _) => "--payloads",
        (_, PayloadPolicy::Hash) => "--outputs",
        _ => return Ok(()),
    };
    Err(Failure::unusable(format!(
        "{option} hash conflicts with --no-pack: packing computes the hashes; remove --no-pack, or \
         record all bytes and run `cutape pack {option} hash` later"
    )))
}

/// Whether a trace holds bytes that packing will replace with hashes.
pub(crate) fn await_hashing(trace: &Trace) -> bool {
    let hash = PayloadPolicy::Hash.word();
    let is_hash = |key| trace.meta_value(key) == Some(hash);
    trace.head().flags & FILE_PACKED == 0 && (is_hash("payloads") || is_hash("outputs"))
}
