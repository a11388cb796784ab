//! The arguments of one call, and the memory that they point into.

use cutape_registry::{Kind, Parent};

use crate::api::buffer::{Buffer, copy_common, lend, number};
use crate::compare::received::Received;
use crate::place::address::Way;

/// Memory that a frame keeps to lend again: pieces, and bytes of one.
const SPARE_KEPT: usize = 8;
const SPARE_BYTES: usize = 256;

/// What is expected behind a pointer after the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// The handle of a new object.
    Made(Kind, Parent),
    /// A handle, or several, that may be known.
    Found(Kind, Parent),
    /// A handle that is known.
    Got(Kind),
    /// A value or struct.
    Value,
    /// A pointer to a string of the driver's.
    DriverString,
    /// Text up to a NUL.
    Text,
    /// Host bytes that the copy brings.
    Bytes,
    /// Output that only the replay asks for; the program passed NULL.
    Ignore,
}

/// Memory behind a pointer that the call writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub position: usize,
    pub expect: Expect,
    pub address: u64,
    pub length: usize,
}

/// Arguments that an override makes, by position, and the memory that they point into.
#[derive(Debug, Default)]
pub(crate) struct Presets {
    pub args: Vec<(usize, u64)>,
    pub buffers: Vec<Buffer>,
    /// As [`Frame::reads`].
    pub reads: Vec<(u64, u64)>,
}

impl<const COUNT: usize> From<[(usize, u64); COUNT]> for Presets {
    fn from(args: [(usize, u64); COUNT]) -> Self {
        Self {
            args: args.into(),
            ..Self::default()
        }
    }
}

impl Presets {
    pub(crate) fn set(&mut self, position: impl Into<usize>, value: u64) {
        self.args.push((position.into(), value));
    }

    /// Lends memory for the call; returns its address.
    pub(crate) fn lend(&mut self, buffer: Buffer) -> u64 {
        lend(&mut self.buffers, buffer)
    }

    /// Lets a parameter point at memory.
    pub(crate) fn point(&mut self, position: impl Into<usize>, buffer: Buffer) {
        let address = self.lend(buffer);
        self.set(position, address);
    }
}

/// One call, ready to be issued.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    pub args: Vec<u64>,
    pub places: Vec<Place>,
    /// Memory that `args` and `places` point into.
    pub buffers: Vec<Buffer>,
    /// Host memory of the program that the call's work reads: first byte, behind the last.
    pub reads: Vec<(u64, u64)>,
    /// Short memory of calls that are over, to be lent again.
    pub spare: Vec<Buffer>,
    /// How new memory came about.
    pub way: Option<Way>,
    /// Why new memory is not at its recorded address.
    pub refusal: Option<String>,
    /// Bytes of new memory, if neither arguments nor results say.
    pub length: Option<u64>,
}

impl Frame {
    /// Empties it, to be filled for another call.
    pub(crate) fn clear(&mut self) {
        self.args.clear();
        self.places.clear();
        while let Some(buffer) = self.buffers.pop() {
            if buffer.len() <= SPARE_BYTES && self.spare.len() < SPARE_KEPT {
                self.spare.push(buffer);
            }
        }
        self.reads.clear();
        self.way = None;
        self.refusal = None;
        self.length = None;
    }

    /// Takes over the memory of presets.
    pub(crate) fn adopt(&mut self, presets: Presets) {
        self.buffers.extend(presets.buffers);
        self.reads.extend(presets.reads);
    }

    /// Lends memory for the call; returns its address.
    pub(crate) fn lend(&mut self, buffer: Buffer) -> u64 {
        lend(&mut self.buffers, buffer)
    }

    /// Lends zeros.
    pub(crate) fn lend_zeros(&mut self, length: usize) -> u64 {
        let spare = self.spare.pop_if(|_| length <= SPARE_BYTES);
        let again = spare.and_then(|spare| spare.again(length));
        self.lend(again.unwrap_or_else(|| Buffer::zeroed(length)))
    }

    /// Lends a copy of bytes.
    pub(crate) fn lend_copy(&mut self, bytes: &[u8]) -> u64 {
        let address = self.lend_zeros(bytes.len());
        if let Some(buffer) = self.buffers.last_mut() {
            buffer.bytes_mut().copy_from_slice(bytes);
        }
        address
    }

    /// The bytes behind a pointer that the call has written.
    pub(crate) fn received(&self, place: &Place) -> Received {
        Received::of(place.address, place.length)
    }

    /// Writes what the driver would have written behind a parameter.
    pub(crate) fn answer(&mut self, position: usize, value: u64) {
        if let Some(address) = self.place(position).map(|place| place.address) {
            self.overwrite(address, &value.to_le_bytes());
        }
    }

    /// Writes bytes into the memory lent at an address.
    pub(crate) fn overwrite(&mut self, address: u64, bytes: &[u8]) {
        for buffer in &mut self.buffers {
            if buffer.address() == address {
                copy_common(buffer.bytes_mut(), bytes);
            }
        }
    }

    pub(crate) fn place(&self, position: usize) -> Option<&Place> {
        self.places.iter().find(|place| place.position == position)
    }

    /// Removes a place, so that what is behind it is not compared.
    pub(crate) fn remove_place(&mut self, position: usize) -> Option<Place> {
        let mut places = self.places.iter();
        let at = places.position(|place| place.position == position)?;
        Some(self.places.remove(at))
    }

    /// The number that the call has written behind a parameter.
    pub(crate) fn word_at(&self, position: usize) -> Option<u64> {
        self.place(position)
            .map(|place| number(&self.received(place)))
    }
}

/// How many bytes a handle of a kind has behind a pointer.
pub(crate) fn handle_size(kind: Kind) -> usize {
    if kind == Kind::Device { 4 } else { 8 }
}
