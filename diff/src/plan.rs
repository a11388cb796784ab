//! How the calls of a function are taken apart, resolved once from the registry.

use cutape_format::Signature;
use cutape_model::Effects;
use cutape_registry::layout::is_padding;
use cutape_registry::{
    DeviceOp, EventOp, Family, Field, Function, LaunchOp, Role, StreamOp, Struct, Waits, Width,
};

use crate::part::Facet;

/// How the calls of a function are taken apart.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The documented name, which all versions of a function share.
    pub(crate) name: Box<str>,
    /// `None` if the registry does not have the function with these parameters.
    pub(crate) known: Option<Known>,
    pub(crate) params: Vec<ParamPlan>,
    pub(crate) query: Query,
    /// It asks for what the machine is.
    pub(crate) asks_for_machine: bool,
    /// It only waits for work.
    pub(crate) waits: bool,
}

/// What the registry says about a function.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) function: &'static Function,
    pub(crate) effects: Effects,
    /// The position of the kernel that is launched.
    pub(crate) launched: Option<usize>,
}

/// Calls whose number is up to time or to the runtime library, not to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Query {
    /// None of them.
    No,
    /// Asks whether work is complete.
    Poll,
    /// Asks for an entry point of the driver.
    EntryPoint,
    /// Asks about a pointer, which may be any.
    Pointer,
}

/// How a parameter is taken apart.
#[derive(Debug)]
pub(crate) struct ParamPlan {
    pub(crate) name: &'static str,
    /// Of numbers and structs.
    pub(crate) facet: Facet,
    pub(crate) role: Option<Role>,
    pub(crate) width: usize,
    pub(crate) c_type: &'static str,
    pub(crate) behind: Behind,
    pub(crate) may_differ: bool,
}

/// What a pointer leads to.
#[derive(Debug)]
pub(crate) enum Behind {
    /// Numbers of that many bytes and of that C type; bytes, if 0.
    Numbers(usize, &'static str),
    /// Device addresses.
    Addresses,
    /// Structs: bytes of each, and the members that have no members.
    Structs(usize, Vec<&'static Field>),
}

impl Behind {
    pub(crate) fn of(c_type: &'static str) -> Self {
        let pointee = c_type.strip_suffix('*').unwrap_or("").trim();
        let pointee = pointee.strip_prefix("const ").unwrap_or(pointee);
        match pointee {
            "CUdeviceptr" => Self::Addresses,
            "size_t" | "unsigned long long" | "cuuint64_t" => Self::Numbers(8, pointee),
            "int" | "unsigned int" | "float" | "cuuint32_t" => Self::Numbers(4, pointee),
            _ if cutape_registry::enumeration(pointee).is_some() => Self::Numbers(4, pointee),
            _ => match cutape_registry::structure(pointee) {
                Some(known) if known.size > 0 => Self::Structs(known.size as usize, leaves(known)),
                _ => Self::Numbers(0, ""),
            },
        }
    }
}

/// The members that have no members of their own, without padding.
fn leaves(known: &'static Struct) -> Vec<&'static Field> {
    let is_inside = |inner: &str, outer: &str| {
        let rest = inner.strip_prefix(outer);
        rest.is_some_and(|rest| rest.starts_with('.'))
    };
    let fields = known.fields.iter().filter(|field| {
        let has_members = known
            .fields
            .iter()
            .any(|other| is_inside(other.name, field.name));
        !has_members && !is_padding(field.name)
    });
    fields.collect()
}

impl Plan {
    pub(crate) fn of(signature: &Signature) -> Self {
        let Some(function) = cutape_model::function_of(signature) else {
            return Self {
                name: signature.base.as_str().into(),
                known: None,
                params: Vec::new(),
                query: Query::No,
                asks_for_machine: false,
                waits: false,
            };
        };
        let (shape, launched) = match function.family {
            Family::Launch(launch) => {
                let shape = match launch {
                    // Three numbers of the grid, three of the block, and the shared memory.
                    LaunchOp::Arguments(launch) => launch.grid..=launch.shared,
                    LaunchOp::Config(launch) => launch.config..=launch.config,
                    LaunchOp::MultiDevice { list, .. } => list..=list,
                    LaunchOp::Legacy { .. } => 1..=u8::MAX,
                };
                (Some(shape), launch.function().map(usize::from))
            }
            _ => (None, None),
        };
        let params = (0..).zip(function.params).map(|(position, param)| {
            let is_shape = shape
                .as_ref()
                .is_some_and(|shape| shape.contains(&position));
            ParamPlan {
                name: param.name,
                facet: if is_shape {
                    Facet::Shape
                } else {
                    Facet::Argument
                },
                role: Some(param.role),
                width: match param.width {
                    Width::Memory(_) => 0,
                    width => width.bytes(),
                },
                c_type: param.c_type,
                behind: Behind::of(param.c_type),
                may_differ: param.may_differ,
            }
        });
        Self {
            name: function.base.into(),
            params: params.collect(),
            query: match function.family {
                Family::Stream(StreamOp::Query) | Family::Event(EventOp::Query) => Query::Poll,
                Family::ProcAddress { .. } | Family::ExportTable => Query::EntryPoint,
                Family::Pointer(_) => Query::Pointer,
                _ => Query::No,
            },
            asks_for_machine: matches!(
                function.family,
                Family::DriverVersion
                    | Family::Device(DeviceOp::Property | DeviceOp::Hardware | DeviceOp::ByBusId)
            ),
            waits: function.waits != Waits::No,
            known: Some(Known {
                function,
                effects: Effects::of(function),
                launched,
            }),
        }
    }

    /// Whether a call with that result is left out: how often it is made is up to time.
    pub(crate) fn is_noise(&self, result: Option<i32>) -> bool {
        /// cuda.h: CUDA_ERROR_NOT_READY
        const NOT_READY: i32 = 600;
        match self.query {
            Query::No => false,
            Query::Poll => matches!(result, Some(0 | NOT_READY)),
            Query::EntryPoint => result.is_some(),
            Query::Pointer => result.is_some_and(|result| result != 0),
        }
    }
}
