//! Reads `registry/semantics` and `registry/rules`, and joins them to the signatures.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::Failure;
use crate::families;
use crate::members::{ATTRIBUTES, Facts, SEMANTICS, STRUCTS};
use crate::roles::{self, Role};
use crate::signatures::{Function, Shape, Signatures, Types};

const KINDS: &str = "kinds.toml";
/// Enums that cuda.h has as macros which begin with that name.
pub(crate) const MACRO_ENUMS: [&str; 2] = ["CU_MEMHOSTALLOC", "CU_MEMHOSTREGISTER"];
const RULES: &str = "registry/rules";

/// One table of a semantics file.
#[derive(Debug)]
pub(crate) struct Entry {
    /// File and line, for messages.
    place: String,
    class: String,
    reason: String,
    stream: Option<String>,
    waits: Option<String>,
    family: Option<String>,
    size: Option<String>,
    flags: Option<String>,
    roles: BTreeMap<String, String>,
}

/// What is said about one symbol.
#[derive(Debug)]
pub(crate) struct Meaning {
    /// `plain`, `override`, `opaque` or `unreplayable`.
    pub(crate) class: String,
    pub(crate) reason: String,
    /// One a parameter.
    pub(crate) roles: Vec<Role>,
    pub(crate) stream: Option<u8>,
    /// A Rust expression, e.g. `Waits::Stream(0)`.
    pub(crate) waits: String,
    /// A Rust expression, e.g. `Family::Init`.
    pub(crate) family: String,
    /// A Rust expression, e.g. `Some(Length::Param(1))`.
    pub(crate) size: String,
    /// The name of an enum, or nothing.
    pub(crate) flags: String,
}

/// A rule, as its file has it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    pub(crate) id: String,
    pub(crate) area: String,
    pub(crate) severity: String,
    pub(crate) statement: String,
    pub(crate) manual: String,
    pub(crate) advice: String,
    pub(crate) observed: String,
    #[serde(default)]
    pub(crate) undecidable: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFile {
    #[serde(default)]
    rule: Vec<Rule>,
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
                    if let Some(other) = entries.insert(function.clone(), entry) {
                        errors.push(format!(
                            "{place} has two entries; the first: {}",
                            other.place
                        ));
                    }
                }
                Err(error) => errors.push(error),
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

/// Reads all rule files, in the order of the ids.
pub(crate) fn load_rules(root: &Path) -> Result<Vec<Rule>, Failure> {
    let mut rules: Vec<Rule> = Vec::new();
    let mut errors = Vec::new();
    for (name, text) in toml_files(root, RULES)? {
        match toml::from_str::<RuleFile>(&text) {
            Ok(file) => rules.extend(file.rule),
            Err(error) => errors.push(format!("{name}: {error}")),
        }
    }
    rules.sort_by(|a, b| a.id.cmp(&b.id));
    for pair in rules.windows(2) {
        if pair[0].id == pair[1].id {
            errors.push(format!("{RULES}: the rule {} is there twice", pair[0].id));
        }
    }
    for rule in &rules {
        for (key, text) in [
            ("statement", &rule.statement),
            ("manual", &rule.manual),
            ("advice", &rule.advice),
        ] {
            if text.trim().is_empty() {
                errors.push(format!("{RULES}: {}: no {key}", rule.id));
            }
        }
        if !["advice", "warning", "error"].contains(&rule.severity.as_str()) {
            errors.push(format!(
                "{RULES}: {}: severity {:?} is none of advice, warning, error",
                rule.id, rule.severity
            ));
        }
    }
    all_or(errors, rules)
}

