//! Contents of memory that a trace stores in place of the calls that computed them, because it was cut
//! or its recorder has left them out: they are put there when all earlier work is done.

use std::ffi::CString;

use cutape_format::layout::{MemoryNote, memory_snapshot};
use cutape_format::{Note, Snapshot};
use cutape_registry::{Kind, id};

use crate::api::{Api, Code, INVALID_VALUE, result_name};
use crate::compare::payload::Payload;
use crate::objects::handles::Resolved;
use crate::place::address::Found;
use crate::player::Job;

/// Bytes of a repeated word that are written at a time, where the driver cannot fill.
const CHUNK: u64 = 4 << 20;

/// Where contents go.
struct Target {
    live: u64,
    /// Bytes from there on.
    room: u64,
    is_host: bool,
    /// The live context; 0: the current one.
    context: u64,
}

impl<'t> Job<'_, 't> {
    /// Puts into place what memory held before the call.
    pub(crate) fn put_memory(&mut self) {
        let mut is_ready = false;
        let snapshot = self.call.notes().find_map(|note| match note {
            Note::MemorySnapshot(note) if note.state == memory_snapshot::TAKEN => Some(note),
            _ => None,
        });
        if let Some(snapshot) = snapshot {
            // Where no calls are missing, memory has been computed.
            let is_void = self.plan.void_snapshots.contains(&snapshot.number);
            if is_void || !self.consequences.memory_gaps.lack_memory() {
                return;
            }
        }
        let mut is_whole = snapshot.is_some_and(|snapshot| snapshot.left_out == 0);
        for note in self.call.notes() {
            let Note::Memory(note, name, snapshot) = note else {
                continue;
            };
            if !is_ready {
                if let Err(code) = self.wait_for_all_work() {
                    return self.memory_is_missing(&format!(
                        "contents of memory before call {}: waiting for earlier work returned {}",
                        self.call.index,
                        result_name(code)
                    ));
                }
                is_ready = true;
            }
            self.issuer.position.step();
            match self.put_piece(&note, &name, snapshot.as_ref()) {
                Ok(()) => self.report.memory_bytes_put += note.length,
                Err(why) => {
                    is_whole = false;
                    self.memory_is_missing(&format!(
                        "contents of {}, before call {}: {why}",
                        describe(&note, &name),
                        self.call.index
                    ));
                }
            }
        }
        if is_ready && let Err(code) = self.wait_for_all_work() {
            self.memory_is_missing(&format!(
                "contents of memory before call {}: waiting until they are there returned {}",
                self.call.index,
                result_name(code)
            ));
            return;
        }
        // What arrays hold, no snapshot says.
        if is_whole && !self.handles.any_array() {
            let entered = self.call.ticks;
            self.consequences.memory_restored(entered);
        }
    }

    /// Where calls begin of which the earlier ones were not kept: sets the device memory that is live
    /// to zeros. What it held is not known, and what the driver leaves in new memory differs from
    /// replay to replay: kernels that read indices there would fail.
    pub(crate) fn put_zeros(&mut self) {
        if self.captures.any_open() {
            return;
        }
        let ranges = self.ranges.all_live();
        let unknown = ranges.filter(|range| range.kind == Kind::Memory);
        let targets: Vec<Target> = unknown
            .map(|range| Target {
                live: range.live,
                room: range.length,
                is_host: false,
                context: match self.handles.is_taken(Kind::Context, range.context) {
                    true => range.context,
                    false => 0,
                },
            })
            .collect();
        for target in targets {
            self.issuer.position.step();
            let fill = |api: &Api| api.set_bytes(target.live, 0, target.room);
            if let Err(why) = in_context(&self.api, target.context, fill) {
                let call = self.call.index;
                self.report.note(format!(
                    "memory before call {call} was not kept, and could not be set to zeros: {why}"
                ));
                return;
            }
        }
        // What comes next in other streams must not be overtaken by it.
        let _ = self.wait_for_all_work();
    }

    fn memory_is_missing(&mut self, what: &str) {
        self.comparer.bytes_comparable = false;
        self.report.note(format!(
            "{what}: they were left out, bytes are not compared from there on"
        ));
    }

    fn put_piece(
        &mut self,
        note: &MemoryNote,
        name: &str,
        snapshot: Option<&Snapshot<'t>>,
    ) -> Result<(), String> {
        let target = match note.owner {
            0 => self.memory_target(note)?,
            _ => self.variable_target(note, name)?,
        };
        if note.length > target.room {
            return Err("they are longer than the memory".to_owned());
        }
        let Some(snapshot) = snapshot else {
            return self.put_repeated(&target, note);
        };
        let bytes = match self.payload(snapshot) {
            Payload::Here(bytes) => bytes,
            Payload::Left(_, hash) => {
                self.bytes_are_missing(hash);
                return Ok(());
            }
            Payload::Unreadable => return Err("the trace has lost them".to_owned()),
        };
        if bytes.len() as u64 != note.length {
            return Err(format!(
                "the trace has {} bytes of {}",
                bytes.len(),
                note.length
            ));
        }
        self.look_for_stale(&bytes);
        self.write(&target, 0, &bytes)
    }

    /// Memory at a recorded address.
    fn memory_target(&self, note: &MemoryNote) -> Result<Target, String> {
        let Found::Live(range, offset) = self.ranges.find(note.address) else {
            return Err("the replay does not have the memory".to_owned());
        };
        Ok(Target {
            live: range.live.wrapping_add(offset),
            room: range.length.saturating_sub(offset),
            is_host: range.is_host_memory(),
            context: match self.handles.is_taken(Kind::Context, range.context) {
                true => range.context,
                false => 0,
            },
        })
    }

    /// A variable of a module or library.
    fn variable_target(&self, note: &MemoryNote, name: &str) -> Result<Target, String> {
        let kind = match note.is_library {
            0 => Kind::Module,
            _ => Kind::Library,
        };
        let Resolved::Live(owner) = self.handles.resolve(kind, note.owner) else {
            return Err("the replay does not have its module".to_owned());
        };
        let found = self.api.variable_of(owner, kind == Kind::Library, name);
        let (live, length) =
            found.map_err(|code| format!("the driver returned {}", result_name(code)))?;
        Ok(Target {
            live: live.wrapping_add(note.address),
            room: length.saturating_sub(note.address),
            is_host: false,
            context: 0,
        })
    }

    fn put_repeated(&mut self, target: &Target, note: &MemoryNote) -> Result<(), String> {
        let word = note.fill.to_le_bytes();
        let [first, ..] = word;
        if word == [first; 8] && !target.is_host {
            let fill = |api: &Api| api.set_bytes(target.live, first, note.length);
            return in_context(&self.api, target.context, fill);
        }
        let chunk: Vec<u8> = word
            .into_iter()
            .cycle()
            .take(CHUNK.min(note.length) as usize)
            .collect();
        let mut at = 0;
        while at < note.length {
            let part = (note.length - at).min(CHUNK) as usize;
            self.write(target, at, chunk.get(..part).unwrap_or_default())?;
            at += part as u64;
        }
        Ok(())
    }

    fn write(&mut self, target: &Target, at: u64, bytes: &[u8]) -> Result<(), String> {
        let address = target.live.wrapping_add(at);
        if target.is_host {
            self.store_host(address, bytes);
            return Ok(());
        }
        in_context(&self.api, target.context, |api| {
            api.write_device(address, bytes)
        })
    }
}

