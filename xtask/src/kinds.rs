//! `registry/semantics/kinds.toml`: the kinds of object.

use std::sync::LazyLock;

use serde::Deserialize;

use crate::signatures::Types;

/// The file as of the build; cargo builds xtask again when it changes.
static KINDS: LazyLock<Vec<KindEntry>> = LazyLock::new(|| {
    #[derive(Deserialize)]
    struct File {
        kind: Vec<KindEntry>,
    }
    let text = include_str!("../../registry/semantics/kinds.toml");
    match toml::from_str::<File>(text) {
        Ok(file) => file.kind,
        Err(error) => panic!("registry/semantics/kinds.toml: {error}"),
    }
});

/// A kind of object.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KindEntry {
    /// Its word in roles.
    pub(crate) role: String,
    /// Its name in messages, if that differs from `role`.
    name: Option<String>,
    /// The C type of its handles.
    handle: Option<String>,
    /// As `handle`, for a type whose parameters have no role.
    opaque: Option<String>,
    /// Whether its handles are addresses.
    #[serde(default)]
    pub(crate) address: bool,
    /// Whether it holds bytes or names memory, besides those of which handles are addresses.
    #[serde(default)]
    pub(crate) memory: bool,
    /// Whether it is code, or is made into code.
    #[serde(default)]
    pub(crate) code: bool,
}

impl KindEntry {
    /// Its name in messages.
    pub(crate) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.role)
    }

    /// Its variant of `Kind`: `GraphExec` for `graph exec`.
    pub(crate) fn variant(&self) -> String {
        camel(&self.role)
    }
}

/// `GraphExec` for `graph exec`.
pub(crate) fn camel(words: &str) -> String {
    words
        .split(' ')
        .map(|word| {
            let (first, rest) = word.split_at(1);
            first.to_uppercase() + rest
        })
        .collect()
}

/// All C types of handles of a kind.
pub(crate) fn handle_types<'a>(types: &Types<'a>, kind: &'a KindEntry) -> Vec<&'a str> {
    let is_of_kind =
        |name: &&str| handle_kind(types, name).is_some_and(|found| found.role == kind.role);
    let mut names: Vec<&str> = types.typedefs.keys().copied().filter(is_of_kind).collect();
    names.extend(kind.opaque.as_deref());
    names.sort_unstable();
    names
}

/// All kinds, in the order of the file.
pub(crate) fn kinds() -> &'static [KindEntry] {
    &KINDS
}

/// The kind of a handle type or of a typedef of one, such as `CUdevice_v1`.
pub(crate) fn handle_kind(types: &Types<'_>, c_type: &str) -> Option<&'static KindEntry> {
    let mut name = c_type;
    for _ in 0..8 {
        let is_of = |kind: &&KindEntry| {
            kind.handle.as_deref().is_some_and(|handle| {
                // `CUdevice` and `CUdevice_v1`, but not `int`.
                handle == name
                    || (name.starts_with("CU") && types.typedefs.get(handle) == Some(&name))
            })
        };
        if let Some(kind) = kinds().iter().find(is_of) {
            return Some(kind);
        }
        name = types.typedefs.get(name)?;
    }
    None
}

/// Whether a C type is a device address.
pub(crate) fn is_address(c_type: &str) -> bool {
    matches!(c_type, "CUdeviceptr" | "CUdeviceptr_v1" | "CUdeviceptr_v2")
}

/// The variant of the kind with that word.
pub(crate) fn known_kind(word: &str) -> Option<String> {
    let kind = kinds().iter().find(|kind| kind.role == word)?;
    Some(kind.variant())
}
