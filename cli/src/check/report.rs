//! Findings as text, JSON, SARIF or JUnit.

use cutape_analyzer::Severity;
use cutape_analyzer::output::{self as analyzer, Style};
use serde_json::{Value, json};

use super::filter::FindingFilter;
use cutape_terminal::failure::Failure;
use cutape_terminal::input::RECORDING_IS_COMPLETE;

/// The value of `--format`.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// For people.
    Text,
    /// For programs; also the format of --baseline.
    Json,
    /// For code scanning services.
    Sarif,
    /// For CI servers.
    Junit,
}

/// The end of the output: for text the summary, otherwise everything.
pub(super) fn trailer(
    format: Format,
    name: &str,
    filter: &FindingFilter,
) -> Result<String, Failure> {
    let findings = &filter.list.findings;
    Ok(match format {
        Format::Text => summary(name, filter),
        Format::Json => {
            let mut report = analyzer::json(findings, &filter.list.omitted);
            filter.state.add_to(&mut report);
            format!("{report:#}")
        }
        Format::Sarif => format!("{:#}", sarif(name, filter)),
        Format::Junit => junit(name, filter)?,
    })
}

/// The content of a report file.
pub(super) fn whole(format: Format, name: &str, filter: &FindingFilter) -> Result<String, Failure> {
    let mut text = String::new();
    if format == Format::Text {
        for finding in &filter.list.findings {
            text += &analyzer::text(finding, &Style::PLAIN);
            text.push('\n');
        }
    }
    text += &trailer(format, name, filter)?;
    text.push('\n');
    Ok(text)
}

/// The current folder: in CI that of the repository.
fn folder() -> String {
    let folder = std::env::current_dir().unwrap_or_default();
    folder
        .display()
        .to_string()
        .trim_end_matches('/')
        .to_owned()
}

fn summary(name: &str, filter: &FindingFilter) -> String {
    let findings = &filter.list.findings;
    let kinds = [
        (Severity::Error, "error", "errors"),
        (Severity::Warning, "warning", "warnings"),
        (Severity::Advice, "advice", "advice"),
    ];
    let parts = kinds.into_iter().filter_map(|(severity, one, many)| {
        match findings.iter().filter(|f| f.severity == severity).count() {
            0 => None,
            1 => Some(format!("1 {one}")),
            count => Some(format!("{count} {many}")),
        }
    });
    let parts: Vec<String> = parts.collect();
    let found = match parts.is_empty() {
        true => "no findings".to_owned(),
        false => parts.join(", "),
    };
    match filter.list.omitted.text().as_str() {
        "" => format!("{name}: {found}"),
        omitted => format!("{name}: {found}; not shown: {omitted}"),
    }
}

fn sarif(name: &str, filter: &FindingFilter) -> Value {
    let mut report = analyzer::sarif(&filter.list.findings, name, &folder());
    if let Some(line) = filter.state.end_line() {
        report["runs"][0]["invocations"] = json!([{
            "executionSuccessful": filter.allows_incomplete,
            "toolExecutionNotifications": [{ "level": "error", "message": { "text": line } }],
        }]);
    }
    report
}

fn junit(name: &str, filter: &FindingFilter) -> Result<String, Failure> {
    use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
    let mut suite = TestSuite::new(name);
    if let Some(status) =
        cutape_terminal::input::junit_status(&filter.state, filter.allows_incomplete)
    {
        let mut test = TestCase::new(RECORDING_IS_COMPLETE, status);
        test.set_classname(name);
        suite.add_test_case(test);
    }
    let cases = analyzer::junit_cases(&filter.list.findings);
    if cases.is_empty() {
        suite.add_test_case(TestCase::new("no findings", TestCaseStatus::success()));
    }
    for case in cases {
        let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
        status
            .set_type(case.kind)
            .set_message(case.message)
            .set_description(case.description);
        let mut test = TestCase::new(case.name, status);
        test.set_classname(name);
        suite.add_test_case(test);
    }
    let mut report = Report::new("cutape check");
    report.add_test_suite(suite);
    report
        .to_string()
        .map_err(|error| Failure::unusable(format!("cannot write JUnit: {error}")))
}
