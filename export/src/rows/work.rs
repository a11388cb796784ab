//! What a call enqueues or waits for: launches, copies, waits; and records of events.

use cutape_format::Call;
use cutape_model::{
    Copied, Effects, Exec, LaunchShape, ObjectId, TraceState, Work, each_copy, filled_bytes,
};
use cutape_registry::{
    Family, Function, GraphOp, Kind, STREAM_PER_THREAD, StreamOp, Waits, canonical_stream,
    is_default_stream,
};
use rustc_hash::FxHashMap;

use super::images::Images;
use super::lifetimes::object_ref;
use super::reference::{CallRef, ObjectRef, StreamRef};
use super::row::{
    Awaited, CopyRow, EventRecordRow, GraphKernelRow, GraphLaunchRow, HostFunctionRow, LaunchRow,
    WaitRow,
};
use super::sink::Sink;
use cutape_analyzer::demangle::demangle;

/// Whether calls of a function launch or copy.
pub(super) fn is_work(function: &Function) -> bool {
    matches!(
        function.family,
        Family::Launch(_) | Family::Graph(GraphOp::Launch) | Family::Copy(_) | Family::Memset
    )
}

/// Whether calls of a function wait and do nothing else.
pub(super) fn is_wait(function: &Function) -> bool {
    let of_stream = matches!(function.family, Family::Stream(StreamOp::WaitEvent));
    !is_work(function) && (of_stream || function.waits != Waits::No)
}

/// What is known of a handle that was launched.
#[derive(Clone, Debug, Default)]
struct Kernel {
    name: Option<String>,
    demangled: Option<String>,
    function: Option<ObjectRef>,
    module: Option<ObjectRef>,
    image: Option<String>,
}

impl Kernel {
    /// A row with what is known of the kernel, and nothing else.
    fn row(kernel: Option<&Self>, call: CallRef) -> LaunchRow<'_> {
        let text = |part: fn(&Self) -> &Option<String>| part(kernel?).as_deref();
        LaunchRow {
            call,
            handle: None,
            kernel: text(|kernel| &kernel.name),
            demangled: text(|kernel| &kernel.demangled),
            function: kernel.and_then(|kernel| kernel.function),
            module: kernel.and_then(|kernel| kernel.module),
            image: text(|kernel| &kernel.image),
            grid: None,
            block: None,
            shared_bytes: None,
            stream: None,
            is_captured: false,
        }
    }
}

/// Looks up what calls launch; loops launch the same handles again and again.
#[derive(Debug, Default)]
pub(super) struct WorkRows {
    kernels: FxHashMap<u64, Kernel>,
    /// [`TraceState::kernel_version`] when they were looked up.
    version: u64,
    demangled: FxHashMap<String, String>,
}

/// A call, with what is known of it before it is applied.
pub(super) struct Submission<'a> {
    pub(super) effects: &'a Effects,
    pub(super) call: &'a Call<'a>,
    pub(super) row: CallRef,
}

impl WorkRows {
    /// The rows of a call; `state` is that before the call.
    pub(super) fn add<S: Sink>(
        &mut self,
        of: &Submission<'_>,
        state: &mut TraceState,
        images: &Images,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let function = of.effects.function;
        match function.family {
            Family::Launch(_) => {
                let mut outcome = Ok(());
                LaunchShape::each(function, of.call, &mut |shape| {
                    if outcome.is_ok() {
                        outcome = self.launch(of, shape, state, images, sink);
                    }
                });
                outcome
            }
            Family::Graph(GraphOp::Launch) => self.graph_launch(of, state, images, sink),
            Family::Copy(_) | Family::Memset => copies(of, state, sink),
            Family::Stream(StreamOp::WaitEvent) => wait(of, Awaited::EventInStream, state, sink),
            _ => match function.waits {
                Waits::No => Ok(()),
                Waits::Context => wait(of, Awaited::Context, state, sink),
                Waits::Stream(_) => wait(of, Awaited::Stream, state, sink),
                Waits::Event(_) => wait(of, Awaited::Event, state, sink),
            },
        }
    }

