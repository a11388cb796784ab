//! How much of a device's multiprocessors a launch can use.

use serde::{Deserialize, Serialize};

use crate::record::{Device, Work};

/// Registers are given to a warp in units of 256, shared memory to a block in units of 128 bytes, and
/// the system takes 1 KiB of shared memory for each block from compute capability 8.0 on (CUDA
/// programming guide, technical specifications; CUDA occupancy calculator).
const REGISTER_UNIT: u64 = 256;
const SHARED_UNIT: u64 = 128;
const SYSTEM_SHARED: u64 = 1024;
const WARP: u64 = 32;

/// How a launch fills a device, by what its blocks need; how blocks are really placed is not known.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Occupancy {
    /// Warps that a multiprocessor can hold of the kernel, of those that it has room for: 0 to 1.
    pub occupancy: f64,
    /// How often the device is filled until all blocks have run; less than 1: blocks for a part of
    /// it.
    pub waves: f64,
}

impl Occupancy {
    /// Of a launch; `None` if the device or the kernel's needs are not known.
    pub fn of(work: &Work, device: &Device) -> Option<Self> {
        let size = |sizes: [u32; 3]| {
            let sizes = sizes.into_iter().map(u64::from);
            sizes.fold(1, u64::saturating_mul)
        };
        let (blocks, threads) = (size(work.grid?), size(work.block?));
        let warps = threads.div_ceil(WARP);
        if warps == 0 || device.multiprocessors == 0 || device.warps == 0 {
            return None;
        }
        let mut resident = u64::from(device.warps) / warps;
        resident = resident.min(u64::from(device.blocks));
        if let Some(registers) = work.registers.filter(|&registers| registers > 0) {
            let of_warp = (u64::from(registers) * WARP).next_multiple_of(REGISTER_UNIT);
            // A warp's registers are all in one of four parts of a multiprocessor.
            let held = u64::from(device.registers) / 4 / of_warp * 4;
            resident = resident.min(held / warps);
        }
        let system = match device.capability {
            [major, _] if major >= 8 => SYSTEM_SHARED,
            _ => 0,
        };
        let shared = work.shared_bytes.unwrap_or(0).saturating_add(system);
        if shared > 0 {
            let of_block = shared.div_ceil(SHARED_UNIT).saturating_mul(SHARED_UNIT);
            resident = resident.min(u64::from(device.shared_bytes) / of_block);
        }
        if resident == 0 {
            return None;
        }
        Some(Self {
            occupancy: (resident * warps) as f64 / f64::from(device.warps),
            waves: blocks as f64 / (resident * u64::from(device.multiprocessors)) as f64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_profile::{h200, kernel};

    /// As `cuOccupancyMaxActiveBlocksPerMultiprocessor` and the occupancy calculator have it.
    #[test]
    fn limits() {
        let launch = |block: u32, registers: u32, shared: u64| Work {
            grid: Some([264, 1, 1]),
            block: Some([block, 1, 1]),
            registers: Some(registers),
            shared_bytes: Some(shared),
            ..kernel("k", 0, 0, 1)
        };
        for (work, occupancy, waves) in [
            // By threads: 2 blocks of 1024.
            (launch(1024, 32, 0), 1.0, 1.0),
            // By blocks: 32 of one warp.
            (launch(32, 16, 0), 0.5, 0.0625),
            // By registers: 8 warps of 255 registers.
            (launch(256, 255, 0), 0.125, 2.0),
            // By shared memory: one block of 120,000 bytes.
            (launch(256, 32, 120_000), 0.125, 2.0),
        ] {
            let known = Occupancy::of(&work, &h200()).unwrap();
            assert!((known.occupancy - occupancy).abs() < 1e-9, "{known:?}");
            assert!((known.waves - waves).abs() < 1e-9, "{known:?}");
        }
        assert_eq!(Occupancy::of(&launch(0, 1, 0), &h200()), None);
        assert_eq!(Occupancy::of(&kernel("k", 0, 0, 1), &h200()), None);
    }
}
