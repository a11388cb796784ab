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

/// Leaves a call out.
pub(crate) fn skip<T>(reason: impl Into<String>) -> Result<T, Skip> {
    Err(Skip::because(reason))
}

impl From<CallError> for Skip {
    fn from(error: CallError) -> Self {
        Self(error.to_string())
    }
}
