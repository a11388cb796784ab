//! Hashes of what calls say; for comparison within one process.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::part::{Label, Part};

/// A hash of anything.
pub(crate) fn hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The half of a hash that tables keep; never 0.
pub(crate) fn half(hash: u64) -> u32 {
    ((hash ^ hash >> 32) as u32).max(1)
}

/// Adds a part. An object counts as some object; which one, the references tell.
pub(crate) fn add(hasher: &mut DefaultHasher, label: &Label, part: &Part<'_>) {
    (label.name, label.element, label.member, label.byte).hash(hasher);
    match part {
        Part::Number(number, _) => (1_u8, number).hash(hasher),
        Part::Bytes(bytes) => (2_u8, bytes).hash(hasher),
        Part::Text(text) => (3_u8, text).hash(hasher),
        Part::Payload(payload) => (4_u8, payload.length, payload.hash).hash(hasher),
        Part::Code(code, _) => (5_u8, code).hash(hasher),
        Part::Place {
            offset, is_alive, ..
        } => (6_u8, offset, is_alive).hash(hasher),
        Part::Unknown => 7_u8.hash(hasher),
        Part::Null => 8_u8.hash(hasher),
    }
}
