//! Compares returned values with the recording, and describes differences.

use cutape_format::{Note, Snapshot};
use cutape_registry::{Length, Role, is_sticky};

use crate::api::buffer::{first, text};
use crate::api::{Code, result_name};
use crate::compare::payload::Payload;
use crate::compare::readbacks::{gather, length_of_pieces, pieces_hold};
use crate::place::address::{Found, Way};
use crate::player::{Job, Player};
use crate::report::{Divergence, Verdict, What};

/// The first bytes of a piece of memory, for a message.
fn excerpt(bytes: &[u8], from: usize) -> String {
    let start = from / 16 * 16;
    let end = bytes.len().min(start + 16);
    let text: Vec<String> = bytes
        .get(start..end)
        .unwrap_or(&[])
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!(
        "{} bytes, from byte {start}: {}",
        bytes.len(),
        text.join(" ")
    )
}

/// The first bytes of a hash, enough to tell two of them apart.
fn start_of(hash: &[u8]) -> String {
    let start = hash.iter().take(8).map(|byte| format!("{byte:02x}"));
    start.chain(["…".to_owned()]).collect()
}

/// Offset of the first byte that differs, and how many do; a missing tail counts as different.
pub(crate) fn first_difference(expected: &[u8], received: &[u8]) -> Option<(usize, usize)> {
    if expected == received {
        return None;
    }
    let common = expected.len().min(received.len());
    let tail = expected.len().max(received.len()) - common;
    let differing = || {
        expected
            .iter()
            .zip(received)
            .enumerate()
            .filter(|(_, (a, b))| a != b)
    };
    let first = differing().next().map_or(common, |(at, _)| at);
    Some((first, differing().count() + tail))
}

/// The copy whose bytes a later call has recorded.
#[derive(Clone, Copy)]
pub(crate) struct Enqueued<'a> {
    /// Its call index.
    pub by: u64,
    /// The call since which the program may have changed the bytes.
    pub known_since: Option<u64>,
    /// Which of the bytes later work may have changed before they were recorded, or here: offset of
    /// the first, behind the last.
    pub unsettled: &'a [(usize, usize)],
}

/// Where a value comes from that differs.
#[derive(Clone, Copy, Default)]
struct Source<'a> {
    /// All of it, if it is bytes.
    bytes: Option<&'a [u8]>,
    /// What enqueued it.
    enqueued: Option<Enqueued<'a>>,
    /// The result code that the driver returned, if that differs.
    code: Code,
}

