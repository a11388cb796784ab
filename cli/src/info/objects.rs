//! Objects that the program never destroyed, and how much memory it allocated.

use std::collections::BTreeMap;

use cutape_model::{Changes, MemoryKind as Memory, ObjectId, Origin, State};
use cutape_registry::Kind;
use serde::Serialize;

/// How many objects of a kind are listed.
const LISTED: usize = 5;

/// A kind of memory with its own account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum MemoryKind {
    /// Linear device memory, pools included.
    Device,
    /// `cuMemAllocManaged`.
    Managed,
    /// `cuMemCreate`.
    Physical,
    /// Page-locked host memory.
    PinnedHost,
}

impl From<Memory> for MemoryKind {
    fn from(kind: Memory) -> Self {
        match kind {
            Memory::Device | Memory::Pool => Self::Device,
            Memory::Managed => Self::Managed,
            Memory::Physical => Self::Physical,
            Memory::PinnedHost => Self::PinnedHost,
        }
    }
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
    /// The number of allocations.
    pub(crate) allocations: u64,
    /// Allocations freed, directly or with their context.
    pub(crate) freed: u64,
    /// Bytes of all allocations.
    pub(crate) total_bytes: u64,
    /// The most bytes allocated at once.
    pub(crate) peak_bytes: u64,
    /// Bytes still allocated at the end.
    pub(crate) live_bytes: u64,
}

/// Objects of a kind that were never destroyed.
#[derive(Debug, Serialize)]
pub(crate) struct LeakedObjects {
    /// E.g. `link-state`.
    pub(crate) kind: &'static str,
    /// E.g. `link state`.
    #[serde(skip)]
    pub(crate) name: &'static str,
    pub(crate) count: u64,
    /// The first few.
    pub(crate) first: Vec<LeakedObject>,
}

/// One of them.
#[derive(Debug, Serialize)]
pub(crate) struct LeakedObject {
    /// The recorded process's handle.
    pub(crate) handle: u64,
    /// The call that created it.
    pub(crate) call: u64,
    pub(crate) function: &'static str,
}

/// The accounts, by kind of memory.
#[derive(Debug, Default, Serialize)]
pub(crate) struct MemoryAccounts(pub(crate) BTreeMap<MemoryKind, MemoryAccount>);

impl MemoryAccounts {
    /// Adds what a call changed.
    pub(crate) fn add(&mut self, changes: &Changes, state: &State<()>) {
        // An object may be created and destroyed within one set of changes.
        self.free(&changes.superseded, state);
        for &id in &changes.created {
            if let Some((account, size)) = self.account_of(id, state) {
                account.allocations += 1;
                account.total_bytes = account.total_bytes.saturating_add(size);
                account.live_bytes = account.live_bytes.saturating_add(size);
                account.peak_bytes = account.peak_bytes.max(account.live_bytes);
            }
        }
        self.free(&changes.ended, state);
    }

    fn free(&mut self, ids: &[ObjectId], state: &State<()>) {
        for &id in ids {
            if let Some((account, size)) = self.account_of(id, state) {
                account.freed += 1;
                account.live_bytes = account.live_bytes.saturating_sub(size);
            }
        }
    }

    /// The account of an object, and its bytes.
    fn account_of(&mut self, id: ObjectId, state: &State<()>) -> Option<(&mut MemoryAccount, u64)> {
        let object = state.objects.get(id)?;
        let account = self.0.entry(Memory::of(object)?.into()).or_default();
        Some((account, object.size))
    }
}

/// The objects that the program created and never destroyed, by kind, the most first.
pub(crate) fn never_destroyed(state: &State<()>) -> Vec<LeakedObjects> {
    let mut by_kind: BTreeMap<Kind, Vec<LeakedObject>> = BTreeMap::new();
    for (id, object) in state.objects.iter() {
        if object.origin == Origin::Created && state.objects.end_of(id).is_none() {
            by_kind.entry(object.kind).or_default().push(LeakedObject {
                handle: object.handle,
                call: object.created.index,
                function: object.created.function,
            });
        }
    }
    let mut leaked: Vec<_> = by_kind
        .into_iter()
        .map(|(kind, mut first)| {
            first.sort_by_key(|object| (object.call, object.handle));
            let count = first.len() as u64;
            first.truncate(LISTED);
            LeakedObjects {
                kind: kind.key(),
                name: kind.name(),
                count,
                first,
            }
        })
        .collect();
    leaked.sort_by_key(|leaked| std::cmp::Reverse(leaked.count));
    leaked
}

#[cfg(test)]
mod tests {
    use cutape_format::{NewCall, NewSnapshot, TraceBuilder};

    use super::*;
    use crate::test_trace;
    use cutape_model::{Scope, TraceState};

    /// A successful call that wrote `out` behind its first parameter.
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
    fn leaks_and_memory() {
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
            let mut state = TraceState::new(Scope::All);
            let mut accounts = MemoryAccounts::default();
            for call in trace.calls() {
                if let Some(changes) = state.observe(&call) {
                    accounts.add(&changes, &state.state);
                }
            }
            let found: Vec<_> = never_destroyed(&state.state)
                .into_iter()
                .map(|left| (left.kind, left.count))
                .collect();
            assert_eq!(found, *left, "{what}");
            let account = accounts
                .0
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
    fn memory_freed_by_another_thread() {
        let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
        let bytes = 0x1000_u64.to_le_bytes();
        let out = [NewSnapshot::pointee(0, &bytes)];
        for (thread, name, arguments, snapshots) in [
            (1, "cuCtxSetCurrent", &[0xc][..], &[][..]),
            (0, "cuMemAlloc_v2", &[1, 100], &out),
            (1, "cuMemFree_v2", &[0x1000], &[]),
        ] {
            let call = NewCall {
                thread,
                name,
                arguments,
                ..NewCall::default()
            };
            builder.call(call).leave(thread, 0, snapshots);
        }
        let trace = test_trace::open(&builder, "threads");
        let mut state = TraceState::new(Scope::All);
        let mut accounts = MemoryAccounts::default();
        for call in trace.calls() {
            if let Some(changes) = state.observe(&call) {
                accounts.add(&changes, &state.state);
            }
        }
        let account = accounts.0[&MemoryKind::Device];
        assert_eq!((account.freed, account.live_bytes), (1, 0));
        assert_eq!(account.peak_bytes, 100);
    }
}
