//! Multicast objects: the devices that were added, and the memory that is bound.

use cutape_format::Call;
use cutape_format::layout::field;
use cutape_registry::MulticastOp;

use super::State;
use super::data::Multicast;
use crate::context::TraceContext;
use crate::plan::Plan;

impl State {
    /// A call has succeeded.
    pub(super) fn multicast(
        &mut self,
        plan: &Plan,
        call: &Call<'_>,
        context: &dyn TraceContext,
        operation: MulticastOp,
    ) {
        let argument = |name: &str| plan.at(name).map(|position| call.argument(position));
        let Some(handle) = plan.at("mcHandle") else {
            return;
        };
        if operation == MulticastOp::Create {
            let layout = context.signatures().structure("CUmulticastObjectProp");
            let properties = plan.at("prop");
            let properties = properties.and_then(|at| call.snapshot(at, field::POINTEE));
            let bytes = properties.and_then(|properties| properties.bytes.inline());
            let wanted = layout.zip(bytes);
            let wanted = wanted.and_then(|(layout, bytes)| layout.number(bytes, "numDevices"));
            if let (Some(handle), Some(wanted)) = (call.out(handle), wanted) {
                let created = Multicast {
                    wanted: wanted as usize,
                    ..Multicast::default()
                };
                self.multicasts.insert(handle, created);
            }
            return;
        }
        let Some(group) = self.multicasts.get_mut(&call.argument(handle)) else {
            return;
        };
        let piece = argument("mcOffset").zip(argument("size"));
        match operation {
            MulticastOp::AddDevice => {
                let device = argument("dev").map_or(-1, |device| device as i32);
                if !group.devices.contains(&device) {
                    group.devices.push(device);
                }
            }
            MulticastOp::Bind => group.bound.extend(piece),
            MulticastOp::Unbind => {
                let same = group.bound.iter().position(|bound| Some(*bound) == piece);
                same.map(|position| group.bound.swap_remove(position));
            }
            MulticastOp::Create => {}
        }
    }
}
