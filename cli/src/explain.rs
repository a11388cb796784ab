//! `cutape explain`: what a rule of `check` is about.

use std::process::ExitCode;

use cutape_analyzer::suggestion::unknown_rule;
use cutape_analyzer::{Confidence, Severity};
use cutape_registry::{RULES, Rule};

use cutape_terminal::failure::Failure;
use cutape_terminal::output;

/// What `explain` takes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The rule's id, as findings print it in brackets; without it, lists all rules.
    #[arg(value_name = "RULE")]
    rule: Option<String>,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let text = match &arguments.rule {
        None => list(),
        Some(id) => match cutape_registry::rule(id) {
            Some(rule) => explanation(rule, output::columns()),
            None => return Err(Failure::unusable(unknown_rule(id))),
        },
    };
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn list() -> String {
    let longest = RULES.iter().map(|rule| rule.id.len()).max().unwrap_or(0);
    let lines = RULES.iter().map(|rule| {
        let severity = match rule.undecidable {
            "" => Severity::from(rule.severity).word(),
            _ => "undecidable",
        };
        format!("{:longest$}  {severity}\n", rule.id)
    });
    lines.collect()
}

fn explanation(rule: &Rule, width: usize) -> String {
    let severity = Severity::from(rule.severity).word();
    let confidence = Confidence::from(rule.confidence).word();
    let heading = format!("{} ({severity}, {confidence})", rule.id);
    let mut text = output::wrapped(&heading, width).join("\n") + "\n\n";
    for (title, body) in [
        ("", rule.statement),
        ("What to do", rule.advice),
        (
            match cutape_registry::erratum(rule.id) {
                Some(_) => "Where it was published",
                None => "In the manual",
            },
            rule.manual,
        ),
        ("Observed", rule.observed),
        ("Not decidable from a trace", rule.undecidable),
        ("What this rule cannot see", rule.cannot_see),
    ] {
        if body.is_empty() {
            continue;
        }
        let body = match title {
            "" => body.to_owned(),
            title => format!("{title}: {body}"),
        };
        for line in output::wrapped(&body, width) {
            text += &line;
            text.push('\n');
        }
        text.push('\n');
    }
    if !rule.example.is_empty() {
        text += "A finding of this rule:\n\n";
        text += rule.example;
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_explained() {
        for rule in RULES {
            let text = explanation(rule, 60);
            assert!(text.starts_with(rule.id), "{}", rule.id);
            let statement = text
                .split("A finding of this rule")
                .next()
                .unwrap_or_default();
            for line in statement.lines() {
                assert!(line.chars().count() <= 60 || !line.contains(' '), "{line}");
            }
            assert!(list().contains(rule.id));
        }
    }
}
