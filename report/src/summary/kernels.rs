//! The kernels that calls launch, and those that graphs run.

use std::collections::HashSet;

use cutape_export::rows::LaunchRow;
use rustc_hash::FxHashMap;
use serde::Serialize;

/// How many grids of a kernel to list.
const SHOWN_GRIDS: usize = 4;

/// A kernel, by its name in the image.
#[derive(Debug, Default, Serialize)]
pub struct KernelFacts {
    /// As in its image; `null` if no call names it.
    pub name: Option<String>,
    /// Launches by calls.
    pub launches: u64,
    /// Those that returned an error.
    pub failed: u64,
    /// How often launches of graphs run it.
    pub in_graphs: u64,
    /// The number of different grids.
    pub grids: u64,
    /// The first few of them.
    pub first_grids: Vec<[u64; 3]>,
    #[serde(skip)]
    all_grids: HashSet<[u64; 3]>,
    #[serde(skip)]
    last_grid: Option<[u64; 3]>,
}

impl KernelFacts {
    fn add_grid(&mut self, grid: Option<[u64; 3]>) {
        if grid == self.last_grid {
            return;
        }
        self.last_grid = grid;
        if let Some(grid) = grid
            && self.all_grids.insert(grid)
        {
            self.grids += 1;
            if self.first_grids.len() < SHOWN_GRIDS {
                self.first_grids.push(grid);
            }
        }
    }
}

/// Kernels by name.
#[derive(Debug, Default)]
pub(super) struct Kernels {
    entries: Vec<KernelFacts>,
    by_name: FxHashMap<String, usize>,
    unnamed: Option<usize>,
    /// Loops launch the same kernel again and again.
    last: usize,
}

impl Kernels {
    /// Adds a launch by a call.
    pub(super) fn add_launch(&mut self, row: &LaunchRow<'_>) {
        if let Some(kernel) = self.of(row) {
            kernel.launches += 1;
            kernel.failed += u64::from(row.call.result.is_some_and(|result| result != 0));
            kernel.add_grid(row.grid);
        }
    }

    /// Adds a launch by a graph.
    pub(super) fn add_in_graph(&mut self, row: &LaunchRow<'_>) {
        if let Some(kernel) = self.of(row) {
            kernel.in_graphs += 1;
            kernel.add_grid(row.grid);
        }
    }

    /// `None` if the trace lacks what is launched.
    fn of(&mut self, row: &LaunchRow<'_>) -> Option<&mut KernelFacts> {
        row.handle?;
        let last = self.entries.get(self.last);
        if last.is_none_or(|last| last.name.as_deref() != row.kernel) {
            let known = match row.kernel {
                Some(name) => self.by_name.get(name).copied(),
                None => self.unnamed,
            };
            self.last = known.unwrap_or_else(|| self.create(row.kernel));
        }
        self.entries.get_mut(self.last)
    }

    fn create(&mut self, name: Option<&str>) -> usize {
        let place = self.entries.len();
        match name {
            Some(name) => {
                self.by_name.insert(name.to_owned(), place);
            }
            None => self.unnamed = Some(place),
        }
        self.entries.push(KernelFacts {
            name: name.map(str::to_owned),
            ..KernelFacts::default()
        });
        place
    }

    /// By number of launches, then by how often graphs run them.
    pub(super) fn finish(self) -> Vec<KernelFacts> {
        let mut kernels = self.entries;
        kernels.sort_by(|a, b| {
            (b.launches, b.in_graphs, &a.name).cmp(&(a.launches, a.in_graphs, &b.name))
        });
        kernels
    }
}
