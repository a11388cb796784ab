//! What the driver returned, compared with the recording.

pub(crate) mod outcome;
pub(crate) mod readback;
pub(crate) mod received;
pub(crate) mod values;
