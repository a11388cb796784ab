//! Memory that does not exist at replay, because another process or API made it, or a library
//! through private tables of the driver, and what depends on it: calls that name it, and launches
//! that can reach it from their parameters. They are left out by name, since the driver would
//! refuse them, or the device would follow an address to nowhere.
//!
//! `absent` is that memory, `held_addresses` says which memory launches can get at, and `exchanges`
//! which work gets at memory that is here, but shared with ranks that are not.

pub(crate) mod absent;
pub(crate) mod exchanges;
pub(crate) mod held_addresses;

use std::sync::Arc;

use cutape_format::{Bytes, Call, Trace, layout::field};
use cutape_reach::words;
use cutape_registry::{
    Class, CopyOp, Family, Function, Kind, MemoryType, Role, StreamMemoryOp, VirtualMemoryOp,
    layout::offset_of,
};

use crate::api::buffer::number;
use crate::objects::handles::Handles;
use crate::objects::skip::{Root, Skip};
use crate::place::address::Ranges;
use crate::plan::Plan;
use crate::plan::length::length_of;
use crate::plan::length::made_length;
use crate::plan::private_memory::{described, span};
use crate::unavailable::absent::{Absent, Cause, GRANULE, skip_of_function};
use crate::unavailable::held_addresses::{HeldAddresses, Known, Piece};

/// The function if it cannot be re-issued even in principle: what it made is absent.
fn made_elsewhere(function: &str) -> Option<&'static Function> {
    cutape_registry::function(function).filter(|function| function.class == Class::Unreplayable)
}

/// What is absent.
#[derive(Debug)]
pub(crate) struct Unavailable {
    pub absent: Absent,
    /// Whether there may be such memory, so that the addresses that copies bring are remembered.
    may_exist: bool,
    /// Who uses memory that no recorded call made; empty until there is some.
    private_memory: Arc<str>,
}

impl Unavailable {
    pub(crate) fn new(plan: &Plan) -> Self {
        let is_memory = |kind: Kind| kind == Kind::Allocation || kind.is_address();
        let makes_memory = |function: &Function| {
            let mut params = function.params.iter();
            params.any(|param| matches!(param.role, Role::Make(kind, _) if is_memory(kind)))
        };
        let left_out = plan.unreplayable.iter();
        let mut elsewhere = left_out.filter_map(|known| made_elsewhere(&known.function));
        Self {
            may_exist: elsewhere.any(makes_memory) || plan.names_private_memory,
            absent: Absent::default(),
            private_memory: "".into(),
        }
    }

    /// True if the trace has calls that make memory elsewhere.
    #[inline]
    pub(crate) fn may_exist(&self) -> bool {
        self.may_exist
    }

