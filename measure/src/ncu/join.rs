//! Joins what `ncu` printed with the calls of the replay.

use std::collections::{BTreeMap, BTreeSet};

use cutape_profile::{Chosen, Counters, KernelCounters, Profile, WorkKind};

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
    /// What both printed to stderr.
    pub messages: &'a str,
    /// From the start of `ncu` to its end, in nanoseconds.
    pub wall_ns: u64,
}

/// The counters of the chosen calls, for the profile of a replay without `ncu`.
///
/// # Errors
/// If nothing was measured: why.
pub fn counters(
    chosen: Chosen,
    measured: Measured<'_>,
    profile: &Profile,
) -> Result<Counters, Error> {
    let Printed { mut rows, problems } = read(measured.log);
    let forbidden = |text: &str| text.contains(FORBIDDEN);
    if problems.iter().any(|text| forbidden(text)) || forbidden(measured.messages) {
        return Err(Error(format!(
            "ncu may not read the counters of this GPU ({FORBIDDEN}): run cutape as root or with \
             CAP_SYS_ADMIN, or have the driver loaded with NVreg_RestrictProfilingToAdminUsers=0; \
             see docs/counters.md"
        )));
    }
    // An earlier attempt may have placed memory elsewhere and ended early.
    let last = measured
        .counted
        .as_ref()
        .map(|counted| u64::from(counted.process));
    let last = last.or_else(|| rows.last().map(|row| row.process));
    rows.retain(|row| Some(row.process) == last && row.call.is_some());
    if rows.is_empty() {
        return Err(Error(nothing_measured(&measured, &problems)));
    }
    let names = names(profile, &chosen.calls);
    let kernels: Vec<KernelCounters> = rows
        .into_iter()
        .filter(|row| row.call.is_some_and(|call| chosen.calls.contains(&call)))
        .map(|row| kernel(row, &names))
        .collect();
    let mut left_out = chosen.left_out;
    for call in chosen.calls {
        if kernels.iter().any(|kernel| kernel.call == call) {
            continue;
        }
        let why = match &measured.counted {
            Some(counted) if !counted.entered.contains(&call) => {
                "the replay under ncu did not issue it".to_owned()
            }
            Some(_) => "ncu measured no kernel of it".to_owned(),
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
    Ok(Counters {
        version: measured.ncu.version.clone(),
        path: measured.ncu.path.display().to_string(),
        passes: kernels.iter().filter_map(|kernel| kernel.passes).sum(),
        wall_ns: measured.wall_ns,
        plain_ns,
        kernels,
        left_out,
    })
}

fn nothing_measured(measured: &Measured<'_>, problems: &[String]) -> String {
    let why = match (&measured.counted, problems.first()) {
        (_, Some(problem)) => problem.clone(),
        (None, None) => last_line(measured.messages).to_owned(),
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

/// Kernels of calls that launch one, as the profile names them.
fn names<'p>(profile: &'p Profile, calls: &BTreeSet<u64>) -> BTreeMap<u64, &'p str> {
    let run = profile.runs.get(profile.median_run());
    let work = run.into_iter().flat_map(|run| &run.work);
    let kernels = work.filter(|work| work.kind == WorkKind::Kernel && work.node.is_none());
    let named = kernels.filter_map(|work| Some((work.call?, work.name.as_str())));
    named.filter(|(call, _)| calls.contains(call)).collect()
}

fn kernel(row: Row, names: &BTreeMap<u64, &str>) -> KernelCounters {
    let call = row.call.unwrap_or(0);
    let name = names.get(&call).copied().unwrap_or(&row.name).to_owned();
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
