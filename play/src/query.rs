//! Which calls only ask: a program may make any number of them.

use cutape_registry::{ContextOp, EventOp, Family, Function, StreamOp};

/// How the calls of a function are matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// In the order of the recording.
    Effect,
    /// Answered whatever their place and number are.
    Query,
    /// The same; the answer depends on how far work is.
    Poll,
    /// Left to the driver, which knows the answer of this process: addresses of its functions, and
    /// which context is current in the thread.
    Own,
}

/// The sort of a function.
pub(crate) fn sort_of(function: &Function) -> Sort {
    match function.family {
        Family::ProcAddress { .. }
        | Family::ExportTable
        | Family::Context(ContextOp::Current | ContextOp::Device) => Sort::Own,
        Family::Stream(StreamOp::Query) | Family::Event(EventOp::Query) => Sort::Poll,
        _ if function.only_asks() => Sort::Query,
        _ => Sort::Effect,
    }
}
