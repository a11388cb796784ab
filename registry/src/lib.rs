//! The CUDA driver API as data: call ids, names, parameters, roles, enums, rules.
//!
//! `cargo xtask codegen` generates the tables from `registry/signatures` (derived from NVIDIA's
//! headers), `registry/semantics`, `registry/rules` and `registry/errata` (written by hand). Invariant: this crate
//! depends on nothing and allocates nothing; beyond lookups it only evaluates lengths.
#![no_std]

mod convention;
mod effects;
mod erratum;
mod extent;
mod family;
#[macro_use]
#[rustfmt::skip]
mod generated;
pub mod glob;
mod launch_attribute;
pub mod layout;
mod length;
mod model;
mod names;
mod null_setting;
mod recorded_part;
mod recorder_setting;
mod result;
mod stream;

pub use convention::{INTEGER_REGISTERS, Location, Locations, VECTOR_REGISTERS};
pub use erratum::{DriverVersion, Erratum, ErratumEnd};
pub use extent::{Arguments, Extent};
pub use family::*;
pub use generated::attribute_table::AttributeTable;
pub use generated::attributes;
pub use generated::enums::ENUMS;
pub use generated::errata::ERRATA;
pub use generated::functions::FUNCTIONS;
pub use generated::ids as id;
pub use generated::kinds::Kind;
pub use generated::rules::{self, RULES};
pub use generated::structs::STRUCTS;
pub use launch_attribute::{AttributeTarget, LaunchAttribute};
pub use model::*;
pub use names::{
    DRIVER_FOLDERS, OTHER_LIBRARIES, PAST_AUDIT, asks_for_libcuda, names_a_folder, past_audit,
};
pub use null_setting::NullSetting;
pub use recorded_part::{RecordedLength, StartCondition};
pub use recorder_setting::{
    Backend, Digests, HostMemory, MemoryContents, RecorderSetting, Stacks, Switch, WhenFull,
};
pub use result::{is_sticky, keeps_capturing};
pub use stream::{STREAM_LEGACY, STREAM_PER_THREAD, canonical_stream, is_default_stream};

/// The signature table as text, which is part of every trace (grammar: `format/SPEC.md`).
pub static SIGNATURE_TEXT: &str = include_str!("generated/signatures.txt");

/// The function of that exported name, e.g. `cuMemAlloc_v2`.
pub fn function(name: &str) -> Option<&'static Function> {
    generated::functions::BY_NAME
        .binary_search_by(|&index| FUNCTIONS[usize::from(index)].name.cmp(name))
        .ok()
        .map(|position| &FUNCTIONS[usize::from(generated::functions::BY_NAME[position])])
}

/// The enum of that C name, e.g. `CUjit_option`.
pub fn enumeration(name: &str) -> Option<&'static Enum> {
    ENUMS
        .binary_search_by(|entry| entry.name.cmp(name))
        .ok()
        .map(|position| &ENUMS[position])
}

/// The name that cuda.h gives a result code, e.g. `CUDA_ERROR_INVALID_VALUE` for 1.
pub fn result_name(code: i32) -> Option<&'static str> {
    enumeration("CUresult")?.name_of(i64::from(code))
}

/// The struct of that C name, e.g. `CUDA_MEMCPY2D`.
pub fn structure(name: &str) -> Option<&'static Struct> {
    STRUCTS
        .binary_search_by(|entry| entry.name.cmp(name))
        .ok()
        .map(|position| &STRUCTS[position])
}

/// The struct that a parameter of that C type points at, e.g. `const CUDA_MEMCPY2D *`.
pub fn structure_behind(c_type: &str) -> Option<&'static Struct> {
    let pointee = c_type.trim_start_matches("const ");
    structure(pointee.trim_end_matches([' ', '*']))
}

/// The rule of that id, e.g. `link-cubin-after-destroy`.
pub fn rule(id: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.id == id)
}

/// The published defect that a rule is about; `None` for rules about the program.
pub fn erratum(rule: &str) -> Option<&'static Erratum> {
    ERRATA.iter().find(|erratum| erratum.rule == rule)
}

