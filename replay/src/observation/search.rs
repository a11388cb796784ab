//! Looks at what calls write to device memory: for numbers, or for the writes themselves.

use std::collections::{HashMap, HashSet};

use cutape_driver::dirty;

use crate::api::{Api, Code, result_name};
use crate::observation::area::{Area, Known};
use crate::observation::dirty_table::{Found, Table, Tables};
use crate::observation::job::{Hit, Search, WriteSet, Writer, Written};
use crate::observation::memory::{Reader, Region};
use crate::observation::write_set;

/// What a search has found.
#[derive(Debug)]
pub(crate) struct Searched {
    pub(crate) hits: Vec<Hit>,
    pub(crate) written: Vec<Written>,
    pub(crate) write_sets: Vec<WriteSet>,
    /// What could not be looked at.
    pub(crate) left_out: Vec<String>,
}

/// The search of an observation.
#[derive(Debug, Default)]
pub(crate) struct Searching {
    search: Option<Search>,
    tables: Tables,
    known: HashMap<Area, Known>,
    /// Memory that cannot be looked at.
    refused: HashSet<Area>,
    look: u64,
    has_begun: bool,
    hits: Vec<Hit>,
    written: Vec<Written>,
    write_sets: Vec<WriteSet>,
    /// The first call with work after which nobody has looked.
    pub(crate) since: Option<u64>,
    pub(crate) left_out: Vec<String>,
}

impl Searching {
    pub(crate) fn new(search: Option<Search>) -> Self {
        let ranges = search.as_ref().map(|search| search.ranges);
        Self {
            search,
            tables: Tables::new(ranges.unwrap_or([dirty::NEVER; 4])),
            ..Self::default()
        }
    }

    /// Whether a call's work is looked at: not once enough is found.
    #[inline]
    pub(crate) fn is_active(&self, call: u64) -> bool {
        let Some(search) = &self.search else {
            return false;
        };
        let is_done = || (0..dirty::TYPES.len()).all(|kind| self.is_done(search, kind));
        call >= search.from && (search.writes.is_some() || !is_done())
    }

