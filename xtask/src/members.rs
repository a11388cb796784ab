//! Reads `registry/semantics/structs.toml` and `attributes.toml`: the meaning of struct members and
//! of attribute values.

use std::collections::BTreeMap;
use std::path::Path;

use crate::kinds::{handle_kind, is_address, known_kind};
use crate::signatures::{FlatField, Shape, Struct, Types, flat};
use crate::{Failure, files};

/// The folder of semantics, from the root of the repository.
pub(crate) const SEMANTICS: &str = "registry/semantics";
/// The two files there that this module reads.
pub(crate) const STRUCTS: &str = "structs.toml";
pub(crate) const ATTRIBUTES: &str = "attributes.toml";

/// The key of a struct that only the driver fills.
const CONTENT: &str = ".content";

/// The content of the two files.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// Meanings by struct and member.
    structs: BTreeMap<String, BTreeMap<String, String>>,
    /// Meanings by enum and attribute.
    attributes: BTreeMap<String, BTreeMap<String, String>>,
}

impl Facts {
    /// Reads both files; each may be missing.
    pub(crate) fn load(root: &Path) -> Result<Self, Failure> {
        Ok(Facts {
            structs: read(root, STRUCTS)?,
            attributes: read(root, ATTRIBUTES)?,
        })
    }

    /// Checks that every table names a struct with these members, or an enum with these attributes.
    pub(crate) fn check(&self, types: &Types<'_>) -> Result<(), Failure> {
        let mut errors = Vec::new();
        for (name, members) in &self.structs {
            let Some(Shape::Struct(entry)) = types.shape(name) else {
                errors.push(format!("{SEMANTICS}/{STRUCTS}: no struct is called {name}"));
                continue;
            };
            let fields = flat(types, entry);
            for (member, words) in members {
                let is_at = |name: &str| name.strip_prefix(member).is_some_and(is_below);
                let known = fields.iter().any(|field| is_at(&field.name));
                let result = match member.as_str() {
                    CONTENT if words == "driver" => Ok(()),
                    CONTENT => Err("can be `driver` only".to_owned()),
                    _ if !known => Err("no such member".to_owned()),
                    _ => expressions(words, &fields, "").map(|_| ()),
                };
                if let Err(error) = result {
                    errors.push(format!("{SEMANTICS}/{STRUCTS}: [{name}] {member}: {error}"));
                }
            }
        }
        for name in self.attributes.keys() {
            if let Err(error) = self.types_of(types, name) {
                errors.push(format!("{SEMANTICS}/{ATTRIBUTES}: [{name}] {error}"));
            }
        }
        if errors.is_empty() {
            Ok(())
        } else {
            Err(Failure::new(errors.join("\n")))
        }
    }

    /// Whether only the driver fills a struct.
    pub(crate) fn is_token(&self, types: &Types<'_>, entry: &Struct) -> bool {
        self.of_struct(types, entry)
            .is_some_and(|members| members.contains_key(CONTENT))
    }

    /// The Rust expressions of a member's `meaning` and `when`.
    pub(crate) fn of(
        &self,
        types: &Types<'_>,
        entry: &Struct,
        fields: &[FlatField],
        field: &FlatField,
    ) -> (String, String) {
        let own = self.of_struct(types, entry);
        let stated = |words: &String, prefix: &str| {
            // `check` has validated all of them.
            let (meaning, when) = expressions(words, fields, prefix).unwrap_or_default();
            (
                meaning.unwrap_or_else(|| of_type(types, &field.c_type)),
                when,
            )
        };
        if let Some(words) = own.and_then(|members| fact(members, &field.name)) {
            return stated(words, "");
        }
        // A member of a union without a selector.
        let overlapped = fields.iter().any(|other| {
            other.name != field.name
                && other.offset < field.offset + field.size
                && field.offset < other.offset + other.size
        });
        if overlapped {
            return ("Meaning::Unknown".to_owned(), "None".to_owned());
        }
        // A fact about a struct also holds where the struct is a member.
        for (c_type, prefix) in &field.inside {
            let words = match types.shape(c_type) {
                Some(Shape::Struct(inner)) => self.of_struct(types, inner),
                _ => None,
            }
            .and_then(|members| members.get(field.name.strip_prefix(prefix.as_str())?));
            if let Some(words) = words {
                return stated(words, prefix);
            }
        }
        (of_type(types, &field.c_type), "None".to_owned())
    }

