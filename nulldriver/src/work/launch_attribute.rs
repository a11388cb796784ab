//! The attributes of `cuLaunchKernelEx`.

use cutape_driver::types::{CUlaunchAttribute, CUlaunchConfig};

use crate::call::answer::{
    Answer, INVALID_CLUSTER_SIZE, INVALID_VALUE, NOT_SUPPORTED, invalid_if, reject_if, require,
};
use crate::call::argument::In;
use crate::object::function::Launchable;
use crate::object::stream::{DISABLE_TIMING, INTERPROCESS};
use crate::state::State;

// CUlaunchAttributeID.
const COOPERATIVE: u32 = 2;
const CLUSTER_DIMENSION: u32 = 4;
const PROGRAMMATIC_SERIALIZATION: u32 = 6;
const PROGRAMMATIC_EVENT: u32 = 7;
const PREFERRED_CLUSTER_DIMENSION: u32 = 11;
const COMPLETION_EVENT: u32 = 12;
const DEVICE_UPDATABLE: u32 = 13;
const LAST: u32 = 16;

/// What the attributes of a launch ask for.
#[derive(Default)]
pub(crate) struct Requests {
    pub(crate) is_cooperative: bool,
    /// It may overlap the kernel before it.
    pub(crate) is_programmatic: bool,
    /// Events to record when the launch is done.
    pub(crate) events: Vec<u64>,
}

/// Reads the attributes of a launch.
pub(crate) fn read(config: &CUlaunchConfig) -> Answer<Vec<CUlaunchAttribute>> {
    invalid_if(config.numAttrs > 256)?;
    // NULL with a count is INVALID_VALUE (measured).
    In::at(config.attrs as u64).list(config.numAttrs as usize)
}

/// Three dimensions at the start of an attribute's value.
fn dimensions(attribute: &CUlaunchAttribute) -> [u32; 3] {
    // SAFETY: both cluster members are three numbers at the start of the union; any bytes are
    // numbers.
    let dimension = unsafe { attribute.value.clusterDim };
    [dimension.x, dimension.y, dimension.z]
}

/// The cluster of a launch, by attribute or by the function's required size. Checks the cluster's
/// size, not the grid.
pub(crate) fn cluster_of(
    attributes: &[CUlaunchAttribute],
    target: &Launchable,
) -> Answer<Option<[u32; 3]>> {
    let find = |id| {
        let of_id = |attribute: &&CUlaunchAttribute| attribute.id.0 == id;
        attributes.iter().rfind(of_id).map(dimensions)
    };
    let image = target.spec.image();
    let is_required = target.cluster.iter().any(|&width| width > 0);
    let given = find(CLUSTER_DIMENSION);
    // Assumed: the manual has the code for a misconfigured cluster, not for this case.
    let contradicts = |fixed| given.is_some_and(|given| given != fixed);
    reject_if(
        image.required_cluster.is_some_and(contradicts),
        INVALID_CLUSTER_SIZE,
    )?;
    let cluster = given.or(is_required.then_some(target.cluster));
    // cuOccupancyMaxActiveClusters; assumed for launches.
    reject_if(
        image.needs_cluster && cluster.is_none(),
        INVALID_CLUSTER_SIZE,
    )?;
    if let Some(preferred) = find(PREFERRED_CLUSTER_DIMENSION) {
        // A preferred size needs a minimum, of which it is a multiple (measured both ways).
        let minimum = cluster.ok_or(INVALID_CLUSTER_SIZE)?;
        let mut pairs = preferred.into_iter().zip(minimum);
        let is_multiple =
            pairs.all(|(size, minimum)| minimum > 0 && size > 0 && size % minimum == 0);
        require(is_multiple, INVALID_CLUSTER_SIZE)?;
    }
    if let Some(sizes) = cluster {
        let blocks = sizes
            .iter()
            .try_fold(1_u32, |product, &size| product.checked_mul(size));
        // A partly set size has zeros (measured INVALID_CLUSTER_SIZE).
        let fits = blocks.is_some_and(|blocks| (1..=target.max_cluster()).contains(&blocks));
        require(fits, INVALID_CLUSTER_SIZE)?;
    }
    Ok(cluster)
}

/// Checks the attributes of a launch against its grid.
pub(crate) fn check(
    state: &State,
    attributes: &[CUlaunchAttribute],
    grid: [u32; 3],
    target: &Launchable,
) -> Answer<Requests> {
    let mut requests = Requests::default();
    for attribute in attributes {
        let value = &attribute.value;
        // SAFETY: every member read here is made of numbers and pointers, so any bytes are a value
        // of it.
        unsafe {
            match attribute.id.0 {
                COOPERATIVE => requests.is_cooperative = value.cooperative != 0,
                PROGRAMMATIC_SERIALIZATION => {
                    requests.is_programmatic = value.programmaticStreamSerializationAllowed != 0;
                }
                PROGRAMMATIC_EVENT => {
                    let event = value.programmaticEvent.event as u64;
                    requests.events.push(untimed(state, event)?);
                }
                COMPLETION_EVENT => {
                    let event = value.launchCompletionEvent.event as u64;
                    requests.events.push(untimed(state, event)?);
                }
                // Only while capturing (measured).
                DEVICE_UPDATABLE if value.deviceUpdatableKernelNode.deviceUpdatable != 0 => {
                    return Err(NOT_SUPPORTED);
                }
                15 => return Err(INVALID_VALUE), // no such attribute
                0..=LAST => {}
                _ => return Err(INVALID_VALUE),
            }
        }
    }
    if let Some(sizes) = cluster_of(attributes, target)? {
        let mut pairs = grid.into_iter().zip(sizes);
        let divides = pairs.all(|(blocks, size)| blocks % size == 0);
        require(divides, INVALID_CLUSTER_SIZE)?; // measured
    }
    Ok(requests)
}

/// An event that a launch may record: without timing, of this process only (measured NOT_SUPPORTED
/// otherwise).
fn untimed(state: &State, handle: u64) -> Answer<u64> {
    let flags = state.event(handle)?.flags;
    let is_usable = flags & DISABLE_TIMING != 0 && flags & INTERPROCESS == 0;
    require(is_usable, NOT_SUPPORTED)?;
    Ok(handle)
}
