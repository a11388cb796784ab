//! The call that is being played.

use cutape_format::{Call, layout::field};
use cutape_registry::{Family, Function, LaunchOp};

use crate::lent::in_flight::Mark;

/// Arguments that are decoded ahead: all of nearly every function.
const ARGUMENTS: usize = 12;

/// What is played of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Whole,
    /// All but what the recorder found behind it.
    Call,
    /// What that was.
    Look,
}

/// A call, and what the thread that reads ahead finds out about it, so that the playing thread need
/// not.
#[derive(Debug)]
pub(crate) struct Decoded<'t> {
    pub call: Call<'t>,
    /// `None` if this build does not know it with these parameters.
    pub function: Option<&'static Function>,
    /// Whether it is compared, or measured.
    pub compared: bool,
    pub has_notes: bool,
    /// What is played of it.
    pub part: Part,
    arguments: [u64; ARGUMENTS],
    /// The packed parameters of a launch, where they are in the call's own record.
    pub kernel_parameters: Option<&'t [u8]>,
}

impl<'t> Decoded<'t> {
    pub(crate) fn new(call: Call<'t>, function: Option<&'static Function>, compared: bool) -> Self {
        let mut arguments = [0; ARGUMENTS];
        call.arguments(&mut arguments);
        let position = match function.map(|function| function.family) {
            Some(Family::Launch(LaunchOp::Arguments(launch))) => Some(launch.parameters),
            Some(Family::Launch(LaunchOp::Config(launch))) => Some(launch.parameters),
            _ => None,
        };
        let parameters = position
            .and_then(|position| call.snapshot(usize::from(position), field::KERNEL_PARAMETERS));
        let kernel_parameters = parameters.and_then(|snapshot| snapshot.bytes.inline());
        let has_notes = call.notes().next().is_some();
        Self {
            function,
            compared,
            has_notes,
            part: Part::Whole,
            arguments,
            kernel_parameters,
            call,
        }
    }

    /// The same call, of which a part is played.
    pub(crate) fn part(self, part: Part) -> Self {
        Self { part, ..self }
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
    pub(crate) fn argument(&self, position: usize) -> u64 {
        match self.arguments.get(position) {
            Some(&argument) => argument,
            None => self.call.argument(position),
        }
    }
}

/// What is known of the call that is being played.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Current {
    /// It is compared, or measured.
    pub is_compared: bool,
    /// What was enqueued before it.
    pub enqueued_before: Mark,
    /// It is captured into a graph instead of being carried out.
    pub is_captured: bool,
    /// The driver returned success, and has waited for work as the recorded one did.
    pub has_waited: bool,
}
