//! Reads memory at moments of a trace, with one replay.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use cutape_format::Trace;
use cutape_render::quantity;
use cutape_replay::{
    MemoryKind, Moments, Observation, Observed, ObservedCall, ObservedMemory, Piece,
};

use crate::chain::divergence;
use crate::lifetimes::{Lifetime, When, lifetime_at};
use crate::number_format::NumberFormat;
use crate::target::{Bytes, Target, nth};

/// The most bytes that are read at a moment.
const MOST: u64 = 1 << 30;

/// What a trace does not have of memory that host and device share.
const SHARED: &str = "host and device share this memory: what the program's CPU code writes is there \
     from the call on that lets the device read it";

/// At which moments memory is looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    /// The call; `None`: that of the target, else the end of the trace.
    pub at: Option<u64>,
    /// Before the call: so it is unless `after` is asked for alone.
    pub before: bool,
    /// After the work of the call.
    pub after: bool,
    /// Another call.
    pub and: Option<u64>,
}

impl Asked {
    fn moments(&self, target: &Target) -> Result<Vec<When>, String> {
        let Some(call) = self.at.or(target.call()) else {
            return match self.before || self.after || self.and.is_some() {
                true => Err("--before, --after and --and are about a call: say --at N".to_owned()),
                false => Ok(vec![When::End]),
            };
        };
        match (self.before, self.after, self.and) {
            (true, true, Some(_)) => {
                Err("--before, --after and --and are three moments: leave one out".to_owned())
            }
            (true, true, None) => Ok(vec![When::Before(call), When::After(call)]),
            (_, true, and) => Ok([Some(call), and]
                .into_iter()
                .flatten()
                .map(When::After)
                .collect()),
            (_, false, and) => Ok([Some(call), and]
                .into_iter()
                .flatten()
                .map(When::Before)
                .collect()),
        }
    }
}

/// Which bytes are read, and when.
#[derive(Debug)]
pub struct Plan {
    bytes: Bytes,
    moments: Vec<(When, Lifetime)>,
    /// The last call of the trace.
    last: u64,
}

