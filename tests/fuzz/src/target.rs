//! What reads the inputs, and what it must never do: panic, die, hang, or take all memory.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use cutape_format::Trace;
use cutape_format::layout::BlobRef;
use cutape_image::{code, entries_for, extent, kind, parse, unpack, without_unused_code};
use cutape_random::dice::Dice;
use cutape_tests::{parts, root, run_within};

use crate::{mutated, mutated_trace};

/// A reader. `IN` in the words of a verb is the input, `SOUND` the trace it was made of, `OUT` a
/// file or folder that is not there.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name on the command line.
    pub name: &'static str,
    /// The words of the verb; none for the parsers of images.
    words: Option<&'static str>,
}

const fn verb(name: &'static str, words: &'static str) -> Target {
    Target {
        name,
        words: Some(words),
    }
}

/// All of them.
pub const TARGETS: &[Target] = &[
    verb("reader", "dump --format json --stacks IN"),
    verb("text", "dump IN"),
    verb("info", "info IN"),
    verb("analyzer", "check --all --format json IN"),
    verb("report", "report IN --output OUT"),
    verb("export-jsonl", "export --format jsonl --output OUT IN"),
    verb("export-parquet", "export --format parquet --output OUT IN"),
    verb(
        "export-perfetto",
        "export --format perfetto --output OUT IN",
    ),
    verb("export-chrome", "export --format chrome --output OUT IN"),
    verb("diff", "diff SOUND IN"),
    verb("pack", "pack IN"),
    verb(
        "redact",
        "redact --remove payloads,parameters,environment,paths,names --output OUT IN",
    ),
    verb("hang", "hang --watch 0 IN"),
    verb("repair", "repair --output OUT IN"),
    verb("trim", "trim --output OUT --calls 2..9 IN"),
    verb("images", "extract --images IN OUT"),
    verb("replay", "replay --driver null --force --keep-going IN"),
    Target {
        name: "image",
        words: None,
    },
];

/// The largest input: larger ones take long to read without saying more.
const LARGEST: u64 = 160 << 10;
/// An unoptimised build on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
/// Bytes of memory that no reader of such small inputs needs.
const MEMORY: u64 = 4 << 30;

impl Target {
    /// The target of that name.
    pub fn named(name: &str) -> Option<Self> {
        TARGETS.iter().copied().find(|target| target.name == name)
    }

    /// Whether inputs are images and read in this process.
    pub fn is_of_images(&self) -> bool {
        self.words.is_none()
    }

    /// The input of that seed, made of one of the corpus, and which.
    pub fn input(&self, corpus: &Corpus, seed: u64) -> (Vec<u8>, usize) {
        let mut dice = Dice::new(seed);
        match self.is_of_images() {
            true => {
                let which = dice.below(corpus.images.len());
                (mutated(&corpus.images[which], &mut dice), which)
            }
            false => {
                let which = dice.below(corpus.traces.len());
                (mutated_trace(&corpus.traces[which].1, &mut dice), which)
            }
        }
    }

    /// Gives an input to the reader, in an empty folder; `sound` is the trace it was made of.
    /// Returns whether the reader took it, and did not refuse it as unusable.
    ///
    /// # Errors
    /// What the reader did.
    pub fn read(&self, input: &[u8], sound: &Path, folder: &Path) -> Result<bool, String> {
        let Some(words) = self.words else {
            return Ok(read_image(input));
        };
        let failed = |error: io::Error| format!("{}: {error}", folder.display());
        let path = folder.join("in.cutape");
        fs::write(&path, input).map_err(failed)?;
        let mut command = Command::new(&parts().cutape);
        command.args(words.split(' ').map(|word| match word {
            "IN" => path.as_os_str(),
            "SOUND" => sound.as_os_str(),
            "OUT" => "out".as_ref(),
            word => word.as_ref(),
        }));
        command.current_dir(folder);
        if self.name != "replay" {
            limit_memory(&mut command);
        }
        let output = run_within(&mut command, LIMIT);
        let is_sound = matches!(output.code(), Some(0..=2));
        if is_sound && !output.stderr.contains("panicked") && !output.stderr.contains("bug in") {
            return Ok(output.code() != Some(2));
        }
        let says = output.stderr.lines().find(|line| line.contains("panicked"));
        let how = match (output.code(), output.signal()) {
            (Some(code), _) => format!("status {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "not done in time".to_owned(),
        };
        Err(format!("{how} {}", says.unwrap_or_default().trim()))
    }
}

fn limit_memory(command: &mut Command) {
    let limit = libc::rlimit {
        rlim_cur: MEMORY,
        rlim_max: MEMORY,
    };
    // SAFETY: the call is allowed between fork and exec, and reads a limit that the closure owns.
    unsafe {
        command.pre_exec(
            move || match libc::setrlimit(libc::RLIMIT_DATA, &raw const limit) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            },
        );
    }
}

/// Parses an image as all crates do; whether it can be parsed.
fn read_image(bytes: &[u8]) -> bool {
    let _ = (
        kind(bytes),
        extent(bytes),
        cutape_image::wrapper_data(bytes),
    );
    let _ = code(bytes);
    let _ = entries_for(bytes, &[(8, 0), (9, 0)]);
    let _ = without_unused_code(bytes, &|name| name.len() % 2 == 0);
    let _ = unpack(bytes, |_, _| {});
    parse(bytes).is_ok()
}

/// What inputs are made of.
pub struct Corpus {
    /// Traces with their files.
    pub traces: Vec<(PathBuf, Vec<u8>)>,
    /// Images.
    pub images: Vec<Vec<u8>>,
}

impl Corpus {
    /// A trace that every reader takes, and its file.
    ///
    /// # Panics
    /// If it is not in the repository.
    pub fn sound(&self) -> (&Path, &[u8]) {
        let is_sound = |path: &Path| path.ends_with("traces/clean/events.cutape");
        let (path, bytes) = self.traces.iter().find(|(path, _)| is_sound(path)).unwrap();
        (path, bytes)
    }

    /// The small traces of the repository, and the images in them.
    ///
    /// # Panics
    /// If a file of the repository cannot be read.
    pub fn of_repository() -> Self {
        let mut traces = Vec::new();
        for folder in [
            "format/tests/golden",
            "traces/clean",
            "traces/misuse",
            "traces/frameworks",
        ] {
            collect(&root().join(folder), &mut traces);
        }
        traces.sort();
        let ptx = fs::read(root().join("driver/src/mix.ptx")).unwrap();
        let mut images = vec![ptx];
        for (path, _) in &traces {
            let trace = Trace::open_damaged(path).unwrap();
            for (position, length) in trace.blobs() {
                let blob = BlobRef { position, length };
                images.extend(trace.blob(blob).ok().map(|bytes| bytes.to_vec()));
            }
        }
        images.retain(|image| image.len() as u64 <= LARGEST);
        images.sort();
        images.dedup();
        Self { traces, images }
    }
}

fn collect(folder: &Path, traces: &mut Vec<(PathBuf, Vec<u8>)>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let is_trace = path.extension().is_some_and(|ending| ending == "cutape");
        if is_trace && entry.metadata().unwrap().len() <= LARGEST {
            let bytes = fs::read(&path).unwrap();
            traces.push((path, bytes));
        }
    }
}
