//! The mapped file of a trace.

use std::fs::{self, File, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use memmap2::{Mmap, MmapOptions, UncheckedAdvice};

use crate::codec;
use crate::layout::{
    CHUNK_ALIGNMENT, CHUNK_CLOSED, CHUNK_HEAD_LENGTH, CHUNK_MAGIC, ChunkHead, FILE_HEAD_ENCODED,
    FILE_HEAD_LENGTH, FILE_PACKED, FileHead, MAGIC, MAJOR, chunk_kind,
};
use crate::read::error::{Damage, Error};

/// Address space, not memory, that the map of a growing trace takes.
const GROWING_LENGTH: usize = 1 << 40;

#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    file: File,
    map: Mmap,
    /// Bytes of the map that the file has.
    pub(crate) length: usize,
    pub(crate) head: FileHead,
    is_growing: bool,
}

/// The process that recorded a trace; `None` if the file does not begin with the head of a trace.
pub fn recorded_process(path: &Path) -> Option<u32> {
    let mut bytes = [0; FILE_HEAD_ENCODED];
    // Opening a pipe would wait for its writer.
    fs::metadata(path).ok().filter(Metadata::is_file)?;
    File::open(path).ok()?.read_exact_at(&mut bytes, 0).ok()?;
    let (head, _) = codec::decode::<FileHead>(&bytes)?;
    (head.magic == MAGIC && head.major <= MAJOR).then_some(head.process)
}

