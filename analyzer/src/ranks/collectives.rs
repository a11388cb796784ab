//! Collectives: which ranks form a communicator, and whether all of them launch the same.
//!
//! The launches of a process that belong to one communicator have the same first address in their
//! parameters, the library's description of the communicator. Two processes are in one communicator
//! if their launches reach the same memory. Where that is not one to one, nothing is compared.

use std::collections::{BTreeMap, BTreeSet};

use cutape_format::Call;
use cutape_model::{Changes, Effects, LaunchShape, ObjectId};
use cutape_reach::Place;
use cutape_registry::{EventOp, Family, Waits};
use rustc_hash::FxHashMap;

use super::kernel::{Operation, operation};
use super::memory::{Identity, ProcessMemory};
use super::process::Process;
use crate::context::TraceContext;

/// The shape of a launch: grid, block, bytes of dynamic shared memory.
pub(super) type Shape = ([u64; 3], [u64; 3], u64);

/// A launch of a collective.
#[derive(Clone, Copy, Debug)]
pub(super) struct Launch {
    /// Numbers of the name and the shape.
    pub(super) kernel: u32,
    pub(super) shape: u32,
    pub(super) call: u64,
}

/// A communicator as one process has it.
#[derive(Debug, Default)]
pub(super) struct Member {
    pub(super) process: usize,
    reached: BTreeSet<Identity>,
    pub(super) launches: Vec<Launch>,
    /// How many collectives there were before the first launch that need not be the same in all
    /// ranks, and that may hide one.
    pub(super) unclear_from: Option<usize>,
    /// How many are known to be complete.
    pub(super) completed: usize,
    stream: u64,
}

/// The communicators of one process.
#[derive(Debug, Default)]
struct OfProcess {
    memory: ProcessMemory,
    members: Vec<Member>,
    by_root: BTreeMap<(Place, u64), usize>,
    /// By event: how many collectives of each communicator its last record waits for.
    records: FxHashMap<u64, Vec<(usize, usize)>>,
    /// Collectives were captured: which run when is not known.
    has_captured: bool,
}

/// The collectives of all processes.
#[derive(Debug, Default)]
pub(super) struct Collectives {
    processes: Vec<OfProcess>,
    kernels: Vec<String>,
    shapes: Vec<Shape>,
    kernel_numbers: FxHashMap<String, u32>,
    shape_numbers: FxHashMap<Shape, u32>,
}

impl Collectives {
    pub(super) fn new(processes: usize) -> Self {
        Self {
            processes: (0..processes).map(|_| OfProcess::default()).collect(),
            ..Self::default()
        }
    }

    /// The name of a kernel by its number.
    pub(super) fn kernel(&self, number: u32) -> &str {
        self.kernels.get(number as usize).map_or("", String::as_str)
    }

    /// A shape by its number.
    pub(super) fn shape(&self, number: u32) -> Shape {
        self.shapes
            .get(number as usize)
            .copied()
            .unwrap_or_default()
    }

    /// Takes note of a call that has been applied.
    pub(super) fn observe(
        &mut self,
        process: &mut Process,
        (number, context, call): (usize, &dyn TraceContext, &Call<'_>),
        changes: Option<&Changes>,
        identity: &dyn Fn(ObjectId) -> Identity,
    ) {
        let Some(of_process) = self.processes.get_mut(number) else {
            return;
        };
        of_process
            .memory
            .observe(process, (context, call), changes, identity);
        of_process.complete(process, call);
        let Some(kernel) = process.trace.launched_kernel(call) else {
            return;
        };
        let Some(operation) = operation(kernel) else {
            return;
        };
        // A refused launch is none; one in flight has been entered.
        if call.leave.is_some() && !call.succeeded() {
            return;
        }
        let name = match operation {
            Operation::Collective(name) => Some(name.to_owned()),
            Operation::Other => None,
        };
        if is_captured(process, call) {
            of_process.has_captured = true;
            return;
        }
        let Some(uses) = process.uses(call) else {
            return;
        };
        let Some((root, reached)) = of_process.memory.reached(uses, call) else {
            return;
        };
        let members = &mut of_process.members;
        let at = *of_process.by_root.entry(root).or_insert_with(|| {
            members.push(Member {
                process: number,
                ..Member::default()
            });
            members.len() - 1
        });
        let Some(member) = members.get_mut(at) else {
            return;
        };
        member.reached.extend(reached);
        let Some(name) = name else {
            member.unclear_from.get_or_insert(member.launches.len());
            return;
        };
        let shape = LaunchShape::of(uses.function, call);
        member.stream = shape.stream.unwrap_or(0);
        let shape = (
            shape.grid.unwrap_or_default(),
            shape.block.unwrap_or_default(),
            shape.shared.unwrap_or(0),
        );
        let kernel = numbered(&mut self.kernel_numbers, &mut self.kernels, name);
        let shape = numbered(&mut self.shape_numbers, &mut self.shapes, shape);
        member.launches.push(Launch {
            kernel,
            shape,
            call: call.index,
        });
    }

    /// The communicators of several processes, each with its members by process.
    pub(super) fn communicators(&self) -> Vec<Vec<&Member>> {
        let members = self.processes.iter().flat_map(|process| &process.members);
        let members: Vec<&Member> = members.collect();
        let mut groups: Vec<usize> = (0..members.len()).collect();
        let mut by_memory: BTreeMap<Identity, Vec<usize>> = BTreeMap::new();
        for (at, member) in members.iter().enumerate() {
            for identity in &member.reached {
                by_memory.entry(*identity).or_default().push(at);
            }
        }
        for together in by_memory.values() {
            let processes = together.iter().filter_map(|at| members.get(*at));
            let processes: BTreeSet<usize> = processes.map(|member| member.process).collect();
            // What one process has alone, such as a table of constants, joins nothing.
            let Some(first) = together.first().filter(|_| processes.len() > 1) else {
                continue;
            };
            let into = groups.get(*first).copied().unwrap_or(*first);
            let from = together.iter().filter_map(|at| groups.get(*at).copied());
            let from: BTreeSet<usize> = from.collect();
            for group in groups.iter_mut().filter(|group| from.contains(group)) {
                *group = into;
            }
        }
        let mut found: BTreeMap<usize, Vec<&Member>> = BTreeMap::new();
        for (member, group) in members.into_iter().zip(groups) {
            found.entry(group).or_default().push(member);
        }
        found.retain(|_, members| {
            let processes = members.iter().map(|member| member.process);
            let distinct: BTreeSet<usize> = processes.clone().collect();
            let mut captured = processes.filter_map(|process| self.processes.get(process));
            distinct.len() == members.len()
                && members.len() > 1
                && !captured.any(|process| process.has_captured)
        });
        found.into_values().collect()
    }
}

/// One collective of a communicator, which all its ranks take part in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collective {
    /// The kernel, e.g. `ncclDevKernel_AllReduce_Sum_f32_RING_LL`.
    pub kernel: String,
    /// The process and the call of each launch.
    pub launches: Vec<(usize, u64)>,
}

