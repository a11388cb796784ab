//! How a kernel takes its parameters, and how they are packed for the trace.

/// Addresses below are never mapped on Linux.
pub(crate) const LOWEST_ADDRESS: u64 = 4096;

/// Most parameters that are packed as words; further ones are copied one by one.
const MOST_WORDS: usize = 24;

/// Layout of a kernel's parameter buffer. What most launches need is first, in two cache lines.
#[repr(C, align(64))]
pub(crate) struct ParameterLayout {
    /// Bytes of the buffer.
    length: u32,
    word_count: u8,
    words: [Word; MOST_WORDS],
    /// All other parameters.
    others: Vec<Other>,
    /// Offsets from which eight bytes are cleared before the parameters are stored, so that bytes
    /// of no parameter are zero.
    gaps: Vec<u32>,
    /// (offset, size) of each parameter, in the kernel's order.
    parameters: Vec<(u32, u32)>,
}

/// A parameter of four to eight bytes. It is loaded as its first and its last four bytes, which may
/// overlap.
#[derive(Clone, Copy)]
struct Word {
    offset: u16,
    /// Position among the parameters.
    index: u8,
    /// Where its last four bytes begin.
    high: u8,
}

impl Word {
    const UNUSED: Self = Self {
        offset: 0,
        index: 0,
        high: 0,
    };

    fn new(index: usize, offset: u32, size: u32) -> Option<Self> {
        Some(Self {
            offset: offset.try_into().ok()?,
            index: index.try_into().ok()?,
            high: size.checked_sub(4).filter(|&high| high <= 4)? as u8,
        })
    }
}

struct Other {
    index: usize,
    offset: usize,
    size: usize,
}

impl ParameterLayout {
    /// The layout for parameters given as (offset, size); `None` if they overlap.
    pub(crate) fn new(parameters: Vec<(u32, u32)>) -> Option<Self> {
        let mut ascending: Vec<_> = parameters.iter().copied().enumerate().collect();
        ascending.sort_by_key(|&(_, range)| range);
        let mut layout = Self {
            length: 0,
            word_count: 0,
            words: [Word::UNUSED; MOST_WORDS],
            others: Vec::new(),
            gaps: Vec::new(),
            parameters,
        };
        // End of what is stored so far: a word is stored as eight bytes, of which those behind the
        // parameter are zero.
        let mut stored = 0;
        for (index, (offset, size)) in ascending {
            if offset < layout.length {
                return None;
            }
            layout
                .gaps
                .extend((stored..offset).step_by(size_of::<u64>()));
            layout.length = offset + size;
            stored = layout.length;
            let place = layout.words.get_mut(usize::from(layout.word_count));
            if let Some((place, word)) = place.zip(Word::new(index, offset, size)) {
                *place = word;
                layout.word_count += 1;
                stored = offset + size_of::<u64>() as u32;
            } else {
                layout.others.push(Other {
                    index,
                    offset: offset as usize,
                    size: size as usize,
                });
            }
        }
        Some(layout)
    }

    /// (offset, size) of each parameter, in the kernel's order.
    pub(crate) fn parameters(&self) -> &[(u32, u32)] {
        &self.parameters
    }

    /// Bytes of the buffer.
    #[inline(always)]
    pub(crate) fn length(&self) -> usize {
        self.length as usize
    }

