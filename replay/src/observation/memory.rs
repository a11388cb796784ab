//! Finds the memory to read, and reads it.

use std::collections::BTreeMap;
use std::io::ErrorKind;

use cutape_registry::Kind;

use crate::api::buffer::number;
use crate::api::{Api, Code, result_name};
use crate::compare::received::append_memory;
use crate::observation::job::{ArrayShape, MemoryKind, ObservedMemory, Piece, WatchedRange};
use crate::observation::pages::{PAGE, Pages};
use crate::place::address::Range;
use crate::process::position::Counters;
use crate::process::slots::{gaps, union};

/// Bytes that are read at a time, a multiple of the page.
const CHUNK: usize = 4 << 20;

/// Live memory.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    pub(crate) recorded: u64,
    pub(crate) live: u64,
    pub(crate) length: u64,
    pub(crate) kind: MemoryKind,
    pub(crate) name: String,
    pub(crate) made: u64,
    /// The live context in which it can be read; 0: any.
    pub(crate) context: u64,
    /// Of an array: its shape.
    pub(crate) array: Option<ArrayShape>,
    is_of_launch: bool,
}

impl Region {
    pub(crate) fn of(range: &Range) -> Option<Self> {
        let kind = match range.kind {
            Kind::Memory if range.is_managed() => MemoryKind::Managed,
            Kind::Memory => MemoryKind::Device,
            Kind::Global => MemoryKind::Variable,
            Kind::HostMemory | Kind::Registration => MemoryKind::Host,
            _ => return None,
        };
        (range.length > 0).then(|| Self {
            recorded: range.start,
            live: range.live,
            length: range.length,
            kind,
            name: range.made_by.name.to_owned(),
            made: range.made,
            context: range.context,
            array: None,
            is_of_launch: false,
        })
    }

    /// A variable of a module that is loaded in the current context.
    pub(crate) fn variable(name: &str, (live, length): (u64, u64), made: u64) -> Self {
        Self {
            recorded: live,
            live,
            length,
            kind: MemoryKind::Variable,
            name: name.to_owned(),
            made,
            context: 0,
            array: None,
            is_of_launch: true,
        }
    }

    /// An array or mipmapped array, by its live handle.
    pub(crate) fn array(live: u64, shape: ArrayShape) -> Self {
        Self {
            recorded: live,
            live,
            length: shape.bytes(),
            kind: MemoryKind::Array,
            name: "array".to_owned(),
            made: 0,
            context: 0,
            array: Some(shape),
            is_of_launch: true,
        }
    }

    /// It was found through the kernel or the parameters of a launch, and not through a call that
    /// allocated it.
    pub(crate) fn is_of_launch(&self) -> bool {
        self.is_of_launch
    }

    /// It lies in that memory, which was allocated by the same call. Mapped memory begins with another
    /// call when its first part is unmapped.
    pub(crate) fn is_in(&self, other: &Self) -> bool {
        let are_mapped = [self, other].map(|region| region.kind) == [MemoryKind::Mapped; 2];
        (are_mapped || self.made == other.made)
            && self.live >= other.live
            && self.end() <= other.end()
    }

    /// The part between two live addresses.
    pub(crate) fn part(&self, start: u64, end: u64) -> Self {
        Self {
            recorded: self.recorded.wrapping_add(start.wrapping_sub(self.live)),
            live: start,
            length: end.saturating_sub(start),
            ..self.clone()
        }
    }

    /// Whether a recorded range begins in it.
    pub(crate) fn has(&self, range: WatchedRange) -> bool {
        let end = self.recorded.saturating_add(self.length);
        (self.recorded..end).contains(&range.address)
    }

    /// The part that a recorded range has, which begins in it.
    pub(crate) fn of_range(&self, range: WatchedRange) -> Self {
        let start = self.live + (range.address - self.recorded);
        self.part(start, start.saturating_add(range.length).min(self.end()))
    }

    /// Memory that is mapped into a reservation.
    pub(crate) fn mapped((recorded, live): (u64, u64), length: u64, made: u64) -> Self {
        Self {
            recorded,
            live,
            length,
            kind: MemoryKind::Mapped,
            name: "cuMemMap".to_owned(),
            made,
            context: 0,
            array: None,
            is_of_launch: false,
        }
    }

    /// The end of its live addresses.
    pub(crate) fn end(&self) -> u64 {
        self.live.saturating_add(self.length)
    }

    /// The entry of the result, without contents.
    pub(crate) fn entry(&self) -> ObservedMemory {
        ObservedMemory {
            recorded: self.recorded,
            live: self.live,
            length: self.length,
            kind: self.kind,
            name: self.name.clone(),
            made: self.made,
            array: self.array,
            is_of_module: self.is_of_launch && self.kind == MemoryKind::Variable,
            ..ObservedMemory::default()
        }
    }

    /// Bytes that are read at once from an offset on.
    fn chunk(&self, offset: u64) -> u64 {
        match &self.array {
            Some(shape) => shape.bytes_at(offset),
            None => (self.length - offset).min(CHUNK as u64),
        }
    }

