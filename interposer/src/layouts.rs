//! How each kernel takes its parameters, asked of the driver once per function and looked up without a lock.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use cutape_registry::id;

use crate::driver;
use crate::errno::Errno;

/// More functions than any program was seen to use; beyond, parameters are not kept, and the trace says so.
const SLOTS: usize = 1 << 16;
/// The driver allows 4 KiB of parameters, 32,764 bytes from CUDA 12.1 on (execution control, cuLaunchKernel).
const LONGEST: u32 = 32 << 10;

const CUDA_ERROR_INVALID_VALUE: i32 = 1;

/// The parameters of a kernel.
pub(crate) struct Layout {
    /// (offset, size) of each.
    pub(crate) parameters: Vec<(u32, u32)>,
    /// Bytes of the whole buffer.
    pub(crate) length: u32,
    /// Offsets from which eight bytes are to be zero before the parameters are put, so that what belongs to none is.
    pub(crate) gaps: Vec<u32>,
}

struct Slot {
    handle: AtomicU64,
    /// Module or library that the function goes with.
    owner: AtomicU64,
    /// Context of a `CUfunction`; kernels belong to none.
    context: AtomicU64,
    /// 0 `CUfunction`, 1 `CUkernel`; plus `DEAD` when its owner is gone.
    state: AtomicU64,
    layout: AtomicPtr<Layout>,
    /// The layout stands in the trace.
    noted: AtomicBool,
}

const DEAD: u64 = 2;

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        handle: AtomicU64::new(0),
        owner: AtomicU64::new(0),
        context: AtomicU64::new(0),
        state: AtomicU64::new(0),
        layout: AtomicPtr::new(core::ptr::null_mut()),
        noted: AtomicBool::new(false),
    }
}; SLOTS];

/// Something stands in the table.
static LEARNED: AtomicBool = AtomicBool::new(false);

/// The slot of a handle: the one that has it, or, if `add`, a free one taken for it.
fn slot(handle: u64, add: bool) -> Option<&'static Slot> {
    if handle == 0 {
        return None;
    }
    // Handles are addresses: their low bits say little.
    let start = (handle >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> (usize::BITS - 16);
    for probe in 0..64 {
        let slot = &TABLE[(start + probe) % SLOTS];
        let mut there = slot.handle.load(Ordering::Acquire);
        if there == 0 && add {
            match slot
                .handle
                .compare_exchange(0, handle, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => there = handle,
                Err(other) => there = other,
            }
        }
        if there == handle {
            return Some(slot);
        }
        if there == 0 {
            return None;
        }
    }
    None
}

/// Notes a handle that the driver has just given: of which kind, and with which module or library it goes.
pub(crate) fn learn(handle: u64, is_kernel: bool, owner: u64) {
    let Some(slot) = slot(handle, true) else {
        return;
    };
    LEARNED.store(true, Ordering::Relaxed);
    let state = u64::from(is_kernel);
    if !is_kernel {
        slot.context
            .store(crate::pending::current_context(), Ordering::Release);
    }
    if slot.state.load(Ordering::Acquire) != state || slot.owner.load(Ordering::Acquire) != owner {
        // Another function behind the same number. A layout that a launch on another thread may still be reading is
        // left where it is, not freed.
        slot.layout.store(core::ptr::null_mut(), Ordering::Release);
        slot.noted.store(false, Ordering::Release);
        slot.owner.store(owner, Ordering::Release);
        slot.state.store(state, Ordering::Release);
    }
}

/// What is known of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// No call gave it.
    Unknown,
    Alive,
    /// Its owner is gone.
    Dead,
}

/// What is known of a handle.
#[inline]
pub(crate) fn standing(handle: u64) -> Standing {
    match slot(handle, false).map(|slot| slot.state.load(Ordering::Acquire) & DEAD) {
        None => Standing::Unknown,
        Some(DEAD) => Standing::Dead,
        Some(_) => Standing::Alive,
    }
}

/// The owner of a kernel, for the function that is made from it; the kernel itself if it is unknown.
pub(crate) fn owner_of(kernel: u64) -> u64 {
    slot(kernel, false).map_or(kernel, |slot| slot.owner.load(Ordering::Acquire))
}

/// Whose functions end.
#[derive(Clone, Copy)]
pub(crate) enum Owner {
    /// That module's or library's.
    Module(u64),
    /// Those in that context.
    Context(u64),
    /// Those in any context, but no kernels.
    AnyContext,
}

/// Notes that functions are gone: they must not be asked about any more.
pub(crate) fn forget(owner: Owner) {
    for slot in TABLE
        .iter()
        .filter(|slot| slot.handle.load(Ordering::Relaxed) != 0)
    {
        let ends = match owner {
            Owner::Module(module) => slot.owner.load(Ordering::Relaxed) == module,
            Owner::Context(context) => slot.context.load(Ordering::Relaxed) == context,
            Owner::AnyContext => slot.context.load(Ordering::Relaxed) != 0,
        };
        if ends {
            slot.state.fetch_or(DEAD, Ordering::AcqRel);
        }
    }
}

