//! Which calls only ask: a program may make any number of them.

use cutape_registry::{EventOp, Family, Function, StreamOp};

/// How the calls of a function are matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// In the order of the recording.
    Effect,
    /// Answered whatever their place and number are.
    Query,
    /// The same; the answer depends on how far work is.
    Poll,
    /// Left to the driver: addresses of its functions.
    EntryPoint,
}

/// The sort of a function.
pub(crate) fn sort_of(function: &Function) -> Sort {
    match function.family {
        Family::ProcAddress { .. } | Family::ExportTable => Sort::EntryPoint,
        Family::Stream(StreamOp::Query) | Family::Event(EventOp::Query) => Sort::Poll,
        _ if function.only_asks() => Sort::Query,
        _ => Sort::Effect,
    }
}