/// Joins entries to symbols: one meaning a function, in the order of the ids.
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
            let reference = by_name.get(name)?;
            (name == function.name || speaks_for(entry, reference, function)).then_some(entry)
        });
        match found {
            Some(entry) => match meaning(types, facts, function, entry) {
                Ok(meaning) => meanings.push(meaning),
                Err(mut found) => errors.append(&mut found),
            },
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

/// The names whose entry may speak for a symbol, nearest first.
fn candidates(function: &Function) -> impl Iterator<Item = &str> {
    let name = function.name.as_str();
    let without_thread = name
        .strip_suffix("_ptsz")
        .or_else(|| name.strip_suffix("_ptds"))
        .unwrap_or(name);
    [name, without_thread, function.base.as_str()].into_iter()
}

/// An entry speaks for a variant with the same parameter names. One that describes no parameter
/// cannot be wrong about any.
fn speaks_for(entry: &Entry, reference: &Function, function: &Function) -> bool {
    let names = |function: &Function| {
        function
            .params
            .iter()
            .map(|param| param.1.clone())
            .collect::<Vec<_>>()
    };
    let bare = entry.roles.is_empty() && matches!(entry.class.as_str(), "opaque" | "unreplayable");
    bare || names(reference) == names(function)
}

fn meaning(
    types: &Types<'_>,
    facts: &Facts,
    function: &Function,
    entry: &Entry,
) -> Result<Meaning, Vec<String>> {
    let mut errors = Vec::new();
    let lenient = matches!(entry.class.as_str(), "opaque" | "unreplayable");
    for name in entry.roles.keys() {
        if roles::position(function, name).is_none() {
            errors.push(format!(
                "{}: {} has no parameter {name}",
                entry.place, function.name
            ));
        }
    }
    let mut parsed = Vec::new();
    for (c_type, name, _) in &function.params {
        let role = match entry.roles.get(name) {
            Some(text) => roles::parse(text, types, facts, function, c_type),
            None => roles::default_role(types, c_type, lenient),
        };
        match role {
            Ok(role) => parsed.push(role),
            Err(error) => errors.push(format!(
                "{}: {}: {name}: {error}",
                entry.place, function.name
            )),
        }
    }
    let position = |name: &str| {
        roles::position(function, name)
            .ok_or_else(|| format!("{}: {} has no parameter {name}", entry.place, function.name))
    };
    let stream = match &entry.stream {
        Some(name) => match position(name) {
            Ok(position) if function.params[usize::from(position)].0 == "CUstream" => {
                Some(position)
            }
            Ok(_) => {
                errors.push(format!("{}: .stream: {name} is no CUstream", entry.place));
                None
            }
            Err(error) => {
                errors.push(error);
                None
            }
        },
        None => None,
    };
    let waits = match entry
        .waits
        .as_deref()
        .map(|text| text.split_once(' ').unwrap_or((text, "")))
    {
        None => Ok("Waits::No".to_owned()),
        Some(("context", "")) => Ok("Waits::Context".to_owned()),
        Some(("stream", name)) => {
            position(name).map(|position| format!("Waits::Stream({position})"))
        }
        Some(("event", name)) => position(name).map(|position| format!("Waits::Event({position})")),
        Some(_) => Err(format!(
            "{}: .waits is `context`, `stream P` or `event P`",
            entry.place
        )),
    };
    let waits = waits.unwrap_or_else(|error| {
        errors.push(error);
        String::new()
    });
    if !errors.is_empty() {
        return Err(errors);
    }
    let mut fact = |result: Result<String, String>| {
        result.unwrap_or_else(|error| {
            errors.push(format!("{}: {}: {error}", entry.place, function.name));
            String::new()
        })
    };
    let family = fact(match (&entry.family, entry.class.as_str()) {
        (Some(text), _) => families::parse(text, function, &parsed),
        (None, "override") => Err("class override needs a .family".to_owned()),
        (None, _) => Ok("Family::Plain".to_owned()),
    });
    let size = fact(size(types, facts, function, entry, &parsed, &family));
    let flags = fact(flags(types, function, entry));
    if !errors.is_empty() {
        return Err(errors);
    }
    Ok(Meaning {
        class: entry.class.clone(),
        reason: entry.reason.clone(),
        roles: parsed,
        stream,
        waits,
        family,
        size,
        flags,
    })
}

/// Roles of pointers behind which a successful call puts the address of memory that has a size.
const MAKES_MEMORY: [&str; 5] = [
    "make memory",
    "make host memory",
    "make allocation",
    "make reservation",
    "find global",
];

/// How much memory a call makes, as an expression: given exactly where it makes some and can be
/// re-issued.
fn size(
    types: &Types<'_>,
    facts: &Facts,
    function: &Function,
    entry: &Entry,
    parsed: &[Role],
    family: &str,
) -> Result<String, String> {
    let begins = |role: &Role| {
        MAKES_MEMORY.iter().any(|start| {
            let rest = role.words.strip_prefix(start);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(" of "))
        })
    };
    let makes = parsed.iter().any(begins) || family.contains("HostMemoryOp::Register");
    let reissued = matches!(entry.class.as_str(), "plain" | "override");
    match &entry.size {
        Some(_) if !makes => Err(".size: it makes no memory".to_owned()),
        Some(text) => Ok(format!(
            "Some({})",
            roles::size(text, types, facts, function)?
        )),
        None if makes && reissued => Err("makes memory: needs a .size".to_owned()),
        None => Ok("None".to_owned()),
    }
}

