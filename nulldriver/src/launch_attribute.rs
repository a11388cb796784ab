//! Execution Control: the attributes of `cuLaunchKernelEx`.

use cutape_driver::types::{CUlaunchAttribute, CUlaunchConfig};

use crate::answer::{Answer, INVALID_CLUSTER_SIZE, INVALID_VALUE, NOT_SUPPORTED};
use crate::argument::In;
use crate::event::{DISABLE_TIMING, INTERPROCESS};
use crate::function::Launchable;
use crate::state::State;

// Numbers of CUlaunchAttributeID.
const COOPERATIVE: u32 = 2;
const CLUSTER_DIMENSION: u32 = 4;
const PROGRAMMATIC_EVENT: u32 = 7;
const PREFERRED_CLUSTER_DIMENSION: u32 = 11;
const COMPLETION_EVENT: u32 = 12;
const DEVICE_UPDATABLE: u32 = 13;
const LAST: u32 = 16;

/// What the attributes of a launch ask for.
#[derive(Debug, Default)]
pub(crate) struct Wishes {
    pub(crate) cooperative: bool,
    /// Events to record when the launch is done.
    pub(crate) events: Vec<u64>,
}

fn attributes(config: &CUlaunchConfig) -> Answer<Vec<CUlaunchAttribute>> {
    if config.numAttrs > 256 {
        return Err(INVALID_VALUE);
    }
    // NULL with a count is INVALID_VALUE (measured).
    In::<CUlaunchAttribute>::at(config.attrs as u64).list(config.numAttrs as usize)
}

/// Three dimensions at the start of an attribute's value.
fn dimensions(attribute: &CUlaunchAttribute) -> [u32; 3] {
    // SAFETY: both cluster members are three numbers at the start of the union, and any bytes are numbers.
    let dimension = unsafe { attribute.value.clusterDim };
    [dimension.x, dimension.y, dimension.z]
}

/// The cluster of a launch, by attribute or by the function's required size; its size is checked, not the grid.
pub(crate) fn cluster_of(config: &CUlaunchConfig, target: &Launchable) -> Answer<Option<[u32; 3]>> {
    let mut cluster = target
        .cluster
        .iter()
        .any(|&width| width > 0)
        .then_some(target.cluster);
    let mut preferred = None;
    for attribute in attributes(config)? {
        match attribute.id.0 {
            CLUSTER_DIMENSION => cluster = Some(dimensions(&attribute)),
            PREFERRED_CLUSTER_DIMENSION => preferred = Some(dimensions(&attribute)),
            _ => {}
        }
    }
    if let Some(wanted) = preferred {
        // A preferred size needs a minimum, of which it is a multiple (measured both ways).
        let minimum = cluster.ok_or(INVALID_CLUSTER_SIZE)?;
        let multiple =
            |(wanted, minimum): (u32, u32)| minimum > 0 && wanted > 0 && wanted % minimum == 0;
        if !wanted.into_iter().zip(minimum).all(multiple) {
            return Err(INVALID_CLUSTER_SIZE);
        }
    }
    let Some(sizes) = cluster else {
        return Ok(None);
    };
    let blocks = sizes
        .iter()
        .try_fold(1_u32, |product, &size| product.checked_mul(size));
    let most = if target.non_portable_cluster { 16 } else { 8 };
    // A partly set size has zeros (measured INVALID_CLUSTER_SIZE).
    if blocks.is_some_and(|blocks| (1..=most).contains(&blocks)) {
        Ok(cluster)
    } else {
        Err(INVALID_CLUSTER_SIZE)
    }
}

/// Checks the attributes of a launch against its grid.
pub(crate) fn check(state: &State, config: &CUlaunchConfig, target: &Launchable) -> Answer<Wishes> {
    let mut wishes = Wishes::default();
    for attribute in attributes(config)? {
        // SAFETY: every member read here is made of numbers and pointers, so any bytes are a value of it.
        unsafe {
            match attribute.id.0 {
                COOPERATIVE => wishes.cooperative = attribute.value.cooperative != 0,
                PROGRAMMATIC_EVENT => {
                    let event = attribute.value.programmaticEvent.event as u64;
                    wishes.events.push(untimed(state, event)?);
                }
                COMPLETION_EVENT => {
                    let event = attribute.value.launchCompletionEvent.event as u64;
                    wishes.events.push(untimed(state, event)?);
                }
                // Only while capturing (measured).
                DEVICE_UPDATABLE
                    if attribute.value.deviceUpdatableKernelNode.deviceUpdatable != 0 =>
                {
                    return Err(NOT_SUPPORTED);
                }
                15 => return Err(INVALID_VALUE), // no such attribute
                0..=LAST => {}
                _ => return Err(INVALID_VALUE),
            }
        }
    }
    if let Some(sizes) = cluster_of(config, target)? {
        let grid = [config.gridDimX, config.gridDimY, config.gridDimZ];
        if grid
            .into_iter()
            .zip(sizes)
            .any(|(blocks, size)| blocks % size != 0)
        {
            return Err(INVALID_CLUSTER_SIZE); // measured
        }
    }
    Ok(wishes)
}

/// An event that a launch may record: without timing, of this process only (measured NOT_SUPPORTED otherwise).
fn untimed(state: &State, handle: u64) -> Answer<u64> {
    let event = state.event(handle)?;
    if event.flags & DISABLE_TIMING == 0 || event.flags & INTERPROCESS != 0 {
        Err(NOT_SUPPORTED)
    } else {
        Ok(handle)
    }
}
