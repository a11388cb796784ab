//! Runs programs under a schedule: bare, recorded, checked, replayed, played.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use cutape_tests::{
    Finding, Output, compile, parts, play, read_findings, record, replay, root, run_within,
};

use crate::order::{CopiedBytes, Expected, expected};
use crate::program::Program;
use crate::recording::copies;

/// A command that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(20);

/// Devices of the null driver.
pub const DEVICES: u8 = 2;

/// What must hold of a correct program. Each needs those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Property {
    /// Alone, it prints what the order of its operations says.
    Bare,
    /// Recorded, it prints the same.
    Recorded,
    /// What the recording says that copies have copied to the host is right.
    Bytes,
    /// `check` has nothing above advice.
    Checked,
    /// A replay has no divergence.
    Replayed,
    /// Run again on the answers of the recording, it prints the same. Programs whose CPU learns without
    /// a call that work is complete are left out.
    Played,
    /// The same, recorded with `--cassette`.
    Cassette,
}

/// A property that does not hold.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which.
    pub property: Property,
    /// What happened instead.
    pub message: String,
}

/// When work runs while a program runs, and while its recording is replayed.
#[derive(Clone, Debug)]
pub struct Schedules {
    /// `CUTAPE_NULL_SCHEDULE` of the program.
    pub program: String,
    /// Of the replay.
    pub replay: String,
}

impl Schedules {
    /// All that a program is run under: each schedule once for the program and once for a replay.
    pub fn all(seed: u64) -> Vec<Schedules> {
        let random = format!("random:{seed}");
        let names = ["eager", "lazy", &random];
        (0..names.len())
            .map(|at| Schedules {
                program: names[at].to_owned(),
                replay: names[(at + 1) % names.len()].to_owned(),
            })
            .collect()
    }
}

/// The compiled interpreter, and where it runs.
pub struct Runner {
    interpreter: PathBuf,
    folder: PathBuf,
}

/// The kernel of the programs.
pub fn kernel() -> PathBuf {
    root().join("driver/src/mix.ptx")
}

impl Runner {
    /// Compiles the interpreter; files go into a new folder of that name.
    pub fn new(name: &str) -> Self {
        let folder = parts().new_folder(name);
        let interpreter = folder.join("interpreter");
        let library = parts().driver_folder.join("libcuda.so.1");
        let source = root().join("tests/random/interpreter.c");
        compile(&source, &interpreter, &[&library, &"-ldl", &"-lpthread"]);
        Self {
            interpreter,
            folder,
        }
    }

    /// Writes programs: the command that runs them, what it prints, and what copies copy.
    fn write(&self, programs: &[Program]) -> (Vec<String>, String, Vec<CopiedBytes>) {
        let mut words = vec![text(&self.interpreter), text(&kernel())];
        let mut printed = String::new();
        let mut copied = Vec::new();
        for (at, program) in programs.iter().enumerate() {
            let path = self.folder.join(format!("{at}.txt"));
            let (text_of, places) = program.text();
            fs::write(&path, text_of).expect("the folder can be written");
            words.push(text(&path));
            let expected = expected(program).unwrap_or_else(|mistake| panic!("{mistake}"));
            printed += &lines(&expected, &places);
            copied.extend(expected.copies);
        }
        (words, printed + "EXIT-SUCCESS\n", copied)
    }

    /// Runs programs in one process for each property, up to a last one.
    ///
    /// # Errors
    /// The first property that does not hold.
    ///
    /// # Panics
    /// If a program is not correct, or a file cannot be written.
    pub fn run(
        &self,
        programs: &[Program],
        schedules: &Schedules,
        last: Property,
    ) -> Result<(), Failure> {
        let (words, printed, copied) = self.write(programs);
        // Work that waits for a call would wait for ever.
        let is_silent = programs.iter().any(Program::has_silent_waits);
        let own_schedule = match schedules.program.as_str() {
            "lazy" if is_silent => "random:1",
            schedule => schedule,
        };
        let with = |command: &mut Command, schedule: &str| {
            command.env("CUTAPE_NULL_SCHEDULE", schedule);
            command.env("CUTAPE_NULL_DEVICES", DEVICES.to_string());
            run_within(command, LIMIT)
        };
        let mut bare = Command::new(&words[0]);
        bare.args(&words[1..]);
        bare.env("LD_LIBRARY_PATH", &parts().driver_folder);
        let output = with(&mut bare, own_schedule);
        expect_printed(Property::Bare, &output, &printed)?;
        if last < Property::Recorded {
            return Ok(());
        }
        let trace = self.trace();
        let record = |options: &[&str], words: &[String], printed: &str| {
            let _ = fs::remove_file(&trace);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let output = with(&mut record(&trace, options, &words), own_schedule);
            expect_printed(Property::Recorded, &output, printed)
        };
        record(&[], &words, &printed)?;
        if last < Property::Bytes {
            return Ok(());
        }
        expect_bytes(&trace, &copied)?;
        if last < Property::Checked {
            return Ok(());
        }
        expect_clean(&trace)?;
        if last < Property::Replayed {
            return Ok(());
        }
        // What the recording cannot tell is no divergence, and says so.
        let output = with(
            replay(&trace).args(["--allow", "consequence"]),
            &schedules.replay,
        );
        output.expect(0).map_err(|message| Failure {
            property: Property::Replayed,
            message,
        })?;
        if last < Property::Played {
            return Ok(());
        }
        let programs: Vec<Program> = programs
            .iter()
            .filter(|program| !program.has_silent_waits())
            .cloned()
            .collect();
        if programs.is_empty() {
            return Ok(());
        }
        let (words, printed, _) = self.write(&programs);
        let played = [
            (Property::Played, &[][..]),
            (Property::Cassette, &["--cassette"]),
        ];
        for (property, options) in played.into_iter().filter(|one| one.0 <= last) {
            record(options, &words, &printed)?;
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let output = with(&mut play(&trace, &[], &words), &schedules.replay);
            expect_printed(property, &output, &printed)?;
        }
        Ok(())
    }

