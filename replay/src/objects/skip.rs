//! Why a call is left out.

use std::sync::Arc;

use cutape_driver::CallError;

/// Why a call is not re-issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Skip {
    /// In one phrase.
    pub reason: String,
    /// What that follows from.
    pub root: Root,
}

/// What it follows from that a call is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Root {
    /// Nothing but the call itself.
    Itself,
    /// An object is missing that this call made in the recording.
    Object(u64),
    /// Memory is missing that no recorded call made; who uses it.
    PrivateMemory(Arc<str>),
    /// Memory of other processes, of which [`ExchangeCounts`](crate::ExchangeCounts) has the
    /// account.
    Exchange,
    /// The recorded program used a destroyed object, which is left out on purpose.
    Misuse,
}

impl Skip {
    pub(crate) fn because(reason: impl Into<String>) -> Self {
        Self::from_root(Root::Itself, reason)
    }

    pub(crate) fn from_root(root: Root, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self { reason, root }
    }
}

/// Leaves a call out.
pub(crate) fn skip<T>(reason: impl Into<String>) -> Result<T, Skip> {
    Err(Skip::because(reason))
}

impl From<CallError> for Skip {
    fn from(error: CallError) -> Self {
        Self::because(error.to_string())
    }
}
