//! The trace event format of Chrome (JSON), which many viewers read.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use super::writer::{Annotation, Slice, TimelineWriter, Track};
use crate::rows::TraceRow;

/// Tracks that are no threads have numbers from here on, which no thread of Linux has.
const FIRST_OTHER: u64 = 1 << 40;

/// Where the number of the domain begins in the number of a track of ranges.
const DOMAIN: u32 = 22;

/// Writes a JSON object with the list of events.
#[derive(Debug)]
pub struct ChromeTrace<W> {
    out: W,
    is_first: bool,
    /// Times are relative to the first trace: a double holds no nanoseconds since 1970.
    epoch: Option<u64>,
    pid: u32,
    process: u64,
    threads: Vec<u32>,
}

impl<W: Write> ChromeTrace<W> {
    /// Begins the object.
    ///
    /// # Errors
    /// If writing fails.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        Ok(Self {
            out,
            is_first: true,
            epoch: None,
            pid: 0,
            process: 0,
            threads: Vec::new(),
        })
    }

    /// Completes the object.
    ///
    /// # Errors
    /// If writing fails.
    pub fn finish(mut self) -> io::Result<()> {
        self.out.write_all(b"\n]}\n")?;
        self.out.flush()
    }

    fn event(&mut self, event: &Value) -> io::Result<()> {
        let before: &[u8] = if self.is_first { b"\n" } else { b",\n" };
        self.is_first = false;
        self.out.write_all(before)?;
        serde_json::to_writer(&mut self.out, event)?;
        Ok(())
    }

    fn thread(&self, track: Track) -> u64 {
        let thread = |thread: Option<u32>| thread.map_or(0, |thread| u64::from(thread) + 1);
        let (kind, number) = match track {
            Track::Thread(thread) => {
                let number = self.threads.get(thread as usize).copied().unwrap_or(0);
                if number != 0 {
                    return number.into();
                }
                (0, thread.into())
            }
            Track::Ranges(of, domain) => (1, thread(of) | u64::from(domain) << DOMAIN),
            Track::Range(number) => (2, number.into()),
            Track::Marks(of) => (3, thread(of)),
            Track::Stream(stream) => (4, stream.into()),
            Track::Memory(kind) => (5, kind as u64),
            Track::Findings => (6, 0),
            Track::Replay(number) => (7, number.into()),
        };
        FIRST_OTHER + (kind << 32) + number
    }

    /// Microseconds from the start of the first trace.
    fn time(&self, ns: u64) -> Value {
        let since = i128::from(ns) - i128::from(self.epoch.unwrap_or(0));
        json!(since as f64 / 1000.0)
    }

    fn flow(&mut self, phase: &str, id: u64, track: Track, ns: u64) -> io::Result<()> {
        let mut event = json!({
            "ph": phase, "id": format!("{}.{id}", self.process), "name": "enqueues", "cat": "flow",
            "pid": self.pid, "tid": self.thread(track), "ts": self.time(ns),
        });
        if phase == "f"
            && let Some(event) = event.as_object_mut()
        {
            event.insert("bp".into(), "e".into());
        }
        self.event(&event)
    }
}

fn arguments(slice: &Slice<'_>) -> Value {
    let arguments = slice.annotations.iter().map(|(name, value)| {
        let value = match *value {
            Annotation::Number(number) => json!(number),
            Annotation::Text(text) => json!(text),
            Annotation::Flag(flag) => json!(flag),
        };
        ((*name).to_owned(), value)
    });
    Value::Object(arguments.collect::<Map<_, _>>())
}

impl<W: Write> TimelineWriter for ChromeTrace<W> {
    fn begin(&mut self, trace: &TraceRow) -> io::Result<()> {
        self.epoch.get_or_insert(trace.started_unix_ns);
        self.process += 1;
        self.pid = trace.process;
        self.threads = trace.threads.iter().map(|thread| thread.number).collect();
        let program = trace.program.as_deref().unwrap_or("unknown program");
        let name = match trace.any_rank() {
            Some(rank) => format!("rank {rank}: {program}"),
            None => program.to_owned(),
        };
        let pid = self.pid;
        self.event(&json!({
            "ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name},
        }))
    }

    fn track(&mut self, track: Track, name: &str) -> io::Result<()> {
        // A counter is shown by its name.
        if let Track::Memory(_) = track {
            return Ok(());
        }
        let (pid, tid) = (self.pid, self.thread(track));
        self.event(&json!({
            "ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name},
        }))
    }

    fn slice(&mut self, track: Track, slice: &Slice<'_>) -> io::Result<()> {
        let (pid, tid) = (self.pid, self.thread(track));
        let (ts, args) = (self.time(slice.begin), arguments(slice));
        let (name, category) = (slice.name, slice.category);
        let event = match slice.end {
            Some(end) => json!({
                "ph": "X", "name": name, "cat": category, "pid": pid, "tid": tid, "ts": ts,
                "dur": end.saturating_sub(slice.begin) as f64 / 1000.0, "args": args,
            }),
            None => json!({
                "ph": "i", "s": "t", "name": name, "cat": category, "pid": pid, "tid": tid,
                "ts": ts, "args": args,
            }),
        };
        self.event(&event)?;
        let (from, to) = slice.flows;
        for id in from {
            self.flow("s", *id, track, slice.begin)?;
        }
        for id in to {
            self.flow("f", *id, track, slice.begin)?;
        }
        Ok(())
    }

    fn counter(&mut self, track: Track, ns: u64, value: u64) -> io::Result<()> {
        let Track::Memory(kind) = track else {
            return Ok(());
        };
        let (pid, ts, name) = (self.pid, self.time(ns), kind.name());
        self.event(&json!({
            "ph": "C", "name": format!("{name} memory"), "pid": pid, "ts": ts,
            "args": {"bytes": value},
        }))
    }
}
