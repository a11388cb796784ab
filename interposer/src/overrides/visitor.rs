//! What the table of hooks gives its entries to.

use crate::hot::frame::Frame;
use crate::hot::thread::{Draft, Thread};

/// What is done with the hooks of a function.
pub(super) trait Visitor: Sized {
    /// Writes snapshots while the enter record is written. `None` if they do not fit.
    fn put_pre_call(self, _: impl FnOnce(&mut Draft<'_>, &Frame) -> Option<()>) -> Self {
        self
    }

    /// Runs between the enter record and the driver.
    fn pre_call(self, _: impl FnOnce(&Thread, &mut Frame)) -> Self {
        self
    }

    /// Runs between the driver and the leave record of a call that succeeded.
    fn post_call(self, _: impl FnOnce(&Thread, &mut Frame)) -> Self {
        self
    }

    /// Writes snapshots while the leave record is written. `None` if they do not fit.
    fn put_post_call(self, _: impl FnOnce(&mut Draft<'_>, &Frame) -> Option<()>) -> Self {
        self
    }

    /// Runs after the leave record.
    fn finish_call(self, _: impl FnOnce(&mut Frame)) -> Self {
        self
    }

    /// The hooks snapshot the memory of these parameters, a bit for each: the registry's roles must
    /// not.
    fn owns(self, _parameters: u16) -> Self {
        self
    }
}
