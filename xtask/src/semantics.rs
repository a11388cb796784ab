//! Reads `registry/semantics` and `registry/rules`, and joins them to the signatures.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use crate::Failure;
use crate::members::{ATTRIBUTES, Facts, SEMANTICS, STRUCTS};
use crate::roles::{self, Role};
use crate::signatures::{Function, Shape, Signatures, Types, without_per_thread};
use crate::{families, files};

/// Findings as text, by rule.
const EXAMPLES: &str = "registry/examples";
const KINDS: &str = "kinds.toml";
/// Enums that cuda.h has as macros which begin with that name.
pub(crate) const MACRO_ENUMS: [&str; 2] = ["CU_MEMHOSTALLOC", "CU_MEMHOSTREGISTER"];
const RULES: &str = "registry/rules";

/// How a function is recorded and replayed.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Class {
    Plain,
    Override,
    Opaque,
    Unreplayable,
}

impl Class {
    /// Whether a replay makes the calls.
    pub(crate) fn is_replayed(self) -> bool {
        matches!(self, Class::Plain | Class::Override)
    }
}

/// One table of a semantics file.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Entry {
    /// File and line, for messages.
    #[serde(skip)]
    place: String,
    class: Class,
    #[serde(rename = ".reason", default)]
    reason: String,
    #[serde(rename = ".deprecated", default)]
    deprecated: String,
    #[serde(rename = ".stream")]
    stream: Option<String>,
    #[serde(rename = ".waits")]
    waits: Option<String>,
    #[serde(rename = ".implicit_wait")]
    implicit_wait: Option<String>,
    #[serde(rename = ".family")]
    family: Option<String>,
    #[serde(rename = ".size")]
    size: Option<String>,
    #[serde(rename = ".flags", default)]
    flags: String,
    #[serde(flatten)]
    roles: BTreeMap<String, String>,
}

/// Everything that the registry states about one symbol.
#[derive(Debug)]
pub(crate) struct Meaning {
    pub(crate) class: Class,
    pub(crate) reason: String,
    /// What to use instead of a deprecated function, or empty.
    pub(crate) deprecated: String,
    /// One per parameter.
    pub(crate) roles: Vec<Role>,
    pub(crate) stream: Option<u8>,
    /// A Rust expression, e.g. `Waits::Stream(0)`.
    pub(crate) waits: String,
    /// A Rust expression, e.g. `ImplicitWait::Context`.
    pub(crate) implicit_wait: String,
    /// A Rust expression, e.g. `Family::Init`.
    pub(crate) family: String,
    /// A Rust expression, e.g. `Some(Length::Param(1))`.
    pub(crate) size: String,
    /// The name of an enum, or empty.
    pub(crate) flags: String,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    Advice,
    Warning,
    Error,
}

/// What the findings of a rule rest on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Confidence {
    #[default]
    Certain,
    Contents,
    Assumed,
}

/// A rule, as its file has it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    pub(crate) id: String,
    pub(crate) area: String,
    pub(crate) severity: Severity,
    #[serde(default)]
    pub(crate) confidence: Confidence,
    pub(crate) statement: String,
    pub(crate) manual: String,
    pub(crate) advice: String,
    pub(crate) observed: String,
    #[serde(default)]
    pub(crate) undecidable: String,
    #[serde(default)]
    pub(crate) cannot_see: String,
    /// A finding as text, which the analyzer's tests write; empty if there is none.
    #[serde(skip)]
    pub(crate) example: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFile {
    #[serde(default)]
    rule: Vec<Rule>,
}

/// A word of a file as it is written there, e.g. `override`.
pub(crate) fn word(value: impl std::fmt::Debug) -> String {
    format!("{value:?}").to_lowercase()
}

/// Reads all semantics files.
pub(crate) fn load(root: &Path) -> Result<BTreeMap<String, Entry>, Failure> {
    let mut entries = BTreeMap::new();
    let mut errors = Vec::new();
    for (name, text) in toml_files(root, SEMANTICS)? {
        if [STRUCTS, ATTRIBUTES, KINDS]
            .iter()
            .any(|file| name.ends_with(&format!("/{file}")))
        {
            continue;
        }
        let table: toml::Table = match toml::from_str(&text) {
            Ok(table) => table,
            Err(error) => {
                errors.push(format!("{name}: {error}"));
                continue;
            }
        };
        for (function, value) in each(table) {
            let place = format!("{name}:{}: [{function}]", line_of(&text, &function));
            match entry(&place, value) {
                Ok(entry) => {
                    if let Some(other) = entries.insert(function, entry) {
                        errors.push(format!("{place} has two entries: {}", other.place));
                    }
                }
                Err(error) => errors.push(format!("{place}: {error}")),
            }
        }
    }
    all_or(errors, entries)
}

