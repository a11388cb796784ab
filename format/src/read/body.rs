//! Bodies of chunks, and blobs.

use std::borrow::Cow;
use std::sync::atomic::Ordering;

use crate::file_range::FileRange;
use crate::layout::{BlobRef, CHUNK_CLOSED, CHUNK_COMPRESSED, ChunkHead, chunk_kind};
use crate::read::compress::{decompress, raw_length};
use crate::read::error::Damage;
use crate::read::index::indexed_body;
use crate::read::snapshot::Bytes;
use crate::read::trace::{Body, Chunk, Trace};

impl Trace {
    /// A chunk's body (decompressed, except blobs), which then stays in memory; empty if it cannot
    /// be read.
    pub(crate) fn body(&self, chunk: usize) -> &[u8] {
        let Chunk { body, loaded, .. } = self.chunk(chunk);
        match body {
            Body::InFile(range) => self.source.bytes(range.clone()),
            Body::Owned(bytes) => bytes,
            Body::Compressed(_) | Body::Unread => {
                loaded.get_or_init(|| self.load(chunk).map(Cow::into_owned).unwrap_or_default())
            }
        }
    }

    /// A chunk's body (decompressed, except blobs), in memory only as long as the caller keeps it.
    pub(crate) fn load(&self, chunk: usize) -> Result<Cow<'_, [u8]>, Damage> {
        let Chunk {
            position, loaded, ..
        } = self.chunk(chunk);
        if let Some(loaded) = loaded.get() {
            return Ok(Cow::Borrowed(loaded));
        }
        let (head, stored) = self.stored(chunk)?;
        let is_compressed = head.flags & CHUNK_COMPRESSED != 0;
        let is_owned = matches!(self.chunk(chunk).body, Body::Owned(_));
        if head.kind == chunk_kind::BLOB || !is_compressed || is_owned {
            return Ok(Cow::Borrowed(stored));
        }
        decompress(stored)
            .map(Cow::Owned)
            .ok_or_else(|| Damage::new(*position, "a chunk of calls cannot be decompressed"))
    }

    /// A chunk's head, and its body as it is in memory or in the file. A chunk of which only the
    /// index was read is checked here.
    fn stored(&self, chunk: usize) -> Result<(ChunkHead, &[u8]), Damage> {
        let chunk = self.chunk(chunk);
        match &chunk.body {
            Body::InFile(range) | Body::Compressed(range) => {
                Ok((chunk.head, self.source.bytes(range.clone())))
            }
            Body::Owned(bytes) => Ok((chunk.head, bytes)),
            Body::Unread => {
                indexed_body(&self.source, chunk).map_err(|what| Damage::new(chunk.position, what))
            }
        }
    }

    /// Lets the system reclaim the memory of a chunk's part of the file.
    pub(crate) fn release(&self, chunk: usize) {
        if let Body::InFile(range) | Body::Compressed(range) = &self.chunk(chunk).body {
            self.source.release(range.clone());
        }
    }

    /// A blob's bytes; the error names what is wrong with it.
    pub fn blob(&self, blob: BlobRef) -> Result<Cow<'_, [u8]>, Damage> {
        let damage = |what: &str| Damage::new(blob.position, what);
        let chunk = self
            .blob_chunk(blob.position)
            .ok_or_else(|| damage("a blob is missing"))?;
        let length = usize::try_from(blob.length).map_err(|_| damage("a blob is too long"))?;
        prefix(self.blob_bytes(chunk)?, length)
            .ok_or_else(|| damage("a blob is shorter than its reference says"))
    }

    /// The bytes of a snapshot: in the record, in a blob, or, if the trace is not packed, in the
    /// file that they were mapped from. The error says why they are unavailable; its position is 0
    /// if the trace itself is sound.
    pub fn resolve<'a>(&'a self, bytes: Bytes<'a>) -> Result<Cow<'a, [u8]>, Damage> {
        match bytes {
            Bytes::Inline(bytes) => Ok(Cow::Borrowed(bytes)),
            Bytes::Blob(blob) => self.blob(blob),
            Bytes::InFile(range) => self.file_range(range),
            Bytes::Omitted(_) => Err(Damage::new(0, "not kept")),
            Bytes::Hashed(..) => Err(Damage::new(0, "not kept, only hashed")),
            Bytes::Unreadable => Err(Damage::new(0, "unreadable")),
        }
    }

    /// The bytes of a part of a file: from the packed trace, else from the file if it is unchanged.
    pub fn file_range(&self, range: FileRange<'_>) -> Result<Cow<'_, [u8]>, Damage> {
        let blob = range.blob();
        if self.blobs.contains_key(&blob.position) {
            return self.blob(blob);
        }
        let advice = match range.digest {
            Some(_) => "; put the file that the program read there",
            None => "",
        };
        let unavailable = |why| Damage::new(0, format!("its file is unavailable: {why}{advice}"));
        range.read().map(Cow::Owned).map_err(unavailable)
    }

    /// All bytes of a blob's chunk. The checksum is checked on the first access.
    fn blob_bytes(&self, chunk: usize) -> Result<Cow<'_, [u8]>, Damage> {
        let Chunk {
            position,
            is_checked,
            ..
        } = self.chunk(chunk);
        let (head, body) = self.stored(chunk)?;
        if head.flags & CHUNK_CLOSED != 0 && !is_checked.load(Ordering::Relaxed) {
            if crc32fast::hash(body) != head.body_checksum {
                return Err(Damage::new(*position, "the checksum of a blob is wrong"));
            }
            is_checked.store(true, Ordering::Relaxed);
        }
        if head.flags & CHUNK_COMPRESSED == 0 {
            return Ok(Cow::Borrowed(body));
        }
        decompress(body)
            .map(Cow::Owned)
            .ok_or_else(|| Damage::new(*position, "a blob cannot be decompressed"))
    }

    /// Where the blob of a name is stored. A packed trace stores equal blobs once, so that two
    /// names may lead to the same place.
    pub fn blob_position(&self, name: u64) -> Option<u64> {
        Some(self.chunk(self.blob_chunk(name)?).position)
    }

    /// The chunk that holds the blob of a name.
    pub(crate) fn blob_chunk(&self, name: u64) -> Option<usize> {
        self.blobs.get(&name).copied()
    }

    /// All bytes of a closed chunk's blob; at most `length` bytes of one that was never closed.
    pub(crate) fn blob_content(&self, chunk: usize, length: u64) -> Result<Cow<'_, [u8]>, Damage> {
        let bytes = self.blob_bytes(chunk)?;
        if self.source.is_packed() || self.chunk(chunk).head.flags & CHUNK_CLOSED != 0 {
            return Ok(bytes);
        }
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let length = length.min(bytes.len());
        Ok(prefix(bytes, length).unwrap_or_default())
    }

    /// Names and lengths of the blobs, by name (which is the order of recording). An open blob has
    /// the length of its chunk.
    pub fn blobs(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let blobs = self.blobs.iter();
        let mut blobs: Vec<_> = blobs.map(|(&name, &chunk)| (name, chunk)).collect();
        blobs.sort_unstable();
        blobs.into_iter().map(|(name, chunk)| {
            let length = match self.stored(chunk) {
                Ok((head, body)) if head.flags & CHUNK_COMPRESSED == 0 => body.len() as u64,
                Ok((_, body)) => raw_length(body).unwrap_or(0),
                Err(_) => 0,
            };
            (name, length)
        })
    }
}

fn prefix(bytes: Cow<'_, [u8]>, length: usize) -> Option<Cow<'_, [u8]>> {
    match bytes {
        Cow::Borrowed(bytes) => bytes.get(..length).map(Cow::Borrowed),
        Cow::Owned(mut bytes) => (bytes.len() >= length).then(|| {
            bytes.truncate(length);
            Cow::Owned(bytes)
        }),
    }
}
