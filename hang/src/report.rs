//! What is found, as the JSON has it.

use std::path::PathBuf;

use cutape_render::Completeness;
use serde::Serialize;

use crate::core_dump::{self, CoreDump};

/// The version of the JSON; within it, members are only added.
pub const VERSION: u32 = 1;

/// What may still run at the end of a trace.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`VERSION`].
    pub version: u32,
    /// The recorded process.
    pub process: u32,
    /// Whether it still runs, so that its memory was read.
    pub running: bool,
    /// The calls of the trace.
    pub calls: u64,
    /// What it lacks: calls, if recording was paused or ended early.
    #[serde(flatten)]
    pub completeness: Completeness,
    /// It has only the last calls, as a flight recorder keeps them, or chosen ones.
    pub lacks_earlier_calls: bool,
    /// After how many launches a stream writes a breadcrumb; `None`: the recording has none.
    pub breadcrumbs: Option<u32>,
    /// Why a stream or a context has no breadcrumbs.
    pub without_breadcrumbs: Vec<String>,
    /// Nanoseconds since a call was entered or returned, if the process still runs and all its calls
    /// are recorded.
    pub idle_ns: Option<u64>,
    /// Whether a stream has written a breadcrumb while the process was watched.
    pub progress: Option<bool>,
    /// The first error of earlier work that a call returned.
    pub failure: Option<Failure>,
    /// Streams with work that may still run, by the call of the oldest.
    pub streams: Vec<Stream>,
    /// Threads in a call of the driver.
    pub threads: Vec<Thread>,
    /// Streams that wait for each other in a circle; empty if there is none.
    pub cycle: Vec<String>,
    /// Core dumps of the GPU that the driver has written for the process.
    pub core_dumps: Vec<PathBuf>,
    /// What they say, in the same order.
    pub core_dump_contents: Vec<CoreDump>,
}

impl Report {
    /// Adds a core dump of the GPU, and names in it the launches of its kernels that may run.
    pub fn add_core_dump(&mut self, path: PathBuf, mut dump: CoreDump) {
        let faults = dump.faults.iter_mut();
        let faults = faults.map(|fault| (fault.kernel.as_deref(), &mut fault.calls));
        let grids = dump.grids.iter_mut();
        let grids = grids.map(|grid| (grid.kernel.as_deref(), &mut grid.calls));
        for (kernel, calls) in faults.chain(grids) {
            calls.extend(
                kernel
                    .into_iter()
                    .flat_map(|kernel| self.launches_of(kernel)),
            );
        }
        self.core_dumps.push(path);
        self.core_dump_contents.push(dump);
    }

    /// The calls that may run and launch a kernel, alone or in a graph.
    fn launches_of(&self, kernel: &str) -> impl Iterator<Item = u64> {
        let is_it = move |name: &Option<String>| {
            let name = name.as_deref().map(core_dump::name);
            name.is_some_and(|name| name == kernel)
        };
        let candidates = self.streams.iter().flat_map(|stream| &stream.candidates);
        let launches = candidates.filter(move |line| {
            is_it(&line.kernel) || line.nodes.iter().any(|node| is_it(&node.kernel))
        });
        launches.map(|line| line.call)
    }

    /// Whether calls are missing, of which some may have given the device work, waited for it, or not
    /// returned.
    pub fn lacks_calls(&self) -> bool {
        let Completeness {
            ended_early,
            left_out,
            ..
        } = &self.completeness;
        self.lacks_earlier_calls || ended_early.is_some() || left_out.is_some()
    }
}

/// A call.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Line {
    /// Its index.
    pub call: u64,
    /// What it is: its function, and the kernel or the arguments.
    pub text: String,
    /// The kernel that it launches, if it is a launch and the name is known.
    pub kernel: Option<String>,
    /// Where the program makes it.
    pub place: Option<String>,
    /// The kernels of the graph that it launches.
    pub nodes: Vec<Node>,
}

/// A kernel of a graph.
#[derive(Clone, Debug, Serialize)]
pub struct Node {
    /// The call that added it.
    pub call: u64,
    /// Its name, if that is known.
    pub kernel: Option<String>,
}

/// An error of earlier work.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    /// The call that returned it.
    pub line: Line,
    /// Its name.
    pub result: String,
}

/// A stream with work that may still run.
#[derive(Clone, Debug, Serialize)]
pub struct Stream {
    /// `stream#2`, or which default stream it is.
    pub name: String,
    /// Its context's name.
    pub context: Option<String>,
    /// The last of its calls whose work is known to be complete.
    pub completed: Option<Completed>,
    /// The work of which one piece runs, or waits; the oldest first.
    pub candidates: Vec<Line>,
    /// More candidates than these.
    pub more_candidates: usize,
    /// What the last candidate waits for, once it is its turn; empty if it does not wait.
    pub waits: Vec<Wait>,
    /// How much work is queued after the candidates.
    pub queued: usize,
    /// The last call of the queue.
    pub last: Option<Line>,
}

/// Work that is complete.
#[derive(Clone, Debug, Serialize)]
pub struct Completed {
    /// Its call.
    pub line: Line,
    /// The call that has waited for it; `None`: a breadcrumb shows it.
    pub by_call: Option<u64>,
}

/// What a stream waits for.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Wait {
    /// An event that is recorded after work that may still run.
    Event {
        /// The call that recorded it, if one did.
        record: Option<Line>,
        /// The streams with that work.
        streams: Vec<String>,
    },
    /// A value in memory.
    Value {
        /// Where.
        address: String,
        /// What has to be there: `>= 7`.
        condition: String,
        /// What is there.
        memory: Memory,
        /// Queued writes to that address.
        writers: Vec<Writer>,
    },
    /// Work of other streams, by the order of streams: the legacy default stream, or the launch of
    /// a graph that still runs.
    Order {
        /// The streams.
        streams: Vec<String>,
    },
    /// A function of the program, which is called when all work before it is complete.
    HostFunction,
}

/// What is known of a value in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Memory {
    /// It holds this.
    Holds(u64),
    /// It is memory of the device, which cannot be read from outside.
    OfDevice,
    /// The process has ended, or its memory cannot be read.
    Unreadable,
}

/// A queued write of a value.
#[derive(Clone, Debug, Serialize)]
pub struct Writer {
    /// The stream.
    pub stream: String,
    /// The call.
    pub line: Line,
}

/// A thread in a call.
#[derive(Clone, Debug, Serialize)]
pub struct Thread {
    /// Its ordinal in the trace.
    pub thread: u32,
    /// Its number of the system.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// The call.
    pub line: Line,
    /// Nanoseconds since it was entered, if the process still runs.
    pub since_ns: Option<u64>,
    /// The streams that it waits for, or whose work it needs.
    pub streams: Vec<String>,
}