/// The entries of a file, by function: its tables, and for `[[same]]` one for each of its
/// `functions`.
fn each(table: toml::Table) -> Vec<(String, toml::Value)> {
    let mut all = Vec::new();
    for (key, value) in table {
        let toml::Value::Array(groups) = value else {
            all.push((key, value));
            continue;
        };
        for mut group in groups {
            let functions = group
                .as_table_mut()
                .and_then(|group| group.remove("functions"));
            let names = functions.as_ref().and_then(toml::Value::as_array);
            for name in names.into_iter().flatten() {
                all.push((name.as_str().unwrap_or_default().to_owned(), group.clone()));
            }
        }
    }
    all
}

fn entry(place: &str, value: toml::Value) -> Result<Entry, String> {
    let mut entry: Entry = value
        .try_into()
        .map_err(|error: toml::de::Error| error.message().to_owned())?;
    if let Some(unknown) = entry.roles.keys().find(|key| key.starts_with('.')) {
        return Err(format!(
            "{unknown} is none of .deprecated, .family, .flags, .implicit_wait, .reason, .size, \
             .stream, .waits"
        ));
    }
    if !entry.class.is_replayed() && entry.reason.is_empty() {
        return Err(format!("class {} needs a .reason", word(entry.class)));
    }
    place.clone_into(&mut entry.place);
    Ok(entry)
}

/// Reads all rule files; the rules and `more`, in the order of the ids.
pub(crate) fn load_rules(root: &Path, more: Vec<Rule>) -> Result<Vec<Rule>, Failure> {
    let mut rules = more;
    let mut errors = Vec::new();
    for (name, text) in toml_files(root, RULES)? {
        match toml::from_str::<RuleFile>(&text) {
            Ok(file) => rules.extend(file.rule),
            Err(error) => errors.push(format!("{name}: {error}")),
        }
    }
    rules.sort_by(|a, b| a.id.cmp(&b.id));
    for rule in &mut rules {
        let example = root.join(EXAMPLES).join(format!("{}.txt", rule.id));
        rule.example = std::fs::read_to_string(example).unwrap_or_default();
    }
    for pair in rules.windows(2) {
        if pair[0].id == pair[1].id {
            errors.push(format!("{RULES}: two rules have the id {}", pair[0].id));
        }
    }
    for rule in &rules {
        let texts = [&rule.statement, &rule.manual, &rule.advice];
        if texts.iter().any(|text| text.trim().is_empty()) {
            errors.push(format!(
                "{RULES}: {} needs a statement, a section of the manual and advice",
                rule.id
            ));
        }
        if let Some(why) = wrong_confidence(rule) {
            errors.push(format!("{RULES}: {} {why}", rule.id));
        }
    }
    all_or(errors, rules)
}

/// What is wrong with the confidence of a rule.
fn wrong_confidence(rule: &Rule) -> Option<&'static str> {
    let is_decided = rule.undecidable.trim().is_empty();
    match (rule.confidence, rule.severity) {
        (Confidence::Certain, _) => None,
        _ if !is_decided => Some("has a confidence, but cannot be decided"),
        (Confidence::Assumed, Severity::Error) => {
            Some("rests on an assumption, so it is a warning or advice, not an error")
        }
        _ => None,
    }
}

