//! Recorded bytes as numbers.

/// Numbers of eight bytes, one after the other.
pub(crate) fn words_of(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let words = bytes.as_chunks::<8>().0.iter();
    words.map(|word| u64::from_le_bytes(*word))
}
