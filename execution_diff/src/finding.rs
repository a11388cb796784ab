//! Describes a launch that writes something else.

use std::ops::Range;

use cutape_history::facts;
use cutape_replay::LaunchMemory;

use crate::compared::{Compared, Side};
use crate::contents::Difference;
use crate::launches::Launch;
use crate::names::Names;
use crate::origin::origin;
use crate::read::Read;
use crate::report::{Changed, DifferingMemory, Finding, Origin, Verdict};
use crate::run::Ran;

/// Describes a launch, with what reading it has shown.
pub(crate) fn finding(
    compared: &Compared<'_>,
    (launch, read): (&Launch, Option<&Read>),
    names: &Names,
    ran: &Ran,
) -> Finding {
    let (call_a, call_b) = launch.calls;
    let differs_on_same_inputs = ran.get(&call_a).map(Option::is_some);
    let verdict = match read {
        Some(read) => read.verdict(launch),
        None => launch.is_introduced().then_some(Verdict::Introduced),
    };
    // Other inputs that are within the tolerance: it depends on B's kernel, or the code is equal.
    let verdict = verdict.unwrap_or(match differs_on_same_inputs {
        Some(true) => Verdict::Introduced,
        _ => Verdict::Inherited,
    });
    let mut found = Finding {
        verdict,
        launches: [
            names.facts(Side::A, call_a, None),
            names.facts(Side::B, call_b, None),
        ],
        arguments: Vec::new(),
        inputs: Vec::new(),
        outputs: Vec::new(),
        origin: None,
        differs_on_same_inputs,
        not_read: None,
    };
    match read {
        Some(Read::Differs(differences, nodes)) => {
            let described = |list: &[Difference]| {
                let described = list.iter().map(|one| of_difference(one, call_a, names));
                described.collect()
            };
            found.arguments = differences.arguments.clone();
            found.inputs = described(&differences.inputs);
            found.outputs = described(&differences.outputs);
            if let Some([a, b]) = nodes {
                found.launches = [
                    names.facts(Side::A, call_a, Some((a.0, &a.1))),
                    names.facts(Side::B, call_b, Some((b.0, &b.1))),
                ];
            }
        }
        other => {
            let described = |list: &[LaunchMemory]| {
                let described = list.iter().map(|one| of_memory(one, call_a, names));
                described.collect()
            };
            found.inputs = described(&launch.inputs);
            found.outputs = described(&launch.outputs);
            if launch.has_other_arguments {
                found
                    .arguments
                    .push("other arguments: `cutape diff` lists them".to_owned());
            }
            if let Some(Read::Failed(why)) = other {
                found.not_read = Some(why.clone());
            }
        }
    }
    if !found.inputs.is_empty() {
        found.origin = origin_of(compared, &found.inputs, call_a);
    }
    found
}

/// What a launch changes that was read.
pub(crate) fn changed_by(call: u64, read: &Read, names: &Names) -> Option<Changed> {
    let Read::Differs(differences, _) = read else {
        return None;
    };
    let first = differences.outputs.first()?;
    Some(Changed {
        memory: first.name(call, names),
        mismatch: first.mismatch.clone()?,
    })
}

impl Difference {
    fn name(&self, call: u64, names: &Names) -> String {
        match &self.variable {
            Some(name) => format!("variable {name}"),
            None => {
                let label = names.label(call, self.address);
                label.map_or_else(|| format!("{:#x}", self.address), str::to_owned)
            }
        }
    }
}

fn of_difference(one: &Difference, call: u64, names: &Names) -> DifferingMemory {
    DifferingMemory {
        memory: one.name(call, names),
        address: one.address,
        length: one.length,
        parameters: one.parameters.clone(),
        mismatch: one.mismatch.clone(),
    }
}

fn of_memory(one: &LaunchMemory, call: u64, names: &Names) -> DifferingMemory {
    let label = names.label(call, one.address);
    DifferingMemory {
        memory: label.map_or_else(|| format!("{:#x}", one.address), str::to_owned),
        address: one.address,
        length: one.length,
        parameters: Vec::new(),
        mismatch: None,
    }
}

/// The call that other inputs come from: of the first byte that differs, or of the memory.
fn origin_of(compared: &Compared<'_>, inputs: &[DifferingMemory], before: u64) -> Option<Origin> {
    let [trace, _] = compared.traces;
    let first = inputs.iter().filter_map(|input| {
        let start = input.address + input.mismatch.as_ref()?.offset;
        Some(start..start + 1)
    });
    let whole = inputs
        .iter()
        .map(|input| input.address..input.address + input.length);
    let wanted: Vec<Range<u64>> = first.chain(whole).collect();
    let (call, kinds) = origin(trace, compared.aligned, (&wanted, before))?;
    Some(Origin {
        call,
        facts: facts(trace, [call].into_iter().collect()).of(call),
        kinds: kinds.into_iter().map(|kind| kind.key()).collect(),
    })
}