    /// The function that made an object elsewhere whose handle the replay could not make.
    pub(crate) fn maker_of_missing(
        handles: &Handles,
        kind: Kind,
        value: u64,
    ) -> Option<&'static str> {
        let created = handles.object((kind, value))?.created;
        made_elsewhere(created.function).map(|function| function.name)
    }

    /// Why a call is left out that needs `what`.
    pub(crate) fn skip(&self, cause: Cause, what: &str) -> Skip {
        match cause {
            Cause::Function(function) => skip_of_function(function, what),
            Cause::Private => {
                let owner = Arc::clone(&self.private_memory);
                let reason = format!("depends on {owner}, which no recorded call made");
                Skip::from_root(Root::PrivateMemory(owner), reason)
            }
        }
    }

    /// A call names memory that no recorded call made.
    pub(crate) fn add_private(&mut self, start: u64, length: u64, owner: impl FnOnce() -> String) {
        if self.private_memory.is_empty() {
            self.private_memory = owner().into();
        }
        self.absent.insert_private(start, length);
    }

    /// A call is left out: notes the memory that is unavailable because of it, and the end of what
    /// was.
    pub(crate) fn note(&mut self, call: &Call, function: &'static Function, handles: &Handles) {
        if !self.may_exist || !call.succeeded() {
            return;
        }
        match function.family {
            Family::VirtualMemory(VirtualMemoryOp::Map {
                address,
                size,
                allocation,
            }) => {
                let of = |position: u8| call.argument(usize::from(position));
                let maker = Self::maker_of_missing(handles, Kind::Allocation, of(allocation));
                if let Some(function) = maker {
                    let cause = Cause::Function(function);
                    self.absent.insert(of(address), of(size), cause);
                }
                return;
            }
            Family::VirtualMemory(VirtualMemoryOp::Unmap { address, size }) => {
                let of = |position: u8| call.argument(usize::from(position));
                return self.absent.end(of(address), of(size));
            }
            _ => {}
        }
        for (position, param) in function.params.iter().enumerate() {
            match param.role {
                Role::Make(kind, _)
                    if kind.is_address() && function.class == Class::Unreplayable =>
                {
                    let Some(start) = call.out(position).filter(|&start| start != 0) else {
                        continue;
                    };
                    let length = match given_length(call, function) {
                        0 => GRANULE - start % GRANULE,
                        length => length,
                    };
                    self.absent
                        .insert(start, length, Cause::Function(function.name));
                }
                Role::Destroy(kind) if kind.is_address() => {
                    self.absent.end(call.argument(position), 1);
                }
                _ => {}
            }
        }
    }

    /// True if a call that is left out may have written memory that does exist.
    pub(crate) fn would_write_here(
        &self,
        call: &Call,
        function: &'static Function,
        ranges: &Ranges,
    ) -> bool {
        if function.family == Family::StreamMemory(StreamMemoryOp::Wait) {
            return false;
        }
        let mut params = function.params.iter();
        if let Some(target) = params.position(|param| matches!(param.role, Role::DeviceWrite(_))) {
            let target = call.argument(target);
            let is_device = match function.family {
                Family::Copy(CopyOp::Unified(_)) => ranges.is_device(target),
                _ => true,
            };
            return is_device && self.absent.at(ranges, target, 1).is_none();
        }
        let mut params = function.params.iter();
        let is_for_host = params.any(|param| matches!(param.role, Role::HostWrite(_)));
        let launches = call
            .snapshots()
            .any(|snapshot| snapshot.field == field::KERNEL_PARAMETERS);
        launches || (function.stream.is_some() && !is_for_host)
    }

    /// What keeps a call from being re-issued.
    pub(crate) fn absence(
        &self,
        (trace, call): (&Trace, &Call),
        function: &'static Function,
        (ranges, held): (&Ranges, &HeldAddresses),
    ) -> Option<Cause> {
        let absent = |start, length| {
            self.absent
                .at(ranges, start, length)
                .map(|(_, cause)| cause)
        };
        if let Family::Copy(CopyOp::Described(_) | CopyOp::Batch { .. } | CopyOp::Batch3D { .. }) =
            function.family
        {
            let accesses = described(trace, call, function)?.into_iter();
            let mut named = accesses.filter(|access| access.memory != MemoryType::Host);
            return named.find_map(|access| absent(access.start, span(&access)));
        }
        let mapping = match function.family {
            Family::VirtualMemory(
                VirtualMemoryOp::SetAccess { size, .. } | VirtualMemoryOp::Unmap { size, .. },
            ) => Some(call.argument(usize::from(size))),
            _ => None,
        };
        let of_params = function
            .params
            .iter()
            .enumerate()
            .find_map(|(position, param)| {
                let value = call.argument(position);
                let length = match param.role {
                    // In mappings, the length follows the address.
                    Role::DeviceRead(_) if mapping.is_some() => mapping.unwrap_or_default(),
                    Role::DeviceRead(length) | Role::DeviceWrite(length) => {
                        length_of(call, function, length)
                    }
                    Role::Pointer | Role::HostAddress => 1,
                    Role::Use(kind) | Role::Destroy(kind) if kind.is_address() => 1,
                    _ => return None,
                };
                absent(value, length)
            });
        of_params.or_else(|| self.absence_in_snapshots(call, function, (ranges, held)))
    }

    /// As above, in the memory behind its pointers.
    fn absence_in_snapshots(
        &self,
        call: &Call,
        function: &'static Function,
        (ranges, held): (&Ranges, &HeldAddresses),
    ) -> Option<Cause> {
        call.snapshots().find_map(|snapshot| {
            let Bytes::Inline(bytes) = snapshot.bytes else {
                return None;
            };
            if snapshot.field == field::KERNEL_PARAMETERS {
                return self.reach((ranges, held), bytes);
            }
            let role = function.params.get(usize::from(snapshot.parameter))?.role;
            let is_structure = matches!(role, Role::In(_) | Role::InOut(_));
            is_structure
                .then(|| words(bytes, 8).find_map(|word| self.absent.at(ranges, word, 1)))
                .flatten()
                .map(|(_, cause)| cause)
        })
    }

    /// Absent memory that a kernel can get at from its parameters.
    fn reach(&self, (ranges, held): (&Ranges, &HeldAddresses), packed: &[u8]) -> Option<Cause> {
        let known = Known::new(ranges, &self.absent);
        let reached = held.reach(&known, packed).find_map(|reached| {
            matches!(reached.place, Piece::Absent(_)).then_some(reached.address)
        })?;
        self.absent.at(ranges, reached, 1).map(|(_, cause)| cause)
    }
}

/// How long memory is that a call made elsewhere, from what it was given; 0 if that does not say.
fn given_length(call: &Call, function: &Function) -> u64 {
    const SIZE: usize = offset_of("CUDA_EXTERNAL_MEMORY_BUFFER_DESC", "size");
    let described = match function.family {
        Family::ExternalBuffer { description } => call
            .snapshot(usize::from(description), field::POINTEE)
            .and_then(|snapshot| snapshot.bytes.inline())
            .and_then(|bytes| bytes.get(SIZE..SIZE + 8))
            .map(number),
        _ => None,
    };
    described.unwrap_or_else(|| made_length(call, function))
}
