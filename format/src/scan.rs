//! Finding the chunks of a file, taking in what they hold, and judging whether the file is whole.

use crate::codec::{self, Decode};
use crate::compress::{decompress, decompress_start};
use crate::layout::{
    CHUNK_ALIGNMENT, CHUNK_CLOSED, CHUNK_COMPRESSED, CHUNK_COPIED, CHUNK_HEAD_LENGTH, CHUNK_MAGIC,
    ChunkHead, FILE_HEAD_ENCODED, FILE_PACKED, MINOR, chunk_kind,
};
use crate::pack::{CallsEntry, IndexEntry, Symbol, blank_head};
use crate::records::sound_end;
use crate::signature::Signatures;
use crate::trace::{Body, Chunk, Mapping, Stage, StoredMapping, Trace};

impl Trace {
    pub(crate) fn packed(&self) -> bool {
        self.head.flags & FILE_PACKED != 0
    }

    /// True while more may come.
    pub(crate) fn growing(&self) -> bool {
        self.map.len() > self.length
    }

    /// What chunks begin at multiples of.
    pub(crate) fn step(&self) -> usize {
        if self.packed() {
            8
        } else {
            CHUNK_ALIGNMENT as usize
        }
    }

    /// The chunk head at a position, if there is a sound one.
    pub(crate) fn head_at(&self, position: usize) -> Option<ChunkHead> {
        let bytes = self
            .map
            .get(position..position.checked_add(CHUNK_HEAD_LENGTH)?)?;
        let (head, _) = codec::decode::<ChunkHead>(bytes)?;
        let head = head.checked()?;
        (head.magic == CHUNK_MAGIC
            && head.length >= CHUNK_HEAD_LENGTH as u64
            && head.length % self.step() as u64 == 0)
            .then_some(head)
    }

    /// Reads chunk heads from where the last scan ended.
    pub(crate) fn scan(&mut self) {
        let step = self.step();
        while self.scanned.saturating_add(CHUNK_HEAD_LENGTH) <= self.length {
            let position = self.scanned;
            let word = &self.map[position..position + CHUNK_HEAD_LENGTH];
            if word.iter().all(|&byte| byte == 0) && !self.packed() {
                // Claimed, and not yet begun, or abandoned because the disk was full.
                if self.growing() {
                    return;
                }
                self.scanned += step;
                continue;
            }
            let Some(head) = self.head_at(position) else {
                if self.growing() {
                    return;
                }
                self.damaged(position as u64, "no chunk begins here as it should".into());
                // Go on at the next place where one does.
                let next = (position + step..=self.length.saturating_sub(CHUNK_HEAD_LENGTH))
                    .step_by(step)
                    .find(|&at| self.map[at..at + 4] == CHUNK_MAGIC.to_le_bytes());
                self.scanned = next.unwrap_or(self.length);
                continue;
            };
            let end = usize::try_from(head.length)
                .ok()
                .and_then(|length| position.checked_add(length))
                .unwrap_or(usize::MAX);
            // The file may have been looked at while it was being made longer.
            if self.growing() && end > self.length {
                return;
            }
            self.scanned = end;
            self.add_chunk(head, position);
        }
    }

    /// Reads a packed trace's index and the short chunks that it names; false if that shows anything but a sound trace.
    pub(crate) fn read_index(&mut self) -> bool {
        let start = usize::try_from(self.head.index).unwrap_or(usize::MAX);
        if !self.packed() || !self.damage.is_empty() || start < self.scanned || start > self.length
        {
            return false;
        }
        self.scanned = start;
        self.scan();
        let only_index = |chunk: &Chunk| chunk.head.kind == chunk_kind::INDEX;
        if self.scanned != self.length
            || !self.damage.is_empty()
            || self.chunks.is_empty()
            || !self.chunks.iter().all(only_index)
        {
            return false;
        }
        self.chunks.clear();
        self.blobs.clear();
        let entries = std::mem::take(&mut self.index);
        let mut behind = u64::from(self.head.head_length);
        for entry in &entries {
            let position = usize::try_from(entry.position).unwrap_or(usize::MAX);
            if entry.position < behind || position >= start {
                return false;
            }
            behind = entry.position + 1;
            if !matches!(entry.kind, chunk_kind::CALLS | chunk_kind::BLOB) {
                match self.head_at(position) {
                    Some(head) if head.kind == entry.kind => self.add_chunk(head, position),
                    _ => return false,
                }
                continue;
            }
            let head = ChunkHead {
                kind: entry.kind,
                thread: entry.thread,
                sequence: entry.sequence,
                first: entry.first,
                ticks: entry.ticks,
                ..blank_head(entry.kind)
            };
            let chunk = self.chunks.len();
            self.chunks
                .push(Chunk::new(head, entry.position, Body::Unread));
            self.blobs
                .extend(entry.names.iter().map(|&name| (name, chunk)));
            if self.register(chunk).is_err() {
                return false;
            }
        }
        self.index = entries;
        self.check_counts();
        self.damage.is_empty() && self.signatures.functions().next().is_some()
    }

