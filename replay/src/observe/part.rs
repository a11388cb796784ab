//! Reads the memory that a part of a trace can reach: what its calls name, and what 8-byte words in
//! that memory point into, however far.

use std::collections::VecDeque;

use crate::api::buffer::number;
use crate::api::result_name;
use crate::compare::received::holds;
use crate::observation::job::ObservedCall;
use crate::observation::memory::{Reader, Region, region_at};
use crate::observation::observer::{Observer, Pending};
use crate::observation::variables::{named_addresses, variables_of};
use crate::observe::launch;
use crate::place::address::Found;
use crate::player::Job;
use crate::process::slots::{gaps, union};

/// Reads what a part of the trace can reach, before its first call. All work is done.
///
/// # Errors
/// Why nothing was read, in a phrase.
pub(super) fn read_reachable(
    job: &Job<'_, '_>,
    observer: &mut Observer,
    regions: &[Region],
    pending: &mut Pending,
) -> Result<(), String> {
    let mut variables = Vec::new();
    for (&loaded, &function) in &observer.launched {
        let is_same = launch::loaded_by(job, function) == Some(loaded);
        let Some(names) = observer.job.variables.get(&loaded).filter(|_| is_same) else {
            continue;
        };
        let Ok((_, live)) = launch::live_function(job, function) else {
            continue;
        };
        let left_out = &mut pending.observed.left_out;
        match job.api.module_of(live) {
            Ok(module) => {
                variables.extend(variables_of(&job.api, module, (names, loaded), left_out));
            }
            Err(code) => left_out.push(format!(
                "variables of the module of call {loaded}: cuFuncGetModule returned {}",
                result_name(code)
            )),
        }
    }
    let named = named_addresses(&job.ranges);
    let first_seen = std::mem::take(&mut observer.first_seen);
    let reads = std::mem::take(&mut observer.job.reads);
    let mut reader = Reader {
        api: &job.api,
        pages: &mut observer.pages,
        buffer: &mut observer.buffer,
        position: Some(&job.issuer.position),
    };
    variables.retain(|variable| {
        let seen = first_seen.get(&variable.made);
        let seen = seen.and_then(|seen| seen.get(&variable.name));
        let mut is_as_loaded = || seen.is_some() && reader.hash(variable).ok().as_ref() == seen;
        !named.contains(&variable.live) && !is_as_loaded()
    });
    let memory = PartMemory {
        regions,
        variables: &variables,
        reads: &reads,
        is_noted: &|region| is_noted(job, region),
    };
    pending.observed.replaced_words = read_part(&mut reader, &memory, &mut pending.observed);
    Ok(())
}

/// Whether host memory holds what notes of the trace say.
fn is_noted(job: &Job<'_, '_>, region: &Region) -> bool {
    let Found::Live(range, offset) = job.ranges.find(region.recorded) else {
        return false;
    };
    let known = job.lent.shadows.get(&range.start);
    let known = known.filter(|known| range.is_host_memory() && known.0 == range.made);
    let offset = offset as usize;
    let bytes = known.and_then(|(_, shadow)| {
        shadow
            .bytes()
            .get(offset..offset.checked_add(region.length as usize)?)
    });
    bytes.is_some_and(|bytes| holds(region.live, bytes))
}

/// Which of some regions are wanted, and which of these are read already.
struct Wanted<'a> {
    /// All live memory, sorted by live address.
    regions: &'a [Region],
    span: (u64, u64),
    /// By region: live addresses of first bytes and ends.
    parts: Vec<Vec<(u64, u64)>>,
    done: Vec<Vec<(u64, u64)>>,
    /// Regions with parts that are not read.
    open: VecDeque<usize>,
    /// Some memory lies at another address than recorded.
    is_displaced: bool,
}

impl<'a> Wanted<'a> {
    fn new(regions: &'a [Region]) -> Self {
        let first = regions.first().map_or(0, |region| region.live);
        let end = regions.iter().map(Region::end).max().unwrap_or(0);
        Self {
            regions,
            span: (first, end),
            parts: vec![Vec::new(); regions.len()],
            done: vec![Vec::new(); regions.len()],
            open: VecDeque::new(),
            is_displaced: regions.iter().any(|region| region.live != region.recorded),
        }
    }

    fn want(&mut self, position: usize, part: (u64, u64)) {
        if let Some(parts) = self.parts.get_mut(position)
            && !parts
                .iter()
                .any(|known| known.0 <= part.0 && part.1 <= known.1)
        {
            parts.push(part);
            self.open.push_back(position);
        }
    }

    /// Wants the memory at recorded addresses.
    fn want_recorded(&mut self, start: u64, end: u64) {
        for (position, region) in self.regions.iter().enumerate() {
            let recorded_end = region.recorded.saturating_add(region.length);
            let (from, to) = (start.max(region.recorded), end.min(recorded_end));
            if from < to {
                let live = |address: u64| region.live.wrapping_add(address - region.recorded);
                // Words are looked at where they are aligned.
                self.want(position, (live(from) & !7, live(to)));
            }
        }
    }

