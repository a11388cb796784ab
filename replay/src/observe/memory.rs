//! Finds the memory to read, and reads it.

use cutape_registry::Kind;

use crate::api::{Api, Code, result_name};
use crate::buffer::number;
use crate::compare::received::append_memory;
use crate::issue::player::Player;
use crate::observe::job::{MemoryKind, ObservedMemory, Piece};
use crate::observe::pages::Pages;
use crate::place::address::Range;
use crate::place::mapped::Mapped;

/// Bytes that are read at a time, a multiple of the page.
const CHUNK: usize = 4 << 20;

/// Live memory.
#[derive(Clone, Debug)]
pub(super) struct Region {
    pub(super) recorded: u64,
    pub(super) live: u64,
    pub(super) length: u64,
    pub(super) kind: MemoryKind,
    pub(super) name: String,
    pub(super) made: u64,
    /// The live context in which it can be read; 0: any.
    context: u64,
    is_of_module: bool,
}

impl Region {
    fn of(range: &Range) -> Option<Self> {
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
            is_of_module: false,
        })
    }

    /// A variable of a module that is loaded in the current context.
    pub(super) fn variable(name: &str, (live, length): (u64, u64), made: u64) -> Self {
        Self {
            recorded: live,
            live,
            length,
            kind: MemoryKind::Variable,
            name: name.to_owned(),
            made,
            context: 0,
            is_of_module: true,
        }
    }

    /// It was found by its name in a module.
    pub(super) fn is_of_module(&self) -> bool {
        self.is_of_module
    }

    /// Both are the same memory, at different times.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let place = |region: &Self| (region.live, region.length, region.made);
        place(self) == place(other)
    }

    /// The end of its live addresses.
    fn end(&self) -> u64 {
        self.live.saturating_add(self.length)
    }

    /// The entry of the result, without contents.
    pub(super) fn entry(&self) -> ObservedMemory {
        ObservedMemory {
            recorded: self.recorded,
            live: self.live,
            length: self.length,
            kind: self.kind,
            name: self.name.clone(),
            made: self.made,
            ..ObservedMemory::default()
        }
    }

    fn read(&self, api: &Api, offset: u64, bytes: &mut Vec<u8>, count: usize) -> Result<(), Code> {
        bytes.clear();
        let address = self.live.wrapping_add(offset);
        if self.kind == MemoryKind::Host {
            append_memory(bytes, address, count);
            return Ok(());
        }
        bytes.resize(count, 0);
        match self.context {
            0 => api.read_device(address, bytes),
            context => api.in_context(context, |api| api.read_device(address, bytes)),
        }
    }

    /// Describes it for a message.
    pub(super) fn describe(&self) -> String {
        let what = match self.kind {
            MemoryKind::Variable => format!("variable {}", self.name),
            _ => format!("memory of {} at call {}", self.name, self.made),
        };
        format!("{what}, {:#x}, {} bytes", self.recorded, self.length)
    }
}

/// All live memory, sorted by live address. Mapped memory in one piece is one region.
pub(super) fn all_live(player: &Player<'_>, mapped: &Mapped) -> Vec<Region> {
    let mut regions: Vec<Region> = player.ranges.all_live().filter_map(Region::of).collect();
    for region in &mut regions {
        if !player.handles.is_taken(Kind::Context, region.context) {
            region.context = 0;
        }
    }
    let mut last: Option<usize> = None;
    for (recorded, length, made) in mapped.pieces() {
        let live = player.ranges.translate(recorded);
        if let Some(before) = last.and_then(|last| regions.get_mut(last))
            && (before.recorded + before.length, before.end()) == (recorded, live)
        {
            before.length += length;
            continue;
        }
        last = Some(regions.len());
        regions.push(Region {
            recorded,
            live,
            length,
            kind: MemoryKind::Mapped,
            name: "cuMemMap".to_owned(),
            made,
            context: 0,
            is_of_module: false,
        });
    }
    regions.sort_by_key(|region| region.live);
    regions
}

/// Which of the regions words point into.
#[derive(Debug)]
pub(super) struct Reached<'a> {
    /// Sorted by live address.
    regions: &'a [Region],
    span: (u64, u64),
    found: Vec<bool>,
}

