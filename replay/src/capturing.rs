//! Work that the program captured into a graph: it must not run while graphs are not re-made.

use std::collections::HashMap;

use cutape_format::Call;
use cutape_registry::{Function, Kind, Role};

use crate::frame::Skip;
use crate::interpret::Player;

/// Which streams and events belong to a capture, by recorded handle; the value is the stream that it began on.
#[derive(Debug, Default)]
pub(crate) struct Capturing {
    streams: HashMap<u64, u64>,
    events: HashMap<u64, u64>,
}

impl Capturing {
    fn end(&mut self, origin: u64) {
        self.streams.retain(|_, of| *of != origin);
        self.events.retain(|_, of| *of != origin);
    }
}

const CAPTURED: &str = "captured into a graph, and graphs are not re-issued yet";

impl<'t> Player<'t> {
    /// Follows captures; refuses calls that were captured.
    pub(crate) fn watch_capture(&mut self, call: &Call<'t>, function: &'static Function) -> Result<(), Skip> {
        let stream = function.stream.map(|position| call.argument(usize::from(position)));
        match (function.base, stream) {
            ("cuStreamBeginCapture" | "cuStreamBeginCaptureToGraph", Some(stream)) => {
                if call.succeeded() {
                    self.capturing.streams.insert(stream, stream);
                }
                return Ok(());
            }
            ("cuStreamEndCapture", Some(stream)) => {
                self.capturing.end(stream);
                return Ok(());
            }
            _ if self.capturing.streams.is_empty() => return Ok(()),
            _ => {}
        }
        let stream = stream
            .or_else(|| config_stream(call, function))
            .or_else(|| call.argument_named("hStream").filter(|_| function.base == "cuStreamIsCapturing"));
        let event = function
            .params
            .iter()
            .position(|param| param.role == Role::Use(Kind::Event))
            .map(|position| call.argument(position));
        let origin = stream.and_then(|stream| self.capturing.streams.get(&stream).copied());
        match (function.base, origin, event) {
            ("cuEventRecord" | "cuEventRecordWithFlags", Some(origin), Some(event)) => {
                self.capturing.events.insert(event, origin);
            }
            ("cuStreamWaitEvent", None, Some(event)) => {
                let Some(&origin) = self.capturing.events.get(&event) else { return Ok(()) };
                if call.succeeded() {
                    self.capturing.streams.extend(stream.map(|stream| (stream, origin)));
                }
                return Err(Skip::because(CAPTURED));
            }
            ("cuEventRecord" | "cuEventRecordWithFlags", None, Some(event)) => {
                self.capturing.events.remove(&event);
            }
            _ => {}
        }
        match origin {
            Some(_) => Err(Skip::because(CAPTURED)),
            None => Ok(()),
        }
    }
}

/// The stream in a launch configuration.
fn config_stream(call: &Call, function: &Function) -> Option<u64> {
    if function.base != "cuLaunchKernelEx" {
        return None;
    }
    let config = call.capture(0, cutape_format::layout::field::POINTEE)?.bytes.inline()?;
    config.get(32..40).map(crate::buffer::number)
}
