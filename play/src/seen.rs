//! The content of memory that host and device share, as the program had it when the recorder had last
//! looked there: what differs from it now, the program has written since.

use std::ops::Range;

use cutape_model::ObjectId;
use rustc_hash::FxHashMap;

use crate::history::{Look, Memory, Part, WORD, Written};
use crate::memory;
use crate::values::MissingBytes;

/// An allocation of the program.
struct Content {
    start: u64,
    /// Where it is in the recording.
    recorded: u64,
    bytes: Vec<u8>,
    words: Vec<Word>,
}

/// What has been written to a word.
#[derive(Clone, Default)]
struct Word {
    /// The last recorded call whose work has written there, of those whose bytes the player has.
    writer: u64,
    /// When the recorder had found what was put there last, in ticks.
    found: u64,
}

/// By allocation of the recording.
#[derive(Default)]
pub(crate) struct Seen(FxHashMap<ObjectId, Content>);

impl Seen {
    /// The content of an allocation, of which an address of the recording is `live` in the program.
    fn content(&mut self, memory: &Memory, address: u64, live: u64) -> Option<&mut Content> {
        let start = live.checked_sub(address.checked_sub(memory.addresses.start)?)?;
        let length = memory.addresses.end.checked_sub(memory.addresses.start)?;
        if self
            .0
            .get(&memory.id)
            .is_none_or(|known| known.start != start)
        {
            // An earlier allocation there has ended.
            self.0.retain(|_, known| !overlaps(known, start, length));
            let bytes = memory::read(start, length as usize)?;
            let words = vec![Word::default(); bytes.len().div_ceil(WORD as usize)];
            let content = Content {
                start,
                recorded: memory.addresses.start,
                bytes,
                words,
            };
            self.0.insert(memory.id, content);
        }
        self.0.get_mut(&memory.id)
    }

    /// The recorder looked there before a call, which the program makes now; where that is in the
    /// program.
    pub(crate) fn look(&mut self, look: &Look, live: u64) {
        let length = look.bytes.bytes.length().unwrap_or(0);
        if let Some(content) = self.content(&look.memory, look.address, live) {
            content.read(live, length);
        }
    }

    /// The program enqueues work that may write there, in the recording: what is there now, is from
    /// before it.
    pub(crate) fn begin(&mut self, addresses: &Range<u64>) {
        let length = addresses.end.saturating_sub(addresses.start);
        for content in self.0.values_mut() {
            let moved = content.start.wrapping_sub(content.recorded);
            content.read(addresses.start.wrapping_add(moved), length);
        }
    }

    /// Puts what the device has written and the program has not; where the start of the memory is in
    /// the program. False if some of it cannot be read or written.
    pub(crate) fn put(&mut self, written: &Written, start: u64) -> bool {
        let from = written.memory.addresses.start;
        let Some(content) = self.content(&written.memory, from, start) else {
            return false;
        };
        let mut is_put = true;
        for part in &written.parts {
            is_put &= content.put(part, part.address.wrapping_sub(from), written.call);
        }
        is_put
    }

    /// The same; an error if some of it cannot be read or written.
    pub(crate) fn put_all(&mut self, written: &Written, start: u64) -> Result<(), MissingBytes> {
        match (&written.missing, self.put(written, start)) {
            (Some(why), _) => Err(MissingBytes(why.clone())),
            (None, true) => Ok(()),
            (None, false) => Err(MissingBytes(format!(
                "the program's memory at {start:#x} cannot be written"
            ))),
        }
    }

    /// Work of the device has written there, that of a recorded call.
    pub(crate) fn wrote(&mut self, address: u64, length: u64, call: u64) {
        for content in self.0.values_mut() {
            if overlaps(content, address, length) {
                content.read(address, length);
                let from = address.saturating_sub(content.start) / WORD;
                let end = address.saturating_add(length).saturating_sub(content.start);
                let words = from as usize..(end.div_ceil(WORD) as usize).min(content.words.len());
                let words = content.words.get_mut(words).unwrap_or_default();
                for word in words {
                    // What was put there before, is gone.
                    word.found = 0;
                    word.writer = call.max(word.writer);
                }
            }
        }
    }
}

fn overlaps(content: &Content, address: u64, length: u64) -> bool {
    let end = content.start.saturating_add(content.bytes.len() as u64);
    content.start < address.saturating_add(length) && address < end
}

impl Content {
    /// Puts a part that the work of a call has written at an offset, word by word; not over what the
    /// work of a later call has written or the recorder has found later, and not again: what differs
    /// then, the program has written.
    fn put(&mut self, part: &Part, offset: u64, call: u64) -> bool {
        let Part {
            address,
            ref bytes,
            found,
        } = *part;
        let live = self.start.wrapping_add(offset);
        let known = self.bytes.get_mut(offset as usize..);
        let known = known.and_then(|known| known.get_mut(..bytes.len()));
        let (Some(now), Some(known)) = (memory::read(live, bytes.len()), known) else {
            return false;
        };
        let mut parts: Vec<Range<usize>> = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let end = at + (WORD - (address + at as u64) % WORD) as usize;
            let word = at..end.min(bytes.len());
            at = word.end;
            let state = self
                .words
                .get_mut((offset as usize + word.start) / WORD as usize);
            let is_last = |state: &Word| state.writer <= call && state.found < found;
            let is_last = state.as_deref().is_none_or(is_last);
            let (Some(old), Some(new), Some(there)) = (
                known.get_mut(word.clone()),
                bytes.get(word.clone()),
                now.get(word.clone()),
            ) else {
                return false;
            };
            if !is_last {
                continue;
            }
            if let Some(state) = state {
                state.found = found;
            }
            // Else the program has written there since.
            if there == old && there != new {
                match parts.last_mut() {
                    Some(last) if last.end == word.start => last.end = word.end,
                    _ => parts.push(word),
                }
            }
            // The recorder knew it then.
            old.copy_from_slice(new);
        }
        // Another thread may write what is between them.
        let mut parts = parts.into_iter();
        parts.all(|part| {
            let address = live.wrapping_add(part.start as u64);
            bytes
                .get(part)
                .is_some_and(|bytes| memory::write(address, bytes))
        })
    }

    /// Reads that part of it again.
    fn read(&mut self, address: u64, length: u64) {
        let end = self.start.saturating_add(self.bytes.len() as u64);
        let from = address.max(self.start);
        let end = address.saturating_add(length).min(end);
        let range = from.wrapping_sub(self.start) as usize..end.wrapping_sub(self.start) as usize;
        if let Some(part) = self.bytes.get_mut(range)
            && let Some(now) = memory::read(from, part.len())
        {
            part.copy_from_slice(&now);
        }
    }
}
