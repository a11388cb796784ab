//! Scripts of several processes.

#![allow(dead_code, reason = "not every test file has such scripts")]

use cutape_analyzer::ranks::{CheckedProcess, ProcessEnd, RankCheck, RankTraces};
use cutape_analyzer::{Finding, RecordedProcess, TraceContext};
use cutape_format::{Call, Trace};
use cutape_model::ExchangeBuilder;

use super::{number, trace};

/// What the check of several processes says. A line `pN CALL` is a call of process N; each begins
/// after the one before it has returned, unless `pN ~ CALL` lets it overlap with the next one.
pub(crate) fn findings_of_ranks(script: &str) -> Vec<Finding> {
    let mut processes: Vec<String> = Vec::new();
    for (at, text) in script.lines().enumerate() {
        let text = text.trim();
        let Some((process, call)) = text.strip_prefix('p').and_then(|text| text.split_once(' '))
        else {
            assert!(text.is_empty() || text.starts_with('#'), "{text}");
            continue;
        };
        let process = number(process) as usize;
        processes.resize_with(processes.len().max(process + 1), String::new);
        let ticks = 1000 * (at as u64 + 1);
        if call.starts_with("meta ") {
            processes[process].push_str(&format!("{call}\n"));
            continue;
        }
        let (call, end) = match call.strip_prefix("~ ") {
            Some(call) => (call, ticks + 1500),
            None => (call, ticks + 500),
        };
        // The caller's address is the line.
        let lines = &mut processes[process];
        while lines.lines().count() < at {
            lines.push('\n');
        }
        lines.push_str(&format!("at {ticks} until {end} {call}\n"));
    }
    let names = (0..).map(|rank| RecordedProcess {
        trace: format!("run.rank{rank}.cutape"),
        rank: Some(rank),
    });
    let traces: Vec<Trace> = processes.iter().map(|script| trace(script)).collect();
    let checked = traces.iter().zip(names).map(|(trace, name)| {
        let mut exchanges = ExchangeBuilder::default();
        trace.calls().for_each(|call| exchanges.observe(&call));
        CheckedProcess {
            name,
            exchanges: exchanges.finish(),
            end: match (
                trace.meta_value("exit.status"),
                trace.meta_value("exit.signal"),
            ) {
                (Some(status), _) => ProcessEnd::Exited(status.parse().unwrap()),
                (None, Some(signal)) => ProcessEnd::Killed(signal.parse().unwrap()),
                (None, None) => ProcessEnd::Unknown,
            },
        }
    });
    let mut check = RankCheck::new(checked.collect());
    let all = traces.iter().enumerate();
    let mut calls: Vec<_> = all
        .flat_map(|(process, trace)| trace.calls().map(move |call| (call.ticks, process, call)))
        .collect();
    calls.sort_by_key(|(ticks, process, _)| (*ticks, *process));
    for (_, process, call) in &calls {
        check.push(*process, &traces[*process], call);
    }
    check.finish(&Traces(&traces))
}

struct Traces<'t>(&'t [Trace]);

impl RankTraces for Traces<'_> {
    fn context(&self, process: usize) -> Option<&dyn TraceContext> {
        Some(self.0.get(process)?)
    }

    fn each_call(&self, process: usize, each: &mut dyn FnMut(&Call<'_>) -> bool) {
        let mut calls = self.0[process].calls();
        while calls.next().is_some_and(|call| each(&call)) {}
    }
}
