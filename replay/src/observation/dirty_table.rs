//! The table of pages in a context's memory, see `cutape_driver::dirty`: what is known of each page
//! since it was last looked at.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use cutape_driver::dirty::{self, HEADER_WORDS, Header, PAGE, PAGE_WORDS, Page};
use cutape_registry::id;

use crate::api::{Api, Code, Location};

const HEADER_BYTES: u64 = HEADER_WORDS as u64 * 8;
const PAGE_BYTES: u64 = PAGE_WORDS as u64 * 8;
/// Reserved addresses of a table: enough for 256 GiB of memory.
const RESERVED: u64 = 1 << 30;
/// Where tables go: far from what the recorded process had mapped, and from what the driver places
/// by itself (assumed).
const PLACE: u64 = 0x1000_0000_0000;
/// The unit of physical memory.
const GRANULE: u64 = 2 << 20;
/// The most blocks of a launch: each looks at several pages then.
const BLOCKS: u64 = 4096;
/// CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN.
const OUT_OF_MEMORY: Code = 2;
const UNKNOWN: Code = 999;

/// A table. All its calls need its context to be current, and all work to be done.
#[derive(Debug)]
pub(crate) struct Table {
    function: u64,
    device: i32,
    address: u64,
    mapped: u64,
    /// What the header held after the last look.
    header: Header,
    /// Pages that have a place, used or not.
    pages: u64,
    /// Unused places: position and how many.
    unused: BTreeMap<u64, u64>,
}

/// What a look has found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Found {
    /// By type, how many pages are hit, and which is the first.
    pub(crate) hits: [(u64, u64); 4],
    /// Pages that have changed.
    pub(crate) pages: u64,
    /// See [`Header::written`].
    pub(crate) written: u64,
}

/// The tables of live contexts.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    by_context: HashMap<u64, Table>,
    /// The bits that are hits.
    ranges: [dirty::Bits; 4],
    /// How many tables were made.
    made: u64,
}

impl Tables {
    pub(crate) fn new(ranges: [dirty::Bits; 4]) -> Self {
        Self {
            ranges,
            ..Self::default()
        }
    }

    /// That of the current context.
    ///
    /// # Errors
    /// As [`Table::new`].
    pub(crate) fn make(&mut self, api: &Api, context: u64) -> Result<&mut Table, Code> {
        let table = match self.by_context.remove(&context) {
            Some(table) => table,
            None => {
                let table = Table::new(api, self.made, self.ranges)?;
                self.made += 1;
                table
            }
        };
        Ok(self.by_context.entry(context).or_insert(table))
    }

    pub(crate) fn get(&mut self, context: u64) -> Option<&mut Table> {
        self.by_context.get_mut(&context)
    }

    pub(crate) fn iter(&mut self) -> impl Iterator<Item = (u64, &mut Table)> {
        let tables = self.by_context.iter_mut();
        tables.map(|(&context, table)| (context, table))
    }

    /// Forgets those of other contexts.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(u64) -> bool) {
        self.by_context.retain(|&context, _| is_kept(context));
    }
}

impl Table {
    /// Makes an empty table in the current context, and tries the kernel.
    ///
    /// # Errors
    /// The driver refuses a call, or the kernel does not find what the CPU finds.
    pub(crate) fn new(api: &Api, number: u64, ranges: [dirty::Bits; 4]) -> Result<Self, Code> {
        let module = api.load_module(dirty::PTX.as_ptr() as u64)?;
        let mut table = Self {
            function: api.function(module, dirty::NAME, false)?,
            device: api.current_device()?,
            address: api.reserve(RESERVED, PLACE + number * RESERVED)?,
            mapped: 0,
            header: Header::new(ranges),
            pages: 0,
            unused: BTreeMap::new(),
        };
        table.try_kernel(api)?;
        table.write_header(api)?;
        Ok(table)
    }

