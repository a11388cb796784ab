//! Memory that does not exist at replay, because another process or API made it, and what depends
//! on it: calls that name it, and launches that can reach it from their parameters. They are left
//! out by name, since the driver would refuse them, or the device would follow an address to
//! nowhere.
//!
//! What a launch can reach is known from the bytes that copies brought: a library hands its kernels
//! one structure, which leads to buffers of other processes through others. Addresses that
//! kernels write, and those in copies of several rows, are not followed.

use std::collections::{BTreeSet, HashMap};

use cutape_format::{Bytes, Call, Trace, layout::field};
use cutape_model::IntervalMap;
use cutape_registry::{Class, Family, Function, Kind, Role, VirtualMemoryOp, layout::offset_of};
use rustc_hash::FxBuildHasher;

use crate::buffer::{first, number};
use crate::compare::payload::Payload;
use crate::issue::handles::Handles;
use crate::issue::length::length_of;
use crate::issue::length::made_length;
use crate::issue::marshal::LOOKED_AT;
use crate::issue::skip::Skip;
use crate::place::address::{Found, Range, Ranges};
use crate::plan::Plan;

/// Addresses that are remembered of one allocation.
const ADDRESSES_KEPT: usize = 1 << 16;
/// Pages in which devices map memory of other processes: how far memory of unknown length is taken
/// to go.
const GRANULE: u64 = 2 << 20;

/// The exported name of the function that could not be re-issued, for which something is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cause(&'static str);

impl Cause {
    /// Why a call is left out that needs `what`. A program may import hundreds of pieces, and they
    /// are one reason.
    pub(crate) fn skip(self, what: &str) -> Skip {
        Skip::because(format!(
            "depends on the {what} of another process or API that does not exist here ({})",
            self.0
        ))
    }
}

/// The function if it cannot be re-issued even in principle: what it made is absent.
fn made_elsewhere(function: &str) -> Option<&'static Function> {
    cutape_registry::function(function).filter(|function| function.class == Class::Unreplayable)
}

/// An allocation of this replay: where it starts in the recording, and the call that made it.
type Place = (u64, u64);

