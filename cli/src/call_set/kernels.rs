//! Which kernel a launch runs: names by the handles that the trace shows.

use std::collections::HashMap;

use cutape_format::layout::field;
use cutape_format::{Call, Parameter, Snapshots};

/// What is known of function and kernel handles up to some call.
///
/// Handles are values of the recorded process and may come again: the last one to get a name has it.
#[derive(Debug, Default)]
pub(crate) struct Kernels {
    names: HashMap<u64, String>,
    /// How often a name was learnt.
    learnt: u64,
    /// By signature number: what such a call has to say.
    events: Vec<Option<KernelEvent>>,
}

/// Positions of parameters.
#[derive(Clone, Copy, Debug)]
enum KernelEvent {
    Nothing,
    /// (handle out, name in) as in `cuModuleGetFunction`.
    Named(usize, usize),
    /// (handle out, handle in) as in `cuKernelGetFunction`.
    Same(usize, usize),
    /// (name out, handle in) as in `cuFuncGetName`.
    Asked(usize, usize),
    /// The handle that is launched.
    Launch(usize),
}

impl KernelEvent {
    fn of(call: &Call<'_>) -> Self {
        let at = |found: fn(&Parameter) -> bool| call.signature.parameters.iter().position(found);
        let name = || at(|parameter| parameter.name == "name");
        let handle_out =
            || at(|parameter| matches!(parameter.c_type.as_str(), "CUfunction *" | "CUkernel *"));
        let handle =
            || at(|parameter| matches!(parameter.c_type.as_str(), "CUfunction" | "CUkernel"));
        let event = match call.signature.base.as_str() {
            "cuModuleGetFunction" | "cuLibraryGetKernel" => handle_out()
                .zip(name())
                .map(|(out, name)| KernelEvent::Named(out, name)),
            "cuKernelGetFunction" => handle_out()
                .zip(handle())
                .map(|(out, handle)| KernelEvent::Same(out, handle)),
            "cuFuncGetName" | "cuKernelGetName" => name()
                .zip(handle())
                .map(|(name, handle)| KernelEvent::Asked(name, handle)),
            "cuLaunchKernel"
            | "cuLaunchKernelEx"
            | "cuLaunchCooperativeKernel"
            | "cuLaunch"
            | "cuLaunchGrid"
            | "cuLaunchGridAsync" => handle().map(KernelEvent::Launch),
            _ => None,
        };
        event.unwrap_or(KernelEvent::Nothing)
    }

    fn cached(events: &[Option<KernelEvent>], call: &Call<'_>) -> Self {
        events
            .get(usize::from(call.signature.id))
            .copied()
            .flatten()
            .unwrap_or_else(|| Self::of(call))
    }
}

impl Kernels {
    /// Learns from a call; to be shown every call, in order.
    pub(crate) fn observe(&mut self, call: &Call<'_>) {
        if !self.learns_from(call) || !call.succeeded() {
            return;
        }
        let event = KernelEvent::cached(&self.events, call);
        self.learnt += 1;
        match event {
            KernelEvent::Named(out, name) => {
                if let (Some(handle), Some(name)) = (call.out(out), call.string(name)) {
                    self.names.insert(handle, name);
                }
            }
            KernelEvent::Same(out, handle) => {
                if let Some(made) = call.out(out)
                    && let Some(name) = self.names.get(&call.argument(handle)).cloned()
                {
                    self.names.insert(made, name);
                }
            }
            KernelEvent::Asked(name, handle) => {
                let text = call
                    .leave
                    .and_then(|leave| text_of(leave.snapshots(), name));
                if let Some(text) = text {
                    self.names.insert(call.argument(handle), text);
                }
            }
            KernelEvent::Nothing | KernelEvent::Launch(_) => {}
        }
    }

