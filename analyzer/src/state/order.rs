//! Streams, events and waits as calls show them, put down in [`super::work`].

use cutape_format::Call;
use cutape_format::layout::field;
use cutape_registry::{Kind, Waits};

use super::State;
use super::data::Data;
use super::objects::{Lookup, ObjectId, Site};
use crate::plan::{Plan, Special, Step};

/// All that the meaning of a stream's handle in a thread depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamQuestion {
    handle: u64,
    per_thread: bool,
    /// The thread's current context.
    current: u64,
    /// Of all objects.
    version: u64,
}

/// How many answers a thread remembers: loops go round a few streams.
pub(super) const STREAM_ANSWERS: usize = 4;

impl StreamQuestion {
    /// Which of the answers it may be.
    fn place(self) -> usize {
        let mixed = self.handle.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed >> 32) as usize % STREAM_ANSWERS
    }
}

/// Offset of `hStream` in `CUlaunchConfig`.
const CONFIG_STREAM: usize = 32;

/// The stream in a launch configuration.
pub(crate) fn config_stream(plan: &Plan, call: &Call<'_>) -> u64 {
    let snapshot = plan
        .config
        .and_then(|position| call.snapshot(position, field::POINTEE));
    snapshot
        .and_then(|snapshot| snapshot.bytes.inline())
        .and_then(|bytes| bytes.get(CONFIG_STREAM..)?.first_chunk::<8>())
        .map_or(0, |word| u64::from_le_bytes(*word))
}

impl State {
    /// The stream number that a call's work is ordered on.
    pub(super) fn call_stream(&mut self, plan: &Plan, call: &Call<'_>) -> Option<u32> {
        let handle = match plan.function.stream {
            Some(position) => call.argument(usize::from(position)),
            None if plan.special == Special::LaunchEx => config_stream(plan, call),
            None => return None,
        };
        Some(self.stream(call.thread, handle, plan.function.per_thread))
    }

    /// The number of the stream that a handle means in a thread.
    fn stream(&mut self, thread: u32, handle: u64, per_thread: bool) -> u32 {
        // What [`State::stream_key`] looks at.
        let asked = StreamQuestion {
            handle,
            per_thread,
            current: self.current(thread).handle,
            version: self.objects.version(),
        };
        let place = asked.place();
        if let Some(state) = self.threads.get(thread as usize)
            && let Some((question, stream)) = state.streams[place]
            && question == asked
        {
            return stream;
        }
        let (key, context, blocking, legacy) = self.stream_key(thread, handle, per_thread);
        let stream = self.work.stream(key, context, blocking, legacy);
        if let Some(state) = self.threads.get_mut(thread as usize) {
            state.streams[place] = Some((asked, stream));
        }
        stream
    }

    /// Puts the call's work into its stream and remembers which module it needs.
    pub(super) fn submit(&mut self, plan: &Plan, call: &Call<'_>, site: Site) {
        if matches!(
            plan.special,
            Special::WaitEvent | Special::CaptureBegin | Special::CaptureEnd
        ) {
            return;
        }
        // Records and stream waits are no work that could still run.
        if plan.function.waits != Waits::No {
            return;
        }
        let Some(stream) = self.call_stream(plan, call) else {
            return;
        };
        if plan.special == Special::EventRecord {
            return;
        }
        let Some(number) = self.work.submit(stream) else {
            return;
        };
        if plan.special == Special::HostFunction {
            // The function may tell the program that all before it is done; whether it did cannot be seen.
            let clock = self.work.clock(stream);
            self.work.complete(&clock);
            return;
        }
        let mut modules: [Option<ObjectId>; 3] = [None; 3];
        if let Some(position) = plan.launched
            && let Lookup::Live(function) = self.find(Kind::Function, call.argument(position))
        {
            modules[0] = self.objects.get(function).and_then(|object| object.parent);
        }
        let mut next = 1;
        let steps: &[_] = if plan.takes_addresses {
            &plan.steps
        } else {
            &[]
        };
        for &(position, step) in steps {
            if let Step::Device(_) = step
                && next < modules.len()
                && let Some(id) = self.ranges.live_at(call.argument(position))
                && let Some(object) = self.objects.get(id)
                && object.kind == Kind::Global
            {
                modules[next] = object.parent;
                next += 1;
            }
        }
        for module in modules.into_iter().flatten() {
            if self
                .objects
                .get(module)
                .is_none_or(|object| object.kind != Kind::Module)
            {
                continue;
            }
            if let Some(data) = self.image_data_mut(module) {
                match data.pending.iter_mut().find(|entry| entry.0 == stream) {
                    Some(entry) => *entry = (stream, number, site),
                    None => data.pending.push((stream, number, site)),
                }
            }
        }
    }

    /// What a successful return proves complete.
    pub(super) fn wait(&mut self, plan: &Plan, call: &Call<'_>) {
        match plan.function.waits {
            Waits::No => {}
            Waits::Context => {
                let context = self.current(call.thread).handle;
                let named = plan
                    .position_of(Kind::Context)
                    .map(|position| call.argument(position));
                self.work
                    .complete_context(named.filter(|&handle| handle != 0).unwrap_or(context));
            }
            Waits::Stream(position) => {
                let handle = call.argument(usize::from(position));
                let stream = self.stream(call.thread, handle, plan.function.per_thread);
                self.work.complete_stream(stream);
            }
            Waits::Event(position) => self.complete_event(call.argument(usize::from(position))),
        }
        match plan.special {
            Special::EventElapsed => {
                for &(position, step) in &plan.steps {
                    if matches!(step, Step::Use(Kind::Event)) {
                        self.complete_event(call.argument(position));
                    }
                }
            }
            Special::SynchronousCopy | Special::UnifiedCopy | Special::StructCopy
                if plan.function.stream.is_none() =>
            {
                if plan.function.per_thread {
                    let stream = self.stream(call.thread, 0, true);
                    self.work.complete_stream(stream);
                } else {
                    let context = self.current(call.thread).handle;
                    self.work.complete_blocking(context);
                }
            }
            // May wait for everything (Memory Management, cuMemFree), so nothing can be said for certain after it.
            Special::MemoryFree => {
                let context = self.current(call.thread).handle;
                self.work.complete_context(context);
            }
            _ => {}
        }
    }

    fn complete_event(&mut self, handle: u64) {
        if let Some(id) = self.objects.live(Kind::Event, handle)
            && let Some(Data::Event(event)) = self.objects.get(id).map(|object| &object.data)
        {
            let clock = event.before.clone();
            self.work.complete(&clock);
        }
    }
}
