//! A random program: data that is kept as JSON, and run as text by `interpreter.c`.

use serde::{Deserialize, Serialize};

/// The number of an object of the program.
pub type Id = u8;

/// A program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// What it does. The order is one in which it may happen; each thread does its own operations.
    pub operations: Vec<Operation>,
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// The thread that does it.
    pub thread: u8,
    /// What it does.
    #[serde(flatten)]
    pub action: Action,
}

/// Kinds of memory, by the numbers of the interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Memory {
    Device,
    Pinned,
    Managed,
    Pageable,
    Registered,
    Pool,
}

impl Memory {
    /// Whether the CPU reads and writes it.
    pub fn is_visible(self) -> bool {
        !matches!(self, Self::Device | Self::Pool)
    }

    /// Whether kernels and memsets may use it.
    pub fn is_known(self) -> bool {
        self != Self::Pageable
    }

    /// Whether the driver takes it for memory of the host.
    pub fn is_host(self) -> bool {
        matches!(self, Self::Pinned | Self::Pageable | Self::Registered)
    }

    /// Whether it is memory of the device alone.
    pub fn is_device(self) -> bool {
        matches!(self, Self::Device | Self::Pool)
    }
}

/// Kinds of streams, by the numbers of the interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum StreamKind {
    Blocking,
    NonBlocking,
    Legacy,
    PerThread,
}

/// Where a copy or memset runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Site {
    /// An asynchronous function, on that stream.
    Stream(Id),
    /// A synchronous function, in that context.
    Context(Id),
}

/// A part of a buffer, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Part {
    pub buffer: Id,
    pub offset: u32,
    pub length: u32,
}

/// Which function copies, by the numbers of the interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CopyForm {
    /// The one for the kinds of memory.
    OfKinds,
    /// `cuMemcpy`.
    Unified,
    /// `cuMemcpy2D`, of four rows.
    Rows,
    /// `cuMemcpyBatchAsync`, of two halves.
    Batch,
}

/// Work on memory that a stream or a node of a graph does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Work {
    /// Elements of 1, 2 or 4 bytes.
    Memset { to: Part, width: u8, value: u32 },
    Copy {
        to: Part,
        from: Part,
        form: CopyForm,
    },
    /// The kernel `cutape_mix`.
    Mix { out: Part, input: Part, seed: u32 },
}

/// A node of a graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Positions of the nodes before it.
    pub after: Vec<u8>,
    /// What it does.
    pub work: Work,
}

/// What an operation does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Action {
    Context {
        context: Id,
        device: u8,
        is_created: bool,
    },
    EndContext {
        context: Id,
    },
    Stream {
        stream: Id,
        context: Id,
        kind: StreamKind,
    },
    EndStream {
        stream: Id,
    },
    Event {
        event: Id,
        context: Id,
        flags: u8,
    },
    EndEvent {
        event: Id,
    },
    /// `stream`: of memory of a pool.
    Allocate {
        buffer: Id,
        context: Id,
        memory: Memory,
        size: u32,
        stream: Option<Id>,
    },
    Free {
        buffer: Id,
        stream: Option<Id>,
    },
    /// The CPU writes.
    Fill {
        to: Part,
        seed: u32,
    },
    /// The CPU reads, or copies memory of the device first. The program prints a digest.
    Read {
        from: Part,
    },
    Work {
        work: Work,
        site: Site,
    },
    /// A function of the program writes memory of the host.
    HostFill {
        stream: Id,
        to: Part,
        seed: u32,
    },
    /// `cuStreamWriteValue32`, or `cuStreamBatchMemOp`.
    WriteValue {
        stream: Id,
        to: Part,
        value: u32,
        #[serde(default)]
        is_batched: bool,
    },
    /// The CPU waits until memory has a value that a stream writes.
    Poll {
        from: Part,
        value: u32,
    },
    Record {
        event: Id,
        stream: Id,
    },
    Wait {
        stream: Id,
        event: Id,
    },
    SyncStream {
        stream: Id,
    },
    SyncEvent {
        event: Id,
    },
    SyncContext {
        context: Id,
    },
    /// Asks until the work is complete.
    QueryStream {
        stream: Id,
    },
    QueryEvent {
        event: Id,
    },
    Graph {
        graph: Id,
        context: Id,
        is_captured: bool,
        nodes: Vec<Node>,
    },
    EndGraph {
        graph: Id,
    },
    Launch {
        graph: Id,
        stream: Id,
    },
    /// Lets other threads go on that await it.
    Post {
        flag: Id,
    },
    /// A function of the program does that.
    Signal {
        stream: Id,
        flag: Id,
    },
    Await {
        flag: Id,
    },
}

impl Part {
    fn numbers(self) -> Vec<i64> {
        vec![self.buffer.into(), self.offset.into(), self.length.into()]
    }
}

fn start(part: Part) -> [i64; 2] {
    [part.buffer.into(), part.offset.into()]
}

impl Work {
    /// Its kind and its numbers. `site`: the stream or -1, and the context.
    fn numbers(&self, site: [i64; 2]) -> (&'static str, Vec<i64>) {
        let mut numbers = Vec::new();
        let name = match *self {
            Self::Memset { to, width, value } => {
                numbers.extend(start(to));
                let count = i64::from(to.length) / i64::from(width);
                numbers.extend([count, width.into(), value.into()]);
                numbers.extend(site);
                "memset"
            }
            Self::Copy { to, from, form } => {
                numbers.extend(start(to));
                numbers.extend(start(from));
                numbers.push(to.length.into());
                numbers.extend(site);
                numbers.push(form as i64);
                "copy"
            }
            Self::Mix { out, input, seed } => {
                numbers.extend(start(out));
                numbers.extend(start(input));
                numbers.extend([i64::from(out.length) / 4, seed.into(), site[0]]);
                "mix"
            }
        };
        (name, numbers)
    }

