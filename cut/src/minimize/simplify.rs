//! What can be smaller in the calls that are left: payloads, sizes of launches and copies, images.
//!
//! Sizes are the dimensions and the shared memory of launches, and the lengths of copies that
//! parameters give. Of images the code stays that the calls need ([`Images`]). Memsets, copies that
//! structs describe, nodes of graphs and PTX stay as they are.

use std::collections::BTreeMap;
use std::sync::Arc;

use cutape_format::layout::field;
use cutape_format::{
    Bytes, Call, CallChange, CallPart, NewBytes, SnapshotChange, StructLayout, Trace, is_payload,
};
use cutape_model::function_of;
use cutape_registry::{CopyOp, Family, LaunchOp, Transfer};

use crate::images::Images;

/// Something of a call that can be smaller.
#[derive(Clone, Debug)]
pub(super) struct Simplification {
    /// The call.
    pub(super) call: u64,
    /// What it is now; 1 for what is there or not.
    pub(super) value: u64,
    /// The least that it can be.
    pub(super) least: u64,
    subject: Subject,
}

#[derive(Clone, Debug)]
enum Subject {
    /// Snapshots that are there or not, or their shorter form.
    Bytes(Vec<SnapshotChange>),
    /// A parameter, and payloads that are that long.
    Argument(u8, Vec<(CallPart, u8, u8)>),
    /// Four bytes of a struct behind a parameter.
    Member {
        parameter: u8,
        offset: usize,
        whole: Vec<u8>,
    },
}

/// What of a trace can be smaller, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Bytes of copies are left out.
    Payloads,
    /// Launches and copies are smaller.
    Sizes,
    /// Images have less code.
    Images,
}

impl Stage {
    /// All of them.
    pub(super) const ALL: [Self; 3] = [Self::Payloads, Self::Sizes, Self::Images];
}

/// What can be smaller in the calls of a trace.
pub(super) fn simplifications(trace: &Trace, stage: Stage) -> Vec<Simplification> {
    let images = (stage == Stage::Images).then(|| Images::of(trace, |_| true));
    let mut found = Vec::new();
    for call in trace.calls() {
        match stage {
            Stage::Payloads => found.extend(payload(&call)),
            Stage::Sizes => sizes(trace, &call, &mut found),
            Stage::Images => found.extend(images.iter().filter_map(|images| image(images, &call))),
        }
    }
    found
}

/// The changes that give each of them its value.
pub(super) fn changes<'s>(
    values: impl IntoIterator<Item = (&'s Simplification, u64)>,
) -> BTreeMap<u64, CallChange> {
    let mut changes: BTreeMap<u64, CallChange> = BTreeMap::new();
    for (one, value) in values {
        if value != one.value {
            one.add_to(changes.entry(one.call).or_default(), value);
        }
    }
    changes
}

impl Simplification {
    fn add_to(&self, change: &mut CallChange, value: u64) {
        match &self.subject {
            Subject::Bytes(snapshots) => change.snapshots.extend(snapshots.iter().cloned()),
            Subject::Argument(position, payloads) => {
                change.arguments.push((*position, value));
                let shorter = payloads
                    .iter()
                    .map(|&(part, parameter, field)| SnapshotChange {
                        part,
                        parameter,
                        field,
                        bytes: NewBytes::First(value),
                    });
                change.snapshots.extend(shorter);
            }
            Subject::Member {
                parameter,
                offset,
                whole,
            } => {
                let there = change.snapshots.iter().position(|there| {
                    (there.parameter, there.field) == (*parameter, field::POINTEE)
                });
                let place = there.unwrap_or_else(|| {
                    change.snapshots.push(SnapshotChange {
                        part: CallPart::Enter,
                        parameter: *parameter,
                        field: field::POINTEE,
                        bytes: NewBytes::Other(whole.as_slice().into()),
                    });
                    change.snapshots.len() - 1
                });
                if let Some(NewBytes::Other(bytes)) = change
                    .snapshots
                    .get_mut(place)
                    .map(|there| &mut there.bytes)
                    && let Some(member) = Arc::make_mut(bytes).get_mut(*offset..*offset + 4)
                {
                    member.copy_from_slice(&(value as u32).to_le_bytes());
                }
            }
        }
    }
}