impl Collectives {
    /// The collectives that all ranks of a communicator launch, in their order: as far as what a
    /// launch does is known, and is the same in all ranks.
    pub(super) fn together(&self) -> Vec<Collective> {
        let mut found = Vec::new();
        for members in self.communicators() {
            let clear = members.iter().filter_map(|member| member.unclear_from);
            let clear = clear.min().unwrap_or(usize::MAX);
            for at in 0..clear {
                let launches = members.iter().map(|member| {
                    let launch = member.launches.get(at)?;
                    Some((member.process, *launch))
                });
                let Some(launches) = launches.collect::<Option<Vec<_>>>() else {
                    break;
                };
                let Some((_, first)) = launches.first() else {
                    break;
                };
                let is_same = |(_, launch): &(usize, Launch)| {
                    (launch.kernel, launch.shape) == (first.kernel, first.shape)
                };
                if !launches.iter().all(is_same) {
                    break;
                }
                found.push(Collective {
                    kernel: self.kernel(first.kernel).to_owned(),
                    launches: launches
                        .iter()
                        .map(|(process, launch)| (*process, launch.call))
                        .collect(),
                });
            }
        }
        found
    }
}

impl OfProcess {
    /// A successful call may prove collectives complete.
    fn complete(&mut self, process: &Process, call: &Call<'_>) {
        let Some(uses) = process.uses(call).filter(|_| call.succeeded()) else {
            return;
        };
        let function = uses.function;
        let argument = |position: u8| call.argument(usize::from(position));
        if function.family == Family::Event(EventOp::Record)
            && let Some(event) = uses.events.first()
        {
            let stream = function.stream.map(argument).unwrap_or(0);
            let of_stream = self.members.iter().enumerate();
            let of_stream = of_stream.filter(|(_, member)| member.stream == stream);
            let before = of_stream.map(|(at, member)| (at, member.launches.len()));
            self.records.insert(call.argument(*event), before.collect());
            return;
        }
        match function.waits {
            Waits::No => {}
            Waits::Context => {
                for member in &mut self.members {
                    member.completed = member.launches.len();
                }
            }
            Waits::Stream(position) => {
                let stream = argument(position);
                for member in self
                    .members
                    .iter_mut()
                    .filter(|member| member.stream == stream)
                {
                    member.completed = member.launches.len();
                }
            }
            Waits::Event(position) => {
                let known = self.records.get(&argument(position));
                for (at, launches) in known.into_iter().flatten() {
                    if let Some(member) = self.members.get_mut(*at) {
                        member.completed = member.completed.max(*launches);
                    }
                }
            }
        }
    }
}

fn is_captured(process: &mut Process, call: &Call<'_>) -> bool {
    let Some(function) = process.uses(call).map(|uses| uses.function) else {
        return false;
    };
    let state = &mut process.trace.state;
    if state.captures.is_empty() {
        return false;
    }
    let stream = state.call_stream(&Effects::of(function), call);
    stream.is_some_and(|stream| state.captures.of(stream).is_some())
}

/// The number of a value, equal for equal ones.
fn numbered<T: Clone + Eq + std::hash::Hash>(
    numbers: &mut FxHashMap<T, u32>,
    all: &mut Vec<T>,
    value: T,
) -> u32 {
    *numbers.entry(value).or_insert_with_key(|value| {
        all.push(value.clone());
        u32::try_from(all.len() - 1).unwrap_or(u32::MAX)
    })
}
