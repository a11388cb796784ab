//! Reads `registry/signatures`.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::{Failure, files};

/// The symbol without `_ptsz` or `_ptds`, the suffixes of per-thread variants.
pub(crate) fn without_per_thread(symbol: &str) -> &str {
    let plain = symbol.strip_suffix("_ptsz");
    plain.or(symbol.strip_suffix("_ptds")).unwrap_or(symbol)
}

/// The documented name: without `_ptsz`/`_ptds` and without `_vN`.
pub(crate) fn base_name(symbol: &str) -> &str {
    let name = without_per_thread(symbol);
    match name.rsplit_once("_v") {
        Some((base, version))
            if !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit()) =>
        {
            base
        }
        _ => name,
    }
}

/// The folder, from the root of the repository.
pub(crate) const FOLDER: &str = "registry/signatures";
/// The file of versions.
const VERSIONS: &str = "registry/versions.txt";

/// The headers; each has a file.
pub(crate) const HEADERS: [&str; 5] = ["cuda", "cudaGL", "cudaEGL", "cudaVDPAU", "cudaProfiler"];

/// The files that are not about one header.
const OTHERS: [&str; 4] = ["enums", "structs", "typedefs", "macros"];

/// The declarations of all headers; each file has some of the fields.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Signatures {
    /// In the order of their ids.
    #[serde(rename = "function")]
    pub(crate) functions: Vec<Function>,
    #[serde(rename = "enum")]
    pub(crate) enums: Vec<Enum>,
    #[serde(rename = "struct")]
    pub(crate) structs: Vec<Struct>,
    #[serde(rename = "typedef")]
    pub(crate) typedefs: Vec<Typedef>,
    #[serde(rename = "constant")]
    pub(crate) constants: Vec<Constant>,
    #[serde(rename = "default")]
    pub(crate) defaults: Vec<Default>,
}

/// An exported symbol.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Function {
    pub(crate) id: u16,
    pub(crate) name: String,
    pub(crate) base: String,
    pub(crate) section: String,
    pub(crate) first: String,
    pub(crate) last: String,
    pub(crate) returns: String,
    /// C type, name, width.
    pub(crate) params: Vec<(String, String, String)>,
    /// The header that declares it, from the name of the file.
    #[serde(skip)]
    pub(crate) header: String,
    /// The version of the API that introduced it, from `versions.txt`.
    #[serde(skip)]
    pub(crate) since: u32,
}

/// An enum; `name` is its typedef, or its tag if it has none.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Enum {
    pub(crate) name: String,
    pub(crate) tag: String,
    pub(crate) width: String,
    pub(crate) values: Vec<(String, i64)>,
}

/// A struct or union. The name of one inside another contains `::`.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Struct {
    pub(crate) name: String,
    pub(crate) tag: String,
    pub(crate) kind: String,
    pub(crate) size: u32,
    pub(crate) align: u32,
    /// Name (empty: anonymous), C type, offset, size.
    pub(crate) members: Vec<(String, String, u32, u32)>,
}

/// A typedef, except of an enum or a struct itself.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Typedef {
    pub(crate) name: String,
    /// A type, or `R (*)(P, P)` for a pointer to a function.
    pub(crate) target: String,
}

/// A macro with a number.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Constant {
    pub(crate) name: String,
    pub(crate) value: String,
}

/// The symbol that `base` means in a source file.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Default {
    pub(crate) base: String,
    pub(crate) symbol: String,
    /// The suffix in a build with per-thread default streams: `ptds`, `ptsz` or empty.
    pub(crate) per_thread: String,
}

impl Signatures {
    /// The macros whose names begin with that word, as the values of an enum.
    pub(crate) fn macro_values(&self, prefix: &str) -> Vec<(String, i64)> {
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(digits) => i64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        let begins = |name: &str| {
            name.strip_prefix(prefix)
                .is_some_and(|rest| rest.starts_with('_'))
        };
        self.constants
            .iter()
            .filter(|entry| begins(&entry.name))
            .filter_map(|entry| Some((entry.name.clone(), number(&entry.value)?)))
            .collect()
    }

