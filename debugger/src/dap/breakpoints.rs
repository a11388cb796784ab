//! Breakpoints of an editor: functions and kernels, lines of source, calls that fail, and memory.

use serde_json::{Value, json};

use crate::command::Command;
use crate::dap::inspect::{MEMORY, address};
use crate::dap::server::Server;
use crate::dap::wire::{Request, member, set};
use crate::debugger::Debugger;

/// What sets the breakpoints on calls that fail.
const FILTERS: &str = "filters";

impl Server<'_> {
    pub(super) fn set_function_breakpoints(&mut self, request: &Request) -> Value {
        let sets = request.list("breakpoints").iter();
        let sets = sets.map(|wanted| Ok(member(wanted, "name")?.to_owned()));
        answered(self.set("functions", sets.collect(), add_breakpoint))
    }

    pub(super) fn set_exception_breakpoints(&mut self, request: &Request) -> Value {
        let filters = request.list("filters").iter();
        let filters = filters.map(|filter| match filter.as_str() {
            Some("failed") => Ok("failed".to_owned()),
            _ => Err(format!("no filter is called {filter}")),
        });
        answered(self.set(FILTERS, filters.collect(), add_breakpoint))
    }

    /// A line of source is one whose function is in the call's stack.
    pub(super) fn set_source_breakpoints(&mut self, request: &Request) -> Result<Value, String> {
        let path = request.arguments.pointer("/source/path");
        let path = path.and_then(Value::as_str);
        let path = path.ok_or("setBreakpoints needs a source with a path")?;
        let lines = request.list("breakpoints").iter();
        let lines: Vec<Option<i64>> = lines
            .map(|wanted| wanted.get("line").and_then(Value::as_i64))
            .collect();
        let sets = lines.iter().map(|line| {
            let line = line.ok_or("a breakpoint needs `line`, a number")?;
            Ok(format!("stack:\"{path}:{}\"", line + 1 - self.first_line))
        });
        let sets = sets.collect();
        let mut answers = self.set(&format!("source {path}"), sets, add_breakpoint);
        for (answer, line) in answers.iter_mut().zip(lines) {
            set(answer, "line", line);
        }
        Ok(answered(answers))
    }

    pub(super) fn set_data_breakpoints(&mut self, request: &Request) -> Value {
        let wanted = request.list("breakpoints").iter();
        let wanted = wanted.map(|wanted| match wanted.get("accessType") {
            Some(kind) if kind != "write" => {
                Err(format!("memory is watched for write, not {kind}"))
            }
            _ => Ok(member(wanted, "dataId")?.to_owned()),
        });
        answered(self.set("data", wanted.collect(), add_watchpoint))
    }

    /// What `watch` takes, for a variable or the bytes that a text names.
    pub(super) fn data_breakpoint_info(&mut self, request: &Request) -> Result<Value, String> {
        let name = request.text("name")?;
        let length = request.number("bytes").ok();
        let place = match request.number("variablesReference") {
            Ok(reference) => self.variable_place(reference, name, length),
            Err(_) => Ok(match length {
                Some(length) => format!("{name}+{length}"),
                None => name.to_owned(),
            }),
        };
        let found = place.and_then(|text| {
            let place = Command::parse_place(&text)?;
            let bytes = self.debugger.bytes(&place, false)?;
            Ok((text, bytes))
        });
        Ok(match found {
            Ok((text, bytes)) => json!({
                "dataId": text,
                "description": format!("{name}: {:#x}, {} bytes", bytes.address, bytes.length),
                "accessTypes": ["write"],
            }),
            Err(why) => json!({ "dataId": null, "description": why }),
        })
    }

    /// The memory from where a variable points, up to its end if no number of bytes is given.
    fn variable_place(
        &mut self,
        reference: i64,
        name: &str,
        length: Option<i64>,
    ) -> Result<String, String> {
        let shown = self.shown(reference)?;
        let named = shown.iter().find(|variable| variable["name"] == name);
        let start = named.and_then(|variable| address(variable["memoryReference"].as_str()?));
        let start = start.ok_or_else(|| format!("{name} does not point into memory"))?;
        let length = match length {
            Some(length) => length.cast_unsigned(),
            None => self.end_of_memory(start)? - start,
        };
        Ok(format!("{start:#x}+{length}"))
    }

    fn end_of_memory(&mut self, address: u64) -> Result<u64, String> {
        let objects = self.debugger.live_objects(MEMORY).into_iter();
        let mut ends = objects.filter_map(|object| {
            let end = object.handle.saturating_add(object.size);
            (object.handle..end).contains(&address).then_some(end)
        });
        ends.next()
            .ok_or_else(|| format!("no memory lies at {address:#x}"))
    }

    /// Whether all of these breakpoints are on calls that fail.
    pub(super) fn are_of_filters(&self, numbers: &[u32]) -> bool {
        let filters = self.breakpoints.get(FILTERS);
        filters.is_some_and(|filters| numbers.iter().all(|number| filters.contains(number)))
    }

    /// Replaces the breakpoints of one origin; one answer for each.
    fn set(
        &mut self,
        origin: &str,
        wanted: Vec<Result<String, String>>,
        add: fn(&mut Debugger<'_>, &str) -> Result<u32, String>,
    ) -> Vec<Value> {
        for number in self.breakpoints.remove(origin).unwrap_or_default() {
            self.debugger.points.delete(Some(number));
        }
        let mut numbers = Vec::new();
        let answers = wanted.into_iter().map(|text| {
            match text.and_then(|text| add(&mut self.debugger, &text)) {
                Ok(number) => {
                    numbers.push(number);
                    json!({ "id": number, "verified": true })
                }
                Err(why) => json!({ "verified": false, "message": why }),
            }
        });
        let answers = answers.collect();
        self.breakpoints.insert(origin.to_owned(), numbers);
        answers
    }
}

fn answered(answers: Vec<Value>) -> Value {
    json!({ "breakpoints": answers })
}

fn add_breakpoint(debugger: &mut Debugger<'_>, set: &str) -> Result<u32, String> {
    let trace = debugger.tape.trace();
    let (number, _) = debugger.points.add_breakpoint(trace, set)?;
    Ok(number)
}

fn add_watchpoint(debugger: &mut Debugger<'_>, text: &str) -> Result<u32, String> {
    let (number, _) = debugger.add_watchpoint(&Command::parse_place(text)?)?;
    Ok(number)
}