    /// Reads so many bytes from an offset on.
    pub(crate) fn read(
        &self,
        api: &Api,
        offset: u64,
        bytes: &mut Vec<u8>,
        count: usize,
    ) -> Result<(), Code> {
        bytes.clear();
        let address = self.live.wrapping_add(offset);
        if self.kind == MemoryKind::Host {
            append_memory(bytes, address, count);
            return Ok(());
        }
        bytes.resize(count, 0);
        if let Some(shape) = &self.array {
            return api.read_array(self.live, shape, offset, bytes);
        }
        match self.context {
            0 => api.read_device(address, bytes),
            context => api.in_context(context, |api| api.read_device(address, bytes)),
        }
    }

    /// Writes bytes to its start, which must not be more than it has. All work must be done.
    pub(crate) fn write(&self, api: &Api, bytes: &[u8]) -> Result<(), Code> {
        if self.kind == MemoryKind::Host {
            let count = bytes.len().min(self.length as usize);
            // SAFETY: a live range of host memory covers the region, which stays mapped while the
            // range lives; no work is in flight that uses it.
            unsafe {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.live as *mut u8, count);
            }
            return Ok(());
        }
        match self.context {
            0 => api.write_device(self.live, bytes),
            context => api.in_context(context, |api| api.write_device(self.live, bytes)),
        }
    }

    /// Describes it for a message.
    pub(crate) fn describe(&self) -> String {
        let what = match self.kind {
            MemoryKind::Variable => format!("variable {}", self.name),
            MemoryKind::Array => return format!("an array of {} bytes", self.length),
            _ => format!("memory of {} at call {}", self.name, self.made),
        };
        format!("{what}, {:#x}, {} bytes", self.recorded, self.length)
    }
}

/// Most parts of long regions that words in memory can add: numbers may look like addresses.
const MOST_PARTS: usize = 16;
/// Addresses in memory that point into a long region are multiples of this: allocators give none
/// other.
const ALIGNMENT: u64 = 16;

/// The parts of regions that words point into: all of a region, or of a long one what follows the
/// address.
#[derive(Debug)]
pub(crate) struct Reached<'a> {
    /// Sorted by live address.
    regions: &'a [Region],
    longest: u64,
    span: (u64, u64),
    /// Live addresses of first byte and end, by the number of the region.
    parts: BTreeMap<usize, Vec<(u64, u64)>>,
    /// Of long regions.
    long_parts: usize,
}

/// The region of a list, sorted by live address, that a live address lies in, and its number. The
/// span is from the first region's start to the last one's end.
pub(crate) fn region_at(
    regions: &[Region],
    span: (u64, u64),
    address: u64,
) -> Option<(usize, &Region)> {
    if !(span.0..span.1).contains(&address) {
        return None;
    }
    let behind = regions.partition_point(|region| region.live <= address);
    let number = behind.checked_sub(1)?;
    let region = regions.get(number)?;
    (address < region.end()).then_some((number, region))
}

impl<'a> Reached<'a> {
    /// None yet.
    pub(crate) fn new(regions: &'a [Region], longest: u64) -> Self {
        let first = regions.first().map_or(0, |region| region.live);
        let end = regions.iter().map(Region::end).max().unwrap_or(0);
        Self {
            regions,
            longest,
            span: (first, end),
            parts: BTreeMap::new(),
            long_parts: 0,
        }
    }

    /// The region that an address lies in, and its number.
    fn find(&self, address: u64) -> Option<(usize, &'a Region)> {
        region_at(self.regions, self.span, address)
    }

    /// Adds what the 8-byte words of parameters (`step` 4) or memory (`step` 8) point into.
    pub(crate) fn add(&mut self, bytes: &[u8], step: usize) {
        for word in bytes.windows(8).step_by(step).map(number) {
            // Numbers may look like addresses.
            let is_doubtful = step == 8 && !word.is_multiple_of(ALIGNMENT);
            self.add_part(word, is_doubtful);
        }
    }

    /// Adds what an address points into; false if that is nothing.
    pub(crate) fn add_address(&mut self, address: u64) -> bool {
        self.add_part(address, false);
        self.find(address).is_some()
    }

    fn add_part(&mut self, address: u64, is_doubtful: bool) {
        let Some((number, region)) = self.find(address) else {
            return;
        };
        let parts = self.parts.entry(number).or_default();
        if region.length <= self.longest {
            if parts.is_empty() {
                parts.push((region.live, region.end()));
            }
            return;
        }
        let is_known = |&(start, end): &(u64, u64)| (start..end).contains(&address);
        if parts.iter().any(is_known) || is_doubtful || self.long_parts >= MOST_PARTS {
            return;
        }
        self.long_parts += 1;
        let start = address - (address - region.live) % PAGE as u64;
        let end = address.saturating_add(self.longest).min(region.end());
        parts.push((start, end));
    }

    /// The parts, as regions.
    pub(crate) fn parts(&self) -> Vec<Region> {
        self.parts_besides(&[])
    }

