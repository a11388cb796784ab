//! Reading traces: files, compression, damage, calls.

mod body;
pub(crate) mod call;
pub(crate) mod clock;
pub(crate) mod compress;
pub(crate) mod contents;
pub(crate) mod cursor;
pub(crate) mod error;
mod follow;
mod growth;
pub(crate) mod incomplete;
mod index;
pub(crate) mod marker;
pub(crate) mod note;
mod outline;
mod raw;
pub(crate) mod record;
mod scan;
pub(crate) mod signature;
pub(crate) mod snapshot;
pub(crate) mod source;
pub(crate) mod stack;
mod stack_chunks;
pub(crate) mod trace;
pub(crate) mod verify;
pub(crate) mod walk;
pub(crate) mod writer;
