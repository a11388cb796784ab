//! The threads that read the trace: a scan, the check, and one for each kind of request.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use cutape_format::{Call, Error, Thread};

use super::call_pane::{self, PaneSource};
use super::find::{self, IsCancelled, Search};
use super::findings;
use super::object_key::ObjectKey;
use super::object_pane;
use super::reply::{Reply, Request, Scope};
use super::row::Row;
use super::scan;
use super::shared::SharedTrace;
use cutape_calls::Markers;
use cutape_format::TraceClock;
use cutape_render::Renderer;
use cutape_symbols::Resolver;

/// What a thread says: a reply, or that it panicked.
pub(super) enum Said {
    Reply(Reply),
    /// The panic's message is on stderr.
    Bug,
}

/// Where threads send what they say.
pub(super) type Listener = Arc<dyn Fn(Said) + Send + Sync>;

/// The threads.
pub(super) struct Engine {
    rows: Worker<Vec<u64>>,
    pane: Worker<Subject>,
    filter: Worker<(u64, Scope)>,
    search: Worker<Option<Search>>,
}

/// What the pane is about.
enum Subject {
    Call(u64),
    Object(ObjectKey),
}

/// What panes need of a trace beside the call.
#[derive(Default)]
struct PaneFacts {
    resolver: Resolver,
    /// Of a trace that does not grow.
    markers: Option<(Markers, Vec<Thread>)>,
}

impl Engine {
    /// Starts the threads; they end with the process.
    pub(super) fn start(shared: &Arc<SharedTrace>, listener: &Listener) -> Self {
        spawn(listener, {
            let shared = Arc::clone(shared);
            move |send| scan::scan(&shared, send)
        });
        spawn(listener, {
            let shared = Arc::clone(shared);
            move |send| {
                if let Err(error) = findings::check(&shared, send) {
                    send(Reply::Failed(error.to_string()));
                }
            }
        });
        Self {
            rows: Worker::start(shared, listener, || {
                |shared, calls: Vec<u64>, cancelled, send| {
                    answer(send, rows(shared, &calls, cancelled))
                }
            }),
            pane: Worker::start(shared, listener, || {
                let mut facts = PaneFacts::default();
                move |shared, subject, _, send| answer(send, pane(shared, &subject, &mut facts))
            }),
            filter: Worker::start(shared, listener, || {
                |shared, (id, scope): (u64, Scope), cancelled, send| {
                    find::filter(shared, id, &scope, cancelled, send);
                }
            }),
            search: Worker::start(shared, listener, || {
                |shared, search: Option<Search>, cancelled, send| {
                    if let Some(search) = search {
                        search.run(shared, cancelled, send);
                    }
                }
            }),
        }
    }

    /// Passes a request on; replies come through the listener.
    pub(super) fn ask(&self, request: Request) {
        match request {
            Request::Rows(calls) => self.rows.ask(calls),
            Request::Call(call) => self.pane.ask(Subject::Call(call)),
            Request::Object(key) => self.pane.ask(Subject::Object(key)),
            Request::Filter { id, scope } => self.filter.ask((id, scope)),
            Request::Search {
                id,
                wanted,
                scope,
                from,
                is_backward,
            } => self.search.ask(Some(Search {
                id,
                wanted,
                scope,
                from,
                is_backward,
            })),
            Request::StopSearch => self.search.ask(None),
            // For the terminal.
            Request::Suspend => {}
        }
    }
}

fn answer(send: &super::reply::Send<'_>, reply: Result<Reply, Error>) {
    send(reply.unwrap_or_else(|error| Reply::Failed(error.to_string())));
}

/// A thread that answers requests of one kind.
struct Worker<R> {
    requests: Sender<(u64, R)>,
    /// The number of the last request.
    last: Arc<AtomicU64>,
}

