//! A call with every argument decoded: by name, with the labels of objects and what stood behind pointers.

use std::collections::HashMap;
use std::rc::Rc;

use cutape_format::layout::{capture_flag, field};
use cutape_format::{Bytes, Call, Capture, Enumeration, Note, Passing, Signature, Trace};
use cutape_registry::{Function, Kind, Param, Role};

use super::flags;
use super::labels::Labels;
use super::launch::{self, Launch};
use super::types::{self, Type};
use super::value::Value;
use crate::call_set::Kernels;
use crate::info::images::{self, ImageReader};

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
pub(crate) struct Rendered<'t> {
    /// In the order of the prototype.
    pub(crate) arguments: Vec<Argument<'t>>,
    /// What the call left behind pointers: parameter, piece, value.
    pub(crate) outputs: Vec<(&'t str, Option<&'static str>, Value)>,
    /// What a launch launches.
    pub(crate) launch: Option<Launch>,
    /// Name of the result, if the function returns a `CUresult`.
    pub(crate) result: Option<String>,
}

/// A decoded argument.
#[derive(Debug)]
pub(crate) struct Argument<'t> {
    /// Its parameter's name.
    pub(crate) name: &'t str,
    /// The bits that were passed.
    pub(crate) value: Value,
    /// What stood behind it before the call.
    pub(crate) pointee: Option<Value>,
    /// Further pieces: name, value.
    pub(crate) pieces: Vec<(&'static str, Value)>,
}

/// What is the same for all calls of a function.
#[derive(Debug)]
struct Plan<'t> {
    function: Option<&'static Function>,
    /// Calls of it give objects that get labels.
    introduces: bool,
    parameters: Vec<ParameterPlan<'t>>,
    result: Option<&'t Enumeration>,
}

#[derive(Debug)]
struct ParameterPlan<'t> {
    name: &'t str,
    by_value: Type<'t>,
    behind: Type<'t>,
    is_string: bool,
    memory: bool,
}

impl<'t> Plan<'t> {
    fn of(signature: &'t Signature, trace: &'t Trace) -> Self {
        let signatures = trace.signatures();
        let function = cutape_registry::function(&signature.name)
            // The roles of a later version may be about other parameters.
            .filter(|function| function.params.len() == signature.parameters.len());
        let parameters = signature
            .parameters
            .iter()
            .enumerate()
            .map(|(position, parameter)| {
                let role = function.map(|function| function.params[position].role);
                let is_pointer = parameter.c_type.trim_end().ends_with('*');
                let flags = flags::of(&signature.base, &parameter.name).map(Type::Flags);
                let by_value = match role {
                    Some(Role::Use(Kind::Device) | Role::Destroy(Kind::Device)) => Type::Signed(4),
                    Some(Role::Use(kind) | Role::Destroy(kind)) => Type::Handle(kind),
                    Some(Role::DeviceRead(_) | Role::DeviceWrite(_)) => Type::DeviceAddress,
                    Some(Role::HostAddress) => Type::Pointer,
                    _ => match (Type::of(&parameter.c_type, signatures), parameter.passing) {
                        (Type::Bytes, Passing::Float(n)) => Type::Float(usize::from(n)),
                        (Type::Bytes, Passing::Signed(n)) => Type::Signed(usize::from(n)),
                        // A handle of a type without a name here, or a callback.
                        (Type::Bytes, Passing::Unsigned(8)) => Type::Pointer,
                        (known, _) => known,
                    },
                };
                let behind = match role {
                    Some(
                        Role::Make(Kind::Device, _)
                        | Role::Find(Kind::Device, _)
                        | Role::Get(Kind::Device),
                    ) => Type::Signed(4),
                    Some(
                        Role::Make(kind, _)
                        | Role::Find(kind, _)
                        | Role::FindMany(kind, ..)
                        | Role::Get(kind)
                        | Role::UseMany(kind, _),
                    ) => Type::Handle(kind),
                    Some(Role::Text(_) | Role::String) => Type::Character,
                    _ => Type::behind(&parameter.c_type, signatures),
                };
                let (by_value, behind) = match flags {
                    Some(flags) if is_pointer => (by_value, flags),
                    Some(flags) => (flags, behind),
                    None => (by_value, behind),
                };
                ParameterPlan {
                    name: &parameter.name,
                    by_value,
                    behind,
                    is_string: matches!(role, Some(Role::String)),
                    memory: matches!(parameter.passing, Passing::Memory(_)),
                }
            })
            .collect();
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
            parameters,
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

    fn plan(&mut self, function: u16) -> &Rc<Plan<'t>> {
        let place = usize::from(function);
        if self.plans.len() <= place {
            self.plans.resize(place + 1, None);
        }
        let trace = self.trace;
        self.plans[place].get_or_insert_with(|| Rc::new(Plan::of(trace.signature(function), trace)))
    }

