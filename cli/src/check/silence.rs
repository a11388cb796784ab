//! `cutape check --explain-silence`: why a rule has no finding at a call.

use std::collections::HashMap;
use std::path::Path;
use std::process::ExitCode;

use cutape_analyzer::output::Style;
use cutape_analyzer::suggestion::unknown_rule;
use cutape_analyzer::{Analyzer, Finding, Silence};

use super::filter::{Choice, FindingFilter};
use cutape_symbols::Resolver;
use cutape_symbols::SymbolContext;
use cutape_terminal::failure::Failure;
use cutape_terminal::{input, output};

/// Prints the reason; `words` are the rule and the call.
pub(super) fn explain(
    path: Option<&Path>,
    words: &[String],
    choice: &Choice<'_>,
) -> Result<ExitCode, Failure> {
    let (Some(path), [rule, number]) = (path.filter(|path| !path.is_dir()), words) else {
        return Err(Failure::unusable(
            "--explain-silence RULE CALL needs a trace, not a folder or a program",
        ));
    };
    if cutape_registry::rule(rule).is_none() {
        return Err(Failure::unusable(unknown_rule(rule)));
    }
    let number: u64 = number.parse().map_err(|_| {
        Failure::unusable(format!(
            "`{number}` is no call; give its index, as in `cutape dump`"
        ))
    })?;
    let trace = input::open_for_walk(path)?;
    let resolver = Resolver::default();
    let context = SymbolContext::new(&trace, &resolver);
    let mut analyzer = Analyzer::new();
    analyzer.ask(rule, number);
    let mut filter = FindingFilter::new(choice, false, Style::PLAIN)?;
    let (mut asked, mut function) = (None, None);
    let is_asked = |finding: &Finding| {
        let call = finding.call.as_ref().map(|call| call.index);
        finding.rule == rule && call == Some(number)
    };
    let mut take = |found: Vec<Finding>, filter: &mut FindingFilter| {
        asked = asked
            .take()
            .or_else(|| found.iter().find(|f| is_asked(f)).cloned());
        filter.add(found);
    };
    trace.walk().run(|call| {
        take(analyzer.push(&context, call), &mut filter);
        if call.index == number {
            function = Some(call.signature.name.clone());
        }
        Ok::<_, Failure>(())
    })?;
    take(
        analyzer.finish(&context, trace.has_all_calls()),
        &mut filter,
    );
    filter.settle(analyzer.take_repeats());
    let Some(function) = function else {
        return Err(Failure::unusable(format!(
            "{} has no call {number}; `cutape dump` lists its calls",
            path.display()
        )));
    };
    let reason = match (asked, analyzer.answer()) {
        (Some(asked), _) if filter.list.findings.iter().any(is_asked) => {
            format!("it is not silent: {}", asked.title)
        }
        (Some(asked), _) => format!("{}: {}", asked.title.clone(), left_out(asked, choice)?),
        (None, Some(reason @ Silence::Deferred(_))) => {
            format!("{reason}, which a later call of the trace disproved")
        }
        (None, Some(reason)) => reason.to_string(),
        (None, None) => "cutape does not know this function".to_owned(),
    };
    let text = format!("{rule} at call {number} {function}: {reason}\n");
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Why a finding is not printed.
fn left_out(finding: Finding, choice: &Choice<'_>) -> Result<String, Failure> {
    let mut alone = FindingFilter::new(choice, false, Style::PLAIN)?;
    alone.add(vec![finding]);
    alone.settle(HashMap::new());
    Ok(match alone.list.omitted.text().as_str() {
        "" => Silence::Repeats.to_string(),
        why => format!("found, and not shown: {why}"),
    })
}
