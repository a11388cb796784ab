//! Markers, and the ranges that they begin and end.

use std::collections::HashMap;

use crate::codec;
use crate::layout::{
    MarkerNote, RECORD_HEAD_LENGTH, chunk_kind, marker_action, marker_payload, marker_source,
    note_kind,
};
use crate::read::record::{record_at, records};
use crate::read::trace::Trace;

/// A marker of the program, or about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Marker {
    /// The clock.
    pub ticks: u64,
    /// Ordinal of the thread; `None` if that thread never called the driver, or for another
    /// process.
    pub thread: Option<u32>,
    /// The operating system's number of the thread; 0 for another process.
    pub number: u32,
    /// What it does.
    pub action: MarkerAction,
    /// Where it comes from.
    pub source: MarkerSource,
    /// NVTX's domain; empty for the default one.
    pub domain: String,
    /// What it says; empty where a range ends.
    pub text: String,
    /// NVTX's category; 0 if there is none.
    pub category: u32,
    /// Alpha, red, green and blue, from the highest byte; 0 if there is none.
    pub color: u32,
    /// A number that the program has added.
    pub payload: Option<Payload>,
}

/// What a [`Marker`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MarkerAction {
    /// A moment.
    Mark,
    /// Begins a range inside the one that the thread is in, in that domain.
    Push,
    /// Ends the range that the thread pushed last and that has not ended, in that domain.
    Pop,
    /// Begins a range of this id, which any thread may end.
    Start(u64),
    /// Ends that range.
    End(u64),
}

/// Where a [`Marker`] comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MarkerSource {
    /// The program, through NVTX.
    Nvtx,
    /// The program, through functions of the recorder.
    Recorder,
    /// Another process.
    Outside,
}

/// The number of a [`Marker`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Payload {
    /// Without sign.
    Unsigned(u64),
    /// With sign.
    Signed(i64),
    /// Floating.
    Float(f64),
}

/// A range between two markers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkedRange {
    /// Its text.
    pub name: String,
    /// NVTX's domain; empty for the default one.
    pub domain: String,
    /// The thread that began it, as in [`Marker::thread`].
    pub thread: Option<u32>,
    /// The clock at its begin.
    pub begin: u64,
    /// The clock at its end; `None` if it did not end.
    pub end: Option<u64>,
    /// The pushed range around it on its thread and in its domain, by its number in the list.
    pub parent: Option<usize>,
    /// The marker that ended it, by its number in the list of markers.
    pub ended_by: Option<usize>,
}

impl MarkedRange {
    /// Whether a moment lies in it.
    pub fn contains(&self, ticks: u64) -> bool {
        self.begin <= ticks && self.end.is_none_or(|end| ticks < end)
    }
}

impl Marker {
    fn read(record: &[u8]) -> Option<Self> {
        let (note, used) = codec::decode::<MarkerNote>(record)?;
        let rest = record.get(used..)?;
        let (domain, rest) = rest.split_at_checked(note.domain_length.into())?;
        let text = rest.get(..note.text_length as usize)?;
        Some(Self {
            ticks: note.ticks,
            thread: Some(note.thread).filter(|thread| *thread != MarkerNote::NO_THREAD),
            number: note.number,
            action: match note.action {
                marker_action::MARK => MarkerAction::Mark,
                marker_action::PUSH => MarkerAction::Push,
                marker_action::POP => MarkerAction::Pop,
                marker_action::START => MarkerAction::Start(note.id),
                marker_action::END => MarkerAction::End(note.id),
                _ => return None,
            },
            source: match note.source {
                marker_source::NVTX => MarkerSource::Nvtx,
                marker_source::RECORDER => MarkerSource::Recorder,
                marker_source::OUTSIDE => MarkerSource::Outside,
                _ => return None,
            },
            domain: String::from_utf8_lossy(domain).into_owned(),
            text: String::from_utf8_lossy(text).into_owned(),
            category: note.category,
            color: note.color,
            payload: payload(note.payload_type, note.payload),
        })
    }
}

fn payload(kind: u8, bits: u64) -> Option<Payload> {
    Some(match kind {
        marker_payload::U64 => Payload::Unsigned(bits),
        marker_payload::I64 => Payload::Signed(bits as i64),
        marker_payload::F64 => Payload::Float(f64::from_bits(bits)),
        marker_payload::U32 => Payload::Unsigned(u64::from(bits as u32)),
        marker_payload::I32 => Payload::Signed(i64::from(bits as i32)),
        marker_payload::F32 => Payload::Float(f64::from(f32::from_bits(bits as u32))),
        _ => return None,
    })
}

impl Trace {
    /// Whether there are markers, or places for them.
    pub fn has_markers(&self) -> bool {
        self.chunks_of_kind(chunk_kind::MARKERS).next().is_some()
    }

    /// All markers, by time.
    pub fn markers(&self) -> Vec<Marker> {
        let mut markers = Vec::new();
        for chunk in self.chunks_of_kind(chunk_kind::MARKERS) {
            for (_, head, record) in records(self.body(chunk)) {
                if head.is_note() && head.function == note_kind::MARKER {
                    markers.extend(Marker::read(record));
                }
            }
        }
        if let Some(moment) = self.moment {
            markers.retain(|marker| marker.ticks <= moment);
        }
        markers.sort_by_key(|marker| marker.ticks);
        let unknown = |marker: &Marker| marker.thread.is_none() && marker.number != 0;
        if markers.iter().any(unknown) {
            let threads = self.threads();
            let ordinals: HashMap<u32, u32> = threads
                .iter()
                .zip(0..)
                .filter(|(thread, _)| thread.number != 0)
                .map(|(thread, ordinal)| (thread.number, ordinal))
                .collect();
            for marker in markers.iter_mut().filter(|marker| unknown(marker)) {
                marker.thread = ordinals.get(&marker.number).copied();
            }
        }
        markers
    }

