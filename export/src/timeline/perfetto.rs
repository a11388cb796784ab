//! Perfetto's trace format (protobuf), in files of less than 4 GiB.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use prost::Message;
use rustc_hash::FxHashMap;

use super::schema::{
    CounterDescriptor, DebugAnnotation, INCREMENTAL_STATE_CLEARED, InternedData, InternedText,
    NEEDS_INCREMENTAL_STATE, ProcessDescriptor, ThreadDescriptor, Trace, TracePacket,
    TrackDescriptor, TrackEvent, UNIT_SIZE_BYTES, event_type,
};
use super::writer::{Annotation, Slice, TimelineWriter, Track};
use crate::rows::TraceRow;

/// The most bytes of a file: below 4 GiB, which is what viewers load.
pub const LARGEST_FILE: u64 = (4 << 30) - (16 << 20);
/// How many texts are interned before they are forgotten, which bounds the memory of both sides.
const MOST_TEXTS: usize = 1 << 16;
/// Packets are encoded together up to this length.
const BATCH: usize = 1 << 10;
/// Longer texts are not interned: they rarely come again.
const LONGEST_INTERNED: usize = 256;
/// Where the number of the domain begins in the number of a track of ranges.
const DOMAIN: u32 = 22;
/// How far the uuids of the tracks of two processes are apart.
const PROCESS: u64 = 1 << 40;

/// Writes Perfetto traces. Every file has all that its events refer to, so it opens alone.
#[derive(Debug)]
pub struct Perfetto {
    first: PathBuf,
    largest: u64,
    out: BufWriter<File>,
    written: u64,
    files: Vec<PathBuf>,
    packets: Trace,
    /// The descriptors of the tracks of the process, which a new file repeats.
    descriptors: Vec<TrackDescriptor>,
    texts: [FxHashMap<String, u64>; 4],
    needs_clear: bool,
    process: u64,
    pid: i32,
    threads: Vec<i32>,
}

/// The tables of interned texts.
#[derive(Clone, Copy)]
enum Table {
    Category,
    Name,
    AnnotationName,
    AnnotationValue,
}

impl Perfetto {
    /// Writes to that file, and beside it to `NAME.2`, `NAME.3`, ... when it has `largest` bytes.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn create(path: &Path, largest: u64) -> io::Result<Self> {
        Ok(Self {
            first: path.to_owned(),
            largest,
            out: BufWriter::new(File::create_new(path)?),
            written: 0,
            files: vec![path.to_owned()],
            packets: Trace::default(),
            descriptors: Vec::new(),
            texts: Default::default(),
            needs_clear: true,
            process: 0,
            pid: 0,
            threads: Vec::new(),
        })
    }

    /// Completes the last file; returns all of them.
    ///
    /// # Errors
    /// If writing fails.
    pub fn finish(mut self) -> io::Result<Vec<PathBuf>> {
        self.write_packets()?;
        self.out.flush()?;
        Ok(self.files)
    }

    fn write_packets(&mut self) -> io::Result<()> {
        let bytes = self.packets.encode_to_vec();
        self.packets.packet.clear();
        self.written += bytes.len() as u64;
        self.out.write_all(&bytes)
    }

    /// Adds a packet; begins a new file first if this one is full.
    fn packet(&mut self, packet: TracePacket) -> io::Result<()> {
        self.packets.packet.push(packet);
        if self.packets.packet.len() >= BATCH {
            self.write_packets()?;
        }
        Ok(())
    }

    /// Called before the packets of an event, so that they are in one file.
    fn make_room(&mut self) -> io::Result<()> {
        if self.texts.iter().any(|texts| texts.len() > MOST_TEXTS) {
            self.forget_texts();
        }
        if self.written < self.largest {
            return Ok(());
        }
        self.write_packets()?;
        self.out.flush()?;
        let name = self.first.file_name().unwrap_or_default();
        let mut name = name.to_owned();
        name.push(format!(".{}", self.files.len() + 1));
        let path = self.first.with_file_name(name);
        self.out = BufWriter::new(File::create_new(&path)?);
        self.files.push(path);
        self.written = 0;
        self.forget_texts();
        for descriptor in self.descriptors.clone() {
            self.descriptor(descriptor)?;
        }
        Ok(())
    }

    fn forget_texts(&mut self) {
        self.texts.iter_mut().for_each(FxHashMap::clear);
        self.needs_clear = true;
    }

    fn descriptor(&mut self, descriptor: TrackDescriptor) -> io::Result<()> {
        self.packet(TracePacket {
            trusted_packet_sequence_id: Some(1),
            track_descriptor: Some(descriptor),
            ..TracePacket::default()
        })
    }

    fn new_descriptor(&mut self, descriptor: TrackDescriptor) -> io::Result<()> {
        self.descriptors.push(descriptor.clone());
        self.descriptor(descriptor)
    }

    /// Every process and every track of it has another number.
    fn uuid(&self, track: Track) -> u64 {
        let (kind, number) = match track {
            Track::Thread(thread) => (1, thread),
            Track::Ranges(thread, domain) => {
                let thread = thread.map_or(0, |thread| thread.saturating_add(1));
                (2, thread | domain << DOMAIN)
            }
            Track::Range(number) => (3, number),
            Track::Marks(thread) => (4, thread.map_or(0, |thread| thread.saturating_add(1))),
            Track::Stream(stream) => (5, stream),
            Track::Memory(kind) => (6, kind as u32),
            Track::Findings => (7, 0),
            Track::Replay(number) => (8, number),
        };
        self.process * PROCESS + (kind << 32) + u64::from(number)
    }

    fn intern(&mut self, table: Table, text: &str, new: &mut InternedData) -> u64 {
        let Some(texts) = self.texts.get_mut(table as usize) else {
            return 0;
        };
        if let Some(&iid) = texts.get(text) {
            return iid;
        }
        let iid = texts.len() as u64 + 1;
        texts.insert(text.to_owned(), iid);
        let entry = InternedText {
            iid: Some(iid),
            text: Some(text.to_owned()),
        };
        match table {
            Table::Category => new.event_categories.push(entry),
            Table::Name => new.event_names.push(entry),
            Table::AnnotationName => new.debug_annotation_names.push(entry),
            Table::AnnotationValue => new.debug_annotation_string_values.push(entry),
        }
        iid
    }

    fn annotation(
        &mut self,
        (name, value): (&str, Annotation<'_>),
        new: &mut InternedData,
    ) -> DebugAnnotation {
        let mut annotation = DebugAnnotation {
            name_iid: Some(self.intern(Table::AnnotationName, name, new)),
            ..DebugAnnotation::default()
        };
        match value {
            Annotation::Number(number) => annotation.uint_value = Some(number),
            Annotation::Flag(flag) => annotation.bool_value = Some(flag),
            Annotation::Text(text) if text.len() > LONGEST_INTERNED => {
                annotation.string_value = Some(text.to_owned());
            }
            Annotation::Text(text) => {
                let iid = self.intern(Table::AnnotationValue, text, new);
                annotation.string_value_iid = Some(iid);
            }
        }
        annotation
    }

    fn event(&mut self, ns: u64, event: TrackEvent, new: InternedData) -> io::Result<()> {
        let cleared = match std::mem::take(&mut self.needs_clear) {
            true => INCREMENTAL_STATE_CLEARED,
            false => 0,
        };
        self.packet(TracePacket {
            timestamp: Some(ns),
            trusted_packet_sequence_id: Some(1),
            sequence_flags: Some(NEEDS_INCREMENTAL_STATE | cleared),
            track_event: Some(event),
            interned_data: Some(new).filter(|new| *new != InternedData::default()),
            ..TracePacket::default()
        })
    }
}

