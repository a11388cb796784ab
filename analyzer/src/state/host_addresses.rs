//! Addresses of host memory that the driver does not know: which copies used, and a kernel got.

use cutape_model::Site;

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
    /// Whether a launch with such an address is still looked for.
    pub(super) fn are_wanted(&self) -> bool {
        !self.used.is_empty() && self.parameter.is_none()
    }

    /// A copy used the address as host memory.
    pub(super) fn insert(&mut self, address: u64, copy: Site) {
        if self.used.is_empty() {
            self.used = vec![None; HOST_ADDRESSES].into();
        }
        self.used[place_of(address)] = Some((address, copy));
    }

    /// The copy that used the address as host memory.
    pub(crate) fn copy_with(&self, address: u64) -> Option<Site> {
        let (used, copy) = (*self.used.get(place_of(address))?)?;
        (used == address).then_some(copy)
    }
}
