//! The last calls that have changed an object.

use std::hash::{Hash, Hasher};

use cutape_format::Call;
use cutape_registry::{ContextOp, Family, FunctionOp, GraphOp, StreamOp};
use rustc_hash::FxHasher;

use crate::effects::Effects;

/// The calls that have changed an object, without those that later ones of these supersede.
#[derive(Debug, Default)]
pub(super) struct Changes(Vec<(Option<u64>, u32)>);

impl Changes {
    /// A call changes the object. What it sets replaces the last value of the same; otherwise it
    /// needs the changes before it.
    pub(super) fn add(&mut self, set: Option<u64>, call: u32) {
        self.0
            .retain(|&(earlier, _)| set.is_some() && earlier != set);
        self.0.push((set, call));
    }

    /// The calls.
    pub(super) fn calls(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(|&(_, call)| call)
    }
}

/// What a call sets, if all that it does is to give it another value: the function and the
/// arguments before the value.
pub(super) fn set_by(effects: &Effects, call: &Call<'_>) -> Option<u64> {
    let function = effects.function;
    let named = match function.family {
        Family::Function(FunctionOp::SetAttribute | FunctionOp::SetCacheConfig)
        | Family::Stream(StreamOp::SetAttribute { .. })
        | Family::Context(ContextOp::SetLimit) => function.params.len().checked_sub(1)?,
        // The executable graph and its node.
        Family::Graph(GraphOp::SetExecNode(_)) => 2,
        _ => return None,
    };
    let mut hasher = FxHasher::default();
    call.signature.id.hash(&mut hasher);
    (0..named).for_each(|position| call.argument(position).hash(&mut hasher));
    Some(hasher.finish())
}