/// Notes that a module or library is still there.
pub(crate) fn revive(module: u64) {
    for slot in &TABLE {
        if slot.handle.load(Ordering::Relaxed) != 0 && slot.owner.load(Ordering::Relaxed) == module
        {
            slot.state.fetch_and(!DEAD, Ordering::AcqRel);
        }
    }
}

/// The layout of a function that is alive and whose layout stands in the trace.
#[inline]
pub(crate) fn noted(handle: u64) -> Option<&'static Layout> {
    let slot = slot(handle, false)?;
    if !slot.noted.load(Ordering::Relaxed) || slot.state.load(Ordering::Acquire) & DEAD != 0 {
        return None;
    }
    // SAFETY: NULL, or leaked by `of`.
    unsafe { slot.layout.load(Ordering::Acquire).as_ref() }
}

/// The layout of a function if the trace does not have it yet; it is taken to have it from now on.
#[inline]
pub(crate) fn to_be_noted(handle: u64) -> Option<&'static Layout> {
    let slot = slot(handle, false)?;
    if slot.noted.load(Ordering::Relaxed) || slot.noted.swap(true, Ordering::AcqRel) {
        return None;
    }
    let layout = of(handle);
    if layout.is_none() {
        // The driver may say it another time.
        slot.noted.store(false, Ordering::Release);
    }
    layout.map(|(layout, _)| layout)
}

/// For a new trace: no layout stands in it.
pub(crate) fn forget_notes() {
    if !LEARNED.load(Ordering::Relaxed) {
        return;
    }
    for slot in &TABLE {
        slot.noted.store(false, Ordering::Relaxed);
    }
}

/// The layout of a function or kernel, and whether that is still alive.
/// `None` for a handle that no call gave us, or that went before its layout was known.
#[inline]
pub(crate) fn of(handle: u64) -> Option<(&'static Layout, bool)> {
    let slot = slot(handle, false)?;
    let known = slot.layout.load(Ordering::Acquire);
    let state = slot.state.load(Ordering::Acquire);
    // SAFETY: NULL, or leaked by `ask`.
    if let Some(layout) = unsafe { known.as_ref() } {
        return Some((layout, state & DEAD == 0));
    }
    if state & DEAD != 0 {
        return None;
    }
    let layout = Box::into_raw(Box::new(ask(handle, state == 1)?));
    slot.layout.store(layout, Ordering::Release);
    // SAFETY: just leaked.
    Some((unsafe { &*layout }, true))
}

/// Asks the driver for parameter after parameter until it says that there is none.
#[cold]
fn ask(handle: u64, is_kernel: bool) -> Option<Layout> {
    let function = if is_kernel {
        id::cuKernelGetParamInfo
    } else {
        id::cuFuncGetParamInfo
    };
    let _errno = Errno::keep();
    let mut layout = Layout {
        parameters: Vec::new(),
        length: 0,
        gaps: Vec::new(),
    };
    for index in 0..u64::from(LONGEST) {
        let (mut offset, mut size) = (0u64, 0u64);
        let arguments = [
            handle,
            index,
            (&raw mut offset) as u64,
            (&raw mut size) as u64,
        ];
        // SAFETY: both outputs are valid for writing a size_t; the handle is alive.
        match unsafe { driver::call(function, arguments) } {
            Some(0) => {}
            // A driver before 12.4 does not have the function.
            None => return None,
            Some(CUDA_ERROR_INVALID_VALUE) => break,
            // It has not answered the question, for example because there is no context.
            Some(_) => return None,
        }
        let end = offset
            .checked_add(size)
            .filter(|&end| end <= u64::from(LONGEST))?;
        layout.parameters.push((offset as u32, size as u32));
        layout.length = layout.length.max(end as u32);
    }
    layout.gaps = gaps(&layout.parameters, layout.length);
    Some(layout)
}

/// Where eight zero bytes are to be put so that all bytes between parameters are zero. They may reach into parameters, which are
/// put afterwards, but not behind the end.
fn gaps(parameters: &[(u32, u32)], length: u32) -> Vec<u32> {
    let mut gaps = Vec::new();
    let mut at = 0;
    while at < length {
        let covering = parameters
            .iter()
            .find(|&&(offset, size)| offset <= at && at < offset + size);
        match covering {
            Some(&(offset, size)) => at = offset + size,
            None => {
                gaps.push(at.min(length.saturating_sub(8)));
                at += 8;
            }
        }
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::gaps;

    #[test]
    fn zeros_cover_what_belongs_to_no_parameter() {
        let check = |parameters: &[(u32, u32)], length, expected: &[u32]| {
            assert_eq!(gaps(parameters, length), expected, "{parameters:?}");
        };
        check(&[], 0, &[]);
        check(&[(0, 8), (8, 4)], 12, &[]);
        check(&[(0, 4), (8, 8)], 16, &[4]);
        check(&[(0, 1), (4, 4), (32, 8)], 40, &[1, 9, 17, 25]);
        // Shorter than what is put: all of it is zero.
        check(&[(4, 1)], 5, &[0]);
        check(&[(0, 8), (12, 1)], 13, &[5]);
    }
}