/// Joins entries to symbols: one meaning per function, in the order of the ids.
pub(crate) fn join(
    signatures: &Signatures,
    types: &Types<'_>,
    facts: &Facts,
    entries: &BTreeMap<String, Entry>,
) -> Result<Vec<Meaning>, Failure> {
    let by_name: BTreeMap<&str, &Function> = signatures
        .functions
        .iter()
        .map(|function| (function.name.as_str(), function))
        .collect();
    let mut errors = Vec::new();
    for (name, entry) in entries {
        if !by_name.contains_key(name.as_str()) {
            errors.push(format!("{}: no header declares that function", entry.place));
        }
    }
    let mut meanings = Vec::new();
    let mut missing = Vec::new();
    for function in &signatures.functions {
        let found = candidates(function).find_map(|name| {
            let entry = entries.get(name)?;
            let described = by_name.get(name)?;
            covers(entry, described, function).then_some(entry)
        });
        match found.map(|entry| (entry, meaning(types, facts, function, entry))) {
            Some((_, Ok(meaning))) => meanings.push(meaning),
            Some((entry, Err(error))) => {
                errors.push(format!("{}: {}: {error}", entry.place, function.name));
            }
            None => missing.push(function.name.as_str()),
        }
    }
    if !missing.is_empty() {
        errors.push(format!(
            "{SEMANTICS}: no entry describes {} symbols (an entry covers only variants with the \
             same parameter names): {}",
            missing.len(),
            missing.join(" ")
        ));
    }
    all_or(errors, meanings)
}

/// The names whose entry may describe a symbol, nearest first.
fn candidates(function: &Function) -> impl Iterator<Item = &str> {
    let name = function.name.as_str();
    [name, without_per_thread(name), function.base.as_str()].into_iter()
}

/// Whether an entry describes a variant, too: one with the same parameter names, or any if the
/// entry describes no parameter and a replay does not make the call.
fn covers(entry: &Entry, described: &Function, function: &Function) -> bool {
    let names = |function: &Function| -> Vec<String> {
        function
            .params
            .iter()
            .map(|param| param.1.clone())
            .collect()
    };
    entry.roles.is_empty() && !entry.class.is_replayed() || names(described) == names(function)
}

fn meaning(
    types: &Types<'_>,
    facts: &Facts,
    function: &Function,
    entry: &Entry,
) -> Result<Meaning, String> {
    let position = |name: &str| {
        roles::position(function, name).ok_or_else(|| format!("has no parameter {name}"))
    };
    for name in entry.roles.keys() {
        position(name)?;
    }
    let mut parsed = Vec::new();
    for (c_type, name, _) in &function.params {
        let role = match entry.roles.get(name) {
            Some(text) => roles::parse(text, types, facts, function, c_type),
            None => roles::default_role(types, c_type, !entry.class.is_replayed()),
        };
        parsed.push(role.map_err(|error| format!("{name}: {error}"))?);
    }
    let stream = entry.stream.as_deref().map(position).transpose()?;
    if stream.is_some_and(|at| function.params[usize::from(at)].0 != "CUstream") {
        return Err(".stream is no CUstream".to_owned());
    }
    let waits = entry.waits.as_deref();
    let waits = match waits.map(|text| text.split_once(' ').unwrap_or((text, ""))) {
        None => "Waits::No".to_owned(),
        Some(("context", "")) => "Waits::Context".to_owned(),
        Some(("stream", name)) => format!("Waits::Stream({})", position(name)?),
        Some(("event", name)) => format!("Waits::Event({})", position(name)?),
        Some(_) => return Err(".waits is `context`, `stream P` or `event P`".to_owned()),
    };
    let implicit_wait = match entry.implicit_wait.as_deref() {
        Some(_) if entry.waits.is_some() => return Err(".implicit_wait: it has .waits".to_owned()),
        None => "ImplicitWait::No",
        Some("context") => "ImplicitWait::Context",
        Some("context unless pool") => "ImplicitWait::ContextUnlessPool",
        Some("context if loaded") => "ImplicitWait::ContextIfLoaded",
        Some(_) => {
            return Err(
                ".implicit_wait is `context`, `context unless pool` or `context if loaded`"
                    .to_owned(),
            );
        }
    };
    let family = match &entry.family {
        Some(text) => families::parse(text, function, &parsed)?,
        None if entry.class == Class::Override => {
            return Err("class override needs a .family".to_owned());
        }
        None => "Family::Plain".to_owned(),
    };
    let size = match &entry.size {
        Some(_) if !makes_memory(&parsed, &family) => {
            return Err(".size: it makes no memory".to_owned());
        }
        Some(text) => format!("Some({})", roles::size(text, types, facts, function)?),
        None if makes_memory(&parsed, &family) && entry.class.is_replayed() => {
            return Err("makes memory: needs a .size".to_owned());
        }
        None => "None".to_owned(),
    };
    check_flags(types, function, &entry.flags)?;
    Ok(Meaning {
        class: entry.class,
        reason: entry.reason.clone(),
        deprecated: entry.deprecated.clone(),
        roles: parsed,
        stream,
        waits,
        implicit_wait: implicit_wait.to_owned(),
        family,
        size,
        flags: entry.flags.clone(),
    })
}

