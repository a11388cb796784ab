//! How kernels take their parameters, and memory to give them in.
//!
//! Parameters go through `kernelParams`, as most programs give them: through `extra` the driver
//! takes 0.3 µs longer (benches/results/2026-11-20-replay.md). The array of pointers is made once
//! for a function, and holds until functions or kernels come or go.

use std::collections::HashMap;

use rustc_hash::FxBuildHasher;

use crate::api::Api;
use crate::buffer::Buffer;
use crate::issue::handles::Handles;

/// Most bytes of all parameters together (CUDA C++ Programming Guide: 32,764).
pub(crate) const PARAMETER_BYTES: usize = 32 << 10;

/// Offset and size of each parameter.
pub(crate) type Layout = Vec<(u32, u32)>;

/// A function or kernel that was launched.
#[derive(Debug)]
struct Kernel {
    /// The state of the handles in which it was looked up.
    changes: u64,
    /// The live handle, and the call that made the recorded one: together the object.
    live: u64,
    made: u64,
    /// Bytes of all parameters together.
    length: usize,
    /// The last parameter ends where the packed ones end.
    is_whole: bool,
    /// An array of pointers, and the parameters; `None` if it is not known where each begins.
    memory: Option<Buffer>,
    /// Where the parameters begin in `memory`.
    at: usize,
    /// A launch uses `memory`.
    in_use: bool,
}

/// Packed parameters that a launch can point at.
#[derive(Debug)]
pub(crate) struct Given {
    /// The live function.
    pub function: u64,
    /// The argument `kernelParams`.
    pub kernel_params: u64,
    /// What it points at.
    pub memory: Memory,
}

/// Whose memory the parameters are in.
#[derive(Debug)]
pub(crate) enum Memory {
    /// That of [`Kernels`], to be given back with this number.
    Shared(usize),
    Own(Buffer),
}

/// What is known of functions that were launched.
#[derive(Debug, Default)]
pub(crate) struct Kernels {
    all: Vec<Kernel>,
    by_handle: HashMap<u64, usize, FxBuildHasher>,
    /// The recorded handle that was launched last.
    last: Option<(u64, usize)>,
    /// Parameter layouts by recorded handle, as the recorder noted them.
    layouts: HashMap<u64, Layout, FxBuildHasher>,
}

/// How a launch gives its parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    /// The recorded handle.
    pub handle: u64,
    /// Parameters of another length than the function takes go through `extra`, so that the driver
    /// refuses them as it did.
    pub takes_extra: bool,
    /// In memory of its own.
    pub keeps_memory: bool,
    /// A stream captures: the driver is not asked, since that may load the function.
    pub is_capturing: bool,
}

impl Kernels {
    /// The recorder noted how a function takes its parameters.
    pub(crate) fn note(&mut self, handle: u64, layout: Layout) {
        self.layouts.insert(handle, layout);
    }

    /// The layout that was recorded; empty if none was.
    pub(crate) fn layout(&self, handle: u64) -> &[(u32, u32)] {
        self.layouts.get(&handle).map_or(&[], Vec::as_slice)
    }

    /// Puts packed parameters behind an array of pointers; `None` if it is not known where each
    /// begins, or the function is not alive.
    pub(crate) fn give(
        &mut self,
        (handles, api): (&Handles, &Api),
        wish: Wish,
        packed: &[u8],
    ) -> Option<Given> {
        let known = match self.last {
            Some((handle, at)) if handle == wish.handle => Some(at),
            _ => self.by_handle.get(&wish.handle).copied(),
        };
        let state = (handles.changes_of_functions(), packed.len());
        let is_current = |at: &usize| {
            let kernel = self.all.get(*at);
            kernel.is_some_and(|kernel| (kernel.changes, kernel.length) == state)
        };
        let at = match known.filter(is_current) {
            Some(at) => at,
            None => self.look_up((handles, api), wish, packed.len())?,
        };
        self.last = Some((wish.handle, at));
        let kernel = self.all.get_mut(at)?;
        if wish.takes_extra && !kernel.is_whole {
            return None;
        }
        let memory = kernel.memory.as_mut()?;
        if wish.keeps_memory || kernel.in_use {
            let mut own = copy_of(memory, kernel.at);
            own.bytes_mut()
                .get_mut(kernel.at..)?
                .get_mut(..packed.len())?
                .copy_from_slice(packed);
            return Some(Given {
                function: kernel.live,
                kernel_params: own.address(),
                memory: Memory::Own(own),
            });
        }
        let place = memory.bytes_mut().get_mut(kernel.at..)?;
        place.get_mut(..packed.len())?.copy_from_slice(packed);
        kernel.in_use = true;
        Some(Given {
            function: kernel.live,
            kernel_params: memory.address(),
            memory: Memory::Shared(at),
        })
    }

