//! Decodes calls for findings and `cutape dump`: arguments by name and type, bytes behind pointers
//! before and after.
//!
//! Types come from the trace's own signature table, names of handles from a [`Names`].

mod kernel_parameters;
mod names;
mod types;
mod value;

use std::borrow::Cow;

use cutape_format::layout::{field, snapshot_flag};
use cutape_format::{Call, Parameter, Signature, Signatures, Snapshot, ValueType};
use cutape_registry::{Family, Function, Kind, LinkOp, Role};

pub use cutape_model::function_of;
pub use kernel_parameters::kernel_parameters;
pub use names::{Nameless, Names, device_address, handle};
pub use types::{Type, attributes, block, text, word};
pub use value::{Form, Value, hexadecimal, write_joined};

/// How calls are decoded.
#[derive(Clone, Copy)]
pub struct Decoding<'d> {
    /// The trace's own table.
    pub signatures: &'d Signatures,
    /// Labels before the call.
    pub names: &'d dyn Names,
    /// Labels of handles that the call wrote.
    pub names_after: &'d dyn Names,
    /// How many elements of an array, and bytes of a block, to decode.
    pub elements: usize,
}

/// How to decode the calls of a function.
#[derive(Debug)]
pub struct CallPlan<'t> {
    parameters: Vec<ParameterPlan<'t>>,
}

#[derive(Debug)]
struct ParameterPlan<'t> {
    name: &'t str,
    by_value: Type<'t>,
    behind: Type<'t>,
    is_string: bool,
    memory: bool,
}

/// A decoded call.
#[derive(Debug)]
pub struct Decoded<'t> {
    /// In the order of the prototype.
    pub arguments: Vec<Argument<'t>>,
    /// What the call changed behind pointers.
    pub outputs: Vec<Output<'t>>,
}

/// A decoded argument.
#[derive(Debug)]
pub struct Argument<'t> {
    /// Its parameter's name.
    pub name: &'t str,
    /// The bits of the argument.
    pub value: Value,
    /// What it pointed at before the call.
    pub pointee: Option<Value>,
    /// Further pieces: name, value.
    pub pieces: Vec<(&'static str, Value)>,
}

/// What a call wrote behind a pointer.
#[derive(Debug)]
pub struct Output<'t> {
    /// The parameter's name.
    pub name: &'t str,
    /// The name of a further piece.
    pub piece: Option<&'static str>,
    /// The value after the call.
    pub value: Value,
}

impl<'t> Output<'t> {
    /// The parameter's name, of a further piece `name.piece`.
    pub fn full_name(&self) -> Cow<'t, str> {
        match self.piece {
            Some(piece) => format!("{}.{piece}", self.name).into(),
            None => self.name.into(),
        }
    }
}

impl<'t> CallPlan<'t> {
    /// For a function of a trace with that table.
    pub fn of(signature: &'t Signature, signatures: &'t Signatures) -> Self {
        let function = function_of(signature);
        let flags = function.and_then(Function::flags).map(Type::Flags);
        let parameters = signature.parameters.iter().enumerate();
        let parameters = parameters.map(|(position, parameter)| {
            let role = function.map(|function| function.params[position].role);
            let is_pointer = parameter.c_type.trim_end().ends_with('*');
            let flags = flags.filter(|_| parameter.name.eq_ignore_ascii_case("flags"));
            let by_value = match role {
                Some(Role::Use(Kind::Device) | Role::Destroy(Kind::Device)) => Type::Signed(4),
                Some(Role::Use(kind) | Role::Destroy(kind)) => Type::Handle(kind),
                Some(Role::DeviceRead(_) | Role::DeviceWrite(_)) => Type::DeviceAddress,
                Some(Role::HostAddress) => Type::Pointer,
                _ => match (
                    Type::of(&parameter.c_type, signatures),
                    parameter.value_type,
                ) {
                    (Type::Bytes, ValueType::Float(n)) => Type::Float(usize::from(n)),
                    (Type::Bytes, ValueType::Signed(n)) => Type::Signed(usize::from(n)),
                    // A handle of a type without a name here, or a callback.
                    (Type::Bytes, ValueType::Unsigned(8)) => Type::Pointer,
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
                memory: matches!(parameter.value_type, ValueType::Memory(_)),
            }
        });
        Self {
            parameters: parameters.collect(),
        }
    }

    /// Decodes a call; `bytes` returns those of a snapshot, or a value to show instead.
    pub fn decode<'c>(
        &self,
        call: &Call<'c>,
        decoding: Decoding<'_>,
        bytes: &mut dyn FnMut(Snapshot<'c>) -> Result<Cow<'c, [u8]>, Value>,
    ) -> Decoded<'t> {
        let Decoding {
            signatures,
            names,
            elements,
            ..
        } = decoding;
        let arguments = self.parameters.iter().enumerate();
        let arguments = arguments.map(|(position, parameter)| Argument {
            name: parameter.name,
            value: match parameter.by_value {
                // Small structs travel in a register, others as memory.
                Type::Structure(_) => {
                    let bytes = call.argument_bytes(position);
                    parameter
                        .by_value
                        .decode(&bytes, names, signatures, elements)
                }
                _ if parameter.memory => block(&call.argument_bytes(position), elements),
                known => known.scalar(call.argument(position), names),
            },
            pointee: None,
            pieces: Vec::new(),
        });
        let mut arguments: Vec<_> = arguments.collect();
        for snapshot in call.snapshots() {
            let value = self.piece(snapshot, names, decoding, bytes);
            let Some(argument) = arguments.get_mut(usize::from(snapshot.parameter)) else {
                continue;
            };
            match piece_name(snapshot.field) {
                None => argument.pointee = Some(value),
                Some(name) => argument.pieces.push((name, value)),
            }
        }
        // A signature table without the function does not describe its arguments.
        if self.parameters.is_empty() && !call.packed_arguments().is_empty() {
            arguments.push(Argument {
                name: "arguments",
                value: block(&call.packed_arguments(), elements),
                pointee: None,
                pieces: Vec::new(),
            });
        }
        let mut outputs = Vec::new();
        for snapshot in call.leave.iter().flat_map(|leave| leave.snapshots()) {
            let Some(parameter) = self.parameters.get(usize::from(snapshot.parameter)) else {
                continue;
            };
            let same = call
                .snapshot(usize::from(snapshot.parameter), snapshot.field)
                .is_some_and(|before| before.bytes == snapshot.bytes);
            if same || snapshot.flags & snapshot_flag::UNCHANGED != 0 {
                continue;
            }
            outputs.push(Output {
                name: parameter.name,
                piece: piece_name(snapshot.field),
                value: self.piece(snapshot, decoding.names_after, decoding, bytes),
            });
        }
        Decoded { arguments, outputs }
    }

