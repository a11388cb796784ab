//! What calls that failed would have returned.

use cutape_model::{ObjectId, Site};
use cutape_registry::Kind;

/// What a call would have returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// A handle or an address.
    Handle(Kind),
    /// The address of a linked image.
    Image,
}

impl Output {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Handle(kind) => kind.name(),
            Self::Image => "linked image",
        }
    }

    /// True for an address that may be passed to kernels.
    pub(super) fn is_memory(self) -> bool {
        matches!(
            self,
            Self::Handle(Kind::Memory | Kind::Global | Kind::HostMemory)
        )
    }

    /// Whether a call that takes `taken` may have got this. A kernel may stand for a function, and
    /// a variable is memory.
    pub(super) fn may_be(self, taken: Self) -> bool {
        self == taken
            || matches!(
                (self, taken),
                (Self::Handle(Kind::Kernel), Self::Handle(Kind::Function))
                    | (Self::Handle(Kind::Global), Self::Handle(Kind::Memory))
            )
    }
}

/// A call that failed and left its output undefined.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) output: Output,
    /// Where it would have been written.
    pub(crate) location: u64,
    pub(crate) site: Site,
    /// The name to look up.
    pub(crate) name: Option<String>,
    pub(crate) parent: Option<ObjectId>,
    /// It would have returned memory, and a later call has returned some.
    pub(crate) is_followed: bool,
    /// A call was given what it did not return.
    pub(crate) is_used: bool,
    /// There is a finding about it, or about what made it fail.
    pub(crate) reported: bool,
}

/// An undefined output that a call was given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UndefinedUse<'s> {
    pub(crate) failure: &'s Failure,
    /// What the call takes it for.
    pub(crate) taken: Output,
    pub(crate) value: u64,
}