    /// The head and the stored body of a chunk that so far only the index has named. A blob's checksum is for who reads it.
    pub(crate) fn read_indexed(&self, chunk: &Chunk) -> Result<(ChunkHead, &[u8]), String> {
        let position = usize::try_from(chunk.position).unwrap_or(usize::MAX);
        let head = self
            .head_at(position)
            .ok_or("no chunk begins here as it should")?;
        let named = |head: &ChunkHead| {
            (
                head.kind,
                head.thread,
                head.sequence,
                head.first,
                head.ticks,
            )
        };
        if named(&head) != named(&chunk.head) || head.flags & CHUNK_CLOSED == 0 {
            return Err("the index does not agree with the chunks".into());
        }
        let start = position + CHUNK_HEAD_LENGTH;
        let stored = usize::try_from(head.used)
            .ok()
            .filter(|_| head.used <= head.length)
            .and_then(|used| self.map.get(start..start.checked_add(used)?))
            .ok_or_else(|| {
                format!(
                    "{} reaches behind the end of the file",
                    chunk_name(head.kind)
                )
            })?;
        if head.kind != chunk_kind::BLOB && crc32fast::hash(stored) != head.body_checksum {
            return Err(format!(
                "the checksum of {} is wrong",
                chunk_name(head.kind)
            ));
        }
        Ok((head, stored))
    }

    /// Forgets what is said of the chunks of calls if it is not about these.
    fn check_counts(&mut self) {
        let said = self.counts.iter().map(|entry| entry.position);
        if !said.eq(self.calls_chunks().map(|chunk| self.chunk_position(chunk))) {
            self.counts.clear();
        }
    }

    /// Looks at what can only be judged once nothing more comes.
    pub(crate) fn finish(&mut self) {
        if self.scanned > self.length {
            let missing = self.scanned - self.length;
            self.damaged(
                self.length as u64,
                format!("the file is cut, at least {missing} bytes are missing"),
            );
        } else if self.map[self.scanned..self.length]
            .iter()
            .any(|&byte| byte != 0)
            || self.packed() && self.scanned < self.length
        {
            self.damaged(
                self.scanned as u64,
                "the file ends within a chunk's head".into(),
            );
        }
        self.add_last_of_stages();
        if self.signatures.functions().next().is_none() {
            self.damaged(
                u64::from(self.head.head_length),
                "the signature table is missing".into(),
            );
        }
        if self.packed() {
            self.check_packed();
            self.check_counts();
        } else {
            self.check_sequences();
        }
    }

    /// Looks for threads whose chunks are not all there. In a packed trace that is no damage: a repair may have left some out, and said so.
    fn check_sequences(&mut self) {
        let mut gaps = Vec::new();
        for (thread, list) in self.threads.iter().enumerate() {
            for (expected, &index) in (0..).zip(list) {
                if self.chunks[index].head.sequence != expected {
                    gaps.push((self.chunks[index].position, thread));
                    break;
                }
            }
        }
        for (position, thread) in gaps {
            self.damaged(
                position,
                format!("calls of thread {thread} before these are missing"),
            );
        }
    }