    /// Looks twice at two pages of the table's own memory.
    fn try_kernel(&mut self, api: &Api) -> Result<(), Code> {
        let kind = dirty::TYPES[2];
        let ranges = [
            dirty::nan(dirty::TYPES[0]),
            dirty::NEVER,
            dirty::nan(kind),
            (0, 9),
        ];
        let mut header = Header::new(ranges);
        self.grow(api, 2)?;
        let (place, length) = (self.address + GRANULE / 2, PAGE as usize + 32);
        let mut bytes: Vec<u8> = (0..length).map(|at| (at * at / 3) as u8).collect();
        let page = |at: u64, length: u64| Page {
            address: place + at,
            length: length as u32,
            number: at as u16 | 0x8001,
            ..Page::default()
        };
        let mut pages = [page(0, PAGE), page(PAGE, length as u64 - PAGE)];
        for (at, page) in (0..).zip(&pages) {
            self.write_page(api, at, page)?;
        }
        api.write_device(self.address, &words_as_bytes(&header.words()))?;
        for look in 1..=2 {
            if look == 2 {
                let nan = f32::NAN.to_le_bytes();
                for at in [100, PAGE as usize + 16] {
                    bytes
                        .iter_mut()
                        .skip(at)
                        .zip(nan)
                        .for_each(|(old, new)| *old = new);
                }
            }
            api.write_device(place, &bytes)?;
            self.launch(api, 0..2, look)?;
            let (first, second) = bytes.split_at(PAGE as usize);
            for (at, (page, bytes)) in (0..).zip(pages.iter_mut().zip([first, second])) {
                dirty::look(&mut header, page, at, look, bytes);
            }
        }
        let is_same = Header::of(&self.read(api, 0)?) == header
            && self.page(api, 0)? == pages[0]
            && self.page(api, 1)? == pages[1];
        match is_same && header.hit[2] == 2 {
            true => Ok(()),
            false => Err(UNKNOWN),
        }
    }

    /// Maps memory for so many pages.
    fn grow(&mut self, api: &Api, pages: u64) -> Result<(), Code> {
        let wanted = HEADER_BYTES + pages * PAGE_BYTES;
        if wanted <= self.mapped {
            return Ok(());
        }
        let end = wanted.max(2 * self.mapped).next_multiple_of(GRANULE);
        if end > RESERVED {
            return Err(OUT_OF_MEMORY);
        }
        let (start, length) = (self.address + self.mapped, end - self.mapped);
        let location = Location::Device(self.device);
        let memory = api.create_memory(length, location)?;
        let mapped = api.map(start, length, memory);
        // A mapping keeps its memory (cuMemRelease).
        api.release_memory(memory)?;
        mapped?;
        api.set_access(start, length, &[location])?;
        self.mapped = end;
        Ok(())
    }

    /// Adds the pages of live memory, and looks at them for the first time; the position of the
    /// first.
    pub(crate) fn add(&mut self, api: &Api, address: u64, length: u64) -> Result<u64, Code> {
        let count = length.div_ceil(PAGE);
        let fits = self.unused.iter().find(|unused| *unused.1 >= count);
        let at = match fits.map(|(&at, &unused)| (at, unused)) {
            Some((at, unused)) => {
                self.unused.remove(&at);
                if unused > count {
                    self.unused.insert(at + count, unused - count);
                }
                at
            }
            None => {
                self.grow(api, self.pages + count)?;
                self.pages += count;
                self.pages - count
            }
        };
        let pages = (0..count).flat_map(|number| {
            let offset = number * PAGE;
            let page = Page {
                address: address + offset,
                length: (length - offset).min(PAGE) as u32,
                number: number as u16,
                ..Page::default()
            };
            page.words()
        });
        let words: Vec<u64> = pages.collect();
        api.write_device(self.place(at), &words_as_bytes(&words))?;
        self.launch(api, at..at + count, 0)?;
        Ok(at)
    }

    /// Removes pages, whose memory has ended.
    pub(crate) fn remove(&mut self, api: &Api, at: u64, length: u64) -> Result<(), Code> {
        let count = length.div_ceil(PAGE);
        api.write_device(self.place(at), &vec![0; (count * PAGE_BYTES) as usize])?;
        self.release(at, length);
        Ok(())
    }

    /// As [`Self::remove`], where nobody looks at all pages.
    pub(crate) fn release(&mut self, at: u64, length: u64) {
        self.unused.insert(at, length.div_ceil(PAGE));
    }

