//! The kernel that digests memory, in the contexts that the recorder had prepared for it.

use std::collections::{HashMap, HashSet};

use cutape_driver::digest;
use cutape_registry::id;

use crate::api::{Api, Code};

/// As the recorder has: a replay makes the same calls, so that the driver does the same.
const SLOT_BYTES: u64 = 16;
const SLOTS: u64 = 1 << 16;
const NON_BLOCKING: u64 = 1;
const NO_TIMING: u64 = 2;
const PORTABLE_MAPPED: u64 = 3;
/// CUDA_ERROR_UNKNOWN.
const UNKNOWN: Code = 999;

/// What digests need of a context.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prepared {
    /// The live context.
    pub context: u64,
    function: u64,
    /// Page-locked memory where the kernel puts digests and their marks.
    slots: u64,
    stream: u64,
    /// Where memory is set to zeros.
    pub zeroing: u64,
}

/// The contexts that are prepared for digests.
#[derive(Debug, Default)]
pub(crate) struct Digests {
    /// By recorded handle.
    pub contexts: HashMap<u64, Prepared>,
    /// Starts of ranges of which a digest has differed: what follows from that is not listed.
    pub differing: HashSet<u64>,
    /// The mark of the last digest.
    pub mark: u64,
}

impl Api {
    /// Prepares the current context with the calls of the recorder, in its order.
    pub(crate) fn prepare_digests(&self, context: u64) -> Result<Prepared, Code> {
        let module: u64 = self.get(id::cuModuleLoadData, &[digest::PTX.as_ptr() as u64])?;
        let function = self.function(module, digest::NAME, false)?;
        let slots = self.get(id::cuMemHostAlloc, &[SLOTS * SLOT_BYTES, PORTABLE_MAPPED])?;
        let prepared = Prepared {
            context,
            function,
            slots,
            stream: self.get(id::cuStreamCreate, &[NON_BLOCKING])?,
            zeroing: self.get(id::cuStreamCreate, &[NON_BLOCKING])?,
        };
        for _ in 0..2 {
            self.get::<u64>(id::cuEventCreate, &[NO_TIMING])?;
        }
        let (bytes, place) = (digest::trial(), slots + 4096);
        // SAFETY: the driver has just allocated that much host memory, which nothing else uses.
        unsafe {
            std::ptr::write_bytes(slots as *mut u8, 0, (SLOTS * SLOT_BYTES) as usize);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), place as *mut u8, bytes.len());
        }
        self.launch_digest(prepared, (place, bytes.len() as u64), 0, u64::MAX)?;
        self.synchronize_stream(prepared.stream, false)?;
        match prepared.value(0, u64::MAX) {
            Some(value) if value == digest::digest(&bytes) => Ok(prepared),
            _ => Err(UNKNOWN),
        }
    }

    fn launch_digest(
        &self,
        prepared: Prepared,
        (address, length): (u64, u64),
        slot: u64,
        mark: u64,
    ) -> Result<(), Code> {
        let place = prepared.slots + slot % SLOTS * SLOT_BYTES;
        let parameters = [address, length, place, mark];
        let pointers = parameters
            .each_ref()
            .map(|parameter| std::ptr::from_ref(parameter) as u64);
        let (blocks, threads) = (digest::blocks(length), digest::THREADS);
        self.own(
            id::cuLaunchKernel,
            &[
                prepared.function,
                blocks.into(),
                1,
                1,
                threads.into(),
                1,
                1,
                0,
                prepared.stream,
                pointers.as_ptr() as u64,
                0,
            ],
        )
    }

    /// The digests of live ranges, after all work of the current context.
    pub(crate) fn digests(
        &self,
        prepared: Prepared,
        ranges: &[(u64, u64)],
        mark: u64,
    ) -> Result<Vec<u64>, Code> {
        self.synchronize()?;
        for (slot, &range) in (0..).zip(ranges) {
            self.launch_digest(prepared, range, slot, mark)?;
        }
        self.synchronize_stream(prepared.stream, false)?;
        let values = (0..ranges.len() as u64).map(|slot| prepared.value(slot, mark));
        values.collect::<Option<Vec<_>>>().ok_or(UNKNOWN)
    }

    /// Does something while a live context is current.
    pub(crate) fn in_context<T>(
        &self,
        context: u64,
        act: impl FnOnce(&Self) -> Result<T, Code>,
    ) -> Result<T, Code> {
        if self.current_context() == Ok(context) {
            return act(self);
        }
        self.own(id::cuCtxPushCurrent_v2, &[context])?;
        let result = act(self);
        self.get::<u64>(id::cuCtxPopCurrent_v2, &[])?;
        result
    }
}

impl Prepared {
    /// The digest in a slot, if it has that mark.
    fn value(&self, slot: u64, mark: u64) -> Option<u64> {
        let place = (self.slots + slot % SLOTS * SLOT_BYTES) as *const u64;
        // SAFETY: inside the slots, which live as long as the context; the kernel is complete.
        unsafe { (place.add(1).read_volatile() == mark).then(|| place.read_volatile()) }
    }
}
