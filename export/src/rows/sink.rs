//! What takes rows.

use std::collections::HashMap;

use cutape_analyzer::FindingKey;

use super::row::{
    CallRow, CopyRow, EventRecordRow, FindingRow, GraphKernelRow, GraphLaunchRow, HostFunctionRow,
    ImageRow, ImageUseRow, LaunchRow, MemoryRow, ObjectRow, RangeRow, TraceRow, WaitRow,
};

/// Which of the rows that cost time a sink takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wants {
    /// Waits.
    pub waits: bool,
    /// The streams that launches and copies name; without them they have `None`.
    pub streams: bool,
    /// Objects whose life ends before the end of the trace.
    pub ended_objects: bool,
}

impl Wants {
    /// All of them.
    pub const ALL: Self = Self {
        waits: true,
        streams: true,
        ended_objects: true,
    };
    /// None of them.
    pub const NONE: Self = Self {
        waits: false,
        streams: false,
        ended_objects: false,
    };
}

/// Takes rows. A method that is not implemented ignores its rows, and an error ends the pass.
///
/// First comes the trace, then its ranges, then call by call in the order of the trace: the call,
/// what it does, what it changes, what is wrong with it; at the end objects that still live, and
/// findings about what is missing. An object comes when its life has ended.
pub trait Sink {
    /// The error of the sink, which also carries those of reading.
    type Error: From<cutape_format::Error>;

    /// What it takes.
    const WANTS: Wants = Wants::ALL;

    /// The trace itself.
    fn trace(&mut self, _row: &TraceRow) -> Result<(), Self::Error> {
        Ok(())
    }

    /// A range or a mark.
    fn range(&mut self, _row: &RangeRow<'_>) -> Result<(), Self::Error> {
        Ok(())
    }

    /// A call.
    fn call(&mut self, _row: &CallRow<'_>) -> Result<(), Self::Error> {
        Ok(())
    }

    /// An image that no earlier call used.
    fn image(&mut self, _row: &ImageRow) -> Result<(), Self::Error> {
        Ok(())
    }

    /// A call uses an image.
    fn image_use(&mut self, _row: &ImageUseRow<'_>) -> Result<(), Self::Error> {
        Ok(())
    }

    /// A kernel that a call launches.
    fn launch(&mut self, _row: &LaunchRow<'_>) -> Result<(), Self::Error> {
        Ok(())
    }

    /// A launch of a graph.
    fn graph_launch(&mut self, _row: &GraphLaunchRow) -> Result<(), Self::Error> {
        Ok(())
    }

    /// A kernel that the launch of a graph runs, after the row of that launch.
    fn graph_kernel(&mut self, _row: &GraphKernelRow<'_>) -> Result<(), Self::Error> {
        Ok(())
    }

    /// A copy or a memset.
    fn copy(&mut self, _row: &CopyRow) -> Result<(), Self::Error> {
        Ok(())
    }

    /// A record of an event.
    fn event_record(&mut self, _row: &EventRecordRow) -> Result<(), Self::Error> {
        Ok(())
    }

    /// A function of the program that a stream calls.
    fn host_function(&mut self, _row: &HostFunctionRow) -> Result<(), Self::Error> {
        Ok(())
    }

    /// A wait.
    fn wait(&mut self, _row: &WaitRow) -> Result<(), Self::Error> {
        Ok(())
    }

    /// A change of the allocated memory.
    fn memory(&mut self, _row: &MemoryRow) -> Result<(), Self::Error> {
        Ok(())
    }

    /// An object whose life has ended, or that lives at the end of the trace.
    fn object(&mut self, _row: &ObjectRow<'_>) -> Result<(), Self::Error> {
        Ok(())
    }

    /// A finding; only if the pass was asked for them.
    fn finding(&mut self, _row: &FindingRow<'_>) -> Result<(), Self::Error> {
        Ok(())
    }

    /// After the findings: how many more there were with these keys.
    fn repeats(&mut self, _repeats: HashMap<FindingKey, u64>) -> Result<(), Self::Error> {
        Ok(())
    }
}
