//! Joins what `ncu` printed with the calls of the replay: its rows are in the order of the launches,
//! of which only those of the chosen calls were measured.

use std::collections::{BTreeMap, BTreeSet};

use cutape_profile::{Chosen, Counters, KernelCounters, Profile, Work, WorkKind};

use crate::error::Error;
use crate::ncu::child::Counted;
use crate::ncu::find::Ncu;
use crate::ncu::output::{Printed, Row, read};

/// What NVIDIA's driver says to users who may not read counters.
const FORBIDDEN: &str = "ERR_NVGPUCTRPERM";

/// What a replay under `ncu` left.
#[derive(Debug)]
pub struct Measured<'a> {
    /// The program.
    pub ncu: &'a Ncu,
    /// What it printed to its log.
    pub log: &'a str,
    /// What the guard of the replay wrote; `None` if it failed.
    pub counted: Option<Counted>,
    /// What both printed otherwise.
    pub messages: &'a str,
    /// From the start of `ncu` to its end, in nanoseconds.
    pub wall_ns: u64,
}

/// The counters of the chosen calls, for the profile of a replay without `ncu`.
///
/// # Errors
/// If nothing was measured, or it is not known which call a kernel belongs to: why.
pub fn counters(
    chosen: Chosen,
    measured: Measured<'_>,
    profile: &Profile,
) -> Result<Counters, Error> {
    let Printed { mut rows, errors } = read(measured.log);
    let forbidden = |text: &str| text.contains(FORBIDDEN);
    if errors.iter().any(|text| forbidden(text)) || forbidden(measured.messages) {
        return Err(Error(format!(
            "ncu may not read the counters of this GPU ({FORBIDDEN}): run cutape as root or with \
             CAP_SYS_ADMIN, or have the driver loaded with NVreg_RestrictProfilingToAdminUsers=0; \
             see docs/counters.md"
        )));
    }
    // An earlier attempt may have placed memory elsewhere and ended early.
    let last = measured.counted.as_ref();
    let last = last.map(|counted| u64::from(counted.process));
    let last = last.or_else(|| rows.last().map(|row| row.process));
    rows.retain(|row| Some(row.process) == last);
    if rows.is_empty() {
        return Err(Error(nothing_measured(&measured, &errors)));
    }
    let works = kernels_of(profile, &chosen.calls);
    let (kernels, entered) = match &measured.counted {
        Some(counted) => (
            joined(rows, &counted.entered, &works, true)?,
            counted.entered.clone(),
        ),
        // It ended early: what was measured is of the first calls.
        None => (joined(rows, &chosen.calls, &works, false)?, BTreeSet::new()),
    };
    let mut left_out = chosen.left_out;
    for call in chosen.calls {
        if kernels.iter().any(|kernel| kernel.call == call) {
            continue;
        }
        let why = match &measured.counted {
            Some(_) if entered.contains(&call) => "ncu measured no kernel of it".to_owned(),
            Some(_) => "the replay under ncu did not issue it".to_owned(),
            None => format!(
                "the replay under ncu ended before: {}",
                last_line(measured.messages)
            ),
        };
        left_out.insert(call, why);
    }
    let run = profile.runs.get(profile.median_run());
    let plain_ns = run.map_or(0, |run| {
        let (begin, end) = run.span();
        let outside = [run.start_ns, run.finish_ns].into_iter().flatten();
        outside.fold(end - begin, u64::saturating_add)
    });
    let passes = kernels.iter().filter_map(|kernel| kernel.passes);
    Ok(Counters {
        version: measured.ncu.version.clone(),
        path: measured.ncu.path.display().to_string(),
        passes: passes.fold(0, u64::saturating_add),
        wall_ns: measured.wall_ns,
        plain_ns,
        kernels,
        left_out,
    })
}

