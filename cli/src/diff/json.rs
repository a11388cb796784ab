//! Differences as JSON; keys are only ever added.

use std::path::Path;

use cutape_diff::{
    CallSite, Change, Difference, LeftOut, Report, Setting, Spread, Times, UnsetBytes,
};
use serde_json::{Map, Value, json};

use cutape_terminal::input::Completeness;

/// The whole output.
pub(super) fn json(paths: [&Path; 2], states: &[Completeness; 2], report: &Report) -> Value {
    let sides = paths.iter().zip(&report.sides).zip(states);
    let sides = sides.map(|((path, side), state)| {
        let mut side = json!({
            "trace": path.to_string_lossy(),
            "calls": side.calls,
            "threads": side.threads,
        });
        state.add_to(&mut side);
        side
    });
    let counts: Map<String, Value> = report
        .counts
        .iter()
        .map(|(kind, number)| (kind.key().to_owned(), json!(number)))
        .collect();
    json!({
        "differs": report.differs(),
        "first": report.first,
        "total": report.total,
        "counts": counts,
        "traces": sides.collect::<Vec<_>>(),
        "settings": report.settings.iter().map(setting).collect::<Vec<_>>(),
        "other_machine": report.is_other_machine,
        "differences": report.differences.iter().map(difference).collect::<Vec<_>>(),
        "omitted": report.omitted,
        "left_out": report.left_out.iter().map(left_out).collect::<Vec<_>>(),
        "made_by_another_thread": report.moved,
        "ended_in_another_order": report.reordered_ends,
        "payloads_by_length_only": report.lengths_only,
        "noise": report.noise,
        "unset_parameter_bytes": report.unset.iter().map(unset).collect::<Vec<_>>(),
        "times": report.times.iter().map(times).collect::<Vec<_>>(),
    })
}

fn setting(setting: &Setting) -> Value {
    json!({ "what": setting.what, "values": setting.values })
}

fn difference(difference: &Difference) -> Value {
    let kinds: Vec<&str> = difference.kinds.iter().map(|kind| kind.key()).collect();
    let [a, b] = &difference.sites;
    json!({
        "kinds": kinds,
        "title": difference.title,
        "count": difference.count,
        "a": a.as_ref().map(site),
        "b": b.as_ref().map(site),
        "changes": difference.changes.iter().map(change).collect::<Vec<_>>(),
    })
}

fn site(site: &CallSite) -> Value {
    json!({
        "index": site.index,
        "thread": site.thread,
        "function": site.function,
        "kernel": site.kernel,
    })
}

fn change(change: &Change) -> Value {
    json!({
        "kind": change.kind.key(),
        "what": change.what,
        "values": change.values,
    })
}

fn left_out(one: &LeftOut) -> Value {
    json!({ "sort": one.sort, "function": one.function, "counts": one.counts })
}

fn unset(one: &UnsetBytes) -> Value {
    let bytes: Vec<[u32; 2]> = one
        .bytes
        .iter()
        .map(|range| [range.start, range.end])
        .collect();
    json!({ "kernel": one.kernel, "bytes": bytes, "launches": one.launches })
}

fn times(times: &Times) -> Value {
    let spread = |spread: &Spread| {
        json!({
            "calls": spread.calls,
            "median_ns": spread.median,
            "quarter_ns": spread.low,
            "three_quarters_ns": spread.high,
        })
    };
    json!({
        "function": times.function,
        "kernel": times.kernel,
        "sides": times.sides.iter().map(spread).collect::<Vec<_>>(),
        "change_percent": times.change,
    })
}
