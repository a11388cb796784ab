//! What a call is issued with: the facts of its function, its arguments in memory, what is kept
//! from one call to the next, and calls that are kept to be repeated.

pub(crate) mod awaited;
pub(crate) mod events;
pub(crate) mod frame;
pub(crate) mod issuer;
pub(crate) mod pace;
pub(crate) mod prepared_steps;
pub(crate) mod steps;
pub(crate) mod traits;
pub(crate) mod types;