    /// Decodes a call that has been observed.
    pub(crate) fn render(&mut self, call: &Call<'_>) -> Rendered<'t> {
        let plan = Rc::clone(self.plan(call.signature.id));
        let mut arguments: Vec<Argument<'t>> = plan
            .parameters
            .iter()
            .enumerate()
            .map(|(position, parameter)| Argument {
                name: parameter.name,
                value: match parameter.by_value {
                    // Small structs travel in a register, others as memory.
                    Type::Structure(_) => {
                        self.typed(parameter.by_value, &call.argument_bytes(position))
                    }
                    _ if parameter.memory => {
                        types::block(&call.argument_bytes(position), self.limits.elements)
                    }
                    known => known.scalar(call.argument(position), &self.labels),
                },
                pointee: None,
                pieces: Vec::new(),
            })
            .collect();
        for capture in call.captures() {
            let position = usize::from(capture.parameter);
            let value = self.piece(call, &plan, capture);
            let Some(argument) = arguments.get_mut(position) else {
                continue;
            };
            match piece_name(capture.field) {
                None => argument.pointee = Some(value),
                Some(name) => argument.pieces.push((name, value)),
            }
        }
        // A structure table without the function says nothing of its arguments.
        if plan.parameters.is_empty() && !call.packed_arguments().is_empty() {
            arguments.push(Argument {
                name: "arguments",
                value: types::block(&call.packed_arguments(), self.limits.elements),
                pointee: None,
                pieces: Vec::new(),
            });
        }
        Rendered {
            arguments,
            outputs: self.outputs(call, &plan),
            launch: self.launch(call),
            result: call.result().zip(plan.result).map(|(code, results)| {
                let name = results.name_of(i64::from(code));
                name.map_or_else(|| format!("CUresult {code}"), str::to_owned)
            }),
        }
    }

    fn outputs(
        &mut self,
        call: &Call<'_>,
        plan: &Plan<'t>,
    ) -> Vec<(&'t str, Option<&'static str>, Value)> {
        let mut outputs = Vec::new();
        for capture in call.leave.iter().flat_map(|leave| leave.captures()) {
            let Some(parameter) = plan.parameters.get(usize::from(capture.parameter)) else {
                continue;
            };
            let same = call
                .capture(usize::from(capture.parameter), capture.field)
                .is_some_and(|before| before.bytes == capture.bytes);
            if same || capture.flags & capture_flag::UNCHANGED != 0 {
                continue;
            }
            let value = self.piece(call, plan, capture);
            outputs.push((parameter.name, piece_name(capture.field), value));
        }
        outputs
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

    fn typed(&self, kind: Type<'t>, bytes: &[u8]) -> Value {
        kind.decode(
            bytes,
            &self.labels,
            self.trace.signatures(),
            self.limits.elements,
        )
    }

    /// Decodes what an earlier copy brought.
    pub(crate) fn arrived(&self, capture: Capture<'_>) -> Value {
        self.bytes_of(capture.bytes).map_or_else(
            |missing| missing,
            |bytes| types::block(&bytes, self.limits.elements),
        )
    }

    /// The bytes of a capture, or the value that says why they are not there.
    fn bytes_of<'b>(&'b self, bytes: Bytes<'b>) -> Result<std::borrow::Cow<'b, [u8]>, Value> {
        match bytes {
            Bytes::Inline(bytes) => Ok(bytes.into()),
            Bytes::Blob(blob) => self
                .trace
                .blob(blob)
                .map_err(|_| Value::Missing("damaged", Some(blob.length), None)),
            Bytes::InFile(range) => self
                .trace
                .file_range(range)
                .map_err(|_| Value::Missing("not packed", Some(range.length), None)),
            Bytes::Omitted(length) => Err(Value::Missing("not kept", Some(length), None)),
            Bytes::Hashed(length, hash) => {
                Err(Value::Missing("not kept", Some(length), Some(hash)))
            }
            Bytes::Unreadable => Err(Value::Missing("unreadable", None, None)),
        }
    }

    fn piece(&mut self, call: &Call<'_>, plan: &Plan<'t>, capture: Capture<'_>) -> Value {
        let position = usize::from(capture.parameter);
        if images::is_image(call, position, capture.field)
            && let Ok((_, facts)) = self.images.read(self.trace, capture.bytes)
        {
            return Value::Image(facts);
        }
        let bytes = match self.bytes_of(capture.bytes) {
            Ok(bytes) => bytes,
            Err(missing) => return missing,
        };
        let signatures = self.trace.signatures();
        let typed = |c_type| list(self.typed(Type::of(c_type, signatures), &bytes));
        match capture.field {
            field::POINTEE => match plan.parameters.get(position) {
                Some(parameter) if parameter.is_string => Value::Text(types::text(&bytes)),
                Some(parameter) => self.typed(parameter.behind, &bytes),
                None => types::block(&bytes, self.limits.elements),
            },
            field::OPTIONS => typed("CUjit_option"),
            field::LIBRARY_OPTIONS => typed("CUlibraryOption"),
            field::OPTION_VALUES
            | field::LIBRARY_OPTION_VALUES
            | field::EXTRA
            | field::SYMBOL_ADDRESSES => words(&bytes),
            field::ATTRIBUTES => launch::attributes(&bytes, signatures, &self.labels),
            field::INFO_LOG | field::ERROR_LOG | field::DIRECTORY | field::TEXT => {
                Value::Text(types::text(&bytes))
            }
            field::SYMBOL_NAMES => Value::List(
                bytes
                    .strip_suffix(&[0])
                    .unwrap_or(&bytes)
                    .split(|&byte| byte == 0)
                    .map(|name| Value::Text(types::text(name)))
                    .collect(),
                0,
            ),
            field::BYTE_BEHIND => Value::Unsigned(types::word(&bytes)),
            _ => types::block(&bytes, self.limits.elements),
        }
    }
}

/// Eight-byte words that may be numbers or addresses.
fn words(bytes: &[u8]) -> Value {
    let words = bytes
        .chunks_exact(8)
        .map(|raw| Value::Address(types::word(raw), None));
    Value::List(words.collect(), 0)
}

/// A list even of one.
fn list(value: Value) -> Value {
    match value {
        Value::List(..) | Value::Bytes(..) => value,
        one => Value::List(vec![one], 0),
    }
}

/// The name of a piece; `None` for what the parameter itself points at.
pub(crate) fn piece_name(piece: u8) -> Option<&'static str> {
    Some(match piece {
        field::POINTEE => return None,
        field::KERNEL_PARAMETERS => "kernel_parameters",
        field::EXTRA => "extra",
        field::OPTIONS => "options",
        field::OPTION_VALUES => "option_values",
        field::INFO_LOG => "info_log",
        field::ERROR_LOG => "error_log",
        field::FILE => "file",
        field::DIRECTORY => "directory",
        field::FATBIN => "fatbin",
        field::ATTRIBUTES => "attributes",
        field::HOST_BYTES => "host_bytes",
        field::SYMBOL_NAMES => "symbol_names",
        field::SYMBOL_ADDRESSES => "symbol_addresses",
        field::BYTE_BEHIND => "byte_behind",
        field::LIBRARY_OPTIONS => "library_options",
        field::LIBRARY_OPTION_VALUES => "library_option_values",
        field::TEXT => "text",
        _ => "other",
    })
}
