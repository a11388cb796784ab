//! Stream captures: work on a stream that captures becomes nodes of a graph. Its host memory must
//! last, it returns no bytes, and the replay must not wait for the device on its own.

use std::collections::{HashMap, HashSet};

use crate::place::graph_memory::GraphMemory;

/// What is known of captures and of graphs.
#[derive(Debug, Default)]
pub(crate) struct StreamCaptures {
    /// The streams, by recorded handle, on which a capture began that has not ended.
    pub open: HashSet<u64>,
    /// Host memory of copies in graphs.
    pub memory: GraphMemory,
    /// Live handles of conditions by recorded ones, where they differ; they are numbers that
    /// kernels are given.
    pub conditions: HashMap<u64, u64>,
}

impl StreamCaptures {
    /// True while any stream captures.
    pub(crate) fn any_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// A condition was made.
    pub(crate) fn add_condition(&mut self, recorded: u64, live: u64) {
        self.conditions.remove(&recorded);
        if recorded != live {
            self.conditions.insert(recorded, live);
        }
    }

    /// True if some condition has another handle here than in the recording.
    pub(crate) fn has_moved_conditions(&self) -> bool {
        !self.conditions.is_empty()
    }

    /// Replaces handles of conditions among a kernel's parameters.
    pub(crate) fn translate_conditions(&self, packed: &mut [u8], layout: &[(u32, u32)]) {
        for &(offset, size) in layout {
            let word = packed
                .get_mut(offset as usize..)
                .and_then(|rest| rest.first_chunk_mut::<8>());
            if size == 8
                && let Some(word) = word
                && let Some(live) = self.conditions.get(&u64::from_le_bytes(*word))
            {
                *word = live.to_le_bytes();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_replaced_among_parameters_of_their_size() {
        let mut captures = StreamCaptures::default();
        let recorded: Vec<u8> = [7u64, 7, 8]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        let layout = [(0, 8), (8, 4), (16, 8), (20, 8)];
        let mut packed = recorded.clone();
        captures.add_condition(7, 7);
        captures.translate_conditions(&mut packed, &layout);
        assert_eq!(packed, recorded, "the same here");
        captures.add_condition(7, 9);
        captures.translate_conditions(&mut packed, &layout);
        assert_eq!(packed[..8], 9u64.to_le_bytes());
        assert_eq!(packed[8..], recorded[8..]);
    }
}
