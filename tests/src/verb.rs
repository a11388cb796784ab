//! The verbs of cutape, as its help describes them: tests of every verb need no list of them.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use crate::parts::parts;
use crate::process::run;

/// A verb, with the text of its help.
#[derive(Debug)]
pub struct Verb {
    /// Its name.
    pub name: String,
    help: String,
}

/// The verbs that `cutape --help` lists.
///
/// # Panics
/// If the help lists none.
pub fn verbs() -> &'static [Verb] {
    static VERBS: OnceLock<Vec<Verb>> = OnceLock::new();
    VERBS.get_or_init(|| {
        let help = |words: &[&str]| run(Command::new(&parts().cutape).args(words)).stdout;
        let all = help(&["--help"]);
        let (_, list) = all.split_once("Commands:\n").expect("a list of verbs");
        let lines = list.lines().take_while(|line| !line.is_empty());
        // Lines that begin farther to the right continue a description.
        let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
        names
            .filter_map(|line| line.split_whitespace().next())
            .filter(|&name| name != "help")
            .map(|name| Verb {
                name: name.to_owned(),
                help: help(&[name, "--help"]),
            })
            .collect()
    })
}

impl Verb {
    /// Whether it has that option.
    pub fn takes(&self, option: &str) -> bool {
        self.help.lines().any(|line| {
            let mut words = line.split([' ', ',', '[', '=']);
            line.starts_with("  ") && words.find(|word| !word.is_empty()) == Some(option)
                || line.contains(&format!(", {option} "))
        })
    }

    /// Whether it calls a driver, whatever its options are.
    pub fn calls_driver(&self) -> bool {
        // `trim` needs one for `--state replay` only.
        self.takes("--driver") && !self.takes("--state")
    }

    /// A command line for each of its usages, with what it needs: the trace `sound.cutape`, the
    /// executable `./program`, the output `OUT`, and the null driver.
    ///
    /// # Panics
    /// If an argument has no value below.
    pub fn command_lines(&self) -> Vec<String> {
        let usages = self.help.lines().filter_map(|line| {
            let line = line.trim_start().trim_start_matches("Usage: ");
            line.strip_prefix(&format!("cutape {} [OPTIONS]", self.name))
        });
        let driver = self.calls_driver().then_some("--driver null");
        usages
            .map(|usage| {
                let arguments = required(usage);
                let values = arguments.split_whitespace().map(|word| self.value(word));
                let words = [&*self.name].into_iter().chain(driver).chain(values);
                words.collect::<Vec<_>>().join(" ")
            })
            .collect()
    }

    fn value<'w>(&self, word: &'w str) -> &'w str {
        match word {
            "TRACE" | "A" | "B" => "sound.cutape",
            "ACTION" => "status",
            // More than any system has.
            "PID" => "4194305",
            "FILE" | "PATH" | "FOLDER" => "OUT",
            "PROGRAM" => "./program end",
            "FORMAT" => "jsonl",
            "SET" | "N" => "0",
            "BYTES" => "0x1000",
            "RULE" => "memory-leak",
            "SHELL" => "bash",
            "TEXT" => "text",
            word if word.starts_with('-') => word,
            word => panic!("cutape {} needs {word}: add a value for it here", self.name),
        }
    }
}

/// What is not optional in a usage; of alternatives the first.
fn required(usage: &str) -> String {
    let mut text = String::new();
    let mut rest = usage;
    while let Some(start) = rest.find(['<', '[']) {
        text += &rest[..start];
        let group = &rest[start..];
        let mut depth = 0;
        let end = group.find(|c: char| {
            depth += i32::from("<[".contains(c)) - i32::from(">]".contains(c));
            depth == 0
        });
        let end = end.expect("the end of a group");
        if group.starts_with('<') {
            let first = group[1..end].split('|').next();
            text += &required(first.unwrap_or_default());
        }
        rest = group[end + 1..].trim_start_matches("...");
    }
    text + rest
}

/// A command that reads a trace.
#[derive(Clone, Debug)]
pub struct Reader {
    /// The verb, or what is special about the command.
    pub name: String,
    words: String,
    /// Whether it repairs damaged traces.
    pub repairs: bool,
}

/// Beside a command for each verb that reads a trace.
const OTHER_READERS: [(&str, &str); 4] = [
    ("first-look", "TRACE"),
    ("export-perfetto", "export --format perfetto TRACE -o OUT"),
    ("export-parquet", "export --format parquet TRACE -o OUT"),
    ("extract-all", "extract --all --driver null TRACE OUT"),
];

/// Commands that read a trace, of every verb but `view`, which looks for a terminal first.
///
/// # Panics
/// As [`Verb::command_lines`].
pub fn readers() -> Vec<Reader> {
    let verbs = verbs().iter().filter(|verb| verb.name != "view");
    let of_verbs = verbs.flat_map(|verb| {
        let lines = verb.command_lines().into_iter();
        let reading = lines.filter(|line| line.contains("sound.cutape"));
        reading.map(|line| Reader {
            name: verb.name.clone(),
            words: line.replacen("sound.cutape", "TRACE", 1),
            repairs: verb.name == "repair",
        })
    });
    let others = OTHER_READERS.iter().map(|(name, words)| Reader {
        name: (*name).to_owned(),
        words: (*words).to_owned(),
        repairs: false,
    });
    of_verbs.chain(others).collect()
}

impl Reader {
    /// The arguments of cutape with which it reads that trace; if it writes an output, to there.
    /// Verbs that take two traces get `sound.cutape` as the other one.
    pub fn words_for<'a>(
        &'a self,
        trace: &'a Path,
        output: &'a OsStr,
    ) -> impl Iterator<Item = &'a OsStr> {
        self.words.split(' ').map(move |word| match word {
            "TRACE" => trace.as_os_str(),
            "OUT" => output,
            word => word.as_ref(),
        })
    }
}
