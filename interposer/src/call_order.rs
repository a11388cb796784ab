//! What calls tell about the order of the device's work, as the registry describes their functions.

use cutape_registry::{
    CopyOp, CopyShape, EventOp, Family, Function, ImplicitWait, Kind, Role, StreamOp, Waits,
};

/// What a call tells about the order of work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tells {
    Nothing,
    /// It waits for work.
    Waits,
    /// It waits for the default stream.
    WaitsForDefault,
    /// It fills the memory at that address, and waits for the default stream if host and device
    /// share it.
    Fills(u8),
    /// It copies between memory at these addresses, and waits for the default stream unless both are
    /// in memory of the device.
    Copies([u8; 2]),
    /// It copies between memory that a struct describes, and waits for the default stream unless
    /// both sides are of the device.
    CopiesDescribed(CopyShape),
    /// It is no wait, and waits for the current context all the same.
    WaitsImplicitly,
    /// So does this, unless it frees memory of a pool.
    FreesMemory,
    /// It records the event on the stream.
    Records {
        event: u8,
        stream: u8,
    },
    /// The stream waits for the event.
    WaitsForEvent {
        event: u8,
        stream: u8,
    },
    /// The event may be recorded in another way.
    UsesEvent(u8),
    /// It makes a stream or an event, whose handle may have been another's.
    Makes(Kind, u8),
}

impl Tells {
    /// What successful calls of a function tell.
    pub(crate) fn of(function: &Function) -> Self {
        if function.waits != Waits::No {
            return Self::Waits;
        }
        if function.waits_for_default_stream() {
            return Self::WaitsForDefault;
        }
        if let Some(operands) = function.unified_without_stream() {
            return Self::Copies(operands);
        }
        if let (Family::Copy(CopyOp::Described(shape)), None) = (function.family, function.stream) {
            return Self::CopiesDescribed(shape);
        }
        if function.is_memset_without_stream() {
            return Self::Fills(0);
        }
        match function.implicit_wait {
            ImplicitWait::Context => return Self::WaitsImplicitly,
            ImplicitWait::ContextUnlessPool => return Self::FreesMemory,
            // Which libraries are loaded where is not followed.
            ImplicitWait::ContextIfLoaded | ImplicitWait::No => {}
        }
        let mut uses = None;
        for (position, parameter) in (0..).zip(function.params) {
            match parameter.role {
                Role::Make(kind @ (Kind::Stream | Kind::Event), _) => {
                    return Self::Makes(kind, position);
                }
                Role::Use(Kind::Event) => uses = uses.or(Some(position)),
                _ => {}
            }
        }
        match (uses, function.family, function.stream) {
            (None, ..) => Self::Nothing,
            (Some(event), Family::Event(EventOp::Record), Some(stream)) => {
                Self::Records { event, stream }
            }
            (Some(event), Family::Stream(StreamOp::WaitEvent), Some(stream)) => {
                Self::WaitsForEvent { event, stream }
            }
            (Some(_), Family::Event(EventOp::ElapsedTime), _) => Self::Nothing,
            (Some(event), ..) => Self::UsesEvent(event),
        }
    }
}

/// Whether work may be known to be complete after a successful call of a function.
pub(crate) fn is_proved_by(function: &Function) -> bool {
    matches!(
        Tells::of(function),
        Tells::Waits
            | Tells::WaitsForDefault
            | Tells::Fills(_)
            | Tells::Copies(_)
            | Tells::CopiesDescribed(_)
            | Tells::WaitsImplicitly
            | Tells::FreesMemory
    )
}

/// Whether successful calls of a function tell something about the order of work.
pub(crate) fn is_told_by(function: &Function) -> bool {
    Tells::of(function) != Tells::Nothing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_tell_what_they_do_to_the_order() {
        for (name, expected) in [
            ("cuCtxGetCurrent", Tells::Nothing),
            ("cuLaunchKernel", Tells::Nothing),
            ("cuCtxSynchronize", Tells::Waits),
            ("cuStreamQuery", Tells::Waits),
            ("cuMemcpyDtoH_v2", Tells::WaitsForDefault),
            ("cuMemcpyHtoD_v2_ptds", Tells::WaitsForDefault),
            ("cuMemcpyDtoD_v2", Tells::Nothing),
            ("cuMemcpy", Tells::Copies([0, 1])),
            ("cuMemcpyAsync", Tells::Nothing),
            ("cuMemcpy2D_v2", Tells::CopiesDescribed(CopyShape::Plane)),
            ("cuMemcpy2DAsync_v2", Tells::Nothing),
            ("cuMemcpyDtoHAsync_v2", Tells::Nothing),
            ("cuMemsetD16_v2_ptds", Tells::Fills(0)),
            ("cuMemsetD32Async", Tells::Nothing),
            ("cuMemFree_v2", Tells::FreesMemory),
            ("cuMemFreeHost", Tells::WaitsImplicitly),
            ("cuMemFreeAsync", Tells::Nothing),
            ("cuMemAlloc_v2", Tells::Nothing),
            ("cuEventSynchronize", Tells::Waits),
            (
                "cuEventRecord",
                Tells::Records {
                    event: 0,
                    stream: 1,
                },
            ),
            (
                "cuEventRecordWithFlags_ptsz",
                Tells::Records {
                    event: 0,
                    stream: 1,
                },
            ),
            (
                "cuStreamWaitEvent",
                Tells::WaitsForEvent {
                    event: 1,
                    stream: 0,
                },
            ),
            ("cuEventCreate", Tells::Makes(Kind::Event, 0)),
            ("cuIpcOpenEventHandle", Tells::Makes(Kind::Event, 0)),
            ("cuStreamCreateWithPriority", Tells::Makes(Kind::Stream, 0)),
            ("cuCtxRecordEvent", Tells::UsesEvent(1)),
            ("cuEventElapsedTime_v2", Tells::Nothing),
        ] {
            let function = cutape_registry::function(name).expect(name);
            assert_eq!(Tells::of(function), expected, "{name}");
        }
    }
}
