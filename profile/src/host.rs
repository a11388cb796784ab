//! Where the host waited.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::record::{Profile, Run};

/// All calls of a function in which the host waits for work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostStall {
    /// The function.
    pub function: String,
    /// Its calls.
    pub calls: u64,
    /// How long they took.
    pub total_ns: u64,
    /// The part of that in which a device had work.
    pub busy_ns: u64,
    /// How long they took in the recording.
    pub recorded_ns: Option<u64>,
    /// The call that took longest.
    pub longest_call: u64,
    /// How long that took.
    pub longest_ns: u64,
}

/// The functions, those with the most time first.
pub(crate) fn stalls(profile: &Profile, run: &Run) -> Vec<HostStall> {
    let busy = busy(run);
    let mut stalls: BTreeMap<&str, HostStall> = BTreeMap::new();
    for call in &run.host {
        let Some(facts) = profile.calls.get(&call.call).filter(|facts| facts.is_wait) else {
            continue;
        };
        let stall = stalls.entry(&facts.function).or_default();
        let lasted = call.end_ns.saturating_sub(call.begin_ns);
        stall.calls += 1;
        stall.total_ns += lasted;
        stall.busy_ns += within(&busy, call.begin_ns, call.end_ns);
        let recorded = facts.recorded_begin_ns.zip(facts.recorded_end_ns);
        if let Some((begin, end)) = recorded {
            *stall.recorded_ns.get_or_insert(0) += end.saturating_sub(begin);
        }
        if stall.calls == 1 || lasted > stall.longest_ns {
            (stall.longest_call, stall.longest_ns) = (call.call, lasted);
        }
    }
    let mut stalls: Vec<HostStall> = stalls
        .into_iter()
        .map(|(function, stall)| HostStall {
            function: function.to_owned(),
            ..stall
        })
        .collect();
    stalls.sort_by_key(|stall| std::cmp::Reverse(stall.total_ns));
    stalls
}

/// When any device had work: intervals that do not touch, in order.
fn busy(run: &Run) -> Vec<(u64, u64)> {
    let mut busy: Vec<(u64, u64)> = Vec::new();
    for work in &run.work {
        match busy.last_mut() {
            Some(last) if last.1 >= work.begin_ns => last.1 = last.1.max(work.end_ns),
            _ => busy.push((work.begin_ns, work.end_ns)),
        }
    }
    busy
}

fn within(busy: &[(u64, u64)], from: u64, to: u64) -> u64 {
    let first = busy.partition_point(|interval| interval.1 <= from);
    let later = busy.get(first..).unwrap_or_default().iter();
    later
        .take_while(|interval| interval.0 < to)
        .map(|interval| interval.1.min(to) - interval.0.max(from))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_profile::{host, kernel, profile};

    #[test]
    fn waits_by_function() {
        let work = vec![
            kernel("a", 1, 10, 50),
            kernel("b", 2, 40, 60),
            kernel("c", 4, 90, 100),
        ];
        let calls = vec![
            host(1, 0, 5),
            host(2, 5, 8),
            host(3, 20, 70),
            host(4, 80, 85),
            host(5, 85, 105),
        ];
        let mut profile = profile(work, calls, &[3, 5]);
        for (call, begin, end) in [(3, 0, 7), (5, 10, 11)] {
            let facts = profile.calls.get_mut(&call).unwrap();
            (facts.recorded_begin_ns, facts.recorded_end_ns) = (Some(begin), Some(end));
        }
        let expected = HostStall {
            function: "cuCtxSynchronize".into(),
            calls: 2,
            total_ns: 70,
            busy_ns: 40 + 10,
            recorded_ns: Some(8),
            longest_call: 3,
            longest_ns: 50,
        };
        assert_eq!(stalls(&profile, &profile.runs[0]), [expected]);
    }
}
