//! Compressed bodies: the raw length as a u64, then one zstd frame.

use std::io::Read;

/// Longer bodies are stored uncompressed, so that a reader never unpacks more than this at once.
pub(crate) const RAW_LIMIT: usize = 64 << 20;

/// Length of the sample that decides whether a long body is worth compressing.
const SAMPLE: usize = 128 << 10;

/// The stored form of `raw`; `None` if it would not be smaller or `raw` is longer than the limit.
pub(crate) fn compress(raw: &[u8]) -> Option<Vec<u8>> {
    if raw.is_empty() || raw.len() > RAW_LIMIT {
        return None;
    }
    if raw.len() > 8 * SAMPLE {
        let middle = raw.len() / 2;
        let sample = raw.get(middle..middle + SAMPLE)?;
        if zstd::bulk::compress(sample, 1).ok()?.len() > SAMPLE / 10 * 9 {
            return None;
        }
    }
    let frame = zstd::bulk::compress(raw, 3).ok()?;
    if frame.len() + 8 >= raw.len() {
        return None;
    }
    let mut stored = (raw.len() as u64).to_le_bytes().to_vec();
    stored.extend_from_slice(&frame);
    Some(stored)
}

/// The raw length that a stored body claims.
pub(crate) fn raw_length(stored: &[u8]) -> Option<u64> {
    let length = stored.first_chunk::<8>()?;
    Some(u64::from_le_bytes(*length))
}

/// The raw body; `None` if `stored` does not hold exactly one of the claimed length.
pub(crate) fn decompress(stored: &[u8]) -> Option<Vec<u8>> {
    let (length, frame) = stored.split_first_chunk::<8>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    if length > RAW_LIMIT {
        return None;
    }
    let mut raw = Vec::new();
    raw.try_reserve_exact(length).ok()?;
    // Fills the vector's capacity; the function of the same name takes a slice, which is empty.
    let mut decompressor = zstd::bulk::Decompressor::new().ok()?;
    decompressor.decompress_to_buffer(frame, &mut raw).ok()?;
    (raw.len() == length).then_some(raw)
}

/// What can be decompressed of a damaged body before the damage.
pub(crate) fn decompress_start(stored: &[u8]) -> Vec<u8> {
    let mut raw = Vec::new();
    if let Some(frame) = stored.get(8..)
        && let Ok(decoder) = zstd::stream::read::Decoder::with_buffer(frame)
    {
        let mut decoder = decoder.take(RAW_LIMIT as u64);
        let mut piece = [0; 4096];
        while let Ok(count @ 1..) = decoder.read(&mut piece) {
            raw.extend_from_slice(piece.get(..count).unwrap_or(&[]));
        }
    }
    raw
}
