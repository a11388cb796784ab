//! A call as a reader sees it: a view of the record bytes, decoded on demand.

use std::borrow::Cow;

use crate::layout::{field, short_enter};
use crate::read::note::{Note, text};
use crate::read::signature::Signature;
use crate::read::snapshot::{SingleSnapshot, Snapshot, Snapshots};

/// One driver call: its enter part, and its leave part unless it was in flight when the recording
/// ended.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    /// Position in the order of enter over all threads, from 0: the number in every message.
    pub index: u64,
    /// Ordinal of the thread, from 0.
    pub thread: u32,
    /// Number in its thread, from 0. Other records refer to the call by `thread` and `number`.
    pub number: u64,
    /// The function.
    pub signature: &'a Signature,
    /// Clock ticks when it was entered.
    pub ticks: u64,
    /// The address in the program that it returns to.
    pub caller: u64,
    pub(crate) arguments: Arguments<'a>,
    pub(crate) snapshots: &'a [u8],
    /// From a note behind the `ENTER`.
    pub(crate) more_snapshots: &'a [u8],
    pub(crate) single_snapshot: Option<SingleSnapshot<'a>>,
    pub(crate) notes: Vec<(u16, &'a [u8])>,
    /// What it returned; `None` for a call in flight.
    pub leave: Option<Leave<'a>>,
}

/// Arguments of a call.
#[derive(Clone, Debug)]
pub(crate) enum Arguments<'a> {
    /// In an `ENTER`: packed, each as wide as its signature says.
    Packed(&'a [u8]),
    /// In an `ENTER_SHORT`: each in as few bytes as it needs.
    Short(short_enter::NumberReader<'a>),
    /// Decoded from an `ENTER_SHORT`: each as [`Call::argument`] gives it.
    Decoded(&'a [u64]),
}

/// The end of a call.
#[derive(Clone, Copy, Debug)]
pub struct Leave<'a> {
    /// Clock ticks when the driver had returned.
    pub ticks: u64,
    /// What it returned (for nearly all functions a `CUresult`).
    pub result: i32,
    pub(crate) single_snapshot: Option<SingleSnapshot<'a>>,
    pub(crate) snapshots: &'a [u8],
}

impl<'a> Call<'a> {
    /// The argument at a position, zero-extended, or sign-extended where the C type is signed; 0
    /// for a position that does not exist and for structs by value.
    #[inline]
    pub fn argument(&self, position: usize) -> u64 {
        match &self.arguments {
            Arguments::Decoded(words) => words.get(position).copied().unwrap_or(0),
            _ => self.encoded_argument(position).unwrap_or(0),
        }
    }

    #[inline(never)]
    fn encoded_argument(&self, position: usize) -> Option<u64> {
        let parameter = self.signature.parameters.get(position)?;
        let value = match &self.arguments {
            Arguments::Decoded(words) => return words.get(position).copied(),
            Arguments::Short(numbers) => numbers.clone().nth(position)?,
            Arguments::Packed(packed) => number(parameter.of(packed)?)?,
        };
        Some(parameter.value_type.extended(value))
    }

    /// The first arguments, each as [`Call::argument`] gives it, in one pass over the record.
    pub fn arguments(&self, into: &mut [u64]) {
        let Arguments::Short(numbers) = &self.arguments else {
            for (position, place) in into.iter_mut().enumerate() {
                *place = self.argument(position);
            }
            return;
        };
        into.fill(0);
        let parameters = self.signature.parameters.iter();
        for ((place, parameter), number) in into.iter_mut().zip(parameters).zip(numbers.clone()) {
            *place = parameter.value_type.extended(number);
        }
    }

    /// The bytes of an argument, as many as its type has.
    pub fn argument_bytes(&self, position: usize) -> Cow<'a, [u8]> {
        let Some(parameter) = self.signature.parameters.get(position) else {
            return Cow::Borrowed(&[]);
        };
        if let Arguments::Packed(packed) = &self.arguments {
            return Cow::Borrowed(parameter.of(packed).unwrap_or(&[]));
        }
        let number = self.argument(position).to_le_bytes();
        let width = parameter.value_type.bytes();
        Cow::Owned(number.get(..width).unwrap_or(&number).to_vec())
    }

    /// The arguments packed, each as wide as its type; of a function that the signature table
    /// lacks, what the record holds.
    pub fn packed_arguments(&self) -> Cow<'a, [u8]> {
        match &self.arguments {
            Arguments::Packed(bytes) => Cow::Borrowed(bytes),
            Arguments::Short(numbers) if self.signature.parameters.is_empty() => {
                Cow::Borrowed(numbers.rest())
            }
            Arguments::Short(_) | Arguments::Decoded(_) => (0..self.signature.parameters.len())
                .flat_map(|position| self.argument_bytes(position).into_owned())
                .collect(),
        }
    }

    /// The argument of that parameter name.
    pub fn argument_named(&self, name: &str) -> Option<u64> {
        let position = self.signature.parameter(name)?;
        Some(self.argument(position))
    }

    /// Bytes behind pointers before the call.
    pub fn snapshots(&self) -> Snapshots<'a> {
        Snapshots::new(self.single_snapshot, self.snapshots, self.more_snapshots)
    }

    /// A snapshot from before the call.
    pub fn snapshot(&self, position: usize, field: u8) -> Option<Snapshot<'a>> {
        find(self.snapshots(), position, field)
    }

    /// The string that a parameter pointed at before the call (lossy where it is not UTF-8).
    pub fn string(&self, position: usize) -> Option<String> {
        let bytes = self.snapshot(position, field::POINTEE)?.bytes.inline()?;
        Some(text(bytes))
    }

    /// The result, if the call returned.
    pub fn result(&self) -> Option<i32> {
        self.leave.map(|leave| leave.result)
    }

    /// True if it returned 0 (`CUDA_SUCCESS`).
    pub fn succeeded(&self) -> bool {
        self.result() == Some(0)
    }

    /// The number behind an out pointer after the call; `None` if there is no snapshot of it.
    pub fn out(&self, position: usize) -> Option<u64> {
        self.out_bytes(position).and_then(number)
    }

    /// The bytes behind an out pointer after the call, if the record holds them.
    pub fn out_bytes(&self, position: usize) -> Option<&'a [u8]> {
        let leave = self.leave.as_ref()?;
        let snapshot = leave.snapshot(position, field::POINTEE)?;
        snapshot.bytes.inline()
    }

    /// Whether anything was noted while the call was in progress.
    #[inline]
    pub fn has_notes(&self) -> bool {
        !self.notes.is_empty()
    }

    /// The id of the call's stack, for [`crate::Trace::stack`].
    #[inline]
    pub fn stack(&self) -> Option<u64> {
        if !self.has_notes() {
            return None;
        }
        self.notes().find_map(|note| match note {
            Note::Stack(id) => Some(id),
            _ => None,
        })
    }

    /// What was noted while the call was in progress.
    pub fn notes(&self) -> impl Iterator<Item = Note<'a>> + '_ {
        self.notes
            .iter()
            .map(|&(kind, bytes)| Note::read(kind, bytes))
    }
}

