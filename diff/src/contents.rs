//! Lengths and hashes of the bytes that calls copied, and of the code of images.

use std::borrow::Cow;

use cutape_format::{Bytes, Snapshot, Trace};
use rustc_hash::FxHashMap;

use crate::hash::hash;
use crate::part::Payload;

/// More bytes of a payload are not kept for a description.
const KEPT_BYTES: usize = 1 << 16;
/// In longer payloads, addresses are bytes like others.
const MOST_WITH_ADDRESSES: u64 = 1 << 20;

/// The bytes of a trace; each blob is read once.
pub(crate) struct Contents<'t> {
    trace: &'t Trace,
    /// The start of the hash of each blob.
    hashes: FxHashMap<u64, [u8; 16]>,
    /// Whether a word of a blob can be an address.
    may_have_addresses: FxHashMap<u64, bool>,
    /// The hash of the code of each blob.
    codes: FxHashMap<u64, u64>,
    /// Only lengths count: one of the traces does not have the bytes.
    lengths_only: bool,
}

impl<'t> Contents<'t> {
    pub(crate) fn new(trace: &'t Trace, lengths_only: bool) -> Self {
        Self {
            trace,
            hashes: FxHashMap::default(),
            may_have_addresses: FxHashMap::default(),
            codes: FxHashMap::default(),
            lengths_only,
        }
    }

    /// Bytes that a call copied.
    pub(crate) fn payload(&mut self, from: &Snapshot<'_>, with_bytes: bool) -> Payload<'static> {
        let length = from.bytes.length().unwrap_or(0);
        if self.lengths_only {
            return Payload {
                length,
                hash: None,
                bytes: None,
            };
        }
        let key = match from.bytes {
            Bytes::Blob(blob) => Some(blob.position),
            _ => None,
        };
        let known = key.and_then(|key| self.hashes.get(&key)).copied();
        let hash = match (from.bytes, known) {
            (Bytes::Hashed(_, hash), _) => Some(hash),
            (_, Some(known)) => Some(known),
            _ => {
                let bytes = self.trace.resolve(from.bytes).ok();
                bytes.map(|bytes| start_of_hash(&bytes))
            }
        };
        if let (Some(key), Some(hash)) = (key, hash) {
            self.hashes.insert(key, hash);
        }
        let kept = || {
            let bytes = self.trace.resolve(from.bytes).ok()?;
            let kept = bytes.get(..KEPT_BYTES).unwrap_or(&bytes);
            Some(Cow::Owned(kept.to_vec()))
        };
        Payload {
            length,
            hash,
            bytes: if with_bytes { kept() } else { None },
        }
    }

    /// The bytes that a call copied, if one of their words can be an address.
    pub(crate) fn with_addresses(&mut self, from: &Snapshot<'_>) -> Option<Vec<u8>> {
        let key = match from.bytes {
            Bytes::Blob(blob) => Some(blob.position),
            _ => None,
        };
        let length = from.bytes.length().unwrap_or(0);
        let known = key.and_then(|key| self.may_have_addresses.get(&key));
        if self.lengths_only || length > MOST_WITH_ADDRESSES || known == Some(&false) {
            return None;
        }
        let bytes = self.trace.resolve(from.bytes).ok()?;
        let mut words = bytes.as_chunks::<8>().0.iter();
        let may = words.any(|word| may_be_address(u64::from_le_bytes(*word)));
        if let Some(key) = key {
            self.may_have_addresses.insert(key, may);
        }
        may.then(|| bytes.into_owned())
    }

    /// A payload of bytes in which addresses are replaced.
    pub(crate) fn replaced(bytes: &[u8], with_bytes: bool) -> Payload<'static> {
        let kept = || bytes.get(..KEPT_BYTES).unwrap_or(bytes).to_vec();
        Payload {
            length: bytes.len() as u64,
            hash: Some(start_of_hash(bytes)),
            bytes: with_bytes.then(|| Cow::Owned(kept())),
        }
    }

    /// The code of an image, as a hash, and the image.
    pub(crate) fn code(
        &mut self,
        from: &Snapshot<'_>,
        with_bytes: bool,
    ) -> (u64, Payload<'static>) {
        let key = match from.bytes {
            Bytes::Blob(blob) => Some(blob.position),
            Bytes::InFile(range) => Some(range.blob().position),
            _ => None,
        };
        let known = key.and_then(|key| self.codes.get(&key)).copied();
        let code = match (from.bytes, known) {
            (_, Some(known)) => known,
            (Bytes::Hashed(_, of_bytes), _) => hash(of_bytes),
            _ => {
                let bytes = self.trace.resolve(from.bytes);
                bytes.map_or(0, |bytes| hash(cutape_image::code(&bytes)))
            }
        };
        if let Some(key) = key {
            self.codes.insert(key, code);
        }
        let bytes = || {
            Some(Cow::Owned(
                self.trace.resolve(from.bytes).ok()?.into_owned(),
            ))
        };
        let payload = Payload {
            length: from.bytes.length().unwrap_or(0),
            hash: None,
            bytes: if with_bytes { bytes() } else { None },
        };
        (code, payload)
    }
}

/// Whether a word can be an address: of 47 bits, and not a small number.
pub(crate) fn may_be_address(word: u64) -> bool {
    word >> 47 == 0 && word >> 32 != 0
}

fn start_of_hash(bytes: &[u8]) -> [u8; 16] {
    let mut start = [0; 16];
    let hash = blake3::hash(bytes);
    for (to, from) in start.iter_mut().zip(hash.as_bytes()) {
        *to = *from;
    }
    start
}