/// Whether a successful call makes or finds memory that has a size.
fn makes_memory(roles: &[Role], family: &str) -> bool {
    let starts = [
        "make memory",
        "make host memory",
        "make allocation",
        "make reservation",
        "find global",
    ];
    let makes = |role: &Role| {
        let rest = starts
            .iter()
            .find_map(|start| role.words.strip_prefix(start));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(" of "))
    };
    // A registration's handle is an argument, so no role makes it.
    roles.iter().any(makes) || family.contains("HostMemoryOp::Register")
}

/// The enum of the parameter `flags` must exist: in the headers, or as macros.
fn check_flags(types: &Types<'_>, function: &Function, name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Ok(());
    }
    let mut params = function.params.iter();
    if !params.any(|param| param.1.eq_ignore_ascii_case("flags")) {
        return Err(".flags: no parameter is called flags".to_owned());
    }
    match types.shape(name) {
        Some(Shape::Enum(_)) => Ok(()),
        _ if MACRO_ENUMS.contains(&name) => Ok(()),
        _ => Err(format!(".flags: no enum is called {name}")),
    }
}

/// Name from the root and text of each TOML file of a folder, sorted; empty if there is no folder.
pub(crate) fn toml_files(root: &Path, folder: &str) -> Result<Vec<(String, String)>, Failure> {
    let paths = files::list(&root.join(folder)).into_iter();
    paths
        .filter(|path| files::has_extension(path, "toml"))
        .map(|path| {
            Ok((
                format!("{folder}/{}", files::name(&path)),
                files::read(&path)?,
            ))
        })
        .collect()
}

/// The line of a function's table, or of its name in a list.
fn line_of(text: &str, function: &str) -> usize {
    let (header, name) = (format!("[{function}]"), format!("{function:?}"));
    text.lines()
        .position(|line| line.starts_with(&header) || line.contains(&name))
        .map_or(1, |index| index + 1)
}