    /// Records a program with a mistake and checks the recording; the rules about races that it
    /// breaks, and all others above advice. A race with a memset without a stream is an advice.
    ///
    /// # Errors
    /// If it cannot be recorded or checked.
    ///
    /// # Panics
    /// If a file cannot be written.
    pub fn find_mistakes(&self, program: &Program, schedule: &str) -> Result<Vec<String>, String> {
        let path = self.folder.join("wrong.txt");
        fs::write(&path, program.text().0).expect("the folder can be written");
        let words = [&self.interpreter, &kernel(), &path].map(|path| text(path));
        let trace = self.trace();
        let _ = fs::remove_file(&trace);
        let mut command = record(&trace, &[], &[&words[0], &words[1], &words[2]]);
        command.env("CUTAPE_NULL_SCHEDULE", schedule);
        command.env("CUTAPE_NULL_DEVICES", DEVICES.to_string());
        run_within(&mut command, LIMIT).expect(0)?;
        let findings = all_findings(&trace)?.into_iter();
        let is_found = |finding: &Finding| {
            finding.severity != "advice" || finding.rule.starts_with("memory-race")
        };
        let found = findings.filter(is_found);
        Ok(found.map(|finding| finding.rule).collect())
    }

    /// Where the last recording is.
    pub fn trace(&self) -> PathBuf {
        self.folder.join("recorded.cutape")
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// What the interpreter prints for a program.
pub fn lines(expected: &Expected, places: &[usize]) -> String {
    let mut text = "program\n".to_owned();
    for (position, digest) in &expected.reads {
        text += &format!("{} {digest:016x}\n", places[*position]);
    }
    text
}

fn expect_printed(property: Property, output: &Output, printed: &str) -> Result<(), Failure> {
    let failed = |message| Failure { property, message };
    output.expect(0).map_err(failed)?;
    if output.stdout == printed {
        return Ok(());
    }
    let pairs = output.stdout.lines().zip(printed.lines());
    let differing = pairs.filter(|(got, wanted)| got != wanted);
    let differing: Vec<String> = differing
        .take(5)
        .map(|(got, wanted)| format!("read {got}, expected {wanted}"))
        .collect();
    Err(failed(differing.join("\n")))
}

/// Every recorded result is what some copy has written, or what that memory became later: the recorder
/// reads it when a call proves the copy complete.
fn expect_bytes(trace: &Path, copied: &[CopiedBytes]) -> Result<(), Failure> {
    let failed = |message| Failure {
        property: Property::Bytes,
        message,
    };
    for recorded in copies(trace).map_err(failed)? {
        if !copied.iter().any(|copy| copy.may_be(&recorded)) {
            let (length, start) = (recorded.len(), &recorded[..recorded.len().min(16)]);
            return Err(failed(format!(
                "no copy has written the {length} recorded bytes {start:02x?}..."
            )));
        }
    }
    Ok(())
}

fn expect_clean(trace: &Path) -> Result<(), Failure> {
    let failed = |message| Failure {
        property: Property::Checked,
        message,
    };
    match findings(trace).map_err(failed)?.first() {
        None => Ok(()),
        Some(first) => Err(failed(format!("{first:#?}"))),
    }
}

/// The findings above advice.
fn findings(trace: &Path) -> Result<Vec<Finding>, String> {
    let mut findings = all_findings(trace)?;
    findings.retain(|finding| finding.severity != "advice");
    Ok(findings)
}

fn all_findings(trace: &Path) -> Result<Vec<Finding>, String> {
    let mut check = parts().cutape(&[&"check", &"--format", &"json", &trace]);
    let output = run_within(&mut check, LIMIT);
    output.expect_quiet()?;
    read_findings(&output.stdout)
}