    /// Checks that a packed trace has exactly the chunks that its index names, and nothing in the gaps between them.
    fn check_packed(&mut self) {
        let start = (self.head.head_length as usize).min(self.length);
        if self.head.minor <= MINOR
            && self.map[FILE_HEAD_ENCODED.min(start)..start]
                .iter()
                .any(|&byte| byte != 0)
        {
            self.damaged(
                FILE_HEAD_ENCODED as u64,
                "the rest of the file head is not zero".into(),
            );
        }
        let (index, rest): (Vec<&Chunk>, Vec<&Chunk>) = self
            .chunks
            .iter()
            .partition(|chunk| chunk.head.kind == chunk_kind::INDEX);
        let is_same = |(entry, chunk): (&IndexEntry, &&Chunk)| {
            let ChunkHead {
                kind,
                thread,
                sequence,
                first,
                ticks,
                ..
            } = chunk.head;
            let found = (chunk.position, kind, thread, sequence, first, ticks);
            found
                == (
                    entry.position,
                    entry.kind,
                    entry.thread,
                    entry.sequence,
                    entry.first,
                    entry.ticks,
                )
        };
        let sound = index
            .first()
            .is_some_and(|chunk| chunk.position == self.head.index)
            && self.index.len() == rest.len()
            && self.index.iter().zip(&rest).all(is_same);
        // With other damage the index cannot agree, and says nothing new.
        if !sound && self.damage.is_empty() {
            self.damaged(
                self.head.index,
                "the index does not agree with the chunks".into(),
            );
        }
    }

    pub(crate) fn add_chunk(&mut self, head: ChunkHead, position: usize) {
        let start = position + CHUNK_HEAD_LENGTH;
        let allocated = usize::try_from(head.length).unwrap_or(usize::MAX) - CHUNK_HEAD_LENGTH;
        let closed = head.flags & CHUNK_CLOSED != 0;
        let wanted = if closed {
            usize::try_from(head.used).unwrap_or(usize::MAX)
        } else {
            allocated
        };
        if head.kind == chunk_kind::THREAD_BUFFER && !self.packed() {
            return self.stages.push(Stage {
                head,
                position,
                chunk: None,
                is_complete: false,
            });
        }
        if !closed && head.flags & CHUNK_COPIED != 0 && !self.packed() {
            // Until it is closed, the stage has these records.
            if self.growing() {
                self.pending.push(position);
            }
            return;
        }
        if self.growing() && head.flags & CHUNK_COPIED != 0 && self.is_early(&head) {
            return self.pending.push(position);
        }
        let in_pieces = !matches!(head.kind, chunk_kind::CALLS | chunk_kind::BLOB);
        if !closed && self.packed() {
            return self.damaged(
                position as u64,
                "a chunk of a packed trace is not closed".into(),
            );
        }
        if !closed && in_pieces && self.growing() {
            return self.pending.push(position);
        }
        if !closed && (chunk_kind::META..=chunk_kind::INDEX).contains(&head.kind) && in_pieces {
            // It was being written when the recording ended; what is there may be anything.
            return;
        }
        if wanted > allocated {
            return self.damaged(position as u64, "a chunk holds more than it is long".into());
        }
        let end = start.saturating_add(wanted).min(self.length.max(start));
        let mut doubt = None;
        if end - start < wanted && closed {
            doubt = Some(format!(
                "{} reaches behind the end of the file",
                chunk_name(head.kind)
            ));
        } else if closed
            && head.kind != chunk_kind::BLOB
            && crc32fast::hash(&self.map[start..end]) != head.body_checksum
        {
            doubt = Some(format!(
                "the checksum of {} is wrong",
                chunk_name(head.kind)
            ));
        }
        let compressed = head.flags & CHUNK_COMPRESSED != 0 && head.kind != chunk_kind::BLOB;
        let mut body = Body::InFile(start, end);
        if compressed && head.kind == chunk_kind::CALLS && doubt.is_none() {
            body = Body::Compressed(start, end);
        } else if compressed {
            body = match decompress(&self.map[start..end]) {
                Some(bytes) => Body::Owned(bytes),
                None => {
                    doubt.get_or_insert_with(|| {
                        format!("{} cannot be decompressed", chunk_name(head.kind))
                    });
                    Body::Owned(decompress_start(&self.map[start..end]))
                }
            };
        }
        if self.packed() {
            let behind = position
                .saturating_add(allocated + CHUNK_HEAD_LENGTH)
                .min(self.length);
            if allocated - wanted >= 8 || self.map[end..behind].iter().any(|&byte| byte != 0) {
                self.damaged(end as u64, "there is something between two chunks".into());
            }
        }
        if let Some(what) = doubt {
            self.damaged(position as u64, what);
            match (head.kind, &mut body) {
                // Records are kept as long as they look like records.
                (chunk_kind::CALLS, Body::InFile(start, end)) => {
                    *end = *start + sound_end(&self.map[*start..*end], &self.signatures);
                }
                (chunk_kind::CALLS, Body::Owned(bytes)) => {
                    bytes.truncate(sound_end(bytes, &self.signatures));
                }
                _ => return,
            }
        }
        let index = self.chunks.len();
        self.chunks.push(Chunk::new(head, position as u64, body));
        if let Err(what) = self.register(index) {
            self.damaged(position as u64, what);
        }
    }