fn nothing_measured(measured: &Measured<'_>, errors: &[String]) -> String {
    let why = match (&measured.counted, errors.first()) {
        (None, _) => last_line(measured.messages).to_owned(),
        (Some(_), Some(error)) => error.clone(),
        (Some(_), None) => "it printed no kernel".to_owned(),
    };
    let hint = match measured.counted {
        Some(_) => "",
        None => {
            "; a kernel that waits for another one hangs under ncu, which runs one at a time: choose \
             others with --counters=SET"
        }
    };
    format!("ncu measured nothing: {why}{hint}")
}

/// The last line that is not empty, without the name of this program.
fn last_line(messages: &str) -> &str {
    let mut lines = messages.lines().rev().map(str::trim);
    let line = lines.find(|line| !line.is_empty()).unwrap_or("no message");
    line.strip_prefix("cutape: ").unwrap_or(line)
}

/// The kernels, and graphs as a whole, of these calls in the replay without `ncu`.
fn kernels_of<'p>(profile: &'p Profile, calls: &BTreeSet<u64>) -> BTreeMap<u64, Vec<&'p Work>> {
    let run = profile.runs.get(profile.median_run());
    let work = run.into_iter().flat_map(|run| &run.work);
    let mut found: BTreeMap<u64, Vec<&Work>> = BTreeMap::new();
    for work in work.filter(|work| matches!(work.kind, WorkKind::Kernel | WorkKind::Graph)) {
        if let Some(call) = work.call.filter(|call| calls.contains(call)) {
            found.entry(call).or_default().push(work);
        }
    }
    found
}

/// Gives the rows to the calls, which come in this order. Each call has as many as it had kernels
/// without `ncu`; of one graph whose kernels are not known, the rest. If not `all` were measured,
/// the rows are of the first calls.
fn joined(
    rows: Vec<Row>,
    calls: &BTreeSet<u64>,
    works: &BTreeMap<u64, Vec<&Work>>,
    all: bool,
) -> Result<Vec<KernelCounters>, Error> {
    let nothing = Vec::new();
    let of = |call: &u64| works.get(call).unwrap_or(&nothing);
    let is_graph = |call: &u64| of(call).iter().any(|work| work.kind == WorkKind::Graph);
    let unknown = calls.iter().filter(|call| is_graph(call)).count();
    let known: usize = calls
        .iter()
        .filter(|call| !is_graph(call))
        .map(|call| of(call).len())
        .sum();
    let measured = rows.len();
    let fits = match (all, unknown) {
        (true, 0) => measured == known,
        (true, 1) => measured >= known,
        (false, 0) => measured <= known,
        _ => false,
    };
    let mismatch = |why: String| {
        Error(format!(
            "{why}, so that it is not known which call a kernel belongs to; choose fewer launches with \
             --counters=SET, of graphs without CUPTI one at a time"
        ))
    };
    if !fits {
        let launches = calls.len();
        return Err(mismatch(format!(
            "ncu measured {measured} kernels of {launches} calls, which had {known} without it"
        )));
    }
    let mut rows = rows.into_iter();
    let mut kernels = Vec::with_capacity(measured);
    for &call in calls {
        let count = match is_graph(&call) {
            true => measured - known,
            false => of(&call).len(),
        };
        let own: Vec<Row> = rows.by_ref().take(count).collect();
        if own.len() == count && !is_graph(&call) && !have_shapes(&own, of(&call)) {
            return Err(mismatch(format!(
                "the kernels that ncu measured have other shapes than those of call {call}"
            )));
        }
        kernels.extend(own.into_iter().map(|row| kernel(call, row, of(&call))));
    }
    Ok(kernels)
}

/// Whether the rows have the shapes of this work, in any order. What is not known fits.
fn have_shapes(rows: &[Row], works: &[&Work]) -> bool {
    if works
        .iter()
        .any(|work| work.grid.is_none() || work.block.is_none())
    {
        return true;
    }
    let mut found: Vec<_> = rows.iter().map(|row| (row.grid, row.block)).collect();
    let mut expected: Vec<_> = works.iter().map(|work| (work.grid, work.block)).collect();
    found.sort_unstable();
    expected.sort_unstable();
    found == expected
}

