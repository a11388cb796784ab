//! Sequences of which a pause of the recording has left calls out: nothing is found that the whole
//! sequence does not show, and what does not depend on the pause is found.

use std::collections::BTreeSet;

use cutape_registry::rules::{ERRORS_ASYNC_MISATTRIBUTED, ERRORS_DEPRECATED_API, MEMORY_LEAK};

use crate::script::rules;
use crate::tables::ALL;

/// The sequence as a recorder that is paused from line `from` on, up to line `until`, writes it.
fn paused(script: &str, from: usize, until: usize) -> String {
    let mut kept = Vec::new();
    let (mut left_out, mut all, mut captures) = (0, 0, 0);
    for (at, line) in script.lines().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let name = words.iter().find(|word| word.starts_with("cu"));
        let function = name.and_then(|name| cutape_registry::function(name));
        let succeeds = words.iter().all(|word| *word != "->");
        captures += i32::from(line.contains("BeginCapture"));
        let is_call = function.is_some() && words.first() != Some(&"loop");
        let is_left_out = (from..until).contains(&at)
            && captures == 0
            && succeeds
            && is_call
            && !line.contains("> cu")
            && function.is_some_and(|function| function.changes_no_state());
        captures -= i32::from(line.contains("EndCapture"));
        if is_left_out {
            (left_out, all) = (left_out + 1, all + 1);
        } else if is_call && (left_out > 0 || (from..until).contains(&at)) {
            let (call, result) = line.split_once("->").unwrap_or((line, ""));
            let result = if result.is_empty() {
                String::new()
            } else {
                format!(" ->{result}")
            };
            kept.push(format!("{call} gap={left_out}{result}"));
            left_out = 0;
        } else {
            kept.push(line.to_owned());
        }
    }
    if all > 0 {
        kept.push(format!("meta left-out.calls {all}"));
        kept.push("meta left-out.pauses 1".to_owned());
    }
    kept.join("\n")
}

fn lines(script: &str) -> usize {
    script.lines().count()
}

/// Findings that a part of a correct sequence may get as well as the whole.
fn counts(rule: &str) -> bool {
    ![ERRORS_DEPRECATED_API, ERRORS_ASYNC_MISATTRIBUTED].contains(&rule)
}

#[test]
fn correct_programs_stay_silent() {
    let mut wrong = Vec::new();
    for (rule, start, _, controls) in ALL.iter().copied().flatten() {
        for control in *controls {
            let script = format!("{start}\n{control}");
            let whole: BTreeSet<_> = rules(&script).into_iter().collect();
            let (first, end) = (lines(start), lines(&script));
            for (from, until) in [(0, end), (first, end - 1)] {
                let part = paused(&script, from, until);
                let mut found = rules(&part);
                found.retain(|rule| counts(rule) && !whole.contains(rule));
                if !found.is_empty() {
                    wrong.push(format!("{rule}: {found:?} in\n{part}"));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n\n")
    );
}

#[test]
fn misuse_after_a_pause_is_found() {
    let (mut lost, mut found) = (BTreeSet::new(), 0);
    for (rule, start, violation, _) in ALL.iter().copied().flatten() {
        let script = format!("{start}\n{violation}");
        // Only the set-up is left out.
        let part = paused(&script, 0, lines(start));
        match rules(&part).contains(rule) {
            true => found += 1,
            false => drop(lost.insert(*rule)),
        }
    }
    let lost: Vec<_> = lost.into_iter().collect();
    // Whether memory from before the pause was used in it is not known.
    assert_eq!(lost, [MEMORY_LEAK], "{found} found");
}