impl<R: Send + 'static> Worker<R> {
    /// `make` makes, in the thread, the function that answers.
    fn start<F>(
        shared: &Arc<SharedTrace>,
        listener: &Listener,
        make: impl FnOnce() -> F + Send + 'static,
    ) -> Self
    where
        F: FnMut(&SharedTrace, R, IsCancelled<'_>, &super::reply::Send<'_>),
    {
        let (requests, receiver) = channel::<(u64, R)>();
        let last = Arc::new(AtomicU64::new(0));
        let (shared, newest) = (Arc::clone(shared), Arc::clone(&last));
        spawn(listener, move |send| {
            let mut answer = make();
            for (number, request) in receiver {
                let is_cancelled = || newest.load(Ordering::Acquire) != number;
                if !is_cancelled() {
                    answer(&shared, request, &is_cancelled, send);
                }
            }
        });
        Self { requests, last }
    }

    fn ask(&self, request: R) {
        let number = self.last.fetch_add(1, Ordering::AcqRel) + 1;
        // The thread ends only with the process, or with a bug that was reported.
        let _ = self.requests.send((number, request));
    }
}

/// Starts a thread that reports its panic.
fn spawn(listener: &Listener, run: impl FnOnce(&super::reply::Send<'_>) + Send + 'static) {
    let listener = Arc::clone(listener);
    thread::spawn(move || {
        let send = |reply| listener(Said::Reply(reply));
        if catch_unwind(AssertUnwindSafe(|| run(&send))).is_err() {
            listener(Said::Bug);
        }
    });
}

/// The lines of calls.
fn rows(
    shared: &SharedTrace,
    wanted: &[u64],
    is_cancelled: IsCancelled<'_>,
) -> Result<Reply, Error> {
    let trace = shared.trace();
    let clock = TraceClock::of(&trace);
    let segments = shared.segments();
    let mut rows = Vec::new();
    let mut rest = wanted;
    while let Some(&first) = rest.first() {
        // What lies between two checkpoints is read at once.
        let segment = segments.partition_point(|segment| segment.start <= first);
        let end = segments
            .get(segment.max(1) - 1)
            .map_or(u64::MAX, |segment| segment.end);
        let (now, later) = rest.split_at(rest.partition_point(|&call| call < end).max(1));
        rest = later;
        let calls = first..now.last().map_or(first, |last| last + 1);
        let mut each = |renderer: &mut Renderer<'_>, call: &Call<'_>| {
            if now.binary_search(&call.index).is_ok() {
                rows.push(Row::of(renderer, call, clock));
            }
            match is_cancelled() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        match shared.is_far(first) {
            true => shared.read_labelled(&trace, calls, &mut each)?,
            false => shared.read(&trace, calls, &mut each)?,
        }
    }
    Ok(Reply::Rows(rows))
}

/// All about a call or an object.
fn pane(shared: &SharedTrace, subject: &Subject, facts: &mut PaneFacts) -> Result<Reply, Error> {
    let trace = shared.trace();
    if facts.markers.is_none() || shared.is_growing() {
        facts.markers = Some((Markers::of(&trace), trace.threads()));
    }
    let Some((markers, threads)) = &facts.markers else {
        return Ok(Reply::Rows(Vec::new()));
    };
    let call = match subject {
        Subject::Call(call) => *call,
        Subject::Object(key) => key.call,
    };
    let mut reply = match subject {
        Subject::Call(index) => Reply::Call {
            index: *index,
            lines: Vec::new(),
        },
        Subject::Object(key) => Reply::Object {
            key: *key,
            title: String::new(),
            lines: Vec::new(),
        },
    };
    shared.read(
        &trace,
        call..call.saturating_add(1),
        &mut |renderer, call| {
            match (&mut reply, subject) {
                (Reply::Call { lines, .. }, _) => {
                    let source = PaneSource {
                        trace: &trace,
                        resolver: &facts.resolver,
                        markers,
                        threads,
                    };
                    *lines = call_pane::lines(&source, renderer, call);
                }
                (Reply::Object { title, lines, .. }, Subject::Object(key)) => {
                    (*title, *lines) = object_pane::lines(renderer, *key);
                }
                _ => {}
            }
            ControlFlow::Break(())
        },
    )?;
    Ok(reply)
}
