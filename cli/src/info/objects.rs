//! What the program made and did not destroy, and how much memory it had.

use std::collections::{BTreeMap, HashMap, HashSet};

use cutape_format::Call;
use cutape_registry::{Function, Kind, Parent, Role};
use serde::Serialize;

use crate::render::labels::kind_name;

/// A handle with its kind: handles of different kinds may be equal.
type Key = (Kind, u64);

/// How many left objects of a kind are named one by one.
const NAMED: usize = 5;

/// A kind of memory in the accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum MemoryKind {
    /// Linear device memory.
    Device,
    /// `cuMemAllocManaged`.
    Managed,
    /// `cuMemCreate`.
    Physical,
    /// Page-locked host memory.
    PinnedHost,
}

impl MemoryKind {
    /// In tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            MemoryKind::Device => "device",
            MemoryKind::Managed => "managed",
            MemoryKind::Physical => "physical",
            MemoryKind::PinnedHost => "pinned host",
        }
    }
}

/// The account of one kind of memory.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct MemoryAccount {
    /// How often it was allocated.
    pub(crate) allocations: u64,
    /// How many of these were freed, by themselves or with their context.
    pub(crate) freed: u64,
    /// Bytes of all allocations together.
    pub(crate) total_bytes: u64,
    /// The most bytes that were allocated at one moment.
    pub(crate) peak_bytes: u64,
    /// Bytes still allocated at the end.
    pub(crate) live_bytes: u64,
}

/// Objects of a kind that were never destroyed.
#[derive(Debug, Serialize)]
pub(crate) struct Left {
    /// E.g. `module`.
    pub(crate) kind: String,
    /// How many.
    pub(crate) count: u64,
    /// The first of them.
    pub(crate) first: Vec<LeftObject>,
}

/// One of them.
#[derive(Debug, Serialize)]
pub(crate) struct LeftObject {
    /// The recorded process's handle.
    pub(crate) handle: u64,
    /// The call that made it.
    pub(crate) call: u64,
    /// Its function.
    pub(crate) function: String,
}

#[derive(Debug)]
struct Object {
    call: u64,
    function: &'static str,
    parent: Option<Key>,
    memory: Option<(MemoryKind, u64)>,
}

/// The objects that live, by what the registry says of each function.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    live: HashMap<Key, Object>,
    children: HashMap<Key, HashSet<Key>>,
    /// Each thread's stack of current contexts, as far as it was seen.
    contexts: HashMap<u32, Vec<u64>>,
    /// By device: the primary context and how often it is retained.
    primaries: HashMap<u64, (u64, u64)>,
    accounts: BTreeMap<MemoryKind, MemoryAccount>,
    /// Start and bytes of what is device memory, for copies that do not say where they go.
    ranges: BTreeMap<u64, u64>,
}

impl Objects {
    /// Takes in a call; failed calls and those in flight change nothing.
    pub(crate) fn observe(&mut self, function: &'static Function, call: &Call<'_>) {
        // What a function outside the tables returns is no CUresult.
        if !call.succeeded() {
            return;
        }
        for (position, param) in function.params.iter().enumerate() {
            match param.role {
                Role::Destroy(kind) => self.end((kind, call.argument(position))),
                Role::Make(kind, parent) => {
                    if let Some(handle) = call.out(position) {
                        self.make((kind, handle), parent, function, call);
                    }
                }
                _ => {}
            }
        }
        self.follow_contexts(function, call);
    }

    fn make(&mut self, key: Key, parent: Parent, function: &'static Function, call: &Call<'_>) {
        // Made again without having been destroyed: the driver ended it with something that the trace does not show.
        self.end(key);
        let parent = match parent {
            Parent::None => None,
            Parent::CurrentContext => self
                .contexts
                .get(&call.thread)
                .and_then(|stack| stack.last())
                .map(|&context| (Kind::Context, context)),
            Parent::Param(position) => {
                let position = usize::from(position);
                match function.params.get(position).map(|param| param.role) {
                    Some(Role::Use(kind)) => Some((kind, call.argument(position))),
                    _ => None,
                }
            }
        };
        if let Some(parent) = parent {
            self.children.entry(parent).or_default().insert(key);
        }
        let memory = memory_kind(key.0, function).map(|kind| (kind, allocated_bytes(call)));
        if let Some((kind, bytes)) = memory {
            let account = self.accounts.entry(kind).or_default();
            account.allocations += 1;
            account.total_bytes = account.total_bytes.saturating_add(bytes);
            account.live_bytes = account.live_bytes.saturating_add(bytes);
            account.peak_bytes = account.peak_bytes.max(account.live_bytes);
            if kind == MemoryKind::Device {
                self.ranges.insert(key.1, bytes);
            }
        }
        self.live.insert(
            key,
            Object {
                call: call.index,
                function: function.name,
                parent,
                memory,
            },
        );
    }

