//! One reading of a trace: what a replay of it needs, and what it cannot do.

pub(crate) mod exchange_outputs;
pub(crate) mod host_ranges;
pub(crate) mod length;
pub(crate) mod needs;
pub(crate) mod pending_writes;
pub(crate) mod private_memory;

use std::collections::{BTreeMap, HashMap, HashSet};

use cutape_format::layout::memory_snapshot;
use cutape_format::{Bytes, Call, Note, Trace};
use cutape_registry::{
    Class, ContextOp, Family, Function, HostMemoryOp, Kind, MemoryOp, PrimaryOp, Role, is_sticky,
};
use serde::Serialize;

use crate::plan::exchange_outputs::{AllExchangeOutputs, OutputCollector};
use crate::plan::length::made_length;
use crate::plan::needs::{Needs, Observer};
use crate::plan::pending_writes::PendingWrites;
use crate::plan::private_memory::PrivateMemoryObserver;
use crate::process::arenas::{arenas_in, coming_arenas};
use crate::process::slots::{SLOT, slots_around, union};

/// What a replay of a trace needs, and what it cannot do.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Plan {
    /// Calls in the trace.
    pub calls: u64,
    /// Calls whose end was not recorded: the program died or ended in them. They are not re-issued.
    pub in_flight: Vec<(u64, String)>,
    /// Address ranges (first, behind the last; multiples of 32 MiB) that ever held memory of
    /// `cuMemAlloc` and its like, or were reserved by the program. A replay reserves them all.
    pub device_slots: Vec<(u64, u64)>,
    /// Page ranges outside the device slots that ever held pinned or registered host memory.
    pub host_regions: Vec<HostRegion>,
    /// Those of them that the program registers: memory of its own, so the driver places nothing
    /// there.
    #[serde(skip)]
    pub registered: Vec<HostRegion>,
    /// Device allocations that succeeded.
    pub allocations: u64,
    /// What it needs of a machine.
    pub needs: Needs,
    /// Functions that will not be re-issued, by name.
    pub unreplayable: Vec<Unreplayable>,
    /// Images, files and host bytes that the trace does not hold, by function: count.
    pub missing_bytes: BTreeMap<String, u64>,
    /// Functions by name that this build does not know.
    pub unknown_functions: BTreeMap<String, u64>,
    /// Index of the first `cuInit` that succeeded.
    pub first_init: Option<u64>,
    /// The lazy or eager loading of modules that the driver reported to the program: `LAZY` or
    /// `EAGER`.
    pub loading_mode: Option<&'static str>,
    /// Primary contexts that the program retained: recorded handle, device, index of the first call
    /// that retained it.
    pub primary_contexts: Vec<(u64, i32, u64)>,
    /// Address ranges that the process had mapped before a call that initialises the driver or
    /// makes a context, by the call's index.
    #[serde(skip)]
    pub address_spaces: BTreeMap<u64, Vec<(u64, u64)>>,
    /// Indexes of calls whose address ranges were noted while another thread made a context, or
    /// began a call that may make the driver map memory: they may have a part of what it mapped,
    /// and a replay makes it after these calls.
    #[serde(skip)]
    pub mixed_address_spaces: HashSet<u64>,
    /// Arenas of threads that first appear in the next address space which counts, by the index of the
    /// call whose address space was noted before.
    #[serde(skip)]
    pub coming_arenas: BTreeMap<u64, Vec<(u64, u64)>>,
    /// By number: the digests of device memory that the recorder has read.
    #[serde(skip)]
    pub digests: HashMap<u64, u64>,
    /// The recorder has digested device memory at launches.
    #[serde(skip)]
    pub has_launch_digests: bool,
    /// Numbers (first, behind the last) of digests that do not count.
    #[serde(skip)]
    pub void_digests: Vec<(u64, u64)>,
    /// Numbers of snapshots of memory that do not count.
    #[serde(skip)]
    pub void_snapshots: HashSet<u64>,
    /// Where work may have been writing host memory that the trace has bytes of.
    #[serde(skip)]
    pub(crate) pending_writes: PendingWrites,
    /// Calls name device memory that no recorded call made.
    #[serde(skip)]
    pub(crate) names_private_memory: bool,
    /// What work changed that exchanged data with other processes.
    #[serde(skip)]
    pub(crate) exchange_outputs: AllExchangeOutputs,
    /// The first call that reported an error that all later work of its context returns, and the code.
    pub context_error: Option<(u64, i32)>,
}

