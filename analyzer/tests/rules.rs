//! For every rule one sequence of calls that breaks it and its nearest correct relatives, which
//! stay silent.

mod gaps;
mod script;
mod tables;

use std::path::Path;

use cutape_analyzer::output::{Style, text};
use cutape_registry::rules::{ERRORS_ASYNC_MISATTRIBUTED, ERRORS_DEPRECATED_API};
use script::ranks::findings_of_ranks;
use script::{findings, rules};
use tables::ALL;
use tables::performance;
use tables::ranks::RANKS;

#[test]
fn every_rule_finds_its_violation_and_nothing_else() {
    let mut wrong = Vec::new();
    for (rule, start, violation, controls) in ALL.iter().copied().flatten() {
        let mut found = rules(&format!("{start}\n{violation}"));
        // Rules about deprecated functions need calls of them.
        found.retain(|found| found == rule || *found != ERRORS_DEPRECATED_API);
        if found != [*rule] {
            wrong.push(format!("{rule}: violation found {found:?}\n{violation}"));
        }
        for control in *controls {
            let mut found = findings(&format!("{start}\n{control}"));
            // Where work fails, a finding names it, whatever else there is.
            let beside = [ERRORS_DEPRECATED_API, ERRORS_ASYNC_MISATTRIBUTED];
            found.retain(|f| f.rule == *rule || !beside.contains(&f.rule));
            if !found.is_empty() {
                let said: Vec<_> = found
                    .iter()
                    .map(|f| format!("{}: {}", f.rule, f.message))
                    .collect();
                wrong.push(format!("{rule}: control found {said:?}\n{control}"));
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
fn what_processes_do_to_each_other_is_found_and_nothing_else() {
    for (rule, start, violation, controls) in RANKS {
        let found = findings_of_ranks(&format!("{start}\n{violation}"));
        let found: Vec<_> = found.iter().map(|finding| finding.rule).collect();
        assert_eq!(found, [*rule], "{violation}");
        for control in *controls {
            let found = findings_of_ranks(&format!("{start}\n{control}"));
            let said: Vec<_> = found.iter().map(|f| (f.rule, &f.message)).collect();
            assert!(said.is_empty(), "{rule}: {said:?}\n{control}");
        }
    }
}

#[test]
fn every_decidable_rule_has_a_row() {
    let tested = ALL.iter().copied().flatten().map(|row| row.0);
    let tested: Vec<&str> = tested
        .chain(performance::rows().iter().map(|row| row.rule))
        .chain(RANKS.iter().map(|row| row.0))
        .collect();
    for rule in cutape_registry::RULES {
        assert!(
            !rule.undecidable.is_empty() || tested.contains(&rule.id),
            "no test for {}",
            rule.id
        );
    }
    for id in tested {
        assert!(
            cutape_registry::rule(id).is_some(),
            "{id} is not in the catalogue"
        );
    }
}

#[test]
fn patterns_that_cost_time_are_counted() {
    for row in performance::rows() {
        let found = rules(&row.violation);
        assert_eq!(found, [row.rule]);
        for control in row.controls {
            let found = findings(&control);
            assert!(found.is_empty(), "{}: {found:?}", row.rule);
        }
    }
}

/// Findings as text, which `cargo xtask codegen` puts into the rules' pages and into `cutape
/// explain`. UPDATE_GOLDEN=1 writes them.
#[test]
fn examples_are_what_the_rules_print() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../registry/examples");
    let style = Style {
        width: 100,
        ..Style::PLAIN
    };
    let updates = std::env::var_os("UPDATE_GOLDEN").is_some();
    let loops = performance::rows();
    let mut scripts: Vec<(&str, String)> = ALL
        .iter()
        .copied()
        .flatten()
        .map(|(rule, start, violation, _)| (*rule, format!("{start}\n{violation}")))
        .collect();
    scripts.extend(loops.into_iter().map(|row| (row.rule, row.violation)));
    let scripts = scripts
        .into_iter()
        .map(|(rule, script)| (rule, findings(&script)));
    let ranks = RANKS.iter().map(|(rule, start, violation, _)| {
        let script = format!("{start}\n{violation}");
        (*rule, findings_of_ranks(&script))
    });
    let mut seen = std::collections::HashSet::new();
    for (rule, found) in scripts.chain(ranks) {
        if !seen.insert(rule) {
            continue;
        }
        let example = text(&found[0], &style);
        let path = folder.join(format!("{rule}.txt"));
        if updates {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, &example).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(
            example, kept,
            "{rule}: UPDATE_GOLDEN=1 cargo test -p cutape-analyzer --test rules examples, then \
             cargo xtask codegen"
        );
    }
}
