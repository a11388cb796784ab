//! The forms of output: every member of the JSON form is documented, SARIF is what the standard
//! asks for, text keeps to its width; which findings are hidden or suppressed.

mod script;

use std::collections::BTreeSet;

use cutape_analyzer::output::{Omitted, Style, json, sarif, text};
use cutape_analyzer::{Class, Finding, Suppressions};
use script::findings;
use script::ranks::findings_of_ranks;
use serde_json::Value;

/// What the JSON form has, with the types of its members.
const DOCUMENT: &str = include_str!("../../docs/findings.md");

/// A freed module's function, a refused question about freed memory, a leak at the end.
const SCRIPT: &str = "cuCtxCreate_v2 pctx:=0xc1 dev=0\n cuMemAlloc_v2 dptr:=0x10000 bytesize=4096\n\
    cuModuleLoadData module:=0x100 image@0x5000:PTX\n\
    cuModuleGetFunction hfunc:=0x200 hmod=0x100 name=\"k\"\n\
    cuLinkCreate_v2 stateOut:=0x600\n cuModuleUnload hmod=0x100\n\
    cuLaunchKernel f=0x200 -> 400\n cuMemFree_v2 dptr=0x10000\n\
    cuPointerGetAttribute attribute=2 ptr=0x10000 -> 1";

/// Memory that is freed while another process has it open.
const RANKS: &str = "p0 cuCtxCreate_v2 pctx:=0xc1 dev=0\np1 cuCtxCreate_v2 pctx:=0xc1 dev=0\n\
    p0 cuMemAlloc_v2 dptr:=0x10000 bytesize=4096\n\
    p0 cuIpcGetMemHandle pHandle:=[7*8] dptr=0x10000\n\
    p1 cuIpcOpenMemHandle_v2 pdptr:=0x30000 handle=7 Flags=1\n\
    p0 cuMemFree_v2 dptr=0x10000\np1 cuIpcCloseMemHandle dptr=0x30000";

/// Paths of all members, with `[]` for elements: `findings[].call.thread`.
fn members(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                let path = match path {
                    "" => name.clone(),
                    path => format!("{path}.{name}"),
                };
                found.insert(path.clone());
                // What is hidden is counted by class.
                if path != "omitted.hidden" {
                    members(value, &path, found);
                }
            }
        }
        Value::Array(list) => {
            for value in list {
                members(value, &format!("{path}[]"), found);
            }
        }
        _ => {}
    }
}

/// The members in the tables of the document: `| \`path\` | type | meaning |`.
fn documented() -> BTreeSet<(String, String)> {
    let rows = DOCUMENT.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| {
        let (path, rest) = row.split_once("` | ").expect("a path in backticks");
        let kind = rest.split(" | ").next().expect("a type");
        (path.to_owned(), kind.to_owned())
    })
    .collect()
}

fn fits(value: &Value, kind: &str) -> bool {
    kind.split(" or ").any(|kind| match kind {
        "string" => value.is_string(),
        "number" => value.is_u64() || value.is_i64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        other => panic!("no such type: {other}"),
    })
}

/// The values at a path.
fn at<'v>(value: &'v Value, path: &str) -> Vec<&'v Value> {
    let mut values = vec![value];
    for step in path.split('.') {
        let name = step.trim_end_matches("[]");
        let is_list = step.ends_with("[]");
        values = values
            .into_iter()
            .filter_map(|value| value.get(name))
            .collect();
        if is_list {
            values = values
                .into_iter()
                .flat_map(|value| value.as_array().into_iter().flatten())
                .collect();
        }
    }
    values
}

#[test]
fn every_member_of_json_is_documented_and_has_its_type() {
    let mut found = findings(SCRIPT);
    found.extend(findings_of_ranks(RANKS));
    let value = json(&found, &Omitted::default());
    assert_eq!(value["version"], 1);
    let mut found = BTreeSet::new();
    members(&value, "", &mut found);
    // Objects and related calls have the members of the call.
    let same = |path: String| match path.strip_prefix("findings[].related[].") {
        Some("what") | None => path.replace("objects[].process.", "call.process."),
        Some(member) => format!("findings[].call.{member}"),
    };
    let present: BTreeSet<String> = found.into_iter().map(same).collect();
    let documented = documented();
    let paths: BTreeSet<String> = documented.iter().map(|row| row.0.clone()).collect();
    let undocumented: Vec<_> = present.difference(&paths).collect();
    assert!(
        undocumented.is_empty(),
        "not in docs/findings.md: {undocumented:?}"
    );
    for (path, kind) in &documented {
        // Only traces with call stacks have frames.
        if !path.contains("frames[]") {
            assert!(present.contains(path), "docs/findings.md has {path}");
        }
        for value in at(&value, path) {
            assert!(fits(value, kind), "{path} is {value}, not {kind}");
        }
    }
}

/// A text of a message, as SARIF 2.1.0 wants it (3.11).
fn is_message(value: &Value) -> bool {
    value["text"].as_str().is_some_and(|text| !text.is_empty())
}

/// A URI reference without characters that RFC 3986 excludes.
fn is_uri(value: &Value) -> bool {
    let is_permitted = |c: char| c.is_ascii_alphanumeric() || "/.-_~%:".contains(c);
    value
        .as_str()
        .is_some_and(|uri| !uri.is_empty() && uri.chars().all(is_permitted))
}

