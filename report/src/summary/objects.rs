//! Objects that the program never destroyed, and how much memory it allocated.

use std::collections::BTreeMap;

use cutape_export::rows::{MemoryRow, ObjectRow};
use cutape_model::MemoryKind as Memory;
use cutape_registry::Kind;
use serde::Serialize;

/// How many objects of a kind are listed.
const LISTED: usize = 5;

/// A kind of memory with its own account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryKind {
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
    pub fn name(self) -> &'static str {
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
pub struct MemoryAccount {
    /// The number of allocations.
    pub allocations: u64,
    /// Allocations freed, directly or with their context.
    pub freed: u64,
    /// Bytes of all allocations.
    pub total_bytes: u64,
    /// The most bytes allocated at once.
    pub peak_bytes: u64,
    /// Bytes still allocated at the end.
    pub live_bytes: u64,
}

/// Objects of a kind that were never destroyed.
#[derive(Debug, Serialize)]
pub struct LeakedObjects {
    /// E.g. `link-state`.
    pub kind: &'static str,
    /// E.g. `link state`.
    #[serde(skip)]
    pub name: &'static str,
    /// How many.
    pub count: u64,
    /// The first few.
    pub first: Vec<LeakedObject>,
}

/// One of them.
#[derive(Debug, Serialize)]
pub struct LeakedObject {
    /// The recorded process's handle.
    pub handle: u64,
    /// The call that created it.
    pub call: u64,
    /// Its function.
    pub function: &'static str,
}

/// The accounts, by kind of memory.
#[derive(Debug, Default, Serialize)]
pub struct MemoryAccounts(pub BTreeMap<MemoryKind, MemoryAccount>);

impl MemoryAccounts {
    /// Adds a change.
    pub(super) fn add(&mut self, row: &MemoryRow) {
        let account = self.0.entry(row.kind.into()).or_default();
        if row.is_free {
            account.freed += 1;
            account.live_bytes = account.live_bytes.saturating_sub(row.bytes);
        } else {
            account.allocations += 1;
            account.total_bytes = account.total_bytes.saturating_add(row.bytes);
            account.live_bytes = account.live_bytes.saturating_add(row.bytes);
            account.peak_bytes = account.peak_bytes.max(account.live_bytes);
        }
    }
}

/// Collects the objects that the program created and never destroyed.
#[derive(Debug, Default)]
pub(super) struct Leaks(BTreeMap<Kind, Vec<LeakedObject>>);

impl Leaks {
    pub(super) fn add(&mut self, row: &ObjectRow<'_>) {
        if row.is_leaked() {
            self.0
                .entry(row.object.kind)
                .or_default()
                .push(LeakedObject {
                    handle: row.handle,
                    call: row.created_call,
                    function: row.created_by,
                });
        }
    }

    /// By kind, the most first.
    pub(super) fn finish(self) -> Vec<LeakedObjects> {
        let by_kind = self.0.into_iter().map(|(kind, mut first)| {
            first.sort_by_key(|object| (object.call, object.handle));
            let count = first.len() as u64;
            first.truncate(LISTED);
            LeakedObjects {
                kind: kind.key(),
                name: kind.name(),
                count,
                first,
            }
        });
        let mut leaked: Vec<_> = by_kind.collect();
        leaked.sort_by_key(|leaked| std::cmp::Reverse(leaked.count));
        leaked
    }
}

#[cfg(test)]
mod tests {
    use cutape_format::{NewCall, NewSnapshot, TraceBuilder};

    use super::*;
    use crate::summary::tests::summary_of;

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
            let summary = summary_of(&builder, "objects");
            let left_over = summary.never_destroyed.iter();
            let found: Vec<_> = left_over.map(|left| (left.kind, left.count)).collect();
            assert_eq!(found, *left, "{what}");
            let account = summary
                .memory
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
        let account = summary_of(&builder, "threads").memory.0[&MemoryKind::Device];
        assert_eq!((account.freed, account.live_bytes), (1, 0));
        assert_eq!(account.peak_bytes, 100);
    }
}