    /// Whether memory is followed from now on.
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_active(u64::MAX)
    }

    /// Whether a call is the first whose writes are looked at.
    pub(crate) fn begins_with(&self, call: u64) -> bool {
        !self.has_begun && self.is_active(call)
    }

    /// Forgets what was written until now. All work must be done.
    pub(crate) fn begin(&mut self, reader: &mut Reader<'_>) {
        self.has_begun = true;
        self.look(reader, 0, &Writer::Begins);
        self.hits.clear();
        self.written.clear();
    }

    fn is_done(&self, search: &Search, kind: usize) -> bool {
        let (first, last) = search.ranges.get(kind).copied().unwrap_or(dirty::NEVER);
        let found = self.hits.iter().filter(|hit| hit.kind == kind).count();
        first > last || found >= search.most.max(1)
    }

    /// What of some memory is looked at.
    pub(crate) fn within(&self, area: Area) -> Vec<Area> {
        let within = match &self.search {
            Some(search) if !search.within.is_empty() => &search.within[..],
            _ => return vec![area],
        };
        let parts = within.iter().filter_map(|&(start, end)| {
            let first = start.max(area.recorded);
            let end = end.min(area.recorded.saturating_add(area.length));
            let length = end.checked_sub(first).filter(|&length| length > 0)?;
            Some(Area {
                recorded: first,
                live: area.live + (first - area.recorded),
                length,
                ..area
            })
        });
        parts.collect()
    }

    /// Follows which memory lives; each area comes with a live context in which it can be read.
    /// What begins is looked at for the first time. All work must be done.
    pub(crate) fn place(&mut self, api: &Api, areas: &HashMap<Area, u64>) {
        let ended = self.known.extract_if(|area, _| !areas.contains_key(area));
        for (area, known) in ended {
            if let Some(table) = self.tables.get(known.context) {
                let removed = api.in_context(known.context, |api| {
                    table.remove(api, known.at, area.length)
                });
                if removed.is_err() {
                    self.tables.retain(|context| context != known.context);
                }
            }
        }
        self.refused.retain(|area| areas.contains_key(area));
        let tables = &mut self.tables;
        self.known
            .retain(|_, known| tables.get(known.context).is_some());
        for (&area, &context) in areas {
            if self.known.contains_key(&area) || self.refused.contains(&area) {
                continue;
            }
            match api.in_context(context, |api| self.add(api, context, area)) {
                Ok(at) => {
                    self.known.insert(area, Known { context, at });
                }
                Err(code) => {
                    self.refused.insert(area);
                    self.left_out.push(format!(
                        "{:#x}, {} bytes: looking at it returned {}",
                        area.recorded,
                        area.length,
                        result_name(code)
                    ));
                }
            }
        }
    }

    fn add(&mut self, api: &Api, context: u64, area: Area) -> Result<u64, Code> {
        let table = self.tables.make(api, context)?;
        table.add(api, area.live, area.length)
    }

    /// Some memory has ended.
    pub(crate) fn end_memory(&mut self, api: &Api, ended: &Region) {
        let is_in = |area: &Area| area.made == ended.made && area.live >= ended.live;
        let mut areas = HashMap::new();
        for (&area, known) in self.known.iter().filter(|(area, _)| !is_in(area)) {
            areas.insert(area, known.context);
        }
        if areas.len() < self.known.len() {
            self.place(api, &areas);
        }
    }

    /// A context has ended.
    pub(crate) fn end_contexts(&mut self, lives: impl Fn(u64) -> bool) {
        self.tables.retain(lives);
    }

    /// Looks at all memory after a call or a node. All work must be done.
    pub(crate) fn look(&mut self, reader: &mut Reader<'_>, call: u64, by: &Writer) {
        self.look += 1;
        let (api, since) = (reader.api, self.since.take().unwrap_or(call));
        let mut written = Written {
            call,
            since,
            by: by.clone(),
            ..Written::default()
        };
        let mut lost = Vec::new();
        for (context, table) in self.tables.iter() {
            let found = api.in_context(context, |api| {
                let found = table.look(api, self.look)?;
                Ok((found, describe(api, table, &found, &self.known)?))
            });
            match found {
                Ok((found, hits)) => {
                    written.pages += found.pages;
                    written.digest = written.digest.wrapping_add(found.written);
                    self.hits.extend(hits.into_iter().map(|hit| Hit {
                        call,
                        since,
                        by: by.clone(),
                        ..hit
                    }));
                }
                Err(code) => lost.push((context, code)),
            }
        }
        if written.pages > 0
            && self
                .search
                .as_ref()
                .is_some_and(|search| search.writes.is_some())
        {
            self.written.push(written);
        }
        self.describe_writes(reader, call, by);
        for (context, code) in lost {
            self.tables.retain(|other| other != context);
            self.known.retain(|_, known| known.context != context);
            self.left_out.push(format!(
                "what was written before call {call} or by it: looking at memory returned {}",
                result_name(code)
            ));
        }
        if let Some(search) = &self.search {
            let mut counts = [0; 4];
            self.hits.retain(|hit| {
                let count = counts.get_mut(hit.kind);
                count.is_some_and(|count| {
                    *count += 1;
                    *count <= search.most.max(1)
                })
            });
        }
    }

    /// Describes what was written, if that is wanted of this call or node.
    fn describe_writes(&mut self, reader: &mut Reader<'_>, call: u64, by: &Writer) {
        let search = self.search.as_ref();
        let Some(writes) = search.and_then(|search| search.writes.as_ref()) else {
            return;
        };
        let moment = by.moment(call);
        if !writes.has(moment) {
            return;
        }
        let mut described = writes.described.iter();
        let reads = described.find(|(wanted, _)| *wanted == moment);
        let reads = reads.map_or(&[][..], |(_, reads)| reads);
        let mut set = WriteSet {
            call,
            by: by.clone(),
            ..WriteSet::default()
        };
        let mut changed = Vec::new();
        for (context, table) in self.tables.iter() {
            let pages = reader
                .api
                .in_context(context, |api| table.changed(api, table.all(), self.look));
            match pages {
                Ok(pages) => changed.extend(pages),
                Err(code) => set.left_out.push(format!(
                    "the table of pages: reading it returned {}",
                    result_name(code)
                )),
            }
        }
        write_set::describe(reader, &self.known, (&changed, reads), &mut set);
        self.write_sets.push(set);
    }

    /// What was found, and what could not be looked at.
    pub(crate) fn finish(self) -> Searched {
        let mut left_out = self.left_out;
        left_out.extend(self.since.map(|call| {
            format!(
                "what call {call} and later ones write: a stream was capturing, may wait for values in \
                 memory, or its work did not end"
            )
        }));
        Searched {
            hits: self.hits,
            written: self.written,
            write_sets: self.write_sets,
            left_out,
        }
    }
}

/// Reads the first page of each type that is hit.
fn describe(
    api: &Api,
    table: &Table,
    found: &Found,
    known: &HashMap<Area, Known>,
) -> Result<Vec<Hit>, Code> {
    let mut hits = Vec::new();
    for (kind, &(pages, first)) in found.hits.iter().enumerate() {
        let Some(&number) = dirty::TYPES.get(kind).filter(|_| pages > 0) else {
            continue;
        };
        let page = table.page(api, first)?;
        let mut bytes = vec![0; page.length as usize];
        api.read_device(page.address, &mut bytes)?;
        let range = table.range(kind);
        let Some(at) = dirty::hits(&bytes, number, range).next() else {
            continue;
        };
        let size = (number.0 / 8) as usize;
        let offset = at as usize * size;
        let mut value = [0; 8];
        let number = bytes.iter().skip(offset).take(size);
        value
            .iter_mut()
            .zip(number)
            .for_each(|(to, from)| *to = *from);
        let live = page.address + offset as u64;
        let area = known.keys().find(|area| {
            (area.live..area.live.saturating_add(area.length)).contains(&page.address)
        });
        let recorded = area.map_or(live, |area| area.recorded + (live - area.live));
        hits.push(Hit {
            kind,
            pages,
            address: recorded,
            value: u64::from_le_bytes(value),
            count: dirty::count(page.hits.get(kind).copied().unwrap_or(0)),
            ..Hit::default()
        });
    }
    Ok(hits)
}