    /// The enums that have a table of attributes.
    pub(crate) fn attribute_enums(&self) -> impl Iterator<Item = &str> {
        self.attributes.keys().map(String::as_str)
    }

    /// The name of the table for an enum, under any of the enum's names.
    pub(crate) fn table_of(&self, types: &Types<'_>, enumeration: &str) -> Result<&str, String> {
        let Some(Shape::Enum(known)) = types.shape(enumeration) else {
            return Err(format!("{enumeration} is no enum"));
        };
        let same = |name: &str| match types.shape(name) {
            Some(Shape::Enum(found)) => found.name == known.name,
            _ => false,
        };
        self.attribute_enums()
            .find(|name| same(name))
            .ok_or_else(|| format!("{ATTRIBUTES} has no table for {enumeration}"))
    }

    /// The rows of an enum's table as Rust expressions `AttributeType { .. }`.
    pub(crate) fn types_of(
        &self,
        types: &Types<'_>,
        enumeration: &str,
    ) -> Result<Vec<String>, String> {
        let (Some(Shape::Enum(known)), Some(rows)) =
            (types.shape(enumeration), self.attributes.get(enumeration))
        else {
            return Err(format!("{enumeration} is no enum"));
        };
        let mut all = Vec::new();
        for (name, words) in rows {
            let value = known
                .values
                .iter()
                .find(|value| value.0 == *name)
                .ok_or_else(|| format!("has no {name}"))?
                .1;
            let (bytes, meaning) = words.split_once(' ').unwrap_or((words, "value"));
            let bytes: u32 = bytes
                .parse()
                .map_err(|_| format!("{name}: {words:?} does not begin with a number of bytes"))?;
            let meaning = meaning_of(meaning).map_err(|error| format!("{name}: {error}"))?;
            all.push(format!(
                "AttributeType {{ attribute: {value}, bytes: {bytes}, meaning: {meaning} }}"
            ));
        }
        Ok(all)
    }

    /// The facts about a struct, under any of its names.
    fn of_struct(&self, types: &Types<'_>, entry: &Struct) -> Option<&BTreeMap<String, String>> {
        self.structs.iter().find_map(|(name, members)| {
            let same = match types.structs.get(name.as_str()) {
                Some(found) => found.name == entry.name,
                None => stands_for(types, name, &entry.name),
            };
            same.then_some(members)
        })
    }
}

/// Whether a typedef leads to that struct.
fn stands_for(types: &Types<'_>, name: &str, entry: &str) -> bool {
    let mut name = name;
    for _ in 0..8 {
        match types.typedefs.get(name) {
            Some(&target) if target == entry => return true,
            Some(&target) => name = target,
            None => return false,
        }
    }
    false
}

/// The meaning of a member that follows from its C type, as Rust.
fn of_type(types: &Types<'_>, c_type: &str) -> String {
    match types.shape(c_type) {
        _ if c_type.contains('[') => "Meaning::Plain".to_owned(),
        _ if is_address(c_type) => "Meaning::Address".to_owned(),
        shape => match (handle_kind(types, c_type), shape) {
            (Some(kind), _) => format!("Meaning::Handle(Kind::{})", kind.variant()),
            (None, Some(Shape::Pointer | Shape::Callback)) => "Meaning::Pointer".to_owned(),
            _ => "Meaning::Plain".to_owned(),
        },
    }
}

/// The fact about a member: its own, or else that of the member that it belongs to.
fn fact<'a>(members: &'a BTreeMap<String, String>, name: &str) -> Option<&'a String> {
    members.get(name).or_else(|| {
        let around = |(member, _): &(&String, &String)| {
            name.strip_prefix(member.as_str()).is_some_and(is_below)
        };
        members.iter().find(around).map(|(_, words)| words)
    })
}

/// Whether the rest of a name is empty or names a member of the member.
fn is_below(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with('.')
}