    /// Packs the parameters that an array of pointers leads to. The target has `Record::SLACK`
    /// bytes more than `length`, which are overwritten. `None` if a pointer leads nowhere, or the
    /// target is too short.
    ///
    /// Words are stored as eight bytes, in ascending order: the zeros behind a shorter one are a
    /// gap, or the next parameter overwrites them. The others are stored exactly, after all words.
    ///
    /// # Safety
    /// The array has a pointer for each parameter; unless it is below `LOWEST_ADDRESS`, the
    /// parameter can be read there.
    #[inline(always)]
    pub(crate) unsafe fn pack(&self, array: u64, target: &mut [u8]) -> Option<()> {
        if target.len() < self.length() + size_of::<u64>() {
            return None;
        }
        for &gap in &self.gaps {
            *target.get_mut(gap as usize..)?.first_chunk_mut::<8>()? = [0; 8];
        }
        let target = target.as_mut_ptr();
        let array = array as *const *const u8;
        for word in self.words.get(..self.word_count.into())? {
            // SAFETY: as the caller says.
            let source = unsafe { array.add(word.index.into()).read_unaligned() };
            if (source as u64) < LOWEST_ADDRESS {
                return None;
            }
            // SAFETY: the parameter has `high + 4` bytes, readable as the caller says. It ends
            // within `length`, behind which the target has eight bytes (checked above).
            unsafe {
                let low = source.cast::<u32>().read_unaligned();
                let high = source.add(word.high.into()).cast::<u32>().read_unaligned();
                let value = u64::from(low) | u64::from(high) << ((8 * word.high) & 63);
                let place = target.add(word.offset.into()).cast::<u64>();
                place.write_unaligned(value.to_le());
            }
        }
        for other in &self.others {
            // SAFETY: as the caller says.
            let source = unsafe { array.add(other.index).read_unaligned() };
            if (source as u64) < LOWEST_ADDRESS {
                return None;
            }
            // SAFETY: the source is readable as the caller says; the parameter ends within
            // `length`.
            unsafe {
                core::ptr::copy_nonoverlapping(source, target.add(other.offset), other.size);
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Packs into a target full of other bytes.
    fn packed(layout: &ParameterLayout, values: &[Vec<u8>]) -> Option<Vec<u8>> {
        let pointers: Vec<*const u8> = values.iter().map(|value| value.as_ptr()).collect();
        let mut bytes = vec![0xee; layout.length() + 8];
        // SAFETY: there is a pointer for each parameter, to as many bytes as that has.
        unsafe { layout.pack(pointers.as_ptr() as u64, &mut bytes) }?;
        bytes.truncate(layout.length());
        Some(bytes)
    }

    proptest! {
        #[test]
        fn each_parameter_lies_at_its_offset_and_all_else_is_zero(
            sizes in prop_oneof![
                prop::collection::vec((0_u32..12, prop_oneof![Just(4_u32), Just(8), 0_u32..4, 0_u32..100]), 0..20),
                prop::collection::vec((Just(0), 4_u32..9), 0..30),
            ],
            value in any::<u8>(),
            is_reversed in any::<bool>(),
        ) {
            let mut end = 0;
            let mut parameters: Vec<(u32, u32)> = sizes.iter().map(|&(gap, size)| {
                end += gap + size;
                (end - size, size)
            }).collect();
            if is_reversed {
                parameters.reverse();
            }
            let values: Vec<Vec<u8>> = (0_u8..).zip(&parameters).map(|(index, parameter)| {
                let byte = |at: u32| value.wrapping_add(index).wrapping_mul(17).wrapping_add(at as u8);
                // Also an empty one has an address.
                let mut bytes = Vec::with_capacity(1);
                bytes.extend((0..parameter.1).map(byte));
                bytes
            }).collect();
            let mut expected = vec![0; end as usize];
            for (&(offset, size), value) in parameters.iter().zip(&values) {
                expected[offset as usize..(offset + size) as usize].copy_from_slice(value);
            }
            let layout = ParameterLayout::new(parameters).unwrap();
            prop_assert_eq!(packed(&layout, &values), Some(expected));
        }
    }

    #[test]
    fn unusable_parameters_are_refused() {
        assert!(
            ParameterLayout::new(vec![(0, 8), (4, 8)]).is_none(),
            "they overlap"
        );
        let layout = ParameterLayout::new(vec![(0, 8)]).unwrap();
        let array = [core::ptr::null::<u8>(); 1].as_ptr() as u64;
        // SAFETY: the only pointer is one that is not followed.
        unsafe {
            assert_eq!(layout.pack(array, &mut [0; 16]), None, "leads nowhere");
            assert_eq!(layout.pack(array, &mut [0; 15]), None, "too short");
        }
    }
}
