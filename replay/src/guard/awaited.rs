//! What a call that does not return may wait for: words of page-locked memory that are not as they
//! were later in the recording.
//!
//! The guarding process reads such memory while the call lasts, before the watchdog ends it.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cutape_format::layout::SharedMappingNote;
use cutape_format::{Call, Note, Trace};
use cutape_model::{ObjectId, Scope, TraceState};
use cutape_registry::{Family, Function, Role, StreamMemoryOp, Waits};

use crate::api::buffer::number;
use crate::guard::attempt::Guard;
use crate::plan::function_of;
use crate::process::position::Page;

/// So many later calls are searched for what the memory held then.
const LATER_CALLS: u64 = 100_000;
/// So many words are named.
const NAMED: usize = 8;
/// Bytes of a change that are shown.
const SHOWN: usize = 8;
/// Longer changes are not compared.
const LONGEST: usize = 1 << 20;

/// Device and number of a recorded file.
pub(crate) type FileNumber = (u64, u64);

/// What is known besides the trace of the process.
pub(crate) struct Surroundings<'a> {
    /// Reads a file that takes the place of a recorded one: device, number, offset, length.
    pub(crate) read_file: &'a dyn Fn(u64, u64, u64, usize) -> Option<Vec<u8>>,
    /// Which other ranks have registered any of these recorded files, and what they do.
    pub(crate) sharers: &'a dyn Fn(&[FileNumber]) -> Vec<String>,
}

impl Surroundings<'_> {
    /// Those of a process without peers.
    pub(crate) fn none() -> Self {
        Self {
            read_file: &|_, _, _, _| None,
            sharers: &|_| Vec::new(),
        }
    }
}

/// A part of registered memory that is mapped from a file, and the file's name.
type SharedPart = (SharedMappingNote, String);

/// A wait of a stream for a value in memory.
struct MemoryWait {
    call: u64,
    function: &'static str,
    stream: u64,
    address: u64,
    width: usize,
    value: u64,
    flags: u64,
}

impl MemoryWait {
    fn is_fulfilled(&self, now: u64) -> bool {
        let mask = u64::MAX >> (64 - 8 * self.width);
        let sign = (mask >> 1) + 1;
        match self.flags & 3 {
            0 => now.wrapping_sub(self.value) & mask & sign == 0,
            1 => now == self.value & mask,
            2 => now & self.value & mask != 0,
            _ => !(now | self.value) & mask != 0,
        }
    }

    fn wanted(&self) -> String {
        let value = self.value;
        match self.flags & 3 {
            0 => format!("{value} or more"),
            1 => format!("{value}"),
            2 => format!("a bit of {value:#x}"),
            _ => format!("a zero bit of {value:#x}"),
        }
    }
}

/// The state of the recorded process before a call.
struct Known {
    process: TraceState,
    /// By registration.
    shared: HashMap<ObjectId, Vec<SharedPart>>,
    waits: Vec<MemoryWait>,
}

impl Known {
    fn new() -> Self {
        Self {
            process: TraceState::new(Scope::Work),
            shared: HashMap::new(),
            waits: Vec::new(),
        }
    }

    fn observe(&mut self, call: &Call<'_>) {
        let changes = self.process.observe(call).unwrap_or_default();
        for id in changes.ended.iter().chain(&changes.superseded) {
            self.shared.remove(id);
        }
        for &id in &changes.created {
            let parts = call.notes().filter_map(|note| match note {
                Note::SharedMapping(part, name) => Some((part, name)),
                _ => None,
            });
            let parts: Vec<_> = parts.collect();
            if !parts.is_empty() {
                self.shared.insert(id, parts);
            }
        }
        let function = function_of(call).filter(|_| call.succeeded());
        let Some(function) = function else {
            return;
        };
        if function.family == Family::StreamMemory(StreamMemoryOp::Wait) {
            self.add_wait(call, function);
        }
        match function.waits {
            Waits::Context => self.waits.clear(),
            Waits::Stream(at) => {
                let stream = call.argument(usize::from(at));
                self.waits.retain(|wait| wait.stream != stream);
            }
            Waits::No | Waits::Event(_) => {}
        }
    }

    fn add_wait(&mut self, call: &Call<'_>, function: &'static Function) {
        let is_operand = |role: &Role| matches!(role, Role::DeviceRead(_));
        let mut roles = function.params.iter().map(|param| &param.role);
        let (Some(operand), Some(stream)) = (roles.position(is_operand), function.stream) else {
            return;
        };
        // The value and the flags follow the address.
        let (value, flags) = (operand + 1, operand + 2);
        let Some(width) = function.params.get(value).map(|param| param.width.bytes()) else {
            return;
        };
        self.waits.push(MemoryWait {
            call: call.index,
            function: function.name,
            stream: call.argument(usize::from(stream)),
            address: call.argument(operand),
            width: width.clamp(1, 8),
            value: call.argument(value),
            flags: call.argument(flags),
        });
    }

