//! Keeps the rows of a trace as columns.

use std::collections::{BTreeMap, HashMap};

use cutape_analyzer::demangle::bare;
use cutape_analyzer::{Finding, FindingKey};
use cutape_export::rows::{
    CallRow, CopyRow, FindingRow, GraphKernelRow, GraphLaunchRow, LaunchRow, MemoryRow, ObjectRow,
    RangeRow, Sink, StreamRef, WaitRow,
};
use cutape_format::Trace;
use cutape_model::{MemoryKind, Origin, function_of};
use cutape_registry::Kind;
use rustc_hash::FxHashMap;

use crate::call_kind::CallKind;
use crate::columns::{Coding, Column, Columns};
use crate::completion::Completion;
use crate::dictionary::Dictionary;
use crate::facts::{
    Collected, FunctionFact, KernelFact, MarkerName, ObjectKind, Shape, StreamFact, Tables,
};
use crate::range_rows::RangeRows;

/// A column has this number, plus one, for nothing.
const NOTHING: u64 = u32::MAX as u64;

/// What a launch of an unnamed kernel is called.
const UNNAMED: &str = "(kernel without a name)";

/// Takes the rows of a trace, in the order in which they come.
pub struct Collector<'f> {
    start_ticks: u64,
    has_times: bool,
    end: u64,
    /// By signature number, the number in `tables`.
    functions: FxHashMap<u16, u64>,
    tables: Tables,
    results: Dictionary<String, String>,
    kernels: Dictionary<String, KernelFact>,
    shapes: Dictionary<Shape, Shape>,
    graph_kernels: Dictionary<Vec<[u64; 3]>, Vec<[u64; 3]>>,
    /// The graph launch whose kernels still come, and by kernel and shape how many came.
    graph: Option<(u64, BTreeMap<[u64; 2], u64>)>,
    streams: Dictionary<u32, StreamFact>,
    directions: Dictionary<&'static str, String>,
    object_kinds: Dictionary<(Kind, Option<MemoryKind>), ObjectKind>,
    range_names: Dictionary<MarkerName, MarkerName>,
    mark_names: Dictionary<MarkerName, MarkerName>,
    range_rows: RangeRows,
    calls: CallColumns,
    launches: [Column; 3],
    graph_launches: [Column; 2],
    copies: [Column; 3],
    /// Calls and the numbers of their streams.
    work: Vec<(u64, u64)>,
    completion: Completion,
    memory: [Column; 4],
    objects: Vec<ObjectEntry>,
    ranges: [Column; 5],
    marks: [Column; 3],
    on_call: Box<dyn FnMut() + 'f>,
    on_finding: Box<dyn FnMut(&Finding) + 'f>,
    repeats: HashMap<FindingKey, u64>,
}

/// A column for what every call has, and lists of calls for what few have.
struct CallColumns {
    time: Column,
    duration: Column,
    thread: Column,
    function: Column,
    failed: [Column; 2],
    in_flight: Column,
}

struct ObjectEntry {
    created: u64,
    ended: Option<u64>,
    kind: u64,
    origin: Origin,
    bytes: u64,
    handle: u64,
}

impl<'f> Collector<'f> {
    /// Before the first row of a trace. `on_call` is told of each call, for a progress bar.
    /// `on_finding` takes findings; which of them the page shows, [`Added`](crate::Added) says.
    pub fn new(
        trace: &Trace,
        on_call: impl FnMut() + 'f,
        on_finding: impl FnMut(&Finding) + 'f,
    ) -> Self {
        use Coding::{Ascending, Large, Small, Times};
        Self {
            start_ticks: trace.head().start_ticks,
            has_times: trace.ticks_per_second() != 0,
            end: 0,
            functions: FxHashMap::default(),
            tables: Tables::default(),
            results: Dictionary::default(),
            kernels: Dictionary::default(),
            shapes: Dictionary::default(),
            graph_kernels: Dictionary::default(),
            graph: None,
            streams: Dictionary::default(),
            directions: Dictionary::default(),
            object_kinds: Dictionary::default(),
            range_names: Dictionary::default(),
            mark_names: Dictionary::default(),
            range_rows: RangeRows::default(),
            calls: CallColumns {
                time: Column::new(Times),
                duration: Column::new(Large),
                thread: Column::new(Small),
                function: Column::new(Small),
                failed: [Column::new(Ascending), Column::new(Small)],
                in_flight: Column::new(Ascending),
            },
            launches: [Ascending, Small, Small].map(Column::new),
            graph_launches: [Ascending, Small].map(Column::new),
            copies: [Ascending, Large, Small].map(Column::new),
            work: Vec::new(),
            completion: Completion::new(),
            memory: [Ascending, Small, Large, Small].map(Column::new),
            objects: Vec::new(),
            ranges: [Times, Large, Small, Small, Small].map(Column::new),
            marks: [Times, Small, Small].map(Column::new),
            on_call: Box::new(on_call),
            on_finding: Box::new(on_finding),
            repeats: HashMap::new(),
        }
    }

