//! What the words of the prompt answer, as text.

use std::fmt::Write as _;

use cutape_format::Trace;
use cutape_history::Bytes;
use cutape_registry::Kind;
use cutape_render::Element;
use cutape_render::quantity::count;
use cutape_replay::Stop;
use cutape_symbols::stacks::write_lines;

use crate::command::{Command, Place, Subject, WORDS};
use crate::debugger::{Debugger, Stopped};

/// The most bytes that `print` shows.
const MOST: u64 = 64 << 10;
/// Numbers of a line.
const NUMBERS: usize = 8;
/// Bytes of a line.
const BYTES: usize = 16;
/// Calls that `list` shows before and after.
const AROUND: u64 = 5;

/// An answer to a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Lines of text; empty if there is nothing to say.
    Text(String),
    /// The viewer is to show this call of the trace.
    View(u64),
    /// The session is over.
    Quit,
}

/// Live memory, streams and so on, as `info` shows them.
#[derive(Clone, Debug)]
pub(crate) struct LiveObject {
    /// `memory#3`.
    pub(crate) label: String,
    /// Its address or handle.
    pub(crate) handle: u64,
    /// Bytes; 0 if that is no property of it.
    pub(crate) size: u64,
    /// The call that made it, and its function.
    pub(crate) made: (u64, &'static str),
}

impl Debugger<'_> {
    /// Does what a line asks for.
    ///
    /// # Errors
    /// A line that says what is wrong.
    pub fn execute(&mut self, line: &str) -> Result<Answer, String> {
        let mut text = match Command::parse(line)? {
            Command::Quit => return Ok(Answer::Quit),
            Command::View => return Ok(Answer::View(self.position)),
            Command::Help => help(),
            Command::Continue(is_back) => self.resume(is_back).map(|why| self.moved(&why))?,
            Command::Next(is_back) => {
                let thread = Some(self.thread());
                self.step(is_back, thread).map(|why| self.moved(&why))?
            }
            Command::Step(is_back) => self.step(is_back, None).map(|why| self.moved(&why))?,
            Command::Finish(is_back) => self.finish(is_back).map(|why| self.moved(&why))?,
            Command::Call(call) => self.jump(call).map(|why| self.moved(&why))?,
            Command::Break(set) => {
                let (number, calls) = self.points.add_breakpoint(self.tape.trace(), &set)?;
                format!("breakpoint {number}: {}\n", count(calls, "call"))
            }
            Command::Watch(place) => self.watch(&place)?,
            Command::Delete(number) => match (self.points.delete(number), number) {
                (true, _) => String::new(),
                (false, Some(number)) => return Err(format!("there is no breakpoint {number}")),
                (false, None) => return Err("there are no breakpoints".to_owned()),
            },
            Command::Print(place, is_after) => self.print(&place, is_after)?,
            Command::Backtrace => self.backtrace()?,
            Command::Info(subject) => self.info(subject),
            Command::List => self.list(),
        };
        for note in self.notes.drain(..) {
            let _ = writeln!(text, "not looked at: {note}");
        }
        Ok(Answer::Text(text))
    }

    /// Why it stopped, and where.
    pub(crate) fn moved(&mut self, why: &Stopped) -> String {
        let why = match why {
            Stopped::Breakpoints(numbers) => {
                let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
                format!("breakpoint {}\n", numbers.join(", "))
            }
            Stopped::Watchpoint(number, text) => format!("watchpoint {number}: {text}\n"),
            Stopped::Moved | Stopped::Begin | Stopped::End => String::new(),
        };
        let position = self.position;
        match self.call_line(position) {
            Some(line) => format!("{why}{line}\n"),
            None => format!("{why}end of the trace, after {}\n", count(position, "call")),
        }
    }

