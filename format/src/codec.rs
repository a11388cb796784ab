//! The one place that encodes and decodes: bincode 2, little-endian, integers of fixed size.
//!
//! bincode ended with 2.0.1 (RUSTSEC-2025-0141, "unmaintained"; 3.0.0 does not compile on purpose).
//! It stays because the encoding is frozen and simple, and because it can be replaced: `wincode`
//! writes and reads the same bytes, which `tests/codec.rs` proves. Decoding has a limit, without
//! which 2.0.1 panics on a damaged length.

use bincode::config::{Configuration, Fixint, Limit, LittleEndian};
pub use bincode::{BorrowDecode, Decode, Encode};
#[cfg(feature = "read")]
pub(crate) use bincode::{de::Decoder, error::DecodeError};

/// What a single decoded value may claim to need, in bytes; larger things are blobs.
pub const LIMIT: usize = 64 << 20;

const fn configuration() -> Configuration<LittleEndian, Fixint, Limit<LIMIT>> {
    bincode::config::standard()
        .with_fixed_int_encoding()
        .with_limit::<LIMIT>()
}

/// Encodes into the start of `target`; `None` if it does not fit.
#[inline]
pub fn encode<T: Encode>(value: T, target: &mut [u8]) -> Option<usize> {
    bincode::encode_into_slice(value, target, configuration()).ok()
}

/// Encodes into a fresh buffer.
#[cfg(feature = "read")]
pub fn encode_to_vec<T: Encode>(value: T) -> Vec<u8> {
    // Encoding into memory fails only above LIMIT, which no caller of this function can reach with
    // what it was given.
    bincode::encode_to_vec(value, bincode::config::standard().with_fixed_int_encoding())
        .unwrap_or_default()
}

/// Decodes from the start of `bytes`; the value and how many bytes it took, `None` if the bytes do
/// not hold one.
#[inline]
pub fn decode<T: Decode<()>>(bytes: &[u8]) -> Option<(T, usize)> {
    bincode::decode_from_slice(bytes, configuration()).ok()
}

/// The value at the start of `bytes`, which it borrows from; `None` if they do not hold one.
pub(crate) fn decode_borrowed<'b, T: BorrowDecode<'b, ()>>(bytes: &'b [u8]) -> Option<T> {
    let (value, _) = bincode::borrow_decode_from_slice(bytes, configuration()).ok()?;
    Some(value)
}