    /// All rows.
    pub fn finish(mut self) -> Collected {
        self.end_graph();
        let done = std::mem::replace(&mut self.completion, Completion::new()).finish();
        let mut columns = Columns::default();
        let calls = self.calls;
        columns.add("call.time", calls.time);
        columns.add("call.duration", calls.duration);
        columns.add("call.thread", calls.thread);
        columns.add("call.function", calls.function);
        add_all(&mut columns, ["failed.call", "failed.result"], calls.failed);
        columns.add("in_flight.call", calls.in_flight);
        let names = ["launch.call", "launch.kernel", "launch.shape"];
        add_all(&mut columns, names, self.launches);
        let names = ["graph.call", "graph.kernels"];
        add_all(&mut columns, names, self.graph_launches);
        let names = ["copy.call", "copy.bytes", "copy.direction"];
        add_all(&mut columns, names, self.copies);
        add_work(&mut columns, &self.work, &done);
        let names = [
            "memory.call",
            "memory.kind",
            "memory.bytes",
            "memory.is_free",
        ];
        add_all(&mut columns, names, self.memory);
        add_objects(&mut columns, self.objects);
        let names = [
            "range.begin",
            "range.duration",
            "range.thread",
            "range.name",
            "range.row",
        ];
        add_all(&mut columns, names, self.ranges);
        add_all(
            &mut columns,
            ["mark.time", "mark.thread", "mark.name"],
            self.marks,
        );
        let tables = Tables {
            results: self.results.values,
            kernels: self.kernels.values,
            shapes: self.shapes.values,
            graph_kernels: self.graph_kernels.values,
            streams: self.streams.values,
            directions: self.directions.values,
            object_kinds: self.object_kinds.values,
            range_names: self.range_names.values,
            mark_names: self.mark_names.values,
            ..self.tables
        };
        Collected {
            has_times: self.has_times,
            end: self.end,
            tables,
            columns,
            repeats: self.repeats,
        }
    }

    /// The number of the kernel that a row names.
    fn kernel(&mut self, row: &LaunchRow<'_>) -> u64 {
        let name = row.kernel.unwrap_or("");
        self.kernels.number(name, || {
            let shown = row.demangled.or(row.kernel).unwrap_or(UNNAMED);
            KernelFact {
                name: row.kernel.map(str::to_owned),
                shown: shown.to_owned(),
                bare: bare(shown).to_owned(),
            }
        })
    }

    fn shape(&mut self, row: &LaunchRow<'_>) -> u64 {
        let shape = Shape {
            grid: row.grid,
            block: row.block,
            shared: row.shared_bytes,
        };
        self.shapes.number(&shape, || shape)
    }

    /// All kernels of the graph's launch have come.
    fn end_graph(&mut self) {
        let Some((call, kernels)) = self.graph.take() else {
            return;
        };
        let kernels = kernels.into_iter();
        let kernels: Vec<_> = kernels
            .map(|([kernel, shape], count)| [kernel, shape, count])
            .collect();
        let number = self.graph_kernels.number(&kernels, || kernels.clone());
        let [calls, numbers] = &mut self.graph_launches;
        calls.push(call);
        numbers.push(number);
    }

