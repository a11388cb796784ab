//! Where the variables of modules lie, and what they held at first.

use rustc_hash::FxHashMap;

use crate::api::buffer::number;
use crate::observation::memory::Region;

/// By the call that loaded a module: hashes of its variables.
pub(crate) type FirstSeen = FxHashMap<u64, FxHashMap<String, blake3::Hash>>;

/// Most addresses of variables in one piece of memory.
const MOST_ADDRESSES: usize = 1 << 16;

/// Where variables lie, to find their addresses in memory: a module lies elsewhere in each
/// process.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// First byte and end, sorted.
    places: Vec<(u64, u64)>,
}

impl Places {
    /// Those of the regions that are variables.
    pub(crate) fn of<'r>(regions: impl Iterator<Item = &'r Region>) -> Self {
        let variables = regions.filter(|region| region.is_of_launch() && region.array.is_none());
        let mut places: Vec<_> = variables
            .map(|region| (region.live, region.end()))
            .collect();
        places.sort_unstable();
        places.dedup();
        Self { places }
    }

    /// Adds the words of some bytes, which begin at an offset, that hold addresses of variables.
    ///
    /// # Errors
    /// If there are too many.
    pub(crate) fn find(
        &self,
        offset: u64,
        bytes: &[u8],
        found: &mut Vec<(u64, u64)>,
    ) -> Result<(), String> {
        let (Some(first), Some(last)) = (self.places.first(), self.places.last()) else {
            return Ok(());
        };
        let span = first.0..last.1;
        for (place, word) in (0..).zip(bytes.chunks_exact(8)) {
            let word = number(word);
            if !span.contains(&word) {
                continue;
            }
            let behind = self.places.partition_point(|&(start, _)| start <= word);
            let place_of = behind.checked_sub(1).and_then(|at| self.places.get(at));
            if place_of.is_none_or(|&(_, end)| word >= end) {
                continue;
            }
            if found.len() >= MOST_ADDRESSES {
                return Err("it holds too many addresses of variables".into());
            }
            found.push((offset + place * 8, word));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_hold_addresses_of_variables() {
        let variable = |place| Region::variable("v", place, 0);
        let regions = [variable((0x3000, 8)), variable((0x1000, 16))];
        let places = Places::of(regions.iter());
        let bytes: Vec<u8> = [0u64, 0x1000, 0x100f, 0x1010, 0x2fff, 0x3007, 0x3008]
            .into_iter()
            .flat_map(u64::to_le_bytes)
            .chain([0, 0x10])
            .collect();
        let mut found = Vec::new();
        places.find(0x40, &bytes, &mut found).unwrap();
        assert_eq!(found, [(0x48, 0x1000), (0x50, 0x100f), (0x68, 0x3007)]);
        let many = 0x1000u64.to_le_bytes().repeat(MOST_ADDRESSES);
        assert!(places.find(0, &many, &mut found).is_err());
        let mut none = Vec::new();
        Places::default().find(0, &bytes, &mut none).unwrap();
        assert!(none.is_empty());
    }
}