    /// The records of all chunks of markers, by time; other notes first.
    pub(crate) fn marker_records(&self) -> Vec<u8> {
        let mut found = Vec::new();
        for chunk in self.chunks_of_kind(chunk_kind::MARKERS) {
            let (body, mut end) = (self.body(chunk), 0);
            while let Some((head, record)) = record_at(body, end) {
                end += record.len();
                // Space that was taken and not filled.
                if head.function == 0 {
                    continue;
                }
                let content = record.get(RECORD_HEAD_LENGTH..).unwrap_or(&[]);
                let ticks = match head.function {
                    note_kind::MARKER => content.first_chunk().map(|t| u64::from_le_bytes(*t)),
                    _ => None,
                };
                found.push((ticks, record));
            }
        }
        found.sort_by_key(|(ticks, _)| *ticks);
        let records: Vec<&[u8]> = found.into_iter().map(|(_, record)| record).collect();
        records.concat()
    }
}

/// The ranges that markers begin, in the order of their begin. An end without a begin is ignored.
pub fn marked_ranges(markers: &[Marker]) -> Vec<MarkedRange> {
    let mut ranges: Vec<MarkedRange> = Vec::new();
    let mut pushed: HashMap<(u32, MarkerSource, &str), Vec<usize>> = HashMap::new();
    let mut started: HashMap<u64, usize> = HashMap::new();
    for (number, marker) in markers.iter().enumerate() {
        let stack = || (marker.number, marker.source, marker.domain.as_str());
        let ended = match marker.action {
            MarkerAction::Mark => continue,
            MarkerAction::Push => {
                let stack = pushed.entry(stack()).or_default();
                let parent = stack.last().copied();
                stack.push(ranges.len());
                ranges.push(begun(marker, parent));
                continue;
            }
            MarkerAction::Start(id) => {
                started.insert(id, ranges.len());
                ranges.push(begun(marker, None));
                continue;
            }
            MarkerAction::Pop => pushed.get_mut(&stack()).and_then(Vec::pop),
            MarkerAction::End(id) => started.remove(&id),
        };
        if let Some(range) = ended.and_then(|at| ranges.get_mut(at)) {
            range.end = Some(marker.ticks);
            range.ended_by = Some(number);
        }
    }
    ranges
}

fn begun(marker: &Marker, parent: Option<usize>) -> MarkedRange {
    MarkedRange {
        name: marker.text.clone(),
        domain: marker.domain.clone(),
        thread: marker.thread,
        begin: marker.ticks,
        end: None,
        parent,
        ended_by: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_nest_by_thread_and_domain() {
        use MarkerAction::{End, Mark, Pop, Push, Start};
        let marker = |ticks, number, domain: &str, action, text: &str| Marker {
            ticks,
            thread: Some(number),
            number,
            action,
            source: MarkerSource::Nvtx,
            domain: domain.into(),
            text: text.into(),
            category: 0,
            color: 0,
            payload: None,
        };
        let markers = [
            marker(10, 1, "", Pop, ""),
            marker(11, 1, "", Push, "a"),
            marker(12, 1, "", Push, "b"),
            marker(13, 2, "", Push, "other thread"),
            marker(14, 1, "d", Push, "other domain"),
            marker(15, 1, "", Mark, "moment"),
            marker(16, 1, "", Start(5), "started"),
            marker(17, 1, "", Push, "c"),
            marker(18, 1, "", Pop, ""),
            marker(19, 1, "", Pop, ""),
            marker(20, 2, "", End(5), ""),
            marker(21, 2, "", End(5), ""),
            marker(22, 1, "d", Pop, ""),
            marker(23, 1, "", Pop, ""),
        ];
        let found: Vec<_> = marked_ranges(&markers)
            .into_iter()
            .map(|range| (range.name, range.begin, range.end, range.parent))
            .collect();
        let range = |name: &str, begin, end, parent| (name.to_owned(), begin, end, parent);
        assert_eq!(
            found,
            [
                range("a", 11, Some(23), None),
                range("b", 12, Some(19), Some(0)),
                range("other thread", 13, None, None),
                range("other domain", 14, Some(22), None),
                range("started", 16, Some(20), None),
                range("c", 17, Some(18), Some(1)),
            ]
        );
    }

    #[test]
    fn payloads() {
        for (kind, bits, expected) in [
            (0, 7, None),
            (1, u64::MAX, Some(Payload::Unsigned(u64::MAX))),
            (2, u64::MAX, Some(Payload::Signed(-1))),
            (3, 1.5_f64.to_bits(), Some(Payload::Float(1.5))),
            (4, u64::MAX, Some(Payload::Unsigned(u32::MAX.into()))),
            (5, 0xffff_ffff, Some(Payload::Signed(-1))),
            (6, u64::from(2.5_f32.to_bits()), Some(Payload::Float(2.5))),
            (9, 7, None),
        ] {
            assert_eq!(payload(kind, bits), expected, "{kind}");
        }
    }
}
