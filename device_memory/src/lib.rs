//! What the program's work leaves in device memory, for the trace: digests of it, and what
//! exchanges with other processes change. Also words that show how far the work is, and snapshots of
//! all memory.
//!
//! All of them but snapshots enqueue work of the recorder's own on the device; nothing else in the recorder does.
//! [`DeviceMemory`] is told of the program's calls, by the [`Steps`] that their functions have. It
//! calls the driver, unrecorded, and writes notes into the trace through the [`Recorder`]. Begin
//! with `work`: what it enqueues.
//!
//! It runs in other people's programs: nothing here panics, and no lock is held during calls of the
//! program. It has no global state, so a forked child makes a value of its own.
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable
    )
)]

mod breadcrumbs;
mod calls;
mod digest_notes;
mod digests;
mod exchanges;
mod own_memory;
mod recorder;
mod snapshots;
mod step;
mod work;

use breadcrumbs::Breadcrumbs;
use cutape_registry::Digests as Points;
use digests::Digests;
use exchanges::Exchanges;
use snapshots::Snapshots;
use step::ContextStep;

pub use recorder::{Call, Put, RecordedCall, Recorder};
pub use snapshots::SnapshotInterval;
pub use step::Steps;

/// Digests of the device memory of a process, and what exchanges with others change there.
#[derive(Debug)]
pub struct DeviceMemory {
    digests: Option<Digests>,
    exchanges: Option<Exchanges>,
    breadcrumbs: Option<Breadcrumbs>,
    snapshots: Option<Snapshots>,
}

impl DeviceMemory {
    /// Digests memory at these points, and keeps the outputs of exchanges if there are bytes for
    /// copies of them: not 0, and not more than the system has. Lets streams write breadcrumbs after
    /// so many launches, unless that is 0. Takes snapshots of memory with an interval. Notes inputs and
    /// outputs of one launch in `deep`, unless that is 0. To be called before the first call of the
    /// driver.
    #[must_use]
    pub fn new(
        digests: Option<Points>,
        bytes_for_exchanges: u64,
        breadcrumbs: u32,
        snapshots: Option<SnapshotInterval>,
        deep: u64,
    ) -> Self {
        Self {
            digests: digests.map(Digests::new),
            exchanges: match bytes_for_exchanges {
                0 => None,
                length => Exchanges::new(length),
            },
            breadcrumbs: match breadcrumbs {
                0 => None,
                every => Breadcrumbs::new(every),
            },
            snapshots: (snapshots.is_some() || deep != 0).then(|| Snapshots::new(snapshots, deep)),
        }
    }

    /// Whether memory is digested.
    pub fn has_digests(&self) -> bool {
        self.digests.is_some()
    }

    /// Whether the outputs of exchanges are kept.
    pub fn keeps_exchanges(&self) -> bool {
        self.exchanges.is_some()
    }

    /// Whether snapshots of memory are taken, or inputs of launches are noted.
    pub fn takes_snapshots(&self) -> bool {
        self.snapshots.is_some()
    }

    /// Whether streams write breadcrumbs.
    pub fn has_breadcrumbs(&self) -> bool {
        self.breadcrumbs.is_some()
    }

    /// What there is to do at the calls of a function.
    pub fn steps_of(&self, function: &cutape_registry::Function) -> Steps {
        let points = self.digests.as_ref().map(Digests::points);
        Steps::of(
            function,
            points,
            self.keeps_exchanges(),
            self.has_breadcrumbs(),
            self.snapshots.is_some(),
        )
    }

    /// Before the driver is called.
    pub fn pre_call(&self, call: &Call<'_>, steps: Steps) {
        // A snapshot comes before what the others do for the call.
        if let Some(snapshots) = &self.snapshots {
            snapshots.pre_call(call, call.recorder.thread_key(), steps.snapshots);
        }
        match steps.context {
            Some(ContextStep::Destroys) => {
                let context = call.word(0);
                if let Some(digests) = &self.digests {
                    digests.context_ends(call, context);
                }
                if let Some(exchanges) = &self.exchanges {
                    exchanges.context_ends(call.recorder, context);
                }
                if let Some(snapshots) = &self.snapshots {
                    snapshots.context_ends(call.recorder.thread_key(), context);
                }
            }
            Some(ContextStep::ReleasesPrimary) => {
                if let Some(digests) = &self.digests
                    && let Some(context) = call.recorder.primary(call.word(0))
                {
                    digests.context_ends(call, context);
                }
                if let Some(exchanges) = &self.exchanges {
                    exchanges.finish(call.recorder);
                }
            }
            Some(ContextStep::Creates | ContextStep::RetainsPrimary) | None => {}
        }
        if let Some(digests) = &self.digests {
            digests.pre_call(call, steps.digests);
        }
        if let Some(exchanges) = &self.exchanges {
            exchanges.pre_call(call, steps.exchanges);
        }
        if let Some(breadcrumbs) = &self.breadcrumbs {
            breadcrumbs.pre_call(call, steps.breadcrumbs);
        }
    }

