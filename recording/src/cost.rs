//! `record --stats`: what recording cost the program.

use std::path::Path;

use cutape_format::{Bytes, Note, Trace, TraceClock};
use cutape_render::quantity;
use serde::Serialize;

/// The cost of recording one process; JSON keys are only ever added.
#[derive(Default, Serialize)]
pub struct Cost {
    trace: String,
    calls: u64,
    threads: usize,
    /// Chunks that hold records, and the bytes of those records.
    chunks: u64,
    record_bytes: u64,
    /// Bytes and number of the images, payloads and other blobs beside the records.
    payload_bytes: u64,
    payloads: u64,
    /// Bytes left out as the user requested.
    omitted_bytes: u64,
    /// Omitted bytes whose hash is kept.
    hashed_bytes: u64,
    /// Why recording stopped before the program ended.
    stopped: Option<String>,
    /// Nanoseconds in the recorder: total, and the longest before or after one call. Unknown if the
    /// process did not exit normally.
    recorder_ns: Option<u64>,
    longest_ns: Option<u64>,
}

impl Cost {
    /// What the trace at `path` says about it.
    pub fn of(trace: &Trace, path: &Path) -> Self {
        let sizes = trace.record_sizes();
        let nanoseconds = |key: &str| {
            let ticks: u64 = trace.meta_value(key)?.parse().ok()?;
            TraceClock::of(trace).between(0, ticks)
        };
        let mut cost = Self {
            trace: path.display().to_string(),
            threads: trace.thread_count(),
            chunks: sizes.chunks,
            record_bytes: sizes.bytes,
            recorder_ns: nanoseconds("cost.ticks"),
            longest_ns: nanoseconds("cost.longest-ticks"),
            ..Self::default()
        };
        for (_, length) in trace.blobs() {
            cost.payload_bytes += length;
            cost.payloads += 1;
        }
        for call in trace.calls() {
            cost.calls += 1;
            let post_call = call.leave.iter().flat_map(|leave| leave.snapshots());
            for snapshot in call.snapshots().chain(post_call) {
                cost.add_omitted(snapshot.bytes);
            }
            for note in call.notes() {
                match note {
                    Note::Stopped(why) => cost.stopped = Some(why),
                    Note::Readback(_, snapshot)
                    | Note::HostChanged(_, snapshot)
                    | Note::HostSeen(_, snapshot)
                    | Note::ExchangeOutput(_, snapshot) => {
                        cost.add_omitted(snapshot.bytes);
                    }
                    _ => {}
                }
            }
        }
        cost
    }

    fn add_omitted(&mut self, bytes: Bytes<'_>) {
        match bytes {
            Bytes::Omitted(length) => self.omitted_bytes += length,
            Bytes::Hashed(length, _) => {
                self.omitted_bytes += length;
                self.hashed_bytes += length;
            }
            _ => {}
        }
    }

    /// In one line.
    pub fn text(&self) -> String {
        let time = match self.recorder_ns.zip(self.longest_ns) {
            Some((all, longest)) => format!(
                "{} in the recorder, {} a call, at most {} at once",
                quantity::time(all),
                quantity::time(all / self.calls.max(1)),
                quantity::time(longest)
            ),
            None => "time unknown: the process did not exit normally".to_owned(),
        };
        let mut text = format!(
            "{} in {}, {time}; {} of records in {}, {} a call; {} of images and payloads in {}",
            quantity::count(self.calls, "call"),
            quantity::count(self.threads as u64, "thread"),
            quantity::bytes(self.record_bytes),
            quantity::count(self.chunks, "chunk"),
            quantity::bytes(self.record_bytes / self.calls.max(1)),
            quantity::bytes(self.payload_bytes),
            quantity::count(self.payloads, "piece"),
        );
        text += &match self.omitted_bytes {
            0 => "; nothing left out".to_owned(),
            omitted if omitted == self.hashed_bytes => {
                format!("; {} kept only as hashes", quantity::bytes(omitted))
            }
            omitted => format!("; {} left out", quantity::bytes(omitted)),
        };
        if let Some(why) = &self.stopped {
            text += &format!("; recording stopped before the program ended: {why}");
        }
        text
    }
}