    /// A call in one line, with the result that it had in the recording.
    pub(crate) fn call_line(&mut self, call: u64) -> Option<String> {
        let (call, renderer) = self.tape.call(call)?;
        let rendered = renderer.render(&call);
        let mut text = format!("#{} @{} {}(", call.index, call.thread, call.signature.name);
        rendered.write_arguments(&mut text);
        text.push(')');
        match (call.result(), rendered.result) {
            (None, _) => text.push_str(" = ? (did not return)"),
            (Some(_), Some(name)) => text.push_str(&format!(" = {name}")),
            (Some(code), None) => text.push_str(&format!(" = {code}")),
        }
        Some(text)
    }

    fn watch(&mut self, place: &Place) -> Result<String, String> {
        let (number, Bytes { address, length }) = self.add_watchpoint(place)?;
        let bytes = count(length, "byte");
        Ok(format!("watchpoint {number}: {address:#x}, {bytes}\n"))
    }

    fn print(&mut self, place: &Place, is_after: bool) -> Result<String, String> {
        let position = self.position;
        let is_after = is_after && position < self.tape.len();
        let (bytes, element) = (self.bytes(place, is_after)?, place.element);
        if bytes.length > MOST {
            let most = count(MOST, "byte");
            return Err(format!("{}: print shows at most {most}", place.text));
        }
        let stop = match is_after {
            true => Stop {
                call: position,
                is_after,
            },
            false => self.stop(position),
        };
        let read = self.memory.read(stop, bytes)?;
        let address = bytes.address;
        let known = self.tape.before(position + u64::from(is_after));
        let label = known.label(Kind::Memory, address);
        let size = count(read.len() as u64, "byte");
        let place = match label {
            Some(label) => format!("{label} ({address:#x}, {size})"),
            None => format!("{address:#x}, {size}"),
        };
        let when = match (is_after, position < self.tape.len()) {
            (true, _) => format!("after call {position}"),
            (false, true) => format!("before call {position}"),
            (false, false) => "at the end".to_owned(),
        };
        let mut text = format!("{place}, {when}\n");
        write_numbers(&read, element, &mut text);
        if self.memory.divergences() > 0 {
            let divergences = count(self.memory.divergences(), "divergence");
            let _ = writeln!(text, "the replay differs from the recording: {divergences}");
        }
        Ok(text)
    }

    fn backtrace(&mut self) -> Result<String, String> {
        let position = self.position;
        let frames = self.frames(position);
        let mut text = String::new();
        write_lines(&frames, "", &mut text);
        if !frames.is_empty() {
            return Ok(text);
        }
        let trace = self.tape.trace();
        let Some((call, _)) = self.tape.call(position) else {
            return Err("this is the end of the trace".to_owned());
        };
        let symbol = trace.symbol(call.caller).map(str::to_owned);
        let caller = symbol.or_else(|| self.resolver.resolve(trace, call.caller));
        let caller = caller.unwrap_or_else(|| format!("{:#x}", call.caller));
        Ok(format!("#0 {caller}\n{}", no_stack(trace)))
    }

    fn list(&mut self) -> String {
        let position = self.position;
        let mut text = String::new();
        let calls = position.saturating_sub(AROUND)..=position + AROUND;
        for call in calls {
            let Some(line) = self.call_line(call) else {
                break;
            };
            let mark = if call == position { "->" } else { "  " };
            let _ = writeln!(text, "{mark} {line}");
        }
        if position >= self.tape.len() {
            text.push_str("-> end of the trace\n");
        }
        text
    }

    fn info(&mut self, subject: Subject) -> String {
        let (text, what) = match subject {
            Subject::Breakpoints => (self.points.list(), "breakpoints"),
            Subject::Memory => {
                let kinds = &[Kind::Memory, Kind::HostMemory, Kind::Reservation];
                (self.objects_text(kinds), "memory")
            }
            Subject::Streams => (self.objects_text(&[Kind::Stream]), "streams"),
            Subject::Modules => {
                let kinds = &[Kind::Module, Kind::Library];
                (self.objects_text(kinds), "modules")
            }
            Subject::Graphs => {
                let kinds = &[Kind::Graph, Kind::GraphExec];
                (self.objects_text(kinds), "graphs")
            }
            Subject::Threads => (self.threads_text(), "threads"),
            Subject::Ranges => (self.ranges_text(), "ranges"),
        };
        match text.is_empty() {
            true => format!("no {what}\n"),
            false => text,
        }
    }

