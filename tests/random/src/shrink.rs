//! Makes a failing program smaller: leaves out operations as long as it still fails.

use crate::order::Checker;
use crate::program::{Operation, Program};

/// The smallest program found that still fails. `fails` gets correct programs only.
pub fn shrink(program: &Program, mut fails: impl FnMut(&Program) -> bool) -> Program {
    let mut best = program.clone();
    let mut size = best.operations.len().div_ceil(2);
    while size > 0 {
        let mut start = 0;
        let mut has_shrunk = false;
        while start < best.operations.len() {
            let end = (start + size).min(best.operations.len());
            let rest = [&best.operations[..start], &best.operations[end..]].concat();
            let candidate = correct_part(&rest);
            if candidate.operations.len() < best.operations.len() && fails(&candidate) {
                best = candidate;
                has_shrunk = true;
            } else {
                start += size;
            }
        }
        if !has_shrunk || size > 1 {
            size /= 2;
        }
    }
    best
}

/// The operations without those that would make the program wrong.
pub(crate) fn correct_part(operations: &[Operation]) -> Program {
    let mut checker = Checker::default();
    let mut kept = Program::default();
    for operation in operations {
        let mut next = checker.clone();
        if next.apply(operation).is_ok() {
            checker = next;
            kept.operations.push(operation.clone());
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{Size, generate};
    use crate::order::expected;
    use crate::program::Action;

    #[test]
    fn what_is_left_is_correct_and_still_fails() {
        let is_launch = |operation: &Operation| matches!(operation.action, Action::Launch { .. });
        let fails = |program: &Program| program.operations.iter().any(is_launch);
        let mut programs = (0..).map(|seed| generate(seed, Size::of_seed(seed, 1)));
        let program = programs
            .find(fails)
            .expect("a program that launches a graph");
        let small = shrink(&program, |candidate| {
            assert!(expected(candidate).is_ok());
            fails(candidate)
        });
        assert!(fails(&small));
        assert!(small.operations.len() < 12, "{small:#?}");
    }
}
