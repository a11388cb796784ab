//! The first call that wrote a number such as NaN, or that changed some bytes: the question of
//! `cutape first`.

use std::collections::BTreeSet;

use cutape_driver::dirty::{self, Bits, NEVER};
use cutape_format::Trace;
use cutape_render::Element;
use cutape_replay::{
    Change, Hit, Observation, Observed, Search, WatchedRange, WriteSet, Writer, Writes,
};
use serde::Serialize;

use crate::calls::{CallFacts, facts};
use crate::chain::divergence;
use crate::exact::{add_part, exact_observation, set_exact};
use crate::target::Bytes;

/// The types that are looked for, in the order of [`dirty::TYPES`].
const TYPES: [&str; 4] = ["f16", "bf16", "f32", "f64"];
/// Words in the names of kernels that say which type they write.
const WORDS: [&[&str]; 4] = [
    &["half", "__half", "__half2", "Half", "f16", "fp16", "hgemm"],
    &[
        "__nv_bfloat16",
        "nv_bfloat16",
        "BFloat16",
        "bfloat16",
        "bf16",
    ],
    &["float", "float2", "float4", "f32", "fp32", "sgemm"],
    &["double", "f64", "fp64", "dgemm"],
];
/// Hits of each type that are kept: those whose kernel says another type are left out.
const KEPT: usize = 32;

/// What is looked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wanted {
    /// Not a number.
    Nan,
    /// Infinity of either sign.
    Infinity,
    /// A number with a greater absolute value, infinity included.
    Above(f64),
    /// Another content of these bytes.
    Changed(Bytes),
    /// All that this call writes to device memory.
    WrittenBy(u64),
}

/// What is asked.
#[derive(Clone, Debug)]
pub struct Sought {
    /// What is looked for.
    pub wanted: Wanted,
    /// The type of the numbers; `None`: any of f16, bf16, f32 and f64.
    pub element: Option<&'static Element>,
    /// Where; `None`: in all device memory.
    pub within: Option<Bytes>,
    /// What earlier calls write is left out.
    pub from: u64,
    /// How many calls are listed.
    pub most: usize,
    /// Of changed pages, so many bytes are compared to find the bytes that have changed.
    pub budget: u64,
}

/// A call that wrote what is looked for.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// The numbers; `None` for changed bytes.
    pub hit: Option<FoundNumbers>,
    /// The change; `None` for numbers.
    pub change: Option<Change>,
    /// Who wrote: the call, a node of its graph, or CPU code before it.
    pub by: Writer,
    /// Index of the call.
    pub call: u64,
    /// The first call that may have written it instead; see [`Hit::since`].
    pub since: u64,
    /// The call.
    pub by_call: CallFacts,
    /// The recorded address of the first number, or of the bytes.
    pub address: u64,
    /// Where that is, e.g. `memory#3+0x40`.
    pub label: Option<String>,
}

/// Numbers that were written.
#[derive(Clone, Debug, Serialize)]
pub struct FoundNumbers {
    /// Their type.
    #[serde(rename = "type")]
    pub element: &'static str,
    /// The user or the name of the kernel says so.
    pub is_certain: bool,
    /// Bits of the first one.
    pub value: u64,
    /// How many are in its page.
    pub count: u64,
    /// In how many pages such numbers are new.
    pub pages: u64,
}

/// The answer.
#[derive(Clone, Debug, Serialize)]
pub struct FirstAnswer {
    /// In the order of calls, of certain type first.
    pub findings: Vec<Finding>,
    /// What could not be looked at.
    pub not_looked_at: Vec<String>,
}

