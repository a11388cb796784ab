//! Replays of a trace from the nearest checkpoint: a part of the trace that begins with what memory
//! held, as `trim --state replay` makes it.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cutape_cut::trim::{Cut, StateReplay};
use cutape_debugger::{Changes, Memory};
use cutape_format::Trace;
use cutape_history::Bytes;
use cutape_render::quantity;
use cutape_replay::{Session, SessionError, Stop, WatchedRange};
use cutape_terminal::{library, message};

use crate::debug::replayer::Replayer;
use crate::observation;
use crate::one_rank::Source;
use cutape_terminal::private_folder::PrivateFolder;

/// A checkpoint that saves less is not worth its bytes: so long a wait is hardly noticed (assumed).
const WORTH: Duration = Duration::from_millis(500);

/// When checkpoints are taken, and how many are kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy {
    /// Bytes of their files.
    pub(super) budget: u64,
    /// They are taken whatever they cost.
    pub(super) is_eager: bool,
}

/// The replays of a session, of which at most one has a child.
pub(super) struct Checkpoints<'a> {
    replayer: &'a Replayer<'a>,
    /// For their files; `None`: none are taken.
    folder: Option<&'a PrivateFolder>,
    policy: Policy,
    /// By call; the first is the whole trace.
    list: Vec<Checkpoint>,
    /// The one that replays.
    current: usize,
    /// The replay over the most calls so far, and what it took.
    longest: (u64, Duration),
    /// What the last checkpoint took besides the replay up to it.
    cost: Option<Duration>,
    /// Checkpoints made so far.
    made: u64,
}

/// A trace that begins at a call.
struct Checkpoint {
    call: u64,
    /// Calls of its trace before that, which make what lives there.
    before: u64,
    trace: Arc<Trace>,
    session: Session,
    /// Bytes of its file; 0 for the whole trace.
    size: u64,
}

impl Checkpoint {
    fn own(&self, stop: Stop) -> Stop {
        Stop {
            call: stop.call - self.call + self.before,
            ..stop
        }
    }

    /// The call of the whole trace.
    fn whole(&self, call: u64) -> u64 {
        call.saturating_sub(self.before) + self.call
    }

    fn start(&self) -> Stop {
        Stop {
            call: self.call,
            is_after: false,
        }
    }

    /// Where its child is.
    fn at(&self) -> Option<Stop> {
        let at = self.session.at()?;
        Some(Stop {
            call: self.whole(at.call),
            ..at
        })
    }

    fn path(&self) -> &Path {
        self.trace.path()
    }
}

impl<'a> Checkpoints<'a> {
    /// None yet.
    pub(super) fn new(
        replayer: &'a Replayer<'a>,
        trace: Arc<Trace>,
        folder: Option<&'a PrivateFolder>,
        policy: Policy,
    ) -> Self {
        let whole = Checkpoint {
            call: 0,
            before: 0,
            session: replayer.session(&trace, replayer.source),
            trace,
            size: 0,
        };
        Self {
            replayer,
            folder,
            policy,
            list: vec![whole],
            current: 0,
            longest: (0, Duration::ZERO),
            cost: None,
            made: 0,
        }
    }

    /// What a replay over that many calls takes, by the longest one.
    fn estimate(&self, calls: u64) -> Duration {
        let (known, took) = self.longest;
        took.mul_f64(calls as f64 / known.max(1) as f64)
    }

    /// The last checkpoint from which a replay gets to a stop.
    fn nearest(&self, stop: Stop) -> usize {
        let after = self.list.partition_point(|known| known.start() <= stop);
        after.saturating_sub(1)
    }

    /// Chooses what replays up to a stop: the child that there is, or another checkpoint.
    fn go_near(&mut self, stop: Stop) {
        let current = &self.list[self.current];
        let nearest = self.nearest(stop);
        if let Some(at) = current.at().filter(|&at| at <= stop) {
            let saved = self.list[nearest].call.saturating_sub(at.call);
            if current.session.has_written() || self.estimate(saved) <= WORTH {
                return;
            }
        }
        self.go_back(stop, |at| at > stop);
    }

