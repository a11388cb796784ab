//! Which process is recording to a trace.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use cutape_maps::{Mapping, mappings};

use crate::read::source::recorded_process;
use crate::read::trace::Trace;

/// As [`Trace::writer`], of a file that need not be a trace.
pub fn writer(path: &Path) -> Option<u32> {
    let process = recorded_process(path)?;
    has_mapped(process, fs::metadata(path)).then_some(process)
}

impl Trace {
    /// The process that is recording to the trace now: it has the file mapped for writing. `None`
    /// as well if it is in another process namespace or on another machine.
    pub fn writer(&self) -> Option<u32> {
        let process = self.head().process;
        has_mapped(process, self.source.metadata()).then_some(process)
    }
}

fn has_mapped(process: u32, file: io::Result<fs::Metadata>) -> bool {
    let maps = fs::read(format!("/proc/{process}/maps"));
    let (Ok(file), Ok(maps)) = (file, maps) else {
        return false;
    };
    let is_it =
        |mapping: &Mapping<'_>| mapping.permissions == b"rw-s" && mapping.inode == file.ino();
    mappings(&maps).any(|mapping| is_it(&mapping))
}