impl TimelineWriter for Perfetto {
    fn begin(&mut self, trace: &TraceRow) -> io::Result<()> {
        self.process += 1;
        self.descriptors.clear();
        self.pid = trace.process.cast_signed();
        let ids = trace
            .threads
            .iter()
            .map(|thread| thread.number.cast_signed());
        self.threads = ids.collect();
        let program = trace.program.as_deref().unwrap_or("unknown program");
        let name = match trace.any_rank() {
            Some(rank) => format!("rank {rank}: {program}"),
            None => program.to_owned(),
        };
        self.new_descriptor(TrackDescriptor {
            uuid: Some(self.process * PROCESS),
            process: Some(ProcessDescriptor {
                pid: Some(self.pid),
                cmdline: trace.arguments.clone(),
                process_name: Some(name),
            }),
            ..TrackDescriptor::default()
        })
    }

    fn track(&mut self, track: Track, name: &str) -> io::Result<()> {
        self.make_room()?;
        let mut descriptor = TrackDescriptor {
            uuid: Some(self.uuid(track)),
            parent_uuid: Some(self.process * PROCESS),
            ..TrackDescriptor::default()
        };
        match track {
            Track::Thread(thread) => {
                // Without the system's number the ordinal tells threads apart.
                let tid = self.threads.get(thread as usize).copied();
                let tid = tid.filter(|tid| *tid > 0);
                descriptor.thread = Some(ThreadDescriptor {
                    pid: Some(self.pid),
                    tid: Some(tid.unwrap_or(i32::MAX - thread.cast_signed())),
                    thread_name: Some(name.to_owned()),
                });
            }
            Track::Memory(_) => {
                descriptor.name = Some(name.to_owned());
                descriptor.counter = Some(CounterDescriptor {
                    unit: Some(UNIT_SIZE_BYTES),
                });
            }
            _ => descriptor.name = Some(name.to_owned()),
        }
        self.new_descriptor(descriptor)
    }

