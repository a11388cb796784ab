//! Which files of tensors a process has mapped or open. They are recognised by how they begin.
//!
//! No file is opened for that: to open and close one that the program is about to lock would end its
//! locks (fcntl(2)).

use core::ffi::c_int;
use std::ffi::CString;
use std::fs::{DirEntry, File};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use cutape_maps::{Mapping, mappings};

use super::data_files::{SHORTEST, is_of_data};
use super::tensor_header::{SIGNATURE, has_tensors};
use crate::process::memory;

/// Later descriptors are not looked at.
const MOST_DESCRIPTORS: usize = 1024;

/// Files that begin as files of tensors do and are mapped from their beginning.
pub(super) struct Mapped {
    /// What the system said of all mappings when the list of them was read.
    extent: Option<Extent>,
    pub(super) paths: Vec<CString>,
}

/// Pages that are mapped, and pages of files that are in memory: to map a file and to read it
/// changes them (proc_pid_statm(5)).
#[derive(Clone, Copy, PartialEq, Eq)]
struct Extent {
    size: u64,
    shared: u64,
}

impl Mapped {
    /// Reads the list of mappings, unless it is known and as it was.
    pub(super) fn now(known: Option<Arc<Self>>) -> Arc<Self> {
        let extent = Extent::now();
        let known = known.filter(|known| extent.is_some() && extent == known.extent);
        if let Some(known) = known {
            return known;
        }
        let maps = std::fs::read("/proc/self/maps").unwrap_or_default();
        let mappings: Vec<_> = mappings(&maps).collect();
        let of_files = mappings.chunk_by(|one, next| one.path == next.path);
        // Libraries need not be looked at.
        let of_data =
            of_files.filter(|file| !file.iter().any(|part| part.permissions.contains(&b'x')));
        let paths = of_data.filter_map(|file| {
            let begins = |part: &&Mapping<'_>| part.offset == 0 && is_of_data(part);
            let first = file.iter().find(begins)?;
            let mut signature = [0; SIGNATURE];
            if !memory::read_all(first.start, &mut signature) || !has_tensors(&signature) {
                return None;
            }
            CString::new(first.path).ok()
        });
        let paths = paths.collect();
        Arc::new(Self { extent, paths })
    }
}

impl Extent {
    fn now() -> Option<Self> {
        let text = std::fs::read_to_string("/proc/self/statm").ok()?;
        let mut numbers = text.split(' ').map(str::parse);
        let size = numbers.next()?.ok()?;
        let shared = numbers.nth(1)?.ok()?;
        Some(Self { size, shared })
    }
}

/// Files that begin as files of tensors do and are open. A file may be there several times.
pub(super) fn open() -> Vec<CString> {
    let Ok(all) = std::fs::read_dir("/proc/self/fd") else {
        return Vec::new();
    };
    let number = |entry: io::Result<DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    let descriptors: Vec<c_int> = all.filter_map(number).take(MOST_DESCRIPTORS).collect();
    descriptors.into_iter().filter_map(path_of).collect()
}

/// The name of an open file of tensors.
fn path_of(descriptor: c_int) -> Option<CString> {
    // SAFETY: the program's descriptor is not closed here. If it is another file meanwhile, that
    // one is read at a position, which changes nothing.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) });
    let status = file.metadata().ok()?;
    if !status.is_file() || status.size() < SHORTEST {
        return None;
    }
    let mut signature = [0; SIGNATURE];
    file.read_exact_at(&mut signature, 0).ok()?;
    if !has_tensors(&signature) {
        return None;
    }
    let path = std::fs::read_link(format!("/proc/self/fd/{descriptor}")).ok()?;
    let path = path.into_os_string().into_vec();
    if !path.starts_with(b"/") || path.ends_with(b" (deleted)") {
        return None;
    }
    CString::new(path).ok()
}