/// Host memory that is put back where it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct HostRegion {
    /// First address, a multiple of the page size.
    pub start: u64,
    /// Behind the last.
    pub end: u64,
}

/// A function whose calls are not re-issued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unreplayable {
    /// The exported name.
    pub function: String,
    /// Why, in the registry's words.
    pub reason: String,
    /// How many calls.
    pub count: u64,
    /// True if the calls could not be re-issued even in principle.
    pub forever: bool,
}

/// Page size of x86-64.
pub(crate) const PAGE: u64 = 4096;

/// Looks up a trace's function in this build's registry: by name, and only if its parameters are
/// the same.
pub(crate) fn function_of(call: &Call) -> Option<&'static Function> {
    cutape_model::function_of(call.signature)
}

/// True for device memory that a replay maps itself.
pub(crate) fn is_placed_allocation(function: &Function) -> bool {
    function.class == Class::Override
        && matches!(
            function.family,
            Family::Memory(MemoryOp::Allocate | MemoryOp::AllocatePitch { .. })
        )
}

/// True for page-locked host memory that a replay provides itself.
pub(crate) fn is_pinned_allocation(function: &Function) -> bool {
    function.family == Family::HostMemory(HostMemoryOp::Allocate)
        && function.class == Class::Override
}

/// Nanoseconds that noting the address ranges takes at most (assumed).
const NOTING: u64 = 10_000_000;

/// A call before which address ranges were noted. Times are ticks.
struct NotedRanges {
    call: u64,
    thread: u32,
    since: u64,
    returned: u64,
}

impl NotedRanges {
    /// Whether the recorder may still have been reading them.
    fn lasts(&self, trace: &Trace, now: u64) -> bool {
        let since = trace.nanoseconds(self.since);
        self.returned > now && trace.nanoseconds(now) <= since.saturating_add(NOTING)
    }
}

/// Whether the recorder has digested device memory at launches.
pub(crate) fn has_launch_digests(trace: &Trace) -> bool {
    trace.meta_value("digests") == Some("launch")
}

/// Whether a plan of a trace has [`Plan::address_spaces`]. Reads up to the first one, which most
/// traces have at `cuInit`.
pub(crate) fn has_address_spaces(trace: &Trace) -> bool {
    let mut calls = trace.calls().filter(Call::has_notes);
    calls.any(|call| {
        let function = function_of(&call);
        function.is_some_and(|function| not_reissued(function).is_none() && makes_context(function))
            && address_space(&call).is_some()
    })
}

/// Reads a trace for what it needs of a machine alone.
pub(crate) fn needs(trace: &Trace) -> Needs {
    let mut observer = Observer::new(trace);
    for call in trace.calls() {
        if let Some(function) = function_of(&call) {
            observer.observe(&call, function, not_reissued(function).is_none());
        }
    }
    observer.finish()
}

/// Reads a trace for all that a replay of it needs, in the process that replays it.
pub fn plan(trace: &Trace) -> Plan {
    let mut planner = Planner::new(trace);
    let mut functions: HashMap<u16, Option<&'static Function>> = HashMap::new();
    for call in trace.calls() {
        let function = *functions
            .entry(call.signature.id)
            .or_insert_with(|| function_of(&call));
        planner.take(&call, function);
    }
    planner.finish()
}

/// What is known of a trace up to a call.
struct Planner<'t> {
    trace: &'t Trace,
    plan: Plan,
    observer: Observer<'t>,
    outputs: OutputCollector,
    private_memory: PrivateMemoryObserver,
    unreplayable: BTreeMap<&'static str, Unreplayable>,
    /// Parts of the address space in which device memory lay.
    slots: Vec<(u64, u64)>,
    /// Page-locked memory, and that of it which the program registered: start, length.
    pinned: Vec<(u64, u64)>,
    registered: Vec<(u64, u64)>,
    /// Threads that make a context, and when they have done it.
    making: Vec<(u32, u64)>,
    noted: Vec<NotedRanges>,
    arenas: Vec<(u64, Vec<(u64, u64)>)>,
    has_host_memory: bool,
}

impl<'t> Planner<'t> {
    fn new(trace: &'t Trace) -> Self {
        Self {
            trace,
            plan: Plan {
                has_launch_digests: has_launch_digests(trace),
                ..Plan::default()
            },
            observer: Observer::new(trace),
            outputs: OutputCollector::new(trace),
            private_memory: PrivateMemoryObserver::default(),
            unreplayable: BTreeMap::new(),
            slots: Vec::new(),
            pinned: Vec::new(),
            registered: Vec::new(),
            making: Vec::new(),
            noted: Vec::new(),
            arenas: Vec::new(),
            has_host_memory: false,
        }
    }

