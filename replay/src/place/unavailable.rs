//! Memory that does not exist at replay, because another process or API made it, and what depends on it: calls that name it, and
//! launches that can reach it from their parameters. They are left out by name, since the driver would refuse them, or the
//! device would follow an address to nowhere.
//!
//! What a launch can reach is known from the bytes that copies brought: a library hands its kernels one structure, which
//! leads to buffers of other processes by way of others. Addresses that kernels write, and those in copies of several rows, are not
//! followed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use cutape_format::{Bytes, Call, layout::field};
use cutape_registry::{Class, Function, Kind, Role};
use rustc_hash::FxBuildHasher;

use crate::buffer::number;
use crate::compare::values::Payload;
use crate::issue::frame::{LOOKED_AT, Skip, is_address_kind, length_of};
use crate::issue::player::Player;
use crate::place::address::{Found, Range};
use crate::plan::{Plan, made_length};

/// Addresses that are remembered of one allocation.
const ADDRESSES_KEPT: usize = 1 << 16;
/// Pages in which devices map memory of other processes: how far memory of unknown length is taken to go.
const GRANULE: u64 = 2 << 20;

/// The call that could not be re-issued, for which something is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cause {
    /// Its index.
    pub call: u64,
    /// Its exported name.
    pub function: &'static str,
}

impl Cause {
    /// Why a call is left out that needs `what`. Without this one's index: a program may import hundreds of pieces, and they are one
    /// reason.
    pub(crate) fn skip(self, what: &str) -> Skip {
        Skip::because(format!(
            "depends on the {what} of another process or API that does not exist here ({})",
            self.function
        ))
    }
}

/// The function if it cannot be re-issued even in principle: what it made is absent.
fn made_elsewhere(function: &str) -> Option<&'static Function> {
    cutape_registry::function(function).filter(|function| function.class == Class::Unreplayable)
}

/// True if memory may be absent at a replay.
pub(crate) fn any_in(plan: &Plan) -> bool {
    let makes_memory = |function: &Function| {
        function.params.iter().any(|param| {
            matches!(param.role, Role::Make(kind, _) if kind == Kind::Allocation || is_address_kind(kind))
        })
    };
    plan.unreplayable
        .iter()
        .filter_map(|known| made_elsewhere(&known.function))
        .any(makes_memory)
}

/// An allocation of this replay: where it starts in the recording, and the call that made it.
type Place = (u64, u64);

/// What is absent, and what holds addresses.
#[derive(Debug, Default)]
pub(crate) struct Unavailable {
    /// By start: behind the last byte, and why.
    ranges: BTreeMap<u64, (u64, Cause)>,
    /// Addresses that copies have put into memory.
    held: HashMap<Place, BTreeSet<u64>, FxBuildHasher>,
}

impl Unavailable {
    /// True if no memory is absent now.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    fn insert(&mut self, start: u64, length: u64, cause: Cause) {
        let end = start.saturating_add(length.max(1));
        self.end(start, end - start);
        self.ranges.insert(start, (end, cause));
    }

    /// Some bytes are no longer what they were: unmapped, closed, freed.
    pub(crate) fn end(&mut self, start: u64, length: u64) {
        let end = start.saturating_add(length.max(1));
        while let Some(first) = self.first_in(start, end) {
            self.ranges.remove(&first);
        }
    }

    /// The start of a range that has any of these bytes.
    fn first_in(&self, start: u64, end: u64) -> Option<u64> {
        let (&first, &(behind, _)) = self.ranges.range(..end).next_back()?;
        (behind > start).then_some(first)
    }

    fn find(&self, start: u64, length: u64) -> Option<Cause> {
        let end = start.saturating_add(length.max(1));
        let first = self.first_in(start, end)?;
        self.ranges.get(&first).map(|range| range.1)
    }
}

fn place(range: &Range) -> Place {
    (range.start, range.made)
}

fn words(bytes: &[u8], step: usize) -> impl Iterator<Item = u64> + '_ {
    bytes.windows(8).step_by(step).map(number)
}

