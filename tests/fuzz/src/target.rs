//! What reads the inputs, and what it must never do: panic, die, hang, or take all memory.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use cutape_format::Trace;
use cutape_random::dice::Dice;
use cutape_tests::{Output, parts, run_within};

use crate::bytes::mutated;
use crate::corpus::Corpus;
use crate::in_process::{self, InputFile};

/// A reader.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name on the command line.
    pub name: &'static str,
    reader: Reader,
}

#[derive(Clone, Copy, Debug)]
enum Reader {
    /// `IN` in the words of a verb is the input, `SOUND` the trace it was made of, `OUT` a file or
    /// folder that is not there.
    Verb(&'static str),
    /// In the process; whether the trace was sound.
    Trace(fn(&Trace) -> bool),
    /// In the process; whether the image could be parsed.
    Image(fn(&[u8]) -> bool),
}

const fn verb(name: &'static str, words: &'static str) -> Target {
    let reader = Reader::Verb(words);
    Target { name, reader }
}

const fn trace(name: &'static str, read: fn(&Trace) -> bool) -> Target {
    let reader = Reader::Trace(read);
    Target { name, reader }
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
    trace("decode", in_process::decode),
    trace("state", in_process::state),
    trace("check", in_process::check),
    Target {
        name: "image",
        reader: Reader::Image(in_process::image),
    },
];

/// An unoptimised build on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
/// Bytes of memory that no verb needs for such small inputs.
const MEMORY: u64 = 4 << 30;

impl Target {
    /// The target of that name.
    pub fn named(name: &str) -> Option<Self> {
        TARGETS.iter().copied().find(|target| target.name == name)
    }

    /// Whether it reads in the process that makes the inputs, and not in one for each input.
    pub fn is_in_process(&self) -> bool {
        !matches!(self.reader, Reader::Verb(_))
    }

    /// The input of that seed, made of one of the corpus, and which.
    pub fn input(&self, corpus: &Corpus, seed: u64) -> (Vec<u8>, usize) {
        let mut dice = Dice::new(seed);
        match self.reader {
            Reader::Image(_) => {
                let which = dice.below(corpus.images.len());
                (mutated(&corpus.images[which], &mut dice), which)
            }
            Reader::Trace(_) => {
                let which = dice.below(corpus.cut.len());
                (corpus.cut[which].mutated(&mut dice), which)
            }
            Reader::Verb(_) => {
                let which = dice.below(corpus.traces.len());
                (corpus.traces[which].1.mutated(&mut dice), which)
            }
        }
    }

    /// Reads an input in this process; whether it was not refused as unusable.
    ///
    /// # Panics
    /// If the reader does, or is a verb.
    pub(crate) fn read_here(&self, input: &[u8], place: &InputFile) -> bool {
        match self.reader {
            Reader::Image(read) => read(input),
            Reader::Trace(read) => place.open(input).is_ok_and(|trace| read(&trace)),
            Reader::Verb(_) => panic!("{} does not read in the process", self.name),
        }
    }

    /// Gives an input to a verb, in an empty folder; `sound` is the trace it was made of. Returns
    /// whether the verb took it, and did not refuse it as unusable.
    ///
    /// # Errors
    /// What the verb did.
    pub fn read(&self, input: &[u8], sound: &Path, folder: &Path) -> Result<bool, String> {
        let Reader::Verb(words) = self.reader else {
            return Err("reads in the process".to_owned());
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
            limit_memory(&mut command, MEMORY);
        }
        let output = run_within(&mut command, LIMIT);
        let is_sound = matches!(output.code(), Some(0..=2));
        if is_sound && !output.stderr.contains("panicked") && !output.stderr.contains("bug in") {
            return Ok(output.code() != Some(2));
        }
        Err(how_it_ended(&output))
    }
}

/// How a process ended, and where it panicked.
pub(crate) fn how_it_ended(output: &Output) -> String {
    let how = match (output.code(), output.signal()) {
        (_, Some(signal)) => format!("signal {signal}"),
        (Some(code), _) => format!("status {code}"),
        (None, None) => "not done in time".to_owned(),
    };
    // Without the number of the thread before it.
    let place = output.stderr.find("panicked");
    let says = place.and_then(|at| output.stderr[at..].lines().next());
    let out_of_memory = output.stderr.find("memory allocation of");
    let says = says.or(out_of_memory.and_then(|at| output.stderr[at..].lines().next()));
    format!("{how} {}", says.unwrap_or_default())
}

pub(crate) fn limit_memory(command: &mut Command, bytes: u64) {
    let limit = libc::rlimit {
        rlim_cur: bytes,
        rlim_max: bytes,
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

#[cfg(test)]
mod tests {
    use cutape_tests::root;

    use super::*;

    #[test]
    fn what_is_not_changed_is_taken() {
        let corpus = Corpus::below(root());
        let place = InputFile::new().unwrap();
        let targets = TARGETS.iter();
        for target in targets.filter(|target| matches!(target.reader, Reader::Trace(_))) {
            for (number, parts) in corpus.cut.iter().enumerate() {
                let is_taken = target.read_here(&parts.written(), &place);
                assert!(is_taken, "{} of cut trace {number}", target.name);
            }
            for (path, _) in &corpus.traces {
                let is_taken = target.read_here(&fs::read(path).unwrap(), &place);
                assert!(is_taken, "{} of {}", target.name, path.display());
            }
        }
    }

    #[test]
    fn kept_inputs_are_read() {
        let place = InputFile::new().unwrap();
        for entry in fs::read_dir(root().join("tests/fuzz/kept"))
            .into_iter()
            .flatten()
        {
            let input = fs::read(entry.unwrap().path()).unwrap();
            let targets = TARGETS.iter();
            for target in targets.filter(|target| matches!(target.reader, Reader::Trace(_))) {
                target.read_here(&input, &place);
            }
        }
    }
}
