//! Calls, as history keeps them.

use cutape_format::Call;

/// A call, as short as history keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Call index.
    pub index: u64,
    /// Exported name.
    pub function: &'static str,
    /// Thread ordinal.
    pub thread: u32,
    /// Return address in the program.
    pub caller: u64,
    /// The id of its call stack; 0 if it has none.
    pub stack: u64,
    /// The result; `None` while in flight.
    pub result: Option<i32>,
}

impl Site {
    /// The site of a call of that function.
    #[inline]
    pub fn of(function: &'static str, call: &Call<'_>) -> Self {
        Self {
            index: call.index,
            function,
            thread: call.thread,
            caller: call.caller,
            stack: call.stack().unwrap_or(0),
            result: call.result(),
        }
    }
}
