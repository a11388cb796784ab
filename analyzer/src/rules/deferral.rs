//! Findings that are put off until the end.

use cutape_model::ObjectId;

/// What shows that a failed call was no mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deferral {
    /// A later call of the same function succeeds.
    Call,
    /// A later call of the same function, or a launch, succeeds with this function.
    Function(ObjectId),
    /// A later lookup in this module or library finds the name in another form.
    Lookup(ObjectId, String),
    /// Nothing does, but a program that ended well may have asked whether the code of this module
    /// or library runs here.
    Image(ObjectId),
    /// Another finding says the same, and that the program went on after this call's error.
    StickyError(u64),
    /// Another finding says that this memory is given out again while it is used.
    Reuse(ObjectId),
}

impl Deferral {
    /// Under which condition the finding is reported.
    pub(super) fn condition(&self) -> &'static str {
        match self {
            Self::Call => "no later call of the same function succeeds",
            Self::Function(_) => "no later call or launch with the same function succeeds",
            Self::Lookup(..) => "no later lookup finds the name in another form",
            Self::Image(_) => "the program did not end well",
            Self::StickyError(_) => "no finding says that the program went on after the error",
            Self::Reuse(_) => "no finding says that the memory is given out again too early",
        }
    }
}