    fn take(&mut self, call: &Call<'t>, function: Option<&'static Function>) {
        self.plan.calls += 1;
        if call.has_notes() {
            self.take_notes(call);
        }
        let Some(function) = function else {
            let name = call.signature.name.clone();
            *self.plan.unknown_functions.entry(name).or_default() += 1;
            return;
        };
        let left_out = not_reissued(function);
        self.observer.observe(call, function, left_out.is_none());
        self.private_memory.observe(self.trace, call, function);
        if let Some(forever) = left_out {
            let new = || Unreplayable {
                function: function.name.to_owned(),
                reason: function.reason.to_owned(),
                count: 0,
                forever,
            };
            let entry = self.unreplayable.entry(function.name);
            entry.or_insert_with(new).count += 1;
            return;
        }
        if call.snapshots().any(|snapshot| is_missing(snapshot.bytes)) {
            let name = function.name.to_owned();
            *self.plan.missing_bytes.entry(name).or_default() += 1;
        }
        self.take_address_space(call, function);
        let Some(result) = call.result() else {
            let name = function.name.to_owned();
            self.plan.in_flight.push((call.index, name));
            return;
        };
        if is_sticky(result) && self.plan.context_error.is_none() {
            self.plan.context_error = Some((call.index, result));
        }
        if result == 0 {
            self.take_success(call, function);
            self.take_memory(call, function);
        }
    }

    fn take_notes(&mut self, call: &Call<'t>) {
        let mut notes = call.notes();
        self.has_host_memory |= notes.any(|note| matches!(note, Note::HostChanged(..)));
        note_digests(call, &mut self.plan);
        self.outputs.observe(call);
        let Some(ranges) = address_space(call) else {
            return;
        };
        self.arenas.push((call.index, arenas_in(&ranges).collect()));
        self.making.retain(|&(_, returned)| returned > call.ticks);
        let is_other = |&(thread, _): &(u32, u64)| thread != call.thread;
        if self.making.iter().any(is_other) {
            self.plan.mixed_address_spaces.insert(call.index);
        }
        self.noted
            .retain(|noted| noted.lasts(self.trace, call.ticks));
        self.noted.push(NotedRanges {
            call: call.index,
            thread: call.thread,
            since: call.ticks,
            returned: call.leave.map_or(u64::MAX, |leave| leave.ticks),
        });
    }

    /// A call that may change the process's address space.
    fn take_address_space(&mut self, call: &Call<'t>, function: &Function) {
        let makes_context = makes_context(function);
        if makes_context || function.family.may_reserve_addresses() {
            let others = self
                .noted
                .iter()
                .filter(|noted| noted.thread != call.thread && noted.lasts(self.trace, call.ticks));
            let mixed = others.map(|noted| noted.call);
            self.plan.mixed_address_spaces.extend(mixed);
        }
        if makes_context {
            let returned = call.leave.map(|leave| leave.ticks);
            self.making
                .extend(returned.map(|returned| (call.thread, returned)));
            let ranges = address_space(call).map(|ranges| (call.index, ranges));
            self.plan.address_spaces.extend(ranges);
        }
    }

    fn take_success(&mut self, call: &Call<'t>, function: &Function) {
        let plan = &mut self.plan;
        match function.family {
            Family::Init if plan.first_init.is_none() => plan.first_init = Some(call.index),
            Family::PrimaryContext(PrimaryOp::Retain) => {
                if let Some(context) = call.out(0)
                    && plan.primary_contexts.iter().all(|known| known.0 != context)
                {
                    let device = call.argument(1) as i32;
                    plan.primary_contexts.push((context, device, call.index));
                }
            }
            Family::LoadingMode => {
                // CU_MODULE_EAGER_LOADING, CU_MODULE_LAZY_LOADING
                plan.loading_mode = match call.out(0) {
                    Some(1) => Some("EAGER"),
                    Some(2) => Some("LAZY"),
                    _ => None,
                };
            }
            _ => {}
        }
    }