    fn launch<S: Sink>(
        &mut self,
        of: &Submission<'_>,
        shape: LaunchShape,
        state: &mut TraceState,
        images: &Images,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let (stream, is_captured) = stream::<S>(of, shape.stream.unwrap_or(0), state);
        let kernel = shape
            .kernel
            .map(|handle| self.kernel(handle, state, images));
        sink.launch(&LaunchRow {
            call: of.row,
            handle: shape.kernel,
            grid: shape.grid,
            block: shape.block,
            shared_bytes: shape.shared,
            stream,
            is_captured,
            ..Kernel::row(kernel, of.row)
        })
    }

    fn graph_launch<S: Sink>(
        &mut self,
        of: &Submission<'_>,
        state: &mut TraceState,
        images: &Images,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let handle = of.effects.stream(of.call);
        let stream = handle.map(|handle| stream::<S>(of, handle, state));
        let is_captured = stream.is_some_and(|(_, is_captured)| is_captured);
        let stream = stream.and_then(|(stream, _)| stream);
        let handle = of.effects.handle_of(of.call, Kind::GraphExec).unwrap_or(0);
        let objects = &state.state.objects;
        let graph = objects.find(Kind::GraphExec, handle).known();
        let graph = graph.and_then(|id| objects.get(id)).map(object_ref);
        let exec = state.state.graphs.exec(handle);
        let active = exec.and_then(Exec::known_active);
        let kernels = active.iter().flatten().zip(0..);
        let kernels = kernels.filter_map(|((_, work), number)| match work {
            Work::Kernel(kernel) => Some((number, kernel)),
            _ => None,
        });
        sink.graph_launch(&GraphLaunchRow {
            call: of.row,
            graph,
            nodes: active.as_ref().map(|active| active.len() as u64),
            kernels: active.as_ref().map(|_| kernels.clone().count() as u64),
            stream,
            is_captured,
        })?;
        for (node, work) in kernels {
            let handle = Some(work.function).filter(|handle| *handle != 0);
            let kernel = handle.map(|handle| self.kernel(handle, state, images));
            let launch = LaunchRow {
                handle,
                grid: work.grid,
                block: work.block,
                shared_bytes: work.shared,
                stream,
                is_captured,
                ..Kernel::row(kernel, of.row)
            };
            sink.graph_kernel(&GraphKernelRow {
                graph,
                node,
                launch,
            })?;
        }
        Ok(())
    }

    fn kernel(&mut self, handle: u64, state: &TraceState, images: &Images) -> &Kernel {
        let version = state.kernel_version();
        if self.version != version {
            self.version = version;
            self.kernels.clear();
        }
        self.kernels.entry(handle).or_insert_with(|| {
            let objects = &state.state.objects;
            let name = state.kernel_name(handle).map(str::to_owned);
            let demangled = name.as_ref().map(|name| {
                let known = self.demangled.entry(name.clone());
                known.or_insert_with_key(|name| demangle(name)).clone()
            });
            let function = objects.resolve(Kind::Function, handle).known();
            let owners = function.into_iter().flat_map(|id| objects.ancestors(id));
            let owner = |id: &ObjectId| {
                let object = objects.get(*id)?;
                let is_owner = matches!(object.kind, Kind::Module | Kind::Library);
                is_owner.then(|| (*id, object_ref(object)))
            };
            // The module of a library's function has no image of its own.
            let owners: Vec<_> = owners.filter_map(|id| owner(&id)).collect();
            let loaded = owners.iter().find_map(|(id, _)| images.of(*id));
            Kernel {
                name,
                demangled,
                function: function.and_then(|id| objects.get(id)).map(object_ref),
                module: owners.first().map(|(_, module)| *module),
                image: loaded.map(str::to_owned),
            }
        })
    }
}

