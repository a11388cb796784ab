//! The addresses that copies have put into memory, and so which memory launches can get at.

use cutape_format::{Call, Trace, layout::field};
use cutape_reach::{Addresses, Memory, PARAMETER_STEP, Reached, words};
use cutape_registry::{Function, Role};

use crate::api::buffer::first;
use crate::compare::payload::Payload;
use crate::place::address::{Found, Range, Ranges};
use crate::plan::length::length_of;
use crate::unavailable::absent::Absent;

/// Bytes of one copy that are searched for addresses.
pub(crate) const LOOKED_AT: usize = 16 << 20;

/// Addresses that are remembered: about 100 MB.
const ADDRESSES_KEPT: usize = 1 << 20;

/// A piece of recorded memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Piece {
    /// Memory of this replay: where it starts in the recording, and the call that made it.
    Here(u64, u64),
    /// Memory that does not exist here: where it starts.
    Absent(u64),
}

impl Piece {
    fn of(range: &Range) -> Self {
        Self::Here(range.start, range.made)
    }
}

/// The memory that the recording has now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known<'a> {
    ranges: &'a Ranges,
    absent: &'a Absent,
    /// First address of what is here, and the end of what starts last.
    span: (u64, u64),
}

impl<'a> Known<'a> {
    pub(crate) fn new(ranges: &'a Ranges, absent: &'a Absent) -> Self {
        let span = ranges.span();
        Self {
            ranges,
            absent,
            span: (span.start, span.end),
        }
    }
}

impl Known<'_> {
    /// True for an address in memory that is here and that is not host memory.
    pub(crate) fn is_device(&self, address: u64) -> bool {
        self.ranges.is_device(address)
    }
}

impl Memory for Known<'_> {
    type Place = Piece;

    fn find(&self, address: u64) -> Option<(Piece, u64)> {
        if let Some((start, _)) = self.absent.at(self.ranges, address, 1) {
            return Some((Piece::Absent(start), start));
        }
        if !(self.span.0..self.span.1).contains(&address) {
            return None;
        }
        match self.ranges.find(address) {
            Found::Live(range, _) => Some((Piece::of(range), range.start)),
            _ => None,
        }
    }
}

/// The addresses in memory.
#[derive(Debug)]
pub(crate) struct HeldAddresses(Addresses<Piece>);

impl Default for HeldAddresses {
    fn default() -> Self {
        Self(Addresses::new(ADDRESSES_KEPT))
    }
}

impl HeldAddresses {
    /// The memory that a kernel can get at from its parameters.
    pub(crate) fn reach<'a>(
        &'a self,
        known: &'a Known<'a>,
        packed: &'a [u8],
    ) -> impl Iterator<Item = Reached<Piece>> + 'a {
        self.0.reach(known, words(packed, PARAMETER_STEP))
    }

    /// Memory has ended.
    pub(crate) fn forget(&mut self, range: &Range) {
        self.0.forget(Piece::of(range));
    }

    /// Remembers the addresses that a copy puts into device memory.
    pub(crate) fn note_copy(
        &mut self,
        (call, function): (&Call, &'static Function),
        known: Known<'_>,
        trace: &Trace,
    ) {
        if !call.succeeded() {
            return;
        }
        let roles = || function.params.iter().map(|param| param.role).enumerate();
        let target = roles().find_map(|(position, role)| match role {
            Role::DeviceWrite(length) => Some((position, length_of(call, function, length))),
            _ => None,
        });
        let Some((target, length)) = target else {
            return;
        };
        let target = call.argument(target);
        let is_source = |role| matches!(role, Role::HostRead(_) | Role::DeviceRead(_));
        let Some((source, _)) = roles().find(|(_, role)| is_source(*role)) else {
            return self.0.overwrite(&known, target, length);
        };
        // Where the driver tells host from device by the address, the bytes of the host are apart.
        let of_host = || {
            let mut snapshots = call.snapshots();
            snapshots.find(|snapshot| snapshot.field == field::HOST_BYTES)
        };
        let snapshot = call.snapshot(source, field::POINTEE).or_else(of_host);
        match snapshot.map(|snapshot| Payload::of(trace, &snapshot)) {
            Some(Payload::Here(bytes)) => {
                let looked_at = first(&bytes, LOOKED_AT);
                self.0.note_bytes(&known, target, looked_at);
            }
            Some(_) => self.0.overwrite(&known, target, length),
            None => self
                .0
                .note_copy(&known, (target, call.argument(source)), length),
        }
    }
}
