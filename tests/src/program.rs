//! The C programs in `programs/`: their header lines, and how they are compiled.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::compiler::c_compiler;
use crate::parts::{Parts, lock, root};
use crate::process;

/// Which of the two programs in a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Correct.
    Correct,
    /// With the violation that the source is about.
    Violation,
}

/// One program.
#[derive(Clone, Debug)]
pub struct Program {
    /// `clean/events`, `rules/link-state-leak/violation`.
    pub name: String,
    /// Which of the two it is.
    pub variant: Variant,
    /// The rules that `check` finds broken: none in a correct program.
    pub expected: Vec<String>,
    /// Rules that `check` may find broken as well.
    pub allowed: Vec<String>,
    /// Functions whose calls `replay` skips although it knows them.
    pub skipped: Vec<String>,
    /// A function that `replay` skips, so that a later result differs.
    pub diverges: Option<String>,
    /// The signal that ends it on the real driver; the null driver may answer an error instead.
    pub crash: Option<i32>,
    /// Settings of the null driver: `CUTAPE_NULL_*` and the value.
    pub environment: Vec<(String, String)>,
    /// Why `play` does not run it as it was recorded.
    pub not_played: Option<String>,
    /// Whether it has several threads.
    pub is_threaded: bool,
    source: PathBuf,
}

/// The keys of header lines.
const KEYS: [&str; 9] = [
    "expect",
    "may",
    "crashes",
    "may-crash",
    "needs",
    "replay-skips",
    "replay-diverges",
    "null-driver",
    "not-played",
];

/// Folders of programs that run in every mode.
const KINDS: [&str; 4] = ["clean", "rules", "misuse", "demo"];

/// All programs, by name.
///
/// # Errors
/// A source that cannot be read, or a header line that is unknown.
pub fn programs() -> Result<Vec<Program>, String> {
    let folder = root().join("tests/programs");
    let mut all = Vec::new();
    for kind in KINDS {
        let sources = sources(&folder.join(kind), "c")?;
        if sources.is_empty() {
            return Err(format!("no programs in {}", folder.join(kind).display()));
        }
        for source in sources {
            let text = fs::read_to_string(&source)
                .map_err(|error| format!("{}: {error}", source.display()))?;
            let about = About::read(&text).map_err(|e| format!("{}: {e}", source.display()))?;
            let stem = source.file_stem().unwrap_or_default().to_string_lossy();
            let correct = |name: String| Program {
                name,
                variant: Variant::Correct,
                expected: Vec::new(),
                allowed: Vec::new(),
                skipped: about.skipped.clone(),
                diverges: None,
                crash: None,
                environment: about.environment.clone(),
                not_played: about.not_played.clone(),
                is_threaded: text.contains("pthread_create"),
                source: source.clone(),
            };
            let wrong = |name: String| Program {
                variant: Variant::Violation,
                expected: about.expected.clone(),
                allowed: about.allowed.clone(),
                diverges: about.diverges.clone(),
                crash: about.crash,
                ..correct(name)
            };
            match kind {
                "clean" => all.push(Program {
                    allowed: about.allowed.clone(),
                    diverges: about.diverges.clone(),
                    ..correct(format!("clean/{stem}"))
                }),
                "demo" => all.push(wrong(format!("demo/{stem}"))),
                _ => {
                    all.push(correct(format!("{kind}/{stem}/correct")));
                    all.push(wrong(format!("{kind}/{stem}/violation")));
                }
            }
            if kind != "clean" && about.expected.is_empty() {
                return Err(format!("{}: no line `// expect: RULE`", source.display()));
            }
        }
    }
    Ok(all)
}

