//! The file of a packed trace while it is written: under another name, one chunk after the other,
//! with their index.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::layout::{
    CHUNK_CLOSED, CHUNK_COMPRESSED, CHUNK_HEAD_LENGTH, ChunkHead, ChunkIdentity, FILE_HEAD_LENGTH,
    IndexEntry,
};
use crate::read::compress::compress;

/// The error for a target that exists.
pub(crate) fn already_exists(target: &Path) -> io::Error {
    let path = target.display();
    let what = format!("{path}: exists already; choose another name or remove it");
    io::Error::new(io::ErrorKind::AlreadyExists, what)
}

/// Those that are not published yet.
static TEMPORARY: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn temporary() -> MutexGuard<'static, Vec<PathBuf>> {
    TEMPORARY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes all [`TemporaryFile`]s of this process, which is about to end: other threads can make none
/// from now on.
pub fn remove_temporary_files() {
    let files = temporary();
    for path in &*files {
        let _ = fs::remove_file(path);
    }
    std::mem::forget(files);
}

/// How the names of [`TemporaryFile`]s end.
const ENDING: &str = ".part";

/// Removes the temporary files of the same target whose writers were killed: those that no process
/// has locked.
fn remove_leftovers(target: &Path, start: &OsStr) {
    let folder = match target.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.as_bytes().strip_prefix(start.as_bytes());
        let number = number.and_then(|rest| rest.strip_suffix(ENDING.as_bytes()));
        let is_number = |text: &[u8]| text.iter().all(|&c| c.is_ascii_digit() || c == b'-');
        if number.is_some_and(is_number)
            && entry.file_type().is_ok_and(|kind| kind.is_file())
            && let Ok(file) = File::open(entry.path())
            && file.try_lock().is_ok()
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// A file written under another name; removed unless it is published.
#[derive(Debug)]
pub struct TemporaryFile {
    path: PathBuf,
    pub(crate) file: File,
}

impl TemporaryFile {
    /// In the folder of the target; readable for its owner only.
    ///
    /// # Errors
    /// If the target names no file, or the folder cannot be written to.
    pub fn beside(target: &Path) -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = target.file_name().ok_or_else(|| {
            let what = format!("{}: not a file name", target.display());
            io::Error::new(io::ErrorKind::InvalidInput, what)
        })?;
        let mut start = OsString::from(".");
        start.push(name);
        start.push(".");
        remove_leftovers(target, &start);
        loop {
            let mut hidden = start.clone();
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            hidden.push(format!("{}-{number}{ENDING}", std::process::id()));
            let path = target.with_file_name(hidden);
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(0o600);
            // Not between making the file and listing it does the process end.
            let mut files = temporary();
            match options.open(&path) {
                Ok(file) => {
                    // Where files cannot be locked, leftovers stay.
                    let _ = file.lock();
                    // Another process may have taken it for a leftover.
                    if file.metadata()?.nlink() == 0 {
                        continue;
                    }
                    files.push(path.clone());
                    return Ok(Self { path, file });
                }
                // Left by an earlier process of the same number.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Where it is until it is published.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is written.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Replaces the target in one step.
    ///
    /// # Errors
    /// If the file cannot be renamed.
    pub fn replace(self, target: &Path) -> io::Result<()> {
        fs::rename(&self.path, target)
    }

    /// Becomes the target, which must not exist.
    ///
    /// # Errors
    /// If it exists, or the file cannot be renamed.
    pub fn publish(self, target: &Path) -> io::Result<()> {
        // Unlike a rename, a link never replaces a file that has been created meanwhile.
        match fs::hard_link(&self.path, target) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(already_exists(target))
            }
            // A file system without hard links.
            Err(_) if fs::symlink_metadata(target).is_err() => fs::rename(&self.path, target),
            Err(_) => Err(already_exists(target)),
        }
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // Fails if it was renamed.
        let _ = fs::remove_file(&self.path);
        temporary().retain(|path| *path != self.path);
    }
}

/// A body as it is stored.
pub(crate) struct StoredBody<'a> {
    bytes: Cow<'a, [u8]>,
    is_compressed: bool,
    checksum: u32,
}

impl<'a> StoredBody<'a> {
    /// Compresses the body if that makes it smaller.
    pub(crate) fn new(body: Cow<'a, [u8]>) -> Self {
        let compressed = compress(&body);
        let is_compressed = compressed.is_some();
        let bytes = compressed.map_or(body, Cow::Owned);
        Self {
            checksum: crc32fast::hash(&bytes),
            bytes,
            is_compressed,
        }
    }
}

/// Writes chunks one after the other and keeps their index.
pub(crate) struct Writer<'f> {
    file: BufWriter<&'f File>,
    /// Where the next chunk begins.
    pub(crate) position: u64,
    /// The chunks written since it was taken.
    pub(crate) index: Vec<IndexEntry>,
    /// Tells another thread how much is written.
    written: Option<&'f AtomicU64>,
}

impl<'f> Writer<'f> {
    /// Leaves space for the file head.
    pub(crate) fn behind_head(file: &'f File) -> io::Result<Self> {
        let mut file = BufWriter::with_capacity(1 << 18, file);
        file.write_all(&[0; FILE_HEAD_LENGTH])?;
        Ok(Self {
            file,
            position: FILE_HEAD_LENGTH as u64,
            index: Vec::new(),
            written: None,
        })
    }

    /// Tells another thread how many bytes are written.
    pub(crate) fn counting(self, written: Option<&'f AtomicU64>) -> Self {
        Self { written, ..self }
    }

    /// Writes what is still buffered.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.file.flush()
    }

    /// Writes a chunk with the identity of `head` and that body.
    pub(crate) fn write(
        &mut self,
        head: ChunkHead,
        body: &StoredBody<'_>,
        names: Vec<u64>,
    ) -> io::Result<()> {
        let used = body.bytes.len();
        let length = (CHUNK_HEAD_LENGTH + used).next_multiple_of(8);
        let compressed = if body.is_compressed {
            CHUNK_COMPRESSED
        } else {
            0
        };
        let head = ChunkHead {
            flags: CHUNK_CLOSED | compressed,
            length: length as u64,
            used: used as u64,
            body_checksum: body.checksum,
            ..head
        };
        self.file.write_all(&head.encode())?;
        self.file.write_all(&body.bytes)?;
        let padding = length - CHUNK_HEAD_LENGTH - used;
        self.file.write_all([0; 8].get(..padding).unwrap_or(&[]))?;
        self.index.push(IndexEntry {
            position: self.position,
            identity: ChunkIdentity::of(&head),
            names,
        });
        self.position += head.length;
        if let Some(written) = self.written {
            written.store(self.position, Ordering::Relaxed);
        }
        Ok(())
    }
}