/// The stream of a call if the sink wants it, and whether it captures.
fn stream<S: Sink>(
    of: &Submission<'_>,
    handle: u64,
    state: &mut TraceState,
) -> (Option<StreamRef>, bool) {
    if !S::WANTS.streams && state.state.captures.is_empty() {
        return (None, false);
    }
    let (thread, per_thread) = (of.call.thread, of.effects.function.per_thread);
    let state = &mut state.state;
    let number = state.stream(thread, handle, per_thread);
    let is_captured = !state.captures.is_empty() && state.captures.of(number).is_some();
    let is_default = is_default_stream(handle);
    let object = state.objects.live(Kind::Stream, handle);
    let object = object.and_then(|id| state.objects.get(id));
    let of_thread = canonical_stream(handle, per_thread) == STREAM_PER_THREAD;
    let (context, kind) = state.order.context_and_kind(number);
    let stream = StreamRef {
        number,
        context,
        kind,
        handle,
        object: object.filter(|_| !is_default).map(object_ref),
        of_thread: of_thread.then_some(thread),
    };
    (S::WANTS.streams.then_some(stream), is_captured)
}

fn copies<S: Sink>(
    of: &Submission<'_>,
    state: &mut TraceState,
    sink: &mut S,
) -> Result<(), S::Error> {
    let function = of.effects.function;
    let handle = of.effects.stream(of.call);
    let (stream, is_captured) = stream::<S>(of, handle.unwrap_or(0), state);
    let row = |copied: Option<Copied>| CopyRow {
        call: of.row,
        from: copied.map(|copied| copied.from),
        to: copied.map(|copied| copied.to),
        is_memset: false,
        bytes: copied.map(|copied| copied.bytes),
        is_peer: copied.is_some_and(|copied| copied.is_peer),
        is_async: function.stream.is_some(),
        stream,
        is_captured,
    };
    if function.family == Family::Memset {
        return sink.copy(&CopyRow {
            is_memset: true,
            to: Some(cutape_model::Side::Device),
            bytes: Some(filled_bytes(function, of.call)),
            ..row(None)
        });
    }
    let mut outcome = Ok(());
    each_copy(function, of.call, &state.state, &mut |copied| {
        if outcome.is_ok() {
            outcome = sink.copy(&row(copied));
        }
    });
    outcome
}

fn wait<S: Sink>(
    of: &Submission<'_>,
    awaited: Awaited,
    state: &mut TraceState,
    sink: &mut S,
) -> Result<(), S::Error> {
    let function = of.effects.function;
    let handle = match function.waits {
        Waits::Stream(position) => Some(of.call.argument(usize::from(position))),
        _ if awaited == Awaited::EventInStream => of.effects.stream(of.call),
        _ => None,
    };
    let stream = handle.and_then(|handle| stream::<S>(of, handle, state).0);
    sink.wait(&WaitRow {
        call: of.row,
        awaited,
        stream,
        event: event(of, state),
    })
}

/// The event that a call names.
fn event(of: &Submission<'_>, state: &TraceState) -> Option<ObjectRef> {
    let objects = &state.state.objects;
    let handle = of.effects.handle_of(of.call, Kind::Event)?;
    let id = objects.find(Kind::Event, handle).known()?;
    objects.get(id).map(object_ref)
}

/// The row of a call that puts a mark into a stream and enqueues no work of a device: it records an
/// event, or has the stream call a function of the program. `state` is that before the call.
pub(super) fn stream_mark<S: Sink>(
    of: &Submission<'_>,
    state: &mut TraceState,
    sink: &mut S,
) -> Result<(), S::Error> {
    let handle = of.effects.stream(of.call).filter(|_| of.call.succeeded());
    let (stream, is_captured) =
        handle.map_or((None, false), |handle| stream::<S>(of, handle, state));
    if is_captured || stream.is_none() {
        return Ok(());
    }
    let call = of.row;
    match of.effects.function.family {
        Family::Event(_) => sink.event_record(&EventRecordRow {
            call,
            stream,
            event: event(of, state),
        }),
        _ => sink.host_function(&HostFunctionRow { call, stream }),
    }
}
