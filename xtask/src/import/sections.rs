//! Reads from the text of the headers what bindgen omits: sections (doxygen groups) and macros.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::Command;

use crate::signatures::{Constant, Default, HEADERS};
use crate::{Failure, files};

/// The header and the section of a function.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) header: String,
    pub(super) section: String,
}

/// Functions by documented name.
#[derive(Debug)]
pub(super) struct Sections(HashMap<String, Place>);

/// Functions without a group: (documented name, header, section).
const UNGROUPED: [(&str, &str, &str); 5] = [
    ("cuGraphInstantiateWithFlags", "cuda", "Graph Management"),
    ("cuGetExportTable", "cuda", "Driver Entry Point Access"),
    ("cuProfilerInitialize", "cudaProfiler", "Profiler Control"),
    ("cuProfilerStart", "cudaProfiler", "Profiler Control"),
    ("cuProfilerStop", "cudaProfiler", "Profiler Control"),
];

impl Sections {
    pub(super) fn of(&self, base: &str) -> Option<&Place> {
        self.0.get(base)
    }
}

/// Reads the groups of all headers. A `[DEPRECATED]` group belongs to the section of that name.
pub(super) fn of_headers(include: &Path, stubs: &Path) -> Result<Sections, Failure> {
    let mut places = HashMap::new();
    for (base, header, section) in UNGROUPED {
        places.insert(
            base.to_owned(),
            Place {
                header: header.to_owned(),
                section: section.to_owned(),
            },
        );
    }
    for header in HEADERS {
        let name = format!("{header}.h");
        let text =
            files::read(&include.join(&name)).or_else(|_| files::read(&stubs.join(&name)))?;
        let mut section = String::new();
        // The name of a prototype may be on the line after CUDAAPI.
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            if let Some((_, group)) = line.split_once("\\defgroup ") {
                let title = group.split_once(' ').map_or("", |(_, title)| title).trim();
                let title = title.strip_suffix("[DEPRECATED]").unwrap_or(title);
                title.trim().clone_into(&mut section);
            }
            if line.contains("@}") {
                section.clear();
            }
            let Some((_, rest)) = line.split_once("CUDAAPI") else {
                continue;
            };
            let rest = if rest.trim().is_empty() {
                lines.peek().copied().unwrap_or_default()
            } else {
                rest
            };
            let Some(base) = declared(rest).filter(|_| !section.is_empty()) else {
                continue;
            };
            places.entry(base.to_owned()).or_insert_with(|| Place {
                header: header.to_owned(),
                section: section.clone(),
            });
        }
    }
    Ok(Sections(places))
}

/// The documented name of the function in `name(...`.
fn declared(text: &str) -> Option<&str> {
    let name = text.split_once('(')?.0.trim();
    name.starts_with("cu")
        .then(|| crate::signatures::base_name(name))
}

/// Numbers that programs use: `#define NAME 0x10` and `#define NAME ((CUstream)0x1)`.
pub(super) fn constants(include: &Path) -> Result<Vec<Constant>, Failure> {
    let text = files::read(&include.join("cuda.h"))?;
    let mut constants = Vec::new();
    for line in text.lines() {
        let Some(rest) = line
            .trim_start()
            .trim_start_matches('#')
            .trim_start()
            .strip_prefix("define ")
        else {
            continue;
        };
        let Some((name, value)) = rest.trim().split_once([' ', '\t']) else {
            continue;
        };
        if !(name.starts_with("CU_") || name.starts_with("CUDA_")) || name.contains('(') {
            continue;
        }
        let value = value.split("/*").next().unwrap_or(value).trim();
        let inner = value.trim_start_matches('(').trim_end_matches(')');
        let number = inner.rsplit([')', ' ']).next().unwrap_or(inner);
        let is_number = number.starts_with(|c: char| c.is_ascii_digit() || c == '-')
            && number
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-');
        // A number, or a number's name in a cast: `((void *)CU_LAUNCH_PARAM_END_AS_INT)`.
        let known = |name: &str| constants.iter().any(|known: &Constant| known.name == name);
        if (is_number || known(number)) && !known(name) {
            constants.push(Constant {
                name: name.to_owned(),
                value: value.to_owned(),
            });
        }
    }
    Ok(constants)
}

/// The macros that turn a documented name into the newest symbol, from the preprocessor.
pub(super) fn defaults(include: &Path, stubs: &Path) -> Result<Vec<Default>, Failure> {
    let plain = macros(include, stubs, &[])?;
    let per_thread = macros(include, stubs, &["-DCUDA_API_PER_THREAD_DEFAULT_STREAM"])?;
    let mut defaults = Vec::new();
    for (base, symbol) in &plain {
        let suffix = match per_thread.get(base) {
            Some(other) if other != symbol => other.rsplit('_').next().unwrap_or_default(),
            _ => "",
        };
        defaults.push(Default {
            base: base.clone(),
            symbol: symbol.clone(),
            per_thread: suffix.to_owned(),
        });
    }
    for (base, other) in per_thread {
        if !plain.contains_key(&base) {
            let suffix = other.rsplit('_').next().unwrap_or_default().to_owned();
            defaults.push(Default {
                symbol: base.clone(),
                base,
                per_thread: suffix,
            });
        }
    }
    defaults.sort_by(|a, b| a.base.cmp(&b.base));
    Ok(defaults)
}

fn macros(
    include: &Path,
    stubs: &Path,
    flags: &[&str],
) -> Result<BTreeMap<String, String>, Failure> {
    let output = Command::new("cc")
        .args(["-E", "-dM"])
        .args(flags)
        .arg(format!("-I{}", stubs.display()))
        .arg(format!("-I{}", include.display()))
        .arg(stubs.join("cuda_everything.h"))
        .output()
        .map_err(|error| failure!("cc: {error}; import needs a C compiler"))?;
    if !output.status.success() {
        return Err(failure!(
            "cc -E: {}",
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    let ptds = flags.iter().any(|flag| flag.contains("PER_THREAD"));
    let mut found = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Some((name, value)) = line
            .strip_prefix("#define ")
            .and_then(|rest| rest.split_once(' '))
        else {
            continue;
        };
        if !name.starts_with("cu") || name.contains('(') {
            continue;
        }
        // In a per-thread build this is an inline function of cuda.h, not a symbol.
        if name == "cuGetProcAddress_v2" {
            continue;
        }
        let symbol = match value.split_once('(') {
            Some((wrapper, inside)) => {
                let suffix = if wrapper.ends_with("PTDS") {
                    "_ptds"
                } else {
                    "_ptsz"
                };
                let inside = inside.trim_end_matches(')');
                if ptds {
                    format!("{inside}{suffix}")
                } else {
                    inside.to_owned()
                }
            }
            None => value.to_owned(),
        };
        if symbol.starts_with("cu") && symbol != name {
            found.insert(name.to_owned(), symbol);
        }
    }
    Ok(found)
}
