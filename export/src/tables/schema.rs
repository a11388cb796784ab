//! The tables and their columns: the only place that names them.

/// The version of the tables, `MAJOR.MINOR`. The minor one grows when tables or columns are added,
/// the major one when one is removed or changes its meaning.
pub const SCHEMA_VERSION: &str = "1.4";

/// The type of a column. Every column may be null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// A signed number of 64 bits.
    Integer,
    /// The same; records seldom share one, so that a dictionary of them is larger than they are.
    Distinct,
    /// A floating-point number of 64 bits.
    Number,
    /// True or false.
    Boolean,
    /// UTF-8.
    Text,
}

impl Type {
    /// The word for it in documentation and lists of columns.
    pub fn word(self) -> &'static str {
        match self {
            Self::Integer | Self::Distinct => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::Text => "text",
        }
    }
}

/// A column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: Type,
    /// Many rows have the same text, so that a format can store each text once.
    pub repeats: bool,
    /// What it says, with the unit.
    pub meaning: &'static str,
}

/// A table.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Its name.
    pub name: &'static str,
    /// What a row is.
    pub row: &'static str,
    /// Its columns, in groups that tables share.
    pub groups: &'static [&'static [Column]],
}

impl Table {
    /// All columns, in the order of the cells of a row.
    pub fn columns(&self) -> impl Iterator<Item = &'static Column> + use<> {
        self.groups.iter().copied().flatten()
    }
}

const fn integer(name: &'static str, meaning: &'static str) -> Column {
    Column {
        name,
        kind: Type::Integer,
        repeats: false,
        meaning,
    }
}

const fn distinct(name: &'static str, meaning: &'static str) -> Column {
    Column {
        name,
        kind: Type::Distinct,
        repeats: false,
        meaning,
    }
}

const fn number_of(name: &'static str, meaning: &'static str) -> Column {
    Column {
        name,
        kind: Type::Number,
        repeats: false,
        meaning,
    }
}

const fn boolean(name: &'static str, meaning: &'static str) -> Column {
    Column {
        name,
        kind: Type::Boolean,
        repeats: false,
        meaning,
    }
}

const fn text(name: &'static str, meaning: &'static str) -> Column {
    Column {
        name,
        kind: Type::Text,
        repeats: false,
        meaning,
    }
}

/// A text that many rows have.
const fn label(name: &'static str, meaning: &'static str) -> Column {
    Column {
        repeats: true,
        ..text(name, meaning)
    }
}

/// The file that a row is from.
const TRACE: &[Column] = &[label("trace", "the trace's file name without `.cutape`")];

/// The call that a row is about.
const CALL: &[Column] = &[
    distinct(
        "call",
        "call index: the position in the order of entry, from 0",
    ),
    integer("thread", "ordinal of the thread, from 0"),
    distinct(
        "enter_ns",
        "when the program entered the call, ns from the start of the recording",
    ),
    distinct(
        "leave_ns",
        "when the driver had returned, ns; null for a call in flight",
    ),
    integer(
        "duration_ns",
        "host time of the call, ns: enqueueing, not the time on the GPU",
    ),
    integer(
        "result",
        "what the call returned, 0 is CUDA_SUCCESS; null for a call in flight",
    ),
];

/// A kernel, and how it is launched.
const KERNEL: &[Column] = &[
    label("kernel", "name of the kernel in its image"),
    label("kernel_source", "name as in the source (demangled)"),
    label("function", "its object, e.g. `function#3`"),
    label("module", "module or library that it is in, e.g. `module#1`"),
    label("image", "hash of the image that the module was loaded from"),
    integer("grid_x", "blocks in x"),
    integer("grid_y", "blocks in y"),
    integer("grid_z", "blocks in z"),
    integer("block_x", "threads of a block in x"),
    integer("block_y", "threads of a block in y"),
    integer("block_z", "threads of a block in z"),
    integer("threads", "threads of the whole grid"),
    integer("shared_bytes", "dynamic shared memory of a block, bytes"),
];

/// The stream of work.
const STREAM: &[Column] = &[
    integer(
        "stream",
        "number of the stream in the trace, also of default streams",
    ),
    label(
        "stream_name",
        "`stream#2`, `default stream`, `default stream of thread 3`, or the handle",
    ),
    boolean(
        "captured",
        "the stream captured: the work became a node of a graph and did not run",
    ),
];