impl<'t> Player<'t> {
    /// What a handle that the replay could not make is absent for, if it was made elsewhere.
    pub(crate) fn cause_of_missing(&self, kind: Kind, value: u64) -> Option<Cause> {
        let object = self.handles.get((kind, value))?;
        made_elsewhere(object.made_by).map(|_| Cause {
            call: object.made,
            function: object.made_by,
        })
    }

    /// A call is left out: books the memory that is absent for it, and the end of what was.
    pub(crate) fn note_unavailable(&mut self, call: &Call<'t>, function: &'static Function) {
        if !call.succeeded() {
            return;
        }
        match function.base {
            // The address, the length; the allocation.
            "cuMemMap" => {
                if let Some(cause) = self.cause_of_missing(Kind::Allocation, call.argument(3)) {
                    self.unavailable
                        .insert(call.argument(0), call.argument(1), cause);
                }
                return;
            }
            "cuMemUnmap" => return self.unavailable.end(call.argument(0), call.argument(1)),
            _ => {}
        }
        for (position, param) in function.params.iter().enumerate() {
            match param.role {
                Role::Make(kind, _)
                    if is_address_kind(kind) && function.class == Class::Unreplayable =>
                {
                    let Some(start) = call.out(position).filter(|&start| start != 0) else {
                        continue;
                    };
                    let length = match given_length(call, function) {
                        0 => GRANULE - start % GRANULE,
                        length => length,
                    };
                    let cause = Cause {
                        call: call.index,
                        function: function.name,
                    };
                    self.unavailable.insert(start, length, cause);
                }
                Role::Destroy(kind) if is_address_kind(kind) => {
                    self.unavailable.end(call.argument(position), 1);
                }
                _ => {}
            }
        }
    }

    /// Leaves a call out that needs memory which is absent.
    pub(crate) fn needs_nothing_unavailable(
        &mut self,
        call: &Call<'t>,
        function: &'static Function,
    ) -> Result<(), Skip> {
        let Some(cause) = self.absence(call, function) else {
            return Ok(());
        };
        if self.would_write_here(call, function) {
            self.bytes_comparable = false;
            self.report.note(
                "work on memory of another process or API was left out, and what it would have written is missing: bytes are not compared from there on",
            );
        }
        Err(cause.skip("memory"))
    }

    /// True if a call that is left out may have written memory that does exist.
    fn would_write_here(&self, call: &Call<'t>, function: &'static Function) -> bool {
        let mut params = function.params.iter();
        if let Some(target) = params.position(|param| matches!(param.role, Role::DeviceWrite(_))) {
            return self.absent_at(call.argument(target), 1).is_none();
        }
        let mut params = function.params.iter();
        let is_for_host = params.any(|param| matches!(param.role, Role::HostWrite(_)));
        let launches = call
            .snapshots()
            .any(|capture| capture.field == field::KERNEL_PARAMETERS);
        launches || (function.stream.is_some() && !is_for_host)
    }

    /// What keeps a call from being re-issued.
    fn absence(&self, call: &Call<'t>, function: &'static Function) -> Option<Cause> {
        let of_params = function
            .params
            .iter()
            .enumerate()
            .find_map(|(position, param)| {
                let value = call.argument(position);
                let length = match param.role {
                    // Of mappings the length stands behind the address.
                    Role::DeviceRead(_)
                        if matches!(function.base, "cuMemSetAccess" | "cuMemUnmap") =>
                    {
                        call.argument(1)
                    }
                    Role::DeviceRead(length) | Role::DeviceWrite(length) => {
                        length_of(call, function, length)
                    }
                    Role::Pointer | Role::HostAddress => 1,
                    Role::Use(kind) | Role::Destroy(kind) if is_address_kind(kind) => 1,
                    _ => return None,
                };
                self.absent_at(value, length)
            });
        of_params.or_else(|| self.absence_in_captures(call, function))
    }

    /// As above, of what stood behind the pointers that it was given.
    fn absence_in_captures(&self, call: &Call<'t>, function: &'static Function) -> Option<Cause> {
        call.snapshots().find_map(|capture| {
            let Bytes::Inline(bytes) = capture.bytes else {
                return None;
            };
            if capture.field == field::KERNEL_PARAMETERS {
                return self.reach(bytes);
            }
            let role = function.params.get(usize::from(capture.parameter))?.role;
            let is_structure = matches!(role, Role::In(_) | Role::InOut(_));
            is_structure
                .then(|| words(bytes, 8).find_map(|word| self.absent_at(word, 1)))
                .flatten()
        })
    }

