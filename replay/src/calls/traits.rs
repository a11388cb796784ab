//! What playing a call asks about its function, computed once for the whole registry.

use std::sync::OnceLock;

use cutape_format::Call;
use cutape_registry::{
    ContextOp, EventOp, FUNCTIONS, Family, Function, GraphOp, Kind, PrimaryOp, Role, StreamOp,
    Waits,
};

use crate::calls::types::is_plain_output;
use crate::plan::not_reissued;

/// What a call has to do with captures of streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CaptureStep {
    /// Begins one.
    Begins,
    /// Ends one, also when it fails.
    Ends,
    /// May be captured.
    Other,
}

/// A function's traits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traits {
    pub reissued: bool,
    /// Asks whether work is done.
    pub is_query: bool,
    /// Its host memory must outlive it.
    pub is_asynchronous: bool,
    /// Gives out handles, which no thread can use before it has returned.
    pub gives: bool,
    /// Gives out memory, at an address that the driver chooses.
    pub places: bool,
    /// Ends objects or memory.
    pub destroys: bool,
    /// Names device memory by address.
    pub names_memory: bool,
    /// Looks for a global of a module or library.
    pub finds_global: bool,
    /// All work of the context is done when it has returned.
    pub waits_for_context: bool,
    /// The end of contexts may follow from it.
    pub is_of_contexts: bool,
    pub is_init: bool,
    /// Launches a kernel or a graph.
    pub is_launch: bool,
    pub capture: CaptureStep,
    /// A bit for each parameter behind which the call puts nothing that has to be replaced.
    plain_outputs: u64,
}

impl Traits {
    /// True if what the call puts behind a parameter is compared as it is.
    pub(crate) fn has_plain_output(&self, position: usize) -> bool {
        position < 64 && self.plain_outputs >> position & 1 != 0
    }
}

fn traits_of(function: &'static Function) -> Traits {
    let any = |wanted: fn(Role) -> bool| function.params.iter().any(|param| wanted(param.role));
    Traits {
        reissued: not_reissued(function).is_none(),
        is_query: matches!(
            function.family,
            Family::Stream(StreamOp::Query) | Family::Event(EventOp::Query)
        ),
        is_asynchronous: function.stream.is_some() && function.waits == Waits::No,
        gives: any(|role| matches!(role, Role::Make(..) | Role::Find(..) | Role::FindMany(..))),
        places: any(|role| matches!(role, Role::Make(kind, _) if kind.is_address())),
        destroys: any(|role| matches!(role, Role::Destroy(_))),
        names_memory: any(|role| matches!(role, Role::DeviceRead(_) | Role::DeviceWrite(_))),
        finds_global: any(|role| matches!(role, Role::Find(Kind::Global, _))),
        waits_for_context: function.waits == Waits::Context,
        is_of_contexts: matches!(
            function.family,
            Family::Context(ContextOp::Detach)
                | Family::PrimaryContext(PrimaryOp::Retain | PrimaryOp::Release | PrimaryOp::Reset)
        ),
        is_init: function.family == Family::Init,
        is_launch: matches!(
            function.family,
            Family::Launch(_) | Family::Graph(GraphOp::Launch)
        ),
        capture: match function.family {
            Family::Stream(StreamOp::BeginCapture) => CaptureStep::Begins,
            Family::Stream(StreamOp::EndCapture | StreamOp::Destroy) => CaptureStep::Ends,
            _ => CaptureStep::Other,
        },
        plain_outputs: function
            .params
            .iter()
            .take(64)
            .enumerate()
            .filter(|(_, param)| is_plain_output(function, param))
            .fold(0, |bits, (position, _)| bits | 1 << position),
    }
}

/// The traits of a function of the registry.
pub(crate) fn of(function: &'static Function) -> &'static Traits {
    static TABLE: OnceLock<Vec<Traits>> = OnceLock::new();
    let table = TABLE.get_or_init(|| FUNCTIONS.iter().map(traits_of).collect());
    #[allow(clippy::indexing_slicing, reason = "ids are positions in FUNCTIONS")]
    &table[usize::from(function.id)]
}

/// The registry's functions by the numbers that a trace gives them.
#[derive(Debug, Default)]
pub(crate) struct Functions {
    known: Vec<Option<Option<&'static Function>>>,
}

impl Functions {
    /// The function of a call; `None` if this build does not know it with these parameters.
    #[inline]
    pub(crate) fn of(&mut self, call: &Call) -> Option<&'static Function> {
        let id = usize::from(call.signature.id);
        match self.known.get(id) {
            Some(Some(known)) => *known,
            _ => self.look_up(id, call),
        }
    }

    #[cold]
    fn look_up(&mut self, id: usize, call: &Call) -> Option<&'static Function> {
        if self.known.len() <= id {
            self.known.resize(id + 1, None);
        }
        let function = crate::plan::function_of(call);
        if let Some(known) = self.known.get_mut(id) {
            *known = Some(function);
        }
        function
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traits_follow_from_what_a_function_does() {
        let traits = |name| of(cutape_registry::function(name).expect(name));
        let query = traits("cuStreamQuery_ptsz");
        assert!(query.is_query && query.reissued && !query.gives);
        let launch = traits("cuLaunchKernel");
        assert!(launch.is_asynchronous && !launch.names_memory && launch.is_launch);
        assert!(traits("cuGraphLaunch").is_launch && !query.is_launch);
        let copy = traits("cuMemcpyHtoDAsync_v2");
        assert!(copy.is_asynchronous && copy.names_memory);
        assert!(traits("cuStreamCreate").gives && traits("cuStreamDestroy_v2").destroys);
        // It may free memory of another context, or of a pool.
        assert!(!traits("cuMemFree_v2").waits_for_context && traits("cuMemFree_v2").destroys);
        assert!(traits("cuDevicePrimaryCtxReset_v2").is_of_contexts);
        assert_eq!(traits("cuStreamEndCapture").capture, CaptureStep::Ends);
        for (name, position, plain) in [
            ("cuDeviceGetAttribute", 0, true),
            ("cuStreamIsCapturing", 1, true),
            ("cuDeviceGetAttribute", 2, false), // the device, which goes in
            ("cuMemGetAddressRange_v2", 0, false),
            ("cuPointerGetAttribute", 0, false),
            ("cuMemRangeGetAttribute", 0, false),
            ("cuArrayGetDescriptor_v2", 0, false),
            ("cuDeviceGetAttribute", 64, false),
        ] {
            assert_eq!(
                traits(name).has_plain_output(position),
                plain,
                "{name} {position}"
            );
        }
    }
}
