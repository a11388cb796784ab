//! Differences as a JUnit report: a failed case for each that is listed.

use std::path::Path;

use cutape_diff::{Difference, Report};
use quick_junit::{NonSuccessKind, Report as Junit, TestCase, TestCaseStatus, TestSuite};

use super::text;
use cutape_terminal::failure::Failure;

/// The whole output.
pub(super) fn junit(paths: [&Path; 2], report: &Report) -> Result<String, Failure> {
    let name = format!("{} and {}", paths[0].display(), paths[1].display());
    let mut suite = TestSuite::new(name.as_str());
    if !report.differs() {
        suite.add_test_case(TestCase::new("no differences", TestCaseStatus::success()));
    } else {
        for difference in &report.differences {
            let mut case = TestCase::new(case_name(difference), failed(difference));
            case.set_classname(name.as_str());
            suite.add_test_case(case);
        }
    }
    let mut junit = Junit::new("cutape diff");
    junit.add_test_suite(suite);
    junit
        .to_string()
        .map(|text| text + "\n")
        .map_err(|error| Failure::unusable(format!("cannot write JUnit: {error}")))
}

/// `shape call 12`
fn case_name(difference: &Difference) -> String {
    let kind = difference.kinds.first().map_or("", |kind| kind.key());
    match &difference.sites {
        [Some(a), _] => format!("{kind} call {} of A", a.index),
        [None, Some(b)] => format!("{kind} call {} of B", b.index),
        [None, None] => kind.to_owned(),
    }
}

fn failed(difference: &Difference) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
    let kinds: Vec<&str> = difference.kinds.iter().map(|kind| kind.key()).collect();
    let changes: Vec<String> = difference
        .changes
        .iter()
        .map(|change| {
            let [a, b] = &change.values;
            let value = |value: &Option<String>| value.as_deref().unwrap_or("none").to_owned();
            format!("{}: {} → {}", change.what, value(a), value(b))
        })
        .collect();
    status
        .set_type(kinds.join(" "))
        .set_message(text::title(difference))
        .set_description(changes.join("\n"));
    status
}