impl<'a> Leave<'a> {
    /// Bytes behind pointers after the call.
    pub fn snapshots(&self) -> Snapshots<'a> {
        Snapshots::new(self.single_snapshot, self.snapshots, &[])
    }

    /// A snapshot from after the call.
    pub fn snapshot(&self, position: usize, field: u8) -> Option<Snapshot<'a>> {
        find(self.snapshots(), position, field)
    }

    /// A string that the driver wrote, or returned the address of (lossy where it is not UTF-8).
    pub fn text(&self, position: usize, field: u8) -> Option<String> {
        let bytes = self.snapshot(position, field)?.bytes.inline()?;
        Some(text(bytes))
    }
}

#[inline]
fn find(mut all: Snapshots<'_>, position: usize, field: u8) -> Option<Snapshot<'_>> {
    let is_it =
        |found: &Snapshot<'_>| usize::from(found.parameter) == position && found.field == field;
    // Nearly always the first.
    match all.next()? {
        first if is_it(&first) => Some(first),
        _ => all.find(is_it),
    }
}

/// One to eight bytes as a little-endian number.
#[inline]
fn number(bytes: &[u8]) -> Option<u64> {
    // Nearly all numbers have one of these two lengths, which need no loop.
    if let Ok(bytes) = bytes.try_into() {
        return Some(u64::from_le_bytes(bytes));
    }
    if let Ok(bytes) = bytes.try_into() {
        return Some(u32::from_le_bytes(bytes).into());
    }
    let mut word = [0; 8];
    word.get_mut(..bytes.len())?.copy_from_slice(bytes);
    (!bytes.is_empty()).then_some(u64::from_le_bytes(word))
}
