//! `record --stats`: what recording cost the program.

use std::path::Path;

use cutape_format::{Bytes, Note, Trace};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::{self, Format};
use crate::quantity;

/// The cost of recording one process.
struct Cost {
    calls: u64,
    threads: usize,
    /// Chunks that hold records, and the bytes of those records.
    chunks: u64,
    records: u64,
    /// Bytes and number of the images, payloads and other blobs beside the records.
    payload: u64,
    payloads: u64,
    /// Bytes left out as the user requested.
    omitted: u64,
    /// Omitted bytes whose hash is kept.
    hashed: u64,
    /// Why recording stopped before the program ended.
    stopped: Option<String>,
    /// Nanoseconds in the recorder: total, and the longest before or after one call. Unknown if the
    /// process did not exit normally.
    time: Option<(u64, u64)>,
}

/// Reports on stderr what recording one process cost.
pub(crate) fn report(path: &Path, format: Format) -> Result<(), Failure> {
    let cost = Cost::of(&Trace::open(path)?);
    match format {
        Format::Text => eprintln!("cutape: {}: {}", output::shown(path), cost.text()),
        Format::Json => eprintln!("{}", cost.json(path)),
    }
    Ok(())
}

impl Cost {
    fn of(trace: &Trace) -> Self {
        let sizes = trace.record_sizes();
        let mut cost = Self {
            calls: 0,
            threads: trace.thread_count(),
            chunks: sizes.chunks,
            records: sizes.bytes,
            payload: 0,
            payloads: 0,
            omitted: 0,
            hashed: 0,
            stopped: None,
            time: measured(trace),
        };
        for (_, length) in trace.blobs() {
            cost.payload += length;
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
                    Note::Readback(_, snapshot) | Note::HostChanged(_, snapshot) => {
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
            Bytes::Omitted(length) => self.omitted += length,
            Bytes::Hashed(length, _) => {
                self.omitted += length;
                self.hashed += length;
            }
            _ => {}
        }
    }

    fn text(&self) -> String {
        let time = match self.time {
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
            quantity::bytes(self.records),
            quantity::count(self.chunks, "chunk"),
            quantity::bytes(self.records / self.calls.max(1)),
            quantity::bytes(self.payload),
            quantity::count(self.payloads, "piece"),
        );
        text += &match self.omitted {
            0 => "; nothing left out".to_owned(),
            omitted if omitted == self.hashed => {
                format!("; {} kept only as hashes", quantity::bytes(omitted))
            }
            omitted => format!("; {} left out", quantity::bytes(omitted)),
        };
        if let Some(why) = &self.stopped {
            text += &format!("; recording stopped before the program ended: {why}");
        }
        text
    }

    fn json(&self, path: &Path) -> Value {
        json!({
            "trace": path.display().to_string(),
            "calls": self.calls,
            "threads": self.threads,
            "chunks": self.chunks,
            "record_bytes": self.records,
            "payload_bytes": self.payload,
            "payloads": self.payloads,
            "omitted_bytes": self.omitted,
            "hashed_bytes": self.hashed,
            "stopped": self.stopped,
            "recorder_ns": self.time.map(|time| time.0),
            "longest_ns": self.time.map(|time| time.1),
        })
    }
}

/// Total and longest time, if the recorder wrote them and the clock's rate is known.
fn measured(trace: &Trace) -> Option<(u64, u64)> {
    let rate = trace.ticks_per_second();
    let nanoseconds = |key: &str| {
        let ticks: u64 = trace.meta_value(key)?.parse().ok()?;
        u64::try_from(u128::from(ticks) * 1_000_000_000 / u128::from(rate)).ok()
    };
    if rate == 0 {
        return None;
    }
    Some((
        nanoseconds("cost.ticks")?,
        nanoseconds("cost.longest-ticks")?,
    ))
}
