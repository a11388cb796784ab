//! What the threads of a program that is played share.

use cutape_diff::OneByOne;
use cutape_format::{Call, MadeCall, Trace};

use crate::allowed::Allowed;
use crate::copied::Copies;
use crate::host_functions::HostFunctions;
use crate::kernels::Kernels;
use crate::looks::Looks;
use crate::outcome::OutcomeFile;
use crate::threads::Threads;
use crate::unknown::Unknown;

/// What follows a call that is not the recorded one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnMismatch {
    /// The process ends.
    Stop,
    /// The thread goes on at the next recorded call that matches.
    Warn,
    /// As for `Warn`, or with the call in place of the recorded one. What the device would have
    /// computed is unknown, and the process ends when the program would get such bytes.
    Unknown,
}

impl OnMismatch {
    /// All.
    pub const ALL: [Self; 3] = [Self::Stop, Self::Warn, Self::Unknown];

    /// As options and settings name it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Warn => "warn",
            Self::Unknown => "unknown",
        }
    }

    /// The one with that name.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.word() == word)
    }
}

/// A recorded call that a call of the program is or stands for: thread, call, and what was read.
pub(crate) type Found = (usize, Call<'static>, MadeCall);

/// What threads share.
pub(crate) struct State {
    pub(crate) trace: &'static Trace,
    pub(crate) comparison: OneByOne<'static>,
    /// Bytes of kernel parameters that differ are no mismatch.
    pub(crate) learns_unset: bool,
    pub(crate) threads: Threads<'static>,
    pub(crate) kernels: Kernels,
    pub(crate) copies: Copies,
    pub(crate) host_functions: HostFunctions,
    pub(crate) looks_for_functions: Looks,
    /// The recorded thread of each thread of the program that has made a call.
    pub(crate) slots: Vec<Option<usize>>,
    pub(crate) outcome: OutcomeFile,
    /// Calls that may be others than the recorded ones.
    pub(crate) allowed: Allowed,
    /// What the recording does not tell any more, if that matters.
    pub(crate) unknown: Option<Unknown>,
    /// Calls with an effect that have returned.
    pub(crate) played: u64,
}