    /// The memory that host and device share at an address.
    fn find(&self, address: u64) -> Option<(u64, ObjectId)> {
        let (range, id) = self.process.state.shared_at(address)?;
        Some((range.start, id))
    }

    /// The part of it that is mapped from a file.
    fn part(&self, address: u64) -> Option<&SharedPart> {
        let (_, id) = self.find(address)?;
        let mut parts = self.shared.get(&id)?.iter();
        parts.find(|(part, _)| address >= part.address && address - part.address < part.length)
    }

    /// `offset 0x40 of /dev/shm/x (registered by call 5)`.
    fn describe(&self, address: u64) -> String {
        let found = self.find(address);
        let created = found.and_then(|(start, id)| {
            let object = self.process.state.objects.get(id)?;
            Some((start, object.created))
        });
        let Some((start, created)) = created else {
            return format!("{address:#x}");
        };
        match self.part(address) {
            Some((part, name)) => {
                let offset = address - part.address + part.offset;
                let name = name.escape_debug();
                format!(
                    "offset {offset:#x} of {name} (registered by call {})",
                    created.index
                )
            }
            None => format!(
                "offset {:#x} of the memory of call {} ({})",
                address - start,
                created.index,
                created.function
            ),
        }
    }
}

/// What the current calls of a replaying process may wait for, a sentence each; none if it has no
/// page-locked memory. `process` is its number.
pub(crate) fn explain(
    trace: &Trace,
    page: &Page,
    process: u32,
    surroundings: &Surroundings<'_>,
) -> Vec<String> {
    let current = page.counters().current_calls();
    let threads = current.into_iter().map(|(_, call, _)| call);
    // Calls before all of these are done.
    let at = threads.min().unwrap_or(page.read().0);
    let are_moved = page.counters().moved.load(Ordering::Relaxed) != 0;
    let mut known = Known::new();
    let mut lines = Vec::new();
    let mut files: Vec<FileNumber> = Vec::new();
    let mut seen: Vec<(u64, u64)> = Vec::new();
    for call in trace.calls() {
        if call.index < at {
            known.observe(&call);
            continue;
        }
        if call.index == at {
            let read = |address, length| {
                let part = known.part(address);
                read_now((process, are_moved), part, address, length, surroundings)
            };
            for wait in &known.waits {
                let Some(now) = read(wait.address, wait.width) else {
                    continue;
                };
                let now = number(&now);
                if wait.is_fulfilled(now) || lines.len() == NAMED {
                    continue;
                }
                seen.push((wait.address, wait.address + wait.width as u64));
                note_file(&known, wait.address, &mut files);
                let place = known.describe(wait.address);
                let wanted = wait.wanted();
                let (function, call) = (wait.function, wait.call);
                lines.push(format!(
                    "call {call} ({function}) waits for {wanted} at {place}: it holds {now}"
                ));
            }
        }
        if call.index > at.saturating_add(LATER_CALLS) || lines.len() >= NAMED {
            break;
        }
        for note in call.notes() {
            let Note::HostChanged(note, snapshot) = note else {
                continue;
            };
            // What was seen before the call has been put.
            if call.index == at && note.is_after == 0 {
                continue;
            }
            let Some(new) = snapshot.bytes.inline().filter(|new| new.len() <= LONGEST) else {
                continue;
            };
            let range = (note.address, note.address + new.len() as u64);
            let is_known = |&(start, end): &(u64, u64)| start < range.1 && range.0 < end;
            if known.find(note.address).is_none() || new.is_empty() || seen.iter().any(is_known) {
                continue;
            }
            seen.push(range);
            let part = known.part(note.address);
            let process = (process, are_moved);
            let now = read_now(process, part, note.address, new.len(), surroundings);
            let Some(now) = now else { continue };
            let differs = now.iter().zip(new).position(|(now, new)| now != new);
            let Some(first) = differs.filter(|_| lines.len() < NAMED) else {
                continue;
            };
            let first = start_of_word(note.address, first);
            let end = now.len().min(first + SHOWN);
            let address = note.address + first as u64;
            note_file(&known, address, &mut files);
            lines.push(format!(
                "{} holds {}, in the recording {} at call {} ({})",
                known.describe(address),
                hex(now.get(first..end).unwrap_or_default()),
                hex(new.get(first..end).unwrap_or_default()),
                call.index,
                call.signature.name,
            ));
        }
    }
    if lines.is_empty() {
        // Whoever writes to memory that ranks share may be another rank.
        let shared = known.process.state.shared_memory();
        let all = shared.filter_map(|(range, id)| Some((range.start, known.shared.get(&id)?)));
        for (start, parts) in all {
            for (part, _) in parts {
                note_file(&known, part.address.max(start), &mut files);
            }
        }
        if known.process.state.shared_memory().next().is_some() {
            lines.push(if are_moved {
                "whether page-locked memory differs from the recording is not known: it is at \
                 other addresses"
                    .to_owned()
            } else {
                "the trace has no later change of page-locked memory that it could wait for: \
                 changes are recorded when calls point to the memory, with --host-memory all at \
                 every launch"
                    .to_owned()
            });
        }
    }
    lines.extend((surroundings.sharers)(&files));
    lines
}