/// The enum of the parameter `flags`, by its name: one of the headers, or `CU_X_*` for macros that
/// begin so.
fn flags(types: &Types<'_>, function: &Function, entry: &Entry) -> Result<String, String> {
    let Some(name) = &entry.flags else {
        return Ok(String::new());
    };
    let is_flags = |name: &str| name.eq_ignore_ascii_case("flags");
    if !function.params.iter().any(|param| is_flags(&param.1)) {
        return Err(".flags: no parameter is called flags".to_owned());
    }
    let is_enum = matches!(types.shape(name), Some(Shape::Enum(_)));
    if is_enum || MACRO_ENUMS.contains(&name.as_str()) {
        Ok(name.clone())
    } else {
        Err(format!(".flags: no enum is called {name}"))
    }
}

fn entry(place: &str, value: toml::Value) -> Result<Entry, String> {
    let toml::Value::Table(table) = value else {
        return Err(format!("{place}: not a table of keys"));
    };
    let mut entry = Entry {
        place: place.to_owned(),
        class: String::new(),
        reason: String::new(),
        stream: None,
        waits: None,
        family: None,
        size: None,
        flags: None,
        roles: BTreeMap::new(),
    };
    for (key, value) in table {
        let toml::Value::String(text) = value else {
            return Err(format!("{place}: {key} is not a string"));
        };
        match key.as_str() {
            "class" => entry.class = text,
            ".reason" => entry.reason = text,
            ".stream" => entry.stream = Some(text),
            ".waits" => entry.waits = Some(text),
            ".family" => entry.family = Some(text),
            ".size" => entry.size = Some(text),
            ".flags" => entry.flags = Some(text),
            dotted if dotted.starts_with('.') => {
                return Err(format!(
                    "{place}: {dotted} is none of .family, .flags, .reason, .size, .stream, .waits"
                ));
            }
            _ => {
                entry.roles.insert(key, text);
            }
        }
    }
    match entry.class.as_str() {
        "plain" | "override" => {}
        "opaque" | "unreplayable" if !entry.reason.is_empty() => {}
        "opaque" | "unreplayable" => {
            return Err(format!("{place}: class {} needs a .reason", entry.class));
        }
        _ => {
            return Err(format!(
                "{place}: class is none of plain, override, opaque, unreplayable"
            ));
        }
    }
    Ok(entry)
}

/// Name from the root and text of each TOML file of a folder, sorted; nothing where the folder is
/// not there.
fn toml_files(root: &Path, folder: &str) -> Result<Vec<(String, String)>, Failure> {
    let path = root.join(folder);
    let Ok(listing) = fs::read_dir(&path) else {
        return Ok(Vec::new());
    };
    let mut paths: Vec<PathBuf> = listing
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "toml")
        })
        .collect();
    paths.sort();
    let mut files = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path)
            .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        files.push((format!("{folder}/{name}"), text));
    }
    Ok(files)
}

/// The line of a function's table, or of its name in a list.
fn line_of(text: &str, function: &str) -> usize {
    let (header, name) = (format!("[{function}]"), format!("{function:?}"));
    text.lines()
        .position(|line| line.starts_with(&header) || line.contains(&name))
        .map_or(1, |index| index + 1)
}

fn all_or<T>(errors: Vec<String>, value: T) -> Result<T, Failure> {
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
        }
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
            entries.insert(name.clone(), entry(&format!("t:1: [{name}]"), value)?);
        }
        join(&signatures, &types, &Facts::default(), &entries)
            .map_err(|failure| failure.to_string())
    }

    #[test]
    fn an_entry_speaks_for_variants_of_the_same_parameters() {
        let text = "[cuCopy]\nclass = 'plain'\nhost = 'host read n'\n\
                    [cuCopy_v2]\nclass = 'override'\nhost = 'host write n'\n'.family' = 'memset'\n\
                    [cuCopy_v3]\nclass = 'opaque'\n'.reason' = 'why'";
        let classes: Vec<String> = joined(text)
            .unwrap()
            .into_iter()
            .map(|meaning| meaning.class)
            .collect();
        assert_eq!(classes, ["plain", "override", "override", "opaque"]);

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
                "cuCopy has no parameter ghost",
            ),
            ("[cuCopy]\nclass = 'opaque'".to_owned(), "needs a .reason"),
            ("[cuCopy]\nclass = 'simple'".to_owned(), "class is none of"),
            ("[cuCopy]\nhost = 'value'".to_owned(), "class is none of"),
            (format!("{plain}'.stream' = 'n'"), "n is no CUstream"),
            (
                format!("{plain}'.waits' = 'stream hStream'"),
                "no parameter hStream",
            ),
            (format!("{plain}'.waits' = 'forever'"), ".waits is"),
            (
                format!("{plain}'.wait' = 'context'"),
                "none of .family, .flags, .reason, .size, .stream, .waits",
            ),
            (format!("{plain}n = 4"), "n is not a string"),
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