    /// After the driver has returned, whatever the result.
    pub fn post_call(&self, call: &Call<'_>, steps: Steps) {
        if let Some(step) = steps.context.filter(|_| call.has_succeeded) {
            self.context_changed(call, step);
        }
        // The copies first: they belong to the call's work.
        if let Some(exchanges) = &self.exchanges {
            exchanges.post_call(call, steps.exchanges);
        }
        if let Some(digests) = &self.digests {
            digests.post_call(call, steps.digests);
        }
        if let Some(breadcrumbs) = &self.breadcrumbs {
            breadcrumbs.post_call(call, steps.breadcrumbs);
        }
        if let Some(snapshots) = &self.snapshots {
            snapshots.post_call(call, call.recorder.thread_key(), steps.snapshots);
        }
    }

    /// After a successful call that creates or ends a context.
    fn context_changed(&self, call: &Call<'_>, step: ContextStep) {
        let recorder = call.recorder;
        match step {
            ContextStep::Creates => {
                if let Some(context) = call.pointee(0) {
                    // A handle may be used again.
                    if let Some(digests) = &self.digests {
                        digests.context_ended(context);
                    }
                    if let Some(breadcrumbs) = &self.breadcrumbs {
                        breadcrumbs.context_ended(context);
                    }
                    self.prepare(recorder, context);
                }
            }
            ContextStep::RetainsPrimary => {
                if let Some(context) = call.pointee(0) {
                    recorder.in_context(context, || self.prepare(recorder, context));
                }
            }
            ContextStep::Destroys => self.context_ended(call.word(0)),
            ContextStep::ReleasesPrimary => {
                if let Some(context) = recorder.ended_primary(call.word(0)) {
                    self.context_ended(context);
                    if let Some(snapshots) = &self.snapshots {
                        snapshots.context_ended(context);
                    }
                }
            }
        }
    }

    /// Makes what work in a context needs, in one that is current.
    fn prepare(&self, recorder: &dyn Recorder, context: u64) {
        if let Some(exchanges) = &self.exchanges {
            exchanges.prepare(recorder, context);
        }
        if let Some(digests) = &self.digests {
            digests.prepare(recorder, context);
        }
        if let Some(breadcrumbs) = &self.breadcrumbs {
            breadcrumbs.prepare(recorder, context);
        }
        if let Some(snapshots) = &self.snapshots {
            snapshots.context_made(context);
        }
    }

    fn context_ended(&self, context: u64) {
        if let Some(exchanges) = &self.exchanges {
            exchanges.context_ended(context);
        }
        if let Some(digests) = &self.digests {
            digests.context_ended(context);
        }
        if let Some(breadcrumbs) = &self.breadcrumbs {
            breadcrumbs.context_ended(context);
        }
    }

    /// Before the enter record of a call, or before it is left out of the recording: waits until no
    /// snapshot is being taken. [`Self::pre_call`], [`Self::left_out`] or [`Self::leave`] follow.
    pub fn arrive(&self, recorder: &dyn Recorder, steps: Steps) {
        if let Some(snapshots) = &self.snapshots {
            snapshots.arrive(recorder, recorder.thread_key(), steps.snapshots);
        }
    }

    /// A call that has arrived is left out of the recording. [`Self::leave`] follows when it has
    /// returned.
    pub fn left_out(&self, thread_key: u64) {
        if let Some(snapshots) = &self.snapshots {
            snapshots.left_out(thread_key);
        }
    }

    /// A call that has arrived and was left out has returned, or is not made.
    pub fn leave(&self, thread_key: u64) {
        if let Some(snapshots) = &self.snapshots {
            snapshots.leave(thread_key);
        }
    }

    /// The words in the parameters of a kernel node that a graph gets, in the current context.
    pub fn kernel_node(&self, words: &[u64], context: u64) {
        if let Some(digests) = &self.digests {
            digests.name(words, context);
        }
    }

    /// Host memory was registered, of which other processes can map a part: start and length.
    pub fn host_shared(&self, start: u64, length: u64, part: (u64, u64)) {
        if let Some(exchanges) = &self.exchanges {
            exchanges.host_shared(start, length, part);
        }
    }

    /// When the process exits: makes calls whose records have the last digests and outputs, and what
    /// streams have written.
    pub fn exit(&self, recorded: RecordedCall<'_>) {
        if let Some(breadcrumbs) = &self.breadcrumbs {
            breadcrumbs.exit(recorded);
        }
        if let Some(digests) = &self.digests {
            digests.exit(recorded);
        }
        if let Some(exchanges) = &self.exchanges {
            exchanges.exit(recorded);
        }
    }
}
