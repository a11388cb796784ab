//! The functions and kernels that the program knows: which are alive, and how each takes its
//! parameters. A table without locks.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use cutape_registry::id;

use crate::driver;
use crate::hot::kernel_parameters::ParameterLayout;
use crate::process::errno::Errno;
use crate::state::contexts;

/// More functions than any program was seen to use. Parameters of further ones are not kept, and
/// the trace says so.
const ENTRIES: usize = 1 << 16;
/// Entries that are looked at for a handle.
const PROBES: usize = 64;
/// The driver allows 4 KiB of parameters, 32,764 bytes from CUDA 12.1 on (manual, execution
/// control, cuLaunchKernel).
const LONGEST: u32 = 32 << 10;

const CUDA_ERROR_INVALID_VALUE: i32 = 1;

/// One cache line.
#[repr(align(64))]
struct Entry {
    /// 0 while the entry is free.
    handle: AtomicU64,
    /// Module or library that owns the function.
    owner: AtomicU64,
    /// Context of a `CUfunction`; kernels belong to none.
    context: AtomicU64,
    /// 0 `CUfunction`, 1 `CUkernel`; plus `DEAD` when its owner is gone.
    state: AtomicU64,
    layout: AtomicPtr<ParameterLayout>,
    /// The trace has the layout.
    is_noted: AtomicBool,
}

const DEAD: u64 = 2;

static TABLE: [Entry; ENTRIES] = [const {
    Entry {
        handle: AtomicU64::new(0),
        owner: AtomicU64::new(0),
        context: AtomicU64::new(0),
        state: AtomicU64::new(0),
        layout: AtomicPtr::new(core::ptr::null_mut()),
        is_noted: AtomicBool::new(false),
    }
}; ENTRIES];

/// A layout that its entry has no more. A launch on another thread may still read it, so it is not
/// freed, and stays reachable: LeakSanitizer would let a program fail that was compiled with it.
struct Retired {
    _layout: *mut ParameterLayout,
    next: *mut Retired,
}

/// The last one, which leads to the others.
static RETIRED: AtomicPtr<Retired> = AtomicPtr::new(core::ptr::null_mut());

impl Entry {
    /// Sets the layout, or NULL.
    fn set_layout(&self, layout: *mut ParameterLayout) {
        let old = self.layout.swap(layout, Ordering::AcqRel);
        if old.is_null() {
            return;
        }
        let mut retired = Box::new(Retired {
            _layout: old,
            next: RETIRED.load(Ordering::Acquire),
        });
        loop {
            let (last, new) = (retired.next, Box::into_raw(retired));
            match RETIRED.compare_exchange(last, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(now) => {
                    // SAFETY: made above, and seen by no other thread.
                    retired = unsafe { Box::from_raw(new) };
                    retired.next = now;
                }
            }
        }
    }
}

/// The table is not empty.
static IS_USED: AtomicBool = AtomicBool::new(false);

/// The entry of a handle; with `add`, a free one if there is none.
fn entry(handle: u64, add: bool) -> Option<&'static Entry> {
    if handle == 0 {
        return None;
    }
    // Handles are addresses, whose low bits vary little.
    let hash = (handle >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> (usize::BITS - 16);
    for probe in 0..PROBES {
        let entry = TABLE.get((hash + probe) % ENTRIES)?;
        let mut found = entry.handle.load(Ordering::Acquire);
        if found == 0 && add {
            found = entry
                .handle
                .compare_exchange(0, handle, Ordering::AcqRel, Ordering::Acquire)
                .map_or_else(|other| other, |_| handle);
        }
        if found == handle {
            return Some(entry);
        }
        if found == 0 {
            return None;
        }
    }
    None
}

fn used_entries() -> impl Iterator<Item = &'static Entry> {
    TABLE
        .iter()
        .filter(|entry| entry.handle.load(Ordering::Relaxed) != 0)
}

/// Adds a handle that the driver has just returned, of a function or kernel of that module or
/// library.
pub(crate) fn add(handle: u64, is_kernel: bool, owner: u64) {
    let Some(entry) = entry(handle, true) else {
        return;
    };
    IS_USED.store(true, Ordering::Relaxed);
    let state = u64::from(is_kernel);
    if !is_kernel {
        entry
            .context
            .store(contexts::known_current(), Ordering::Release);
    }
    if entry.state.load(Ordering::Acquire) != state || entry.owner.load(Ordering::Acquire) != owner
    {
        // The driver has reused the handle.
        entry.set_layout(core::ptr::null_mut());
        entry.is_noted.store(false, Ordering::Release);
        entry.owner.store(owner, Ordering::Release);
        entry.state.store(state, Ordering::Release);
    }
}

/// Whether a handle may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Liveness {
    /// No call has returned it.
    Unknown,
    Alive,
    /// Its owner is gone.
    Dead,
}