    /// Ends an object and what hangs on it.
    fn end(&mut self, key: Key) {
        let mut ending = vec![key];
        while let Some(key) = ending.pop() {
            if let Some(object) = self.live.remove(&key) {
                if let Some(siblings) = object.parent.and_then(|p| self.children.get_mut(&p)) {
                    siblings.remove(&key);
                }
                if let Some((kind, bytes)) = object.memory {
                    let account = self.accounts.entry(kind).or_default();
                    account.freed += 1;
                    account.live_bytes = account.live_bytes.saturating_sub(bytes);
                    if kind == MemoryKind::Device {
                        self.ranges.remove(&key.1);
                    }
                }
            }
            ending.extend(self.children.remove(&key).into_iter().flatten());
        }
    }

    /// Which context is current in which thread (CUDA Driver API, "Context Management", "Primary Context Management").
    fn follow_contexts(&mut self, function: &Function, call: &Call<'_>) {
        let stack = self.contexts.entry(call.thread).or_default();
        match function.base {
            "cuCtxCreate" => stack.extend(call.out(0)),
            "cuCtxPushCurrent" => stack.push(call.argument(0)),
            "cuCtxPopCurrent" => {
                stack.pop();
            }
            "cuCtxSetCurrent" => {
                // Replaces the top; 0 takes it away.
                stack.pop();
                stack.extend(Some(call.argument(0)).filter(|&context| context != 0));
            }
            "cuCtxDestroy" if stack.last() == Some(&call.argument(0)) => {
                stack.pop();
            }
            "cuDevicePrimaryCtxRetain" => {
                if let Some(context) = call.out(0) {
                    let entry = self.primaries.entry(call.argument(1)).or_default();
                    *entry = (context, entry.1 + 1);
                }
            }
            "cuDevicePrimaryCtxRelease" | "cuDevicePrimaryCtxReset" => {
                let reset = function.base == "cuDevicePrimaryCtxReset";
                if let Some((context, count)) = self.primaries.get_mut(&call.argument(0)) {
                    // A reset leaves the references as they are.
                    *count = if reset {
                        *count
                    } else {
                        count.saturating_sub(1)
                    };
                    if reset || *count == 0 {
                        let context = *context;
                        self.end((Kind::Context, context));
                    }
                }
            }
            _ => {}
        }
    }

    /// Whether an address lies in device memory that is allocated now.
    pub(crate) fn is_device_memory(&self, address: u64) -> bool {
        self.ranges
            .range(..=address)
            .next_back()
            .is_some_and(|(&start, &bytes)| address - start < bytes.max(1))
    }

    /// The accounts, by kind.
    pub(crate) fn memory(&self) -> &BTreeMap<MemoryKind, MemoryAccount> {
        &self.accounts
    }

    /// What was never destroyed, by kind, the most first.
    pub(crate) fn left(&self) -> Vec<Left> {
        let mut by_kind: BTreeMap<Kind, Vec<LeftObject>> = BTreeMap::new();
        for (&(kind, handle), object) in &self.live {
            let left = LeftObject {
                handle,
                call: object.call,
                function: object.function.to_owned(),
            };
            by_kind.entry(kind).or_default().push(left);
        }
        let mut left: Vec<Left> = by_kind
            .into_iter()
            .map(|(kind, mut objects)| {
                objects.sort_by_key(|object| (object.call, object.handle));
                let count = objects.len() as u64;
                objects.truncate(NAMED);
                Left {
                    kind: kind_name(kind),
                    count,
                    first: objects,
                }
            })
            .collect();
        left.sort_by_key(|left| std::cmp::Reverse(left.count));
        left
    }
}

fn memory_kind(kind: Kind, function: &Function) -> Option<MemoryKind> {
    match kind {
        Kind::Memory if function.base == "cuMemAllocManaged" => Some(MemoryKind::Managed),
        Kind::Memory => Some(MemoryKind::Device),
        Kind::Allocation => Some(MemoryKind::Physical),
        Kind::HostMemory => Some(MemoryKind::PinnedHost),
        _ => None,
    }
}