/// By [`Table`]: the numbers that [`super::TableSink`] uses.
pub(super) mod number {
    pub(crate) const TRACES: usize = 0;
    pub(crate) const CALLS: usize = 1;
    pub(crate) const LAUNCHES: usize = 2;
    pub(crate) const GRAPH_LAUNCHES: usize = 3;
    pub(crate) const GRAPH_KERNELS: usize = 4;
    pub(crate) const COPIES: usize = 5;
    pub(crate) const WAITS: usize = 6;
    pub(crate) const OBJECTS: usize = 7;
    pub(crate) const MEMORY: usize = 8;
    pub(crate) const IMAGES: usize = 9;
    pub(crate) const RANGES: usize = 10;
    pub(crate) const FINDINGS: usize = 11;
    pub(crate) const GPU_WORK: usize = 12;
    pub(crate) const GPU_COUNTERS: usize = 13;
}

/// The columns of each table, after its own ones, in formats with columns.
pub const OWN_COLUMNS: &[Column] = &[
    integer("process", "number of the process"),
    integer("rank", "rank of the process; null without one"),
];

/// All tables.
pub const TABLES: &[Table] = &[
    Table {
        name: "traces",
        row: "a trace: a process, its program and machine",
        groups: &[
            TRACE,
            &[
                integer("parent", "number of the parent process"),
                integer("local_rank", "rank among the processes of the machine"),
                text("program", "path of the program"),
                text("arguments", "its arguments with its name, a JSON array"),
                integer("started_unix_ns", "start of the recording, ns since 1970"),
                text("recorder_version", "version of cutape that recorded"),
                integer(
                    "driver_version",
                    "as `cuDriverGetVersion` returns it, e.g. 13000",
                ),
                label("driver_kind", "`null` for the null driver"),
                text("devices", "names of the devices, a JSON array"),
                integer("exit_status", "exit status of the program"),
                integer("exit_signal", "signal that ended the program"),
                boolean(
                    "still_recording",
                    "the program was still running when the trace was read",
                ),
                text(
                    "ended_early",
                    "why the recording ended early, so that calls are missing",
                ),
            ],
        ],
    },
    Table {
        name: "calls",
        row: "a call of a driver function",
        groups: &[
            TRACE,
            CALL,
            &[
                label("function", "exported name, e.g. `cuMemAlloc_v2`"),
                label("section", "section of the CUDA driver API manual"),
                label("result_name", "name of the result, e.g. `CUDA_SUCCESS`"),
                boolean(
                    "failed",
                    "the call returned a CUresult other than CUDA_SUCCESS",
                ),
                integer("caller", "address in the program that the call returns to"),
                integer("stack", "id of the call stack"),
                text(
                    "arguments",
                    "decoded arguments, a JSON object; null without --arguments",
                ),
                distinct(
                    "gpu_begin_ns",
                    "when its work began on the GPU, ns from the first call of the replay; null \
                     without --profile",
                ),
                distinct(
                    "gpu_ns",
                    "time of its work on the GPU, ns, that of all nodes of a graph added up; null \
                     without --profile",
                ),
            ],
        ],
    },
    Table {
        name: "launches",
        row: "a kernel that a call launches",
        groups: &[TRACE, CALL, KERNEL, STREAM],
    },
    Table {
        name: "graph_launches",
        row: "a launch of an executable graph",
        groups: &[
            TRACE,
            CALL,
            &[
                label("graph", "executable graph, e.g. `executable-graph#1`"),
                integer(
                    "nodes",
                    "nodes that are switched on; null if not all are known",
                ),
                integer(
                    "kernels",
                    "nodes that are kernels; null if not all are known",
                ),
                integer("stream", "number of the stream in the trace"),
                label("stream_name", "as in `launches`"),
                boolean(
                    "captured",
                    "the stream captured: the graph became a node of another and did not run",
                ),
            ],
        ],
    },
    Table {
        name: "graph_kernels",
        row: "a kernel that the launch of a graph runs; none if not all nodes of the graph are known",
        groups: &[
            TRACE,
            &[
                distinct("call", "index of the call that launched the graph"),
                integer("thread", "ordinal of the thread, from 0"),
                distinct(
                    "enter_ns",
                    "when the program entered that call, ns from the start of the recording",
                ),
                integer("result", "what that call returned, 0 is CUDA_SUCCESS"),
                label("graph", "executable graph, e.g. `executable-graph#1`"),
                integer(
                    "node",
                    "number of the node among those that are switched on, from 0, as added; edges \
                     decide the order on the GPU",
                ),
            ],
            KERNEL,
            STREAM,
        ],
    },
    Table {
        name: "copies",
        row: "a copy or a memset; a call that copies a batch has several",
        groups: &[
            TRACE,
            CALL,
            &[
                label(
                    "direction",
                    "`host-to-device`, `device-to-host`, `device-to-device`, `host-to-host`, \
                     `memset`, `unknown`; managed memory counts as the host's",
                ),
                label("source", "`host`, `device`, `array`; null for a memset"),
                label("target", "`host`, `device`, `array`"),
                integer("bytes", "bytes to copy or fill; null if the trace lacks it"),
                boolean("peer", "the call names the contexts of both operands"),
                boolean(
                    "async",
                    "the call has a stream, and may return before the copy is done",
                ),
            ],
            STREAM,
        ],
    },
    Table {
        name: "waits",
        row: "a wait of the host, or of a stream for an event",
        groups: &[
            TRACE,
            CALL,
            &[
                label(
                    "waits_for",
                    "`context`, `stream`, `event`, `event-in-stream`",
                ),
                integer(
                    "stream",
                    "number of the stream that is waited for, or that waits",
                ),
                label("stream_name", "as in `launches`"),
                label("event", "the event, e.g. `event#5`"),
            ],
        ],
    },
    Table {
        name: "objects",
        row: "an object, from its creation to its end",
        groups: &[
            TRACE,
            &[
                text(
                    "object",
                    "kind and number, e.g. `module#2`: unique in a trace",
                ),
                label("kind", "kind of the object, e.g. `module`"),
                distinct("handle", "the driver's value for it; of memory the address"),
                label("origin", "`created`, `found` in its parent, `first-seen`"),
                distinct(
                    "created_call",
                    "index of the call that created it or first returned it",
                ),
                label("created_by", "function of that call"),
                distinct("created_ns", "when that call had returned, ns"),
                distinct(
                    "ended_call",
                    "index of the call that ended it; null if it lives",
                ),
                distinct("ended_ns", "when that call was entered, ns"),
                label(
                    "ending",
                    "`destroyed`, `with-owner`, `handle-reused`, `alive`",
                ),
                boolean("leaked", "the program created it and never destroyed it"),
                label("parent", "object that it belongs to"),
                label("context", "context that it lives in"),
                integer("bytes", "size of what occupies addresses, bytes"),
                label(
                    "memory",
                    "`device`, `pool`, `managed`, `physical`, `pinned-host`",
                ),
                label("name", "name of a function or variable in its image"),
                label("image", "of a module or library: hash of its image"),
            ],
        ],
    },
    Table {
        name: "memory",
        row: "a change of the memory that the program has allocated",
        groups: &[
            TRACE,
            &[
                distinct("call", "index of the call that caused it"),
                integer("thread", "ordinal of the thread, from 0"),
                distinct("ns", "when it counts, ns from the start of the recording"),
                label(
                    "memory",
                    "`device`, `pool`, `managed`, `physical`, `pinned-host`",
                ),
                text("object", "the block, e.g. `memory#7`"),
                integer("change_bytes", "bytes; negative for a free"),
                integer(
                    "live_bytes",
                    "bytes of this kind that are allocated after it",
                ),
                integer(
                    "live_blocks",
                    "blocks of this kind that are allocated after it",
                ),
            ],
        ],
    },
    Table {
        name: "images",
        row: "a device code image",
        groups: &[
            TRACE,
            &[
                label(
                    "image",
                    "start of the blake3 hash of its bytes: equal in all traces",
                ),
                label("kind", "`cubin`, `fatbin`, `PTX`, ..."),
                integer("bytes", "its length, bytes"),
                distinct("call", "index of the first call that uses it"),
            ],
        ],
    },
    Table {
        name: "ranges",
        row: "a range of the program, or a mark",
        groups: &[
            TRACE,
            &[
                label("name", "its text"),
                label(
                    "path",
                    "names of the ranges around it and its own: `train/step`",
                ),
                label("domain", "NVTX domain; null for the default one"),
                integer(
                    "thread",
                    "ordinal of the thread that began it; null if not known",
                ),
                boolean("mark", "it is a moment"),
                boolean("open", "it is a range that did not end"),
                distinct(
                    "begin_ns",
                    "when it began, ns from the start of the recording",
                ),
                distinct("end_ns", "when it ended, ns"),
            ],
        ],
    },
    Table {
        name: "findings",
        row: "a finding of `cutape check`, of every class",
        groups: &[
            TRACE,
            &[
                label("rule", "id of the rule"),
                label("severity", "`error`, `warning`, `advice`"),
                label("class", "`misuse`, `probe`, `expected-error`, `teardown`"),
                distinct(
                    "call",
                    "index of the call; null for what is missing at the end",
                ),
                integer("thread", "ordinal of the thread of the call"),
                distinct("enter_ns", "when the call was entered, ns"),
                label("function", "function of the call"),
                label("title", "what is wrong, in a line"),
                text("message", "what happened, and why it is wrong"),
                text(
                    "related_calls",
                    "indices of other calls that it is about, a JSON array",
                ),
            ],
        ],
    },
    Table {
        name: "gpu_work",
        row: "a kernel, copy or memset that ran on a GPU in the replay of --profile; none without it",
        groups: &[
            TRACE,
            &[
                distinct(
                    "call",
                    "index of the call that enqueued it; null for work of the replay itself",
                ),
                label(
                    "kind",
                    "`kernel`, `copy`, `memset`; `graph` without its nodes",
                ),
                label(
                    "name",
                    "kernel as in the source, or what is copied, e.g. `host-to-device`",
                ),
                distinct(
                    "begin_ns",
                    "when it began to run, ns from the first call of the replay",
                ),
                distinct("end_ns", "when it was over, ns"),
                distinct("gpu_ns", "how long it ran, ns"),
                integer("device", "ordinal of the device in the replay"),
                integer("stream", "number of the stream in the profile"),
                label(
                    "stream_name",
                    "e.g. `stream#1`, `default stream`, `branch of a graph 7`",
                ),
                distinct("node", "which node of a graph it is, equal for each launch"),
                label("range", "path of the innermost range of its call"),
                integer("bytes", "bytes that are copied or set"),
                integer("grid_x", "blocks in x"),
                integer("grid_y", "blocks in y"),
                integer("grid_z", "blocks in z"),
                integer("block_x", "threads of a block in x"),
                integer("block_y", "threads of a block in y"),
                integer("block_z", "threads of a block in z"),
                integer("registers", "registers of a thread"),
                integer("shared_bytes", "shared memory of a block, bytes"),
            ],
        ],
    },
    Table {
        name: "gpu_counters",
        row: "a kernel with hardware counters, of `cutape profile --counters`; none without --profile. \
              Shares and rates are from 0 to 1",
        groups: &[
            TRACE,
            &[
                distinct("call", "index of the call that launched it, or its graph"),
                label("name", "kernel as in the source"),
                integer("device", "ordinal of the device in the replay"),
                integer("grid_x", "blocks in x"),
                integer("grid_y", "blocks in y"),
                integer("grid_z", "blocks in z"),
                integer("block_x", "threads of a block in x"),
                integer("block_y", "threads of a block in y"),
                integer("block_z", "threads of a block in z"),
                integer("passes", "how often it ran for its counters"),
                number_of("duration_ns", "how long it ran with empty caches, ns"),
                number_of("sm_share", "of what the multiprocessors can compute"),
                number_of(
                    "memory_share",
                    "of what the busiest part of the memory system can move",
                ),
                number_of("dram_share", "of what the device's memory can move"),
                number_of("l1_hit_rate", "sectors found in the L1 cache"),
                number_of("l2_hit_rate", "sectors found in the L2 cache"),
                number_of(
                    "occupancy",
                    "warps on a multiprocessor, of those that it has room for",
                ),
                number_of(
                    "occupancy_limit",
                    "the same that registers, shared memory and block size allow",
                ),
                label(
                    "precision",
                    "its most frequent operations: `fp64`, `fp32`, `fp16`, `tensor`; null without any",
                ),
                number_of("flops", "floating-point operations of all kinds"),
                number_of("flops_per_second", "those a second"),
                number_of(
                    "peak_flops_per_second",
                    "the most operations of `precision` a second",
                ),
                number_of("dram_bytes", "bytes that the device's memory moved"),
                number_of("bytes_per_second", "those a second"),
                number_of("peak_bytes_per_second", "the most bytes a second"),
                number_of("intensity", "operations for each byte"),
                label(
                    "bound",
                    "what bounds it at its intensity: `memory` or `compute`",
                ),
                number_of("roof_share", "how close it is to that bound"),
                label(
                    "stall",
                    "what its warps waited for most, e.g. `long scoreboard`",
                ),
                number_of("stall_share", "the share of that of the warps' time"),
                text(
                    "stalls",
                    "all states of warps, a JSON object of shares; `selected` is no stall",
                ),
            ],
        ],
    },
];
