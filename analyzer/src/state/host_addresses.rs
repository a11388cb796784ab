//! Host memory that the driver does not know and that a kernel gets.

use cutape_model::{IntervalMap, Site};

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

/// What is remembered of the addresses in calls.
#[derive(Debug, Default)]
pub(crate) struct HostAddresses {
    /// Host memory that the driver knows: page-locked or registered.
    pub(super) known_host: IntervalMap<()>,
    /// Addresses that copies used as host memory, by a hash of the address; empty until the first.
    host: Box<[Option<(u64, Site)>]>,
    /// The first such address in a launch.
    pub(crate) host_parameter: Option<HostParameter>,
    /// There is a finding about that.
    pub(crate) host_parameter_reported: bool,
}

impl HostAddresses {
    /// A copy used the address as host memory.
    pub(super) fn insert(&mut self, address: u64, copy: Site) {
        if self.host.is_empty() {
            self.host = vec![None; HOST_ADDRESSES].into();
        }
        self.host[place_of(address)] = Some((address, copy));
    }

    /// The copy that used the address as host memory.
    pub(super) fn copy_with(&self, address: u64) -> Option<Site> {
        let (host, copy) = (*self.host.get(place_of(address))?)?;
        (host == address).then_some(copy)
    }

    /// True if no copy has used host memory that the driver does not know.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.host.is_empty()
    }
}

/// Where an address is remembered.
fn place_of(address: u64) -> usize {
    (address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as usize % HOST_ADDRESSES
}
