//! Turns rows into cells, in the order of the columns.

use std::io;
use std::sync::Arc;

use cutape_model::Side;
use cutape_profile::{Bound, Precision, Roofline};
use serde_json::{Map, Value};

use super::schema::{TABLES, Table, Type, number};
use crate::replayed::ReplayedCalls;
use crate::rows::{
    CallRef, CallRow, CopyRow, FindingRow, GraphKernelRow, GraphLaunchRow, ImageRow, LaunchRow,
    MemoryRow, ObjectRow, RangeRow, Sink, StreamRef, TraceRow, WaitRow, origin_key,
};
use crate::{Error, Replayed};

/// How many elements of arrays and bytes of blocks the column of arguments has.
const ELEMENTS: usize = 64;

/// A value of a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    /// Not known, or not there.
    Null,
    /// A number; of an unsigned one the same 64 bits.
    Integer(i64),
    /// A floating-point number.
    Number(f64),
    /// True or false.
    Boolean(bool),
    /// A text.
    Text(&'a str),
}

impl Cell<'_> {
    /// Whether a column of that type can hold it.
    fn is_of(self, kind: Type) -> bool {
        match self {
            Self::Null => true,
            Self::Integer(_) => matches!(kind, Type::Integer | Type::Distinct),
            Self::Number(_) => kind == Type::Number,
            Self::Boolean(_) => kind == Type::Boolean,
            Self::Text(_) => kind == Type::Text,
        }
    }
}

impl From<u64> for Cell<'_> {
    fn from(number: u64) -> Self {
        Self::Integer(number.cast_signed())
    }
}

impl From<u32> for Cell<'_> {
    fn from(number: u32) -> Self {
        Self::Integer(number.into())
    }
}

impl From<i32> for Cell<'_> {
    fn from(number: i32) -> Self {
        Self::Integer(number.into())
    }
}

impl From<i64> for Cell<'_> {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<f64> for Cell<'_> {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for Cell<'_> {
    fn from(flag: bool) -> Self {
        Self::Boolean(flag)
    }
}

impl<'a> From<&'a str> for Cell<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a String> for Cell<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(text)
    }
}

impl<'a, T: Into<Cell<'a>>> From<Option<T>> for Cell<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// Takes the records of tables.
pub trait TableWriter {
    /// The records that follow are of this trace.
    ///
    /// # Errors
    /// If writing fails.
    fn begin(&mut self, trace: &TraceRow) -> io::Result<()>;

    /// Whether it takes records of the table of that number; others are not made.
    fn wants(&self, _table: usize) -> bool {
        true
    }

