//! Enqueued work: where it is in the order, and when memory that it uses may end.

use cutape_registry::{STREAM_LEGACY, STREAM_PER_THREAD};

use crate::call::answer::Answer;
use crate::call::argument::Stream;
use crate::object::queue::{Lane, Ticket};
use crate::settings::{self, Schedule};
use crate::state::store::{Action, State};

impl State {
    /// The stream as the order of work sees it.
    pub(crate) fn lane(&self, stream: Stream) -> Answer<Lane> {
        let is_blocking = match stream.0 {
            STREAM_LEGACY | STREAM_PER_THREAD => true,
            handle => self.streams.find(handle)?.is_blocking(),
        };
        Ok(Lane {
            key: self.capture_key(stream)?,
            context: self.stream_context(stream)?,
            is_blocking,
            is_legacy: stream.0 == STREAM_LEGACY,
        })
    }

    /// Enqueues work on a stream that does not capture.
    pub(crate) fn enqueue(&mut self, stream: Stream, action: Action) -> Answer<Ticket> {
        let lane = self.lane(stream)?;
        let after = self.queue.before(&lane);
        Ok(self.add_task(lane, after, action))
    }

    /// Enqueues a kernel with programmatic stream serialization that does not wait for the one before
    /// it.
    pub(crate) fn enqueue_early(&mut self, stream: Stream, action: Action) -> Answer<Ticket> {
        let lane = self.lane(stream)?;
        match self.queue.add_early(lane, action, Action::Nothing) {
            Ok(ticket) => Ok(ticket),
            Err(action) => self.enqueue(stream, action),
        }
    }

    /// Records an event on a stream that does not capture. That is no work of a blocking stream: a
    /// wait for the stream does not wait for what the event does.
    pub(crate) fn enqueue_record(&mut self, stream: Stream) -> Answer<Ticket> {
        let lane = self.lane(stream)?;
        let after = self.queue.before(&lane);
        Ok(match lane.is_legacy {
            true => self.add_task(lane, after, Action::Nothing),
            false => self.add_node_task(lane, &after, Action::Nothing),
        })
    }

    /// Later work of a stream waits for a task. The wait of a blocking stream does not come after
    /// the work of the legacy stream.
    pub(crate) fn enqueue_wait(&mut self, stream: Stream, before: Ticket) -> Answer {
        let lane = self.lane(stream)?;
        let mut after = match lane.is_legacy {
            true => self.queue.before(&lane),
            false => self.queue.own(&lane),
        };
        after.push(before);
        self.add_task(lane, after, Action::Nothing);
        Ok(())
    }

    /// Adds the last task of a stream.
    pub(crate) fn add_task(&mut self, lane: Lane, after: Vec<Ticket>, action: Action) -> Ticket {
        match self.run_first(&after, action) {
            Some(action) => self.queue.add(lane, after, action),
            None => 0,
        }
    }

    /// Adds a task inside a graph that runs in a stream.
    pub(crate) fn add_node_task(&mut self, lane: Lane, after: &[Ticket], action: Action) -> Ticket {
        match self.run_first(after, action) {
            Some(action) => (self.queue).insert(Some(lane), lane.context, after.to_vec(), action),
            None => 0,
        }
    }

    /// With the eager schedule, does work at once that nothing is before.
    fn run_first(&mut self, after: &[Ticket], action: Action) -> Option<Action> {
        let is_eager = settings::get().schedule == Schedule::Eager;
        if !is_eager || after.iter().any(|ticket| self.queue.is_pending(*ticket)) {
            return Some(action);
        }
        match action {
            Action::Run(work) => {
                work(self);
                None
            }
            Action::Nothing => None,
            action => Some(action),
        }
    }

    /// Does this when all work that is pending now is complete, since it may use what ends.
    pub(crate) fn retire(&mut self, end: impl FnOnce(&mut State) + Send + 'static) {
        let before = self.queue.all();
        if before.is_empty() {
            return end(self);
        }
        let action = Action::Retire(Box::new(end));
        self.queue.insert(None, 0, before, action);
    }

    /// Drops an object when all work that is pending now is complete.
    pub(crate) fn drop_later(&mut self, object: impl Send + 'static) {
        self.retire(move |_| drop(object));
    }
}
