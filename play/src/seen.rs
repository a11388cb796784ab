//! The content of memory that host and device share, as the program had it when the recorder had last
//! looked there: what differs from it now, the program has written since.

use std::ops::Range;

use cutape_model::ObjectId;
use rustc_hash::FxHashMap;

use crate::memory;
use crate::recorded_memory::Look;

/// An allocation of the program.
struct Content {
    start: u64,
    bytes: Vec<u8>,
}

/// By allocation of the recording.
#[derive(Default)]
pub(crate) struct Seen(FxHashMap<ObjectId, Content>);

impl Seen {
    /// The content of the allocation that a look is of, whose address in the program is `live`.
    fn content(&mut self, look: &Look, live: u64) -> Option<&mut Content> {
        let start = live.checked_sub(look.address.checked_sub(look.around.start)?)?;
        let length = look.around.end.checked_sub(look.around.start)?;
        if self
            .0
            .get(&look.memory)
            .is_none_or(|known| known.start != start)
        {
            // An earlier allocation there has ended.
            self.0.retain(|_, known| !overlaps(known, start, length));
            let bytes = memory::read(start, length as usize)?;
            self.0.insert(look.memory, Content { start, bytes });
        }
        self.0.get_mut(&look.memory)
    }

    /// The recorder looked there before a call, which the program makes now.
    pub(crate) fn look(&mut self, look: &Look, live: u64) {
        let length = look.bytes.bytes.length().unwrap_or(0);
        if let Some(content) = self.content(look, live) {
            content.read(live, length);
        }
    }

    /// Puts words that the device has written by that look, which are those of it that have changed and
    /// that the program has not written; false if some of it cannot be written.
    pub(crate) fn put(
        &mut self,
        (look, words): (&Look, &[Range<usize>]),
        live: u64,
        bytes: &[u8],
    ) -> bool {
        let Some(content) = self.content(look, live) else {
            return words.is_empty();
        };
        let Some(now) = memory::read(live, bytes.len()) else {
            return words.is_empty();
        };
        let offset = live.wrapping_sub(content.start) as usize;
        let known = content.bytes.get(offset..).unwrap_or_default();
        let is_unchanged =
            |word: &&Range<usize>| now.get((*word).clone()) == known.get((*word).clone());
        let mut is_put = true;
        for word in words.iter().filter(is_unchanged) {
            if let Some(part) = bytes.get(word.clone()) {
                is_put &= memory::write(live.wrapping_add(word.start as u64), part);
            }
        }
        content.read(live, bytes.len() as u64);
        is_put
    }

    /// Work of the device has written there.
    pub(crate) fn wrote(&mut self, address: u64, length: u64) {
        for content in self.0.values_mut() {
            if overlaps(content, address, length) {
                content.read(address, length);
            }
        }
    }
}

fn overlaps(content: &Content, address: u64, length: u64) -> bool {
    let end = content.start.saturating_add(content.bytes.len() as u64);
    content.start < address.saturating_add(length) && address < end
}

impl Content {
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
