//! Threads, stacks, variables and memory, as an editor shows them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cutape_analyzer::{Frame, own_frame};
use cutape_history::Bytes;
use cutape_registry::Kind;
use cutape_render::quantity::count;
use serde_json::{Value, json};

use crate::answer::LiveObject;
use crate::dap::server::{Server, Variables, thread_id};
use crate::dap::wire::{Request, set};

/// The most bytes that are read at once.
const MOST: i64 = 1 << 20;

/// What has bytes.
pub(super) const MEMORY: &[Kind] = &[Kind::Memory, Kind::HostMemory, Kind::Reservation];

/// Live objects, by what an editor calls them.
const OBJECTS: [(&str, &[Kind]); 4] = [
    ("Memory", MEMORY),
    ("Streams", &[Kind::Stream]),
    ("Modules", &[Kind::Module, Kind::Library]),
    ("Graphs", &[Kind::Graph, Kind::GraphExec]),
];

impl Server<'_> {
    pub(super) fn threads(&self) -> Value {
        let threads = self.debugger.threads().into_iter().map(|(number, name)| {
            json!({ "id": thread_id(number), "name": format!("thread {number}{name}") })
        });
        json!({ "threads": threads.collect::<Vec<_>>() })
    }

    /// The next call of the thread, and the stack from which the program made it.
    pub(super) fn stack_trace(&mut self, request: &Request) -> Result<Value, String> {
        let thread = self.thread_of(request);
        let position = self.debugger.position();
        let Some(call) = self.debugger.tape.next_of(thread, position) else {
            return Ok(json!({ "stackFrames": [], "totalFrames": 0 }));
        };
        let name = self.debugger.call_line(call).unwrap_or_default();
        let stack = self.debugger.frames(call);
        let own = own_frame(&stack);
        let mut frames = vec![self.frame(call, &name, own)];
        for frame in &stack {
            let function = match frame.function.is_empty() {
                true => &frame.module,
                false => &frame.function,
            };
            let function = function.clone();
            frames.push(self.frame(call, &function, Some(frame)));
        }
        let total = frames.len();
        let first = usize::try_from(request.offset("startFrame")).unwrap_or(0);
        let most = usize::try_from(request.offset("levels")).unwrap_or(0);
        let most = if most == 0 { total } else { most };
        let frames: Vec<Value> = frames.into_iter().skip(first).take(most).collect();
        Ok(json!({ "stackFrames": frames, "totalFrames": total }))
    }

    fn frame(&mut self, call: u64, name: &str, place: Option<&Frame>) -> Value {
        self.frames.push(call);
        let id = self.frames.len();
        let mut frame = json!({ "id": id, "name": name, "line": 0, "column": 0 });
        if let Some(place) = place.filter(|place| !place.file.is_empty()) {
            let name = place.file.rsplit('/').next();
            set(
                &mut frame,
                "source",
                json!({ "name": name, "path": place.file }),
            );
            let line = i64::from(place.line) - 1 + self.first_line;
            set(&mut frame, "line", line);
        }
        frame
    }

    pub(super) fn scopes(&mut self, request: &Request) -> Result<Value, String> {
        let frame = usize::try_from(request.number("frameId")? - 1).ok();
        let call = frame.and_then(|frame| self.frames.get(frame).copied());
        let call = call.ok_or("there is no such frame any more")?;
        let mut scope = |name: &str, variables: Variables, is_long: bool| {
            self.variables.push(variables);
            json!({
                "name": name,
                "variablesReference": self.variables.len(),
                "expensive": is_long,
            })
        };
        let mut scopes = vec![scope("Arguments", Variables::Arguments(call), false)];
        let objects = OBJECTS.into_iter();
        scopes.extend(objects.map(|(name, kinds)| scope(name, Variables::Objects(kinds), true)));
        Ok(json!({ "scopes": scopes }))
    }

    pub(super) fn variables(&mut self, request: &Request) -> Result<Value, String> {
        let variables = self.shown(request.number("variablesReference")?)?;
        Ok(json!({ "variables": variables }))
    }

    /// The variables that a reference stands for.
    pub(super) fn shown(&mut self, reference: i64) -> Result<Vec<Value>, String> {
        let known = usize::try_from(reference - 1).ok();
        let known = known.and_then(|at| self.variables.get(at).copied());
        Ok(match known.ok_or("there are no such variables any more")? {
            Variables::Arguments(call) => self.arguments(call),
            Variables::Objects(kinds) => {
                let objects = self.debugger.live_objects(kinds).into_iter();
                objects.map(|object| object_json(&object, kinds)).collect()
            }
        })
    }

    fn arguments(&mut self, call: u64) -> Vec<Value> {
        let Some((found, renderer)) = self.debugger.tape.call(call) else {
            return Vec::new();
        };
        let parts = renderer.render(&found).parts();
        let argument = |(name, value): (String, String)| {
            let mut argument = json!({ "name": name, "value": value, "variablesReference": 0 });
            let first = value.split(' ').next().unwrap_or_default();
            let address = address(first).filter(|&at| renderer.label(Kind::Memory, at).is_some());
            if address.is_some() {
                set(&mut argument, "memoryReference", first);
            }
            argument
        };
        parts.into_iter().map(argument).collect()
    }

    pub(super) fn read_memory(&mut self, request: &Request) -> Result<Value, String> {
        let address = memory(request)?;
        let length = request.number("count")?.clamp(0, MOST);
        let stop = self.debugger.stop(self.debugger.position());
        let length = length.cast_unsigned();
        let bytes = match length {
            0 => Vec::new(),
            length => self.debugger.memory.read(stop, Bytes { address, length })?,
        };
        Ok(json!({
            "address": format!("{address:#x}"),
            "data": STANDARD.encode(&bytes),
            "unreadableBytes": length - bytes.len() as u64,
        }))
    }

    pub(super) fn write_memory(&mut self, request: &Request) -> Result<Value, String> {
        let address = memory(request)?;
        let bytes = STANDARD.decode(request.text("data")?);
        let bytes = bytes.map_err(|error| format!("data: {error}"))?;
        let stop = self.debugger.stop(self.debugger.position());
        self.debugger.memory.write(stop, address, &bytes)?;
        Ok(json!({ "bytesWritten": bytes.len() }))
    }
}

fn object_json(object: &LiveObject, kinds: &[Kind]) -> Value {
    let (call, function) = object.made;
    let handle = format!("{:#x}", object.handle);
    let size = match object.size {
        0 => String::new(),
        size => format!(", {}", count(size, "byte")),
    };
    let mut value = json!({
        "name": object.label,
        "value": format!("{handle}{size}"),
        "type": format!("made by call {call}, {function}"),
        "variablesReference": 0,
    });
    if kinds.contains(&Kind::Memory) {
        set(&mut value, "memoryReference", handle);
    }
    value
}

pub(super) fn address(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// The address that a request is about.
fn memory(request: &Request) -> Result<u64, String> {
    let reference = request.text("memoryReference")?;
    let start = address(reference).or_else(|| reference.parse().ok());
    let start = start.ok_or_else(|| format!("`{}` is no address", reference.escape_debug()))?;
    let address = start.checked_add_signed(request.offset("offset"));
    address.ok_or_else(|| "no memory has such an address".to_owned())
}
