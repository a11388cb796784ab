//! The threads that read the trace: a scan, the check, and one for each kind of request.

mod call_pane;
mod check;
mod find;
mod object_pane;
mod report_timer;
mod rows;
mod scan;
pub(crate) mod shared;
pub(crate) mod worker;

use std::ops::ControlFlow;
use std::sync::Arc;

use cutape_calls::Markers;
use cutape_format::{Error, Thread};
use cutape_symbols::Resolver;

use self::call_pane::PaneSource;
use self::find::Search;
use self::shared::SharedTrace;
use self::worker::{Listener, Worker, spawn};
use crate::state::object_key::ObjectKey;
use crate::state::reply::{Reply, Request, Scope, SendReply};

/// The threads.
pub(crate) struct Engine {
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
    pub(crate) fn start(shared: &Arc<SharedTrace>, listener: &Listener) -> Self {
        spawn(listener, {
            let shared = Arc::clone(shared);
            move |send| scan::scan(&shared, send)
        });
        spawn(listener, {
            let shared = Arc::clone(shared);
            move |send| {
                if let Err(error) = check::check(&shared, send) {
                    send(Reply::Failed(error.to_string()));
                }
            }
        });
        Self {
            rows: Worker::start(shared, listener, || {
                |shared, calls: Vec<u64>, cancelled, send| {
                    answer(send, rows::rows(shared, &calls, cancelled))
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
    pub(crate) fn ask(&self, request: Request) {
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

fn answer(send: &SendReply<'_>, reply: Result<Reply, Error>) {
    send(reply.unwrap_or_else(|error| Reply::Failed(error.to_string())));
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
