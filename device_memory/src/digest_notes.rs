//! The notes of digests.

use cutape_format::layout::{DigestNote, note_kind};

use crate::recorder::Recorder;

/// Most ranges in a note, and values.
pub(crate) const MOST_IN_NOTE: usize = 4096;

/// Says which memory digests are of: addresses and lengths, not more than a note has.
pub(crate) fn write_ranges(recorder: &dyn Recorder, note: DigestNote, ranges: &[(u64, u64)]) {
    recorder.note(note_kind::DIGEST, &mut |record| {
        record.put_encoded(note)?;
        for &(address, length) in ranges {
            record.put_number(address, 8)?;
            record.put_number(length, 8)?;
        }
        Some(())
    });
}

/// Writes digests: their numbers and values.
pub(crate) fn write_values(recorder: &dyn Recorder, values: &[(u64, u64)]) {
    for values in values.chunks(MOST_IN_NOTE) {
        recorder.note(note_kind::DIGEST_VALUES, &mut |record| {
            for &(number, value) in values {
                record.put_number(number, 8)?;
                record.put_number(value, 8)?;
            }
            Some(())
        });
    }
}
