//! Programs with one mistake: a wait that is missing, so that two accesses of device memory by
//! copies, memsets or the end of the memory are not ordered.
//!
//! Races of kernels, of host functions, and of the CPU are not planted: a trace does not show what
//! these access. Nor are races between threads, whose calls may come in an order that is correct.
//! Host functions and values in host memory are left out: the program may learn from them that work
//! is complete, which a trace does not show; and batches of values, which `check` does not follow.
//! Memory that is not of a pool is freed last: the driver waits for all work then (ARCHITECTURE.md,
//! implicit waits), so that an earlier end of it would be the wait that is missing.

use crate::dice::Dice;
use crate::generate::{Size, generate};
use crate::order::{Checker, Mistake};
use crate::program::{Action, Id, Operation, Program, Work};
use crate::shrink::correct_part;

/// A program of a seed with a mistake; `None` if leaving out a wait of it makes none.
pub fn plant(seed: u64, size: Size) -> Option<Program> {
    let program = generate(seed, Size { threads: 1, ..size });
    let of_host = buffers_of_host(&program);
    let is_visible = |operation: &&Operation| match &operation.action {
        Action::Work { work, .. } => !is_kernel(work),
        Action::HostFill { .. } | Action::Signal { .. } | Action::Poll { .. } => false,
        Action::WriteValue { to, is_batched, .. } => !is_batched && !of_host.contains(&to.buffer),
        Action::Graph { nodes, .. } => !nodes.iter().any(|node| is_kernel(&node.work)),
        _ => true,
    };
    let visible = program.operations.iter().filter(is_visible).cloned();
    let (frees, mut visible): (Vec<_>, Vec<_>) = visible
        .partition(|operation| matches!(operation.action, Action::Free { stream: None, .. }));
    let is_end = |operation: &Operation| matches!(operation.action, Action::EndContext { .. });
    let end = visible.iter().position(is_end).unwrap_or(visible.len());
    visible.splice(end..end, frees);
    let program = correct_part(&visible);
    let waits: Vec<usize> = (0..program.operations.len())
        .filter(|&at| is_wait(&program.operations[at].action))
        .collect();
    let mut dice = Dice::new(seed);
    for _ in 0..waits.len() {
        let mut wrong = program.clone();
        wrong.operations.remove(dice.pick(&waits));
        if has_race_on_device(&wrong) {
            return Some(wrong);
        }
    }
    None
}

/// Buffers that the CPU can read.
fn buffers_of_host(program: &Program) -> Vec<Id> {
    let buffers = program.operations.iter();
    let buffers = buffers.filter_map(|operation| match operation.action {
        Action::Allocate { buffer, memory, .. } => memory.is_visible().then_some(buffer),
        _ => None,
    });
    buffers.collect()
}

fn is_kernel(work: &Work) -> bool {
    matches!(work, Work::Mix { .. })
}

fn is_wait(action: &Action) -> bool {
    matches!(
        action,
        Action::Wait { .. }
            | Action::SyncStream { .. }
            | Action::SyncEvent { .. }
            | Action::SyncContext { .. }
            | Action::QueryStream { .. }
            | Action::QueryEvent { .. }
    )
}

/// Whether the first mistake is a race on memory of the device.
fn has_race_on_device(program: &Program) -> bool {
    let mut checker = Checker::default();
    checker.is_lenient = true;
    for operation in &program.operations {
        if let Err(mistake) = checker.apply(operation) {
            return matches!(mistake, Mistake::Race(part) if checker.is_of_device(part));
        }
    }
    false
}