    /// The memory that a call makes.
    fn take_memory(&mut self, call: &Call<'t>, function: &Function) {
        let length = made_length(call, function);
        for (position, param) in function.params.iter().enumerate() {
            let made = call.out(position);
            match param.role {
                Role::Make(Kind::Memory, _) => {
                    let Some(address) = made else { continue };
                    self.plan.allocations += 1;
                    if is_placed_allocation(function) {
                        self.slots.extend(slots_around(address, length));
                    }
                }
                Role::Make(Kind::Reservation, _) => {
                    let slots = made.and_then(|start| slots_around(start, length));
                    self.slots.extend(slots);
                }
                Role::Make(Kind::HostMemory, _) if is_pinned_allocation(function) => {
                    self.has_host_memory = true;
                    self.pinned.extend(made.map(|start| (start, length)));
                }
                Role::HostAddress
                    if function.family == Family::HostMemory(HostMemoryOp::Register) =>
                {
                    self.has_host_memory = true;
                    let range = (call.argument(position), length);
                    self.pinned.push(range);
                    self.registered.push(range);
                }
                _ => {}
            }
        }
    }

    fn finish(self) -> Plan {
        let mut plan = self.plan;
        if self.has_host_memory {
            plan.pending_writes = PendingWrites::of(self.trace);
        }
        plan.needs = self.observer.finish();
        plan.exchange_outputs = self.outputs.finish();
        plan.names_private_memory = self.private_memory.is_named;
        plan.device_slots = union(self.slots);
        let mut arenas = self.arenas;
        arenas.retain(|(call, _)| !plan.mixed_address_spaces.contains(call));
        plan.coming_arenas = coming_arenas(&arenas, &plan.device_slots);
        plan.host_regions = host_regions(&self.pinned, &plan.device_slots);
        plan.registered = host_regions(&self.registered, &plan.device_slots);
        plan.unreplayable = self.unreplayable.into_values().collect();
        plan
    }
}

/// Adds the digests that a call has, and which digests and snapshots of memory do not count.
fn note_digests(call: &Call, plan: &mut Plan) {
    for note in call.notes() {
        match note {
            Note::DigestValues(values) => plan.digests.extend(values),
            Note::DigestVoid(void) => {
                let end = void.first.saturating_add(void.count);
                plan.void_digests.push((void.first, end));
            }
            Note::MemorySnapshot(note) if note.state == memory_snapshot::VOID => {
                plan.void_snapshots.insert(note.number);
            }
            _ => {}
        }
    }
}

fn makes_context(function: &Function) -> bool {
    matches!(
        function.family,
        Family::Init
            | Family::Context(ContextOp::Create)
            | Family::PrimaryContext(PrimaryOp::Retain)
    )
}

/// The address ranges that the recorder noted before a call.
fn address_space(call: &Call) -> Option<Vec<(u64, u64)>> {
    call.notes().find_map(|note| match note {
        Note::AddressSpace(ranges) => Some(ranges),
        _ => None,
    })
}

/// Page ranges of host memory outside the device slots, those that touch joined.
fn host_regions(pinned: &[(u64, u64)], slots: &[(u64, u64)]) -> Vec<HostRegion> {
    let outside = pinned.iter().filter_map(|&(start, length)| {
        let end = start.checked_add(length)?.checked_next_multiple_of(PAGE)?;
        let start = start / PAGE * PAGE;
        let apart = slots.iter().all(|&(low, high)| end <= low || start >= high);
        (apart && start != 0 && end <= USER_END).then_some((start, end))
    });
    union(outside.collect())
        .into_iter()
        .map(|(start, end)| HostRegion { start, end })
        .collect()
}

/// Where user space ends on x86-64 with four-level page tables.
const USER_END: u64 = 0x7fff_ffff_f000;

/// Whether a function's calls are left out: `Some(true)` if only the recorded process can make
/// them, `Some(false)` if the function is opaque.
pub(crate) fn not_reissued(function: &Function) -> Option<bool> {
    match function.class {
        Class::Plain | Class::Override => None,
        Class::Opaque => Some(false),
        Class::Unreplayable => Some(true),
    }
}

fn is_missing(bytes: Bytes) -> bool {
    matches!(bytes, Bytes::Omitted(_) | Bytes::Hashed(..))
}

impl Plan {
    /// True if any slot holds device memory there.
    pub(crate) fn in_device_slots(&self, start: u64, length: u64) -> bool {
        let end = start.saturating_add(length.max(1));
        self.device_slots
            .iter()
            .any(|&(low, high)| start >= low && end <= high)
    }

    /// Bytes of address space to reserve.
    pub fn reserved_bytes(&self) -> u64 {
        self.device_slots
            .iter()
            .map(|&(start, end)| end - start)
            .sum()
    }