/// The snapshots of a call that are payloads and have bytes.
fn payloads_of(call: &Call<'_>) -> Vec<(CallPart, u8, u8)> {
    let signature = Some(call.signature);
    let mut found = Vec::new();
    let mut add = |part, snapshot: cutape_format::Snapshot<'_>| {
        let (parameter, field) = (snapshot.parameter, snapshot.field);
        let has_bytes = match snapshot.bytes {
            Bytes::Inline(bytes) => !bytes.is_empty(),
            Bytes::Blob(_) | Bytes::InFile(_) | Bytes::Hashed(..) => true,
            Bytes::Omitted(_) | Bytes::Unreadable => false,
        };
        if has_bytes && is_payload(signature, part, parameter, field) {
            found.push((part, parameter, field));
        }
    };
    for snapshot in call.snapshots() {
        add(CallPart::Enter, snapshot);
    }
    for snapshot in call.leave.iter().flat_map(|leave| leave.snapshots()) {
        add(CallPart::Leave, snapshot);
    }
    found
}

fn payload(call: &Call<'_>) -> Option<Simplification> {
    let omitted = payloads_of(call)
        .into_iter()
        .map(|(part, parameter, field)| SnapshotChange {
            part,
            parameter,
            field,
            bytes: NewBytes::Omitted,
        });
    let omitted: Vec<_> = omitted.collect();
    (!omitted.is_empty()).then_some(Simplification {
        call: call.index,
        value: 1,
        least: 0,
        subject: Subject::Bytes(omitted),
    })
}

/// The members of `CUlaunchConfig` that are sizes.
const DIMENSIONS: [&str; 6] = [
    "gridDimX",
    "gridDimY",
    "gridDimZ",
    "blockDimX",
    "blockDimY",
    "blockDimZ",
];
const SHARED: &str = "sharedMemBytes";

fn sizes(trace: &Trace, call: &Call<'_>, found: &mut Vec<Simplification>) {
    let mut add = |value: u64, least: u64, subject: Subject| {
        if value > least {
            found.push(Simplification {
                call: call.index,
                value,
                least,
                subject,
            });
        }
    };
    let argument = |position: u8| call.argument(usize::from(position));
    match function_of(call.signature).map(|function| function.family) {
        Some(Family::Launch(LaunchOp::Arguments(launch))) => {
            for position in launch.grid..launch.grid + DIMENSIONS.len() as u8 {
                add(
                    argument(position),
                    1,
                    Subject::Argument(position, Vec::new()),
                );
            }
            let shared = Subject::Argument(launch.shared, Vec::new());
            add(argument(launch.shared), 0, shared);
        }
        Some(Family::Launch(LaunchOp::Config(launch))) => {
            let bytes = call
                .snapshot(usize::from(launch.config), field::POINTEE)
                .and_then(|snapshot| snapshot.bytes.inline());
            let Some((whole, layout)) = bytes.zip(trace.signatures().structure("CUlaunchConfig"))
            else {
                return;
            };
            let dimensions = DIMENSIONS.into_iter().map(|name| (name, 1));
            for (name, least) in dimensions.chain([(SHARED, 0)]) {
                if let Some(offset) = offset_of(layout, name)
                    && let Some(number) = whole.get(offset..).and_then(<[u8]>::first_chunk::<4>)
                {
                    let subject = Subject::Member {
                        parameter: launch.config,
                        offset,
                        whole: whole.to_vec(),
                    };
                    add(u64::from(u32::from_le_bytes(*number)), least, subject);
                }
            }
        }
        Some(Family::Copy(
            CopyOp::Linear(Transfer { bytes, .. }) | CopyOp::Unified(Transfer { bytes, .. }),
        )) => {
            let subject = Subject::Argument(bytes, payloads_of(call));
            add(argument(bytes), 1, subject);
        }
        _ => {}
    }
}

fn offset_of(layout: &StructLayout, name: &str) -> Option<usize> {
    let mut fields = layout.fields.iter();
    let field = fields.find(|field| field.name == name && field.size == 4)?;
    Some(field.offset)
}

fn image(images: &Images<'_>, call: &Call<'_>) -> Option<Simplification> {
    Some(Simplification {
        call: call.index,
        value: 1,
        least: 0,
        subject: Subject::Bytes(vec![images.smaller(call)?]),
    })
}
