//! Why a call is left out.

use cutape_driver::CallError;

/// Why a call is not re-issued, in one phrase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Skip(pub String);

impl Skip {
    pub(crate) fn because(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

impl From<CallError> for Skip {
    fn from(error: CallError) -> Self {
        Self(error.to_string())
    }
}