    /// Whether calls of that function say anything of kernels; if not, none of them needs to be shown.
    pub(crate) fn learns_from(&mut self, call: &Call<'_>) -> bool {
        let place = usize::from(call.signature.id);
        if self.events.len() <= place {
            self.events.resize(place + 1, None);
        }
        let event = *self.events[place].get_or_insert_with(|| KernelEvent::of(call));
        !matches!(event, KernelEvent::Nothing | KernelEvent::Launch(_))
    }

    /// Another number than before if a handle may have got another name since.
    pub(crate) fn learnt(&self) -> u64 {
        self.learnt
    }

    /// The name of a kernel by its handle, as in its image, if it is known.
    pub(crate) fn name(&self, handle: u64) -> Option<&str> {
        self.names.get(&handle).map(String::as_str)
    }

    /// The handle that the call launches, if it is a launch.
    pub(crate) fn launched_handle(&self, call: &Call<'_>) -> Option<u64> {
        match KernelEvent::cached(&self.events, call) {
            KernelEvent::Launch(handle) => Some(call.argument(handle)),
            _ => None,
        }
    }

    /// The name of the kernel that the call launches, as in its image, if it is a launch and the name is known.
    pub(crate) fn launched(&self, call: &Call<'_>) -> Option<&str> {
        self.name(self.launched_handle(call)?)
    }
}

/// The driver's string that an out pointer led to.
fn text_of(mut snapshots: Snapshots<'_>, position: usize) -> Option<String> {
    let snapshot =
        snapshots.find(|c| usize::from(c.parameter) == position && c.field == field::TEXT)?;
    let bytes = snapshot.bytes.inline()?;
    let end = bytes
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(bytes.len());
    Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

#[cfg(test)]
mod tests {
    use cutape_format::{NewCall, NewSnapshot, TraceBuilder};

    use super::*;
    use crate::test_trace;

    #[test]
    fn names_follow_handles() {
        let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
        test_trace::launch(&mut builder, 0x51, [1, 1, 1]);
        test_trace::get_function(&mut builder, 0x51, "first");
        test_trace::launch(&mut builder, 0x51, [1, 1, 1]);
        // A kernel's function has the kernel's name.
        builder
            .call(NewCall {
                name: "cuLibraryGetKernel",
                arguments: &[0x7000, 0x11, 0x400000],
                snapshots: &[NewSnapshot::pointee(2, b"second\0")],
                ..NewCall::default()
            })
            .leave(0, 0, &[NewSnapshot::pointee(0, &0x60_u64.to_le_bytes())])
            .call(NewCall {
                name: "cuKernelGetFunction",
                arguments: &[0x7000, 0x60],
                ..NewCall::default()
            })
            .leave(0, 0, &[NewSnapshot::pointee(0, &0x61_u64.to_le_bytes())]);
        test_trace::launch(&mut builder, 0x60, [1, 1, 1]);
        test_trace::launch(&mut builder, 0x61, [1, 1, 1]);
        // The handle comes again, for another kernel.
        test_trace::get_function(&mut builder, 0x51, "third");
        test_trace::launch(&mut builder, 0x51, [1, 1, 1]);
        // Only the driver tells the name.
        builder
            .call(NewCall {
                name: "cuFuncGetName",
                arguments: &[0x7000, 0x70],
                ..NewCall::default()
            })
            .leave(
                0,
                0,
                &[
                    NewSnapshot::pointee(0, &0x9000_u64.to_le_bytes()),
                    NewSnapshot::piece(0, field::TEXT, b"fourth\0"),
                ],
            );
        test_trace::launch(&mut builder, 0x70, [1, 1, 1]);
        let trace = test_trace::open(&builder, "kernels");
        let mut kernels = Kernels::default();
        let mut names = Vec::new();
        for call in trace.calls() {
            kernels.observe(&call);
            if kernels.launched_handle(&call).is_some() {
                names.push(kernels.launched(&call).unwrap_or("?").to_owned());
            }
        }
        assert_eq!(names, ["?", "first", "second", "second", "third", "fourth"]);
    }
}
