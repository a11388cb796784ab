//! The first pass over a trace: counts its calls and makes checkpoints; of a growing trace, as long
//! as the recording goes on.

use std::thread;
use std::time::{Duration, Instant};

use cutape_format::{Cursor, Error, Trace};
use cutape_model::Scope as Tracked;
use cutape_render::{Known, Limits, Renderer};
use cutape_terminal::clock::TickClock;

use super::report_timer::ReportTimer;
use super::shared::{Checkpoint, SharedTrace};
use crate::state::reply::{InFlight, Progress, Reply, SendReply};

/// Time between two looks at a growing trace.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Time between two looks at whether the recorded process lives.
const LIFE_INTERVAL: Duration = Duration::from_millis(500);
/// Time between two reports.
const REPORT_INTERVAL: Duration = Duration::from_millis(50);
/// How many calls in flight are named.
const MOST_IN_FLIGHT: usize = 8;
/// Among how many calls they are searched.
const MOST_SEARCHED: usize = 1 << 12;

/// Scans the whole trace.
pub(super) fn scan(shared: &SharedTrace, send: &SendReply<'_>) {
    let outcome = match shared.is_packed() {
        true => scan_packed(shared, send),
        false => {
            scan_unpacked(shared, send);
            Ok(())
        }
    };
    if let Err(error) = outcome {
        send(Reply::Failed(error.to_string()));
    }
}

fn scan_packed(shared: &SharedTrace, send: &SendReply<'_>) -> Result<(), Error> {
    let trace = shared.trace();
    let mut renderer = Renderer::new(&trace, Limits::TEXT, Tracked::All);
    let mut due = shared.next_checkpoint();
    let (mut timer, mut scanned) = (ReportTimer::every(REPORT_INTERVAL), 0);
    send(Reply::Progress(Progress {
        total: shared.total(),
        ..Progress::default()
    }));
    trace.walk().run(|call| {
        if call.index >= due {
            shared.add_checkpoint(Checkpoint {
                index: call.index,
                cursor: None,
                known: renderer.known(),
            });
            due = shared.next_checkpoint();
        }
        renderer.observe(call);
        scanned = call.index + 1;
        if timer.is_due(scanned) {
            let total = shared.total().max(scanned);
            send(Reply::Progress(Progress {
                total,
                scanned,
                ..Progress::default()
            }));
        }
        Ok::<_, Error>(())
    })?;
    shared.count(scanned, true);
    send(Reply::Progress(Progress {
        total: scanned,
        scanned,
        is_complete: true,
        ..Progress::default()
    }));
    Ok(())
}

/// What a growing trace has shown so far.
struct Growth {
    /// Behind the calls that have returned, and all before them.
    settled: Cursor,
    /// Behind the calls that have been entered.
    entered: Cursor,
    known: Known,
    due: u64,
    reported: Option<Progress>,
}

fn scan_unpacked(shared: &SharedTrace, send: &SendReply<'_>) {
    let clock = TickClock::start();
    let mut growth = Growth {
        settled: Cursor::new(),
        entered: Cursor::new(),
        known: Known::new(Tracked::All),
        due: shared.next_checkpoint(),
        reported: None,
    };
    let mut looked = Instant::now();
    loop {
        let is_growing = shared.is_growing();
        if is_growing {
            let is_last = looked.elapsed() >= LIFE_INTERVAL && {
                looked = Instant::now();
                shared.trace().writer().is_none()
            };
            shared.refresh(clock.settled(), is_last);
        }
        let is_last = !shared.is_growing();
        growth = growth.advance(shared, is_last, send);
        if is_last {
            return;
        }
        thread::sleep(POLL_INTERVAL);
    }
}

impl Growth {
    /// Takes in what there is; `is_last` says that no call will return any more.
    fn advance(mut self, shared: &SharedTrace, is_last: bool, send: &SendReply<'_>) -> Self {
        let trace = shared.trace();
        let horizon = shared.horizon();
        let mut renderer = Renderer::resume(&trace, Limits::TEXT, self.known);
        let mut timer = ReportTimer::every(REPORT_INTERVAL);
        loop {
            let is_due = self.settled.index() >= self.due;
            let cursor = is_due.then(|| self.settled.clone());
            let call = match is_last {
                true => self.settled.next_entered(&trace, horizon),
                false => self.settled.next_before(&trace, horizon),
            };
            let Some(call) = call else { break };
            if is_due {
                shared.add_checkpoint(Checkpoint {
                    index: call.index,
                    cursor,
                    known: renderer.known(),
                });
                self.due = shared.next_checkpoint();
            }
            renderer.observe(&call);
            let scanned = self.settled.index();
            if timer.is_due(scanned) {
                shared.count(scanned, false);
                send(Reply::Progress(Progress {
                    total: shared.total(),
                    scanned,
                    settled: scanned,
                    ..Progress::default()
                }));
            }
        }
        if self.entered.index() < self.settled.index() {
            self.entered = self.settled.clone();
        }
        while self.entered.next_entered(&trace, horizon).is_some() {}
        let progress = Progress {
            total: self.entered.index(),
            scanned: self.settled.index(),
            settled: self.settled.index(),
            is_complete: is_last,
            is_growing: !is_last,
            in_flight: match is_last {
                true => Vec::new(),
                false => in_flight(&trace, &self.settled, horizon),
            },
        };
        shared.count(progress.total, is_last);
        if self.reported.as_ref() != Some(&progress) {
            self.reported = Some(progress.clone());
            send(Reply::Progress(progress));
        }
        self.known = renderer.into_known();
        self
    }
}

/// Calls that have not returned, among those behind a place.
fn in_flight(trace: &Trace, behind: &Cursor, horizon: u64) -> Vec<InFlight> {
    let mut cursor = behind.clone();
    let mut found = Vec::new();
    for _ in 0..MOST_SEARCHED {
        let Some(call) = cursor.next_entered(trace, horizon) else {
            break;
        };
        if call.leave.is_none() && found.len() < MOST_IN_FLIGHT {
            found.push(InFlight {
                index: call.index,
                thread: call.thread,
                function: call.signature.name.to_string(),
            });
        }
    }
    found
}