    /// The live objects of some kinds before the call.
    pub(crate) fn live_objects(&mut self, kinds: &[Kind]) -> Vec<LiveObject> {
        let renderer = self.tape.before(self.position);
        let mut found = Vec::new();
        for &kind in kinds {
            for id in renderer.state.state.objects.all_live(kind) {
                let objects = &renderer.state.state.objects;
                let (Some(object), None) = (objects.get(id), objects.end_of(id)) else {
                    continue;
                };
                let label = renderer.label(kind, object.handle);
                found.push(LiveObject {
                    label: label.unwrap_or_else(|| kind.key().to_owned()),
                    handle: object.handle,
                    size: object.size,
                    made: (object.created.index, object.created.function),
                });
            }
        }
        found
    }

    fn objects_text(&mut self, kinds: &[Kind]) -> String {
        let mut text = String::new();
        for object in self.live_objects(kinds) {
            let LiveObject {
                label,
                handle,
                size,
                made: (call, function),
            } = object;
            let size = match size {
                0 => String::new(),
                size => format!("{}, ", count(size, "byte")),
            };
            let _ = writeln!(text, "{label} {handle:#x}, {size}call {call} {function}");
        }
        text
    }

    /// Each thread with its next call.
    fn threads_text(&mut self) -> String {
        let (own, position) = (self.thread(), self.position);
        let mut text = String::new();
        for (number, name) in self.threads() {
            let mark = if number == own { "->" } else { "  " };
            let next = self.tape.next_of(number, position);
            let next = next.and_then(|call| self.call_line(call));
            let next = next.unwrap_or_else(|| "no more calls".to_owned());
            let _ = writeln!(text, "{mark} thread {number}{name}: {next}");
        }
        text
    }

    /// The recorded threads that make calls, with their names.
    pub(crate) fn threads(&self) -> Vec<(u32, String)> {
        let threads = (0u32..).zip(self.tape.trace().threads());
        let threads = threads.filter(|&(number, _)| self.tape.next_of(number, 0).is_some());
        let name = |name: String| match name.is_empty() {
            true => name,
            false => format!(" {}", name.escape_debug()),
        };
        threads
            .map(|(number, thread)| (number, name(thread.name)))
            .collect()
    }

    fn ranges_text(&self) -> String {
        let ranges = self.ranges_around().into_iter();
        let paths = ranges.map(|at| format!("{}\n", self.markers.path(at).escape_debug()));
        paths.collect()
    }
}

fn no_stack(trace: &Trace) -> &'static str {
    match trace.has_stacks() {
        true => "the recording has no further frames of this call\n",
        false => "the trace has no call stacks; `record --stacks=all` takes them\n",
    }
}

/// Numbers, or bytes in hexadecimal, in lines with their offset.
fn write_numbers(bytes: &[u8], element: Option<&Element>, out: &mut String) {
    let line = element.map_or(BYTES, |element| NUMBERS * element.bytes as usize);
    for (number, chunk) in bytes.chunks(line).enumerate() {
        let text = match element {
            Some(element) => element.text(chunk),
            None => {
                let bytes: Vec<String> = chunk.iter().map(|byte| format!("{byte:02x}")).collect();
                bytes.join(" ")
            }
        };
        let _ = writeln!(out, "  +{}: {text}", number * line);
    }
}

fn help() -> String {
    let mut text = String::new();
    for word in &WORDS {
        let names: Vec<&str> = [word.name]
            .into_iter()
            .chain(word.short.iter().copied())
            .collect();
        let names = format!("{} {}", names.join(", "), word.arguments);
        let _ = writeln!(text, "{:<34} {}", names.trim_end(), word.help);
    }
    text.push_str("docs/debug.md describes them, docs/calls.md the sets of calls\n");
    text
}
