//! Breakpoints of an editor: functions and kernels, lines of source, calls that fail.

use serde_json::{Value, json};

use crate::dap::server::Server;
use crate::dap::wire::Request;

impl Server<'_> {
    pub(super) fn set_function_breakpoints(&mut self, request: &Request) -> Value {
        let sets = request.list("breakpoints").iter();
        let sets = sets.filter_map(|wanted| wanted.get("name")?.as_str());
        self.set("functions", sets.map(str::to_owned).collect())
    }

    pub(super) fn set_exception_breakpoints(&mut self, request: &Request) -> Value {
        let filters = request.list("filters").iter().filter_map(Value::as_str);
        self.set("filters", filters.map(str::to_owned).collect())
    }

    /// A line of source is one whose function is in the call's stack.
    pub(super) fn set_source_breakpoints(&mut self, request: &Request) -> Result<Value, String> {
        let path = request.arguments.pointer("/source/path");
        let path = path.and_then(Value::as_str);
        let path = path.ok_or("setBreakpoints needs a source with a path")?;
        let lines = request.list("breakpoints").iter();
        let lines = lines.filter_map(|wanted| wanted.get("line")?.as_u64());
        let sets = lines.map(|line| format!("stack:\"{path}:{line}\""));
        Ok(self.set(&format!("source {path}"), sets.collect()))
    }

    /// Replaces the breakpoints of one origin.
    fn set(&mut self, origin: &str, sets: Vec<String>) -> Value {
        let points = &mut self.debugger.points;
        for number in self.breakpoints.remove(origin).unwrap_or_default() {
            points.delete(Some(number));
        }
        let trace = self.debugger.tape.trace();
        let mut numbers = Vec::new();
        let answers = sets
            .iter()
            .map(|set| match points.add_breakpoint(trace, set) {
                Ok((number, _)) => {
                    numbers.push(number);
                    json!({ "id": number, "verified": true })
                }
                Err(why) => json!({ "verified": false, "message": why }),
            });
        let answers: Vec<Value> = answers.collect();
        self.breakpoints.insert(origin.to_owned(), numbers);
        json!({ "breakpoints": answers })
    }
}
