//! A replay that stops at calls, forward and back, to look at memory there.

use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use cutape_format::Trace;

use crate::error::Error;
use crate::guard::attempt::Guard;
use crate::guard::{Ended, Talk, died, guarded};
use crate::observation::job::{Seen, WatchedRange};
use crate::observation::session::{Act, Done, Link, Reply, Request, Stop};

/// Why a session has no answer.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The replay cannot do it at that call.
    #[error("{0}")]
    Refused(String),
    /// There is no replay.
    #[error(transparent)]
    Replay(#[from] Error),
}

/// A replay that stops at calls, in a guarded child. There is no child until one is needed; to get
/// to an earlier call a new one begins anew.
pub struct Session {
    trace: Arc<Trace>,
    command: Arc<dyn Fn() -> Command + Send + Sync>,
    guard: Guard,
    child: Option<Replaying>,
    divergences: u64,
}

/// A child.
struct Replaying {
    /// Where it is.
    at: Stop,
    /// `None` before it starts, and when it has ended.
    link: Option<Link>,
    events: Receiver<Event>,
    cancel: Arc<AtomicBool>,
    guarding: Option<JoinHandle<()>>,
    /// Memory has been written, which another child does not know of.
    has_written: bool,
}

enum Event {
    /// A child is about to start; another may follow if it does not fit.
    Started(UnixStream),
    /// No other child follows.
    Ended(Error),
}

impl Session {
    /// A session on a trace. Its children are made by `command`: normally this executable with a
    /// hidden verb that calls [`serve_as_child`](crate::serve_as_child) with the same trace.
    pub fn new(
        trace: Arc<Trace>,
        command: impl Fn() -> Command + Send + Sync + 'static,
        guard: Guard,
    ) -> Self {
        Self {
            trace,
            command: Arc::new(command),
            guard,
            child: None,
            divergences: 0,
        }
    }

    /// The bytes at a recorded address, as many of them as the memory there has, at a stop.
    ///
    /// # Errors
    /// There is no memory, it cannot be read there, or the replay failed.
    pub fn read(&mut self, stop: Stop, address: u64, length: u64) -> Result<Vec<u8>, SessionError> {
        let act = Act::Read { address, length };
        match self.ask(Request { stop, act })? {
            Done::Read(bytes) => Ok(bytes),
            _ => Err(unexpected()),
        }
    }

    /// Writes bytes at a recorded address, at a stop. They are lost when an earlier stop is asked
    /// for.
    ///
    /// # Errors
    /// As [`Session::read`].
    pub fn write(&mut self, stop: Stop, address: u64, bytes: &[u8]) -> Result<(), SessionError> {
        let act = Act::Write {
            address,
            bytes: bytes.to_vec(),
        };
        match self.ask(Request { stop, act })? {
            Done::Written => {}
            _ => return Err(unexpected()),
        }
        if let Some(child) = &mut self.child {
            child.has_written = true;
        }
        Ok(())
    }

    /// The first changes of ranges from one stop on and before another; and what could not be
    /// looked at.
    ///
    /// # Errors
    /// As [`Session::read`].
    pub fn first_change(
        &mut self,
        from: Stop,
        to: Stop,
        ranges: &[WatchedRange],
    ) -> Result<(Vec<Seen>, Vec<String>), SessionError> {
        self.watched(from, &[], false)?;
        self.watched(to, ranges, true)
    }

    /// The last changes of ranges from one stop on and before another; and what could not be looked
    /// at.
    ///
    /// # Errors
    /// As [`Session::read`].
    pub fn last_change(
        &mut self,
        from: Stop,
        before: Stop,
        ranges: &[WatchedRange],
    ) -> Result<(Vec<Seen>, Vec<String>), SessionError> {
        self.end();
        self.watched(from, &[], false)?;
        self.watched(before, ranges, false)
    }

    /// Where the child is; `None` if there is none.
    pub fn at(&self) -> Option<Stop> {
        self.child.as_ref().map(|child| child.at)
    }

    /// Whether bytes were written that another child would not have.
    pub fn has_written(&self) -> bool {
        self.child.as_ref().is_some_and(|child| child.has_written)
    }