    fn kind(&self) -> i64 {
        match self {
            Self::Memset { .. } => 0,
            Self::Copy { .. } => 1,
            Self::Mix { .. } => 2,
        }
    }
}

impl Program {
    /// The lines that the interpreter reads, and for each operation its line, from 1.
    pub fn text(&self) -> (String, Vec<usize>) {
        let (mut text, mut places, mut line) = (String::new(), Vec::new(), 0);
        for operation in &self.operations {
            places.push(line + 1);
            for (name, numbers) in operation.action.lines() {
                line += 1;
                text += &format!("{} {name}", operation.thread);
                for number in numbers {
                    text += &format!(" {number}");
                }
                text.push('\n');
            }
        }
        (text, places)
    }

    /// How many threads it has.
    pub fn threads(&self) -> u8 {
        let threads = self.operations.iter().map(|operation| operation.thread);
        threads.max().unwrap_or(0) + 1
    }

    /// Whether the CPU learns without a call that work is complete: no work may wait for a call then.
    pub fn has_silent_waits(&self) -> bool {
        let mut actions = self.operations.iter().map(|operation| &operation.action);
        actions.any(|action| matches!(action, Action::Poll { .. } | Action::Signal { .. }))
    }

    /// How many devices it uses.
    pub fn devices(&self) -> u8 {
        let devices = self
            .operations
            .iter()
            .map(|operation| match operation.action {
                Action::Context { device, .. } => device + 1,
                _ => 1,
            });
        devices.max().unwrap_or(1)
    }
}

impl Action {
    fn lines(&self) -> Vec<(&'static str, Vec<i64>)> {
        let ids = |ids: &[Id]| ids.iter().map(|&id| id.into()).collect::<Vec<i64>>();
        let optional = |stream: Option<Id>| stream.map_or(-1, i64::from);
        let with = |mut numbers: Vec<i64>, more: &[i64]| {
            numbers.extend(more);
            numbers
        };
        vec![match self {
            &Self::Context {
                context,
                device,
                is_created,
            } => (
                "context",
                vec![context.into(), device.into(), is_created.into()],
            ),
            &Self::EndContext { context } => ("end_context", ids(&[context])),
            &Self::Stream {
                stream,
                context,
                kind,
            } => ("stream", with(ids(&[stream, context]), &[kind as i64])),
            &Self::EndStream { stream } => ("end_stream", ids(&[stream])),
            &Self::Event {
                event,
                context,
                flags,
            } => ("event", ids(&[event, context, flags])),
            &Self::EndEvent { event } => ("end_event", ids(&[event])),
            &Self::Allocate {
                buffer,
                context,
                memory,
                size,
                stream,
            } => {
                let numbers = [memory as i64, size.into(), optional(stream)];
                ("allocate", with(ids(&[buffer, context]), &numbers))
            }
            &Self::Free { buffer, stream } => ("free", with(ids(&[buffer]), &[optional(stream)])),
            &Self::Fill { to, seed } => ("fill", with(to.numbers(), &[seed.into()])),
            Self::Read { from } => ("read", from.numbers()),
            Self::Work { work, site } => work.numbers(match *site {
                Site::Stream(stream) => [stream.into(), 0],
                Site::Context(context) => [-1, context.into()],
            }),
            &Self::HostFill { stream, to, seed } => {
                let numbers = with(ids(&[stream]), &to.numbers());
                ("host_fill", with(numbers, &[seed.into()]))
            }
            &Self::WriteValue {
                stream,
                to,
                value,
                is_batched,
            } => {
                let numbers = with(ids(&[stream]), &start(to));
                let more = [value.into(), is_batched.into()];
                ("write_value", with(numbers, &more))
            }
            &Self::Poll { from, value } => ("poll", with(start(from).to_vec(), &[value.into()])),
            &Self::Record { event, stream } => ("record", ids(&[event, stream])),
            &Self::Wait { stream, event } => ("wait", ids(&[stream, event])),
            &Self::SyncStream { stream } => ("sync_stream", ids(&[stream])),
            &Self::SyncEvent { event } => ("sync_event", ids(&[event])),
            &Self::SyncContext { context } => ("sync_context", ids(&[context])),
            &Self::QueryStream { stream } => ("query_stream", ids(&[stream])),
            &Self::QueryEvent { event } => ("query_event", ids(&[event])),
            Self::Graph {
                graph,
                context,
                is_captured,
                nodes,
            } => {
                let head = [(*is_captured).into(), nodes.len() as i64];
                let mut lines = vec![("graph", with(ids(&[*graph, *context]), &head))];
                for node in nodes {
                    let mut numbers = vec![node.after.len() as i64];
                    numbers.extend(node.after.iter().map(|&before| i64::from(before)));
                    numbers.push(node.work.kind());
                    numbers.extend(node.work.numbers([0, 0]).1);
                    lines.push(("node", numbers));
                }
                return lines;
            }
            &Self::EndGraph { graph } => ("end_graph", ids(&[graph])),
            &Self::Launch { graph, stream } => ("launch", ids(&[graph, stream])),
            &Self::Post { flag } => ("post", ids(&[flag])),
            &Self::Signal { stream, flag } => ("signal", ids(&[stream, flag])),
            &Self::Await { flag } => ("await", ids(&[flag])),
        }]
    }
}
