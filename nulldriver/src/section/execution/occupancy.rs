//! Occupancy: how many blocks fit onto a multiprocessor of an H200-like device.

use cutape_driver::types::CUlaunchConfig;

use crate::call::answer::{Answer, invalid_if};
use crate::call::argument::{In, Out, positive};
use crate::call::entry::entries;
use crate::object::device::{
    MULTIPROCESSORS, SHARED, SHARED_DEFAULT, SHARED_OPT_IN, SHARED_RESERVED,
};
use crate::object::function::Launchable;
use crate::state::lock;
use crate::work::launch::Shape;
use crate::work::launch_attribute;

entries! {
    cuOccupancyMaxActiveBlocksPerMultiprocessor: |blocks: Out<i32>, f: u64, size: i32, dynamic: u64|
        max_blocks(blocks, f, size, dynamic, 0);
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags: max_blocks;
    cuOccupancyMaxPotentialBlockSize:
        |g: Out<i32>, b: Out<i32>, f: u64, callback: u64, dynamic: u64, limit: i32|
        best_block(g, b, f, callback, dynamic, limit, 0);
    cuOccupancyMaxPotentialBlockSizeWithFlags: best_block;
    cuOccupancyAvailableDynamicSMemPerBlock: available_shared;
    cuOccupancyMaxPotentialClusterSize: max_cluster_size;
    cuOccupancyMaxActiveClusters: max_clusters;
}

fn find(function: u64) -> Answer<Launchable> {
    let state = lock();
    state.current()?;
    state.launchable(function)
}

fn max_blocks(blocks: Out<i32>, function: u64, size: i32, dynamic: u64, flags: u32) -> Answer {
    let target = find(function)?;
    blocks.check()?;
    let threads = positive(size)?;
    invalid_if(flags > 1)?;
    blocks.set(target.spec.active_blocks(threads, dynamic) as i32)
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
    invalid_if(flags > 1 || limit < 0)?;
    let largest = target
        .spec
        .max_threads()
        .min(if limit == 0 { 1024 } else { limit as u32 });
    let shared = |threads: u32| match callback {
        0 => dynamic,
        entry => {
            // SAFETY: by the C prototype the program gives a function from a block size to a number
            // of bytes.
            let size: extern "C" fn(i32) -> usize =
                unsafe { std::mem::transmute(entry as *const ()) };
            size(threads as i32) as u64
        }
    };
    let mut best = (0, 0, 0);
    let mut threads = largest;
    while threads > 0 {
        let blocks = target.spec.active_blocks(threads, shared(threads));
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
    let count = u64::from(positive(blocks)?);
    let threads = positive(size)?;
    invalid_if(u64::from(target.spec.active_blocks(threads, 0)) < count)?;
    let each = (SHARED / count).saturating_sub(SHARED_RESERVED) / 128 * 128;
    bytes.set(each.min(u64::from(SHARED_OPT_IN)).saturating_sub(fixed) as usize)
}

/// Threads of a block and bytes of dynamic shared memory of a configuration, which nothing has
/// checked.
fn block_of(config: &CUlaunchConfig) -> (u32, u64) {
    let shape = Shape::from(config);
    let threads = shape
        .block
        .iter()
        .fold(1_u32, |all, &side| all.saturating_mul(side));
    (threads, u64::from(shape.shared))
}

fn max_cluster_size(size: Out<i32>, function: u64, config: In<CUlaunchConfig>) -> Answer {
    let target = find(function)?;
    size.check()?;
    let config = config.get()?;
    let (threads, dynamic) = block_of(&config);
    invalid_if(target.spec.active_blocks(threads, dynamic) == 0)?;
    size.set(target.max_cluster() as i32)
}

fn max_clusters(clusters: Out<i32>, function: u64, config: In<CUlaunchConfig>) -> Answer {
    let target = find(function)?;
    clusters.check()?;
    let config = config.get()?;
    let (threads, dynamic) = block_of(&config);
    invalid_if(dynamic > u64::from(target.dynamic_shared.max(SHARED_DEFAULT)))?;
    let cluster = launch_attribute::cluster_of(&launch_attribute::read(&config)?, &target)?;
    let cluster = cluster.map_or(1, |[x, y, z]| x * y * z);
    let blocks = target.spec.active_blocks(threads, dynamic) * MULTIPROCESSORS;
    clusters.set((blocks / cluster.max(1)) as i32)
}