    fn slice(&mut self, track: Track, slice: &Slice<'_>) -> io::Result<()> {
        self.make_room()?;
        let mut new = InternedData::default();
        let annotations = slice.annotations.iter();
        let annotations: Vec<_> = annotations
            .map(|annotation| self.annotation(*annotation, &mut new))
            .collect();
        let kind = match slice.end {
            Some(_) => event_type::SLICE_BEGIN,
            None => event_type::INSTANT,
        };
        // Numbers of flows are unique in a process.
        let flow = |id: &u64| self.process * PROCESS + id;
        let (from, to) = slice.flows;
        let event = TrackEvent {
            r#type: Some(kind),
            track_uuid: Some(self.uuid(track)),
            flow_ids: from.iter().map(flow).collect(),
            terminating_flow_ids: to.iter().map(flow).collect(),
            name_iid: Some(self.intern(Table::Name, slice.name, &mut new)),
            category_iids: vec![self.intern(Table::Category, slice.category, &mut new)],
            debug_annotations: annotations,
            counter_value: None,
        };
        self.event(slice.begin, event, new)?;
        let Some(end) = slice.end else { return Ok(()) };
        let event = TrackEvent {
            r#type: Some(event_type::SLICE_END),
            track_uuid: Some(self.uuid(track)),
            ..TrackEvent::default()
        };
        self.event(end, event, InternedData::default())
    }

    fn counter(&mut self, track: Track, ns: u64, value: u64) -> io::Result<()> {
        self.make_room()?;
        let event = TrackEvent {
            r#type: Some(event_type::COUNTER),
            track_uuid: Some(self.uuid(track)),
            counter_value: Some(i64::try_from(value).unwrap_or(i64::MAX)),
            ..TrackEvent::default()
        };
        self.event(ns, event, InternedData::default())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::fs;

    use super::*;

    fn row() -> TraceRow {
        TraceRow {
            trace: "t.cutape".into(),
            process: 7,
            parent: None,
            rank: Some(1),
            local_rank: None,
            program: Some("/bin/app".into()),
            arguments: vec!["app".into()],
            started_unix_ns: 0,
            recorder_version: None,
            driver_version: None,
            driver_kind: None,
            devices: Vec::new(),
            exit_status: None,
            exit_signal: None,
            still_recording: false,
            ended_early: None,
            threads: Vec::new(),
        }
    }

    /// A file that is full is followed by one that opens alone: with the tracks and the texts that
    /// its events refer to.
    #[test]
    fn full_files() {
        let folder = std::env::temp_dir().join(format!("cutape-perfetto-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let mut writer = Perfetto::create(&folder.join("out"), 30_000).unwrap();
        writer.begin(&row()).unwrap();
        writer.track(Track::Thread(0), "main").unwrap();
        writer.track(Track::Stream(4), "stream#1").unwrap();
        let slices = 5000;
        for number in 0..slices {
            let text = format!("argument {}", number % 7);
            let slice = Slice {
                name: ["cuInit", "cuLaunchKernel"][number as usize % 2],
                category: "call",
                begin: 10 * number,
                end: (number % 3 != 0).then_some(10 * number + 5),
                annotations: &[
                    ("call", Annotation::Number(number)),
                    ("x", Annotation::Text(&text)),
                ],
                flows: (&[number], &[]),
            };
            writer
                .slice(
                    [Track::Thread(0), Track::Stream(4)][number as usize % 2],
                    &slice,
                )
                .unwrap();
        }
        let files = writer.finish().unwrap();
        assert!(files.len() > 3, "{files:?}");
        let mut found = 0;
        for (place, file) in files.iter().enumerate() {
            let name = file.file_name().unwrap().to_str().unwrap();
            let expected = format!("out.{}", place + 1);
            assert_eq!(name, if place == 0 { "out" } else { &expected });
            let bytes = fs::read(file).unwrap();
            assert!(bytes.len() < 200_000, "{}", bytes.len());
            let packets = Trace::decode(&*bytes).unwrap().packet;
            let mut tracks = HashSet::new();
            let mut texts: [HashSet<u64>; 4] = Default::default();
            let mut is_cleared = false;
            for packet in packets {
                if let Some(descriptor) = packet.track_descriptor {
                    tracks.insert(descriptor.uuid);
                }
                let cleared = packet.sequence_flags.unwrap_or(0) & INCREMENTAL_STATE_CLEARED != 0;
                is_cleared |= cleared;
                let new = packet.interned_data.unwrap_or_default();
                let tables = [
                    new.event_categories,
                    new.event_names,
                    new.debug_annotation_names,
                    new.debug_annotation_string_values,
                ];
                for (known, new) in texts.iter_mut().zip(tables) {
                    known.extend(new.iter().filter_map(|text| text.iid));
                }
                let Some(event) = packet.track_event else {
                    continue;
                };
                assert!(is_cleared && tracks.contains(&event.track_uuid));
                assert!(event.category_iids.iter().all(|iid| texts[0].contains(iid)));
                assert!(event.name_iid.is_none_or(|iid| texts[1].contains(&iid)));
                for annotation in &event.debug_annotations {
                    assert!(
                        annotation
                            .name_iid
                            .is_some_and(|iid| texts[2].contains(&iid))
                    );
                    let text = annotation.string_value_iid;
                    assert!(text.is_none_or(|iid| texts[3].contains(&iid)));
                }
                found += u64::from(event.r#type != Some(event_type::SLICE_END));
            }
        }
        assert_eq!(found, slices);
        fs::remove_dir_all(&folder).unwrap();
    }
}