/// What is absent, and what holds addresses.
#[derive(Debug, Default)]
pub(crate) struct Unavailable {
    /// Memory that is absent, and why.
    ranges: IntervalMap<Cause>,
    /// Whether there may be such memory, so that the addresses that copies bring are remembered.
    may_exist: bool,
    /// Addresses that copies have put into memory.
    held: HashMap<Place, BTreeSet<u64>, FxBuildHasher>,
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
            may_exist: elsewhere.any(makes_memory),
            ..Self::default()
        }
    }

    /// True if the trace has calls that make memory elsewhere.
    #[inline]
    pub(crate) fn may_exist(&self) -> bool {
        self.may_exist
    }

    /// True if no memory is absent now.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    fn insert(&mut self, start: u64, length: u64, cause: Cause) {
        self.end(start, length);
        self.ranges.insert(start, length, cause);
    }

    /// Some bytes are no longer what they were: unmapped, closed, freed.
    pub(crate) fn end(&mut self, start: u64, length: u64) {
        self.ranges.remove_overlapping(start, length);
    }

    fn find(&self, start: u64, length: u64) -> Option<Cause> {
        self.ranges.overlapping(start, length).map(|found| *found.1)
    }

    /// What a handle that the replay could not make is absent for, if it was made elsewhere.
    pub(crate) fn cause_of_missing(handles: &Handles, kind: Kind, value: u64) -> Option<Cause> {
        let created = handles.object((kind, value))?.created;
        made_elsewhere(created.function).map(|function| Cause(function.name))
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
                let cause = Self::cause_of_missing(handles, Kind::Allocation, of(allocation));
                if let Some(cause) = cause {
                    self.insert(of(address), of(size), cause);
                }
                return;
            }
            Family::VirtualMemory(VirtualMemoryOp::Unmap { address, size }) => {
                let of = |position: u8| call.argument(usize::from(position));
                return self.end(of(address), of(size));
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
                    self.insert(start, length, Cause(function.name));
                }
                Role::Destroy(kind) if kind.is_address() => {
                    self.end(call.argument(position), 1);
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
        let mut params = function.params.iter();
        if let Some(target) = params.position(|param| matches!(param.role, Role::DeviceWrite(_))) {
            return self.at(ranges, call.argument(target), 1).is_none();
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
        call: &Call,
        function: &'static Function,
        ranges: &Ranges,
    ) -> Option<Cause> {
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
                self.at(ranges, value, length)
            });
        of_params.or_else(|| self.absence_in_snapshots(call, function, ranges))
    }

    /// As above, in the memory behind its pointers.
    fn absence_in_snapshots(
        &self,
        call: &Call,
        function: &'static Function,
        ranges: &Ranges,
    ) -> Option<Cause> {
        call.snapshots().find_map(|snapshot| {
            let Bytes::Inline(bytes) = snapshot.bytes else {
                return None;
            };
            if snapshot.field == field::KERNEL_PARAMETERS {
                return self.reach(ranges, bytes);
            }
            let role = function.params.get(usize::from(snapshot.parameter))?.role;
            let is_structure = matches!(role, Role::In(_) | Role::InOut(_));
            is_structure
                .then(|| words(bytes, 8).find_map(|word| self.at(ranges, word, 1)))
                .flatten()
        })
    }

    /// Why memory is absent, unless something else has come there.
    fn at(&self, ranges: &Ranges, address: u64, length: u64) -> Option<Cause> {
        let cause = self.find(address, length)?;
        match ranges.find(address) {
            Found::Live(range, _) if range.kind != Kind::Reservation => None,
            _ => Some(cause),
        }
    }

    /// Absent memory that a kernel can get at from its parameters.
    fn reach(&self, ranges: &Ranges, packed: &[u8]) -> Option<Cause> {
        let mut seen = BTreeSet::new();
        let mut next: Vec<u64> = words(packed, 4).collect();
        while let Some(address) = next.pop() {
            if let Some(cause) = self.at(ranges, address, 1) {
                return Some(cause);
            }
            if let Found::Live(range, _) = ranges.find(address)
                && seen.insert(place(range))
                && let Some(held) = self.held.get(&place(range))
            {
                next.extend(held);
            }
        }
        None
    }

    /// Remembers the addresses that a copy puts into device memory.
    pub(crate) fn note_addresses(
        &mut self,
        call: &Call,
        function: &'static Function,
        (ranges, trace): (&Ranges, &Trace),
    ) {
        if !call.succeeded() {
            return;
        }
        let role = |wanted: fn(Role) -> bool| {
            let mut params = function.params.iter();
            params.position(|param| wanted(param.role))
        };
        let Some(target) = role(|role| matches!(role, Role::DeviceWrite(_))) else {
            return;
        };
        let Found::Live(range, _) = ranges.find(call.argument(target)) else {
            return;
        };
        let target = place(range);
        let source = role(|role| matches!(role, Role::HostRead(_) | Role::DeviceRead(_)));
        let Some(source) = source else {
            return;
        };
        let snapshot = call.snapshot(source, field::POINTEE);
        let addresses: Vec<u64> = match snapshot.map(|snapshot| Payload::of(trace, &snapshot)) {
            Some(Payload::Here(bytes)) => {
                let looked_at = first(&bytes, LOOKED_AT);
                let span = ranges.span();
                words(looked_at, 8)
                    .filter(|word| span.contains(word))
                    .filter(|&word| matches!(ranges.find(word), Found::Live(..)))
                    .collect()
            }
            Some(_) => return,
            None => match ranges.find(call.argument(source)) {
                Found::Live(range, _) => {
                    let held = self.held.get(&place(range));
                    held.into_iter().flatten().copied().collect()
                }
                _ => return,
            },
        };
        if addresses.is_empty() {
            return;
        }
        let held = self.held.entry(target).or_default();
        for address in addresses {
            if held.len() < ADDRESSES_KEPT {
                held.insert(address);
            }
        }
    }
}

fn place(range: &Range) -> Place {
    (range.start, range.made)
}

fn words(bytes: &[u8], step: usize) -> impl Iterator<Item = u64> + '_ {
    bytes.windows(8).step_by(step).map(number)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_come_and_go() {
        let [first, second, third] = ["first", "second", "third"].map(Cause);
        let mut unavailable = Unavailable::default();
        unavailable.insert(0x1000, 0x1000, first);
        unavailable.insert(0x3000, 0x1000, second);
        let table = [
            (0xfff, 1, None),
            (0xfff, 2, Some(first)),
            (0x1fff, 1, Some(first)),
            (0x2000, 0x1000, None),
            (0x2000, 0x1001, Some(second)),
            (0x3fff, 0, Some(second)),
            (0x4000, 0, None),
        ];
        for (start, length, expected) in table {
            let found = unavailable.find(start, length);
            assert_eq!(found, expected, "{start:#x} {length:#x}");
        }
        // Something new over both, and the end of all of it.
        unavailable.insert(0x1800, 0x2000, third);
        assert_eq!(unavailable.find(0x1000, 8), None);
        assert_eq!(unavailable.find(0x37ff, 8), Some(third));
        unavailable.end(0, 0x10000);
        assert!(unavailable.is_empty());
    }
}
