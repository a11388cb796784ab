//! Host memory that the driver does not know: what copies use, and what a kernel gets.

use cutape_format::Call;
use cutape_model::Site;

use super::State;
use crate::plan::Plan;

/// How many host addresses are remembered; a power of two.
const HOST_ADDRESSES: usize = 256;

/// A host address in a parameter of a kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostParameter {
    pub(crate) address: u64,
    /// The parameter's number.
    pub(crate) number: usize,
    pub(crate) launch: Site,
    /// The call that used the address as host memory.
    pub(crate) copy: Site,
}

/// What is remembered of the host addresses in calls.
#[derive(Debug, Default)]
pub(crate) struct HostAddresses {
    /// Addresses that copies used as host memory, by a hash of the address; empty until the first.
    used: Box<[Option<(u64, Site)>]>,
    /// The first such address in a launch.
    pub(crate) parameter: Option<HostParameter>,
    /// There is a finding about that.
    pub(crate) is_reported: bool,
}

/// Where an address is remembered.
fn place_of(address: u64) -> usize {
    (address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as usize % HOST_ADDRESSES
}

impl HostAddresses {
    /// A copy used the address as host memory.
    fn insert(&mut self, address: u64, copy: Site) {
        if self.used.is_empty() {
            self.used = vec![None; HOST_ADDRESSES].into();
        }
        self.used[place_of(address)] = Some((address, copy));
    }

    /// The copy that used the address as host memory.
    fn copy_with(&self, address: u64) -> Option<Site> {
        let (used, copy) = (*self.used.get(place_of(address))?)?;
        (used == address).then_some(copy)
    }
}

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
        let known = &self.host_addresses;
        if !known.used.is_empty() && known.parameter.is_none() {
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
