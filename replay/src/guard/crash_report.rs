//! The report of a child that could not write one.

use std::collections::{HashMap, HashSet};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use cutape_format::Trace;

use crate::process::position::Page;
use crate::report::{CurrentCall, Died, Report};

/// The report of a child that could not write one. If it hung: with what it may wait for.
pub(crate) fn crash_report(
    trace: &Trace,
    status: ExitStatus,
    page: &Page,
    awaited: Option<Vec<String>>,
) -> Report {
    let hung = awaited.is_some();
    let (index, done) = page.read();
    let current_calls = page.counters().current_calls();
    let mut names: HashMap<u64, String> = HashMap::new();
    let wanted: HashSet<u64> = current_calls
        .iter()
        .map(|hand| hand.1)
        .chain([index])
        .collect();
    let mut calls = 0;
    for call in trace.calls() {
        calls += 1;
        if wanted.contains(&call.index) {
            names.insert(call.index, call.signature.name.clone());
        }
    }
    let name_of = |index: u64| {
        let name = names.get(&index).map(String::as_str);
        name.unwrap_or("no function").to_owned()
    };
    let threads: Vec<CurrentCall> = current_calls
        .into_iter()
        .map(|(thread, call, in_driver)| CurrentCall {
            thread,
            call,
            function: name_of(call),
            in_driver,
        })
        .collect();
    let function = names.get(&index).cloned();
    let signal = status.signal();
    let name = name_of(index);
    let text = match (hung, signal) {
        (true, _) if !threads.is_empty() => {
            "hung: no thread made progress in time; the process was ended".to_owned()
        }
        (true, _) => format!(
            "hung in call {index} ({name}), which did not return in time; the process was ended"
        ),
        (false, Some(signal)) => format!("died by signal {signal} in call {index} ({name})"),
        (false, None) => format!("ended in call {index} ({name}): {status}"),
    };
    let died = Died {
        signal: signal.filter(|_| !hung),
        hung,
        call: Some(index),
        function,
        text,
        threads,
        may_wait_for: awaited.unwrap_or_default(),
    };
    Report {
        calls,
        calls_replayed: done,
        died: Some(died),
        ..Report::default()
    }
}
