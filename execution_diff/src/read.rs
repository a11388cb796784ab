//! Reads the memory of a few launches in both traces.

use std::collections::{BTreeMap, BTreeSet};

use cutape_history::Contents;
use cutape_replay::{Moments, Observation, Observed, ObservedCall, Reach};

use crate::compared::{Compared, Replays, Side};
use crate::contents::{Differences, Seen, differences};
use crate::kernels::variables;
use crate::launches::{Counterparts, Launch};
use crate::names::Names;
use crate::report::{Report, Verdict};

/// As digests look at it.
const LONGEST: u64 = 64 << 20;
/// The most contents of one replay.
pub(crate) const MOST_BYTES: u64 = 16 << 30;

/// What reading a launch has shown.
#[derive(Clone, Debug)]
pub(crate) enum Read {
    /// It writes the same: within the tolerance, or but for addresses.
    Equal,
    /// It differs; of a graph, that node of A and of B with its kernel.
    Differs(Box<Differences>, Option<[(u32, String); 2]>),
    /// Why that is not known.
    Failed(String),
}

impl Read {
    /// Where the difference is from; `None` if there is none, or if other inputs are within the
    /// tolerance.
    pub(crate) fn verdict(&self, launch: &Launch) -> Option<Verdict> {
        match self {
            Self::Equal => None,
            Self::Failed(_) if launch.is_introduced() => Some(Verdict::Introduced),
            Self::Failed(_) => Some(Verdict::Inherited),
            Self::Differs(found, _) if !found.inputs.is_empty() || !found.arguments.is_empty() => {
                Some(Verdict::Inherited)
            }
            Self::Differs(found, _) => (!found.has_near_inputs).then_some(Verdict::Introduced),
        }
    }
}

/// Reads launches.
///
/// # Errors
/// The replay is not possible, as a message.
pub(crate) fn read(
    compared: &Compared<'_>,
    counterparts: &Counterparts,
    (launches, names): (&[&Launch], &Names),
    replays: &mut dyn Replays,
    report: &mut Report,
) -> Result<BTreeMap<u64, Read>, String> {
    let loads = launches
        .iter()
        .filter_map(|launch| Some(names.kernel(launch.calls.0)?.0));
    let loads_a: BTreeSet<u64> = loads.collect();
    let other = |call: &u64| counterparts.get(call).copied();
    let loads_b = loads_a.iter().filter_map(other).collect();
    let calls = launches.iter().map(|launch| launch.calls);
    let (of_a, of_b): (Vec<u64>, Vec<u64>) = calls.unzip();
    let [trace_a, trace_b] = compared.traces;
    let mut observe = |side, name: &str, calls: Vec<u64>, variables| {
        let moments = Moments {
            reach: Reach::Launch,
            before: true,
            after: true,
            node: None,
        };
        let observation = Observation {
            calls: calls.into_iter().map(|call| (call, moments)).collect(),
            variables,
            contents: compared.folder.join(name),
            longest: LONGEST,
            most_bytes: MOST_BYTES,
            ..Observation::default()
        };
        let observed = replays.observe(side, &observation)?;
        let contents = Contents::open(&observation.contents);
        let contents =
            contents.map_err(|error| format!("{}: {error}", observation.contents.display()));
        Ok::<_, String>((observed, contents?))
    };
    let a = observe(Side::A, "a", of_a, variables(trace_a, &loads_a))?;
    let b = observe(Side::B, "b", of_b, variables(trace_b, &loads_b))?;
    let mut found = BTreeMap::new();
    for launch in launches {
        let calls_of = |observed: &Observed, call| {
            let calls = observed.calls.iter().filter(move |seen| seen.call == call);
            calls.cloned().collect::<Vec<ObservedCall>>()
        };
        let (in_a, in_b) = (
            calls_of(&a.0, launch.calls.0),
            calls_of(&b.0, launch.calls.1),
        );
        let left_out = in_a.iter().chain(&in_b).flat_map(|seen| &seen.left_out);
        report.left_out.extend(left_out.cloned());
        let read = one(launch, (&in_a, &a.1), (&in_b, &b.1), counterparts, compared);
        found.insert(launch.calls.0, read.unwrap_or_else(Read::Failed));
    }
    Ok(found)
}

/// Compares what was seen of a launch, node by node if it is one of a graph.
fn one(
    launch: &Launch,
    (in_a, contents_a): (&[ObservedCall], &Contents),
    (in_b, contents_b): (&[ObservedCall], &Contents),
    counterparts: &Counterparts,
    compared: &Compared<'_>,
) -> Result<Read, String> {
    let refused = in_a
        .iter()
        .chain(in_b)
        .find_map(|seen| seen.refused.clone());
    if let Some(why) = refused {
        return Err(why);
    }
    if in_a.len() != in_b.len() || in_a.is_empty() {
        return Err("the replays have not reached it, or its graphs have other nodes".to_owned());
    }
    let mut is_equal = true;
    for (a, b) in in_a.iter().zip(in_b) {
        let seen = |call, contents| Seen { call, contents };
        let (seen_a, seen_b) = (seen(a, contents_a), seen(b, contents_b));
        let found = differences(seen_a, seen_b, counterparts, &compared.tolerance);
        let mut found = found.map_err(|error| format!("contents of memory: {error}"))?;
        // Bytes that nothing has set differ, too, and do not count (`cutape_diff`).
        if a.node.is_none() && !launch.has_other_arguments {
            found.arguments.clear();
        }
        if !found.outputs.is_empty() {
            let kernel = |seen: &ObservedCall| {
                let launch = seen.launch.as_ref();
                launch.map_or(String::new(), |launch| launch.kernel.clone())
            };
            let nodes = a.node.zip(b.node);
            let nodes = nodes.map(|(of_a, of_b)| [(of_a, kernel(a)), (of_b, kernel(b))]);
            return Ok(Read::Differs(Box::new(found), nodes));
        }
        is_equal &= found.inputs.is_empty();
    }
    // Of a graph: what its copies and memsets write is not read by itself.
    match is_equal || in_a.iter().all(|seen| seen.node.is_none()) {
        true => Ok(Read::Equal),
        false => Err("no kernel node of the graph writes something else".to_owned()),
    }
}