    /// Ends the child.
    pub fn end(&mut self) {
        self.child = None;
    }

    /// Differences of the replay from the recording, as far as it has got.
    pub fn divergences(&self) -> u64 {
        self.divergences
    }

    /// Goes to a stop, or to the first change before it, with the ranges watched.
    fn watched(
        &mut self,
        stop: Stop,
        ranges: &[WatchedRange],
        is_first: bool,
    ) -> Result<(Vec<Seen>, Vec<String>), SessionError> {
        let act = Act::Watch {
            ranges: ranges.to_vec(),
            is_first,
        };
        match self.ask(Request { stop, act })? {
            Done::Watched(seen, left_out) => Ok((seen, left_out)),
            _ => Err(unexpected()),
        }
    }

    fn ask(&mut self, request: Request) -> Result<Done, SessionError> {
        if self.at().is_some_and(|at| at > request.stop) {
            self.end();
        }
        let child = match self.child.take() {
            Some(child) => child,
            None => self.start(),
        };
        let child = self.child.insert(child);
        match child.ask(&request) {
            Ok(reply) => {
                self.divergences = reply.divergences;
                reply.done.map_err(SessionError::Refused)
            }
            Err(error) => {
                self.end();
                Err(error.into())
            }
        }
    }

    fn start(&self) -> Replaying {
        let (sender, events) = channel();
        let cancel = Arc::new(AtomicBool::new(false));
        let (trace, command) = (Arc::clone(&self.trace), Arc::clone(&self.command));
        let (guard, cancelled) = (self.guard.clone(), Arc::clone(&cancel));
        let end = sender.clone();
        let guarding = std::thread::Builder::new().spawn(move || {
            let ended = guard_children(&trace, &*command, &guard, &cancelled, &sender);
            let _ = sender.send(Event::Ended(ended));
        });
        if let Err(error) = &guarding {
            let _ = end.send(Event::Ended(Error::no_thread(error)));
        }
        drop(end);
        Replaying {
            at: Stop::default(),
            link: None,
            events,
            cancel,
            guarding: guarding.ok(),
            has_written: false,
        }
    }
}

/// Tries children until one fits, and has them talked to; why there is none any more.
fn guard_children(
    trace: &Trace,
    command: &dyn Fn() -> Command,
    guard: &Guard,
    cancel: &AtomicBool,
    events: &Sender<Event>,
) -> Error {
    let mut connect = || {
        let (ours, theirs) = UnixStream::pair()?;
        let _ = events.send(Event::Started(ours));
        Ok(theirs.into())
    };
    let talk = Talk {
        connect: &mut connect,
        cancel,
    };
    match guarded(trace, command, guard, &mut |_| {}, Some(talk)) {
        Ok((Ended::Reported(_), _)) => Error::NoReport {
            how: "it came to the end of the trace before the stop".into(),
        },
        Ok((Ended::Died(report), _)) => died(*report, "replaying"),
        Err(error) => error,
    }
}

fn unexpected() -> SessionError {
    crate::guard::unexpected().into()
}

impl Replaying {
    /// Sends a request, again if the child did not fit and another one starts.
    fn ask(&mut self, request: &Request) -> Result<Reply, Error> {
        loop {
            if let Some(link) = &mut self.link {
                let sent = link.send(request);
                if let Ok(reply) = sent.and_then(|()| link.receive::<Reply>()) {
                    self.at = reply.at;
                    return Ok(reply);
                }
                self.link = None;
            }
            match self.events.recv() {
                Ok(Event::Started(_)) if self.has_written => {
                    return Err(Error::Measure {
                        why: "the replay began anew, without what was written to its memory".into(),
                    });
                }
                Ok(Event::Started(stream)) => self.link = Some(Link::new(stream)),
                Ok(Event::Ended(error)) => return Err(error),
                Err(_) => return Err(crate::guard::unexpected()),
            }
        }
    }
}

impl Drop for Replaying {
    fn drop(&mut self) {
        self.cancel.store(true, Ordering::Relaxed);
        self.link = None;
        if let Some(guarding) = self.guarding.take() {
            let _ = guarding.join();
        }
    }
}
