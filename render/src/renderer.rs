//! Decodes the calls of a trace: labels for objects, facts of images, kernels of launches.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::rc::Rc;

use cutape_analyzer::decode::{
    self, Argument, CallPlan, Decoded, Decoding, Names, Value, write_joined,
};
use cutape_format::{Bytes, Call, Enumeration, Note, Signature, Snapshot, Trace};
use cutape_model::{Changes, Effects};
use cutape_registry::{Family, Function, Kind};
use serde_json::json;

use crate::images::ImageReader;
use crate::labels::Labels;
use crate::launch::Launch;
use cutape_model::LaunchShape;
use cutape_model::{Scope, TraceState};

/// How much of long values to decode.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Elements of an array, and bytes of a block.
    pub elements: usize,
}

impl Limits {
    /// For people.
    pub const TEXT: Self = Self { elements: 16 };
    /// For programs.
    pub const JSON: Self = Self { elements: 1024 };
}

/// A decoded call.
#[derive(Debug)]
pub struct RenderedCall<'t> {
    /// Arguments, and what the call wrote behind pointers.
    pub decoded: Decoded<'t>,
    /// Set if the call is a launch.
    pub launch: Option<Launch>,
    /// The name of the result, if the function returns a `CUresult`.
    pub result: Option<String>,
}

impl RenderedCall<'_> {
    /// Appends the arguments, without parentheses.
    pub fn write_arguments(&self, out: &mut String) {
        match &self.launch {
            Some(launch) => launch.write(out),
            None => write_joined(&self.decoded.arguments, out, write_argument),
        }
    }

    /// Name and value of each argument, or of each part of a launch.
    pub fn parts(&self) -> Vec<(String, String)> {
        if let Some(launch) = &self.launch {
            return launch.parts();
        }
        let part = |argument: &Argument<'_>| {
            let mut value = String::new();
            write_value(argument, &mut value);
            (argument.name.to_owned(), value)
        };
        self.decoded.arguments.iter().map(part).collect()
    }

    /// The same with the pointers through which the call wrote at the end, because their addresses
    /// say less than the names and handles in the other arguments.
    pub fn write_inputs_first(&self, out: &mut String) {
        if self.launch.is_some() {
            return self.write_arguments(out);
        }
        let Decoded { arguments, outputs } = &self.decoded;
        let is_output =
            |argument: &&Argument<'_>| outputs.iter().any(|output| output.name == argument.name);
        let (last, first): (Vec<_>, Vec<_>) = arguments.iter().partition(is_output);
        write_joined(first.into_iter().chain(last), out, write_argument);
    }

    /// Appends what the call wrote behind pointers.
    pub fn write_outputs(&self, out: &mut String) {
        write_joined(&self.decoded.outputs, out, |output, out| {
            let _ = write!(out, "{} = ", output.full_name());
            output.value.write(out);
        });
    }
}

fn write_argument(argument: &Argument<'_>, out: &mut String) {
    out.push_str(argument.name);
    out.push_str(" = ");
    write_value(argument, out);
}

fn write_value(argument: &Argument<'_>, out: &mut String) {
    match &argument.pointee {
        // The content says more than the address.
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

/// What all calls of a function share.
#[derive(Debug)]
struct Plan<'t> {
    /// Set if the calls create labels.
    labels: Option<Effects>,
    /// Set if they launch kernels.
    launch: Option<&'static Function>,
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
        Self {
            labels: function.map(Effects::of).filter(Labels::depend_on),
            launch: function.filter(|function| matches!(function.family, Family::Launch(_))),
            call: CallPlan::of(signature, signatures),
            result,
        }
    }
}

/// What earlier calls say about the handles of later ones.
#[derive(Clone, Debug)]
pub struct Known {
    labels: Labels,
    state: TraceState,
    layouts: HashMap<u64, Vec<(u32, u32)>>,
}

impl Known {
    /// Before the first call.
    pub fn new(scope: Scope) -> Self {
        Self {
            labels: Labels::default(),
            state: TraceState::new(scope),
            layouts: HashMap::new(),
        }
    }
}

/// Decodes calls, with the labels of what earlier calls created. The names of kernels come from
/// whoever keeps the driver's state.
#[derive(Debug)]
pub struct CallRenderer<'t> {
    /// Whose calls they are.
    pub trace: &'t Trace,
    limits: Limits,
    /// By signature number.
    plans: Vec<Option<Rc<Plan<'t>>>>,
    /// Of what the calls observed have created.
    pub labels: Labels,
    /// By function or kernel handle: offset and size of each parameter.
    layouts: HashMap<u64, Vec<(u32, u32)>>,
    images: ImageReader,
}

impl<'t> CallRenderer<'t> {
    /// For the calls of that trace.
    pub fn new(trace: &'t Trace, limits: Limits) -> Self {
        Self {
            trace,
            limits,
            plans: Vec::new(),
            labels: Labels::default(),
            layouts: HashMap::new(),
            images: ImageReader::default(),
        }
    }

    /// Nanoseconds from the start of the recording.
    pub(crate) fn nanoseconds(&self, ticks: u64) -> u64 {
        self.trace.nanoseconds(ticks)
    }

