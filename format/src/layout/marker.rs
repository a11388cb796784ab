//! Markers: what a program says about its own progress, between its calls.

use crate::codec::{Decode, Encode};

/// A marker; the name of its domain and its text follow. Only in chunks of markers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct MarkerNote {
    /// The clock.
    pub ticks: u64,
    /// Ordinal of the thread; [`MarkerNote::NO_THREAD`] if it had not called the driver yet, or is
    /// in another process.
    pub thread: u32,
    /// The operating system's number of the thread; 0 for another process.
    pub number: u32,
    /// The range that is started or ended.
    pub id: u64,
    /// The bits of a number that the program has added.
    pub payload: u64,
    /// NVTX's category; 0 if there is none.
    pub category: u32,
    /// Alpha, red, green and blue, from the highest byte; 0 if there is none.
    pub color: u32,
    /// A number of [`marker_action`].
    pub action: u8,
    /// A number of [`marker_source`].
    pub source: u8,
    /// A number of [`marker_payload`].
    pub payload_type: u8,
    /// Bytes of the domain's name.
    pub domain_length: u16,
    /// Bytes of the text.
    pub text_length: u32,
}

impl MarkerNote {
    /// Bytes before the domain's name.
    pub const LENGTH: usize = 49;
    /// For `thread`.
    pub const NO_THREAD: u32 = u32::MAX;
}

/// What a marker does.
pub mod marker_action {
    /// A moment.
    pub const MARK: u8 = 1;
    /// Begins a range inside the one that the thread is in, in that domain.
    pub const PUSH: u8 = 2;
    /// Ends the range that the thread began last and that has not ended, in that domain.
    pub const POP: u8 = 3;
    /// Begins a range that any thread may end.
    pub const START: u8 = 4;
    /// Ends the range of that id.
    pub const END: u8 = 5;
}

/// Where a marker comes from.
pub mod marker_source {
    /// NVTX.
    pub const NVTX: u8 = 1;
    /// The recorder's own functions.
    pub const RECORDER: u8 = 2;
    /// Another process.
    pub const OUTSIDE: u8 = 3;
}

/// How to read the bits of a marker's number. The numbers are NVTX's.
pub mod marker_payload {
    /// There is none.
    pub const NONE: u8 = 0;
    /// u64.
    pub const U64: u8 = 1;
    /// i64.
    pub const I64: u8 = 2;
    /// f64.
    pub const F64: u8 = 3;
    /// u32.
    pub const U32: u8 = 4;
    /// i32.
    pub const I32: u8 = 5;
    /// f32.
    pub const F32: u8 = 6;
}
