//! The calls of a trace decoded, with the labels of objects, what their images are, and what launches launch.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::rc::Rc;

use cutape_analyzer::decode::{self, Argument, CallPlan, Decoded, Decoding, Value, write_joined};
use cutape_format::{Bytes, Call, Enumeration, Note, Signature, Snapshot, Trace};
use cutape_registry::{Function, Param, Role};
use serde_json::json;

use super::images::ImageReader;
use super::labels::Labels;
use super::launch::Launch;
use crate::call_set::Kernels;

/// How much of long things is decoded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Elements of an array, and bytes of a block.
    pub(crate) elements: usize,
}

impl Limits {
    /// For people.
    pub(crate) const TEXT: Self = Self { elements: 16 };
    /// For programs.
    pub(crate) const JSON: Self = Self { elements: 1024 };
}

/// A decoded call.
#[derive(Debug)]
pub(crate) struct RenderedCall<'t> {
    /// Arguments, and what the call left behind pointers.
    pub(crate) decoded: Decoded<'t>,
    /// What a launch launches.
    pub(crate) launch: Option<Launch>,
    /// Name of the result, if the function returns a `CUresult`.
    pub(crate) result: Option<String>,
}

impl RenderedCall<'_> {
    /// Appends the arguments, without parentheses.
    pub(crate) fn write_arguments(&self, out: &mut String) {
        match &self.launch {
            Some(launch) => launch.write(out),
            None => write_joined(&self.decoded.arguments, out, write_argument),
        }
    }
}

fn write_argument(argument: &Argument<'_>, out: &mut String) {
    out.push_str(argument.name);
    out.push_str(" = ");
    match &argument.pointee {
        // What is there says more than where it is.
        Some(
            pointee @ (Value::Text(_) | Value::Described(..) | Value::Fields(_) | Value::List(..)),
        ) => pointee.write(out),
        Some(pointee) => {
            argument.value.write(out);
            out.push_str(" → ");
            pointee.write(out);
        }
        None => argument.value.write(out),
    }
    if !argument.pieces.is_empty() {
        out.push_str(" {");
        write_joined(&argument.pieces, out, |(name, value), out| {
            let _ = write!(out, "{name} = ");
            value.write(out);
        });
        out.push('}');
    }
}

/// What is the same for all calls of a function.
#[derive(Debug)]
struct Plan<'t> {
    function: Option<&'static Function>,
    /// Calls of it give objects that get labels.
    introduces: bool,
    call: CallPlan<'t>,
    result: Option<&'t Enumeration>,
}

impl<'t> Plan<'t> {
    fn of(signature: &'t Signature, trace: &'t Trace) -> Self {
        let signatures = trace.signatures();
        let function = decode::function_of(signature);
        let result = signatures
            .enumeration("CUresult")
            .filter(|_| signature.returns == "CUresult");
        let introduces = |param: &Param| {
            matches!(
                param.role,
                Role::Make(..) | Role::Find(..) | Role::FindMany(..)
            )
        };
        Self {
            function,
            introduces: function.is_some_and(|function| function.params.iter().any(introduces)),
            call: CallPlan::of(signature, signatures),
            result,
        }
    }
}

/// Decodes calls; knows what the calls before have made.
#[derive(Debug)]
pub(crate) struct Renderer<'t> {
    trace: &'t Trace,
    limits: Limits,
    /// By number of the function.
    plans: Vec<Option<Rc<Plan<'t>>>>,
    labels: Labels,
    kernels: Kernels,
    /// By function or kernel handle: offset and size of each parameter.
    layouts: HashMap<u64, Vec<(u32, u32)>>,
    images: ImageReader,
}

impl<'t> Renderer<'t> {
    /// For the calls of that trace.
    pub(crate) fn new(trace: &'t Trace, limits: Limits) -> Self {
        Self {
            trace,
            limits,
            plans: Vec::new(),
            labels: Labels::default(),
            kernels: Kernels::default(),
            layouts: HashMap::new(),
            images: ImageReader::default(),
        }
    }

    /// Which kernel a launch runs.
    pub(crate) fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    /// Learns from a call; to be shown every call, in order, before it is rendered.
    pub(crate) fn observe(&mut self, call: &Call<'_>) {
        let plan = self.plan(call.signature.id);
        if plan.introduces
            && let Some(function) = plan.function
        {
            self.labels.observe(function, call);
        }
        self.kernels.observe(call);
        for note in call.notes() {
            if let Note::Layout(handle, layout) = note {
                self.layouts.insert(handle, layout);
            }
        }
    }

    /// Whether calls of that function have to be shown; if not, only those that have notes.
    pub(crate) fn learns_from(&mut self, call: &Call<'_>) -> bool {
        self.plan(call.signature.id).introduces || self.kernels.learns_from(call)
    }

    fn plan(&mut self, function: u16) -> &Rc<Plan<'t>> {
        let place = usize::from(function);
        if self.plans.len() <= place {
            self.plans.resize(place + 1, None);
        }
        let trace = self.trace;
        self.plans[place].get_or_insert_with(|| Rc::new(Plan::of(trace.signature(function), trace)))
    }

    /// Decodes a call that has been observed.
    pub(crate) fn render(&mut self, call: &Call<'_>) -> RenderedCall<'t> {
        let plan = Rc::clone(self.plan(call.signature.id));
        let (trace, images) = (self.trace, &mut self.images);
        let decoding = Decoding {
            signatures: trace.signatures(),
            names: &self.labels,
            names_after: &self.labels,
            elements: self.limits.elements,
        };
        let decoded = plan.call.decode(call, decoding, &mut |snapshot| {
            if decode::is_image(call, usize::from(snapshot.parameter), snapshot.field)
                && let Ok((_, facts)) = images.read(trace, snapshot.bytes)
            {
                return Err(Value::Described(facts.to_string(), json!(facts)));
            }
            bytes_of(trace, snapshot.bytes)
        });
        RenderedCall {
            decoded,
            launch: self.launch(call),
            result: call.result().zip(plan.result).map(|(code, results)| {
                let name = results.name_of(i64::from(code));
                name.map_or_else(|| format!("CUresult {code}"), str::to_owned)
            }),
        }
    }

    /// The call's name and arguments without its result, for messages.
    pub(crate) fn call_text(&mut self, call: &Call<'_>) -> String {
        let mut text = format!("{}(", call.signature.name);
        self.render(call).write_arguments(&mut text);
        text.push(')');
        text
    }

    /// What a call launches, if it is a launch.
    pub(crate) fn launch(&self, call: &Call<'_>) -> Option<Launch> {
        let handle = self.kernels.launched_handle(call)?;
        let layout = self.layouts.get(&handle).map(Vec::as_slice);
        let kernel = self.kernels.launched(call);
        Launch::of(
            call,
            handle,
            kernel,
            layout,
            self.trace.signatures(),
            &self.labels,
        )
    }

    /// Decodes what an earlier copy brought.
    pub(crate) fn arrived(&self, snapshot: Snapshot<'_>) -> Value {
        bytes_of(self.trace, snapshot.bytes).map_or_else(
            |missing| missing,
            |bytes| decode::block(&bytes, self.limits.elements),
        )
    }
}

/// The bytes of a snapshot, or the value that says why they are not there.
fn bytes_of<'b>(trace: &'b Trace, bytes: Bytes<'b>) -> Result<Cow<'b, [u8]>, Value> {
    trace.resolve(bytes).map_err(|_| Value::missing(bytes))
}
