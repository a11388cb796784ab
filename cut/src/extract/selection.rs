//! Which launches to extract.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use cutape_format::{Call, Trace};
use cutape_model::{Scope, TraceState, function_of};
use cutape_registry::{Family, GraphOp, LaunchOp};

use crate::error::Error;

/// A launch of a kernel, or of a graph, which is a launch of each of its kernel nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The call.
    pub call: u64,
    /// Whether it launches a graph.
    pub is_graph: bool,
    /// Only this kernel node of a graph.
    pub node: Option<u32>,
    /// The kernel's name, if the trace shows it; empty for graphs.
    pub kernel: String,
}

/// Which launch the user names: `57`, or `912.3` for a kernel node of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// The call.
    pub call: u64,
    /// The kernel node.
    pub node: Option<u32>,
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.node {
            None => write!(f, "{}", self.call),
            Some(node) => write!(f, "{}.{node}", self.call),
        }
    }
}

impl Number {
    /// Parses the value of `--launch`.
    ///
    /// # Errors
    /// What the value must be.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (call, node) = match text.split_once('.') {
            None => (text, None),
            Some((call, node)) => (call, Some(node)),
        };
        let node = node.map(str::parse).transpose();
        match (call.parse(), node) {
            (Ok(call), Ok(node)) => Ok(Self { call, node }),
            _ => Err("give the number of a call, 57, or of a kernel node of a graph, 912.3".into()),
        }
    }
}

/// What a call launches.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Launches {
    Nothing,
    Kernel,
    Graph,
}

impl Launches {
    fn of(call: &Call<'_>) -> Self {
        match function_of(call.signature).map(|function| function.family) {
            Some(Family::Launch(LaunchOp::Arguments(_) | LaunchOp::Config(_))) => Self::Kernel,
            Some(Family::Graph(GraphOp::Launch)) => Self::Graph,
            _ => Self::Nothing,
        }
    }
}

/// The launches that succeeded.
pub fn launches(trace: &Trace) -> Vec<Launch> {
    let mut state = TraceState::new(Scope::Kernels);
    let mut launches = Vec::new();
    for call in trace.calls() {
        state.observe(&call);
        if Launches::of(&call) == Launches::Nothing || !call.succeeded() {
            continue;
        }
        launches.push(Launch {
            call: call.index,
            is_graph: Launches::of(&call) == Launches::Graph,
            node: None,
            kernel: state.launched_kernel(&call).unwrap_or_default().to_owned(),
        });
    }
    launches
}

/// The launches before and after a call, to follow a message; empty if the trace has none.
fn nearest_launches(trace: &Trace, wanted: u64) -> String {
    let (mut before, mut after) = (None, None);
    for call in trace.calls() {
        if Launches::of(&call) == Launches::Nothing || !call.succeeded() || call.index == wanted {
            continue;
        }
        if call.index > wanted {
            after = Some(call.index);
            break;
        }
        before = Some(call.index);
    }
    match (before, after) {
        (Some(before), Some(after)) => {
            format!("; the nearest launches are calls {before} and {after}")
        }
        (Some(call), None) | (None, Some(call)) => format!("; the nearest launch is call {call}"),
        (None, None) => String::new(),
    }
}

/// One launch by its call.
///
/// # Errors
/// If the call is no launch, or a launch that failed.
pub fn launch(trace: &Trace, number: Number) -> Result<Launch, Error> {
    let failed = |what: String| {
        Err(Error::Unusable(format!(
            "--launch {number}: {what}{}; `cutape dump --calls 'kernel:*' {}` lists the launches",
            nearest_launches(trace, number.call),
            trace.path().display()
        )))
    };
    let mut state = TraceState::new(Scope::Kernels);
    let mut last = None;
    for call in trace.calls() {
        state.observe(&call);
        last = Some(call.index);
        if call.index != number.call {
            continue;
        }
        let name = &call.signature.name;
        match (Launches::of(&call), number.node) {
            (Launches::Kernel, None) | (Launches::Graph, Some(_)) => {}
            (Launches::Graph, None) => {
                return failed(format!(
                    "that call launches a graph: name one of its kernel nodes, as {number}.0, or \
                     take all with --all --calls {number}"
                ));
            }
            (_, None) => return failed(format!("that call is {name}, which launches no kernel")),
            (_, Some(_)) => {
                return failed(format!("that call is {name}, which launches no graph"));
            }
        }
        if !call.succeeded() {
            return failed("that launch failed in the recording".to_owned());
        }
        let kernel = state.launched_kernel(&call).unwrap_or_default().to_owned();
        return Ok(Launch {
            call: number.call,
            is_graph: number.node.is_some(),
            node: number.node,
            kernel,
        });
    }
    failed(match last {
        Some(last) => format!("the trace has no call of that number, but 0 to {last}"),
        None => "the trace has no calls".to_owned(),
    })
}

/// Some of the launches: all kernels if possible, and of each kernel launches from all over the
/// trace.
pub fn sample(launches: Vec<Launch>, most: usize) -> Vec<Launch> {
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
    use cutape_format::TraceBuilder;
    use cutape_render::test_trace;

    use super::*;

    #[test]
    fn launches_are_named_by_call_and_node() {
        for (text, expected) in [
            ("57", Some((57, None))),
            ("912.3", Some((912, Some(3)))),
            ("", None),
            ("x", None),
            ("1.", None),
            ("1.2.3", None),
            ("-1", None),
        ] {
            let number = Number::parse(text).ok();
            assert_eq!(
                number.map(|number| (number.call, number.node)),
                expected,
                "{text}"
            );
            assert!(number.is_none_or(|number| number.to_string() == text));
        }
    }

    #[test]
    fn a_trace_without_calls_has_no_launch() {
        let builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
        let trace = test_trace::open(&builder, "extract-no-calls");
        let number = Number {
            call: 0,
            node: None,
        };
        let why = launch(&trace, number).unwrap_err().to_string();
        assert!(why.contains("the trace has no calls"), "{why}");
    }

    #[test]
    fn a_sample_has_all_kernels_and_is_spread() {
        let launches: Vec<Launch> = (0..20)
            .map(|call| Launch {
                call,
                is_graph: false,
                node: None,
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