impl Sought {
    /// What the replay looks for.
    ///
    /// # Errors
    /// The type has no such numbers.
    fn observation(&self) -> Result<Observation, String> {
        if let Wanted::Changed(bytes) = self.wanted {
            return Ok(Observation {
                watched: vec![WatchedRange {
                    address: bytes.address,
                    length: bytes.length,
                    until: None,
                }],
                most_changes: self.most,
                first_changes: Some(self.from),
                ..Observation::default()
            });
        }
        let within = self
            .within
            .map(|bytes| (bytes.address, bytes.address.saturating_add(bytes.length)));
        if let Wanted::WrittenBy(call) = self.wanted {
            let writes = Writes {
                listed: vec![call],
                ..Writes::default()
            };
            return Ok(Observation {
                search: Some(Search {
                    ranges: [NEVER; 4],
                    within: within.into_iter().collect(),
                    from: call,
                    writes: Some(writes),
                    ..Search::default()
                }),
                until: Some(call.saturating_add(1)),
                ..Observation::default()
            });
        }
        let chosen = self.element.map(|element| element.name);
        if let Some(name) = chosen.filter(|name| !TYPES.contains(name)) {
            return Err(format!(
                "{name} has no such numbers; one of {}",
                TYPES.join(", ")
            ));
        }
        let range = |(name, kind): (&&str, (u32, u32))| match chosen {
            Some(chosen) if chosen != *name => NEVER,
            _ => bits(self.wanted, name, kind),
        };
        let mut ranges = TYPES.iter().zip(dirty::TYPES).map(range);
        Ok(Observation {
            search: Some(Search {
                ranges: std::array::from_fn(|_| ranges.next().unwrap_or(NEVER)),
                within: within.into_iter().collect(),
                from: self.from,
                most: if chosen.is_some() {
                    self.most
                } else {
                    KEPT.max(self.most)
                },
                writes: None,
            }),
            ..Observation::default()
        })
    }
}

/// The bits that are hits of a type.
fn bits(wanted: Wanted, name: &str, kind: (u32, u32)) -> Bits {
    let infinite = dirty::infinite(kind);
    match wanted {
        Wanted::Nan => dirty::nan(kind),
        Wanted::Infinity => infinite,
        // The bits of absolute values are ordered as the values.
        Wanted::Above(limit) => {
            let limit = Element::named(name).and_then(|element| element.bits(limit));
            limit.map_or(NEVER, |limit| (limit + 1, infinite.1))
        }
        Wanted::Changed(_) | Wanted::WrittenBy(_) => NEVER,
    }
}

/// The first calls; `observe` replays the trace with what it is given: once, and again for the bytes
/// in pages that have changed.
///
/// # Errors
/// Those of the replay; `refused` makes one of a type that has no such numbers.
pub fn first<E>(
    trace: &Trace,
    sought: &Sought,
    refused: impl FnOnce(String) -> E,
    observe: &mut dyn FnMut(Observation) -> Result<Observed, E>,
) -> Result<FirstAnswer, E> {
    let observed = observe(sought.observation().map_err(refused)?)?;
    let mut not_looked_at = observed.not_watched;
    not_looked_at.extend(divergence(&observed.report));
    not_looked_at.extend(
        observed
            .write_sets
            .iter()
            .flat_map(|set| set.left_out.clone()),
    );
    let watched = observed.watched.into_iter().flat_map(|seen| {
        let address = seen.range.address;
        seen.last.into_iter().map(move |change| (address, change))
    });
    let mut changes: Vec<(u64, Change)> = watched
        .chain(observed.write_sets.iter().flat_map(changes_of))
        .collect();
    let listed: Vec<(u64, &Change)> = changes.iter().map(|(at, change)| (*at, change)).collect();
    if let Some(asked) = exact_observation(&listed, sought.budget) {
        let seen = observe(asked)?;
        not_looked_at.extend(seen.not_watched.iter().cloned());
        for (address, change) in &mut changes {
            set_exact(*address, change, &seen);
        }
    }
    let calls = observed.hits.iter().map(|hit| hit.call);
    let calls: BTreeSet<u64> = calls
        .chain(changes.iter().map(|(_, change)| change.call))
        .collect();
    let of_calls = facts(trace, calls);
    let mut findings: Vec<Finding> = observed
        .hits
        .into_iter()
        .filter_map(|hit| numbers(hit, sought, &mut |call| of_calls.of(call)))
        .collect();
    findings.sort_by_key(|finding| !finding.hit.as_ref().is_some_and(|hit| hit.is_certain));
    findings.extend(changes.into_iter().map(|(address, change)| Finding {
        hit: None,
        by: change.by.clone(),
        call: change.call,
        since: change.since,
        by_call: of_calls.of(change.call),
        address,
        label: None,
        change: Some(change),
    }));
    findings.truncate(sought.most);
    let places = findings
        .iter()
        .map(|finding| (Some(finding.call + 1), finding.address));
    let labels = of_calls.label(trace, places.collect());
    for finding in &mut findings {
        let place = (Some(finding.call + 1), finding.address);
        finding.label = labels.get(&place).cloned();
    }
    not_looked_at.sort();
    not_looked_at.dedup();
    Ok(FirstAnswer {
        findings,
        not_looked_at,
    })
}

