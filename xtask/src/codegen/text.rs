//! Makes the signature table that every trace contains.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::Input;
use super::tables::{all_enums, all_structs};
use crate::semantics::word;
use crate::signatures::flat;

/// Only the enums and structs that a parameter uses, directly or through members.
pub(super) fn signatures(input: &Input<'_>) -> String {
    let enums = all_enums(input);
    let structs = all_structs(input);
    let mut used: BTreeSet<String> = BTreeSet::new();
    let mut waiting: Vec<String> = vec!["CUresult".to_owned()];
    for function in &input.signatures.functions {
        waiting.extend(function.params.iter().map(|param| bare(&param.0)));
    }
    while let Some(name) = waiting.pop() {
        let known = enums.contains_key(name.as_str()) || structs.contains_key(name.as_str());
        if !known || !used.insert(name.clone()) {
            continue;
        }
        if let Some(entry) = structs.get(name.as_str()) {
            waiting.extend(
                flat(input.types, entry)
                    .iter()
                    .map(|field| bare(&field.c_type)),
            );
        }
    }
    let mut text = "cutape-signatures\t1\n".to_owned();
    for (name, entry) in enums.iter().filter(|(name, _)| used.contains(**name)) {
        let _ = write!(text, "enum\t{name}");
        for (name, value) in &entry.values {
            let _ = write!(text, "\t{name}={value}");
        }
        text.push('\n');
    }
    for (name, entry) in structs.iter().filter(|(name, _)| used.contains(**name)) {
        let _ = write!(text, "struct\t{name}\t{}", entry.size);
        for field in flat(input.types, entry) {
            let _ = write!(
                text,
                "\t{}:{}:{}:{}",
                field.name, field.offset, field.size, field.c_type
            );
        }
        text.push('\n');
    }
    for (function, meaning) in input.functions() {
        let _ = write!(
            text,
            "function\t{}\t{}\t{}\t{}\t{}\t{}",
            function.id,
            function.name,
            function.base,
            function.section,
            function.returns,
            word(meaning.class)
        );
        for ((c_type, name, width), role) in function.params.iter().zip(&meaning.roles) {
            let _ = write!(text, "\t{name}|{c_type}|{width}|{}", role.words);
        }
        text.push('\n');
    }
    text
}

/// The name in a C type, without const, stars and array brackets.
fn bare(c_type: &str) -> String {
    c_type
        .split([' ', '*', '['])
        .find(|word| !word.is_empty() && *word != "const")
        .unwrap_or_default()
        .to_owned()
}