    /// The call's work is on that stream. A call may have several rows.
    fn add_work(&mut self, call: u64, stream: Option<StreamRef>) {
        let Some(stream) = stream else { return };
        let number = self.streams.number(&stream.number, || StreamFact {
            label: stream.to_string(),
        });
        if self.work.last() != Some(&(call, number)) {
            self.work.push((call, number));
        }
    }
}

fn add_all<const N: usize>(columns: &mut Columns, names: [&'static str; N], all: [Column; N]) {
    for (name, column) in names.into_iter().zip(all) {
        columns.add(name, column);
    }
}

fn add_work(columns: &mut Columns, work: &[(u64, u64)], done: &FxHashMap<u64, u64>) {
    let mut call = Column::new(Coding::Ascending);
    let mut stream = Column::new(Coding::Small);
    let mut complete = Column::new(Coding::Small);
    for &(index, number) in work {
        call.push(index);
        stream.push(number);
        // How many calls later; nothing if no call proves it.
        complete.push(done.get(&index).map_or(0, |by| by - index + 1));
    }
    columns.add("work.call", call);
    columns.add("work.stream", stream);
    columns.add("work.done", complete);
}

fn add_objects(columns: &mut Columns, mut objects: Vec<ObjectEntry>) {
    // Rows of objects come at their ends.
    objects.sort_by_key(|object| object.created);
    let mut add = |name, coding, value: &dyn Fn(&ObjectEntry) -> u64| {
        let mut column = Column::new(coding);
        column.extend(objects.iter().map(value));
        columns.add(name, column);
    };
    add("object.created", Coding::Ascending, &|object| {
        object.created
    });
    // How many calls later, plus one; 0 for never.
    add("object.ended", Coding::Small, &|object| {
        let ended = object.ended;
        ended.map_or(0, |ended| ended.saturating_sub(object.created) + 1)
    });
    add("object.kind", Coding::Small, &|object| object.kind);
    add(
        "object.origin",
        Coding::Small,
        &|object| match object.origin {
            Origin::Created => 0,
            Origin::Found => 1,
            Origin::FirstSeen => 2,
        },
    );
    add("object.bytes", Coding::Large, &|object| object.bytes);
    add("object.handle_low", Coding::Small, &|object| {
        object.handle & NOTHING
    });
    add("object.handle_high", Coding::Small, &|object| {
        object.handle >> 32
    });
}

fn marker_name(row: &RangeRow<'_>) -> MarkerName {
    MarkerName {
        name: row.name.to_owned(),
        domain: row.domain.unwrap_or_default().to_owned(),
        path: row.path.to_owned(),
    }
}

impl Sink for Collector<'_> {
    type Error = cutape_format::Error;

    fn call(&mut self, row: &CallRow<'_>) -> Result<(), Self::Error> {
        self.end_graph();
        let (call, record) = (row.call, row.record);
        (self.on_call)();
        self.completion.observe(record);
        let leave = record.leave.map(|leave| leave.ticks);
        let (begin, end) = match self.has_times {
            true => (call.enter_ns().unwrap_or(0), call.leave_ns()),
            false => {
                let steps = |ticks: u64| ticks.saturating_sub(self.start_ticks);
                (steps(record.ticks), leave.map(steps))
            }
        };
        let tables = &mut self.tables;
        let function = *self
            .functions
            .entry(record.signature.id)
            .or_insert_with(|| {
                tables.functions.push(FunctionFact {
                    name: row.function.to_owned(),
                    base: record.signature.base.to_string(),
                    kind: CallKind::of(function_of(record.signature)),
                });
                tables.functions.len() as u64 - 1
            });
        let columns = &mut self.calls;
        columns.time.push(begin);
        columns
            .duration
            .push(end.map_or(0, |end| end.saturating_sub(begin)));
        columns.thread.push(u64::from(call.thread));
        columns.function.push(function);
        self.end = self.end.max(end.unwrap_or(begin));
        if leave.is_none() {
            columns.in_flight.push(call.index);
        } else if row.failed {
            let code = call.result.unwrap_or_default();
            let name = row
                .result_name()
                .map_or_else(|| code.to_string(), str::to_owned);
            let [calls, results] = &mut columns.failed;
            calls.push(call.index);
            results.push(self.results.number(&*name, || name.clone()));
        }
        Ok(())
    }

    fn launch(&mut self, row: &LaunchRow<'_>) -> Result<(), Self::Error> {
        let (kernel, shape) = (self.kernel(row), self.shape(row));
        let [calls, kernels, shapes] = &mut self.launches;
        calls.push(row.call.index);
        kernels.push(kernel);
        shapes.push(shape);
        self.add_work(row.call.index, row.stream);
        Ok(())
    }

    fn graph_launch(&mut self, row: &GraphLaunchRow) -> Result<(), Self::Error> {
        self.add_work(row.call.index, row.stream);
        if row.kernels.is_some() {
            self.graph = Some((row.call.index, BTreeMap::new()));
        }
        Ok(())
    }

    fn graph_kernel(&mut self, row: &GraphKernelRow<'_>) -> Result<(), Self::Error> {
        let key = [self.kernel(&row.launch), self.shape(&row.launch)];
        if let Some((_, kernels)) = &mut self.graph {
            *kernels.entry(key).or_default() += 1;
        }
        Ok(())
    }

    fn copy(&mut self, row: &CopyRow) -> Result<(), Self::Error> {
        let kind = row.kind();
        let direction = self.directions.number(&kind, || kind.replace('-', " "));
        let [calls, bytes, directions] = &mut self.copies;
        calls.push(row.call.index);
        bytes.push(row.bytes.unwrap_or(0));
        directions.push(direction);
        self.add_work(row.call.index, row.stream);
        Ok(())
    }

    fn wait(&mut self, row: &WaitRow) -> Result<(), Self::Error> {
        self.add_work(row.call.index, row.stream);
        Ok(())
    }

    fn memory(&mut self, row: &MemoryRow) -> Result<(), Self::Error> {
        let [calls, kinds, bytes, frees] = &mut self.memory;
        calls.push(row.call.index);
        kinds.push(row.kind as u64);
        bytes.push(row.change().unsigned_abs());
        frees.push(u64::from(row.change() < 0));
        Ok(())
    }

    fn object(&mut self, row: &ObjectRow<'_>) -> Result<(), Self::Error> {
        let kind = row.object.kind;
        let key = (kind, row.memory);
        let kind = self.object_kinds.number(&key, || ObjectKind {
            key: kind.key(),
            name: kind.name(),
            memory: row.memory.map(MemoryKind::key),
        });
        self.objects.push(ObjectEntry {
            created: row.created_call,
            ended: row.ended_call,
            kind,
            origin: row.origin,
            bytes: row.bytes.unwrap_or(0),
            handle: row.handle,
        });
        Ok(())
    }

    fn range(&mut self, row: &RangeRow<'_>) -> Result<(), Self::Error> {
        // Without a clock nothing says between which calls it is.
        let Some(begin) = row.begin_ns() else {
            return Ok(());
        };
        let thread = row.thread.map_or(0, |thread| u64::from(thread) + 1);
        if row.is_mark {
            let name = marker_name(row);
            let name = self.mark_names.number(&name, || name.clone());
            let [times, threads, names] = &mut self.marks;
            times.push(begin);
            threads.push(thread);
            names.push(name);
            return Ok(());
        }
        let open = if row.is_open { u64::MAX } else { begin };
        let end = row.end_ns().unwrap_or(open);
        let range_row = self.range_rows.row_of(row.thread, begin, end);
        let name = marker_name(row);
        let name = self.range_names.number(&name, || name.clone());
        let [begins, durations, threads, names, rows] = &mut self.ranges;
        begins.push(begin);
        durations.push(end.saturating_sub(begin));
        threads.push(thread);
        names.push(name);
        rows.push(range_row);
        Ok(())
    }

    fn finding(&mut self, row: &FindingRow<'_>) -> Result<(), Self::Error> {
        (self.on_finding)(row.finding);
        Ok(())
    }

    fn repeats(&mut self, repeats: HashMap<FindingKey, u64>) -> Result<(), Self::Error> {
        self.repeats = repeats;
        Ok(())
    }
}