#[inline]
pub(crate) fn liveness(handle: u64) -> Liveness {
    match entry(handle, false).map(|entry| entry.state.load(Ordering::Acquire) & DEAD) {
        None => Liveness::Unknown,
        Some(DEAD) => Liveness::Dead,
        Some(_) => Liveness::Alive,
    }
}

/// The owner of a kernel, for the function that is made from it; the kernel itself if it is
/// unknown.
pub(crate) fn owner_of(kernel: u64) -> u64 {
    entry(kernel, false).map_or(kernel, |entry| entry.owner.load(Ordering::Acquire))
}

/// Which functions end.
#[derive(Clone, Copy)]
pub(crate) enum Owner {
    /// Those of a module or library.
    Module(u64),
    /// Those in a context.
    Context(u64),
    /// Those in the primary context of a device.
    Primary(u64),
}

/// Marks functions as dead: the driver must not be asked about them any more.
pub(crate) fn end(owner: Owner) {
    for entry in used_entries() {
        let ends = match owner {
            Owner::Module(module) => entry.owner.load(Ordering::Relaxed) == module,
            Owner::Context(context) => entry.context.load(Ordering::Relaxed) == context,
            Owner::Primary(device) => {
                // Kernels belong to none.
                let context = entry.context.load(Ordering::Relaxed);
                context != 0 && contexts::is_of_primary(context, device)
            }
        };
        if ends {
            entry.state.fetch_or(DEAD, Ordering::AcqRel);
        }
    }
}

/// Marks the functions of a module or library as alive: unloading it has failed.
pub(crate) fn revive(module: u64) {
    for entry in used_entries().filter(|entry| entry.owner.load(Ordering::Relaxed) == module) {
        entry.state.fetch_and(!DEAD, Ordering::AcqRel);
    }
}

/// The layout of a function that is alive and whose layout the trace has.
#[inline(always)]
pub(crate) fn noted_layout(handle: u64) -> Option<&'static ParameterLayout> {
    let entry = entry(handle, false)?;
    if !entry.is_noted.load(Ordering::Relaxed) || entry.state.load(Ordering::Acquire) & DEAD != 0 {
        return None;
    }
    // SAFETY: NULL, or leaked by `layout`.
    unsafe { entry.layout.load(Ordering::Acquire).as_ref() }
}

/// The layout of a function if the trace does not have it yet. The caller writes it to the trace.
pub(crate) fn take_unnoted_layout(handle: u64) -> Option<&'static ParameterLayout> {
    let entry = entry(handle, false)?;
    if entry.is_noted.load(Ordering::Relaxed) || entry.is_noted.swap(true, Ordering::AcqRel) {
        return None;
    }
    let layout = layout(handle);
    if layout.is_none() {
        // The driver may answer next time.
        entry.is_noted.store(false, Ordering::Release);
    }
    layout.map(|(layout, _)| layout)
}

/// For a new trace, which has no layouts.
pub(crate) fn forget_notes() {
    if IS_USED.load(Ordering::Relaxed) {
        for entry in used_entries() {
            entry.is_noted.store(false, Ordering::Relaxed);
        }
    }
}

/// The layout of a function or kernel, and whether that is alive. `None` for a handle that no call
/// has returned, and for one that ended before the driver was asked.
pub(crate) fn layout(handle: u64) -> Option<(&'static ParameterLayout, bool)> {
    let entry = entry(handle, false)?;
    let known = entry.layout.load(Ordering::Acquire);
    let state = entry.state.load(Ordering::Acquire);
    // SAFETY: NULL, or leaked below.
    if let Some(layout) = unsafe { known.as_ref() } {
        return Some((layout, state & DEAD == 0));
    }
    if state & DEAD != 0 {
        return None;
    }
    let layout = Box::into_raw(Box::new(ask(handle, state == 1)?));
    entry.set_layout(layout);
    // SAFETY: just leaked.
    Some((unsafe { &*layout }, true))
}

/// Asks the driver for one parameter after the other until it answers that there is none.
#[cold]
fn ask(handle: u64, is_kernel: bool) -> Option<ParameterLayout> {
    let function = if is_kernel {
        id::cuKernelGetParamInfo
    } else {
        id::cuFuncGetParamInfo
    };
    let _errno = Errno::keep();
    let mut parameters = Vec::new();
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
            // Drivers before 12.4 do not have the function.
            None => return None,
            Some(CUDA_ERROR_INVALID_VALUE) => break,
            // No answer, for example because there is no context.
            Some(_) => return None,
        }
        offset
            .checked_add(size)
            .filter(|&end| end <= u64::from(LONGEST))?;
        parameters.push((offset as u32, size as u32));
    }
    ParameterLayout::new(parameters)
}
