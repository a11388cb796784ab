//! Keeps the readable part of a damaged trace.

use std::io;
use std::path::Path;

use crate::pack::rewrite::{Changes, invalid_data, rewrite};
use crate::read::error::Damage;
use crate::read::trace::Trace;

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

/// Writes the readable part of `trace` (from [`Trace::open_damaged`]) to `target`, which must not
/// exist unless it is the trace's own file; the new file is packed.
///
/// Of a chunk of calls with a wrong checksum the records before the first malformed one are kept.
/// They may still have wrong values, so the meta entries `repair.0`, `repair.1`, ... of the new
/// trace list each damage: `byte POSITION: WHAT`. A blob that cannot be read is left out; the new
/// trace reports it as missing. Payloads are kept by the recorder's policies.
///
/// # Errors
/// As [`crate::pack`], and `InvalidData` if the signature table is lost, without which no call can
/// be read.
pub fn repair(trace: &Trace, target: &Path) -> io::Result<RepairSummary> {
    if trace.signatures().functions().next().is_none() {
        let path = trace.path().display();
        return Err(invalid_data(format!(
            "{path}: the signature table is lost; nothing can be kept"
        )));
    }
    let damage = trace.verify();
    let earlier = trace.meta().iter();
    let earlier = earlier
        .filter(|entry| entry.0.starts_with("repair."))
        .count();
    let entry = |(damage, number): (&Damage, usize)| {
        let text = format!("byte {}: {}", damage.position, damage.what);
        (format!("repair.{number}"), text)
    };
    let meta: Vec<_> = damage.iter().zip(earlier..).map(entry).collect();
    rewrite(trace, target, &Changes::new(&meta).without_damage())?;
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