pub(crate) fn all_or<T>(errors: Vec<String>, value: T) -> Result<T, Failure> {
    if errors.is_empty() {
        Ok(value)
    } else {
        Err(Failure::new(errors.join("\n")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(id: u16, name: &str, params: &[(&str, &str)]) -> Function {
        Function {
            id,
            name: name.to_owned(),
            base: crate::signatures::base_name(name).to_owned(),
            section: String::new(),
            first: String::new(),
            last: String::new(),
            returns: "CUresult".to_owned(),
            params: params
                .iter()
                .map(|(c_type, name)| ((*c_type).to_owned(), (*name).to_owned(), "u8".to_owned()))
                .collect(),
            header: String::new(),
            since: 0,
        }
    }

    #[test]
    fn no_error_rests_on_an_assumption() {
        let text = "id = 'a-b'\narea = 'a'\nstatement = 's'\nmanual = 'm'\nadvice = 'a'\n\
                    observed = ''\n";
        let rule = |more: &str| toml::from_str::<Rule>(&format!("{text}{more}"));
        for (more, is_wrong) in [
            ("severity = 'error'", false),
            ("severity = 'error'\nconfidence = 'contents'", false),
            ("severity = 'warning'\nconfidence = 'assumed'", false),
            ("severity = 'error'\nconfidence = 'assumed'", true),
            (
                "severity = 'advice'\nconfidence = 'contents'\nundecidable = 'why'",
                true,
            ),
        ] {
            assert_eq!(
                wrong_confidence(&rule(more).unwrap()).is_some(),
                is_wrong,
                "{more}"
            );
        }
        assert!(rule("severity = 'error'\nconfidence = 'sure'").is_err());
    }

    fn joined(text: &str) -> Result<Vec<Meaning>, String> {
        let signatures = Signatures {
            functions: vec![
                function(0, "cuCopy", &[("void *", "host"), ("size_t", "n")]),
                function(1, "cuCopy_v2", &[("void *", "host"), ("size_t", "n")]),
                function(2, "cuCopy_v2_ptds", &[("void *", "host"), ("size_t", "n")]),
                function(3, "cuCopy_v3", &[("void *", "host"), ("size_t", "count")]),
            ],
            ..Default::default()
        };
        let types = Types::new(&signatures);
        let table: toml::Table = toml::from_str(text).map_err(|error| error.to_string())?;
        let mut entries = BTreeMap::new();
        for (name, value) in each(table) {
            let place = format!("t:1: [{name}]");
            entries.insert(name, entry(&place, value)?);
        }
        join(&signatures, &types, &Facts::default(), &entries)
            .map_err(|failure| failure.to_string())
    }

    #[test]
    fn an_entry_covers_variants_with_the_same_parameters() {
        let text = "[cuCopy]\nclass = 'plain'\nhost = 'host read n'\n\
                    [cuCopy_v2]\nclass = 'override'\nhost = 'host write n'\n'.family' = 'memset'\n\
                    [cuCopy_v3]\nclass = 'opaque'\n'.reason' = 'why'";
        let classes: Vec<Class> = joined(text)
            .unwrap()
            .into_iter()
            .map(|meaning| meaning.class)
            .collect();
        assert_eq!(
            classes,
            [
                Class::Plain,
                Class::Override,
                Class::Override,
                Class::Opaque
            ]
        );

        let bare = "[cuCopy]\nclass = 'opaque'\n'.reason' = 'why'";
        assert_eq!(joined(bare).unwrap().len(), 4);
        let same =
            "[[same]]\nclass = 'opaque'\n'.reason' = 'why'\nfunctions = ['cuCopy', 'cuCopy_v3']";
        assert_eq!(joined(same).unwrap().len(), 4);
    }

    #[test]
    fn mistakes_are_named() {
        let plain = "[cuCopy]\nclass = 'plain'\nhost = 'host read n'\n";
        for (text, message) in [
            (plain.to_owned(), "no entry describes 1 symbols"),
            ("".to_owned(), "no entry describes 4 symbols"),
            (
                format!("{plain}[cuGhost]\nclass = 'plain'"),
                "[cuGhost]: no header declares",
            ),
            (
                "[cuCopy]\nclass = 'plain'".to_owned(),
                "cuCopy: host: a void * needs a role",
            ),
            (
                "[cuCopy]\nclass = 'plain'\nhost = 'host read m'".to_owned(),
                "no parameter m",
            ),
            (
                "[cuCopy]\nclass = 'plain'\nghost = 'value'".to_owned(),
                "cuCopy: has no parameter ghost",
            ),
            ("[cuCopy]\nclass = 'opaque'".to_owned(), "needs a .reason"),
            (
                "[cuCopy]\nclass = 'simple'".to_owned(),
                "unknown variant `simple`",
            ),
            (
                "[cuCopy]\nhost = 'value'".to_owned(),
                "missing field `class`",
            ),
            (format!("{plain}'.stream' = 'n'"), ".stream is no CUstream"),
            (
                format!("{plain}'.waits' = 'stream hStream'"),
                "no parameter hStream",
            ),
            (format!("{plain}'.waits' = 'forever'"), ".waits is"),
            (
                format!("{plain}'.implicit_wait' = 'stream'"),
                ".implicit_wait is",
            ),
            (
                format!("{plain}'.waits' = 'context'\n'.implicit_wait' = 'context'"),
                "it has .waits",
            ),
            (
                format!("{plain}'.wait' = 'context'"),
                "none of .deprecated, .family, .flags, .implicit_wait, .reason, .size, .stream, .waits",
            ),
            (format!("{plain}n = 4"), "expected a string"),
            (
                plain.replace("plain", "override"),
                "class override needs a .family",
            ),
            (
                format!("{plain}'.family' = 'memory move'"),
                "no such family",
            ),
            (
                format!("{plain}'.family' = 'copy linear bytes=n'"),
                "no parameter named src",
            ),
            (format!("{plain}'.size' = 'n'"), "it makes no memory"),
            (
                "[cuCopy]\nclass = 'plain'\nhost = 'make host memory'".to_owned(),
                "needs a .size",
            ),
            (
                "[cuCopy]\nclass = 'plain'\nhost = 'make host memory'\n'.size' = 'm'".to_owned(),
                "no parameter m",
            ),
            (
                format!("{plain}'.flags' = 'CUctx_flags'"),
                "no parameter is called flags",
            ),
        ] {
            let error = joined(&text).unwrap_err();
            assert!(
                error.contains(message),
                "{text:?} gives {error:?}, not {message:?}"
            );
        }
    }
}