impl Function {
    /// The enum that names the bits of its parameter `flags`.
    pub fn flags(&self) -> Option<&'static Enum> {
        ENUMS.get(usize::from(self.flags?))
    }

    /// True if it enqueues or does work that may change device memory: launches, copies to devices,
    /// memsets, allocations and frees in stream order.
    pub fn changes_device_memory(&self) -> bool {
        let writes = |param: &Param| matches!(param.role, Role::DeviceWrite(_));
        let has_target = || self.params.iter().any(writes);
        match self.family {
            Family::Launch(_) | Family::Graph(GraphOp::Launch) => true,
            Family::Memset | Family::StreamMemory(_) => true,
            Family::Memory(op) => matches!(op, MemoryOp::AllocateAsync | MemoryOp::FreeAsync),
            Family::Copy(CopyOp::Linear(_)) => has_target(),
            Family::Copy(_) => true,
            _ => self.stream.is_some() && has_target(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_names_and_positions_agree() {
        let mut count = 0;
        macro_rules! check {
            ($(($id:literal, $name:ident))*) => {
                $(
                    assert_eq!(id::$name, $id);
                    assert_eq!(FUNCTIONS[$id].name, stringify!($name));
                    count += 1;
                )*
            };
        }
        for_each_function!(check);
        assert_eq!(count, FUNCTIONS.len());
        for (position, entry) in FUNCTIONS.iter().enumerate() {
            assert_eq!(usize::from(entry.id), position);
            assert_eq!(function(entry.name).map(|found| found.id), Some(entry.id));
            assert!(entry.name.starts_with(entry.base), "{}", entry.name);
            let reasoned = matches!(entry.class, Class::Opaque | Class::Unreplayable);
            assert_eq!(reasoned, !entry.reason.is_empty(), "{}", entry.name);
        }
        assert!(function("cuNoSuchFunction").is_none());
    }

    #[test]
    fn work_that_changes_device_memory_is_known() {
        for (name, expected) in [
            ("cuLaunchKernel_ptsz", true),
            ("cuLaunchKernelEx", true),
            ("cuGraphLaunch", true),
            ("cuMemcpyHtoD_v2", true),
            ("cuMemcpyDtoHAsync_v2", false),
            ("cuMemcpyDtoH_v2", false),
            ("cuMemcpy2DAsync_v2", true),
            ("cuMemsetD8_v2", true),
            ("cuStreamWriteValue32_v2", true),
            ("cuMemAllocAsync", true),
            ("cuMemFreeAsync", true),
            ("cuMemAlloc_v2", false),
            ("cuMemFree_v2", false),
            ("cuStreamWaitEvent", false),
            ("cuEventRecord", false),
            ("cuCtxSynchronize", false),
        ] {
            let entry = function(name).expect(name);
            assert_eq!(entry.changes_device_memory(), expected, "{name}");
        }
    }

    #[test]
    fn roles_refer_to_parameters_that_exist() {
        for entry in &FUNCTIONS {
            let exists = |position: u8| usize::from(position) < entry.params.len();
            let length = |length: Length| match length {
                Length::Fixed(_) | Length::Override => true,
                Length::Param(a)
                | Length::Scaled(a, _)
                | Length::AllBut(a, _, _)
                | Length::ByAttribute(a, _) => exists(a),
                Length::Product(a, b) => exists(a) && exists(b),
                Length::Pitched(a, b, c, d) => [a, b, c, d].into_iter().all(exists),
                Length::PitchedBy(a, _, c, d) => [a, c, d].into_iter().all(exists),
            };
            let parent = |parent: Parent| match parent {
                Parent::None | Parent::CurrentContext => true,
                Parent::Param(position) => exists(position),
            };
            for param in entry.params {
                let sound = match param.role {
                    Role::Make(_, from) | Role::Find(_, from) => parent(from),
                    Role::FindMany(_, from, count) => parent(from) && length(count),
                    Role::UseMany(_, count)
                    | Role::In(count)
                    | Role::Out(count)
                    | Role::InOut(count)
                    | Role::Text(count)
                    | Role::HostRead(count)
                    | Role::HostWrite(count)
                    | Role::DeviceRead(count)
                    | Role::DeviceWrite(count) => length(count),
                    _ => true,
                };
                assert!(sound, "{}: {}", entry.name, param.name);
            }
            assert!(entry.stream.is_none_or(exists), "{}", entry.name);
        }
    }

    #[test]
    fn values_and_members_have_meanings() {
        let param = |name: &str, at: usize| function(name).expect(name).params[at].role;
        let Role::Out(types) = param("cuPointerGetAttribute", 0) else {
            panic!("not an output");
        };
        for (attribute, expected) in [
            (1, Some((8, Meaning::Handle(Kind::Context)))),
            (2, Some((4, Meaning::Plain))),
            (1 << 32 | 2, Some((4, Meaning::Plain))), // the upper half of a register is anything
            (11, Some((8, Meaning::MayDiffer))),
            (9999, None),
        ] {
            let found = types.attribute_type(attribute);
            assert_eq!(found.map(|known| (known.bytes, known.meaning)), expected);
        }
        assert!(Length::Fixed(4).attribute_type(1).is_none());
        let descriptor = structure("CUDA_RESOURCE_DESC").expect("known");
        let array = descriptor
            .fields
            .iter()
            .find(|field| field.name == "res.array.hArray")
            .expect("known");
        assert_eq!(array.meaning, Meaning::Handle(Kind::Array));
        let when = array.when.expect("a member of a union");
        assert!(when.holds(&[0; 144]) && !when.holds(&[1; 144]) && !when.holds(&[0; 3]));
        assert!(structure("CUdevResource").is_some_and(|entry| entry.token));
        for entry in STRUCTS {
            assert!(
                structure(entry.name).is_some(),
                "{} is out of order",
                entry.name
            );
        }
    }

    #[test]
    fn flags_have_names() {
        for (name, flags) in [
            ("cuCtxCreate_v2", Some("CUctx_flags")),
            ("cuMemHostAlloc", Some("CU_MEMHOSTALLOC")),
            ("cuStreamWaitEvent_ptsz", Some("CUevent_wait_flags")),
            ("cuInit", None),
        ] {
            let found = function(name).expect(name).flags();
            assert_eq!(found.map(|known| known.name), flags, "{name}");
        }
        assert_eq!(
            Kind::of_handle_type("CUtexObject_v1"),
            Some(Kind::TextureObject)
        );
        assert_eq!(Kind::of_handle_type("int"), None);
        assert_eq!(
            (Kind::GraphExec.name(), Kind::GraphExec.key()),
            ("executable graph", "executable-graph")
        );
    }

    #[test]
    fn well_known_numbers() {
        assert_eq!(result_name(0), Some("CUDA_SUCCESS"));
        assert_eq!(result_name(700), Some("CUDA_ERROR_ILLEGAL_ADDRESS"));
        assert_eq!(result_name(-5), None);
        assert_eq!(
            structure("CUDA_MEMCPY3D").map(|entry| entry.size),
            Some(200)
        );
        assert!(enumeration("CUjit_option").is_some_and(|entry| !entry.values.is_empty()));
    }
}
