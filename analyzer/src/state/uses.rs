//! Follows the host memory that copies and kernels use.

use cutape_format::Call;
use cutape_model::{ObjectId, Site};
use cutape_registry::Kind;

use super::State;
use super::host_addresses::HostParameter;
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
                self.uses.insert(address, site);
            }
        }
    }

    /// Looks for such an address in the parameters of a launch.
    #[inline]
    pub(super) fn note_host_parameters(&mut self, plan: &Plan, call: &Call<'_>, site: Site) {
        if !self.uses.is_empty() && self.uses.host_parameter.is_none() {
            self.uses.host_parameter = self.host_parameter(plan, call, site);
        }
    }

    fn host_parameter(&self, plan: &Plan, call: &Call<'_>, launch: Site) -> Option<HostParameter> {
        let bytes = plan.parameters(call)?;
        // Few words are such an address, so the layout is looked at last.
        let mut words = bytes.as_chunks::<8>().0.iter().enumerate();
        words.find_map(|(place, word)| {
            let address = u64::from_le_bytes(*word);
            let copy = self.uses.copy_with(address)?;
            // It may have been registered since.
            let is_known = || {
                self.uses.known_host.find(address).is_some() || self.memory_at(address).is_some()
            };
            if is_known() {
                return None;
            }
            let layout = self.layout(call.argument(plan.launched?))?;
            let is_here = |&(offset, size): &(u32, u32)| (offset, size) == (8 * place as u32, 8);
            Some(HostParameter {
                address,
                number: layout.iter().position(is_here)?,
                launch,
                copy,
            })
        })
    }
}