    /// Why memory is absent, unless something else has come there.
    fn absent_at(&self, address: u64, length: u64) -> Option<Cause> {
        let cause = self.unavailable.find(address, length)?;
        match self.ranges.find(address) {
            Found::Live(range, _) if range.kind != Kind::Reservation => None,
            _ => Some(cause),
        }
    }

    /// Absent memory that a kernel can get at from its parameters.
    fn reach(&self, packed: &[u8]) -> Option<Cause> {
        let mut seen = BTreeSet::new();
        let mut next: Vec<u64> = words(packed, 4).collect();
        while let Some(address) = next.pop() {
            if let Some(cause) = self.absent_at(address, 1) {
                return Some(cause);
            }
            if let Found::Live(range, _) = self.ranges.find(address)
                && seen.insert(place(range))
                && let Some(held) = self.unavailable.held.get(&place(range))
            {
                next.extend(held);
            }
        }
        None
    }

    /// Remembers the addresses that a copy puts into device memory.
    pub(crate) fn note_addresses(&mut self, call: &Call<'t>, function: &'static Function) {
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
        let Found::Live(range, _) = self.ranges.find(call.argument(target)) else {
            return;
        };
        let target = place(range);
        let source = role(|role| matches!(role, Role::HostRead(_) | Role::DeviceRead(_)));
        let Some(source) = source else {
            return;
        };
        let capture = call.snapshot(source, field::POINTEE);
        let addresses: Vec<u64> = match capture.map(|capture| self.payload(&capture)) {
            Some(Payload::Here(bytes)) => {
                let looked_at = &bytes[..bytes.len().min(LOOKED_AT)];
                let span = self.ranges.span();
                words(looked_at, 8)
                    .filter(|word| span.contains(word))
                    .filter(|&word| matches!(self.ranges.find(word), Found::Live(..)))
                    .collect()
            }
            Some(_) => return,
            None => match self.ranges.find(call.argument(source)) {
                Found::Live(range, _) => {
                    let held = self.unavailable.held.get(&place(range));
                    held.into_iter().flatten().copied().collect()
                }
                _ => return,
            },
        };
        if addresses.is_empty() {
            return;
        }
        let held = self.unavailable.held.entry(target).or_default();
        for address in addresses {
            if held.len() < ADDRESSES_KEPT {
                held.insert(address);
            }
        }
    }
}

/// How long memory is that a call made elsewhere, from what it was given; 0 if that does not say.
fn given_length(call: &Call, function: &Function) -> u64 {
    // CUDA_EXTERNAL_MEMORY_BUFFER_DESC: offset, size.
    let described = match function.base {
        "cuExternalMemoryGetMappedBuffer" => call
            .snapshot(2, field::POINTEE)
            .and_then(|capture| capture.bytes.inline())
            .and_then(|bytes| bytes.get(8..16))
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
        let cause = |call| Cause {
            call,
            function: "cuMemImportFromShareableHandle",
        };
        let mut unavailable = Unavailable::default();
        unavailable.insert(0x1000, 0x1000, cause(1));
        unavailable.insert(0x3000, 0x1000, cause(2));
        let table = [
            (0xfff, 1, None),
            (0xfff, 2, Some(1)),
            (0x1fff, 1, Some(1)),
            (0x2000, 0x1000, None),
            (0x2000, 0x1001, Some(2)),
            (0x3fff, 0, Some(2)),
            (0x4000, 0, None),
        ];
        for (start, length, expected) in table {
            let found = unavailable.find(start, length).map(|cause| cause.call);
            assert_eq!(found, expected, "{start:#x} {length:#x}");
        }
        // Something new over both, and the end of all of it.
        unavailable.insert(0x1800, 0x2000, cause(3));
        assert_eq!(unavailable.find(0x1000, 8), None);
        assert_eq!(unavailable.find(0x37ff, 8).map(|cause| cause.call), Some(3));
        unavailable.end(0, 0x10000);
        assert!(unavailable.is_empty());
    }
}
