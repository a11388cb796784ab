//! Which calls of two traces correspond, for those who compare what the calls do.

use rustc_hash::FxHashMap;

use crate::counterparts::{Counterparts, Step, entry};
use crate::differences::{Calls, Raw};
use crate::report::Kind;
use crate::sequence::Sequence;

/// Calls that correspond.
#[derive(Clone, Debug, Default)]
pub struct Aligned {
    /// Call indices of A and B, in the order of A.
    pub pairs: Vec<(u64, u64)>,
    /// In what such calls differ, by the index of A; most important first.
    pub kinds: FxHashMap<u64, Vec<Kind>>,
}

impl Aligned {
    pub(crate) fn of((a, b): (&Sequence, &Sequence), found: &Counterparts, raws: &[Raw]) -> Self {
        let mut pairs = Vec::new();
        found.steps(a, b, |step| {
            if let Step::Both(of_a, of_b) | Step::Moved(of_a, of_b) | Step::Shifted(of_a, of_b) =
                step
                && let (Some(of_a), Some(of_b)) = (entry(a, of_a), entry(b, of_b))
            {
                pairs.push((of_a.index, of_b.index));
            }
        });
        pairs.sort_unstable();
        let kinds = raws.iter().filter_map(|raw| match raw.calls {
            Calls::Both(of_a, _) => Some((entry(a, of_a)?.index, raw.kinds.list())),
            _ => None,
        });
        Self {
            kinds: kinds.collect(),
            pairs,
        }
    }

    /// A trace and itself, in which some calls differ in code.
    pub fn with_other_code(calls: u64, loads: impl IntoIterator<Item = u64>) -> Self {
        Self {
            pairs: (0..calls).map(|call| (call, call)).collect(),
            kinds: loads
                .into_iter()
                .map(|call| (call, vec![Kind::Code]))
                .collect(),
        }
    }
}