    /// Replays anew from the nearest checkpoint, after taking others if the child was where
    /// `is_worth` says: who goes back once does so again.
    fn go_back(&mut self, stop: Stop, is_worth: impl Fn(Stop) -> bool) {
        let at = self.list[self.current].at();
        self.list[self.current].session.end();
        self.current = self.nearest(stop);
        if at.is_some_and(is_worth) {
            self.take_up_to(stop);
        }
    }

    /// Takes checkpoints on the way to a stop, as long as going back to it later saves more time than
    /// that takes.
    fn take_up_to(&mut self, stop: Stop) {
        while let Some(folder) = self.folder {
            let from = self.list[self.current].call;
            let Some(calls) = self.next_checkpoint(stop.call - from) else {
                return;
            };
            let began = Instant::now();
            match self.take(folder, from + calls) {
                Ok(taken) => {
                    let cost = began.elapsed().saturating_sub(self.estimate(calls));
                    self.cost = Some(cost);
                    tracing::debug!(
                        "checkpoint at call {}: {}, {cost:?} besides the replay",
                        taken.call,
                        quantity::bytes(taken.size),
                    );
                    self.keep(taken);
                }
                Err(why) => self.stop_taking(&why),
            }
        }
    }

    /// How far on the way to a stop, which is that many calls away, a checkpoint is worth what it
    /// costs. Each is half of the rest farther on: then going back any distance takes a replay about
    /// as long. If that many cost too much, or the cost is not known, one that is near.
    fn next_checkpoint(&self, rest: u64) -> Option<u64> {
        let least = WORTH.max(self.cost.unwrap_or_default());
        let half = rest / 2;
        if self.policy.is_eager {
            return Some(half).filter(|&half| half > 0);
        }
        if self.cost.is_some() && self.estimate(half) > least {
            return Some(half);
        }
        let (known, took) = self.longest;
        let near = known as f64 * WORTH.as_secs_f64() / took.as_secs_f64().max(1e-9);
        let far = rest.saturating_sub(near as u64);
        (self.estimate(far) > least).then_some(far)
    }

    fn stop_taking(&mut self, why: &str) {
        message!("going back replays from farther away, since no checkpoint can be taken: {why}");
        self.folder = None;
    }

    /// Replays from the current checkpoint up to a call, and writes what follows with what memory
    /// holds there.
    fn take(&mut self, folder: &PrivateFolder, call: u64) -> Result<Checkpoint, String> {
        let source = &self.list[self.current];
        let own = source.own(Stop {
            call,
            is_after: false,
        });
        let chosen: Vec<u64> = (own.call..source.trace.calls().count() as u64).collect();
        let Replayer {
            driver, guarded, ..
        } = self.replayer;
        let alone = Source::of(source.path());
        let contents = folder.path("contents");
        let observe = observation::observer((&source.trace, &alone), driver, guarded, || {
            observation::replaying(&source.trace)
        });
        let replay = StateReplay {
            driver,
            is_null_driver: library::is_null_driver(driver),
            is_forced: guarded.is_forced(),
            takes_all: true,
            contents: &contents,
            observe: &observe,
        };
        let walks = |_: &Trace| -> Box<dyn FnMut()> { Box::new(|| ()) };
        let cut = Cut::with_memory(&source.trace, &chosen, "debug".into(), &walks, &replay);
        let path = folder.path(format!("{}.cutape", self.made));
        let written = cut.map_err(|error| error.to_string()).and_then(|cut| {
            let written = cut.write(&path, &|| ());
            let written = written.map_err(|error| format!("{}: {error}", path.display()))?;
            let calls = (0..own.call).filter(|&call| cut.part.contains(call));
            Ok((calls.count() as u64, written.after))
        });
        let _ = fs::remove_file(&contents);
        let (before, size) = written?;
        self.made += 1;
        let trace = Trace::open(&path).map_err(|error| error.to_string())?;
        let trace = Arc::new(trace);
        Ok(Checkpoint {
            call,
            before,
            session: self.replayer.session(&trace, &Source::of(&path)),
            trace,
            size,
        })
    }

