//! Differences in words.

use crate::changes::{Objects, changes};
use crate::counterparts::Counterparts;
use crate::describe::{Described, Value};
use crate::differences::{Calls, Raw};
use crate::list::AllDescribed;
use crate::objects::NONE;
use crate::part::{Facet, Place};
use crate::report::{CallSite, Change, Difference, Kind};
use crate::sequence::Sequence;

/// The names of the traces.
const NAMES: [&str; 2] = ["A", "B"];
/// How many changes a title has.
const SHOWN_CHANGES: usize = 3;

struct Known<'s> {
    of_b: &'s Sequence,
    counterparts: &'s Counterparts,
}

impl Known<'_> {
    fn to_b(&self, a: u32) -> Option<u32> {
        let other = self.counterparts.objects.0.get(a as usize).copied();
        other.filter(|&other| other != NONE)
    }
}

impl Objects for Known<'_> {
    fn are_same(&self, a: u32, b: u32) -> bool {
        self.to_b(a) == Some(b)
    }

    fn counterpart(&self, a: u32) -> Option<String> {
        let facts = self.of_b.objects.get(self.to_b(a)? as usize)?;
        Some(facts.label())
    }
}

/// A difference with its texts.
pub(crate) fn difference(
    raw: &Raw,
    (a, b): (&Sequence, &Sequence),
    counterparts: &Counterparts,
    described: &AllDescribed,
) -> Difference {
    let nothing = Described::default();
    let [of_a, of_b] = described;
    let call = |side: usize, place: Place| {
        let table = if side == 0 { of_a } else { of_b };
        table.get(&place).unwrap_or(&nothing)
    };
    let mut found = Difference {
        kinds: raw.kinds.list(),
        sites: [None, None],
        count: raw.count,
        title: String::new(),
        changes: Vec::new(),
    };
    let mut put = |side: usize, place: Place| {
        if let Some(slot) = found.sites.get_mut(side) {
            *slot = Some(site(call(side, place), place.0));
        }
    };
    match raw.calls {
        Calls::Both(place_a, place_b) => {
            put(0, place_a);
            put(1, place_b);
            let known = Known {
                of_b: b,
                counterparts,
            };
            let (call_a, call_b) = (call(0, place_a), call(1, place_b));
            found.changes = changes(call_a, call_b, &known);
            found.changes.retain(|change| {
                let is_machine = raw.kinds.contains(Kind::Machine);
                raw.kinds.contains(change.kind) || is_machine
            });
            let is_moved = raw.kinds.contains(Kind::Order);
            found.title = format!(
                "{}: {}{}",
                name(call_a),
                if is_moved {
                    "at another place of its thread; "
                } else {
                    ""
                },
                changes_text(&found.changes, raw.kinds.list())
            );
            found.title = found.title.trim_end_matches([' ', ';', ':']).to_owned();
        }
        Calls::Only(side, place) | Calls::Leak(side, place, _)
            if raw.count > 1 || raw.kinds.contains(Kind::Call) =>
        {
            put(side, place);
            let (name, side) = (name(call(side, place)), side_name(side));
            found.title = format!("{name}: in {side} only{}", rest_of_row(raw));
        }
        Calls::Only(side, place) => {
            put(side, place);
            let name = name(call(side, place));
            found.title = format!("{name}: in {} only", side_name(side));
        }
        Calls::Leak(side, place, object) => {
            put(side, place);
            let own = if side == 0 { a } else { b };
            let facts = own.objects.get(object as usize);
            let label = facts.map_or_else(String::new, |facts| facts.label());
            let (own_name, other) = (side_name(side), side_name(1 - side.min(1)));
            let name = name(call(side, place));
            found.title = match facts.is_some_and(|facts| facts.destroyed.is_some()) {
                true => format!("{name}: in {own_name} only; {other} leaks {label}"),
                false => format!("{name}: in {own_name} only, which leaks {label}"),
            };
        }
        Calls::Thread(side, thread) => {
            found.title = format!(
                "thread @{thread} of {} has no counterpart in {}: its {} calls are in {0} only",
                side_name(side),
                side_name(1 - side.min(1)),
                raw.count,
            );
            found.count = 1;
        }
        Calls::Order(order) => {
            put(0, order.first.0);
            put(1, order.first.1);
            let facts = a.objects.get(order.object as usize);
            let label = facts.map_or_else(String::new, |facts| facts.label());
            let (second_a, second_b) = (call(0, order.second.0), call(1, order.second.1));
            found.title = format!(
                "{}: threads reordered at {label}: before {} of thread @{} (call {} of A, {} of B) \
                 in A, after it in B",
                name(call(0, order.first.0)),
                name(second_a),
                order.second.0.0,
                second_a.index,
                second_b.index,
            );
        }
    }
    found
}

/// What else is in a row of calls of one trace.
fn rest_of_row(raw: &Raw) -> String {
    let more = match raw.count {
        1 => String::new(),
        2 => ", and the call after it".to_owned(),
        count => format!(", and the {} calls after it", count - 1),
    };
    match raw.leaks {
        0 => more,
        1 => more + ", which leak 1 object",
        leaks => format!("{more}, which leak {leaks} objects"),
    }
}

fn side_name(side: usize) -> &'static str {
    NAMES.get(side).copied().unwrap_or("B")
}

fn kernel(call: &Described) -> Option<String> {
    let item = call.items.iter().find(|item| item.facet == Facet::Kernel)?;
    match &item.value {
        Value::Text(name) => Some(name.clone()),
        _ => None,
    }
}

fn site(call: &Described, thread: u32) -> CallSite {
    CallSite {
        index: call.index,
        thread,
        function: call.function.clone(),
        kernel: kernel(call),
    }
}

/// `cuLaunchKernel saxpy`
fn name(call: &Described) -> String {
    match kernel(call) {
        Some(kernel) => format!("{} {kernel}", call.function),
        None => call.function.clone(),
    }
}

/// `block 256x1x1 → 128x1x1; dstDevice memory#1 → memory#2`
fn changes_text(changes: &[Change], kinds: Vec<Kind>) -> String {
    if changes.is_empty() {
        // Hashes differ, and the values that are shown do not.
        let words: Vec<&str> = kinds.iter().map(|kind| kind.meaning()).collect();
        return words.join(", ");
    }
    // What went wrong before how.
    let (results, others): (Vec<_>, Vec<_>) = changes
        .iter()
        .partition(|change| change.kind == Kind::Result);
    let ordered = results.into_iter().chain(others);
    let shown = ordered.take(SHOWN_CHANGES).map(change_text);
    let mut text = shown.collect::<Vec<_>>().join("; ");
    if changes.len() > SHOWN_CHANGES {
        text += &format!("; and {} more", changes.len() - SHOWN_CHANGES);
    }
    text
}

/// One change in a line.
pub(crate) fn change_text(change: &Change) -> String {
    let what = match change.kind {
        Kind::Result => "returned",
        _ => &change.what,
    };
    match &change.values {
        [Some(a), Some(b)] if change.kind == Kind::Code && a.starts_with("hash ") => {
            let _ = b;
            format!("{what} differs")
        }
        [Some(a), Some(b)] => format!("{what} {a} → {b}"),
        [Some(a), None] => format!("{what}: {a} in A only"),
        [None, Some(b)] => format!("{what}: {b} in B only"),
        [None, None] => format!("{what} differs"),
    }
}
