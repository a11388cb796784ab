//! Adding to a trace from outside, while its process is recording.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Deref;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use memmap2::{MmapMut, MmapOptions};
use rustix::time::{ClockId, clock_gettime};

use crate::codec;
use crate::control::{self, CONTROL_LENGTH, CONTROL_POSITION, Control};
use crate::layout::{
    CHUNK_ALIGNMENT, CHUNK_CLOSED, CHUNK_HEAD_LENGTH, ChunkHead, MarkerNote, RECORD_HEAD_LENGTH,
    RecordHead, chunk_kind, marker_action, marker_source, note_kind, record_kind,
};
use crate::read::trace::Trace;

/// The most bytes of a text, so that its chunk is as short as a chunk can be.
pub const LONGEST_MARK: usize =
    CHUNK_ALIGNMENT as usize - CHUNK_HEAD_LENGTH - RECORD_HEAD_LENGTH - MarkerNote::LENGTH - 8;

/// The control chunk of a trace that a process on this machine is recording, for reading and
/// writing.
#[derive(Debug)]
pub struct LiveControl {
    map: MmapMut,
    file: File,
}

impl LiveControl {
    /// Maps it.
    ///
    /// # Errors
    /// If the trace is not one that can grow, or the file cannot be written.
    pub fn open(trace: &Trace) -> io::Result<Self> {
        let control = trace.source.head_at(CONTROL_POSITION as usize);
        let has_control = control.is_some_and(|head| head.kind == chunk_kind::CONTROL);
        if trace.source.is_packed() || !has_control {
            let why = "no process is recording to it: it is packed, or of an early version";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(trace.path())?;
        let mut options = MmapOptions::new();
        options.offset(CONTROL_POSITION).len(CONTROL_LENGTH);
        // SAFETY: the recorder never shortens its file, and the head shows that the chunk is there.
        let map = unsafe { options.map_mut(&file) }?;
        Ok(Self { map, file })
    }

    /// As [`Control::set_bounds`]: what must be recorded waits for that long at most.
    pub fn bound(&self, pause: u64, wait: u64, time: Duration) {
        let now = clock_gettime(ClockId::Monotonic);
        let now = Duration::new(now.tv_sec as u64, now.tv_nsec as u32);
        self.set_bounds(pause, wait, now.saturating_add(time).as_nanos() as u64);
    }

    /// The file of the trace.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}

impl Deref for LiveControl {
    type Target = Control;

    fn deref(&self) -> &Control {
        // SAFETY: the map is as long and begins with a page; all that changes in it are atomics,
        // also for the recorder.
        unsafe { &*self.map.as_ptr().cast() }
    }
}

/// Adds a mark of that moment, in ticks of the trace's clock, to a trace that a process on this
/// machine is recording. A longer text than [`LONGEST_MARK`] is cut.
///
/// # Errors
/// As of [`LiveControl::open`].
pub fn append_mark(trace: &Trace, ticks: u64, text: &str) -> io::Result<()> {
    let control = LiveControl::open(trace)?;
    let claimed = control::claim(&control.end, CHUNK_ALIGNMENT, CHUNK_ALIGNMENT);
    let (position, _) = claimed.ok_or(io::ErrorKind::FileTooLarge)?;
    let body = record(ticks, text);
    let head = ChunkHead {
        flags: CHUNK_CLOSED,
        length: CHUNK_ALIGNMENT,
        used: body.len() as u64,
        ticks,
        body_checksum: crc32fast::hash(&body),
        ..ChunkHead::new(chunk_kind::MARKERS)
    };
    let mut padded = body;
    padded.resize(CHUNK_ALIGNMENT as usize - CHUNK_HEAD_LENGTH, 0);
    // The head last: until then a reader sees a claimed place. Writing extends the file if that is
    // necessary, and never shortens it.
    let file = &control.file;
    file.write_all_at(&padded, position + CHUNK_HEAD_LENGTH as u64)?;
    file.write_all_at(&head.encode(), position)
}

fn record(ticks: u64, text: &str) -> Vec<u8> {
    let mut length = text.len().min(LONGEST_MARK);
    while !text.is_char_boundary(length) {
        length -= 1;
    }
    let text = text.as_bytes().get(..length).unwrap_or(&[]);
    let note = MarkerNote {
        ticks,
        thread: MarkerNote::NO_THREAD,
        action: marker_action::MARK,
        source: marker_source::OUTSIDE,
        text_length: text.len() as u32,
        ..MarkerNote::default()
    };
    let bytes = RECORD_HEAD_LENGTH + MarkerNote::LENGTH + text.len();
    let head = RecordHead {
        length: bytes.next_multiple_of(8) as u32,
        kind: record_kind::NOTE,
        detail: 0,
        function: note_kind::MARKER,
    };
    let mut record = head.word().to_le_bytes().to_vec();
    record.extend(codec::encode_to_vec(note));
    record.extend_from_slice(text);
    record.resize(bytes.next_multiple_of(8), 0);
    record
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::CONTROL_END;
    use crate::read::marker::MarkerSource;

    #[test]
    #[cfg_attr(miri, ignore = "Miri maps no files")]
    fn marks_are_added_behind_what_is_claimed() {
        let path = std::env::temp_dir().join(format!("append-{}.cutape", std::process::id()));
        let table = "cutape-signatures\t1\nfunction\t0\ta\ta\tS\tCUresult\tplain\n";
        let mut bytes = crate::TraceBuilder::new(table).control(None).bytes();
        let claimed = bytes.len() as u64 + 8192;
        let end = CONTROL_POSITION as usize + CONTROL_END;
        bytes[end..end + 8].copy_from_slice(&claimed.to_le_bytes());
        std::fs::write(&path, &bytes).unwrap();
        let trace = Trace::follow(&path).unwrap();
        let long = "é".repeat(5000);
        for (ticks, text) in [(7, "second"), (5, "first"), (9, &*long)] {
            append_mark(&trace, ticks, text).unwrap();
        }
        let trace = Trace::open(&path).unwrap();
        let marks = trace.markers();
        let found: Vec<_> = marks.iter().map(|mark| (mark.ticks, &*mark.text)).collect();
        assert_eq!(found[..2], [(5, "first"), (7, "second")]);
        assert!(found[2].1.len() > 3000 && long.starts_with(found[2].1));
        let outside = |mark: &crate::Marker| {
            (mark.source, mark.thread, mark.number) == (MarkerSource::Outside, None, 0)
        };
        assert!(marks.iter().all(outside));
        assert_eq!(std::fs::metadata(&path).unwrap().len(), claimed + 3 * 4096);
        let packed = path.with_extension("packed");
        crate::pack(&trace, &packed, &[], &[]).unwrap();
        let trace = Trace::open(&packed).unwrap();
        assert_eq!(trace.markers(), marks);
        assert!(append_mark(&trace, 1, "late").is_err());
        std::fs::remove_file(&path).unwrap();
        std::fs::remove_file(&packed).unwrap();
    }
}
