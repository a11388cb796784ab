//! Reads a core dump of the GPU: an ELF file whose sections are tables. A row of a table belongs to a
//! row of another one: `sh_link` is the section of that table, `sh_info` the row.
//!
//! The layout is the one that NVIDIA publishes for debuggers (cudacoredump.h, drivers 346 to 575).
//! Later drivers make rows longer; what a row lacks counts as 0. Memory and registers are not read.

mod exception;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Seek};

use cutape_analyzer::demangle::{bare, demangle};
use object::read::ReadCache;
use serde::Serialize;

use table::{Kind, Row, Table, Tables};

/// What a core dump of the GPU says.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CoreDump {
    /// Why there is no more: the file cannot be read, or is none.
    pub unreadable: Option<String>,
    /// Exceptions, by device.
    pub faults: Vec<Fault>,
    /// Grids of which threads were on a device.
    pub grids: Vec<Grid>,
}

/// An exception in threads of a grid.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Fault {
    /// The number of the device, as the driver counts them.
    pub device: u32,
    /// Its number, as `cuda-gdb` writes it: `CUDA_EXCEPTION_14`.
    pub exception: String,
    /// What it is: `Warp Illegal Address`.
    pub meaning: Option<&'static str>,
    /// The kernel.
    pub kernel: Option<String>,
    /// Bytes from the start of the kernel's code to the instruction.
    pub offset: Option<u64>,
    /// The first of the threads; `None`: they had ended.
    pub thread: Option<Thread>,
    /// How many there are.
    pub threads: u64,
    /// Launches of that kernel that may run.
    pub calls: Vec<u64>,
}

/// A thread of a grid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Thread {
    /// `blockIdx`.
    pub block: [u32; 3],
    /// `threadIdx`.
    pub thread: [u32; 3],
}

/// A grid.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Grid {
    /// The number of the device, as the driver counts them.
    pub device: u32,
    /// The kernel.
    pub kernel: Option<String>,
    /// Blocks of the grid.
    pub size: [u32; 3],
    /// Threads of a block.
    pub block_size: [u32; 3],
    /// Blocks that were on the device.
    pub blocks: u64,
    /// Threads that were on the device.
    pub threads: u64,
    /// Of these, threads that stopped at a trap or breakpoint.
    pub at_trap: u64,
    /// Launches of that kernel that may run.
    pub calls: Vec<u64>,
}

impl CoreDump {
    /// Reads a dump, and of its memory nothing.
    pub fn read(file: impl Read + Seek) -> Self {
        let file = ReadCache::new(file);
        match Tables::read(&file) {
            Ok(tables) => Reading::new(&tables).dump(),
            Err(why) => Self {
                unreadable: Some(why),
                ..Self::default()
            },
        }
    }
}

/// A grid of a device: the row of the device, and the grid's own number.
type GridKey = (usize, u64);

struct Reading<'t> {
    tables: &'t Tables<'t>,
    /// By the row of the device, and the number of the grid.
    grids: BTreeMap<GridKey, Row<'t>>,
    /// By device, exception and grid, or with the address of the instruction if no thread is left.
    faults: BTreeMap<(usize, u32, u64), Fault>,
    running: BTreeMap<GridKey, Grid>,
    /// Multiprocessors whose exception a thread has.
    explained: BTreeSet<(usize, usize)>,
}

impl<'t> Reading<'t> {
    fn new(tables: &'t Tables<'t>) -> Self {
        let mut grids = BTreeMap::new();
        for table in tables.of(Kind::Grids) {
            for row in table.rows() {
                grids.insert((table.info, row.u64(0)), row);
            }
        }
        Self {
            tables,
            grids,
            faults: BTreeMap::new(),
            running: BTreeMap::new(),
            explained: BTreeSet::new(),
        }
    }

    fn dump(mut self) -> CoreDump {
        for lanes in self.tables.of(Kind::Lanes) {
            self.warp(lanes);
        }
        for blocks in self.tables.of(Kind::Blocks) {
            self.blocks(blocks);
        }
        for multiprocessors in self.tables.of(Kind::Multiprocessors) {
            self.without_threads(multiprocessors);
        }
        CoreDump {
            unreadable: None,
            faults: self.faults.into_values().collect(),
            grids: self.running.into_values().collect(),
        }
    }

    /// The threads of a warp.
    fn warp(&mut self, lanes: &Table<'t>) {
        let tables = self.tables;
        let Some((warps, warp)) = tables.parent(lanes) else {
            return;
        };
        let Some((blocks, block)) = tables.parent(warps) else {
            return;
        };
        let Some((multiprocessors, multiprocessor)) = tables.parent(blocks) else {
            return;
        };
        let device = multiprocessors.info;
        let grid = (device, block.u64(0));
        let (valid, active) = (warp.u32(12), warp.u32(16));
        let error_at = (warp.u32(24) != 0).then(|| warp.u64(0));
        for lane in lanes.rows() {
            let bit = 1_u32.checked_shl(lane.u32(16)).unwrap_or(0);
            if valid & bit == 0 {
                continue;
            }
            let is_active = active & bit != 0;
            let running = self.running(grid);
            running.threads += 1;
            running.at_trap += u64::from(is_active && warp.u32(20) != 0);
            // That of the warp is the multiprocessor's, for the threads that were active.
            let exception = match lane.u32(32) {
                0 if error_at.is_some() && is_active => multiprocessor.u32(8),
                own => own,
            };
            if exception == 0 {
                continue;
            }
            self.explained.insert((blocks.link, blocks.info));
            let address = error_at.filter(|_| is_active).unwrap_or(lane.u64(0));
            let key = (device, exception, grid.1);
            if !self.faults.contains_key(&key) {
                let thread = Thread {
                    block: [block.u32(8), block.u32(12), block.u32(16)],
                    thread: [lane.u32(20), lane.u32(24), lane.u32(28)],
                };
                let fault = self.fault(key, address, Some(thread));
                self.faults.insert(key, fault);
            }
            if let Some(fault) = self.faults.get_mut(&key) {
                fault.threads += 1;
            }
        }
    }