fn in_context(
    api: &Api,
    context: u64,
    act: impl FnOnce(&Api) -> Result<(), Code>,
) -> Result<(), String> {
    let done = match context {
        0 => act(api),
        context => api.in_context(context, act),
    };
    done.map_err(|code| format!("writing them returned {}", result_name(code)))
}

/// Which memory a note is about.
fn describe(note: &MemoryNote, name: &str) -> String {
    match note.owner {
        0 => format!("memory at {:#x}, {} bytes", note.address, note.length),
        _ => format!("variable {}, {} bytes", name.escape_debug(), note.length),
    }
}

/// Typed driver calls that restoring memory makes.
impl Api {
    /// Address and bytes of a variable of a live module or library, in the current context.
    fn variable_of(&self, owner: u64, is_library: bool, name: &str) -> Result<(u64, u64), Code> {
        let name = CString::new(name).map_err(|_| INVALID_VALUE)?;
        let (mut address, mut bytes) = (0u64, 0u64);
        let id = match is_library {
            true => id::cuLibraryGetGlobal,
            false => id::cuModuleGetGlobal_v2,
        };
        let outputs = [&raw mut address as u64, &raw mut bytes as u64];
        self.own(id, &[outputs[0], outputs[1], owner, name.as_ptr() as u64])?;
        Ok((address, bytes))
    }

    /// Sets bytes of device memory, when all work is done.
    fn set_bytes(&self, address: u64, byte: u8, length: u64) -> Result<(), Code> {
        self.own(id::cuMemsetD8_v2, &[address, u64::from(byte), length])
    }
}
