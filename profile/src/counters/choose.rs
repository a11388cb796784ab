//! Which launches are worth measuring with counters.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::record::{Profile, Work, WorkKind};

/// Kernels that are measured if nothing else is asked for.
const MOST: usize = 10;

/// Launches that are to be measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    /// The calls.
    pub calls: BTreeSet<u64>,
    /// Calls that are not, and why.
    pub left_out: BTreeMap<u64, String>,
    /// A kernel of graphs takes more time than one that is chosen.
    pub graphs_matter: bool,
}

impl Chosen {
    /// The first launch of each kernel and shape among those with the most time in the replay that
    /// the tables are of. Kernels of graphs are not among them, since a graph has many. `waiting`
    /// are launches whose kernels were seen to wait for the host.
    pub fn by_time(profile: &Profile, waiting: &[u64]) -> Self {
        let mut shapes: HashMap<_, (u64, u64)> = HashMap::new();
        let mut of_graphs: HashMap<&str, u64> = HashMap::new();
        let kernels = kernels(profile);
        for (call, work) in kernels {
            if work.node.is_some() || work.kind == WorkKind::Graph {
                *of_graphs.entry(&work.name).or_default() += work.lasted();
                continue;
            }
            let shape = (&*work.name, work.grid, work.block);
            let (time, first) = shapes.entry(shape).or_insert((0, call));
            *time += work.lasted();
            *first = call.min(*first);
        }
        let mut shapes: Vec<_> = shapes.into_values().collect();
        shapes.sort_by_key(|&(time, first)| (std::cmp::Reverse(time), first));
        shapes.truncate(MOST);
        let least = shapes.last().map_or(0, |shape| shape.0);
        let most_in_graphs = of_graphs.into_values().max().unwrap_or(0);
        let calls = shapes.into_iter().map(|shape| shape.1).collect();
        Self {
            graphs_matter: most_in_graphs > least,
            ..Self::without_waiting(profile, calls, waiting)
        }
    }

    /// Those of these calls that launch kernels or graphs.
    pub fn of_calls(profile: &Profile, calls: &[u64], waiting: &[u64]) -> Self {
        let launches: BTreeSet<u64> = kernels(profile).map(|(call, _)| call).collect();
        let calls = calls.iter().copied();
        let calls = calls.filter(|call| launches.contains(call)).collect();
        Self::without_waiting(profile, calls, waiting)
    }

    /// Leaves launches out of kernels that wait for the host: under `ncu` the launch returns when its
    /// kernel has ended, so that what it waits for never comes.
    fn without_waiting(profile: &Profile, mut calls: BTreeSet<u64>, waiting: &[u64]) -> Self {
        let mut waits: HashMap<&str, u64> = HashMap::new();
        for (call, work) in kernels(profile).filter(|(call, _)| waiting.contains(call)) {
            waits.insert(&work.name, call);
        }
        let left_out = kernels(profile).filter(|(call, _)| calls.contains(call));
        let left_out: BTreeMap<u64, String> = left_out
            .filter_map(|(call, work)| {
                let seen = waits.get(&*work.name)?;
                Some((
                    call,
                    format!("its kernel was seen to wait for the host, in call {seen}"),
                ))
            })
            .collect();
        calls.retain(|call| !left_out.contains_key(call));
        Self {
            calls,
            left_out,
            graphs_matter: false,
        }
    }
}

/// Kernels and graphs with their calls, of the replay with the median time.
fn kernels(profile: &Profile) -> impl Iterator<Item = (u64, &Work)> {
    let run = profile.runs.get(profile.median_run());
    let work = run.into_iter().flat_map(|run| &run.work);
    let kernels = work.filter(|work| matches!(work.kind, WorkKind::Kernel | WorkKind::Graph));
    kernels.filter_map(|work| Some((work.call?, work)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_profile::{kernel, profile};

    fn shaped(name: &str, call: u64, lasted: u64, blocks: u32) -> Work {
        Work {
            grid: Some([blocks, 1, 1]),
            ..kernel(name, call, call * 1000, call * 1000 + lasted)
        }
    }

    #[test]
    fn the_first_launch_of_each_shape_with_most_time() {
        let mut work: Vec<Work> = (0..20).map(|call| shaped("small", call, 1, 9)).collect();
        work.extend((20..31).map(|call| shaped("k", call, 2 + call, call as u32)));
        work.push(shaped("k", 40, 500, 20));
        let copy = Work {
            kind: WorkKind::Copy,
            ..shaped("copy", 41, 900, 1)
        };
        work.push(copy);
        let profile = profile(work, Vec::new(), &[]);
        // Eleven shapes of one kernel and twenty launches of a short one, of which ten are taken.
        let chosen = Chosen::by_time(&profile, &[]);
        let expected: BTreeSet<u64> = [20].into_iter().chain(22..31).collect();
        assert_eq!((chosen.calls, chosen.graphs_matter), (expected, false));
        let chosen = Chosen::of_calls(&profile, &[3, 41, 20, 77], &[]);
        assert_eq!(chosen.calls, [3, 20].into());
    }

    #[test]
    fn waiting_kernels_and_graphs() {
        let node = Work {
            node: Some(7),
            ..shaped("in a graph", 9, 100, 1)
        };
        let work = vec![
            shaped("waits", 1, 50, 1),
            shaped("waits", 2, 60, 2),
            shaped("works", 3, 10, 1),
            node,
        ];
        let profile = profile(work, Vec::new(), &[]);
        let chosen = Chosen::by_time(&profile, &[2]);
        assert_eq!((chosen.calls, chosen.graphs_matter), ([3].into(), true));
        let left_out: Vec<_> = chosen.left_out.into_iter().collect();
        let why = "its kernel was seen to wait for the host, in call 2";
        assert_eq!(left_out, [(1, why.to_owned()), (2, why.to_owned())]);
        let named = Chosen::of_calls(&profile, &[9], &[]);
        assert_eq!(named.calls, [9].into(), "a graph that is named is measured");
    }
}