fn sources(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, String> {
    let mut sources: Vec<_> = fs::read_dir(folder)
        .map_err(|error| format!("{}: {error}", folder.display()))?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    sources.sort();
    Ok(sources)
}

#[derive(Debug, Default, PartialEq, Eq)]
struct About {
    expected: Vec<String>,
    allowed: Vec<String>,
    crash: Option<i32>,
    skipped: Vec<String>,
    diverges: Option<String>,
    environment: Vec<(String, String)>,
    not_played: Option<String>,
}

impl About {
    /// Reads the comment lines at the start of a source, up to the first line of code.
    fn read(text: &str) -> Result<Self, String> {
        let mut about = Self::default();
        for line in text
            .lines()
            .take_while(|line| !line.starts_with('#'))
            .filter_map(|line| line.strip_prefix("//"))
        {
            let Some((key, values)) = line.trim().split_once(": ") else {
                continue;
            };
            // A sentence with a colon has more words before it.
            if key.contains(' ') {
                continue;
            }
            let words = values.split_whitespace().map(str::to_owned);
            match key {
                "expect" => about.expected.extend(words),
                "may" => about.allowed.extend(words),
                "crashes" | "may-crash" => about.crash = Some(signal(values)?),
                "replay-skips" => about.skipped.extend(words),
                "replay-diverges" => about.diverges = Some(values.trim().to_owned()),
                "not-played" => about.not_played = Some(values.trim().to_owned()),
                "needs" => {}
                "null-driver" => {
                    for word in words {
                        let (name, value) = word
                            .split_once('=')
                            .filter(|(name, _)| name.starts_with("CUTAPE_NULL_"))
                            .ok_or_else(|| format!("`{word}` is not CUTAPE_NULL_NAME=VALUE"))?;
                        about.environment.push((name.to_owned(), value.to_owned()));
                    }
                }
                _ => return Err(format!("`{key}:` is none of {}", KEYS.join(", "))),
            }
        }
        Ok(about)
    }
}

fn signal(name: &str) -> Result<i32, String> {
    match name.trim() {
        "SIGSEGV" => Ok(libc::SIGSEGV),
        "SIGABRT" => Ok(libc::SIGABRT),
        "SIGBUS" => Ok(libc::SIGBUS),
        other => Err(format!("unknown signal `{other}`")),
    }
}

impl Program {
    /// Compiles it unless the result is newer than the source and the headers; the path of the
    /// result.
    ///
    /// # Errors
    /// The compiler's message.
    pub fn compile(&self, parts: &Parts) -> Result<PathBuf, String> {
        compile(
            parts,
            &self.source,
            &self.name,
            self.variant == Variant::Violation,
        )
    }
}

/// Compiles `programs/endings/endings.c`; the path of the result.
///
/// # Errors
/// The compiler's message.
pub fn endings(parts: &Parts) -> Result<PathBuf, String> {
    compile(
        parts,
        &root().join("tests/programs/endings/endings.c"),
        "endings",
        false,
    )
}

/// Compiles a source of `programs/` against the null driver.
fn compile(parts: &Parts, source: &Path, name: &str, violate: bool) -> Result<PathBuf, String> {
    let file = name.replace('/', ".");
    let target = parts.programs.join(&file);
    let _lock = lock(&parts.programs.join(format!("{file}.lock")))?;
    let programs = root().join("tests/programs");
    let mut inputs = sources(&programs, "h")?;
    inputs.extend(sources(&programs.join("include"), "h")?);
    inputs.push(source.to_owned());
    let newest = inputs.iter().filter_map(|path| modified(path)).max();
    if let (Some(built), Some(newest)) = (modified(&target), newest)
        && built > newest
    {
        return Ok(target);
    }
    let mut command = c_compiler();
    if violate {
        command.arg("-DVIOLATE");
    }
    let new = parts.programs.join(format!("{file}.new"));
    command.arg(source).arg("-o").arg(&new);
    command.arg(parts.driver_folder.join("libcuda.so.1"));
    // Before glibc 2.34 these were libraries of their own.
    command.args(["-ldl", "-lpthread"]);
    process::run(&mut command).expect(0)?;
    fs::rename(&new, &target).map_err(|error| format!("{}: {error}", target.display()))?;
    Ok(target)
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata()
        .and_then(|metadata| metadata.modified())
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers() {
        let rules = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        for (text, expected) in [
            ("/* clean */\nint x;", Ok(About::default())),
            (
                "// What it is: this.\n// expect: a-b c\n// may: d\n// crashes: SIGSEGV\n#include <x>\n// wrong: x",
                Ok(About {
                    expected: rules(&["a-b", "c"]),
                    allowed: rules(&["d"]),
                    crash: Some(libc::SIGSEGV),
                    ..About::default()
                }),
            ),
            (
                "/* clean */\n// replay-skips: cuA cuB\n// replay-diverges: cuC\n#include <x>",
                Ok(About {
                    skipped: rules(&["cuA", "cuB"]),
                    diverges: Some("cuC".to_owned()),
                    ..About::default()
                }),
            ),
            (
                "// null-driver: CUTAPE_NULL_DEVICES=2",
                Ok(About {
                    environment: vec![("CUTAPE_NULL_DEVICES".to_owned(), "2".to_owned())],
                    ..About::default()
                }),
            ),
            (
                "// null-driver: DEVICES=2",
                Err("`DEVICES=2` is not CUTAPE_NULL_NAME=VALUE".to_owned()),
            ),
            ("// Both were seen: a crash", Ok(About::default())),
            (
                "// expects: a",
                Err(format!("`expects:` is none of {}", KEYS.join(", "))),
            ),
            (
                "// crashes: SIGFOO",
                Err("unknown signal `SIGFOO`".to_owned()),
            ),
        ] {
            assert_eq!(About::read(text), expected, "{text}");
        }
    }

    /// Folders whose sources other tests compile.
    const OTHERS: [&str; 20] = [
        "ctl", "diff", "endings", "execute", "faults", "forward", "growing", "hang", "loading",
        "markers", "memory", "play", "private", "profile", "ranks", "redact", "sandbox", "size",
        "sources", "stacks",
    ];

    /// A program in a folder that no test knows would never run.
    #[test]
    fn every_source_belongs_to_a_test() {
        let folder = root().join("tests/programs");
        let mut unknown = Vec::new();
        for entry in fs::read_dir(&folder).unwrap().flatten() {
            let name = entry.file_name().into_string().unwrap();
            let is_known = KINDS.contains(&name.as_str()) || OTHERS.contains(&name.as_str());
            let sources = match entry.path().is_dir() {
                true => sources(&entry.path(), "c").unwrap(),
                false => vec![entry.path()],
            };
            let is_source = |path: &&PathBuf| path.extension().is_some_and(|found| found == "c");
            unknown.extend(
                sources
                    .iter()
                    .filter(is_source)
                    .filter(|_| !is_known)
                    .cloned(),
            );
        }
        assert!(unknown.is_empty(), "{unknown:?}");
        let all = programs().unwrap();
        for kind in KINDS {
            let count = sources(&folder.join(kind), "c").unwrap().len();
            let variants = if ["rules", "misuse"].contains(&kind) {
                2
            } else {
                1
            };
            let listed = all
                .iter()
                .filter(|program| program.name.starts_with(&format!("{kind}/")));
            assert_eq!(listed.count(), count * variants, "{kind}");
        }
    }

    /// `cargo xtask coverage --rules` finds the rules that no test breaks.
    #[test]
    fn every_program_breaks_known_rules() {
        for program in programs().unwrap() {
            for rule in &program.expected {
                let known = cutape_registry::rule(rule);
                assert!(known.is_some(), "{}: no rule {rule}", program.name);
            }
        }
    }
}
