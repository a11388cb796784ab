//! Memory of the program that calls name and that is no object of the driver: where it was when the
//! program was recorded, and where it is.

use std::collections::BTreeMap;

use cutape_format::Call;
use cutape_format::layout::field;
use cutape_model::CallArguments;
use cutape_registry::{Function, Role};

/// How far from a pointer in a struct memory may be that the struct describes.
const REACH: u64 = 1 << 32;

/// By recorded address: the end of the memory, and where it is now.
#[derive(Debug, Default)]
pub(crate) struct HostPointers(BTreeMap<u64, (u64, u64)>);

impl HostPointers {
    /// Takes in the pointers of a recorded call and of the program's call that corresponds.
    pub(crate) fn learn(&mut self, function: &Function, recorded: &Call<'_>, live: &Call<'_>) {
        for (position, param) in function.params.iter().enumerate() {
            let (from, to) = (recorded.argument(position), live.argument(position));
            let length = match param.role {
                Role::HostRead(length)
                | Role::HostWrite(length)
                | Role::DeviceRead(length)
                | Role::DeviceWrite(length) => length.evaluate(function, &CallArguments(recorded)),
                Role::In(_) | Role::InOut(_) | Role::UseMany(..) => {
                    self.learn_members(position, recorded, live);
                    continue;
                }
                _ => continue,
            };
            let length = length.map_or(1, |extent| extent.span().max(1));
            self.add(from, to, length);
        }
    }

    /// Words at the same place of both structs that look like addresses.
    fn learn_members(&mut self, position: usize, recorded: &Call<'_>, live: &Call<'_>) {
        let words = |call: &Call<'_>| {
            let snapshot = call.snapshot(position, field::POINTEE)?;
            let words = snapshot.bytes.inline()?.as_chunks::<8>().0.iter();
            Some(
                words
                    .map(|word| u64::from_le_bytes(*word))
                    .collect::<Vec<_>>(),
            )
        };
        let pairs = words(recorded).unwrap_or_default().into_iter();
        for (from, to) in pairs.zip(words(live).unwrap_or_default()) {
            if [from, to]
                .iter()
                .all(|word| word >> 47 == 0 && word >> 32 != 0)
            {
                self.add(from, to, REACH);
            }
        }
    }

    fn add(&mut self, from: u64, to: u64, length: u64) {
        if from != 0 && to != 0 {
            self.0.insert(from, (from.saturating_add(length), to));
        }
    }

    /// Where recorded memory is now.
    pub(crate) fn live(&self, recorded: u64) -> Option<u64> {
        let (start, (end, live)) = self.0.range(..=recorded).next_back()?;
        (recorded < *end).then(|| live.wrapping_add(recorded - start))
    }
}