impl<'a> Reached<'a> {
    /// None yet.
    pub(super) fn new(regions: &'a [Region]) -> Self {
        let first = regions.first().map_or(0, |region| region.live);
        let end = regions.iter().map(Region::end).max().unwrap_or(0);
        Self {
            regions,
            span: (first, end),
            found: vec![false; regions.len()],
        }
    }

    /// The region that an address lies in.
    pub(super) fn find(&self, address: u64) -> Option<usize> {
        if !(self.span.0..self.span.1).contains(&address) {
            return None;
        }
        let behind = self
            .regions
            .partition_point(|region| region.live <= address);
        // A managed variable lies in two regions; a longer one may begin earlier.
        let candidates = self.regions.get(..behind)?.iter().enumerate().rev().take(2);
        let inside = |&(_, region): &(usize, &Region)| address < region.end();
        candidates.into_iter().find(inside).map(|found| found.0)
    }

    /// Adds what 8-byte words at multiples of `step` point into.
    pub(super) fn add(&mut self, bytes: &[u8], step: usize) {
        for word in bytes.windows(8).step_by(step) {
            if let Some(at) = self.find(number(word))
                && let Some(found) = self.found.get_mut(at)
            {
                *found = true;
            }
        }
    }

    /// The numbers of the regions that were found.
    pub(super) fn numbers(&self) -> Vec<usize> {
        let found = self.found.iter().enumerate();
        found
            .filter(|(_, found)| **found)
            .map(|(at, _)| at)
            .collect()
    }
}

/// Where contents go.
pub(super) struct Reader<'a> {
    pub(super) api: &'a Api,
    pub(super) pages: &'a mut Pages,
    pub(super) buffer: &'a mut Vec<u8>,
    pub(super) most_bytes: u64,
}

impl Reader<'_> {
    /// Reads a region into the file. `look` sees its bytes, a chunk at a time. All work must be
    /// done.
    ///
    /// # Errors
    /// Why it was not read, in a phrase.
    pub(super) fn read(
        &mut self,
        region: &Region,
        mut look: impl FnMut(&[u8]),
    ) -> Result<Vec<Piece>, String> {
        let mut pieces = Vec::new();
        let mut offset = 0;
        while offset < region.length {
            if self.pages.length >= self.most_bytes {
                return Err(format!(
                    "the limit of {} bytes for contents is reached",
                    self.most_bytes
                ));
            }
            let count = (region.length - offset).min(CHUNK as u64);
            region
                .read(self.api, offset, self.buffer, count as usize)
                .map_err(|code| format!("reading it returned {}", result_name(code)))?;
            look(self.buffer);
            self.pages
                .add(offset, self.buffer, &mut pieces)
                .map_err(|error| format!("its contents cannot be written: {error}"))?;
            offset += count;
        }
        Ok(pieces)
    }

    /// A hash of the contents of a region.
    pub(super) fn hash(&mut self, region: &Region) -> Result<blake3::Hash, Code> {
        let mut hasher = blake3::Hasher::new();
        let mut offset = 0;
        while offset < region.length {
            let count = (region.length - offset).min(CHUNK as u64);
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

    #[test]
    fn words_reach_the_regions_that_they_point_into() {
        let region = |live, length| Region::variable("v", (live, length), 0);
        let regions = [region(0x1000, 0x100), region(0x2000, 8), region(0x3000, 1)];
        for (words, step, expected) in [
            (&[0u64, 0xfff, 0x1100][..], 8, &[][..]),
            (&[0x10ff, 5], 8, &[0]),
            (&[0x3000, 0x2007, 0x3001], 8, &[1, 2]),
            // Between two words.
            (&[0x2000 << 32, 0], 8, &[]),
            (&[0x2000 << 32, 0], 4, &[1]),
        ] {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let mut reached = Reached::new(&regions);
            reached.add(&bytes, step);
            assert_eq!(reached.numbers(), expected, "{words:x?} {step}");
        }
        let mut none = Reached::new(&[]);
        none.add(&[0; 16], 8);
        assert_eq!(none.numbers(), Vec::<usize>::new());
    }
}
