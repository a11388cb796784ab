//! What the driver returned, compared with the recording.

pub(crate) mod comparer;
pub(crate) mod consequences;
pub(crate) mod digest_kernel;
pub(crate) mod launch_values;
pub(crate) mod payload;
pub(crate) mod readbacks;
pub(crate) mod received;
pub(crate) mod tokens;