    /// The name of a function that a note names by its number.
    pub(crate) fn function(&self, number: u16) -> &'t str {
        &self.trace.signature(number).name
    }

    /// Takes a call, before it is rendered; expects every call on which labels depend and every
    /// call with notes, in order.
    pub fn observe(&mut self, call: &Call<'_>) {
        let plan = Rc::clone(self.plan(call.signature.id));
        if let Some(effects) = &plan.labels {
            self.labels.observe(effects, call);
        }
        for note in call.notes() {
            if let Note::Layout(handle, layout) = note {
                self.layouts.insert(handle, layout);
            }
        }
    }

    /// Whether labels depend on calls of this function.
    pub fn depends_on(&mut self, call: &Call<'_>) -> bool {
        self.plan(call.signature.id).labels.is_some()
    }

    fn plan(&mut self, function: u16) -> &Rc<Plan<'t>> {
        let place = usize::from(function);
        if self.plans.len() <= place {
            self.plans.resize(place + 1, None);
        }
        let trace = self.trace;
        #[expect(clippy::indexing_slicing, reason = "the table is long enough")]
        let plan = &mut self.plans[place];
        plan.get_or_insert_with(|| Rc::new(Plan::of(trace.signature(function), trace)))
    }

    /// Decodes a call that has been observed. `kernel_name` is asked for the name of the handle
    /// that it launches.
    pub fn render<'n>(
        &mut self,
        call: &Call<'_>,
        kernel_name: impl FnOnce(u64) -> Option<&'n str>,
    ) -> RenderedCall<'t> {
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
                && let Some((_, facts)) = images.read(trace, snapshot.bytes)
            {
                return Err(Value::Described(facts.to_string(), json!(facts)));
            }
            bytes_of(trace, snapshot.bytes)
        });
        let launch = self.launch(&plan, call, kernel_name);
        RenderedCall {
            decoded,
            launch,
            result: call.result().zip(plan.result).map(|(code, results)| {
                let name = results.name_of(i64::from(code));
                name.map_or_else(|| format!("CUresult {code}"), str::to_owned)
            }),
        }
    }

    /// The call's name and arguments without its result, for messages; as [`CallRenderer::render`].
    pub fn call_text<'n>(
        &mut self,
        call: &Call<'_>,
        kernel_name: impl FnOnce(u64) -> Option<&'n str>,
    ) -> String {
        let mut text = format!("{}(", call.signature.name);
        self.render(call, kernel_name).write_arguments(&mut text);
        text.push(')');
        text
    }

    fn launch<'n>(
        &mut self,
        plan: &Plan<'_>,
        call: &Call<'_>,
        kernel_name: impl FnOnce(u64) -> Option<&'n str>,
    ) -> Option<Launch> {
        let shape = LaunchShape::of(plan.launch?, call);
        let handle = shape.kernel?;
        let layout = self.layouts.get(&handle).map(Vec::as_slice);
        Some(Launch::of(
            call,
            handle,
            shape,
            kernel_name(handle),
            layout,
            self.trace.signatures(),
            &self.labels,
        ))
    }

    /// Decodes the bytes of an async readback.
    pub fn readback(&self, snapshot: Snapshot<'_>) -> Value {
        bytes_of(self.trace, snapshot.bytes).map_or_else(
            |missing| missing,
            |bytes| decode::block(&bytes, self.limits.elements),
        )
    }
}

/// Decodes calls, and keeps the driver's state.
#[derive(Debug)]
pub struct Renderer<'t> {
    /// Decodes them.
    pub calls: CallRenderer<'t>,
    /// The driver's state after the calls observed.
    pub state: TraceState,
}

impl<'t> Renderer<'t> {
    /// For the calls of that trace.
    pub fn new(trace: &'t Trace, limits: Limits, scope: Scope) -> Self {
        Self::resume(trace, limits, Known::new(scope))
    }

    /// For the calls behind those that are known.
    pub fn resume(trace: &'t Trace, limits: Limits, known: Known) -> Self {
        Self {
            calls: CallRenderer {
                labels: known.labels,
                layouts: known.layouts,
                ..CallRenderer::new(trace, limits)
            },
            state: known.state,
        }
    }

    /// What the calls so far have said.
    pub fn known(&self) -> Known {
        Known {
            labels: self.calls.labels.clone(),
            state: self.state.clone(),
            layouts: self.calls.layouts.clone(),
        }
    }

    /// As [`Renderer::known`], when no more calls will be decoded.
    pub fn into_known(self) -> Known {
        Known {
            labels: self.calls.labels,
            state: self.state,
            layouts: self.calls.layouts,
        }
    }

    /// The label of an object, e.g. `module#2`.
    pub fn label(&self, kind: Kind, handle: u64) -> Option<String> {
        let labels = &self.calls.labels;
        match kind.is_address() {
            true => labels.place(handle),
            false => Names::handle(labels, kind, handle),
        }
    }

    /// Applies a call, before it is rendered; expects every call, in order.
    pub fn observe(&mut self, call: &Call<'_>) -> Option<Changes> {
        self.calls.observe(call);
        self.state.observe(call)
    }

    /// Decodes a call that has been observed.
    pub fn render(&mut self, call: &Call<'_>) -> RenderedCall<'t> {
        let state = &self.state;
        self.calls.render(call, |handle| state.kernel_name(handle))
    }
}

/// The bytes of a snapshot, or a value that says why they are missing.
fn bytes_of<'b>(trace: &'b Trace, bytes: Bytes<'b>) -> Result<Cow<'b, [u8]>, Value> {
    trace.resolve(bytes).map_err(|_| Value::missing(bytes))
}
