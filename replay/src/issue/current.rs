//! The call that is being played.

use cutape_format::{Call, layout::field};
use cutape_registry::{Family, Function, LaunchOp};

use crate::place::in_flight::Mark;

/// Arguments that are decoded ahead: all of nearly every function.
const ARGUMENTS: usize = 12;

/// What the thread that reads ahead finds out about a call, so that the playing thread need not.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Decoded<'t> {
    /// `None` if this build does not know it with these parameters.
    pub function: Option<&'static Function>,
    /// Whether it is compared, or measured.
    pub compared: bool,
    pub has_notes: bool,
    arguments: [u64; ARGUMENTS],
    /// The packed parameters of a launch, where they are in the call's own record.
    pub kernel_parameters: Option<&'t [u8]>,
}

impl<'t> Decoded<'t> {
    pub(crate) fn new(
        call: &Call<'t>,
        function: Option<&'static Function>,
        compared: bool,
    ) -> Self {
        let mut arguments = [0; ARGUMENTS];
        call.arguments(&mut arguments);
        let position = match function.map(|function| function.family) {
            Some(Family::Launch(LaunchOp::Arguments(launch))) => Some(launch.parameters),
            Some(Family::Launch(LaunchOp::Config(launch))) => Some(launch.parameters),
            _ => None,
        };
        let parameters = position
            .and_then(|position| call.snapshot(usize::from(position), field::KERNEL_PARAMETERS));
        Self {
            function,
            compared,
            has_notes: call.notes().next().is_some(),
            arguments,
            kernel_parameters: parameters.and_then(|snapshot| snapshot.bytes.inline()),
        }
    }

    /// The first arguments, as many as there is room for.
    #[inline]
    pub(crate) fn arguments<const COUNT: usize>(&self) -> [u64; COUNT] {
        const { assert!(COUNT <= ARGUMENTS) };
        let mut first = [0; COUNT];
        for (place, argument) in first.iter_mut().zip(self.arguments) {
            *place = argument;
        }
        first
    }

    /// One argument of the call.
    #[inline]
    pub(crate) fn argument(&self, call: &Call<'t>, position: usize) -> u64 {
        match self.arguments.get(position) {
            Some(&argument) => argument,
            None => call.argument(position),
        }
    }
}

/// The call that is being played, and what is known of it so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Current<'t> {
    pub decoded: Decoded<'t>,
    /// What was enqueued before it.
    pub enqueued_before: Mark,
    /// It is captured into a graph instead of being carried out.
    pub is_captured: bool,
    /// The driver returned success, and has waited for work as the recorded one did.
    pub has_waited: bool,
}