impl Source {
    /// Maps the file and reads its head.
    pub(crate) fn open(path: &Path, is_growing: bool) -> Result<Self, Error> {
        let io = |source| Error::Io {
            path: path.to_owned(),
            source,
        };
        let not_a_trace = |why: String| Error::NotATrace {
            path: path.to_owned(),
            why,
        };
        // Opening a pipe would wait for its writer.
        if !fs::metadata(path).map_err(io)?.is_file() {
            return Err(not_a_trace("not a regular file".into()));
        }
        let file = File::open(path).map_err(io)?;
        let metadata = file.metadata().map_err(io)?;
        let length = usize::try_from(metadata.len()).map_err(|_| not_a_trace("too long".into()))?;
        if length < FILE_HEAD_ENCODED {
            return Err(not_a_trace(format!(
                "{length} bytes, too short for a trace's head"
            )));
        }
        let mut options = MmapOptions::new();
        options.len(if is_growing { GROWING_LENGTH } else { length });
        // SAFETY: the map is only read, and only up to the length that the file had when it was
        // last asked for. The recorder never shortens its file; if another program does, the
        // reader ends with SIGBUS.
        let map = unsafe { options.map(&file) }.map_err(io)?;
        let start = map.first_chunk::<8>().copied().unwrap_or_default();
        if start != MAGIC {
            let start = start.map(|byte| format!("{byte:02x}")).join(" ");
            return Err(not_a_trace(format!("it begins with {start}")));
        }
        let Some((head, _)) = codec::decode::<FileHead>(&map) else {
            return Err(not_a_trace("its head cannot be read".into()));
        };
        if head.major > MAJOR {
            return Err(Error::NewerVersion {
                path: path.to_owned(),
                found: head.major,
            });
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            map,
            length,
            head,
            is_growing,
        })
    }

    /// Where the first chunk begins, and what is wrong with the file head.
    pub(crate) fn first_chunk(&self) -> (usize, Vec<Damage>) {
        let mut damage = Vec::new();
        if crc32fast::hash(self.bytes(0..FILE_HEAD_ENCODED - 4)) != self.head.checksum {
            damage.push(Damage::new(0, "the file head's checksum is wrong"));
        }
        let length = self.head.head_length as usize;
        if length >= FILE_HEAD_ENCODED && length.is_multiple_of(self.chunk_alignment()) {
            return (length, damage);
        }
        let what = format!("the file head cannot be {length} bytes long");
        damage.push(Damage::new(0, what));
        (FILE_HEAD_LENGTH, damage)
    }

    pub(crate) fn metadata(&self) -> io::Result<Metadata> {
        self.file.metadata()
    }

    /// Asks for the length of the file again, and maps what it has got since.
    pub(crate) fn refresh_length(&mut self) -> io::Result<()> {
        let length = usize::try_from(self.metadata()?.len()).unwrap_or(usize::MAX);
        if length > self.map.len() && !self.is_growing {
            let mut options = MmapOptions::new();
            options.len(length);
            // SAFETY: as in `open`.
            self.map = unsafe { options.map(&self.file) }?;
        }
        self.length = length.min(self.map.len());
        Ok(())
    }

    pub(crate) fn is_packed(&self) -> bool {
        self.head.flags & FILE_PACKED != 0
    }

    /// Whether the trace is followed while it grows.
    pub(crate) fn is_growing(&self) -> bool {
        self.is_growing
    }

    /// Chunks begin at multiples of this.
    pub(crate) fn chunk_alignment(&self) -> usize {
        if self.is_packed() {
            8
        } else {
            CHUNK_ALIGNMENT as usize
        }
    }

    /// A part of the file; empty if the file does not have all of it.
    pub(crate) fn bytes(&self, range: Range<usize>) -> &[u8] {
        let range = range.start..range.end.min(self.length);
        self.map.get(range).unwrap_or(&[])
    }

    pub(crate) fn is_zero(&self, range: Range<usize>) -> bool {
        self.bytes(range).iter().all(|&byte| byte == 0)
    }

    /// The address of a position in the file, for what other processes change.
    pub(crate) fn address(&self, position: usize) -> *const u8 {
        self.map.as_ptr().wrapping_add(position)
    }

    /// The chunk head at a position, if there is a sound one.
    pub(crate) fn head_at(&self, position: usize) -> Option<ChunkHead> {
        let end = position.checked_add(CHUNK_HEAD_LENGTH)?;
        let (head, _) = codec::decode::<ChunkHead>(self.bytes(position..end))?;
        let head = head.checked()?;
        let is_sound = head.magic == CHUNK_MAGIC
            && head.length >= CHUNK_HEAD_LENGTH as u64
            && head.length.is_multiple_of(self.chunk_alignment() as u64);
        is_sound.then_some(head)
    }

    /// The next position from there on at which a chunk seems to begin, or the end of the file.
    pub(crate) fn next_magic(&self, from: usize) -> usize {
        let magic = CHUNK_MAGIC.to_le_bytes();
        let last = self.length.saturating_sub(CHUNK_HEAD_LENGTH);
        (from..=last)
            .step_by(self.chunk_alignment())
            .find(|&at| self.bytes(at..at + magic.len()) == magic)
            .unwrap_or(self.length)
    }

    /// The body of a thread buffer.
    pub(crate) fn buffer_body(&self, head: &ChunkHead, position: usize) -> &[u8] {
        let length = usize::try_from(head.length).unwrap_or(usize::MAX);
        let end = position.saturating_add(length);
        self.bytes(position + CHUNK_HEAD_LENGTH..end)
    }

    /// The stored body of the chunk at a position, as far as the file has it, and what is wrong
    /// with it. The checksum of a blob is left to its reader.
    pub(crate) fn body_at(
        &self,
        head: &ChunkHead,
        position: usize,
    ) -> (Range<usize>, Option<String>) {
        let allocated = head.length.saturating_sub(CHUNK_HEAD_LENGTH as u64);
        let is_closed = head.flags & CHUNK_CLOSED != 0;
        let wanted = if is_closed { head.used } else { allocated };
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        let start = position.saturating_add(CHUNK_HEAD_LENGTH);
        let end = start.saturating_add(wanted).min(self.length.max(start));
        let name = chunk_name(head.kind);
        let doubt = if !is_closed {
            None
        } else if head.used > allocated {
            Some(format!("{name} holds more than it is long"))
        } else if end - start < wanted {
            Some(format!("{name} extends beyond the end of the file"))
        } else if head.kind != chunk_kind::BLOB
            && crc32fast::hash(self.bytes(start..end)) != head.body_checksum
        {
            Some(format!("the checksum of {name} is wrong"))
        } else {
            None
        };
        (start..end, doubt)
    }

    /// Lets the system reclaim the pages of a part of the file; a later access reads them again.
    pub(crate) fn release(&self, range: Range<usize>) {
        // SAFETY: the map is only read, so what is dropped is read from the file again.
        let advised = unsafe {
            self.map
                .unchecked_advise_range(UncheckedAdvice::DontNeed, range.start, range.len())
        };
        // Without it the pages only stay in memory.
        let _ = advised;
    }
}

/// A chunk in messages.
pub(crate) fn chunk_name(kind: u16) -> &'static str {
    match kind {
        chunk_kind::META => "the program and machine table",
        chunk_kind::SIGNATURES => "the signature table",
        chunk_kind::CALLS => "a chunk of calls",
        chunk_kind::BLOB => "a blob",
        chunk_kind::MAPS => "the memory map",
        chunk_kind::SYMBOLS => "the symbol table",
        chunk_kind::INDEX => "the index",
        chunk_kind::THREAD_BUFFER => "a thread buffer",
        chunk_kind::CALL_COUNTS => "the table of call counts",
        chunk_kind::CONTROL => "the recorder's control chunk",
        chunk_kind::STACKS => "a chunk of call stacks",
        chunk_kind::SOURCES => "the table of sources",
        chunk_kind::MARKERS => "a chunk of markers",
        chunk_kind::ERASED => "erased space",
        _ => "a chunk of a later version",
    }
}
