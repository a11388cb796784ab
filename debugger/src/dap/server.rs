//! The requests of a session, and how it moves.

use std::collections::HashMap;

use cutape_registry::Kind;
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::command::completions;
use crate::dap::wire::{Request, set};
use crate::debugger::{Debugger, Stopped};
use crate::script::NO_TERMINAL;

/// An event with its body.
pub(crate) type Event = (&'static str, Value);

/// Where a request moves.
#[derive(Clone, Copy, Debug)]
enum Move {
    Continue(bool),
    /// Back or on, by calls of a thread or of any.
    Step(bool, Option<u32>),
    Finish,
    /// It stays.
    Stay(&'static str),
}

/// What a reference of an editor shows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Variables {
    /// The arguments of a call.
    Arguments(u64),
    /// Live objects.
    Objects(&'static [Kind]),
}

/// A session and what its editor has been given.
pub(crate) struct Server<'t> {
    pub(crate) debugger: Debugger<'t>,
    /// Calls that frames belong to, by the frames' numbers from 1.
    pub(crate) frames: Vec<u64>,
    /// By the numbers of references, from 1.
    pub(crate) variables: Vec<Variables>,
    /// Breakpoints by what set them: functions, filters, source files, data.
    pub(crate) breakpoints: HashMap<String, Vec<u32>>,
    /// The number of the first line of a file: 1, unless the editor counts from 0.
    pub(crate) first_line: i64,
    /// What is to be done after the response.
    next: Option<Move>,
}

/// Threads of the protocol are numbered from 1.
pub(crate) fn thread_id(thread: u32) -> i64 {
    i64::from(thread) + 1
}

impl<'t> Server<'t> {
    pub(crate) fn new(debugger: Debugger<'t>, first_line: i64) -> Self {
        Self {
            debugger,
            frames: Vec::new(),
            variables: Vec::new(),
            breakpoints: HashMap::new(),
            first_line,
            next: None,
        }
    }

    /// The body of the response, or what is wrong; and events after it.
    pub(crate) fn handle(&mut self, request: &Request) -> (Result<Value, String>, Vec<Event>) {
        let mut events = Vec::new();
        let outcome = match &*request.command {
            "setFunctionBreakpoints" => Ok(self.set_function_breakpoints(request)),
            "setBreakpoints" => self.set_source_breakpoints(request),
            "setExceptionBreakpoints" => Ok(self.set_exception_breakpoints(request)),
            "dataBreakpointInfo" => self.data_breakpoint_info(request),
            "setDataBreakpoints" => Ok(self.set_data_breakpoints(request)),
            "configurationDone" => self.moves(Move::Stay("entry"), Value::Null),
            "threads" => Ok(self.threads()),
            "stackTrace" => self.stack_trace(request),
            "scopes" => self.scopes(request),
            "variables" => self.variables(request),
            "readMemory" => self.read_memory(request),
            "writeMemory" => self.write_memory(request),
            "evaluate" => self.evaluate(request),
            "completions" => complete(request),
            "continue" => {
                let body = json!({ "allThreadsContinued": true });
                self.moves(Move::Continue(false), body)
            }
            "reverseContinue" => self.moves(Move::Continue(true), Value::Null),
            "next" => {
                let thread = self.thread_of(request);
                self.moves(Move::Step(false, Some(thread)), Value::Null)
            }
            "stepBack" => {
                let thread = self.thread_of(request);
                self.moves(Move::Step(true, Some(thread)), Value::Null)
            }
            "stepIn" => self.moves(Move::Step(false, None), Value::Null),
            "stepOut" => self.moves(Move::Finish, Value::Null),
            "pause" => self.moves(Move::Stay("pause"), Value::Null),
            "terminate" => {
                events.push(("terminated", Value::Null));
                Ok(Value::Null)
            }
            "disconnect" => Ok(Value::Null),
            command => Err(format!("{command} is not supported")),
        };
        (outcome, events)
    }

    fn moves(&mut self, next: Move, body: Value) -> Result<Value, String> {
        self.next = Some(next);
        Ok(body)
    }

    /// The thread that a request names; else that of the call.
    pub(crate) fn thread_of(&self, request: &Request) -> u32 {
        let named = request.number("threadId").ok();
        let named = named.and_then(|id| u32::try_from(id - 1).ok());
        named.unwrap_or_else(|| self.debugger.thread())
    }

    /// Moves as the last request asked for, after its response; says where it stopped.
    pub(crate) fn go(&mut self) -> Option<Event> {
        let debugger = &mut self.debugger;
        let stopped = match self.next.take()? {
            Move::Continue(is_back) => debugger.resume(is_back),
            Move::Step(is_back, thread) => debugger.step(is_back, thread),
            Move::Finish => debugger.finish(false),
            Move::Stay(why) => return Some(self.stopped(why, None)),
        };
        Some(match stopped {
            Ok(Stopped::Breakpoints(numbers)) => {
                let reason = match self.are_of_filters(&numbers) {
                    true => "exception",
                    false => "breakpoint",
                };
                self.hit(reason, None, &numbers)
            }
            Ok(Stopped::Watchpoint(number, text)) => {
                self.hit("data breakpoint", Some(&text), &[number])
            }
            Ok(Stopped::Moved) => self.stopped("step", None),
            Ok(Stopped::Begin) => self.stopped("step", Some("begin of the trace")),
            Ok(Stopped::End) => self.stopped("step", Some("end of the trace")),
            Err(why) => self.stopped("pause", Some(&why)),
        })
    }

    fn hit(&mut self, reason: &str, description: Option<&str>, numbers: &[u32]) -> Event {
        let (event, mut body) = self.stopped(reason, description);
        set(&mut body, "hitBreakpointIds", json!(numbers));
        (event, body)
    }

    /// What the editor knew of the place before is out of date.
    fn stopped(&mut self, reason: &str, description: Option<&str>) -> Event {
        self.frames.clear();
        self.variables.clear();
        let mut body = json!({
            "reason": reason,
            "threadId": thread_id(self.debugger.thread()),
            "allThreadsStopped": true,
        });
        if let Some(text) = description {
            set(&mut body, "description", text);
            set(&mut body, "text", text);
        }
        ("stopped", body)
    }

    /// Does what a line of the prompt asks for; it may move. What an editor watches is printed.
    fn evaluate(&mut self, request: &Request) -> Result<Value, String> {
        let line = request.text("expression")?;
        let before = self.debugger.position();
        let answer = match request.text("context") {
            Ok("watch" | "hover") => self.debugger.execute(&format!("print {line}"))?,
            _ => self.debugger.execute(line)?,
        };
        if self.debugger.position() != before {
            self.next = Some(Move::Stay("goto"));
        }
        let text = match &answer {
            Answer::Text(text) => text.trim_end(),
            Answer::View(_) => return Err(NO_TERMINAL.to_owned()),
            Answer::Quit => "disconnect to end the session",
        };
        Ok(json!({ "result": text, "variablesReference": 0 }))
    }
}

/// The words of the prompt that a text may go on with.
fn complete(request: &Request) -> Result<Value, String> {
    let text = request.text("text")?;
    let at = usize::try_from(request.number("column")? - 1).unwrap_or(0);
    let before: String = text.chars().take(at).collect();
    let targets = completions(&before).into_iter();
    let targets: Vec<Value> = targets.map(|label| json!({ "label": label })).collect();
    Ok(json!({ "targets": targets }))
}