/// What memory held at a moment.
#[derive(Debug)]
pub struct Snapshot {
    /// The moment.
    pub when: When,
    /// The first byte's address as `dump` shows it, e.g. `memory#3+0x40`.
    pub label: Option<String>,
    /// The call that made the memory.
    pub made: u64,
    /// Recorded address of the first byte.
    pub address: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Plan {
    /// Finds the bytes. If the target does not say how many, they are those of the format's shape,
    /// else all to the end of the memory.
    ///
    /// # Errors
    /// A line that says why they cannot be read.
    pub fn new(
        trace: &Trace,
        target: &Target,
        asked: &Asked,
        format: &NumberFormat,
    ) -> Result<Self, String> {
        let moments = asked.moments(target)?;
        let calls = trace.calls().map(|call| call.index);
        let last = calls.last().ok_or("the trace has no calls")?;
        for when in &moments {
            if let When::Before(call) | When::After(call) = *when {
                nth(trace, call)?;
            }
        }
        let place = target.resolve(trace, None)?;
        let find = |when| lifetime_at(trace, place.address, target.object(), when);
        let find = |when| match (find(when), target.object()) {
            // Objects are shown as they were last.
            (Err(absence), Some(_)) if when == When::End => match absence.ended {
                Some(call) => find(When::Before(call)).map(|found| (When::Before(call), found)),
                None => Err(absence),
            },
            (found, _) => found.map(|found| (when, found)),
        };
        let found = moments.into_iter().map(find);
        let moments: Vec<(When, Lifetime)> = found
            .collect::<Result<_, _>>()
            .map_err(|absence| absence.why)?;
        let left = |lifetime: &Lifetime| lifetime.range.end - place.address;
        let left = moments.iter().map(|(_, lifetime)| left(lifetime)).min();
        let left = left.unwrap_or(0);
        let length = place.length.or(format.length).unwrap_or(left);
        if length > left {
            return Err(format!(
                "{length} bytes are asked about, but the memory at {:#x} ends after {left}",
                place.address
            ));
        }
        if length > MOST {
            let (size, most) = (quantity::bytes(length), quantity::bytes(MOST));
            return Err(format!(
                "the memory at {:#x} has {size}, and {most} are read at most: say which part, e.g. \
                 {:#x}+{MOST:#x}",
                place.address, place.address
            ));
        }
        if length == 0 {
            return Err("no bytes are asked about".to_owned());
        }
        let bytes = place.bytes(length);
        Ok(Self {
            bytes,
            moments,
            last,
        })
    }

    /// What the replay has to read.
    pub fn observation(&self) -> Observation {
        let mut calls: BTreeMap<u64, Moments> = BTreeMap::new();
        for &(when, _) in &self.moments {
            let moments = calls.entry(self.call(when)).or_default();
            // The last call may be one that a replay does not issue.
            moments.before |= !matches!(when, When::After(_));
            moments.after |= !matches!(when, When::Before(_));
        }
        Observation {
            calls,
            reads: vec![(self.bytes.address, self.end())],
            most_bytes: u64::MAX,
            ..Observation::default()
        }
    }

    fn call(&self, when: When) -> u64 {
        match when {
            When::Before(call) | When::After(call) => call,
            When::End => self.last,
        }
    }

    fn end(&self) -> u64 {
        self.bytes.address.saturating_add(self.bytes.length)
    }

    /// The bytes at each moment, from what the replay has read and the file of its contents. Also
    /// returns what may make them others than the program's.
    ///
    /// # Errors
    /// A line that says what could not be read, and why.
    pub fn read(
        &self,
        observed: &Observed,
        contents: &File,
    ) -> Result<(Vec<Snapshot>, Vec<String>), String> {
        let mut notes: Vec<String> = divergence(&observed.report).into_iter().collect();
        let mut snapshots = Vec::new();
        for (when, lifetime) in &self.moments {
            let call = self.call(*when);
            let seen = observed.calls.iter().find(|seen| seen.call == call);
            let seen = seen.ok_or_else(|| format!("the replay did not come to call {call}"))?;
            let is_before = match (*when, &seen.refused) {
                (When::Before(_), _) => true,
                (When::End, Some(why)) => {
                    notes.push(format!("shown is memory before call {call}: {why}"));
                    true
                }
                _ => false,
            };
            let is_shared = |memory: &ObservedMemory| {
                matches!(memory.kind, MemoryKind::Host | MemoryKind::Managed)
            };
            let is_told = notes.iter().any(|note| note == SHARED);
            if !is_told && seen.memory.iter().any(is_shared) {
                notes.push(SHARED.to_owned());
            }
            snapshots.push(Snapshot {
                when: *when,
                label: lifetime.label.clone(),
                made: lifetime.made.index,
                address: self.bytes.address,
                bytes: self
                    .bytes_of(seen, is_before, contents)
                    .map_err(|why| format!("{when}: {why}"))?,
            });
        }
        Ok((snapshots, notes))
    }

    fn bytes_of(
        &self,
        seen: &ObservedCall,
        is_before: bool,
        contents: &File,
    ) -> Result<Vec<u8>, String> {
        // What was read before a call is known even if the call cannot be issued.
        if let Some(why) = &seen.refused
            && (!is_before || seen.memory.is_empty())
        {
            return Err(format!(
                "memory cannot be read at this call: {why}; ask about another call"
            ));
        }
        if !seen.left_out.is_empty() {
            return Err(seen.left_out.join("; "));
        }
        let mut bytes = vec![0; self.bytes.length as usize];
        let mut at = self.bytes.address;
        let mut memory: Vec<&ObservedMemory> = seen.memory.iter().collect();
        memory.sort_by_key(|memory| memory.recorded);
        for memory in memory {
            if memory.recorded > at || !is_before && memory.has_ended {
                break;
            }
            let pieces = if is_before {
                &memory.before
            } else {
                &memory.after
            };
            let offset = memory.recorded.checked_sub(self.bytes.address);
            let offset = offset.ok_or("the replay has read other memory")?;
            for piece in pieces {
                fill(&mut bytes, offset, piece, contents)?;
            }
            at = at.max(memory.recorded.saturating_add(memory.length));
        }
        match at < self.end() {
            true => Err(format!("the replay has no memory at {at:#x}")),
            false => Ok(bytes),
        }
    }
}

/// Reads a piece of memory that begins at an offset.
fn fill(bytes: &mut [u8], offset: u64, piece: &Piece, contents: &File) -> Result<(), String> {
    let start = (offset + piece.at) as usize;
    let target = bytes.get_mut(start..start + piece.length as usize);
    let target = target.ok_or("the replay has read other memory")?;
    let read = contents.read_exact_at(target, piece.file);
    read.map_err(|error| format!("the contents cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use cutape_model::Site;

    use super::*;

    fn plan(when: When, length: u64) -> Plan {
        let made = Site {
            index: 1,
            function: "cuMemAlloc_v2",
            thread: 0,
            caller: 0,
            stack: 0,
            result: Some(0),
        };
        let lifetime = Lifetime {
            label: None,
            range: 0x1000..0x2000,
            made,
            ended: None,
        };
        let bytes = Bytes {
            address: 0x1000,
            length,
        };
        Plan {
            bytes,
            moments: vec![(when, lifetime)],
            last: 9,
        }
    }

    fn memory(recorded: u64, length: u64, at: u64, text: &str, file: u64) -> ObservedMemory {
        let piece = Piece {
            at,
            length: text.len() as u64,
            file,
        };
        ObservedMemory {
            recorded,
            length,
            before: vec![piece],
            ..ObservedMemory::default()
        }
    }

    #[test]
    fn moments_of_what_is_asked() {
        use When::{After, Before, End};
        let none = Target::Address(0x1000, None);
        let launch = Target::Parameter(5, 0);
        for (target, at, before, after, and, expected) in [
            (&none, None, false, false, None, Ok(vec![End])),
            (&none, Some(3), false, false, None, Ok(vec![Before(3)])),
            (&none, Some(3), false, true, None, Ok(vec![After(3)])),
            (
                &none,
                Some(3),
                true,
                true,
                None,
                Ok(vec![Before(3), After(3)]),
            ),
            (
                &none,
                Some(3),
                false,
                true,
                Some(7),
                Ok(vec![After(3), After(7)]),
            ),
            (
                &launch,
                None,
                false,
                false,
                Some(2),
                Ok(vec![Before(5), Before(2)]),
            ),
            (&launch, Some(4), false, false, None, Ok(vec![Before(4)])),
            (&none, None, false, true, None, Err("--at N")),
            (&none, Some(3), true, true, Some(7), Err("three moments")),
        ] {
            let asked = Asked {
                at,
                before,
                after,
                and,
            };
            match (asked.moments(target), expected) {
                (Ok(moments), Ok(expected)) => assert_eq!(moments, expected, "{asked:?}"),
                (Err(why), Err(expected)) => assert!(why.contains(expected), "{why}"),
                (other, _) => panic!("{asked:?}: {other:?}"),
            }
        }
    }

    /// A file of contents, whose name tests that run at once do not share.
    fn contents(name: &str) -> File {
        let name = format!("cutape-snapshot-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        File::create(&path).unwrap().write_all(b"abcdef").unwrap();
        let contents = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        contents
    }

    fn observed(seen: ObservedCall) -> Observed {
        Observed {
            calls: vec![ObservedCall { call: 4, ..seen }],
            ..Observed::default()
        }
    }

    #[test]
    fn what_was_not_read_is_an_error_and_not_zeros() {
        let contents = contents("read");
        let before = When::Before(4);
        let refused = |why: &str| Some(why.to_owned());
        for (memory, left_out, refused, when, expected) in [
            (
                vec![memory(0x1000, 8, 2, "cd", 2)],
                vec![],
                None,
                before,
                Ok("..cd...."),
            ),
            (
                vec![memory(0x1004, 4, 0, "ef", 4), memory(0x1000, 4, 0, "ab", 0)],
                vec![],
                None,
                before,
                Ok("ab..ef.."),
            ),
            (
                vec![memory(0x1000, 4, 0, "ab", 0)],
                vec![],
                None,
                before,
                Err("no memory at 0x1004"),
            ),
            (
                vec![memory(0x1004, 4, 0, "ab", 0)],
                vec![],
                None,
                before,
                Err("no memory at 0x1000"),
            ),
            (vec![], vec![], None, before, Err("no memory at 0x1000")),
            (
                vec![],
                vec!["reading it returned X"],
                None,
                before,
                Err("reading it returned X"),
            ),
            (
                vec![],
                vec![],
                refused("it captures"),
                before,
                Err("it captures"),
            ),
            // The call is not issued: what was before it is known.
            (
                vec![memory(0x1000, 8, 0, "ab", 0)],
                vec![],
                refused("no"),
                before,
                Ok("ab......"),
            ),
            (
                vec![memory(0x1000, 8, 0, "ab", 0)],
                vec![],
                refused("no"),
                When::After(4),
                Err("no"),
            ),
            (
                vec![memory(0x1000, 8, 0, "ab", 9)],
                vec![],
                None,
                before,
                Err("cannot be read"),
            ),
            (
                vec![memory(0x1000, 8, 7, "ab", 0)],
                vec![],
                None,
                before,
                Err("other memory"),
            ),
        ] {
            let observed = observed(ObservedCall {
                memory,
                left_out: left_out.into_iter().map(str::to_owned).collect(),
                refused,
                ..ObservedCall::default()
            });
            match (plan(when, 8).read(&observed, &contents), expected) {
                (Ok((snapshots, _)), Ok(expected)) => {
                    let bytes = snapshots[0].bytes.iter();
                    let text: String = bytes
                        .map(|&byte| if byte == 0 { '.' } else { byte.into() })
                        .collect();
                    assert_eq!(text, expected);
                }
                (Err(why), Err(expected)) => assert!(why.contains(expected), "{why}"),
                (other, expected) => panic!("{expected:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn memory_that_ended_in_the_call_is_an_error() {
        let contents = contents("ended");
        let mut ended = memory(0x1000, 8, 0, "ab", 0);
        ended.has_ended = true;
        let observed = observed(ObservedCall {
            memory: vec![ended],
            ..ObservedCall::default()
        });
        let read = plan(When::After(4), 8).read(&observed, &contents);
        assert!(
            read.unwrap_err().contains("no memory"),
            "it ended in the call"
        );
        let read = plan(When::Before(5), 8).read(&observed, &contents);
        assert!(read.unwrap_err().contains("did not come to call 5"));
    }

    #[test]
    fn the_end_is_before_or_after_the_last_call() {
        let observation = plan(When::End, 8).observation();
        let moments = observation.calls.get(&9).unwrap();
        assert!(moments.before && moments.after);
        assert_eq!(observation.reads, [(0x1000, 0x1008)]);
    }
}
