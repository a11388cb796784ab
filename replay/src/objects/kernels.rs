//! How kernels take their parameters, and memory to give them in.
//!
//! Parameters go through `kernelParams`, as most programs give them: through `extra` the driver
//! takes 0.3 µs longer (benches/results/2026-11-20-replay.md). The array of pointers is made once
//! for a function.

use std::collections::HashMap;

use cutape_model::ObjectId;
use rustc_hash::FxBuildHasher;

use crate::api::Api;
use crate::api::buffer::Buffer;
use crate::objects::handles::Handles;

/// Most bytes of all parameters together (CUDA C++ Programming Guide: 32,764).
pub(crate) const PARAMETER_BYTES: usize = 32 << 10;

/// Offset and size of each parameter.
pub(crate) type Layout = Vec<(u32, u32)>;

/// What a function was launched as: the object, and bytes of all its parameters together.
type Launched = (ObjectId, usize);

/// A function or kernel that was launched.
#[derive(Debug, Default)]
struct Kernel {
    launched: Option<Launched>,
    /// Empty if it is not known where each parameter begins.
    layout: Layout,
    /// The last parameter ends where the packed ones end.
    is_whole: bool,
    /// The driver itself says so.
    is_certain: bool,
    /// `None` while a launch has it.
    prepared: Option<Box<Prepared>>,
}

/// Memory for the parameters of a function.
#[derive(Debug)]
pub(crate) struct Prepared {
    launched: Launched,
    /// An array of pointers, and the parameters.
    pub memory: Buffer,
    /// Where the parameters begin.
    at: usize,
}

/// Memory of launches that are repeated. Launches with equal parameters have the same: it stays in the
/// processor's caches, as that of the program does, which builds all parameters in one place.
#[derive(Debug, Default)]
pub(crate) struct SharedParameters(HashMap<(ObjectId, Box<[u8]>), Buffer, FxBuildHasher>);

impl SharedParameters {
    /// The address of the pointers to parameters that equal these packed ones.
    pub(crate) fn keep(&mut self, prepared: Prepared, packed: &[u8]) -> u64 {
        let key = (prepared.launched.0, packed.into());
        let Prepared { memory, .. } = prepared;
        self.0.entry(key).or_insert(memory).address()
    }
}

/// What is known of functions that were launched.
#[derive(Debug, Default)]
pub(crate) struct Kernels {
    /// By the index of the object.
    all: Vec<Kernel>,
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
    /// begins, or the function is not alive. Returns the live function as well.
    #[inline]
    pub(crate) fn give(
        &mut self,
        (handles, api): (&Handles, &Api),
        wish: Wish,
        packed: &[u8],
    ) -> Option<(u64, Box<Prepared>)> {
        let (id, function) = handles.live_function(wish.handle)?;
        let launched = (id, packed.len());
        let known = self.all.get(id.index());
        if known.is_none_or(|known| known.launched != Some(launched)) {
            let kernel = self.look_up((handles, api), wish, launched, function);
            let count = self.all.len().max(id.index() + 1);
            self.all.resize_with(count, Kernel::default);
            *self.all.get_mut(id.index())? = kernel;
        }
        let kernel = self.all.get_mut(id.index())?;
        if kernel.layout.is_empty() || wish.takes_extra && !kernel.is_whole {
            return None;
        }
        let mut prepared = match kernel.prepared.take_if(|_| !wish.keeps_memory) {
            Some(kept) => kept,
            None => prepare(&kernel.layout, launched, kernel.is_certain),
        };
        let place = prepared.memory.bytes_mut().get_mut(prepared.at..)?;
        place.get_mut(..packed.len())?.copy_from_slice(packed);
        Some((function, prepared))
    }

    /// A launch is over: the driver has copied its parameters.
    #[inline]
    pub(crate) fn take_back(&mut self, prepared: Box<Prepared>) {
        if let Some(kernel) = self.all.get_mut(prepared.launched.0.index())
            && kernel.launched == Some(prepared.launched)
        {
            kernel.prepared = Some(prepared);
        }
    }

    /// Finds out how a function takes its parameters.
    #[cold]
    fn look_up(
        &self,
        (handles, api): (&Handles, &Api),
        wish: Wish,
        launched: Launched,
        function: u64,
    ) -> Kernel {
        let is_whole = |layout: &Layout| {
            let ends = layout
                .iter()
                .map(|&(offset, size)| u64::from(offset) + u64::from(size));
            ends.max() == Some(launched.1 as u64)
        };
        let asked = match wish.is_capturing {
            true => None,
            false => api.parameters_of(function, handles.is_live_kernel(function)),
        };
        let recorded = || self.layouts.get(&wish.handle).cloned();
        let asked = asked.filter(is_whole);
        let is_certain = asked.is_some();
        let layout = asked.or_else(recorded).unwrap_or_default();
        Kernel {
            launched: Some(launched),
            is_whole: is_whole(&layout),
            is_certain,
            layout,
            prepared: None,
        }
    }
}

/// An array of pointers to each parameter, and room for them. One pointer more than there are
/// parameters, so that a driver that looks behind finds memory.
#[cold]
fn prepare(layout: &Layout, launched: Launched, is_certain: bool) -> Box<Prepared> {
    let (at, length) = (((layout.len() + 1) * 8).next_multiple_of(64), launched.1);
    // The driver may take more parameters than the trace knows: room for the longest.
    let room = if is_certain { 0 } else { PARAMETER_BYTES };
    let mut memory = Buffer::zeroed(at + length + room);
    let base = memory.address() + at as u64;
    let offsets = layout.iter().map(|known| u64::from(known.0));
    let words = memory.bytes_mut().chunks_exact_mut(8);
    for (word, offset) in words.zip(offsets.chain([0])) {
        word.copy_from_slice(&(base + offset.min(length as u64)).to_le_bytes());
    }
    Box::new(Prepared {
        launched,
        memory,
        at,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::handles::{Belongs, other_site};
    use cutape_registry::Kind;

    #[test]
    fn parameters_are_pointed_at_by_the_layout() {
        let mut handles = Handles::default();
        let site = other_site(0, "cuModuleGetFunction");
        handles.insert((Kind::Function, 7), Some(9), Belongs::default(), site);
        let (id, live) = handles.live_function(7).expect("alive");
        assert_eq!(live, 9);
        let launched = (id, 24);
        let layout = vec![(0, 8), (8, 4), (16, 8), (4000, 8)];
        let memory = prepare(&layout, launched, false).memory;
        let words = |memory: &Buffer| {
            let base = memory.address() + 64;
            let words = memory.bytes().chunks_exact(8).take(5);
            let offsets = words.map(|word| crate::api::buffer::number(word) - base);
            offsets.collect::<Vec<u64>>()
        };
        // An offset behind the end stays inside.
        assert_eq!(words(&memory), [0, 8, 16, 24, 0]);
        assert!(memory.len() >= 64 + 24 + PARAMETER_BYTES);
        assert_eq!(prepare(&layout, launched, true).memory.len(), 64 + 24);
        let mut shared = SharedParameters::default();
        let [one, equal, other] = [[1; 24], [1; 24], [2; 24]]
            .map(|packed| shared.keep(*prepare(&layout, launched, true), &packed));
        assert!(one == equal && one != other);
    }
}