    pub(crate) fn register(&mut self, index: usize) -> Result<(), String> {
        let head = self.chunks[index].head;
        match head.kind {
            chunk_kind::META => {
                let entries: Vec<(String, String)> =
                    self.decode_body(index, "program and machine")?;
                self.meta.extend(entries);
            }
            chunk_kind::SIGNATURES => {
                let text = std::str::from_utf8(self.body(index))
                    .map_err(|_| "the signature table is not text".to_owned())?;
                self.signatures = Signatures::parse(text)?;
            }
            chunk_kind::CALLS => {
                self.growth.taken += 1;
                let thread = head.thread as usize;
                let growing = self.growing();
                if thread > 1 << 20 {
                    return Err(format!("a chunk names thread {thread}"));
                }
                if self.threads.len() <= thread {
                    self.threads.resize(thread + 1, Vec::new());
                }
                let chunks = &self.chunks;
                let list = &mut self.threads[thread];
                let at = list.partition_point(|&other| chunks[other].head.sequence < head.sequence);
                let next = list.get(at).map(|&other| chunks[other].head.sequence);
                // The records that a stage has had until now, which a cursor may have begun to read.
                if let Some(&staged) = list.get(at)
                    && next == Some(head.sequence)
                    && let Some(stage) = self.stages.iter_mut().find(|s| s.chunk == Some(staged))
                {
                    stage.chunk = None;
                    self.chunks.swap_remove(staged);
                    return Ok(());
                }
                // A cursor of a growing trace may have passed this place.
                if next == Some(head.sequence) || next.is_some() && growing {
                    return Err(format!("calls of thread {thread} are out of order"));
                }
                list.insert(at, index);
            }
            chunk_kind::BLOB => {
                let name = if self.packed() {
                    head.first
                } else {
                    self.chunks[index].position
                };
                self.blobs.insert(name, index);
            }
            chunk_kind::MAPS => {
                let mappings: Vec<StoredMapping> = self.decode_body(index, "the memory map")?;
                self.mappings
                    .extend(mappings.into_iter().map(Mapping::from));
            }
            chunk_kind::SYMBOLS => {
                let symbols: Vec<Symbol> = self.decode_body(index, "the symbols")?;
                self.symbols.extend(
                    symbols
                        .into_iter()
                        .map(|symbol| (symbol.address, symbol.text)),
                );
            }
            chunk_kind::CALL_COUNTS => {
                let entries: Vec<CallsEntry> = self.decode_body(index, "the number of calls")?;
                self.counts.extend(entries);
            }
            chunk_kind::INDEX => {
                let entries: Vec<IndexEntry> = self.decode_body(index, "the index")?;
                for entry in &entries {
                    // A blob follows the calls and precedes the index.
                    let at = self
                        .chunks
                        .partition_point(|chunk| chunk.position < entry.position);
                    if self.chunks.get(at).is_some_and(|chunk| {
                        chunk.position == entry.position && chunk.head.kind == chunk_kind::BLOB
                    }) {
                        self.blobs
                            .extend(entry.names.iter().map(|&name| (name, at)));
                    }
                }
                self.index.extend(entries);
            }
            _ => {}
        }
        Ok(())
    }

    fn decode_body<T: Decode<()>>(&self, index: usize, what: &str) -> Result<T, String> {
        codec::decode(self.body(index))
            .map(|(value, _)| value)
            .ok_or_else(|| format!("{what} cannot be read"))
    }
}

fn chunk_name(kind: u16) -> &'static str {
    match kind {
        chunk_kind::META => "what is known of program and machine",
        chunk_kind::SIGNATURES => "the signature table",
        chunk_kind::CALLS => "a chunk of calls",
        chunk_kind::BLOB => "a blob",
        chunk_kind::MAPS => "the memory map",
        chunk_kind::SYMBOLS => "the symbols",
        chunk_kind::INDEX => "the index",
        chunk_kind::THREAD_BUFFER => "a stage",
        chunk_kind::CALL_COUNTS => "the number of calls",
        chunk_kind::CONTROL => "what the recorder shares",
        _ => "a chunk of a later version",
    }
}
