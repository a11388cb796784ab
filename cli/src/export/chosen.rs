//! `cutape export --calls`: passes on the rows of chosen calls.

use std::collections::{BTreeSet, HashMap};

use cutape_analyzer::FindingKey;
use cutape_export::rows::{
    CallRow, CopyRow, FindingRow, GraphKernelRow, GraphLaunchRow, ImageRow, LaunchRow, MemoryRow,
    ObjectRow, RangeRow, Sink, TraceRow, WaitRow,
};

/// Drops the rows of calls that are not chosen. The trace, its ranges, and the images and objects
/// that calls may refer to are passed on.
pub(super) struct Chosen<'s, S> {
    pub(super) sink: &'s mut S,
    pub(super) calls: BTreeSet<u64>,
}

/// Methods that pass on the rows of chosen calls.
macro_rules! of_calls {
    ($($method:ident($kind:ty) = |$row:ident| $call:expr;)*) => {$(
        fn $method(&mut self, $row: &$kind) -> Result<(), S::Error> {
            match self.calls.contains(&$call.index) {
                true => self.sink.$method($row),
                false => Ok(()),
            }
        }
    )*};
}

impl<S: Sink> Sink for Chosen<'_, S> {
    type Error = S::Error;

    fn trace(&mut self, row: &TraceRow) -> Result<(), S::Error> {
        self.sink.trace(row)
    }

    fn range(&mut self, row: &RangeRow<'_>) -> Result<(), S::Error> {
        self.sink.range(row)
    }

    fn image(&mut self, row: &ImageRow) -> Result<(), S::Error> {
        self.sink.image(row)
    }

    fn object(&mut self, row: &ObjectRow<'_>) -> Result<(), S::Error> {
        self.sink.object(row)
    }

    of_calls! {
        call(CallRow<'_>) = |row| row.call;
        launch(LaunchRow<'_>) = |row| row.call;
        graph_launch(GraphLaunchRow) = |row| row.call;
        graph_kernel(GraphKernelRow<'_>) = |row| row.launch.call;
        copy(CopyRow) = |row| row.call;
        wait(WaitRow) = |row| row.call;
        memory(MemoryRow) = |row| row.call;
    }

    fn finding(&mut self, row: &FindingRow<'_>) -> Result<(), S::Error> {
        let mut objects = row.finding.objects.iter();
        let is_chosen = match row.call {
            Some(call) => self.calls.contains(&call.index),
            None => objects.any(|object| self.calls.contains(&object.created_call)),
        };
        match is_chosen {
            true => self.sink.finding(row),
            false => Ok(()),
        }
    }

    fn repeats(&mut self, repeats: HashMap<FindingKey, u64>) -> Result<(), S::Error> {
        self.sink.repeats(repeats)
    }
}
