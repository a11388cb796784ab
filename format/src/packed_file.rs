//! The file of a packed trace while it is written: under another name, chunk behind chunk, with their index.

use std::borrow::Cow;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::compress::compress;
use crate::layout::{
    CHUNK_CLOSED, CHUNK_COMPRESSED, CHUNK_HEAD_LENGTH, CHUNK_MAGIC, ChunkHead, FILE_HEAD_LENGTH,
};
use crate::pack::IndexEntry;

/// The error for a target that is there already.
pub(crate) fn exists(target: &Path) -> io::Error {
    io::Error::new(
        io::ErrorKind::AlreadyExists,
        format!(
            "{}: exists already; choose another name or remove it",
            target.display()
        ),
    )
}

/// A file being written under another name; removed unless it gets its own.
pub(crate) struct Temporary {
    path: PathBuf,
    pub(crate) file: File,
}

impl Temporary {
    /// In the folder of the target; readable for its owner only.
    pub(crate) fn beside(target: &Path) -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = target.file_name().ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{}: not a file name", target.display()),
            )
        })?;
        loop {
            let mut hidden = std::ffi::OsString::from(".");
            hidden.push(name);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            hidden.push(format!(".{}-{number}.part", std::process::id()));
            let path = target.with_file_name(hidden);
            match OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)
            {
                Ok(file) => return Ok(Self { path, file }),
                // Left by an earlier process of the same number.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes the place of the target in one step.
    pub(crate) fn replace(self, target: &Path) -> io::Result<()> {
        // Dropping `self` afterwards finds nothing to remove.
        fs::rename(&self.path, target)
    }

    /// Becomes the target, which must not be there.
    pub(crate) fn appear_as(self, target: &Path) -> io::Result<()> {
        // Unlike a rename, a link never replaces what somebody else has created meanwhile.
        match fs::hard_link(&self.path, target) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(exists(target)),
            // A file system without hard links.
            Err(_) if fs::symlink_metadata(target).is_err() => fs::rename(&self.path, target),
            Err(_) => Err(exists(target)),
        }
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // Gone already if it was renamed.
        let _ = fs::remove_file(&self.path);
    }
}

/// Writes chunks one behind the other and keeps their index.
pub(crate) struct Writer<'f> {
    file: BufWriter<&'f File>,
    /// Where the next one begins.
    pub(crate) position: u64,
    /// Those that have been written since it was taken.
    pub(crate) index: Vec<IndexEntry>,
}

/// A body as it is to be stored.
pub(crate) struct Stored<'a> {
    bytes: Cow<'a, [u8]>,
    compressed: bool,
    checksum: u32,
}

impl<'a> Stored<'a> {
    /// Compresses it if that makes it smaller.
    pub(crate) fn of(body: Cow<'a, [u8]>) -> Self {
        let (bytes, compressed) = match compress(&body) {
            Some(smaller) => (Cow::Owned(smaller), true),
            None => (body, false),
        };
        let checksum = crc32fast::hash(&bytes);
        Self {
            bytes,
            compressed,
            checksum,
        }
    }
}

impl<'f> Writer<'f> {
    /// Leaves room for the file head.
    pub(crate) fn behind_head(file: &'f File) -> io::Result<Self> {
        let mut file = BufWriter::with_capacity(1 << 18, file);
        file.write_all(&[0; FILE_HEAD_LENGTH])?;
        Ok(Self {
            file,
            position: FILE_HEAD_LENGTH as u64,
            index: Vec::new(),
        })
    }

    /// Brings all that was written into the file.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.file.flush()
    }

    /// Writes a chunk with the identity of `head` and that body; returns its place in the index.
    pub(crate) fn chunk(
        &mut self,
        head: ChunkHead,
        body: &[u8],
        names: Vec<u64>,
    ) -> io::Result<usize> {
        self.stored(head, &Stored::of(Cow::Borrowed(body)), names)
    }

    /// As [`Writer::chunk`], of a body that was made ready before.
    pub(crate) fn stored(
        &mut self,
        head: ChunkHead,
        stored: &Stored<'_>,
        names: Vec<u64>,
    ) -> io::Result<usize> {
        let used = stored.bytes.len() as u64;
        let length = (CHUNK_HEAD_LENGTH as u64 + used).next_multiple_of(8);
        let head = ChunkHead {
            magic: CHUNK_MAGIC,
            flags: CHUNK_CLOSED
                | if stored.compressed {
                    CHUNK_COMPRESSED
                } else {
                    0
                },
            length,
            used,
            body_checksum: stored.checksum,
            ..head
        };
        self.file.write_all(&head.encode())?;
        self.file.write_all(&stored.bytes)?;
        let padding = usize::try_from(length - CHUNK_HEAD_LENGTH as u64 - used).unwrap_or(0);
        self.file.write_all([0; 8].get(..padding).unwrap_or(&[]))?;
        let ChunkHead {
            kind,
            thread,
            sequence,
            first,
            ticks,
            ..
        } = head;
        let position = self.position;
        self.index.push(IndexEntry {
            position,
            kind,
            thread,
            sequence,
            first,
            ticks,
            names,
        });
        self.position += length;
        Ok(self.index.len() - 1)
    }
}