    /// A record of the table of that number in [`super::TABLES`].
    ///
    /// # Errors
    /// If writing fails.
    fn record(&mut self, table: usize, cells: &[Cell<'_>]) -> io::Result<()>;
}

/// The cells of x, y and z.
fn size(sizes: Option<[u32; 3]>) -> [Cell<'static>; 3] {
    let [x, y, z] = sizes.map_or([None; 3], |sizes| sizes.map(Some));
    [x.into(), y.into(), z.into()]
}

/// Writes rows as records of tables.
#[derive(Debug)]
pub struct TableSink<W> {
    writer: W,
    arguments: bool,
    replayed: Option<ReplayedCalls>,
    /// The trace's name without `.cutape`.
    trace: String,
}

impl<W: TableWriter> TableSink<W> {
    /// A sink into that writer; `arguments` says whether to decode the arguments of calls.
    pub fn new(writer: W, arguments: bool) -> Self {
        Self {
            writer,
            arguments,
            replayed: None,
            trace: String::new(),
        }
    }

    /// Adds the times of the GPU. The rows are then those of one trace.
    pub fn with_replay(self, replayed: Option<Arc<Replayed>>) -> Self {
        let replayed = replayed.map(ReplayedCalls::new);
        Self { replayed, ..self }
    }

    /// The writer, after the rows of all traces.
    ///
    /// # Errors
    /// If writing fails.
    pub fn finish(mut self) -> Result<W, Error> {
        if let Some(replayed) = self.replayed.take() {
            self.gpu_work(&replayed)?;
            self.gpu_counters(&replayed)?;
        }
        Ok(self.writer)
    }

    fn gpu_work(&mut self, replayed: &ReplayedCalls) -> Result<(), Error> {
        if !self.writer.wants(number::GPU_WORK) {
            return Ok(());
        }
        let profile = &replayed.replayed.profile;
        for work in replayed.work() {
            let facts = work.call.and_then(|call| profile.calls.get(&call));
            let stream = profile.stream(work.stream);
            let begin: [Cell<'_>; 12] = [
                work.call.into(),
                work.kind.word().into(),
                (&work.name).into(),
                work.begin_ns.into(),
                work.end_ns.into(),
                work.lasted().into(),
                work.device.into(),
                work.stream.into(),
                (&stream).into(),
                work.node.into(),
                facts.and_then(|facts| facts.range.as_ref()).into(),
                work.bytes.into(),
            ];
            let end = [work.registers.into(), work.shared_bytes.into()];
            let cells = [&begin[..], &size(work.grid), &size(work.block), &end];
            self.record(number::GPU_WORK, &cells)?;
        }
        Ok(())
    }

    fn gpu_counters(&mut self, replayed: &ReplayedCalls) -> Result<(), Error> {
        if !self.writer.wants(number::GPU_COUNTERS) {
            return Ok(());
        }
        for kernel in replayed.counters() {
            let roofline = kernel.roofline.as_ref();
            let of = |value: fn(&Roofline) -> f64| roofline.map(value);
            let stalls = kernel.stalls.iter();
            let mut stalled = stalls.clone().filter(|stall| !stall.is_issue());
            let most = stalled.next();
            let stalls: Map<String, Value> = stalls
                .map(|stall| (stall.reason.clone(), stall.share.into()))
                .collect();
            let stalls = (!stalls.is_empty()).then(|| Value::Object(stalls).to_string());
            let begin = [
                kernel.call.into(),
                (&kernel.name).into(),
                kernel.device.into(),
            ];
            let end: [Cell<'_>; 22] = [
                kernel.passes.into(),
                kernel.duration_ns.into(),
                kernel.sm_share.into(),
                kernel.memory_share.into(),
                kernel.dram_share.into(),
                kernel.l1_hit_rate.into(),
                kernel.l2_hit_rate.into(),
                kernel.occupancy.into(),
                kernel.occupancy_limit.into(),
                roofline
                    .and_then(|roofline| roofline.precision.map(Precision::word))
                    .into(),
                of(|roofline| roofline.flops).into(),
                of(|roofline| roofline.flops_per_second).into(),
                roofline
                    .and_then(|roofline| roofline.peak_flops_per_second)
                    .into(),
                of(|roofline| roofline.bytes).into(),
                of(|roofline| roofline.bytes_per_second).into(),
                roofline
                    .and_then(|roofline| roofline.peak_bytes_per_second)
                    .into(),
                roofline.and_then(|roofline| roofline.intensity).into(),
                roofline
                    .and_then(|roofline| roofline.bound.map(Bound::word))
                    .into(),
                roofline.and_then(|roofline| roofline.roof_share).into(),
                most.map(|stall| &stall.reason).into(),
                most.map(|stall| stall.share).into(),
                stalls.as_ref().into(),
            ];
            let cells = [&begin[..], &size(kernel.grid), &size(kernel.block), &end];
            self.record(number::GPU_COUNTERS, &cells)?;
        }
        Ok(())
    }

    fn record(&mut self, table: usize, groups: &[&[Cell<'_>]]) -> Result<(), Error> {
        let mut cells = Vec::with_capacity(32);
        cells.push(Cell::Text(&self.trace));
        groups
            .iter()
            .for_each(|group| cells.extend_from_slice(group));
        let columns = || TABLES.get(table).into_iter().flat_map(Table::columns);
        debug_assert_eq!(cells.len(), columns().count(), "a cell for each column");
        let mut of_cells = columns().zip(&cells);
        debug_assert!(
            of_cells.all(|(column, cell)| cell.is_of(column.kind)),
            "a cell of another type than its column"
        );
        self.writer.record(table, &cells).map_err(Error::Write)
    }
}

fn call_cells(call: &CallRef) -> [Cell<'static>; 6] {
    [
        call.index.into(),
        call.thread.into(),
        call.enter_ns().into(),
        call.leave_ns().into(),
        call.duration_ns().into(),
        call.result.into(),
    ]
}

/// Number and name of a stream.
fn stream_texts(stream: Option<StreamRef>) -> (Option<u32>, Option<String>) {
    let number = stream.map(|stream| stream.number);
    (number, stream.map(|stream| stream.to_string()))
}

/// Texts of a launch that the row has in another form.
struct KernelTexts {
    function: Option<String>,
    module: Option<String>,
    stream: Option<String>,
}

impl KernelTexts {
    fn of(row: &LaunchRow<'_>) -> Self {
        Self {
            function: text(row.function),
            module: text(row.module),
            stream: text(row.stream),
        }
    }

    /// The kernel, its shape, and the stream.
    fn cells<'a>(&'a self, row: &LaunchRow<'a>) -> [Cell<'a>; 16] {
        let part = |sizes: Option<[u64; 3]>, at: fn([u64; 3]) -> u64| Cell::from(sizes.map(at));
        [
            row.kernel.into(),
            row.demangled.into(),
            self.function.as_ref().into(),
            self.module.as_ref().into(),
            row.image.into(),
            part(row.grid, |[x, _, _]| x),
            part(row.grid, |[_, y, _]| y),
            part(row.grid, |[_, _, z]| z),
            part(row.block, |[x, _, _]| x),
            part(row.block, |[_, y, _]| y),
            part(row.block, |[_, _, z]| z),
            row.threads().into(),
            row.shared_bytes.into(),
            row.stream.map(|stream| stream.number).into(),
            self.stream.as_ref().into(),
            row.is_captured.into(),
        ]
    }
}

fn side(side: Option<Side>) -> Cell<'static> {
    Cell::from(side.map(|side| match side {
        Side::Host => "host",
        Side::Device => "device",
        Side::Array => "array",
    }))
}

fn text<T: ToString>(value: Option<T>) -> Option<String> {
    value.map(|value| value.to_string())
}

fn json<T: Into<Value>>(values: impl IntoIterator<Item = T>) -> String {
    Value::Array(values.into_iter().map(Into::into).collect()).to_string()
}

/// The arguments by name, and what the call wrote behind pointers as `out`.
fn arguments(row: &CallRow<'_>) -> String {
    let decoded = row.arguments(ELEMENTS);
    let mut object = Map::new();
    for argument in &decoded.arguments {
        let mut value = argument.value.argument_json();
        if let Some(pointee) = &argument.pointee {
            value.insert("pointee".into(), pointee.json());
        }
        for (name, piece) in &argument.pieces {
            value.insert((*name).into(), piece.json());
        }
        object.insert(argument.name.into(), value.into());
    }
    let mut out = Map::new();
    for output in &decoded.outputs {
        out.insert(output.full_name().into(), output.value.json());
    }
    if !out.is_empty() {
        object.insert("out".into(), out.into());
    }
    Value::Object(object).to_string()
}

impl<W: TableWriter> Sink for TableSink<W> {
    type Error = Error;

    fn trace(&mut self, row: &TraceRow) -> Result<(), Error> {
        let name = &row.trace;
        self.trace = name.strip_suffix(".cutape").unwrap_or(name).to_owned();
        self.writer.begin(row).map_err(Error::Write)?;
        if !self.writer.wants(number::TRACES) {
            return Ok(());
        }
        let (arguments, devices) = (json(row.arguments.clone()), json(row.devices.clone()));
        let cells: [Cell<'_>; 13] = [
            row.parent.into(),
            row.local_rank.into(),
            row.program.as_ref().into(),
            (&arguments).into(),
            row.started_unix_ns.into(),
            row.recorder_version.as_ref().into(),
            row.driver_version.into(),
            row.driver_kind.as_ref().into(),
            (&devices).into(),
            row.exit_status.into(),
            row.exit_signal.into(),
            row.still_recording.into(),
            row.ended_early.as_ref().into(),
        ];
        self.record(number::TRACES, &[&cells])
    }

    fn range(&mut self, row: &RangeRow<'_>) -> Result<(), Error> {
        if !self.writer.wants(number::RANGES) {
            return Ok(());
        }
        let cells: [Cell<'_>; 8] = [
            row.name.into(),
            row.path.into(),
            row.domain.into(),
            row.thread.into(),
            row.is_mark.into(),
            row.is_open.into(),
            row.begin_ns().into(),
            row.end_ns().into(),
        ];
        self.record(number::RANGES, &[&cells])
    }

    fn call(&mut self, row: &CallRow<'_>) -> Result<(), Error> {
        if let Some(replayed) = &mut self.replayed {
            replayed.call(row)?;
        }
        if !self.writer.wants(number::CALLS) {
            return Ok(());
        }
        let replayed = self.replayed.as_ref();
        let time = replayed.and_then(|replayed| replayed.replayed.time_of(row.call.index));
        let arguments = self.arguments.then(|| arguments(row));
        let cells: [Cell<'_>; 9] = [
            row.function.into(),
            row.section().into(),
            row.result_name().into(),
            row.failed.into(),
            row.record.caller.into(),
            row.record.stack().into(),
            arguments.as_ref().into(),
            time.map(|time| time.begin_ns).into(),
            time.map(|time| time.lasted_ns).into(),
        ];
        self.record(number::CALLS, &[&call_cells(&row.call), &cells])
    }

    fn image(&mut self, row: &ImageRow) -> Result<(), Error> {
        if !self.writer.wants(number::IMAGES) {
            return Ok(());
        }
        let cells: [Cell<'_>; 4] = [
            (&row.hash).into(),
            row.kind.into(),
            row.bytes.into(),
            row.call.index.into(),
        ];
        self.record(number::IMAGES, &[&cells])
    }

    fn launch(&mut self, row: &LaunchRow<'_>) -> Result<(), Error> {
        if !self.writer.wants(number::LAUNCHES) {
            return Ok(());
        }
        let kernel = KernelTexts::of(row);
        let cells = [&call_cells(&row.call)[..], &kernel.cells(row)];
        self.record(number::LAUNCHES, &cells)
    }

    fn graph_launch(&mut self, row: &GraphLaunchRow) -> Result<(), Error> {
        if !self.writer.wants(number::GRAPH_LAUNCHES) {
            return Ok(());
        }
        let graph = text(row.graph);
        let (stream, stream_name) = stream_texts(row.stream);
        let cells: [Cell<'_>; 6] = [
            graph.as_ref().into(),
            row.nodes.into(),
            row.kernels.into(),
            stream.into(),
            stream_name.as_ref().into(),
            row.is_captured.into(),
        ];
        self.record(number::GRAPH_LAUNCHES, &[&call_cells(&row.call), &cells])
    }

    fn graph_kernel(&mut self, row: &GraphKernelRow<'_>) -> Result<(), Error> {
        if !self.writer.wants(number::GRAPH_KERNELS) {
            return Ok(());
        }
        let graph = text(row.graph);
        let call = row.launch.call;
        let cells: [Cell<'_>; 6] = [
            call.index.into(),
            call.thread.into(),
            call.enter_ns().into(),
            call.result.into(),
            graph.as_ref().into(),
            row.node.into(),
        ];
        let kernel = KernelTexts::of(&row.launch);
        let kernel = kernel.cells(&row.launch);
        self.record(number::GRAPH_KERNELS, &[&cells, &kernel])
    }

    fn copy(&mut self, row: &CopyRow) -> Result<(), Error> {
        if !self.writer.wants(number::COPIES) {
            return Ok(());
        }
        let (stream, stream_name) = stream_texts(row.stream);
        let cells: [Cell<'_>; 9] = [
            row.kind().into(),
            side(row.from),
            side(row.to),
            row.bytes.into(),
            row.is_peer.into(),
            row.is_async.into(),
            stream.into(),
            stream_name.as_ref().into(),
            row.is_captured.into(),
        ];
        self.record(number::COPIES, &[&call_cells(&row.call), &cells])
    }

    fn wait(&mut self, row: &WaitRow) -> Result<(), Error> {
        if !self.writer.wants(number::WAITS) {
            return Ok(());
        }
        let event = text(row.event);
        let (stream, stream_name) = stream_texts(row.stream);
        let cells: [Cell<'_>; 4] = [
            row.awaited.key().into(),
            stream.into(),
            stream_name.as_ref().into(),
            event.as_ref().into(),
        ];
        self.record(number::WAITS, &[&call_cells(&row.call), &cells])
    }

    fn memory(&mut self, row: &MemoryRow) -> Result<(), Error> {
        if !self.writer.wants(number::MEMORY) {
            return Ok(());
        }
        let object = row.object.to_string();
        let cells: [Cell<'_>; 8] = [
            row.call.index.into(),
            row.call.thread.into(),
            row.ns().into(),
            row.kind.key().into(),
            (&object).into(),
            row.change().into(),
            row.live_bytes.into(),
            row.live_blocks.into(),
        ];
        self.record(number::MEMORY, &[&cells])
    }

    fn object(&mut self, row: &ObjectRow<'_>) -> Result<(), Error> {
        if !self.writer.wants(number::OBJECTS) {
            return Ok(());
        }
        let object = row.object.to_string();
        let [parent, context] = [row.parent, row.context].map(text);
        let cells: [Cell<'_>; 17] = [
            (&object).into(),
            row.object.kind.key().into(),
            row.handle.into(),
            origin_key(row.origin).into(),
            row.created_call.into(),
            Some(row.created_by).filter(|name| !name.is_empty()).into(),
            row.created_ns().into(),
            row.ended_call.into(),
            row.ended_ns().into(),
            row.ending.key().into(),
            row.is_leaked().into(),
            parent.as_ref().into(),
            context.as_ref().into(),
            row.bytes.into(),
            row.memory.map(|memory| memory.key()).into(),
            row.name.into(),
            row.image.into(),
        ];
        self.record(number::OBJECTS, &[&cells])
    }

    fn finding(&mut self, row: &FindingRow<'_>) -> Result<(), Error> {
        if !self.writer.wants(number::FINDINGS) {
            return Ok(());
        }
        let finding = row.finding;
        let call = finding.call.as_ref();
        let related = json(row.related_calls());
        let cells: [Cell<'_>; 10] = [
            finding.rule.into(),
            finding.severity.word().into(),
            finding.class.word().into(),
            call.map(|call| call.index).into(),
            call.map(|call| call.thread).into(),
            row.call.and_then(|call| call.enter_ns()).into(),
            call.map(|call| &call.function).into(),
            (&finding.title).into(),
            (&finding.message).into(),
            (&related).into(),
        ];
        self.record(number::FINDINGS, &[&cells])
    }
}
