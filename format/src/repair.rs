//! Keeping what is good of a damaged trace.

use std::io;
use std::path::Path;

use crate::pack::rewrite;
use crate::payloads::PayloadPolicies;
use crate::trace::{Damage, Trace};

/// What a repair kept and lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairSummary {
    /// Calls in the new file.
    pub calls: u64,
    /// Calls among them that were in flight.
    pub in_flight: u64,
    /// What was wrong.
    pub damage: Vec<Damage>,
}

/// Writes what is good of `trace` (opened with [`Trace::open_damaged`]) to `target`, which must not exist unless it is the
/// trace's own file; the new file is packed.
///
/// Of a chunk of calls with a wrong checksum the records up to the first malformed one are kept. They may still be wrong in a
/// value, so each damage is told in the new trace's meta entries `repair.0`, `repair.1`, ...: `byte POSITION: WHAT`.
/// A blob that cannot be read is left out; reading it from the new trace says that it is missing. PayloadPolicy are kept as the
/// recorder was told.
///
/// # Errors
/// As [`crate::pack`], and `InvalidData` if the signature table is lost, without which no call can be read.
pub fn repair(trace: &Trace, target: &Path) -> io::Result<RepairSummary> {
    if trace.signatures().functions().next().is_none() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "{}: the signature table is lost; nothing can be kept",
                trace.path().display()
            ),
        ));
    }
    let damage = trace.verify();
    let earlier = trace
        .meta()
        .iter()
        .filter(|entry| entry.0.starts_with("repair."))
        .count();
    let meta: Vec<(String, String)> = damage
        .iter()
        .zip(earlier..)
        .map(|(damage, number)| {
            (
                format!("repair.{number}"),
                format!("byte {}: {}", damage.position, damage.what),
            )
        })
        .collect();
    rewrite(trace, target, &meta, &[], PayloadPolicies::default(), false)?;
    let mut summary = RepairSummary {
        damage,
        ..RepairSummary::default()
    };
    for call in trace.calls() {
        summary.calls += 1;
        summary.in_flight += u64::from(call.leave.is_none());
    }
    Ok(summary)
}
