//! Labels for handles and device addresses: `module#2`, `memory#1+0x40`.

use std::ops::Range;

use cutape_analyzer::decode::Names;
use cutape_format::Call;
use cutape_model::{
    Effect, Effects, IntervalMap, Lookup, NewObject, Objects, Origin, Retention, Site,
};
use cutape_registry::{Kind, STREAM_LEGACY, STREAM_PER_THREAD};

/// The objects seen so far, numbered by kind in the order of creation, from 1.
///
/// The end of an object is ignored: a label stays until the handle is reused, because uses of
/// destroyed objects are what a reader looks for.
#[derive(Clone, Debug)]
pub struct Labels {
    objects: Objects<()>,
    /// Device memory, page-locked memory, globals and reserved addresses.
    ranges: IntervalMap<Kind>,
}

impl Default for Labels {
    fn default() -> Self {
        Self {
            objects: Objects::new(Retention::PerHandle),
            ranges: IntervalMap::default(),
        }
    }
}

impl Labels {
    /// Whether calls with these effects create labels.
    pub fn depend_on(effects: &Effects) -> bool {
        effects
            .objects
            .iter()
            .any(|&(_, effect)| labelled_by(effect).is_some())
    }

    /// Adds the objects of a call; expects every call, in order.
    pub fn observe(&mut self, effects: &Effects, call: &Call<'_>) {
        if !call.succeeded() {
            return;
        }
        for (kind, handle, is_new) in outputs(effects, call) {
            if handle != 0 && (is_new || self.objects.find(kind, handle) == Lookup::Unknown) {
                let site = Site::of(effects.function.name, call);
                let new = NewObject::of(kind, handle, Origin::Created, site, call);
                self.objects.create(new, ());
            }
            if matches!(
                kind,
                Kind::Memory | Kind::HostMemory | Kind::Global | Kind::Reservation
            ) {
                self.ranges
                    .insert(handle, effects.size_of(call, kind), kind);
            }
        }
    }

    /// The memory that has an address, and its kind.
    pub fn around(&self, address: u64) -> Option<(Range<u64>, Kind)> {
        let (range, &kind) = self.ranges.find(address)?;
        Some((range, kind))
    }

    /// The memory with that label, if no other memory has taken its place.
    pub fn named(&self, label: &str) -> Option<Range<u64>> {
        let mut ranges = self.ranges.iter();
        let found =
            ranges.find(|(range, kind)| self.label(**kind, range.start).as_deref() == Some(label));
        found.map(|(range, _)| range)
    }

    /// The label of the object that has the handle now, e.g. `module#2`.
    pub fn label(&self, kind: Kind, handle: u64) -> Option<String> {
        let id = self.objects.find(kind, handle).known()?;
        let number = self.objects.get(id)?.generation;
        Some(format!("{}#{number}", kind.key()))
    }
}

/// The objects that a call creates or finds.
pub fn created(effects: &Effects, call: &Call<'_>) -> Vec<(Kind, u64)> {
    let outputs = outputs(effects, call).filter(|_| call.succeeded());
    outputs.map(|(kind, handle, _)| (kind, handle)).collect()
}

/// The labelled objects that a call returns, each with whether it is new.
fn outputs(effects: &Effects, call: &Call<'_>) -> impl Iterator<Item = (Kind, u64, bool)> {
    let labelled = effects.objects.iter();
    let labelled =
        labelled.filter_map(|&(position, effect)| Some((position, labelled_by(effect)?)));
    labelled.flat_map(move |(position, (kind, is_new))| {
        let bytes = call.out_bytes(position).unwrap_or_default();
        let (handles, rest) = bytes.as_chunks::<8>();
        let handles = if rest.is_empty() { handles } else { &[] };
        let handles = handles.iter().map(|word| u64::from_le_bytes(*word));
        handles.map(move |handle| (kind, handle, is_new))
    })
}

/// The kind of the labelled object, and whether the call creates it.
fn labelled_by(effect: Effect) -> Option<(Kind, bool)> {
    match effect {
        Effect::Create(kind, _) => Some((kind, true)),
        Effect::Find(kind, _) | Effect::FindMany(kind, _) => Some((kind, false)),
        Effect::Get(_) | Effect::Destroy(_) => None,
    }
}

impl Names for Labels {
    fn handle(&self, kind: Kind, handle: u64) -> Option<String> {
        match (kind, handle) {
            (Kind::Stream, STREAM_LEGACY) => Some("legacy default".into()),
            (Kind::Stream, STREAM_PER_THREAD) => Some("per-thread default".into()),
            _ => self.label(kind, handle),
        }
    }

    /// E.g. `memory#1+0x40`.
    fn place(&self, address: u64) -> Option<String> {
        let (range, kind) = self.around(address)?;
        let label = self.label(kind, range.start)?;
        Some(match address - range.start {
            0 => label,
            offset => format!("{label}+{offset:#x}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use cutape_analyzer::decode::handle as handle_of;
    use cutape_format::{NewCall, NewSnapshot, TraceBuilder};

    use super::*;
    use crate::test_trace;

    #[test]
    fn labels_follow_handles() {
        let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
        let mut make = |name, arguments: &[u64], handle: u64, result| {
            let bytes = handle.to_le_bytes();
            let snapshots = [NewSnapshot::pointee(0, &bytes)];
            let snapshots: &[_] = if result == 0 { &snapshots } else { &[] };
            builder
                .call(NewCall {
                    name,
                    arguments,
                    ..NewCall::default()
                })
                .leave(0, result, snapshots);
        };
        make("cuModuleLoadData", &[1, 2], 0x50, 0);
        make("cuModuleLoadData", &[1, 2], 0x60, 200);
        make("cuModuleLoadData", &[1, 2], 0x50, 0);
        make("cuMemAlloc_v2", &[1, 0x100], 0x1000, 0);
        make("cuModuleGetFunction", &[1, 0x50, 2], 0x70, 0);
        make("cuModuleGetFunction", &[1, 0x50, 2], 0x70, 0);
        // Where device memory was before.
        make("cuMemAlloc_v2", &[1, 0x100], 0x2000, 0);
        make("cuMemAllocHost_v2", &[1, 0x100], 0x2000, 0);
        let trace = test_trace::open(&builder, "labels");
        let mut labels = Labels::default();
        for call in trace.calls() {
            labels.observe(
                &Effects::of(cutape_registry::function(&call.signature.name).unwrap()),
                &call,
            );
        }
        for (kind, handle, expected) in [
            (Kind::Module, 0x50, "0x50 module#2"),
            (Kind::Module, 0x60, "0x60"),
            (Kind::Context, 0x50, "0x50"),
            (Kind::Module, 0, "NULL"),
            (Kind::Stream, 2, "0x2 per-thread default"),
            (Kind::Function, 0x70, "0x70 function#1"),
            (Kind::Memory, 0x1000, "0x1000 memory#1"),
            (Kind::Memory, 0x10ff, "0x10ff memory#1+0xff"),
            (Kind::Memory, 0x1100, "0x1100"),
            (Kind::Memory, 0x2010, "0x2010 host-memory#1+0x10"),
        ] {
            let mut out = String::new();
            handle_of(&labels, kind, handle).write(&mut out);
            assert_eq!(out, expected);
        }
    }
}
