//! From an exported symbol to its implementation: faults from the settings, initialisation, panics.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::LazyLock;

use cutape_registry::{FUNCTIONS, Function};

use crate::answer::{
    Answer, CUresult, NOT_INITIALIZED, NOT_PERMITTED, NOT_SUPPORTED, SUCCESS, UNKNOWN,
};
use crate::argument::{Argument, Call, WORDS};
use crate::{capture, host_call, settings, state};

/// Answers one call.
pub(crate) type Handler = fn(&Call) -> CUresult;

/// One line of a section's table: a documented name (which then speaks for every variant with the newest variant's
/// parameters) or one exact symbol, and what answers it.
pub(crate) type Entry = (&'static str, Handler);

/// A Rust function whose parameters are all `Argument`s; `M` is the tuple of their types.
pub(crate) trait Implementation<M>: Copy {
    fn invoke(self, call: &Call) -> Answer;
}

macro_rules! implementations {
    ($(($($letter:ident $index:literal),*))*) => {
        $(impl<F: Fn($($letter),*) -> Answer + Copy, $($letter: Argument),*> Implementation<($($letter,)*)> for F {
            fn invoke(self, _call: &Call) -> Answer {
                self($($letter::read(_call, $index)),*)
            }
        })*
    };
}

implementations! {
    ()
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, G 5)
    (A 0, B 1, C 2, D 3, E 4, G 5, H 6)
    (A 0, B 1, C 2, D 3, E 4, G 5, H 6, I 7)
    (A 0, B 1, C 2, D 3, E 4, G 5, H 6, I 7, J 8)
    (A 0, B 1, C 2, D 3, E 4, G 5, H 6, I 7, J 8, K 9)
    (A 0, B 1, C 2, D 3, E 4, G 5, H 6, I 7, J 8, K 9, L 10)
    (A 0, B 1, C 2, D 3, E 4, G 5, H 6, I 7, J 8, K 9, L 10, N 11)
    (A 0, B 1, C 2, D 3, E 4, G 5, H 6, I 7, J 8, K 9, L 10, N 11, O 12, P 13, Q 14)
    (A 0, B 1, C 2, D 3, E 4, G 5, H 6, I 7, J 8, K 9, L 10, N 11, O 12, P 13, Q 14, R 15)
}

/// The handler that reads the arguments of `F` and calls it.
pub(crate) const fn bind<M, F: Implementation<M>>(_implementation: F) -> Handler {
    const {
        assert!(
            size_of::<F>() == 0,
            "only named functions and closures without captures"
        )
    };
    thunk::<M, F>
}

fn thunk<M, F: Implementation<M>>(call: &Call) -> CUresult {
    // SAFETY: `bind` was given a value of F, so F is inhabited; it is Copy and (asserted there) has no bytes to read.
    let implementation: F = unsafe { *NonNull::dangling().as_ptr() };
    match implementation.invoke(call) {
        Ok(()) => SUCCESS,
        Err(code) => code,
    }
}

const TABLES: &[&[Entry]] = &[
    crate::array::ENTRIES,
    crate::batch::ENTRIES,
    crate::capture::ENTRIES,
    crate::context::ENTRIES,
    crate::hint::ENTRIES,
    crate::copy::ENTRIES,
    crate::device::ENTRIES,
    crate::entry_point::ENTRIES,
    crate::error::ENTRIES,
    crate::event::ENTRIES,
    crate::function::ENTRIES,
    crate::graph::ENTRIES,
    crate::graph_exec::ENTRIES,
    crate::graph_node::ENTRIES,
    crate::host_call::ENTRIES,
    crate::launch::ENTRIES,
    crate::legacy_launch::ENTRIES,
    crate::library::ENTRIES,
    crate::link::ENTRIES,
    crate::memory::ENTRIES,
    crate::memset::ENTRIES,
    crate::module::ENTRIES,
    crate::occupancy::ENTRIES,
    crate::pointer::ENTRIES,
    crate::pool::ENTRIES,
    crate::primary::ENTRIES,
    crate::stream::ENTRIES,
    crate::green::ENTRIES,
    crate::tensor_map::ENTRIES,
    crate::texture::ENTRIES,
    crate::texture_reference::ENTRIES,
    crate::user_object::ENTRIES,
    crate::virtual_memory::ENTRIES,
];

/// What may be called before `cuInit`, in host functions and in a forked child.
const ALWAYS: &[&str] = &[
    "cuInit",
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGetProcAddress",
    "cuGetExportTable",
];

