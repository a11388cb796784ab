//! What an editor asks for before there is a session.

use std::io::{self, BufRead, Write};

use serde_json::{Value, json};

use crate::dap::server::Server;
use crate::dap::wire::{Request, Wire};
use crate::debugger::Debugger;

/// An editor.
pub struct Connection<'a> {
    wire: Wire<'a>,
    /// The number of the first line of a file.
    first_line: i64,
}

/// A request for a session.
#[derive(Debug)]
pub struct Launch {
    request: Request,
    /// The trace, if the editor names one.
    pub trace: Option<String>,
}

impl<'a> Connection<'a> {
    /// On these streams.
    pub fn new(input: &'a mut dyn BufRead, output: &'a mut dyn Write) -> Self {
        Self {
            wire: Wire::new(input, output),
            first_line: 1,
        }
    }

    /// Answers requests until there is one for a session; `None` if the editor leaves.
    ///
    /// # Errors
    /// The streams fail, or what comes is no message.
    pub fn launch(&mut self) -> io::Result<Option<Launch>> {
        while let Some(request) = self.wire.read()? {
            let outcome = match &*request.command {
                "initialize" => {
                    let starts_at_1 = request.arguments.get("linesStartAt1");
                    self.first_line = i64::from(starts_at_1 != Some(&json!(false)));
                    Ok(capabilities())
                }
                "launch" => {
                    let trace = request.text("trace").ok().map(str::to_owned);
                    return Ok(Some(Launch { request, trace }));
                }
                "disconnect" | "terminate" => {
                    self.wire.respond(&request, Ok(Value::Null))?;
                    return Ok(None);
                }
                "attach" => Err("a trace has ended: use launch with `trace`".to_owned()),
                command => Err(format!("{command} before launch")),
            };
            self.wire.respond(&request, outcome)?;
        }
        Ok(None)
    }

    /// There is no session, for that reason.
    ///
    /// # Errors
    /// The streams fail.
    pub fn refuse(&mut self, launch: &Launch, why: &str) -> io::Result<()> {
        self.wire.respond(&launch.request, Err(why.to_owned()))
    }

    /// Answers requests until the editor leaves.
    ///
    /// # Errors
    /// The streams fail, or what comes is no message.
    pub fn run(&mut self, launch: &Launch, debugger: Debugger<'_>) -> io::Result<()> {
        self.wire.respond(&launch.request, Ok(Value::Null))?;
        self.wire.event("initialized", Value::Null)?;
        let mut server = Server::new(debugger, self.first_line);
        while let Some(request) = self.wire.read()? {
            let (outcome, events) = server.handle(&request);
            self.wire.respond(&request, outcome)?;
            for (event, body) in events {
                self.wire.event(event, body)?;
            }
            if let Some((event, body)) = server.go() {
                self.wire.event(event, body)?;
            }
            if request.command == "disconnect" {
                break;
            }
        }
        Ok(())
    }
}

fn capabilities() -> Value {
    json!({
        "supportsConfigurationDoneRequest": true,
        "supportsFunctionBreakpoints": true,
        "supportsDataBreakpoints": true,
        "supportsDataBreakpointBytes": true,
        "supportsStepBack": true,
        "supportsReadMemoryRequest": true,
        "supportsWriteMemoryRequest": true,
        "supportsEvaluateForHovers": false,
        "supportsCompletionsRequest": true,
        "supportsTerminateRequest": true,
        "exceptionBreakpointFilters": [
            { "filter": "failed", "label": "Calls that fail", "default": false },
        ],
    })
}