fn check_location(location: &Value) {
    if let Some(physical) = location.get("physicalLocation") {
        assert!(is_uri(&physical["artifactLocation"]["uri"]), "{physical}");
        if let Some(region) = physical.get("region") {
            assert!(region["startLine"].as_u64().is_some_and(|line| line >= 1));
        }
    }
    for logical in location["logicalLocations"]
        .as_array()
        .into_iter()
        .flatten()
    {
        assert!(logical["fullyQualifiedName"].is_string(), "{logical}");
    }
    if let Some(message) = location.get("message") {
        assert!(is_message(message), "{message}");
    }
}

#[test]
fn sarif_is_what_the_standard_asks_for() {
    let mut found = findings(SCRIPT);
    found.extend(findings_of_ranks(RANKS));
    // Names with characters that a URI cannot have.
    let log = sarif(&found, "/home/a b/ä.cutape", "/home");
    assert_eq!(log["version"], "2.1.0");
    assert!(
        log["$schema"]
            .as_str()
            .unwrap()
            .ends_with("sarif-2.1.0.json")
    );
    let runs = log["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 1);
    let driver = &runs[0]["tool"]["driver"];
    assert_eq!(driver["name"], "cutape");
    let rules = driver["rules"].as_array().unwrap();
    let mut ids = BTreeSet::new();
    for rule in rules {
        assert!(
            ids.insert(rule["id"].as_str().unwrap()),
            "ids are unique (3.19.23)"
        );
        assert!(is_message(&rule["shortDescription"]) && is_message(&rule["help"]));
        let level = rule["defaultConfiguration"]["level"].as_str().unwrap();
        assert!(["none", "note", "warning", "error"].contains(&level));
    }
    let results = runs[0]["results"].as_array().unwrap();
    assert_eq!(results.len(), found.len());
    for result in results {
        let index = result["ruleIndex"].as_u64().unwrap() as usize;
        assert_eq!(rules[index]["id"], result["ruleId"]);
        let level = result["level"].as_str().unwrap();
        assert!(["none", "note", "warning", "error"].contains(&level));
        assert!(is_message(&result["message"]));
        let locations = result["locations"].as_array().unwrap();
        assert!(!locations.is_empty());
        locations.iter().for_each(check_location);
        for flow in result["codeFlows"].as_array().into_iter().flatten() {
            let flows = flow["threadFlows"].as_array().unwrap();
            assert!(!flows.is_empty(), "at least one (3.36.3)");
            for flow in flows {
                let steps = flow["locations"].as_array().unwrap();
                assert!(!steps.is_empty(), "at least one (3.37.6)");
                steps
                    .iter()
                    .for_each(|step| check_location(&step["location"]));
            }
        }
    }
    found.clear();
    assert_eq!(
        sarif(&found, "t", "/")["runs"][0]["results"],
        serde_json::json!([])
    );
}

#[test]
fn text_keeps_to_its_width() {
    for width in [60, 80, 200] {
        let style = Style {
            width,
            ..Style::PLAIN
        };
        for finding in findings(SCRIPT) {
            let text = text(&finding, &style);
            let too_long = |line: &&str| {
                // A word that is longer than the line stands alone; histories are one line.
                let is_history = ["created:", "ended:", "part of:"]
                    .iter()
                    .any(|mark| line.contains(mark));
                let words = line.split_whitespace();
                let longest = words.map(|word| word.chars().count()).max().unwrap_or(0);
                line.chars().count() > width && longest + 12 < width && !is_history
            };
            let first = text.lines().skip(1).find(too_long);
            assert_eq!(first, None, "{width}");
        }
    }
}

#[test]
fn refused_questions_are_probes() {
    let found = findings(SCRIPT);
    let classes: Vec<_> = found
        .iter()
        .map(|finding| (finding.rule, finding.class))
        .collect();
    let of = |rule: &str| {
        classes
            .iter()
            .find(|entry| entry.0 == rule)
            .map(|entry| entry.1)
    };
    assert_eq!(
        of("module-function-after-unload"),
        Some(Class::Misuse),
        "{classes:?}"
    );
    assert_eq!(
        of("memory-use-after-free-operand"),
        Some(Class::Probe),
        "{classes:?}"
    );
    // The same address as an operand is a mistake.
    let found = findings(&SCRIPT.replace(
        "cuPointerGetAttribute attribute=2 ptr=0x10000",
        "cuMemsetD8_v2 dstDevice=0x10000 N=16",
    ));
    let class = |finding: &Finding| finding.class;
    assert!(found.iter().map(class).all(|class| class == Class::Misuse));
}

#[test]
fn suppressions_name_what_a_finding_is_about() {
    let found = findings(SCRIPT);
    let unloaded = found
        .iter()
        .find(|finding| finding.rule == "module-function-after-unload")
        .expect("a finding about the function");
    for (line, matches) in [
        ("*", true),
        ("module-*", true),
        ("module-* cuLaunch*", true),
        ("module-* cuMem*", false),
        ("* kernel:k", true),
        ("* kernel:other", false),
        ("* module:module?1*", true),
        ("* library:*", false),
        (
            "* cuLaunchKernel kernel:k result:CUDA_ERROR_INVALID_HANDLE",
            true,
        ),
        ("* cuLaunchKernel kernel:k result:CUDA_SUCCESS", false),
        ("* frame:0x*", true),
        ("* frame:main", false),
        ("* class:probe", false),
        ("* class:misuse # all mistakes", true),
    ] {
        let suppressions = Suppressions::parse(line).unwrap();
        assert_eq!(suppressions.matches(unloaded), matches, "{line}");
    }
}
