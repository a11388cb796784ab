//! Findings about several processes.

use crate::class::is_exiting;
use crate::finding::{
    CallSite, Class, CodePlace, Confidence, Finding, FindingKey, ObjectHistory, RelatedCall,
    Severity,
};

/// A finding of a rule, with what the catalogue says.
pub(super) fn finding(
    rule: &'static str,
    title: String,
    message: String,
    call: CallSite,
    related: Vec<(&str, CallSite)>,
    objects: impl IntoIterator<Item = ObjectHistory>,
) -> Finding {
    let entry = cutape_registry::rule(rule);
    let objects: Vec<ObjectHistory> = objects.into_iter().collect();
    let place = CodePlace::of(&call.function, &call.frames, &call.caller);
    Finding {
        rule,
        key: FindingKey::new(rule, Some(&place), &objects),
        class: match is_exiting(&call.frames) {
            true => Class::Teardown,
            false => Class::Misuse,
        },
        repeats: 0,
        severity: entry.map_or(Severity::Error, |entry| entry.severity.into()),
        confidence: entry.map_or(Confidence::Certain, |entry| entry.confidence.into()),
        title,
        call: Some(call),
        message,
        related: related
            .into_iter()
            .map(|(what, call)| RelatedCall {
                what: what.to_owned(),
                call,
            })
            .collect(),
        objects,
        chain: Vec::new(),
        advice: entry.map_or("", |entry| entry.advice).to_owned(),
        manual: entry.map_or("", |entry| entry.manual).to_owned(),
    }
}

/// A label at the beginning of a sentence.
pub(super) fn sentence(label: &str) -> String {
    match label.strip_prefix("rank ") {
        Some(number) => format!("Rank {number}"),
        None => label.to_owned(),
    }
}

/// `4,096 bytes`.
pub(super) fn bytes(size: Option<u64>) -> String {
    let Some(size) = size else {
        return "of unknown size".to_owned();
    };
    let digits = size.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text + " bytes"
}