/// With the name that the profile has for the only kernel of a call.
fn kernel(call: u64, row: Row, works: &[&Work]) -> KernelCounters {
    let name = match works {
        [work] if work.kind == WorkKind::Kernel => work.name.clone(),
        _ => row.name,
    };
    KernelCounters {
        call,
        name,
        device: row.device,
        grid: row.grid,
        block: row.block,
        ..KernelCounters::default()
    }
    .with_metrics(row.metrics)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, blocks: u32) -> Row {
        Row {
            name: name.into(),
            grid: Some([blocks, 1, 1]),
            block: Some([32, 1, 1]),
            ..Row::default()
        }
    }

    fn work(kind: WorkKind, name: &str, call: u64, blocks: u32) -> Work {
        Work {
            name: name.into(),
            call: Some(call),
            grid: (blocks > 0).then_some([blocks, 1, 1]),
            block: Some([32, 1, 1]),
            ..Work::of(kind)
        }
    }

    /// The calls of the rows and their names, or a part of the error.
    type Joined = Result<Vec<(u64, &'static str)>, &'static str>;
    /// What it is, the chosen calls, the rows, whether all were measured.
    type Case = (&'static str, &'static [u64], Vec<Row>, bool, Joined);

    #[test]
    fn rows_belong_to_calls_in_order() {
        let known = [
            work(WorkKind::Kernel, "one", 1, 10),
            work(WorkKind::Kernel, "two", 2, 20),
            work(WorkKind::Kernel, "node", 5, 50),
            work(WorkKind::Kernel, "node", 5, 51),
            work(WorkKind::Graph, "graph", 7, 0),
            work(WorkKind::Graph, "graph", 8, 0),
        ];
        let mut works: BTreeMap<u64, Vec<&Work>> = BTreeMap::new();
        for work in &known {
            works.entry(work.call.unwrap()).or_default().push(work);
        }
        let other = "other shapes than those of call 2";
        let cases: [Case; 9] = [
            (
                "in order, with the profile's names",
                &[1, 2],
                vec![row("1()", 10), row("2()", 20)],
                true,
                Ok(vec![(1, "one"), (2, "two")]),
            ),
            (
                "one is missing",
                &[1, 2],
                vec![row("1()", 10)],
                true,
                Err("1 kernels of 2 calls"),
            ),
            (
                "it ended early",
                &[1, 2],
                vec![row("1()", 10)],
                false,
                Ok(vec![(1, "one")]),
            ),
            (
                "one too many",
                &[1],
                vec![row("a", 10), row("b", 10)],
                true,
                Err("2 kernels of 1"),
            ),
            (
                "another",
                &[1, 2],
                vec![row("a", 10), row("b", 21)],
                true,
                Err(other),
            ),
            (
                "nodes in any order",
                &[1, 5],
                vec![row("1()", 10), row("b", 51), row("a", 50)],
                true,
                Ok(vec![(1, "one"), (5, "b"), (5, "a")]),
            ),
            (
                "a graph as a whole",
                &[1, 7],
                vec![row("1()", 10), row("a", 1), row("b", 2)],
                true,
                Ok(vec![(1, "one"), (7, "a"), (7, "b")]),
            ),
            (
                "two of them",
                &[7, 8],
                vec![row("a", 1)],
                true,
                Err("graphs without CUPTI one at a"),
            ),
            (
                "it ended early in a graph",
                &[7],
                vec![row("a", 1)],
                false,
                Err("1 kernels of 1"),
            ),
        ];
        for (what, calls, rows, all, expected) in cases {
            let calls = calls.iter().copied().collect();
            let found = joined(rows, &calls, &works, all);
            match (found, expected) {
                (Ok(found), Ok(expected)) => {
                    let found: Vec<_> = found.iter().map(|it| (it.call, &*it.name)).collect();
                    assert_eq!(found, expected, "{what}");
                }
                (Err(error), Err(part)) => {
                    assert!(error.to_string().contains(part), "{what}: {error}");
                }
                (found, expected) => panic!("{what}: {found:?}, expected {expected:?}"),
            }
        }
    }
}
