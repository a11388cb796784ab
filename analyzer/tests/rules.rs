//! For every rule one sequence of calls that breaks it and its nearest correct relatives, which
//! stay silent.

mod script;
mod tables;

use script::{findings, rules};
use tables::ALL;
use tables::performance;

#[test]
fn every_rule_finds_its_violation_and_nothing_else() {
    let mut wrong = Vec::new();
    for (rule, start, violation, controls) in ALL.iter().copied().flatten() {
        let found = rules(&format!("{start}\n{violation}"));
        if found != [*rule] {
            wrong.push(format!("{rule}: violation found {found:?}\n{violation}"));
        }
        for control in *controls {
            let found = findings(&format!("{start}\n{control}"));
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
fn every_decidable_rule_has_a_row() {
    let tested = ALL.iter().copied().flatten().map(|row| row.0);
    let tested: Vec<&str> = tested
        .chain(performance::rows().iter().map(|row| row.rule))
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
