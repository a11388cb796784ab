//! Follows the host memory that copies and kernels use.

use cutape_format::Call;
use cutape_format::layout::field;
use cutape_model::{ObjectId, Site};
use cutape_registry::Kind;

use super::State;
use super::host_addresses::{self, HostParameter};
use crate::plan::Plan;

impl State {
    /// An object was created.
    pub(super) fn use_created(&mut self, id: ObjectId) {
        let Some(object) = self.model.objects.get(id) else {
            return;
        };
        let (start, size) = (object.handle, object.size);
        match object.kind {
            Kind::HostMemory | Kind::Registration => {
                self.uses.known_host.remove_overlapping(start, size);
                self.uses.known_host.insert(start, size, ());
            }
            _ => {}
        }
    }

    /// An object has ended.
    pub(super) fn use_ended(&mut self, id: ObjectId) {
        let Some(object) = self.model.objects.get(id) else {
            return;
        };
        match object.kind {
            Kind::HostMemory | Kind::Registration => {
                self.uses.known_host.remove(object.handle);
            }
            _ => {}
        }
    }

    /// Remembers the host memory that a copy uses.
    pub(super) fn note_host_operands(&mut self, plan: &Plan, call: &Call<'_>, site: Site) {
        for &position in &plan.host_operands {
            let address = call.argument(position);
            let is_known = || {
                self.uses.known_host.find(address).is_some() || self.memory_at(address).is_some()
            };
            if address != 0 && !is_known() {
                self.uses.host[host_addresses::place_of(address)] = Some((address, site));
            }
        }
    }

    /// Looks for such an address in the parameters of a launch.
    pub(super) fn note_host_parameters(&mut self, plan: &Plan, call: &Call<'_>, site: Site) {
        if self.uses.host_parameter.is_some() {
            return;
        }
        let mut positions = plan.launch_parameters.into_iter().flatten();
        let snapshot =
            positions.find_map(|position| call.snapshot(position, field::KERNEL_PARAMETERS));
        let bytes = snapshot.and_then(|snapshot| snapshot.bytes.inline());
        let layout = plan.launched.and_then(|at| self.layout(call.argument(at)));
        let (Some(bytes), Some(layout)) = (bytes, layout) else {
            return;
        };
        let mut numbered = layout.iter().enumerate();
        let found = numbered.find_map(|(number, &(offset, size))| {
            let word = bytes.get(offset as usize..)?.first_chunk()?;
            let address = u64::from_le_bytes(*word);
            let (host, copy) = self.uses.host[host_addresses::place_of(address)]?;
            // It may have been registered since.
            let is_known = || {
                self.uses.known_host.find(address).is_some() || self.memory_at(address).is_some()
            };
            (size == 8 && host == address && !is_known()).then_some(HostParameter {
                address,
                number,
                launch: site,
                copy,
            })
        });
        self.uses.host_parameter = found;
    }
}
