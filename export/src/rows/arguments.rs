//! Decoding of arguments on demand.

use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;

use cutape_analyzer::decode::{
    CallPlan, Decoded, Decoding, Names, Value, function_of, kernel_parameters,
};
use cutape_format::layout::{BlobRef, field};
use cutape_format::{Bytes, Call, FileRange, Note, Trace};
use cutape_model::{LaunchShape, TraceState};
use cutape_registry::{Family, Kind};
use rustc_hash::FxHashMap;
use serde_json::json;

use super::reference::ObjectRef;

/// Decodes a call.
pub(super) trait DecodeArguments {
    fn decode(&self, call: &Call<'_>, elements: usize) -> Decoded<'_>;

    /// The parameters of the kernel that a call launches.
    fn kernel_parameters(&self, call: &Call<'_>, layouts: &KernelLayouts) -> Option<Vec<Value>>;

    /// The name of a kernel.
    fn kernel_name(&self, handle: u64) -> Option<&str>;
}

/// The layouts of kernel parameters, which the recorder notes once for each function.
#[derive(Debug, Default)]
pub struct KernelLayouts(FxHashMap<u64, Vec<(u32, u32)>>);

impl KernelLayouts {
    /// Takes what is noted at a call; expects every call, in order.
    pub fn observe(&mut self, call: &Call<'_>) {
        for note in call.notes() {
            if let Note::Layout(handle, layout) = note {
                self.0.insert(handle, layout);
            }
        }
    }
}

/// The trace and the state after the call.
pub(super) struct Decoder<'a, 't> {
    pub(super) trace: &'t Trace,
    pub(super) state: &'a TraceState,
    pub(super) plans: &'a Plans<'t>,
}

/// The plans of functions by signature number, each made when a call is decoded first.
#[derive(Default)]
pub(super) struct Plans<'t>(RefCell<Vec<Option<Rc<CallPlan<'t>>>>>);

impl<'t> Plans<'t> {
    fn of(&self, call: &Call<'_>, trace: &'t Trace) -> Rc<CallPlan<'t>> {
        let place = usize::from(call.signature.id);
        let mut plans = self.0.borrow_mut();
        if plans.len() <= place {
            plans.resize_with(place + 1, || None);
        }
        let new = || {
            let signature = trace.signature(call.signature.id);
            Rc::new(CallPlan::of(signature, trace.signatures()))
        };
        match plans.get_mut(place) {
            Some(plan) => Rc::clone(plan.get_or_insert_with(new)),
            None => new(),
        }
    }
}

impl DecodeArguments for Decoder<'_, '_> {
    fn decode(&self, call: &Call<'_>, elements: usize) -> Decoded<'_> {
        let labels = Labels(self.state);
        let decoding = Decoding {
            signatures: self.trace.signatures(),
            names: &labels,
            names_after: &labels,
            elements,
        };
        let plan = self.plans.of(call, self.trace);
        plan.decode(call, decoding, &mut |snapshot| {
            match snapshot.bytes {
                Bytes::Inline(bytes) => Ok(Cow::Borrowed(bytes)),
                // Images and payloads, which may be large: their length counts.
                Bytes::Blob(BlobRef { length, .. }) | Bytes::InFile(FileRange { length, .. }) => {
                    let text = format!("<{length} bytes>");
                    Err(Value::Described(text, json!({ "bytes": length })))
                }
                other => Err(Value::missing(other)),
            }
        })
    }

    fn kernel_parameters(&self, call: &Call<'_>, layouts: &KernelLayouts) -> Option<Vec<Value>> {
        let function = function_of(call.signature)?;
        if !matches!(function.family, Family::Launch(_)) {
            return None;
        }
        let kernel = LaunchShape::of(function, call).kernel?;
        let mut snapshots = call.snapshots();
        let buffer = snapshots.find(|snapshot| snapshot.field == field::KERNEL_PARAMETERS)?;
        let layout = layouts.0.get(&kernel)?;
        let parameters = kernel_parameters(buffer.bytes.inline()?, layout, &Labels(self.state))?;
        Some(parameters.into_iter().map(|(_, _, value)| value).collect())
    }

    fn kernel_name(&self, handle: u64) -> Option<&str> {
        self.state.kernel_name(handle)
    }
}

/// The objects after the call.
struct Labels<'a>(&'a TraceState);

impl Names for Labels<'_> {
    fn handle(&self, kind: Kind, handle: u64) -> Option<String> {
        let objects = &self.0.state.objects;
        let object = objects.get(objects.resolve(kind, handle).known()?)?;
        let (kind, generation) = (object.kind, object.generation);
        Some(ObjectRef { kind, generation }.to_string())
    }

    fn place(&self, address: u64) -> Option<String> {
        let state = &self.0.state;
        let object = state.objects.get(state.last_place_at(address)?)?;
        let (kind, generation) = (object.kind, object.generation);
        let label = ObjectRef { kind, generation };
        Some(match address.saturating_sub(object.handle) {
            0 => label.to_string(),
            offset => format!("{label}+{offset:#x}"),
        })
    }
}
