//! The memory map in the trace: where code is loaded, with build ids, so that callers' addresses
//! can be named later.

use core::ops::ControlFlow;
use core::sync::atomic::{AtomicU64, Ordering};

use cutape_format::layout::chunk_kind;

use super::objects;
use crate::file::trace_file;

/// How many objects the loader had ever added when the map was last written.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// Writes the map of the code that is loaded now: a count, then the members of each mapping.
pub(crate) fn write() {
    let mut count = 0_u64;
    let mut bytes = vec![0; 8];
    objects::for_each(&mut |object| {
        WRITTEN.store(object.adds, Ordering::Relaxed);
        let (path, build_id) = (object.path(), object.build_id());
        for header in object.code() {
            let start = object.address(header);
            for number in [
                start,
                start + header.p_memsz,
                header.p_offset,
                path.len() as u64,
            ] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
            bytes.extend_from_slice(&path);
            bytes.extend_from_slice(&(build_id.len() as u64).to_le_bytes());
            bytes.extend_from_slice(&build_id);
            count += 1;
        }
        ControlFlow::Continue(())
    });
    if let Some(place) = bytes.first_chunk_mut() {
        *place = count.to_le_bytes();
    }
    trace_file::document(chunk_kind::MAPS, &bytes);
}

/// Writes the map again if the loader has added something since.
pub(crate) fn write_if_changed() {
    if objects::added() != WRITTEN.load(Ordering::Relaxed) {
        write();
    }
}