static HANDLERS: LazyLock<Vec<Option<Handler>>> = LazyLock::new(|| {
    let entries: Vec<Entry> = TABLES
        .iter()
        .flat_map(|table| table.iter().copied())
        .collect();
    FUNCTIONS
        .iter()
        .map(|function| handler_of(function, &entries))
        .collect()
});

/// The entry for exactly this symbol (`=name`, its per-thread variant included), else the one for its documented name
/// if the parameters are those of the newest variant.
fn handler_of(function: &Function, entries: &[Entry]) -> Option<Handler> {
    let plain = without_per_thread(function.name);
    let exact = entries
        .iter()
        .find(|entry| entry.0.strip_prefix('=') == Some(plain));
    let documented = || {
        let newest = FUNCTIONS
            .iter()
            .filter(|other| other.base == function.base)
            .max_by_key(|other| version_of(other.name))?;
        let same = function.params.len() == newest.params.len()
            && function
                .params
                .iter()
                .zip(newest.params)
                .all(|(mine, its)| mine.c_type == its.c_type);
        entries
            .iter()
            .find(|entry| entry.0 == function.base && same)
    };
    exact.or_else(documented).map(|entry| entry.1)
}

fn without_per_thread(name: &str) -> &str {
    name.strip_suffix("_ptsz")
        .or_else(|| name.strip_suffix("_ptds"))
        .unwrap_or(name)
}

/// The N of a symbol's `_vN`, 1 without.
fn version_of(name: &str) -> u32 {
    let plain = without_per_thread(name);
    plain
        .rsplit_once("_v")
        .and_then(|(_, digits)| digits.parse().ok())
        .unwrap_or(1)
}

thread_local! {
    /// Where the stack of the thread was when it entered the driver last.
    static ENTERED_AT: Cell<u64> = const { Cell::new(0) };
}

/// Whether an address of the program lies in stack that the driver itself is using now: then the frame that it was in is
/// gone, and writing there would destroy our own return addresses rather than the program's memory.
pub(crate) fn is_own_stack(address: u64) -> bool {
    let here = 0_u8;
    let entered = ENTERED_AT.get();
    // Some room for the entry point's own frame above its argument words.
    (&raw const here as u64..entered + 512).contains(&address)
}

/// Answers the call of the exported symbol with that registry id.
pub(crate) fn enter(id: u16, words: &[u64; WORDS]) -> CUresult {
    let Some(function) = FUNCTIONS.get(usize::from(id)) else {
        return NOT_SUPPORTED;
    };
    if let Some(code) = settings::get().disturb(function) {
        return code;
    }
    if !ALWAYS.contains(&function.base) {
        if !state::is_initialised() {
            return NOT_INITIALIZED;
        }
        if host_call::is_inside() {
            // A host function must not call the API (cuLaunchHostFunc); measured for cuMemAlloc.
            return NOT_PERMITTED;
        }
    }
    let Some(handler) = HANDLERS[usize::from(id)] else {
        return NOT_SUPPORTED;
    };
    if let Some(code) = capture::forbids(function) {
        return code;
    }
    let call = Call { function, words };
    ENTERED_AT.set(words.as_ptr() as u64);
    match catch_unwind(AssertUnwindSafe(|| handler(&call))) {
        Ok(code) => code,
        Err(_) => UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_answers_at_least_one_symbol() {
        let entries: Vec<Entry> = TABLES
            .iter()
            .flat_map(|table| table.iter().copied())
            .collect();
        for (name, _) in &entries {
            let used = match name.strip_prefix('=') {
                Some(symbol) => cutape_registry::function(symbol).is_some(),
                None => FUNCTIONS.iter().any(|function| function.base == *name),
            };
            assert!(used, "{name} is no function of the registry");
        }
        let mut names: Vec<_> = entries.iter().map(|entry| entry.0).collect();
        names.sort_unstable();
        assert!(
            names.windows(2).all(|pair| pair[0] != pair[1]),
            "a name stands twice"
        );
    }

    #[test]
    fn variants_share_an_implementation_only_with_the_same_parameters() {
        for (name, answered) in [
            ("cuMemAlloc_v2", true),
            ("cuMemAlloc", false), // 32-bit addresses
            ("cuMemcpyHtoD_v2_ptds", true),
            ("cuCtxCreate", true),
            ("cuCtxCreate_v4", true),
            ("cuStreamDestroy", true),
            ("cuLaunchKernel_ptsz", true),
        ] {
            let function = cutape_registry::function(name).expect(name);
            assert_eq!(
                HANDLERS[usize::from(function.id)].is_some(),
                answered,
                "{name}"
            );
        }
    }
}