    /// Reads the folder and checks that the ids run from 0 without a gap.
    pub(crate) fn load(root: &Path) -> Result<Self, Failure> {
        let mut all = Signatures::default();
        for name in HEADERS.into_iter().chain(OTHERS) {
            let mut file: Signatures =
                files::read_toml(&root.join(FOLDER).join(format!("{name}.toml")))
                    .map_err(|failure| failure!("{failure}; run `cargo xtask import`"))?;
            for function in &mut file.functions {
                name.clone_into(&mut function.header);
            }
            all.functions.append(&mut file.functions);
            all.enums.append(&mut file.enums);
            all.structs.append(&mut file.structs);
            all.typedefs.append(&mut file.typedefs);
            all.constants.append(&mut file.constants);
            all.defaults.append(&mut file.defaults);
        }
        all.functions.sort_by_key(|function| function.id);
        for (position, function) in all.functions.iter().enumerate() {
            if usize::from(function.id) != position {
                return Err(failure!(
                    "{FOLDER}: ids are not 0, 1, 2, ...: {} has {} at position {position}",
                    function.name,
                    function.id
                ));
            }
        }
        all.add_versions(&root.join(VERSIONS))?;
        Ok(all)
    }

    /// Reads a symbol and its version a line; every function has one.
    fn add_versions(&mut self, path: &Path) -> Result<(), Failure> {
        let text = fs::read_to_string(path).map_err(|error| failure!("{VERSIONS}: {error}"))?;
        let mut versions = HashMap::new();
        for line in text.lines() {
            let parsed = line.split_once(' ');
            let parsed = parsed.and_then(|(symbol, since)| Some((symbol, since.parse().ok()?)));
            let (symbol, since) = parsed.ok_or_else(|| failure!("{VERSIONS}: {line:?}"))?;
            versions.insert(symbol, since);
        }
        for function in &mut self.functions {
            let since = versions.remove(&*function.name);
            function.since =
                since.ok_or_else(|| failure!("{VERSIONS}: {} has no version", function.name))?;
        }
        match versions.keys().min() {
            Some(symbol) => Err(failure!("{VERSIONS}: no header declares {symbol}")),
            None => Ok(()),
        }
    }
}

/// All types, by name.
#[derive(Debug)]
pub(crate) struct Types<'a> {
    pub(crate) enums: HashMap<&'a str, &'a Enum>,
    pub(crate) structs: HashMap<&'a str, &'a Struct>,
    pub(crate) typedefs: HashMap<&'a str, &'a str>,
}