/// Bytes that an allocating call asked for; 0 where it does not say (memory of another process).
fn allocated_bytes(call: &Call<'_>) -> u64 {
    let named = |name| call.argument_named(name);
    if let Some(position) = call.signature.parameter("pPitch") {
        return call
            .out(position)
            .unwrap_or(0)
            .saturating_mul(named("Height").unwrap_or(0));
    }
    named("bytesize").or_else(|| named("size")).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use cutape_format::{NewCall, NewSnapshot, TraceBuilder};

    use super::*;
    use crate::test_trace;

    /// A call that returned 0 and wrote eight bytes behind its first parameter, where `out` says so.
    fn call(builder: &mut TraceBuilder, name: &str, arguments: &[u64], out: Option<u64>) {
        let bytes = out.unwrap_or(0).to_le_bytes();
        let snapshots = [NewSnapshot::pointee(0, &bytes)];
        builder
            .call(NewCall {
                name,
                arguments,
                ..NewCall::default()
            })
            .leave(0, 0, if out.is_some() { &snapshots } else { &[] });
    }

    #[test]
    fn what_is_left_and_how_much_memory() {
        type Step = (&'static str, &'static [u64], Option<u64>);
        type Case = (
            &'static str,
            &'static [Step],
            &'static [(&'static str, u64)],
            (u64, u64, u64),
        );
        let cases: &[Case] = &[
            (
                "freed memory is not left, its peak stays",
                &[
                    ("cuMemAlloc_v2", &[1, 100], Some(0x1000)),
                    ("cuMemAlloc_v2", &[1, 50], Some(0x2000)),
                    ("cuMemFree_v2", &[0x1000], None),
                    ("cuMemAlloc_v2", &[1, 20], Some(0x1000)),
                ],
                &[("memory", 2)],
                (3, 150, 70),
            ),
            (
                "a context takes with it what was made in it",
                &[
                    ("cuCtxCreate_v2", &[1, 0, 0], Some(0xc)),
                    ("cuMemAlloc_v2", &[1, 8], Some(0x1000)),
                    ("cuModuleLoadData", &[1, 2], Some(0xa)),
                    ("cuCtxDestroy_v2", &[0xc], None),
                ],
                &[],
                (1, 8, 0),
            ),
            (
                "but not what was made in another one",
                &[
                    ("cuCtxCreate_v2", &[1, 0, 0], Some(0xc)),
                    ("cuModuleLoadData", &[1, 2], Some(0xa)),
                    ("cuCtxPushCurrent_v2", &[0xd], None),
                    ("cuModuleLoadData", &[1, 2], Some(0xb)),
                    ("cuCtxDestroy_v2", &[0xc], None),
                ],
                &[("module", 1)],
                (0, 0, 0),
            ),
            (
                "the last release of a primary context ends what is in it",
                &[
                    ("cuDevicePrimaryCtxRetain", &[1, 0], Some(0xe)),
                    ("cuDevicePrimaryCtxRetain", &[1, 0], Some(0xe)),
                    ("cuCtxSetCurrent", &[0xe], None),
                    ("cuStreamCreate", &[1, 0], Some(0x5)),
                    ("cuEventCreate", &[1, 0], Some(0x6)),
                    ("cuEventDestroy_v2", &[0x6], None),
                    ("cuDevicePrimaryCtxRelease_v2", &[0], None),
                ],
                &[("stream", 1)],
                (0, 0, 0),
            ),
            (
                "equal handles of different kinds are different objects",
                &[
                    ("cuStreamCreate", &[1, 0], Some(0x5)),
                    ("cuEventCreate", &[1, 0], Some(0x5)),
                    ("cuStreamDestroy_v2", &[0x5], None),
                ],
                &[("event", 1)],
                (0, 0, 0),
            ),
        ];
        for (what, steps, left, (allocations, peak, live)) in cases {
            let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
            for (name, arguments, out) in *steps {
                call(&mut builder, name, arguments, *out);
            }
            let trace = test_trace::open(&builder, "objects");
            let mut objects = Objects::default();
            for call in trace.calls() {
                objects.observe(
                    cutape_registry::function(&call.signature.name).unwrap(),
                    &call,
                );
            }
            let found: Vec<_> = objects
                .left()
                .into_iter()
                .map(|left| (left.kind, left.count))
                .collect();
            let expected: Vec<_> = left
                .iter()
                .map(|&(kind, count)| (kind.to_owned(), count))
                .collect();
            assert_eq!(found, expected, "{what}");
            let account = objects
                .memory()
                .get(&MemoryKind::Device)
                .copied()
                .unwrap_or_default();
            assert_eq!(
                (account.allocations, account.peak_bytes, account.live_bytes),
                (*allocations, *peak, *live),
                "{what}"
            );
        }
    }

    #[test]
    fn addresses_of_device_memory() {
        let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
        call(&mut builder, "cuMemAlloc_v2", &[1, 0x100], Some(0x1000));
        let trace = test_trace::open(&builder, "ranges");
        let mut objects = Objects::default();
        for call in trace.calls() {
            objects.observe(
                cutape_registry::function(&call.signature.name).unwrap(),
                &call,
            );
        }
        for (address, inside) in [
            (0xfff, false),
            (0x1000, true),
            (0x10ff, true),
            (0x1100, false),
        ] {
            assert_eq!(objects.is_device_memory(address), inside, "{address:#x}");
        }
    }
}
