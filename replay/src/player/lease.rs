//! Who has the state of a replay: a player, or another while the driver has the player's call.
#![expect(
    clippy::expect_used,
    reason = "what lends the state borrows the player, so nothing can ask for it meanwhile"
)]

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::api::Api;
use crate::options::Options;
use crate::player::current::Current;
use crate::player::state::ReplayState;

/// Plays calls: has the state, unless it is lent.
pub(crate) struct Player<'t> {
    /// `None` while it is lent.
    state: Option<Box<ReplayState<'t>>>,
    /// The call that is played; it stays while the state is lent.
    pub current: Current,
    /// As the state has them.
    pub options: &'t Options,
    /// To whom to lend the state while the driver has a call, if calls overlap.
    pub lease: Option<Box<dyn Lease<'t> + 't>>,
}

/// With what a thread lends the state to other threads.
pub(crate) trait Lease<'t>: Send {
    fn lend(&mut self, state: Box<ReplayState<'t>>);
    /// Waits until the state is free, and takes it.
    fn take_back(&mut self) -> Box<ReplayState<'t>>;
}

impl<'t> Deref for Player<'t> {
    type Target = ReplayState<'t>;

    #[inline]
    fn deref(&self) -> &ReplayState<'t> {
        self.state.as_deref().expect(NOT_LENT)
    }
}

impl DerefMut for Player<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.state.as_deref_mut().expect(NOT_LENT)
    }
}

/// See [`Player::while_lent`], which borrows the player.
const NOT_LENT: &str = "nothing touches the state while it is lent";

impl<'t> Player<'t> {
    pub(crate) fn new(state: Box<ReplayState<'t>>, lease: Option<Box<dyn Lease<'t> + 't>>) -> Self {
        Self {
            current: Current::default(),
            options: state.options,
            state: Some(state),
            lease,
        }
    }

    /// Its state, and with what it has lent that.
    pub(crate) fn into_parts(self) -> (Box<ReplayState<'t>>, Option<Box<dyn Lease<'t> + 't>>) {
        (self.state.expect(NOT_LENT), self.lease)
    }

    /// Does something that may take long in the driver. If calls overlap, other threads have the
    /// state meanwhile.
    #[inline]
    pub(crate) fn while_lent<T>(&mut self, work: impl FnOnce(&Api) -> T) -> T {
        let Some(lease) = &mut self.lease else {
            return work(&self.api);
        };
        let state = self.state.take().expect(NOT_LENT);
        let api = Arc::clone(&state.api);
        lease.lend(state);
        let result = work(&api);
        self.state = Some(lease.take_back());
        result
    }

    /// As [`Self::while_lent`], for calls that would otherwise invalidate captures in progress.
    pub(crate) fn while_relaxed<T>(&mut self, work: impl FnOnce(&Api) -> T) -> T {
        match self.captures.any_open() {
            true => self.while_lent(|api| api.while_relaxed(work)),
            false => self.while_lent(work),
        }
    }
}
