//! `--replace-kernel`: other kernels are launched.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::edited::{Edited, Known};
use super::job::{Applied, WhatIf};
use crate::api::result_name;
use crate::calls::steps::Step;

pub(super) fn apply(
    edited: &mut Edited,
    known: Known<'_, '_>,
    job: &WhatIf,
) -> Result<Applied, String> {
    let api = &known.player.api;
    // The launches of each kernel, which is loaded once in each context.
    let mut places: BTreeMap<(u64, *const u8, &str), Vec<usize>> = BTreeMap::new();
    for (at, step) in edited.steps.iter().enumerate() {
        if let Step::Call(issued) = step
            && let Some(found) = job.replacements.get(&issued.index)
        {
            let key = (
                issued.context,
                Arc::as_ptr(&found.image).cast(),
                &*found.name,
            );
            places.entry(key).or_default().push(at);
        }
    }
    let before = api.current_context().unwrap_or(0);
    let mut calls = 0;
    for ((context, ..), places) in places {
        let launches: Vec<Step> = places
            .iter()
            .filter_map(|&at| edited.steps.get(at).cloned())
            .collect();
        let Some(Step::Call(first)) = launches.first() else {
            continue;
        };
        let Some(replacement) = job.replacements.get(&first.index) else {
            continue;
        };
        let failed = |code| format!("cuCtxSetCurrent returned {}", result_name(code));
        if context != 0 {
            api.set_current(context).map_err(failed)?;
        }
        let mut replaced = replacement.load(known.player, &launches)?;
        edited.conditions.extend(replaced.note.take());
        calls += places.len() as u64;
        for (at, step) in places.into_iter().zip(replaced.steps.drain(..)) {
            if let Some(place) = edited.steps.get_mut(at) {
                *place = step;
            }
        }
        edited.made.kernels.push(replaced);
    }
    api.set_current(before)
        .map_err(|code| format!("cuCtxSetCurrent returned {}", result_name(code)))?;
    if calls == 0 {
        return Err("none of the launches is among the repeated calls".to_owned());
    }
    Ok(Applied {
        edit: "replace-kernel".to_owned(),
        calls,
        what: format!("{calls} launches of another kernel"),
    })
}
