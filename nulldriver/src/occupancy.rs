//! Occupancy: how many blocks fit onto a multiprocessor of an H200-like device.

use cutape_driver::types::CUlaunchConfig;

use crate::answer::{Answer, INVALID_VALUE};
use crate::argument::{In, Out};
use crate::device::{MULTIPROCESSORS, SHARED_DEFAULT, SHARED_OPT_IN};
use crate::dispatch::{Entry, bind};
use crate::function::{Launchable, Spec};
use crate::launch_attribute::cluster_of;
use crate::state::lock;

pub(crate) const ENTRIES: &[Entry] = &[
    (
        "cuOccupancyMaxActiveBlocksPerMultiprocessor",
        bind(|blocks: Out<i32>, f: u64, size: i32, dynamic: u64| {
            max_blocks(blocks, f, size, dynamic, 0)
        }),
    ),
    (
        "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
        bind(max_blocks),
    ),
    (
        "cuOccupancyMaxPotentialBlockSize",
        bind(
            |g: Out<i32>, b: Out<i32>, f: u64, callback: u64, dynamic: u64, limit: i32| {
                best_block(g, b, f, callback, dynamic, limit, 0)
            },
        ),
    ),
    (
        "cuOccupancyMaxPotentialBlockSizeWithFlags",
        bind(best_block),
    ),
    (
        "cuOccupancyAvailableDynamicSMemPerBlock",
        bind(available_shared),
    ),
    ("cuOccupancyMaxPotentialClusterSize", bind(max_cluster_size)),
    ("cuOccupancyMaxActiveClusters", bind(max_clusters)),
];

/// Shared memory of a multiprocessor, and what each block takes of it for the system, in bytes.
const SHARED: u64 = 233_472;
const SHARED_RESERVED: u64 = 1_024;

/// Blocks of that shape that a multiprocessor holds at once.
pub(crate) fn active_blocks(spec: &Spec, threads: u32, dynamic: u64) -> u32 {
    if threads == 0 || threads > spec.max_threads() {
        return 0;
    }
    let warps = threads.div_ceil(32);
    let registers = spec.registers().next_multiple_of(8) * 32 * warps;
    let shared = (spec.image().shared_bytes + dynamic).next_multiple_of(128);
    if shared > u64::from(SHARED_OPT_IN) {
        return 0;
    }
    let by_shared = (SHARED / (shared + SHARED_RESERVED)) as u32;
    (64 / warps).min(32).min(65_536 / registers).min(by_shared)
}

fn find(function: u64) -> Answer<Launchable> {
    let state = lock();
    state.current()?;
    state.launchable(function)
}

fn max_blocks(blocks: Out<i32>, function: u64, size: i32, dynamic: u64, flags: u32) -> Answer {
    let target = find(function)?;
    blocks.check()?;
    let threads = u32::try_from(size)
        .ok()
        .filter(|&threads| threads > 0)
        .ok_or(INVALID_VALUE)?;
    if flags > 1 {
        return Err(INVALID_VALUE);
    }
    blocks.set(active_blocks(&target.spec, threads, dynamic) as i32)
}

fn best_block(
    grid: Out<i32>,
    block: Out<i32>,
    function: u64,
    callback: u64,
    dynamic: u64,
    limit: i32,
    flags: u32,
) -> Answer {
    let target = find(function)?;
    grid.check()?;
    block.check()?;
    if flags > 1 || limit < 0 {
        return Err(INVALID_VALUE);
    }
    let largest = target
        .spec
        .max_threads()
        .min(if limit == 0 { 1024 } else { limit as u32 });
    let shared = |threads: u32| match callback {
        0 => dynamic,
        entry => {
            // SAFETY: by the C prototype the program gives a function from a block size to a number of bytes.
            let size: extern "C" fn(i32) -> usize =
                unsafe { std::mem::transmute(entry as *const ()) };
            size(threads as i32) as u64
        }
    };
    let mut best = (0, 0, 0);
    let mut threads = largest;
    while threads > 0 {
        let blocks = active_blocks(&target.spec, threads, shared(threads));
        if blocks * threads > best.0 {
            best = (blocks * threads, blocks, threads);
        }
        // Whole warps only, below the largest.
        threads = (threads - 1) / 32 * 32;
    }
    grid.set_if((best.1 * MULTIPROCESSORS) as i32);
    block.set(best.2 as i32)
}

fn available_shared(bytes: Out<usize>, function: u64, blocks: i32, size: i32) -> Answer {
    let target = find(function)?;
    bytes.check()?;
    let fixed = target.spec.image().shared_bytes;
    let count = u64::try_from(blocks)
        .ok()
        .filter(|&count| count > 0)
        .ok_or(INVALID_VALUE)?;
    let threads = u32::try_from(size)
        .ok()
        .filter(|&threads| threads > 0)
        .ok_or(INVALID_VALUE)?;
    if u64::from(active_blocks(&target.spec, threads, 0)) < count {
        return Err(INVALID_VALUE);
    }
    let each = (SHARED / count).saturating_sub(SHARED_RESERVED) / 128 * 128;
    bytes.set(each.min(u64::from(SHARED_OPT_IN)).saturating_sub(fixed) as usize)
}

/// Blocks, threads and dynamic shared memory of a configuration.
fn shape(config: &CUlaunchConfig) -> (u32, u64) {
    let threads =
        u64::from(config.blockDimX) * u64::from(config.blockDimY) * u64::from(config.blockDimZ);
    (
        u32::try_from(threads).unwrap_or(u32::MAX),
        u64::from(config.sharedMemBytes),
    )
}

fn max_cluster_size(size: Out<i32>, function: u64, config: In<CUlaunchConfig>) -> Answer {
    let target = find(function)?;
    size.check()?;
    let config = config.get()?;
    let (threads, dynamic) = shape(&config);
    if active_blocks(&target.spec, threads, dynamic) == 0 {
        return Err(INVALID_VALUE);
    }
    size.set(if target.non_portable_cluster { 16 } else { 8 })
}

fn max_clusters(clusters: Out<i32>, function: u64, config: In<CUlaunchConfig>) -> Answer {
    let target = find(function)?;
    clusters.check()?;
    let config = config.get()?;
    let (threads, dynamic) = shape(&config);
    if dynamic > u64::from(target.dynamic_shared.max(SHARED_DEFAULT)) {
        return Err(INVALID_VALUE);
    }
    let cluster = cluster_of(&config, &target)?.map_or(1, |[x, y, z]| x * y * z);
    let blocks = active_blocks(&target.spec, threads, dynamic) * MULTIPROCESSORS;
    clusters.set((blocks / cluster.max(1)) as i32)
}