    /// Looks at all pages.
    pub(crate) fn look(&mut self, api: &Api, look: u64) -> Result<Found, Code> {
        self.look_at(api, 0..self.pages, look)
    }

    /// Looks at some pages. Looks have numbers of their own.
    pub(crate) fn look_at(
        &mut self,
        api: &Api,
        pages: Range<u64>,
        look: u64,
    ) -> Result<Found, Code> {
        self.launch(api, pages, look)?;
        let before = self.header;
        self.header = Header::of(&self.read(api, 0)?);
        let now = self.header;
        let hits = std::array::from_fn(|kind| {
            let [hit, first] = [now.hit, now.first].map(|all| all.get(kind).copied());
            let before = before.hit.get(kind).copied();
            (
                hit.unwrap_or(0) - before.unwrap_or(0),
                first.unwrap_or(u64::MAX),
            )
        });
        if now.hit != before.hit {
            self.header.first = [u64::MAX; 4];
            self.write_header(api)?;
        }
        Ok(Found {
            hits,
            pages: now.dirty - before.dirty,
            written: now.written.wrapping_sub(before.written),
        })
    }

    /// Which of some pages a look has found changed.
    pub(crate) fn changed(
        &self,
        api: &Api,
        pages: Range<u64>,
        look: u64,
    ) -> Result<Vec<Page>, Code> {
        let mut bytes = vec![0; ((pages.end - pages.start) * PAGE_BYTES) as usize];
        if !bytes.is_empty() {
            api.read_device(self.place(pages.start), &mut bytes)?;
        }
        let words: Vec<u64> = bytes
            .as_chunks()
            .0
            .iter()
            .copied()
            .map(u64::from_le_bytes)
            .collect();
        let pages = words.as_chunks().0.iter().map(Page::of);
        Ok(pages
            .filter(|page| page.is_known && page.look == look)
            .collect())
    }

    /// All places of pages.
    pub(crate) fn all(&self) -> Range<u64> {
        0..self.pages
    }

    /// A page as it was looked at last.
    pub(crate) fn page(&self, api: &Api, at: u64) -> Result<Page, Code> {
        Ok(Page::of(&self.read(api, HEADER_BYTES + at * PAGE_BYTES)?))
    }

    /// The bits that are hits of a type.
    pub(crate) fn range(&self, kind: usize) -> dirty::Bits {
        let ranges = &self.header.ranges;
        ranges.get(kind).copied().unwrap_or(dirty::NEVER)
    }

    fn place(&self, at: u64) -> u64 {
        self.address + HEADER_BYTES + at * PAGE_BYTES
    }

    fn write_page(&self, api: &Api, at: u64, page: &Page) -> Result<(), Code> {
        api.write_device(self.place(at), &words_as_bytes(&page.words()))
    }

    fn write_header(&self, api: &Api) -> Result<(), Code> {
        api.write_device(self.address, &words_as_bytes(&self.header.words()))
    }

    fn read<const N: usize>(&self, api: &Api, offset: u64) -> Result<[u64; N], Code> {
        let mut bytes = vec![0; N * 8];
        api.read_device(self.address + offset, &mut bytes)?;
        let mut words = bytes.as_chunks::<8>().0.iter();
        Ok(std::array::from_fn(|_| {
            words.next().map_or(0, |word| u64::from_le_bytes(*word))
        }))
    }

    /// Enqueues a look at some pages. Reading the table waits for it.
    fn launch(&self, api: &Api, pages: std::ops::Range<u64>, look: u64) -> Result<(), Code> {
        let blocks = (pages.end - pages.start).min(BLOCKS);
        if blocks == 0 {
            return Ok(());
        }
        let parameters = [self.address, pages.start, pages.end, look];
        let pointers = parameters
            .each_ref()
            .map(|parameter| std::ptr::from_ref(parameter) as u64);
        let (threads, pointers) = (u64::from(dirty::THREADS), pointers.as_ptr() as u64);
        api.own(
            id::cuLaunchKernel,
            &[
                self.function,
                blocks,
                1,
                1,
                threads,
                1,
                1,
                0,
                0,
                pointers,
                0,
            ],
        )
    }
}

fn words_as_bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
