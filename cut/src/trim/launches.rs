//! Calls by the launches among them.

use std::ops::Range;

use cutape_format::{Call, Trace};
use cutape_model::function_of;
use cutape_registry::{Family, GraphOp};

use crate::error::Error;

/// The calls from the first of these launches to the last; launches of kernels and of graphs count
/// from 0.
///
/// # Errors
/// If the trace has none of these launches.
pub fn calls_of_launches(trace: &Trace, wanted: &Range<u64>) -> Result<Range<u64>, Error> {
    let mut launches = 0;
    let mut found: Option<Range<u64>> = None;
    for call in trace.calls().filter(is_launch) {
        if wanted.contains(&launches) {
            let start = found.map_or(call.index, |known| known.start);
            found = Some(start..call.index + 1);
        }
        launches += 1;
    }
    found.ok_or_else(|| {
        Error::Unusable(format!(
            "the trace has {launches} launches, which count from 0"
        ))
    })
}

fn is_launch(call: &Call<'_>) -> bool {
    let family = function_of(call.signature).map(|function| function.family);
    matches!(
        family,
        Some(Family::Launch(_) | Family::Graph(GraphOp::Launch))
    )
}