impl<'t> Job<'_, 't> {
    /// A snapshot that was recorded after the call.
    pub(crate) fn returned(&self, position: usize, name: u8) -> Option<Snapshot<'t>> {
        self.call.leave?.snapshot(position, name)
    }

    /// The bytes of a snapshot that was recorded before the call.
    pub(crate) fn piece(&self, position: usize, name: u8) -> Option<Vec<u8>> {
        match self.payload(&self.call.snapshot(position, name)?) {
            Payload::Here(bytes) => Some(bytes.into_owned()),
            Payload::Left(..) | Payload::Unreadable => None,
        }
    }

    /// Reports a difference unless comparison is off for this call.
    pub(crate) fn diverge(&mut self, what: What, position: Option<usize>, texts: (String, String)) {
        self.diverge_in(what, position, texts, None, Source::default());
    }

    /// As above, with the first differing byte and how many differ, and where the value comes from.
    fn diverge_in(
        &mut self,
        what: What,
        position: Option<usize>,
        (expected, received): (String, String),
        bytes: Option<(usize, usize)>,
        source: Source<'_>,
    ) {
        let enqueued = source.enqueued;
        let mut history = self.history();
        let known_since = enqueued.and_then(|enqueued| enqueued.known_since);
        if let Some(call) = known_since {
            history.insert(0, format!("since call {call}, the program may have known that the copy was complete, and changed the bytes before they were recorded"));
        }
        let follows = match what {
            What::Bytes if known_since.is_none() => {
                let copy = enqueued.map_or(self.call.index, |enqueued| enqueued.by);
                self.consequences.of_copy(copy)
            }
            What::Result => {
                let consequences = &mut self.player.consequences;
                consequences.of_error(self.call.index, source.code)
            }
            _ => None,
        };
        let divergence = Divergence {
            call: self.call.index,
            function: self.function.name.to_owned(),
            what,
            parameter: position
                .and_then(|position| self.function.params.get(position))
                .map(|param| param.name.to_owned()),
            expected,
            received,
            verdict: match (known_since, follows) {
                (Some(_), _) => Verdict::HostChanged,
                (None, Some(_)) => Verdict::Consequence,
                (None, None) => Verdict::default(),
            },
            received_hash: source.bytes.map(|bytes| blake3::hash(bytes).to_string()),
            first_differing_byte: bytes.map(|(first, _)| first as u64),
            differing_bytes: bytes.map(|(_, count)| count as u64),
            enqueued_by: enqueued.map(|enqueued| enqueued.by),
            kernel: None,
            history,
        };
        match follows {
            Some(cause) => self.player.consequences.add(cause, divergence),
            None => self.player.report.diverge(divergence),
        }
    }

    /// The objects and memory that a call names.
    fn history(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (position, param) in self.function.params.iter().enumerate() {
            let value = self.call.argument(position);
            let line = match param.role {
                _ if value == 0 => None,
                Role::Use(kind) | Role::Destroy(kind) => self
                    .handles
                    .describe(kind, value)
                    .or_else(|| self.range_text(value)),
                Role::DeviceRead(_) | Role::DeviceWrite(_) | Role::HostAddress => {
                    self.range_text(value)
                }
                _ => None,
            };
            lines.extend(line.map(|line| format!("{}: {line}", param.name)));
        }
        lines.extend(self.reissue_gaps(self.call.index));
        if self.comparer.host_memory_given {
            lines.push("launches before this call were given host memory that the program can write without a call".to_owned());
        }
        if let Some(stale) = self.report.stale.first() {
            lines.push(format!(
                "from call {} on, memory holds recorded addresses that were not replaced",
                stale.call
            ));
        }
        lines
    }

    /// Compares a result code with the recorded one; true if the call counts as it was recorded.
    pub(crate) fn compare_result(&mut self, recorded: Code, received: Code) -> bool {
        if recorded == received {
            return true;
        }
        if !self.function.returns_result {
            return true; // a number that is not a result code
        }
        if self.machine.asks_for_machine(self.call, self.function) {
            self.note_other_machine();
            return false;
        }
        // An error of a kernel surfaces at whatever call comes next; only its code is compared.
        if let Some((first, code)) = self.comparer.context_error
            && is_sticky(code)
            && ((received == code && self.call.index <= first)
                || (recorded == code && self.surfaces(code)))
        {
            self.report.note(format!(
                "{} surfaced at another call than recorded",
                result_name(code)
            ));
            return true;
        }
        if self.consequences.may_follow_gap(recorded) {
            self.report.note(format!(
                "{} was recorded, and may be of work that the recorder has left out",
                result_name(recorded)
            ));
            return true;
        }
        if self.is_compared() {
            let texts = (result_name(recorded), result_name(received));
            let source = Source {
                code: received,
                ..Source::default()
            };
            self.diverge_in(What::Result, None, texts, None, source);
        }
        false
    }

    /// Says that an answer is another one because the machine is.
    pub(crate) fn note_other_machine(&mut self) {
        self.player.report.note(format!(
            "{} answers otherwise here, where the device or the driver is another one",
            self.function.name
        ));
    }

    /// Compares pieces of memory with a snapshot of the recording.
    pub(crate) fn compare_bytes(
        &mut self,
        position: usize,
        expected: &Snapshot<'t>,
        pieces: &[(u64, usize)],
        enqueued: Option<Enqueued<'_>>,
    ) {
        if !self.is_compared() {
            return;
        }
        let length = length_of_pieces(pieces) as u64;
        if !self.comparer.bytes_comparable {
            self.report.bytes_not_compared += length;
            return;
        }
        let payload = self.payload(expected);
        if !matches!(payload, Payload::Left(_, None) | Payload::Unreadable) {
            self.report.copies_compared += 1;
        }
        let (texts, found) = match payload {
            Payload::Here(expected) => {
                // Where it lies: nearly always it is equal.
                if pieces_hold(pieces, &expected) {
                    self.report.bytes_compared += length;
                    return;
                }
                let mut received = gather(pieces);
                let mut unsettled = 0;
                for &(from, end) in enqueued.map_or(&[][..], |enqueued| enqueued.unsettled) {
                    if let (Some(here), Some(recorded)) =
                        (received.get_mut(from..end), expected.get(from..end))
                    {
                        unsettled += here.iter().zip(recorded).filter(|(a, b)| a != b).count();
                        here.copy_from_slice(recorded);
                    }
                }
                self.leave_unsettled(unsettled as u64);
                let Some(found) = first_difference(&expected, &received) else {
                    self.report.bytes_compared += length - unsettled as u64;
                    return;
                };
                if self.leave_unknown(length, enqueued) {
                    return;
                }
                let texts = (excerpt(&expected, found.0), excerpt(&received, found.0));
                (texts, Some(found))
            }
            Payload::Left(expected, Some(hash)) => {
                let here = *blake3::hash(&gather(pieces)).as_bytes();
                if expected == length && here.starts_with(&hash) {
                    self.report.bytes_compared += length;
                    self.report.bytes_compared_by_hash += length;
                    return;
                }
                if enqueued.is_some_and(|enqueued| !enqueued.unsettled.is_empty()) {
                    return self.leave_unsettled(length);
                }
                if self.leave_unknown(length, enqueued) {
                    return;
                }
                let text =
                    |length, hash: &[u8]| format!("{length} bytes of hash {}", start_of(hash));
                let texts = (
                    text(expected, &hash)
                        + "; the trace holds no more of them, so which byte differs is unknown",
                    text(length, &here),
                );
                (texts, None)
            }
            Payload::Left(..) | Payload::Unreadable => {
                self.report.bytes_not_compared += length;
                return;
            }
        };
        let received = gather(pieces);
        let source = Source {
            bytes: Some(&received),
            enqueued,
            ..Source::default()
        };
        self.diverge_in(What::Bytes, Some(position), texts, found, source);
    }

    /// Bytes that differ; true if that may follow from calls that the recorder has left out.
    fn leave_unknown(&mut self, bytes: u64, enqueued: Option<Enqueued<'_>>) -> bool {
        let copy = enqueued.map_or(self.call.index, |enqueued| enqueued.by);
        let follows = self.consequences.follows_gap(copy);
        if follows {
            self.report.bytes_not_compared += bytes;
            self.report.bytes_unknown += bytes;
        }
        follows
    }

    /// Bytes that differ, of which it is not known what they were when the copy was complete.
    fn leave_unsettled(&mut self, bytes: u64) {
        if bytes > 0 {
            self.report.bytes_not_compared += bytes;
            self.report.note(
                "copies back whose bytes later work may have changed before they were recorded: \
                 these bytes are not compared",
            );
        }
    }

    /// Compares the bytes that the recording says had arrived when this call returned.
    pub(crate) fn read_back(&mut self) {
        let mut waited = self.has_waited();
        for note in self.call.notes() {
            let Note::Readback(note, expected) = note else {
                continue;
            };
            let length = expected.bytes.length().unwrap_or(0);
            let of_graph = (note.thread, note.number, (note.address, length));
            let readbacks = &mut self.readbacks;
            let readback = match readbacks.of_graphs.remove(&of_graph) {
                Some(readback) => Some(readback),
                None => readbacks.take(note.thread, note.number, note.address),
            };
            let Some(mut readback) = readback else {
                self.report.bytes_not_compared += expected.bytes.length().unwrap_or(0);
                continue;
            };
            // A call that notes its own bytes has copied them to pageable memory: see
            // `wait_if_placed`.
            let is_own = (note.thread, note.number) == (self.call.thread, self.call.number);
            if is_own {
                self.wait_if_placed(note.address);
                // Other copies of a batch may still read from them.
                let buffers = readback.take_buffers();
                self.lent.in_flight.retain(buffers);
            } else if !waited {
                // The call that proved it may have been left out, or may prove less here.
                waited = true;
                if let Err(code) = self.wait_for_all_work() {
                    tracing::debug!(
                        "call {}: waiting for copies: result {code}",
                        self.call.index
                    );
                }
            }
            if !self.is_compared() || !self.comparer.bytes_comparable {
                if self.is_compared() {
                    self.report.bytes_not_compared += readback.length() as u64;
                }
                continue;
            }
            let later = self.plan.pending_writes.behind(self.call.index);
            let unsettled = readback.written_by(later);
            let enqueued = Enqueued {
                by: readback.call,
                known_since: self
                    .plan
                    .pending_writes
                    .known_since(self.call.index, (note.thread, note.number)),
                unsettled: &unsettled,
            };
            let position = usize::from(expected.parameter);
            let mut copy = Job {
                player: self.player,
                decoded: self.decoded,
                call: self.call,
                function: readback.function,
                traits: self.traits,
            };
            copy.compare_bytes(position, &expected, &readback.pieces(), Some(enqueued));
        }
    }

    /// Before the bytes of a copy to the host are compared that was complete when it returned. An
    /// asynchronous one has been recorded so if its memory was pageable. It is complete here as
    /// well, unless the replay has pinned or registered memory there; a synchronous one, unless it
    /// has granules there, which the driver does not take for memory of the host.
    pub(crate) fn wait_if_placed(&mut self, address: u64) {
        let is_open = match self.ranges.find(address) {
            Found::Live(range, _) => {
                range.is_host_memory()
                    && (self.traits.is_asynchronous || range.way == Way::PinnedGranules)
            }
            Found::Freed(_) | Found::Unknown => false,
        };
        if is_open {
            self.wait_for_own_stream();
        }
    }

    /// Compares a value that the call gave back.
    pub(crate) fn compare_out(&mut self, position: usize, received: &[u8]) {
        let Some(param) = self.function.params.get(position) else {
            return;
        };
        let (Some(expected), Role::Out(length) | Role::InOut(length)) =
            (self.call.out_bytes(position), param.role)
        else {
            return;
        };
        // Where the call says how much it has written, more was lent.
        let received = match length {
            Length::Fixed(_) => received,
            _ => first(received, expected.len()),
        };
        let is_plain = self.traits.has_plain_output(position);
        if is_plain && (!self.is_compared() || param.may_differ || expected == received) {
            return;
        }
        let expected = self.expected_here(param, length, expected, received);
        if !self.is_compared() || param.may_differ || expected == received {
            return;
        }
        if self.machine.asks_for_machine(self.call, self.function) {
            return self.note_other_machine();
        }
        let number = crate::api::buffer::number;
        let text = |bytes: &[u8]| match bytes.len() {
            1..=8 => format!("{0} ({0:#x})", number(bytes)),
            _ => excerpt(
                bytes,
                first_difference(&expected, received).map_or(0, |found| found.0),
            ),
        };
        let texts = (text(&expected), text(received));
        let found = first_difference(&expected, received);
        let source = Source {
            bytes: Some(received),
            ..Source::default()
        };
        self.diverge_in(What::OutParameter, Some(position), texts, found, source);
    }

    /// Compares a text that the call gave back.
    pub(crate) fn compare_text(&mut self, position: usize, expected: &[u8], received: &[u8]) {
        let (expected, received) = (text(expected), text(received));
        if self.is_compared() && expected != received {
            if self.machine.asks_for_machine(self.call, self.function) {
                return self.note_other_machine();
            }
            self.diverge(What::Text, Some(position), (expected, received));
        }
    }
}