    /// Adds a checkpoint after the current one, and replays from it. Others go if the budget does not
    /// suffice: first those whose loss makes going back least longer.
    fn keep(&mut self, taken: Checkpoint) {
        let budget = self.policy.budget;
        if taken.size > budget {
            let _ = fs::remove_file(taken.path());
            let [size, budget] = [taken.size, budget].map(quantity::bytes);
            return self.stop_taking(&format!("one takes {size}, and --checkpoints is {budget}"));
        }
        self.current += 1;
        self.list.insert(self.current, taken);
        while self.list.iter().map(|known| known.size).sum::<u64>() > budget {
            let others = (1..self.list.len()).filter(|&at| at != self.current);
            let least = others.min_by_key(|&at| self.list[at].call - self.list[at - 1].call);
            let Some(least) = least else { return };
            let lost = self.list.remove(least);
            let _ = fs::remove_file(lost.path());
            self.current -= usize::from(least < self.current);
        }
    }

    /// Asks the current replay something at a stop, and measures how long it takes to get there.
    fn ask<T>(
        &mut self,
        from: Stop,
        ask: impl FnOnce(&mut Checkpoint) -> Result<T, SessionError>,
    ) -> Result<T, String> {
        let current = &mut self.list[self.current];
        let from = current.at().unwrap_or(from);
        let began = Instant::now();
        let answer = ask(current);
        let to = current.at().unwrap_or(from);
        let calls = to.call.saturating_sub(from.call);
        if calls > self.longest.0 {
            self.longest = (calls, began.elapsed());
        }
        answer.map_err(|error| error.to_string())
    }

    fn ask_at<T>(
        &mut self,
        stop: Stop,
        ask: impl FnOnce(&mut Session, Stop) -> Result<T, SessionError>,
    ) -> Result<T, String> {
        self.go_near(stop);
        let start = self.list[self.current].start();
        self.ask(start, |current| {
            let own = current.own(stop);
            ask(&mut current.session, own)
        })
    }

    /// Changes with the calls of the whole trace.
    fn of_whole(&self, (mut seen, left_out): Changes) -> Changes {
        let current = &self.list[self.current];
        for change in seen.iter_mut().flat_map(|seen| &mut seen.last) {
            change.call = current.whole(change.call);
            change.since = current.whole(change.since);
        }
        (seen, left_out)
    }
}

impl Memory for Checkpoints<'_> {
    fn read(&mut self, stop: Stop, bytes: Bytes) -> Result<Vec<u8>, String> {
        self.ask_at(stop, |session, own| {
            session.read(own, bytes.address, bytes.length)
        })
    }

    fn write(&mut self, stop: Stop, address: u64, bytes: &[u8]) -> Result<(), String> {
        self.ask_at(stop, |session, own| session.write(own, address, bytes))
    }

    fn first_change(
        &mut self,
        from: Stop,
        to: Stop,
        ranges: &[WatchedRange],
    ) -> Result<Changes, String> {
        self.go_near(from);
        let start = self.list[self.current].start();
        let changes = self.ask(start, |current| {
            let (from, to) = (current.own(from), current.own(to));
            current.session.first_change(from, to, ranges)
        })?;
        Ok(self.of_whole(changes))
    }

    /// Looks from the last checkpoint on, and then from earlier ones.
    fn last_change(&mut self, before: Stop, ranges: &[WatchedRange]) -> Result<Changes, String> {
        let (mut end, mut left_out) = (before, Vec::new());
        self.go_back(end, |_| true);
        loop {
            let start = self.list[self.current].start();
            let changes = self.ask(start, |current| {
                let (from, before) = (current.own(start), current.own(end));
                current.session.last_change(from, before, ranges)
            })?;
            let (seen, others) = self.of_whole(changes);
            left_out.extend(others);
            if self.current == 0 || seen.iter().any(|seen| seen.count > 0) {
                return Ok((seen, left_out));
            }
            self.list[self.current].session.end();
            self.current -= 1;
            end = start;
        }
    }

    fn divergences(&self) -> u64 {
        self.list[self.current].session.divergences()
    }
}