    /// A launch is over: the driver has copied its parameters.
    #[inline]
    pub(crate) fn take_back(&mut self, number: usize) {
        if let Some(kernel) = self.all.get_mut(number) {
            kernel.in_use = false;
        }
    }

    /// Finds out how a function takes its parameters, which are `length` bytes.
    #[cold]
    fn look_up(
        &mut self,
        (handles, api): (&Handles, &Api),
        wish: Wish,
        length: usize,
    ) -> Option<usize> {
        let object = handles.live_function(wish.handle)?;
        let (live, made) = (object.handle?, object.by.call);
        let changes = handles.changes_of_functions();
        let at = self.by_handle.get(&wish.handle).copied();
        if let Some(at) = at
            && let Some(kernel) = self.all.get_mut(at)
            && (kernel.live, kernel.made, kernel.length) == (live, made, length)
        {
            kernel.changes = changes;
            return Some(at);
        }
        let is_whole = |layout: &Layout| {
            let ends = layout
                .iter()
                .map(|&(offset, size)| u64::from(offset) + u64::from(size));
            ends.max() == Some(length as u64)
        };
        let asked = match wish.is_capturing {
            true => None,
            false => api.parameters_of(live, handles.is_live_kernel(live)),
        };
        let recorded = || self.layouts.get(&wish.handle).cloned();
        let layout = asked.filter(is_whole).or_else(recorded);
        let layout = layout.filter(|layout| !layout.is_empty());
        let kernel = Kernel {
            changes,
            live,
            made,
            length,
            is_whole: layout.as_ref().is_some_and(is_whole),
            at: begin(layout.as_ref().map_or(0, Vec::len)),
            memory: layout.map(|layout| pointers(&layout, length)),
            in_use: false,
        };
        let new = self.all.len();
        let at = *self.by_handle.entry(wish.handle).or_insert(new);
        match self.all.get_mut(at) {
            // A launch in another thread may use its memory.
            Some(old) if !old.in_use => *old = kernel,
            Some(_) => {
                self.by_handle.insert(wish.handle, new);
                self.all.push(kernel);
                return Some(new);
            }
            None => self.all.push(kernel),
        }
        Some(at)
    }
}

/// Where parameters begin behind an array of that many pointers and one more.
fn begin(pointers: usize) -> usize {
    ((pointers + 1) * 8).next_multiple_of(64)
}

/// An array of pointers to each parameter, and room for them.
fn pointers(layout: &Layout, length: usize) -> Buffer {
    let at = begin(layout.len());
    // The driver may take more parameters than the trace knows: room for the longest.
    let mut memory = Buffer::zeroed(at + length + PARAMETER_BYTES);
    let offsets = layout
        .iter()
        .map(|known| u64::from(known.0).min(length as u64));
    write_pointers(&mut memory, at, offsets.chain([0]));
    memory
}

/// The same array in other memory.
fn copy_of(memory: &Buffer, at: usize) -> Buffer {
    let base = memory.address() + at as u64;
    let mut copy = Buffer::zeroed(memory.len());
    let words = memory.bytes().chunks_exact(8).take(at / 8);
    let offsets = words.map(|word| crate::buffer::number(word).saturating_sub(base));
    write_pointers(&mut copy, at, offsets);
    copy
}

/// One pointer more than there are parameters, so that a driver that looks behind finds memory.
fn write_pointers(memory: &mut Buffer, at: usize, offsets: impl Iterator<Item = u64>) {
    let base = memory.address() + at as u64;
    for (word, offset) in memory.bytes_mut().chunks_exact_mut(8).zip(offsets) {
        word.copy_from_slice(&(base + offset).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_pointed_at_by_the_layout() {
        let memory = pointers(&vec![(0, 8), (8, 4), (16, 8), (4000, 8)], 24);
        let words = |memory: &Buffer| {
            let base = memory.address() + 64;
            let words = memory.bytes().chunks_exact(8).take(5);
            let offsets = words.map(|word| crate::buffer::number(word) - base);
            offsets.collect::<Vec<u64>>()
        };
        // An offset behind the end stays inside.
        assert_eq!(words(&memory), [0, 8, 16, 24, 0]);
        assert_eq!(words(&copy_of(&memory, 64)), [0, 8, 16, 24, 0]);
        assert!(memory.len() >= 64 + 24 + PARAMETER_BYTES);
    }
}