/// Where the word begins that a byte of a change is in. A change may begin within one.
fn start_of_word(address: u64, byte: usize) -> usize {
    let in_word = (address as usize).wrapping_add(byte) % 4;
    byte.saturating_sub(in_word)
}

fn note_file(known: &Known, address: u64, files: &mut Vec<FileNumber>) {
    if let Some((part, _)) = known.part(address) {
        let file = (part.device, part.inode);
        if !files.contains(&file) {
            files.push(file);
        }
    }
}

/// Bytes that memory of the process holds, if it is a part of a shared file or at its recorded
/// address.
fn read_now(
    (process, are_moved): (u32, bool),
    part: Option<&SharedPart>,
    address: u64,
    length: usize,
    surroundings: &Surroundings<'_>,
) -> Option<Vec<u8>> {
    if let Some((part, _)) = part {
        let offset = address - part.address + part.offset;
        let bytes = (surroundings.read_file)(part.device, part.inode, offset, length);
        if bytes.is_some() {
            return bytes;
        }
    }
    match are_moved {
        true => None,
        false => read_process(process, address, length),
    }
}

/// Reads memory of another process; `None` if some of it cannot be read.
fn read_process(process: u32, address: u64, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0_u8; length];
    let local = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: length,
    };
    let remote = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(address as usize),
        iov_len: length,
    };
    // SAFETY: the kernel writes within `bytes`, and reports an address of the other process that
    // cannot be read.
    let read = unsafe {
        libc::process_vm_readv(process as i32, &raw const local, 1, &raw const remote, 1, 0)
    };
    (usize::try_from(read) == Ok(length)).then_some(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Tells that a call lasts, and what it may wait for.
pub(crate) fn tell_of_wait(
    guard: &Guard,
    label: &str,
    page: &Page,
    lasts: Duration,
    awaited: &[String],
) {
    if awaited.is_empty() {
        return;
    }
    let call = page.read().0;
    let lasts = lasts.as_secs_f64();
    let awaited = awaited.join("; ");
    (guard.tell)(&format!(
        "{label}no progress for {lasts:.1} s in call {call}: {awaited}"
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_fulfilled_as_the_manual_says() {
        for (flags, value, now, expected) in [
            (0, 5, 5, true),
            (0, 5, 4, false),
            (0, 1, 0xffff_ffff, false),
            (0, 0xffff_ffff, 1, true),
            (1, 5, 5, true),
            (1, 5, 6, false),
            (2, 6, 8, false),
            (2, 6, 12, true),
            (3, 0xffff_fffe, 1, false),
            (3, 0xffff_fffe, 0, true),
        ] {
            let wait = MemoryWait {
                call: 0,
                function: "",
                stream: 0,
                address: 0,
                width: 4,
                value,
                flags,
            };
            assert_eq!(wait.is_fulfilled(now), expected, "{flags} {value} {now}");
        }
    }

    #[test]
    fn words_begin_within_the_change() {
        for (address, byte, expected) in [
            (0x1000, 0, 0),
            (0x1000, 7, 4),
            (0x1001, 0, 0),
            (0x1001, 2, 0),
            (0x1001, 3, 3),
            (u64::MAX, 1, 1),
        ] {
            assert_eq!(
                start_of_word(address, byte),
                expected,
                "{address:#x} {byte}"
            );
        }
    }

    #[test]
    fn memory_of_a_process_is_read() {
        let memory = [1_u8, 2, 3];
        let address = memory.as_ptr().expose_provenance() as u64;
        let own = std::process::id();
        assert_eq!(read_process(own, address, 3), Some(vec![1, 2, 3]));
        assert_eq!(read_process(own, 16, 3), None);
    }
}