    fn piece<'c>(
        &self,
        snapshot: Snapshot<'c>,
        names: &dyn Names,
        decoding: Decoding<'_>,
        bytes: &mut dyn FnMut(Snapshot<'c>) -> Result<Cow<'c, [u8]>, Value>,
    ) -> Value {
        let bytes = match bytes(snapshot) {
            Ok(bytes) => bytes,
            Err(other) => return other,
        };
        let Decoding {
            signatures,
            elements,
            ..
        } = decoding;
        let typed = |kind: Type<'_>| kind.decode(&bytes, names, signatures, elements);
        match snapshot.field {
            field::POINTEE => match self.parameters.get(usize::from(snapshot.parameter)) {
                Some(parameter) if parameter.is_string => Value::Text(text(&bytes)),
                Some(parameter) => typed(parameter.behind),
                None => block(&bytes, elements),
            },
            field::OPTIONS => list(typed(Type::of("CUjit_option", signatures))),
            field::LIBRARY_OPTIONS => list(typed(Type::of("CUlibraryOption", signatures))),
            field::OPTION_VALUES
            | field::LIBRARY_OPTION_VALUES
            | field::EXTRA
            | field::SYMBOL_ADDRESSES => words(&bytes),
            field::ATTRIBUTES => attributes(&bytes, signatures, names),
            field::INFO_LOG | field::ERROR_LOG | field::DIRECTORY | field::TEXT => {
                Value::Text(text(&bytes))
            }
            field::SYMBOL_NAMES => Value::List(
                bytes
                    .strip_suffix(&[0])
                    .unwrap_or(&bytes)
                    .split(|&byte| byte == 0)
                    .map(|name| Value::Text(text(name)))
                    .collect(),
                0,
            ),
            field::BYTE_BEHIND => Value::Unsigned(word(&bytes)),
            _ => block(&bytes, elements),
        }
    }
}

/// Eight-byte words that may be numbers or addresses.
fn words(bytes: &[u8]) -> Value {
    let words = bytes
        .chunks_exact(8)
        .map(|raw| Value::Address(word(raw), None));
    Value::List(words.collect(), 0)
}

/// A list, even of one element.
fn list(value: Value) -> Value {
    match value {
        Value::List(..) | Value::Bytes(..) => value,
        one => Value::List(vec![one], 0),
    }
}

/// The name of a piece; `None` for what the parameter itself points at.
pub fn piece_name(piece: u8) -> Option<&'static str> {
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

/// Whether a snapshot of a call is a module image: of a load, an input of a link, or a link's
/// cubin.
pub fn is_image(call: &Call<'_>, parameter: usize, piece: u8) -> bool {
    if piece != field::POINTEE {
        return matches!(piece, field::FATBIN | field::FILE);
    }
    // Only behind untyped pointers: this saves most calls the search for the function.
    let parameters = &call.signature.parameters;
    let untyped = |parameter: &Parameter| parameter.c_type.ends_with("void *");
    if !parameters.get(parameter).is_some_and(untyped) {
        return false;
    }
    let position = match function_of(call.signature).map(|function| function.family) {
        Some(Family::ModuleLoad(load) | Family::LibraryLoad(load)) => load.source.position(),
        Some(Family::Link(LinkOp::AddData { data, .. })) => data,
        _ => return false,
    };
    usize::from(position) == parameter
}

/// The word for a kind of image: `cubin`, `fatbin`, `fatbin wrapper`, `PTX`, `host object`, `host
/// archive`, `NVVM`, `unknown`.
pub fn image_word(kind: cutape_image::ImageKind) -> &'static str {
    use cutape_image::ImageKind;
    match kind {
        ImageKind::Cubin => "cubin",
        ImageKind::Fatbin => "fatbin",
        ImageKind::FatbinWrapper => "fatbin wrapper",
        ImageKind::Ptx => "PTX",
        ImageKind::HostObject => "host object",
        ImageKind::HostArchive => "host archive",
        ImageKind::NvvmBitcode => "NVVM",
        ImageKind::Unknown => "unknown",
    }
}
