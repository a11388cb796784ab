//! Findings as SARIF 2.1.0, the exchange format of static analysis results.

use serde_json::{Value, json};

use crate::finding::{CallSite, Finding, Frame, RelatedCall, Severity, own_frame};

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Advice => "note",
        Severity::Warning => "warning",
        Severity::Error => "error",
    }
}

/// The base of relative URIs, by the name that code scanning services know.
const ROOT: &str = "%SRCROOT%";

/// A SARIF log with one run. `trace` is the trace's path: results point at calls in it. Sources
/// below `root`, an absolute path without a slash at its end, are relative to it.
pub fn sarif(findings: &[Finding], trace: &str, root: &str) -> Value {
    let mut ids: Vec<&str> = findings.iter().map(|finding| finding.rule).collect();
    ids.sort_unstable();
    ids.dedup();
    let rules: Vec<Value> = ids.iter().map(|id| rule(id)).collect();
    let results: Vec<Value> = findings
        .iter()
        .map(|finding| result(finding, &ids, trace, root))
        .collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "cutape",
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            } },
            "originalUriBaseIds": { ROOT: { "uri": format!("file://{}/", uri(root)) } },
            "results": results,
        }],
    })
}

fn rule(id: &str) -> Value {
    match cutape_registry::rule(id) {
        None => json!({ "id": id }),
        Some(rule) => json!({
            "id": id,
            "shortDescription": { "text": rule.statement },
            "help": { "text": format!("{} See {}.", rule.advice, rule.manual) },
            "defaultConfiguration": { "level": level(rule.severity.into()) },
            "properties": { "area": rule.area },
        }),
    }
}

fn result(finding: &Finding, ids: &[&str], trace: &str, root: &str) -> Value {
    let place = finding.call.as_ref().map_or_else(|| json!([]), logical);
    let file = finding.call.as_ref().map(|call| trace_of(call, trace));
    let file = file.unwrap_or_else(|| trace.to_owned());
    let steps: Vec<Value> = finding
        .chain
        .iter()
        .map(|step| json!({ "location": { "message": { "text": step } } }))
        .collect();
    let mut result = json!({
        "ruleId": finding.rule,
        "ruleIndex": ids.binary_search(&finding.rule).unwrap_or(0),
        "level": level(finding.severity),
        "message": { "text": format!("{}. {}", finding.title, finding.message) },
        "occurrenceCount": finding.repeats + 1,
        "partialFingerprints": { "cutape/v1": finding.key.text() },
        "locations": [{
            "physicalLocation": { "artifactLocation": artifact(&file, root) },
            "logicalLocations": place,
        }],
        "properties": {
            "confidence": finding.confidence,
            "call": finding.call,
            "related": finding.related,
            "objects": finding.objects,
        },
    });
    let frames = finding.call.as_ref().map_or(&[][..], |call| &call.frames);
    if let Some(frame) = own_frame(frames).filter(|frame| frame.line > 0)
        && let Some(locations) = result["locations"].as_array_mut()
    {
        locations.insert(0, location(frame, root));
    }
    if !frames.is_empty() {
        let frames: Vec<Value> = frames
            .iter()
            .map(|frame| json!({ "location": location(frame, root), "module": frame.module }))
            .collect();
        result["stacks"] = json!([{ "message": { "text": "call stack" }, "frames": frames }]);
    }
    if !finding.related.is_empty() {
        let related = finding.related.iter().enumerate();
        let related = related.map(|(id, related)| related_location(id, related, trace, root));
        result["relatedLocations"] = related.collect();
    }
    if !steps.is_empty() {
        result["codeFlows"] = json!([{ "threadFlows": [{ "locations": steps }] }]);
    }
    result
}

/// The trace that a call is in: `trace` is the folder if several are checked together.
fn trace_of(call: &CallSite, trace: &str) -> String {
    match &call.process {
        Some(process) => format!("{}/{}", trace.trim_end_matches('/'), process.trace),
        None => trace.to_owned(),
    }
}

fn logical(call: &CallSite) -> Value {
    json!([{
        "fullyQualifiedName": format!("{}: {}", call.position(), call.function),
        "kind": "function",
        "decoratedName": call.caller,
    }])
}

/// A call that a finding is also about: its source line, else its trace.
fn related_location(id: usize, related: &RelatedCall, trace: &str, root: &str) -> Value {
    let call = &related.call;
    let source = own_frame(&call.frames).filter(|frame| frame.line > 0);
    let mut place = match source {
        Some(frame) => location(frame, root),
        None => {
            let file = artifact(&trace_of(call, trace), root);
            json!({ "physicalLocation": { "artifactLocation": file } })
        }
    };
    place["id"] = json!(id);
    place["logicalLocations"] = logical(call);
    let text = format!("{}: {}: {}", related.what, call.position(), call.text);
    place["message"] = json!({ "text": text });
    place
}

/// The source of a frame.
fn location(frame: &Frame, root: &str) -> Value {
    let mut location = json!({
        "logicalLocations": [{ "fullyQualifiedName": frame.function, "kind": "function" }],
        "message": { "text": frame.in_full() },
    });
    if !frame.file.is_empty() {
        let mut physical = json!({ "artifactLocation": artifact(&frame.file, root) });
        if frame.line > 0 {
            physical["region"] = json!({ "startLine": frame.line });
        }
        location["physicalLocation"] = physical;
    }
    location
}

/// Where a file is: services show findings at files of the repository, which have relative URIs.
fn artifact(path: &str, root: &str) -> Value {
    let inside = path
        .strip_prefix(root)
        .and_then(|rest| rest.strip_prefix('/'));
    match inside {
        Some(path) => json!({ "uri": uri(path), "uriBaseId": ROOT }),
        None if path.starts_with('/') => json!({ "uri": format!("file://{}", uri(path)) }),
        None => json!({ "uri": uri(path), "uriBaseId": ROOT }),
    }
}

/// A path as a URI reference.
fn uri(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