/// What a C type is behind its typedefs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Shape<'a> {
    /// A number: its width word, e.g. `u4`.
    Number(&'static str),
    Enum(&'a Enum),
    Struct(&'a Struct),
    /// A pointer to data.
    Pointer,
    /// A pointer to a function.
    Callback,
    Void,
}

impl<'a> Types<'a> {
    /// Indexes all types by typedef and by tag.
    pub(crate) fn new(signatures: &'a Signatures) -> Self {
        let mut types = Types {
            enums: HashMap::new(),
            structs: HashMap::new(),
            typedefs: HashMap::new(),
        };
        for entry in &signatures.enums {
            types.enums.insert(&entry.name, entry);
        }
        for entry in &signatures.structs {
            types.structs.insert(&entry.name, entry);
        }
        for entry in &signatures.typedefs {
            types.typedefs.insert(&entry.name, &entry.target);
        }
        types
    }

    /// The shape of a C type; `None` for an unknown name.
    pub(crate) fn shape(&self, c_type: &'a str) -> Option<Shape<'a>> {
        let mut name = c_type.trim();
        // The bound stops at a circle of typedefs in an edited file.
        for _ in 0..32 {
            if name.contains("(*)") {
                return Some(Shape::Callback);
            }
            if name.ends_with('*') {
                return Some(Shape::Pointer);
            }
            name = name.strip_prefix("const ").unwrap_or(name);
            if let Some(number) = number(name) {
                return Some(Shape::Number(number));
            }
            if name == "void" {
                return Some(Shape::Void);
            }
            if let Some(entry) = self.enums.get(name) {
                return Some(Shape::Enum(entry));
            }
            if let Some(entry) = self.structs.get(name) {
                return Some(Shape::Struct(entry));
            }
            name = self.typedefs.get(name)?;
        }
        None
    }

    /// Bytes of a value of that C type.
    pub(crate) fn size(&self, c_type: &'a str) -> Option<u32> {
        if let Some((element, counts)) = c_type.split_once(" [") {
            let mut size = self.size(element)?;
            for count in counts.trim_end_matches(']').split("][") {
                size = size.checked_mul(count.parse().ok()?)?;
            }
            return Some(size);
        }
        Some(match self.shape(c_type)? {
            Shape::Number(width) => width_bytes(width)?,
            Shape::Enum(entry) => width_bytes(&entry.width)?,
            Shape::Struct(entry) => entry.size,
            Shape::Pointer | Shape::Callback => 8,
            Shape::Void => return None,
        })
    }
}

/// The type that a pointer type points at.
pub(crate) fn pointee(c_type: &str) -> Option<&str> {
    let inner = c_type.strip_suffix('*')?.trim_end();
    // `const char *const *`: the inner const belongs to the pointer.
    let inner = inner
        .strip_suffix(" *const")
        .map_or(inner, |_| inner.trim_end_matches("const"));
    Some(
        inner
            .strip_prefix("const ")
            .filter(|rest| !rest.contains('*'))
            .unwrap_or(inner),
    )
}

/// The width word of a C number type.
pub(crate) fn number(name: &str) -> Option<&'static str> {
    Some(match name {
        "char" | "signed char" | "int8_t" => "i1",
        "unsigned char" | "uint8_t" | "bool" => "u1",
        "short" | "int16_t" => "i2",
        "unsigned short" | "uint16_t" => "u2",
        "int" | "int32_t" => "i4",
        "unsigned int" | "uint32_t" => "u4",
        "long" | "long long" | "int64_t" => "i8",
        "unsigned long" | "unsigned long long" | "uint64_t" | "size_t" => "u8",
        "float" => "f4",
        "double" => "f8",
        _ => return None,
    })
}

/// The bytes in a width word.
pub(crate) fn width_bytes(width: &str) -> Option<u32> {
    width.get(1..)?.parse().ok()
}

/// A member with a dotted name and its offset in the whole struct.
#[derive(Debug)]
pub(crate) struct FlatField {
    pub(crate) name: String,
    pub(crate) c_type: String,
    pub(crate) offset: u32,
    pub(crate) size: u32,
    /// The structs around it within the whole one, with the prefix of their members:
    /// `CUmemLocation`, `location.`.
    pub(crate) inside: Vec<(String, String)>,
}

/// The members of a struct and of the structs inside it, in the order of their offsets.
pub(crate) fn flat(types: &Types<'_>, entry: &Struct) -> Vec<FlatField> {
    let mut fields = Vec::new();
    flatten(types, entry, "", 0, &[], &mut fields);
    fields.sort_by_key(|field| field.offset);
    fields
}

fn flatten(
    types: &Types<'_>,
    entry: &Struct,
    prefix: &str,
    base: u32,
    inside: &[(String, String)],
    fields: &mut Vec<FlatField>,
) {
    for (name, c_type, offset, size) in &entry.members {
        let dotted = match (prefix.is_empty(), name.is_empty()) {
            (_, true) => prefix.to_owned(),
            (true, false) => name.clone(),
            (false, false) => format!("{prefix}.{name}"),
        };
        let inner = if c_type.contains([' ', '*']) {
            None
        } else {
            types.shape(c_type)
        };
        match inner {
            Some(Shape::Struct(inner)) => {
                let mut inside = inside.to_vec();
                inside.push((c_type.clone(), format!("{dotted}.")));
                flatten(types, inner, &dotted, base + offset, &inside, fields);
            }
            _ => fields.push(FlatField {
                name: dotted,
                c_type: c_type.clone(),
                offset: base + offset,
                size: *size,
                inside: inside.to_vec(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documented_names() {
        for (symbol, base) in [
            ("cuInit", "cuInit"),
            ("cuMemAlloc_v2", "cuMemAlloc"),
            ("cuMemcpyHtoD_v2_ptds", "cuMemcpyHtoD"),
            ("cuStreamSynchronize_ptsz", "cuStreamSynchronize"),
            ("cuCtxCreate_v4", "cuCtxCreate"),
            ("cuThing_vision", "cuThing_vision"),
        ] {
            assert_eq!(base_name(symbol), base);
        }
    }

    #[test]
    fn what_pointers_point_at() {
        for (c_type, target) in [
            ("const char *", Some("char")),
            ("CUdeviceptr *", Some("CUdeviceptr")),
            ("void **", Some("void *")),
            ("const char **", Some("const char *")),
            ("const char *const *", Some("const char *")),
            ("size_t", None),
        ] {
            assert_eq!(pointee(c_type), target, "{c_type}");
        }
    }

    #[test]
    fn types_of_the_repository_have_sizes() {
        let signatures = Signatures::load(&crate::root()).unwrap();
        let types = Types::new(&signatures);
        for (c_type, size) in [
            ("CUdevice", 4),
            ("CUdeviceptr", 8),
            ("CUdeviceptr_v1", 4),
            ("CUresult", 4),
            ("CUDA_MEMCPY3D", 200),
            ("CUipcMemHandle", 64),
            ("CUhostFn", 8),
            ("CUcontext", 8),
            ("unsigned int [2][3]", 24),
            ("const CUlaunchConfig", 56),
        ] {
            assert_eq!(types.size(c_type), Some(size), "{c_type}");
        }
        assert_eq!(types.size("void"), None);
        assert_eq!(types.size("CUnothing"), None);
    }
}