    /// How many slots of 32 MiB are reserved.
    pub fn slot_count(&self) -> u64 {
        self.reserved_bytes() / SLOT
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use cutape_format::layout::note_kind;
    use cutape_format::{NewCall, NewSnapshot, TraceBuilder};

    #[test]
    fn host_memory_in_device_slots_is_no_region_of_its_own() {
        let slots = [(0x7000_0000_0000, 0x7000_0200_0000)];
        let pinned = [
            (0x7000_0010_0000, 0x1000),   // in the slot
            (0x7000_01ff_f000, 0x2000),   // straddles its end
            (0x6000_0000_0800, 0x100),    // half a page
            (0x6000_0000_1000, 0x10),     // touches the one before
            (0x5000_0000_0000, u64::MAX), // nonsense
        ];
        let region = HostRegion {
            start: 0x6000_0000_0000,
            end: 0x6000_0000_2000,
        };
        assert_eq!(host_regions(&pinned, &slots), [region]);
    }

    #[test]
    fn address_ranges_noted_while_a_context_is_made_are_mixed() {
        let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
        let call = |thread, name| NewCall {
            thread,
            name,
            arguments: &[0; 2],
            ..NewCall::default()
        };
        let ranges = |builder: &mut TraceBuilder, thread| {
            builder.note(thread, note_kind::ADDRESS_SPACE, [0x1000_u64, 0x2000], &[]);
        };
        builder.call(call(0, "cuDevicePrimaryCtxRetain"));
        ranges(&mut builder, 0);
        builder.call(call(1, "cuCtxGetDevice_v2"));
        ranges(&mut builder, 1);
        builder.leave(1, 0, &[]).leave(0, 0, &[]);
        builder.call(call(2, "cuCtxGetDevice_v2"));
        ranges(&mut builder, 2);
        builder.leave(2, 0, &[]);
        // An allocation begins in another thread, or in the same one.
        builder.call(call(2, "cuCtxGetDevice_v2"));
        ranges(&mut builder, 2);
        builder.call(call(1, "cuMemAlloc_v2"));
        builder.leave(1, 0, &[]).leave(2, 0, &[]);
        builder.call(call(1, "cuMemAlloc_v2"));
        ranges(&mut builder, 1);
        builder.leave(1, 0, &[]);
        let found = plan(&written(&builder, "mixed"));
        assert_eq!(found.mixed_address_spaces, HashSet::from([1, 3]));
        assert_eq!(found.address_spaces.len(), 1);
    }

    fn written(builder: &TraceBuilder, name: &str) -> Trace {
        let file = format!("cutape-{name}-{}.cutape", std::process::id());
        let path = std::env::temp_dir().join(file);
        builder.write(&path).unwrap();
        let trace = Trace::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        trace
    }

    /// What the guarding process reads of a trace, beside the plan that its child makes.
    #[test]
    fn the_guard_knows_what_the_plan_says_without_one() {
        for (noted_at, expected) in [
            ("cuInit", true),
            ("cuDevicePrimaryCtxRetain", true),
            ("cuCtxGetDevice", false),
            ("", false),
        ] {
            let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
            for (name, arguments, made) in [
                ("cuInit", &[0][..], &[][..]),
                ("cuCtxGetDevice", &[0], &[]),
                ("cuDevicePrimaryCtxRetain", &[0, 1], &[0xc0; 8]),
                ("cuIpcGetMemHandle", &[0, 0x1000], &[]),
            ] {
                builder.call(NewCall {
                    name,
                    arguments,
                    ..NewCall::default()
                });
                if name == noted_at {
                    builder.note(0, note_kind::ADDRESS_SPACE, [0x1000_u64, 0x2000], &[]);
                }
                let made = (!made.is_empty()).then(|| NewSnapshot::pointee(0, made));
                builder.leave(0, 0, made.as_slice());
            }
            let trace = written(&builder, "known");
            let plan = plan(&trace);
            assert_eq!(has_address_spaces(&trace), expected, "{noted_at}");
            assert_eq!(!plan.address_spaces.is_empty(), expected, "{noted_at}");
            let needs = needs(&trace);
            assert_eq!(needs.context_devices, BTreeSet::from([1]));
            assert_eq!(format!("{needs:?}"), format!("{:?}", plan.needs));
        }
    }

    #[test]
    fn every_function_is_either_reissued_or_has_a_reason() {
        for function in &cutape_registry::FUNCTIONS {
            assert!(
                not_reissued(function).is_none() || !function.reason.is_empty(),
                "{} is left out without a reason",
                function.name
            );
        }
    }
}
