//! The memory map in the trace: where code is loaded, with build ids, so that callers' addresses
//! can be named later.

use core::ops::ControlFlow;
use core::sync::atomic::{AtomicU64, Ordering};

use cutape_format::layout::chunk_kind;

use super::objects::{self, Object};
use crate::file::trace_file;

/// How many objects the loader had ever added when the map was last written.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// Writes the map of the code that is loaded now: a count, then the members of each mapping.
pub(crate) fn write() {
    let mut map = Map::default();
    objects::for_each(&mut |object| {
        WRITTEN.store(object.adds, Ordering::Relaxed);
        map.add(object, &object.path());
        ControlFlow::Continue(())
    });
    map.write();
}

/// Writes the code of the object whose file is mapped from `start` on.
pub(crate) fn write_one(start: u64, base: u64, path: &[u8]) {
    let mut map = Map::default();
    objects::visit_at(start, base, |object| map.add(object, path));
    map.write();
}

/// Mappings as the trace has them.
#[derive(Default)]
struct Map {
    count: u64,
    bytes: Vec<u8>,
}

impl Map {
    fn add(&mut self, object: &Object<'_>, path: &[u8]) {
        let build_id = object.build_id();
        let bytes = &mut self.bytes;
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
            bytes.extend_from_slice(path);
            bytes.extend_from_slice(&(build_id.len() as u64).to_le_bytes());
            bytes.extend_from_slice(&build_id);
            self.count += 1;
        }
    }

    fn write(self) {
        if self.count > 0 {
            let count = self.count.to_le_bytes();
            trace_file::document(chunk_kind::MAPS, &[&count, &*self.bytes].concat());
        }
    }
}

/// Writes the map again if the loader has added something since.
pub(crate) fn write_if_changed() {
    if objects::added() != WRITTEN.load(Ordering::Relaxed) {
        write();
    }
}
