//! What a recording says that copies have copied to the host.

use std::path::Path;

use cutape_format::{Bytes, Note, Snapshot, Trace};
use cutape_registry::{Family, function};

/// The recorded results of copies.
///
/// # Errors
/// What is wrong with the trace.
pub fn copies(trace: &Path) -> Result<Vec<Vec<u8>>, String> {
    let trace = Trace::open(trace).map_err(|error| error.to_string())?;
    let mut copies = Vec::new();
    let note = |snapshot: Snapshot<'_>, copies: &mut Vec<Vec<u8>>| {
        let bytes = match snapshot.bytes {
            Bytes::Inline(bytes) => bytes.to_vec(),
            Bytes::Blob(blob) => trace
                .blob(blob)
                .map_err(|damage| format!("{damage:?}"))?
                .to_vec(),
            other => return Err(format!("a copy has {other:?}")),
        };
        copies.push(bytes);
        Ok(())
    };
    for call in trace.calls() {
        let family = function(&call.signature.name).map(|function| function.family);
        if let (Some(Family::Copy(_)), Some(leave)) = (family, &call.leave) {
            for snapshot in leave.snapshots() {
                note(snapshot, &mut copies)?;
            }
        }
        for found in call.notes() {
            if let Note::Readback(_, snapshot) = found {
                note(snapshot, &mut copies)?;
            }
        }
    }
    Ok(copies)
}