    fn find(&self, address: u64) -> Option<(usize, &'a Region)> {
        region_at(self.regions, self.span, address)
    }

    /// Wants what words in memory point into. Those that point into displaced memory are replaced by
    /// recorded addresses; returns how many.
    fn follow(&mut self, bytes: &mut [u8]) -> u64 {
        let mut replaced = 0;
        for word in bytes.as_chunks_mut::<8>().0 {
            let address = number(word);
            let Some((position, region)) = self.find(address) else {
                continue;
            };
            self.want(position, (region.live, region.end()));
            if self.is_displaced && region.live != region.recorded {
                let recorded = region.recorded.wrapping_add(address - region.live);
                *word = recorded.to_le_bytes();
                replaced += 1;
            }
        }
        replaced
    }

    /// The next part that is not read, with the position of its region.
    fn next(&mut self) -> Option<Vec<Region>> {
        let position = self.open.pop_front()?;
        let (region, parts) = (self.regions.get(position)?, self.parts.get(position)?);
        let done = self.done.get_mut(position)?;
        let mut found = Vec::new();
        let covered = union(done.clone());
        for part in union(parts.clone()) {
            for (start, end) in gaps(part, covered.iter().copied()) {
                found.push(region.part(start.max(region.live), end));
                done.push((start, end));
            }
        }
        Some(found)
    }
}

/// What is read of a part.
struct PartMemory<'a> {
    /// All live memory, sorted by live address.
    regions: &'a [Region],
    /// Variables of modules that no call names and that kernels may have written.
    variables: &'a [Region],
    /// Recorded addresses of first bytes and ends of what the calls of the part may read.
    reads: &'a [(u64, u64)],
    /// Whether notes of the trace say what a region holds.
    is_noted: &'a dyn Fn(&Region) -> bool,
}

/// Reads the memory that a part can reach. Returns how many addresses of displaced memory it has
/// replaced by the recorded ones.
fn read_part(reader: &mut Reader<'_>, memory: &PartMemory<'_>, observed: &mut ObservedCall) -> u64 {
    let mut wanted = Wanted::new(memory.regions);
    for &(start, end) in memory.reads {
        wanted.want_recorded(start, end);
    }
    let mut replaced = 0;
    let mut read = |region: &Region, wanted: &mut Wanted<'_>| {
        let mut entry = region.entry();
        match reader.read(region, |_, bytes| replaced += wanted.follow(bytes)) {
            Ok(pieces) => entry.before = pieces,
            Err(why) => {
                let text = format!("{}: {why}", region.describe());
                return observed.left_out.push(text);
            }
        }
        if !(memory.is_noted)(region) {
            observed.memory.push(entry);
        }
    };
    for variable in memory.variables {
        read(variable, &mut wanted);
    }
    while let Some(parts) = wanted.next() {
        for part in parts {
            read(&part, &mut wanted);
        }
    }
    observed
        .memory
        .sort_by_key(|entry| (entry.recorded, entry.made));
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regions() -> Vec<Region> {
        [
            (0x1000, 0x1000, 0x100),
            (0x2000, 0x8000, 0x40),
            (0x3000, 0x3000, 8),
        ]
        .map(|(live, recorded, length)| Region::mapped((recorded, live), length, 0))
        .to_vec()
    }

    fn places(parts: Option<Vec<Region>>) -> Vec<(u64, u64, u64)> {
        let parts = parts.unwrap_or_default().into_iter();
        parts
            .map(|part| (part.live, part.recorded, part.length))
            .collect()
    }

    #[test]
    fn recorded_ranges_are_wanted_where_they_are() {
        let regions = regions();
        let mut wanted = Wanted::new(&regions);
        // From inside the first region to inside the second one, as recorded.
        wanted.want_recorded(0x10f3, 0x8010);
        assert_eq!(places(wanted.next()), [(0x10f0, 0x10f0, 0x10)]);
        assert_eq!(places(wanted.next()), [(0x2000, 0x8000, 0x10)]);
        assert_eq!(places(wanted.next()), [(0x3000, 0x3000, 8)]);
        assert!(wanted.next().is_none());
    }

    #[test]
    fn words_lead_on_and_are_given_as_recorded() {
        let regions = regions();
        let mut wanted = Wanted::new(&regions);
        wanted.want_recorded(0x1000, 0x1010);
        assert_eq!(places(wanted.next()), [(0x1000, 0x1000, 0x10)]);
        let mut bytes: Vec<u8> = [0x2008u64, 0x1080, 5, 0x2100]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        assert_eq!(wanted.follow(&mut bytes), 1);
        assert_eq!(number(&bytes[..8]), 0x8008, "of displaced memory");
        assert_eq!(number(&bytes[8..16]), 0x1080);
        // All of the second region, and what of the first was not read.
        assert_eq!(places(wanted.next()), [(0x2000, 0x8000, 0x40)]);
        assert_eq!(places(wanted.next()), [(0x1010, 0x1010, 0xf0)]);
        assert!(wanted.next().is_none());
        assert_eq!(wanted.follow(&mut bytes), 0, "nothing is wanted twice");
    }
}
