//! From an exported symbol to its implementation: injected faults, initialisation, captures,
//! panics.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;

use cutape_registry::{FUNCTIONS, Function};

use crate::call::answer::{
    CUresult, DEINITIALIZED, NOT_INITIALIZED, NOT_PERMITTED, NOT_SUPPORTED, UNKNOWN,
};
use crate::call::argument::{AddressOf, Call, WORDS};
use crate::call::entry::{Entry, Handler};
use crate::call::error_log;
use crate::player;
use crate::section::{code, context, execution, graph, memory, stream, texture};
use crate::settings;
use crate::state::{self, capture};
use crate::work::{host_function, schedule};

const TABLES: &[&[Entry]] = &[
    code::library::ENTRIES,
    code::link::ENTRIES,
    code::module::ENTRIES,
    context::device::ENTRIES,
    context::entry_point::ENTRIES,
    context::error::ENTRIES,
    context::error_log::ENTRIES,
    context::green::ENTRIES,
    context::management::ENTRIES,
    context::primary::ENTRIES,
    execution::function::ENTRIES,
    execution::launch::ENTRIES,
    execution::legacy_launch::ENTRIES,
    execution::occupancy::ENTRIES,
    graph::exec::ENTRIES,
    graph::management::ENTRIES,
    graph::node::ENTRIES,
    graph::user_object::ENTRIES,
    memory::array::ENTRIES,
    memory::batch::ENTRIES,
    memory::copy::ENTRIES,
    memory::hint::ENTRIES,
    memory::ipc::ENTRIES,
    memory::linear::ENTRIES,
    memory::memset::ENTRIES,
    memory::pointer::ENTRIES,
    memory::pool::ENTRIES,
    memory::virtual_memory::ENTRIES,
    stream::capture::ENTRIES,
    stream::event::ENTRIES,
    stream::host_function::ENTRIES,
    stream::management::ENTRIES,
    texture::object::ENTRIES,
    texture::reference::ENTRIES,
    texture::tensor_map::ENTRIES,
];

/// What may be called before `cuInit`, in host functions and in a forked child.
const ALWAYS: &[&str] = &[
    "cuInit",
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGetProcAddress",
    "cuGetExportTable",
    "cuLogsRegisterCallback",
    "cuLogsUnregisterCallback",
];

static HANDLERS: LazyLock<Vec<Option<Handler>>> = LazyLock::new(handlers);

fn entries() -> impl Iterator<Item = &'static Entry> {
    TABLES.iter().copied().flatten()
}

/// For each function, the entry for exactly its symbol, its per-thread variant included; else the
/// one for its documented name if the parameters are those of the newest symbol.
fn handlers() -> Vec<Option<Handler>> {
    let named: HashMap<_, _> = entries()
        .map(|entry| ((entry.is_symbol, entry.name), entry))
        .collect();
    let mut newest: HashMap<&str, &Function> = HashMap::new();
    for function in &FUNCTIONS {
        let known = newest.entry(function.base).or_insert(function);
        if version_of(function.name) >= version_of(known.name) {
            *known = function;
        }
    }
    let handler_of = |function: &Function| {
        let exact = named.get(&(true, without_per_thread(function.name)));
        let documented = || {
            let types = |function: &Function| function.params.iter().map(|param| param.c_type);
            let is_same = types(function).eq(types(newest.get(function.base)?));
            named.get(&(false, function.base)).filter(|_| is_same)
        };
        exact.or_else(documented).map(|entry| entry.handler)
    };
    FUNCTIONS.iter().map(handler_of).collect()
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

/// Answers a call of the exported symbol with that registry id.
pub(crate) fn enter(id: u16, words: &[u64; WORDS], address_of: AddressOf) -> CUresult {
    let Some(function) = FUNCTIONS.get(usize::from(id)) else {
        return NOT_SUPPORTED;
    };
    let code = player::answer(function, words, || answer(function, words, address_of));
    error_log::report(function, code);
    code
}

fn answer(function: &'static Function, words: &[u64; WORDS], address_of: AddressOf) -> CUresult {
    if let Some(code) = settings::get().inject_fault(function) {
        return code;
    }
    if !ALWAYS.contains(&function.base) {
        if !state::is_initialised() {
            return NOT_INITIALIZED;
        }
        if state::has_ended() {
            return DEINITIALIZED;
        }
        if host_function::is_inside() {
            // A host function must not call the API (cuLaunchHostFunc); measured for cuMemAlloc.
            return NOT_PERMITTED;
        }
    }
    let Some(handler) = HANDLERS[usize::from(function.id)] else {
        return NOT_SUPPORTED;
    };
    if let Some(code) = capture::forbids(function, words) {
        return code;
    }
    let call = Call {
        function,
        words,
        address_of,
    };
    call.note_stack();
    schedule::before_call(function, words);
    let code = catch_unwind(AssertUnwindSafe(|| handler(&call))).unwrap_or(UNKNOWN);
    schedule::after_call();
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_answers_at_least_one_symbol() {
        for entry in entries() {
            let is_used = match entry.is_symbol {
                true => cutape_registry::function(entry.name).is_some(),
                false => FUNCTIONS.iter().any(|function| function.base == entry.name),
            };
            assert!(is_used, "{} is no function of the registry", entry.name);
        }
        let mut names: Vec<_> = entries()
            .map(|entry| (entry.name, entry.is_symbol))
            .collect();
        names.sort_unstable();
        assert!(
            names.windows(2).all(|pair| pair[0] != pair[1]),
            "a name is listed twice"
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
