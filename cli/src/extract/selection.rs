//! Which launches to extract.

use std::collections::{BTreeMap, BTreeSet};

use cutape_analyzer::decode::function_of;
use cutape_format::{Call, Trace};
use cutape_registry::{Family, LaunchOp};

use crate::call_set::CallSet;
use crate::failure::Failure;
use crate::trace_state::{Scope, TraceState};

/// A launch of the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Launch {
    pub(super) call: u64,
    /// The kernel's name, if the trace shows it.
    pub(super) kernel: String,
}

/// Whether a call launches a kernel.
fn launches_kernel(call: &Call<'_>) -> bool {
    let family = function_of(call.signature).map(|function| function.family);
    matches!(
        family,
        Some(Family::Launch(LaunchOp::Arguments(_) | LaunchOp::Config(_)))
    )
}

/// The launches that succeeded, of a set of calls.
pub(super) fn launches(trace: &Trace, set: Option<&CallSet>) -> Vec<Launch> {
    let mut state = TraceState::new(Scope::Kernels);
    let mut launches = Vec::new();
    for call in trace.calls() {
        state.observe(&call);
        if !launches_kernel(&call) || !call.succeeded() {
            continue;
        }
        let kernel = state.launched_kernel(&call);
        if set.is_none_or(|set| set.contains(&call, kernel)) {
            launches.push(Launch {
                call: call.index,
                kernel: kernel.unwrap_or_default().to_owned(),
            });
        }
    }
    launches
}

/// One launch by its call.
pub(super) fn launch(trace: &Trace, number: u64) -> Result<Launch, Failure> {
    let failed = |what: String| {
        Err(Failure::unusable(format!(
            "--launch {number}: {what}; `cutape dump --calls 'kernel:*' {}` lists the launches",
            trace.path().display()
        )))
    };
    let mut state = TraceState::new(Scope::Kernels);
    let mut count = 0;
    for call in trace.calls() {
        state.observe(&call);
        count += 1;
        if call.index != number {
            continue;
        }
        if !launches_kernel(&call) {
            return failed(format!(
                "that call is {}, which launches no kernel",
                call.signature.name
            ));
        }
        if !call.succeeded() {
            return failed("that launch failed in the recording".to_owned());
        }
        let kernel = state.launched_kernel(&call).unwrap_or_default().to_owned();
        return Ok(Launch {
            call: number,
            kernel,
        });
    }
    failed(format!(
        "the trace has no call of that number, but 0 to {}",
        count - 1
    ))
}

/// Some of the launches: all kernels if possible, and of each kernel launches from all over the
/// trace.
pub(super) fn sample(launches: Vec<Launch>, most: usize) -> Vec<Launch> {
    if launches.len() <= most {
        return launches;
    }
    let mut by_kernel: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (place, launch) in launches.iter().enumerate() {
        by_kernel.entry(&launch.kernel).or_default().push(place);
    }
    let mut shares: Vec<(usize, &Vec<usize>)> = by_kernel.values().map(|all| (0, all)).collect();
    let mut left = most;
    while left > 0 {
        let open = shares.iter_mut().filter(|(share, all)| *share < all.len());
        for (share, _) in open {
            if left > 0 {
                *share += 1;
                left -= 1;
            }
        }
    }
    let chosen = shares.iter().flat_map(|&(share, all)| {
        (0..share).filter_map(move |number| all.get(number * all.len() / share).copied())
    });
    let chosen: BTreeSet<usize> = chosen.collect();
    let launches = launches.into_iter().enumerate();
    launches
        .filter(|(place, _)| chosen.contains(place))
        .map(|(_, launch)| launch)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_all_kernels_and_is_spread() {
        let launches: Vec<Launch> = (0..20)
            .map(|call| Launch {
                call,
                kernel: if call == 13 { "rare" } else { "usual" }.to_owned(),
            })
            .collect();
        for (most, calls) in [
            (0, &[][..]),
            (1, &[13]),
            (2, &[0, 13]),
            (4, &[0, 6, 12, 13]),
            (6, &[0, 3, 7, 11, 13, 16]),
        ] {
            let sampled = sample(launches.clone(), most);
            let found: Vec<u64> = sampled.iter().map(|launch| launch.call).collect();
            assert_eq!(found, calls, "{most}");
        }
        assert_eq!(sample(launches.clone(), 20), launches);
    }
}