    fn blocks(&mut self, blocks: &Table<'t>) {
        let Some((multiprocessors, _)) = self.tables.parent(blocks) else {
            return;
        };
        for block in blocks.rows() {
            self.running((multiprocessors.info, block.u64(0))).blocks += 1;
        }
    }

    /// Exceptions whose threads had ended when the dump was written.
    fn without_threads(&mut self, multiprocessors: &Table<'t>) {
        for (index, row) in multiprocessors.rows().enumerate() {
            let exception = row.u32(8);
            if exception == 0 || self.explained.contains(&(multiprocessors.index, index)) {
                continue;
            }
            let address = if row.u32(12) != 0 { row.u64(16) } else { 0 };
            let key = (multiprocessors.info, exception, address);
            let fault = self.fault(key, address, None);
            self.faults.entry(key).or_insert(fault);
        }
    }

    fn fault(&self, key: (usize, u32, u64), address: u64, thread: Option<Thread>) -> Fault {
        let (device, exception, grid) = key;
        let grid = thread.and_then(|_| self.grids.get(&(device, grid)));
        let function = self.tables.function_at(address);
        let entry = grid.map(|grid| grid.u64(24));
        let entered = entry.and_then(|entry| self.tables.function_at(entry));
        // A function that the kernel calls is no kernel.
        let kernel = entered.or(function);
        let start = kernel.map(|kernel| kernel.start);
        let is_within = kernel.is_some_and(|kernel| kernel.has(address));
        Fault {
            device: self.device(device),
            exception: format!("CUDA_EXCEPTION_{exception}"),
            meaning: exception::meaning(exception),
            kernel: kernel.map(|kernel| name(&kernel.name)),
            offset: start.filter(|_| is_within).map(|start| address - start),
            thread,
            threads: 0,
            calls: Vec::new(),
        }
    }

    fn running(&mut self, key: GridKey) -> &mut Grid {
        let (tables, grids) = (self.tables, &self.grids);
        self.running.entry(key).or_insert_with(|| {
            let row = grids.get(&key).copied().unwrap_or_default();
            let three = |at: usize| [row.u32(at), row.u32(at + 4), row.u32(at + 8)];
            let function = tables.function_at(row.u64(24));
            Grid {
                device: tables.device(key.0),
                kernel: function.map(|function| name(&function.name)),
                size: three(72),
                block_size: three(84),
                ..Grid::default()
            }
        })
    }

    fn device(&self, row: usize) -> u32 {
        self.tables.device(row)
    }
}

/// A kernel's name, as calls have it.
pub(crate) fn name(symbol: &str) -> String {
    bare(&demangle(symbol)).to_owned()
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::test_dump::TestDump;

    #[test]
    fn a_fault_has_kernel_block_and_thread() {
        let dump = CoreDump::read(Cursor::new(TestDump::fault().bytes()));
        assert_eq!(dump.unreadable, None);
        let [fault] = &dump.faults[..] else {
            panic!("{dump:?}");
        };
        assert_eq!(fault.exception, "CUDA_EXCEPTION_14");
        assert_eq!(fault.meaning, Some("Warp Illegal Address"));
        assert_eq!(fault.kernel.as_deref(), Some("fill"));
        assert_eq!((fault.device, fault.offset), (3, Some(0x50)));
        let first = Thread {
            block: [2, 1, 0],
            thread: [33, 0, 0],
        };
        // One of the three threads of the warp was not active.
        assert_eq!((fault.thread, fault.threads), (Some(first), 2));
        let [grid] = &dump.grids[..] else {
            panic!("{dump:?}");
        };
        assert_eq!((grid.size, grid.block_size), ([4, 2, 1], [64, 1, 1]));
        assert_eq!((grid.blocks, grid.threads, grid.at_trap), (1, 3, 0));
    }

    #[test]
    fn threads_that_have_ended_leave_the_multiprocessors_exception() {
        let mut dump = TestDump::fault();
        dump.lanes.clear();
        let dump = CoreDump::read(Cursor::new(dump.bytes()));
        let [fault] = &dump.faults[..] else {
            panic!("{dump:?}");
        };
        assert_eq!((fault.thread, fault.threads), (None, 0));
        assert_eq!(fault.kernel.as_deref(), Some("fill"));
        assert_eq!(fault.offset, Some(0x50));
    }

    #[test]
    fn work_without_exception_runs() {
        let mut dump = TestDump::fault();
        dump.exception = 0;
        let dump = CoreDump::read(Cursor::new(dump.bytes()));
        assert!(dump.faults.is_empty(), "{dump:?}");
        assert_eq!(dump.grids[0].kernel.as_deref(), Some("fill"));
    }

    /// No bytes cause a panic, and what is no dump is refused.
    #[test]
    fn damaged_dumps() {
        let bytes = TestDump::fault().bytes();
        for length in 0..bytes.len() {
            CoreDump::read(Cursor::new(&bytes[..length]));
        }
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = bytes.clone();
                changed[at] = value;
                CoreDump::read(Cursor::new(changed));
            }
        }
        for (at, value) in [(0, 0), (16, 2), (18, 62)] {
            let mut changed = bytes.clone();
            changed[at] = value;
            assert!(
                CoreDump::read(Cursor::new(changed)).unreadable.is_some(),
                "{at}"
            );
        }
    }
}