impl<'t> Player<'t> {
    fn range_text(&self, address: u64) -> Option<String> {
        match self.ranges.find(address) {
            Found::Live(range, offset) => {
                Some(format!("byte {offset} of memory {}", range.describe()))
            }
            Found::Freed(range) => Some(format!("in memory {}", range.describe())),
            Found::Unknown => None,
        }
    }

    /// Names what was left out before, since that may be why something differs.
    fn reissue_gaps(&self, index: u64) -> Option<String> {
        let mut names: Vec<String> = self
            .report
            .skipped
            .iter()
            .filter(|skipped| skipped.first < index)
            .map(|skipped| format!("{} x{}", skipped.function, skipped.count))
            .collect();
        if names.is_empty() {
            return None;
        }
        names.truncate(8);
        Some(format!(
            "not re-issued before this call: {}",
            names.join(", ")
        ))
    }

    /// Whether waiting for the device brings that error.
    fn surfaces(&mut self, code: Code) -> bool {
        self.wait_for_device() == Err(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_found() {
        for (expected, received, found) in [
            (&b"abc"[..], &b"abc"[..], None),
            (b"abc", b"abd", Some((2, 1))),
            (b"abc", b"xbz", Some((0, 2))),
            (b"abc", b"ab", Some((2, 1))),
            (b"", b"ab", Some((0, 2))),
        ] {
            assert_eq!(first_difference(expected, received), found);
        }
    }

    #[test]
    fn an_excerpt_shows_the_line_of_the_difference() {
        let bytes: Vec<u8> = (0..40).collect();
        assert_eq!(
            excerpt(&bytes, 37),
            "40 bytes, from byte 32: 20 21 22 23 24 25 26 27"
        );
        assert_eq!(excerpt(&[], 0), "0 bytes, from byte 0: ");
    }
}