/// The Rust expressions of `meaning` and `when` for `MEANING`, `MEANING when SELECTOR VALUE...` or
/// `when SELECTOR VALUE...`, where the C type tells the meaning. `prefix` precedes the selector's
/// name in `fields`.
fn expressions(
    words: &str,
    fields: &[FlatField],
    prefix: &str,
) -> Result<(Option<String>, String), String> {
    let (meaning, condition) = match words.split_once("when ") {
        Some((meaning, condition)) => (meaning.trim_end(), Some(condition)),
        None => (words, None),
    };
    let meaning = match (meaning, condition) {
        ("", Some(_)) => None,
        _ => Some(meaning_of(meaning)?),
    };
    let Some(condition) = condition else {
        return Ok((meaning, "None".to_owned()));
    };
    let (selector, values) = condition
        .split_once(' ')
        .ok_or("after `when`: a member and its values")?;
    let selector = format!("{prefix}{selector}");
    let selector = fields
        .iter()
        .find(|field| field.name == selector && field.size == 4)
        .ok_or_else(|| format!("{selector} is no member of four bytes"))?;
    let values: Vec<u32> = values
        .split(' ')
        .map(|value| value.parse().map_err(|_| format!("{value:?} is no number")))
        .collect::<Result<_, _>>()?;
    let when = format!(
        "Some(When {{ offset: {}, values: &{values:?} }})",
        selector.offset
    );
    Ok((meaning, when))
}

fn meaning_of(words: &str) -> Result<String, String> {
    Ok(match words {
        "value" => "Meaning::Plain".to_owned(),
        "address" => "Meaning::Address".to_owned(),
        "may differ" => "Meaning::MayDiffer".to_owned(),
        "pointer" => "Meaning::Pointer".to_owned(),
        _ => match words.strip_prefix("use ").and_then(known_kind) {
            Some(kind) => format!("Meaning::Handle(Kind::{kind})"),
            None => {
                return Err(format!(
                    "{words:?} is none of value, use K, address, may differ, pointer"
                ));
            }
        },
    })
}