/// What a write has changed, by memory: its recorded address, and the pages in it.
fn changes_of(set: &WriteSet) -> Vec<(u64, Change)> {
    let mut changes: Vec<(u64, Change)> = Vec::new();
    for page in &set.pages {
        let memory = page.address - page.offset;
        let is_last = changes
            .last()
            .is_some_and(|(address, _)| *address == memory);
        if !is_last {
            let change = Change {
                call: set.call,
                since: set.call,
                by: set.by.clone(),
                in_pages: true,
                ..Change::default()
            };
            changes.push((memory, change));
        }
        if let Some((_, change)) = changes.last_mut() {
            add_part(&mut change.parts, (page.offset, page.length));
        }
    }
    changes
}

/// A finding from a hit; `None` if its kernel writes numbers of another type.
fn numbers(
    hit: Hit,
    sought: &Sought,
    of_call: &mut dyn FnMut(u64) -> CallFacts,
) -> Option<Finding> {
    let by_call = of_call(hit.call);
    let kernel = match &hit.by {
        Writer::Node(_, what) => Some(cutape_analyzer::demangle::demangle(what).to_string()),
        _ => by_call.kernel.clone(),
    };
    let named = kernel.as_deref().and_then(type_in);
    let is_given = sought.element.is_some();
    if !is_given && named.is_some_and(|named| named != hit.kind) {
        return None;
    }
    Some(Finding {
        hit: Some(FoundNumbers {
            element: TYPES.get(hit.kind)?,
            is_certain: is_given || named.is_some(),
            value: hit.value,
            count: hit.count,
            pages: hit.pages,
        }),
        change: None,
        by: hit.by,
        call: hit.call,
        since: hit.since,
        by_call,
        address: hit.address,
        label: None,
    })
}

/// The one type of numbers that the name of a kernel has, as a position in [`TYPES`].
fn type_in(kernel: &str) -> Option<usize> {
    let is_apart = |letter: char| !letter.is_ascii_alphanumeric() && letter != '_';
    // Words of names that are not C++, such as `gemm_bf16_128x64`.
    let words = |separator: fn(char) -> bool| -> BTreeSet<usize> {
        let words = kernel.split(separator);
        let kinds =
            words.filter_map(|word| WORDS.iter().position(|of_type| of_type.contains(&word)));
        kinds.collect()
    };
    let mut found = words(|letter| !letter.is_ascii_alphanumeric() && letter != '_');
    if found.is_empty() && !kernel.contains(is_apart) {
        found = words(|letter| letter == '_');
    }
    match found.len() {
        1 => found.first().copied(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_kernels_tell_types() {
        for (kernel, expected) in [
            ("scale(float*, int)", Some(2)),
            (
                "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<c10::Half>>(int)",
                Some(0),
            ),
            ("cast(float const*, __half*)", None),
            ("gemm_bf16_128x64", Some(1)),
            ("ampere_sgemm_32x32_sliced1x4_nn", Some(2)),
            ("loop_add_fusion", None),
            ("floating(int)", None),
        ] {
            assert_eq!(type_in(kernel), expected, "{kernel}");
        }
    }

    #[test]
    fn numbers_are_sought_by_their_bits() {
        let sought = |wanted, name: Option<&str>| Sought {
            wanted,
            element: name.and_then(Element::named),
            within: None,
            from: 3,
            most: 2,
            budget: 0,
        };
        let ranges = |sought: Sought| sought.observation().unwrap().search.unwrap().ranges;
        let all = ranges(sought(Wanted::Nan, None));
        assert!(all.iter().all(|(low, high)| low <= high));
        let one = ranges(sought(Wanted::Infinity, Some("f32")));
        assert_eq!(one, [NEVER, NEVER, (0x7f80_0000, 0x7f80_0000), NEVER]);
        let above = ranges(sought(Wanted::Above(1.0), Some("f32")));
        assert_eq!(above[2], (0x3f80_0001, 0x7f80_0000));
        let refused = sought(Wanted::Nan, Some("i32")).observation().unwrap_err();
        assert_eq!(
            refused,
            "i32 has no such numbers; one of f16, bf16, f32, f64"
        );
    }
}
