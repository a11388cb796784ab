//! The state of a replay: what is played and with what, live values for recorded ones, and waits
//! for work.
//!
//! There is one state, and each thread that plays has a player. If calls overlap, a player lends
//! the state to the others while the driver has its call (`lease.rs`).

pub(crate) mod current;
mod lease;
pub(crate) mod live;
mod state;
pub(crate) mod stream;

use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};

use cutape_format::{Call, Snapshot};
use cutape_model::Site;
use cutape_registry::{Function, Kind};

use crate::api::{Api, Code, result_name};
use crate::calls::traits::Traits;
use crate::compare::payload::Payload;
use crate::objects::skip::Skip;
use crate::place::address::{Found, Way};
use crate::place::placement::Refusal;
use crate::player::current::Decoded;
use crate::process::strategy::PlacementStrategy;

pub(crate) use lease::{Lease, Player};
pub(crate) use state::ReplayState;

/// What playing a call ended with.
pub(crate) type Played = Result<(), Skip>;

/// A call to play, and the player that plays it.
pub(crate) struct Job<'a, 't> {
    pub player: &'a mut Player<'t>,
    pub decoded: &'a Decoded<'t>,
    pub call: &'a Call<'t>,
    pub function: &'static Function,
    pub traits: &'static Traits,
}

impl<'t> Deref for Job<'_, 't> {
    type Target = Player<'t>;

    fn deref(&self) -> &Player<'t> {
        self.player
    }
}

impl DerefMut for Job<'_, '_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.player
    }
}

impl<'t> Job<'_, 't> {
    /// The call, for the history of the objects that it makes and ends.
    pub(crate) fn site(&self) -> Site {
        Site::of(self.function.name, self.call)
    }
}

impl<'t> Player<'t> {
    /// Whether the driver places memory, in the address space of the recorded process.
    pub(crate) fn is_natural(&self) -> bool {
        self.options.placement == PlacementStrategy::Natural
    }

    /// Whether the current call is compared.
    #[inline]
    pub(crate) fn is_compared(&self) -> bool {
        self.current.is_compared
    }

    /// As above, for some bytes.
    pub(crate) fn is_freed(&self, address: u64, length: u64) -> bool {
        if address == 0 || length == 0 || self.ranges.covers(address, length) {
            return false;
        }
        let found = self.ranges.find(address);
        let placed = matches!(found, Found::Freed(range) if range.way != Way::Plain);
        placed || self.placement.reserves(address, 1)
    }

    /// Waits for the work of the current context. Not while one of its streams captures, because
    /// that would end the capture.
    pub(crate) fn wait_for_device(&mut self) -> Result<(), Code> {
        if self.captures.any_open() {
            return Err(CAPTURE_UNSUPPORTED);
        }
        self.while_lent(Api::synchronize)
    }

    /// Waits for the work of all contexts. Not while a stream captures, because that would end the
    /// capture.
    pub(crate) fn wait_for_all_work(&mut self) -> Result<(), Code> {
        if self.captures.any_open() {
            return Err(CAPTURE_UNSUPPORTED);
        }
        let before = self.api.current_context().unwrap_or(0);
        let contexts = self.contexts_with_work([], before);
        self.while_lent(|api| wait_for(api, contexts, before))
    }

    /// Waits until no work in flight uses memory of this process.
    pub(crate) fn finish_in_flight(&mut self) {
        let before = self.lent.in_flight.mark();
        if self.wait_for_all_work().is_ok() {
            self.lent.in_flight.done(before);
        }
    }

    /// Waits for all work of the live contexts that own memory, of the current one, and of others.
    /// No stream may capture, since that would end the capture.
    pub(crate) fn wait_for_contexts(
        &self,
        others: impl IntoIterator<Item = u64>,
    ) -> Result<(), Code> {
        let before = self.api.current_context().unwrap_or(0);
        wait_for(&self.api, self.contexts_with_work(others, before), before)
    }

    /// Live contexts that own memory, the current one, and others.
    pub(crate) fn contexts_with_work(
        &self,
        others: impl IntoIterator<Item = u64>,
        current: u64,
    ) -> BTreeSet<u64> {
        let owners = self.ranges.all_live().map(|range| range.context);
        owners
            .chain(others)
            .filter(|&context| self.handles.is_taken(Kind::Context, context))
            .chain([current])
            .filter(|&context| context != 0)
            .collect()
    }

    /// True if the driver has waited for the work that the recorded call waited for.
    pub(crate) fn has_waited(&self) -> bool {
        let as_recorded = self.report.skipped.is_empty() && self.report.divergence_count == 0;
        self.current.has_waited && as_recorded
    }

    /// What a snapshot holds.
    pub(crate) fn payload(&self, snapshot: &Snapshot<'t>) -> Payload<'t> {
        Payload::kept(self.trace, &self.blobs, snapshot)
    }

    /// Notes that bytes of the program are not in the trace, at most their hash, so that bytes that
    /// come back cannot be compared.
    pub(crate) fn bytes_are_missing(&mut self, hash: Option<[u8; 16]>) {
        self.comparer.bytes_comparable = false;
        self.comparer.host_bytes_missing = true;
        self.report.note(match hash {
            None => "host bytes were left out of the trace: zeros were copied instead, bytes are not compared",
            Some(_) => "of host bytes the trace has only a hash: zeros were copied instead, bytes are not compared",
        });
    }

    /// In one phrase, why placed memory is not where it was.
    pub(crate) fn refusal_text(&self, refusal: &Refusal) -> String {
        match refusal {
            Refusal::NotReserved(why) => match self.options.placement {
                PlacementStrategy::Natural => "the driver placed it elsewhere".to_owned(),
                PlacementStrategy::Granules => (*why).to_owned(),
                PlacementStrategy::None => "placement is off".to_owned(),
            },
            Refusal::Driver(code) => {
                format!("the driver returned {} when mapping it", result_name(*code))
            }
        }
    }
}

/// Waits for the work of contexts; then `current` is current again.
fn wait_for(api: &Api, contexts: impl IntoIterator<Item = u64>, current: u64) -> Result<(), Code> {
    for context in contexts {
        api.set_current(context)?;
        api.synchronize()?;
    }
    api.set_current(current)
}

/// The answer to waiting for a context of which a stream captures
/// (CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED).
pub(crate) const CAPTURE_UNSUPPORTED: Code = 900;