fn read(root: &Path, name: &str) -> Result<BTreeMap<String, BTreeMap<String, String>>, Failure> {
    let path = root.join(SEMANTICS).join(name);
    match path.exists() {
        true => files::read_toml(&path),
        false => Ok(BTreeMap::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signatures::{Enum, Signatures, Typedef};

    fn sample() -> Signatures {
        let members = [
            ("kind", "unsigned int", 0, 4),
            ("array", "CUarray", 8, 8),
            ("address", "CUdeviceptr", 8, 8),
            ("stream", "CUstream", 16, 8),
            ("rest", "void *", 24, 8),
        ];
        let typedef = |name: &str, target: &str| Typedef {
            name: name.to_owned(),
            target: target.to_owned(),
        };
        Signatures {
            structs: vec![Struct {
                name: "CUsample_v1".to_owned(),
                tag: String::new(),
                kind: "struct".to_owned(),
                size: 32,
                align: 8,
                members: members
                    .map(|(name, c_type, offset, size)| {
                        (name.to_owned(), c_type.to_owned(), offset, size)
                    })
                    .to_vec(),
            }],
            enums: vec![Enum {
                name: "CUattr".to_owned(),
                tag: String::new(),
                width: "u4".to_owned(),
                values: vec![("CU_ATTR_A".to_owned(), 7), ("CU_ATTR_B".to_owned(), 9)],
            }],
            typedefs: vec![
                typedef("CUsample", "CUsample_v1"),
                typedef("CUarray", "CUarray_st *"),
                typedef("CUstream", "CUstream_st *"),
                typedef("CUdeviceptr", "unsigned long long"),
            ],
            ..Default::default()
        }
    }

    fn facts(structs: &str, attributes: &str) -> Facts {
        Facts {
            structs: toml::from_str(structs).unwrap(),
            attributes: toml::from_str(attributes).unwrap(),
        }
    }

    #[test]
    fn members_mean_what_the_file_or_their_type_says() {
        let signatures = sample();
        let types = Types::new(&signatures);
        let facts = facts(
            "[CUsample]\narray = 'use array when kind 0 3'\n'.content' = 'driver'",
            "",
        );
        facts.check(&types).unwrap();
        let entry = &signatures.structs[0];
        assert!(facts.is_token(&types, entry));
        let fields = flat(&types, entry);
        let when = "Some(When { offset: 0, values: &[0, 3] })";
        for (name, meaning, condition) in [
            ("kind", "Meaning::Plain", "None"),
            ("array", "Meaning::Handle(Kind::Array)", when),
            ("address", "Meaning::Unknown", "None"), // overlaps, without a selector
            ("stream", "Meaning::Handle(Kind::Stream)", "None"),
            ("rest", "Meaning::Pointer", "None"),
        ] {
            let field = fields.iter().find(|field| field.name == name).unwrap();
            let said = facts.of(&types, entry, &fields, field);
            assert_eq!(said, (meaning.to_owned(), condition.to_owned()), "{name}");
        }
    }

    #[test]
    fn what_is_said_about_a_struct_holds_inside_others() {
        let mut signatures = sample();
        signatures.structs.push(Struct {
            name: "CUouter".to_owned(),
            tag: String::new(),
            kind: "struct".to_owned(),
            size: 40,
            align: 8,
            members: vec![
                ("number".to_owned(), "int".to_owned(), 0, 4),
                ("inner".to_owned(), "CUsample".to_owned(), 8, 32),
            ],
        });
        let types = Types::new(&signatures);
        let facts = facts("[CUsample]\nrest = 'address when kind 2'", "");
        let entry = &signatures.structs[1];
        let fields = flat(&types, entry);
        let field = |name| fields.iter().find(|field| field.name == name).unwrap();
        assert_eq!(
            facts.of(&types, entry, &fields, field("inner.rest")),
            (
                "Meaning::Address".to_owned(),
                "Some(When { offset: 8, values: &[2] })".to_owned()
            )
        );
        // A line about the member as a whole holds for each of its members.
        let whole = super::tests::facts("[CUouter]\ninner = 'when number 3'", "");
        whole.check(&types).unwrap();
        assert_eq!(
            whole.of(&types, entry, &fields, field("inner.stream")),
            (
                "Meaning::Handle(Kind::Stream)".to_owned(),
                "Some(When { offset: 0, values: &[3] })".to_owned()
            )
        );
        // Overlapping members have no meaning there either.
        let overlapped = facts.of(&types, entry, &fields, field("inner.array"));
        assert_eq!(overlapped.0, "Meaning::Unknown");
    }

    #[test]
    fn attributes_have_types() {
        let signatures = sample();
        let types = Types::new(&signatures);
        let facts = facts("", "[CUattr]\nCU_ATTR_A = '4'\nCU_ATTR_B = '8 use context'");
        assert_eq!(
            facts.types_of(&types, "CUattr").unwrap(),
            [
                "AttributeType { attribute: 7, bytes: 4, meaning: Meaning::Plain }",
                "AttributeType { attribute: 9, bytes: 8, meaning: Meaning::Handle(Kind::Context) }",
            ]
        );
        assert!(facts.types_of(&types, "CUsample").is_err());
    }

    #[test]
    fn mistakes_are_named() {
        let signatures = sample();
        let types = Types::new(&signatures);
        for (structs, attributes, message) in [
            ("[CUghost]\na = 'value'", "", "no struct is called CUghost"),
            ("[CUsample]\nghost = 'value'", "", "no such member"),
            ("[CUsample]\narray = 'handle'", "", "none of value"),
            (
                "[CUsample]\narray = 'use array when ghost 1'",
                "",
                "no member of four bytes",
            ),
            (
                "[CUsample]\narray = 'use array when kind x'",
                "",
                "no number",
            ),
            ("[CUsample]\n'.content' = 'mine'", "", "`driver` only"),
            ("", "[CUattr]\nCU_ATTR_C = '4'", "has no CU_ATTR_C"),
            ("", "[CUattr]\nCU_ATTR_A = 'four'", "number of bytes"),
            ("", "[CUghost]\nA = '4'", "is no enum"),
        ] {
            let error = facts(structs, attributes)
                .check(&types)
                .unwrap_err()
                .to_string();
            assert!(error.contains(message), "{structs}{attributes}: {error}");
        }
    }
}