    /// The parts of parts that none of these has.
    pub(crate) fn parts_besides(&self, known: &[Region]) -> Vec<Region> {
        let mut found = Vec::new();
        for (&number, parts) in &self.parts {
            let Some(region) = self.regions.get(number) else {
                continue;
            };
            let covered = union(
                known
                    .iter()
                    .map(|known| (known.live, known.end()))
                    .collect(),
            );
            for part in union(parts.clone()) {
                for (start, end) in gaps(part, covered.iter().copied()) {
                    found.push(region.part(start, end));
                }
            }
        }
        found
    }
}

/// Where contents go.
pub(crate) struct Reader<'a> {
    pub(crate) api: &'a Api,
    pub(crate) pages: &'a mut Pages,
    pub(crate) buffer: &'a mut Vec<u8>,
    /// Where the replay is, for the watchdog.
    pub(crate) position: Option<&'a Counters>,
}

impl Reader<'_> {
    /// Reads a region into the file. `look` sees its bytes, a chunk at a time, with their
    /// offset, and may change them. All work must be done.
    ///
    /// # Errors
    /// Why it was not read, in a phrase.
    pub(crate) fn read(
        &mut self,
        region: &Region,
        mut look: impl FnMut(u64, &mut [u8]),
    ) -> Result<Vec<Piece>, String> {
        let mut pieces = Vec::new();
        let mut offset = 0;
        while offset < region.length {
            let count = region.chunk(offset);
            region
                .read(self.api, offset, self.buffer, count as usize)
                .map_err(|code| format!("reading it returned {}", result_name(code)))?;
            look(offset, self.buffer);
            self.pages
                .add(offset, self.buffer, &mut pieces)
                .map_err(|error| match error.kind() {
                    ErrorKind::FileTooLarge => error.to_string(),
                    _ => format!("its contents cannot be written: {error}"),
                })?;
            offset += count;
            if let Some(position) = self.position {
                position.step();
            }
        }
        Ok(pieces)
    }

    /// A hash of the contents of a region.
    pub(crate) fn hash(&mut self, region: &Region) -> Result<blake3::Hash, Code> {
        let mut hasher = blake3::Hasher::new();
        let mut offset = 0;
        while offset < region.length {
            let count = region.chunk(offset);
            region.read(self.api, offset, self.buffer, count as usize)?;
            hasher.update(self.buffer);
            offset += count;
        }
        Ok(hasher.finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(live: u64, length: u64) -> Region {
        Region::variable("v", (live, length), 0)
    }

    fn places(parts: &[Region]) -> Vec<(u64, u64)> {
        parts.iter().map(|part| (part.live, part.length)).collect()
    }

    fn bytes_of(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn words_reach_the_regions_that_they_point_into() {
        let regions = [region(0x1000, 0x100), region(0x2000, 8), region(0x3000, 1)];
        let [first, second, third] = [(0x1000, 0x100), (0x2000, 8), (0x3000, 1)];
        for (words, step, expected) in [
            (&[0u64, 0xfff, 0x1100][..], 8, &[][..]),
            (&[0x10ff, 5, 0x1000], 8, &[first]),
            (&[0x3000, 0x2007, 0x3001], 8, &[second, third]),
            // Between two words.
            (&[0x2000 << 32, 0], 8, &[]),
            (&[0x2000 << 32, 0], 4, &[second]),
        ] {
            let mut reached = Reached::new(&regions, 1 << 20);
            reached.add(&bytes_of(words), step);
            assert_eq!(places(&reached.parts()), expected, "{words:x?} {step}");
        }
        let mut none = Reached::new(&[], 1 << 20);
        none.add(&[0; 16], 8);
        assert!(none.parts().is_empty());
    }

    #[test]
    fn of_long_regions_only_what_follows_an_address_is_reached() {
        let (at, longest, page) = (1 << 40, 0x10_0000, PAGE as u64);
        let regions = [region(at, 1 << 36)];
        let reached = |words: &[u64], step| {
            let mut reached = Reached::new(&regions, longest);
            reached.add(&bytes_of(words), step);
            reached
        };
        for (words, step, expected) in [
            (vec![at + 8], 4, vec![(at, longest + 8)]),
            // Addresses in memory are aligned, and not too many.
            (vec![at + 8], 8, vec![]),
            (
                vec![at + page, at + page + 16],
                8,
                vec![(at + page, longest)],
            ),
            // Parts that overlap, and the end of the region.
            (
                vec![at + longest / 2, at],
                4,
                vec![(at, longest / 2 + longest)],
            ),
            (
                vec![at + (1 << 36) - 1],
                4,
                vec![(at + (1 << 36) - page, page)],
            ),
        ] {
            assert_eq!(
                places(&reached(&words, step).parts()),
                expected,
                "{words:x?}"
            );
        }
        let many: Vec<u64> = (0..100).map(|number| at + number * 2 * longest).collect();
        assert_eq!(reached(&many, 8).parts().len(), MOST_PARTS);
        // What is read already is not read again.
        let known = reached(&[at], 4).parts();
        let besides = reached(&[at + longest / 2], 8).parts_besides(&known);
        assert_eq!(places(&besides), [(at + longest, longest / 2)]);
    }
}
