//! Looks at calls for host memory that the driver does not know.

use cutape_format::Call;
use cutape_model::Site;

use super::State;
use super::host_addresses::HostParameter;
use crate::plan::Plan;

impl State {
    /// Remembers the host memory that a copy uses.
    pub(super) fn note_host_operands(&mut self, plan: &Plan, call: &Call<'_>, site: Site) {
        for &position in &plan.host_operands {
            let address = call.argument(position);
            if address != 0 && self.place_at(address).is_none() {
                self.host_addresses.insert(address, site);
            }
        }
    }

    /// Looks for such an address in the parameters of a launch.
    #[inline]
    pub(super) fn note_host_parameters(&mut self, plan: &Plan, call: &Call<'_>, site: Site) {
        if self.host_addresses.are_wanted() {
            self.host_addresses.parameter = self.host_parameter(plan, call, site);
        }
    }

    fn host_parameter(&self, plan: &Plan, call: &Call<'_>, launch: Site) -> Option<HostParameter> {
        let bytes = plan.parameters(call)?;
        // Few words are such an address, so the layout is looked at last.
        let mut words = bytes.as_chunks::<8>().0.iter().enumerate();
        words.find_map(|(place, word)| {
            let address = u64::from_le_bytes(*word);
            let copy = self.host_addresses.copy_with(address)?;
            // It may have been registered since.
            if self.place_at(address).is_some() {
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
