//! Programs that start others, under `record` and around it: every process that calls the driver has a trace, or the table in
//! `programs/loading/launchers.toml` says why not.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use cutape_tests::loading::{CALLS, built, ensure, ensure_calls, filled_in, folder};
use cutape_tests::{parts, root, run};
use libtest_mimic::{Arguments, Failed, Trial};
use serde::Deserialize;

#[derive(Deserialize)]
struct Table {
    launcher: Vec<Launcher>,
}

/// One program that starts others.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Launcher {
    name: String,
    command: Vec<String>,
    programs: usize,
    recorded: Option<usize>,
    /// By way of `audit`, if that is another number.
    audited: Option<usize>,
    #[serde(default)]
    why: String,
    #[serde(default)]
    needs: Vec<String>,
    #[serde(default)]
    says: Vec<String>,
    #[serde(default)]
    root: bool,
    #[serde(default)]
    ranks: bool,
}

/// Who starts whom.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// `cutape record -- LAUNCHER ... PROGRAM`.
    RecordFirst,
    /// `LAUNCHER ... cutape record -- PROGRAM`.
    LauncherFirst,
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let text = fs::read_to_string(root().join("tests/programs/loading/launchers.toml"));
    let table: Table = match text
        .map_err(|error| error.to_string())
        .and_then(|text| toml::from_str(&text).map_err(|error| error.to_string()))
    {
        Ok(table) => table,
        Err(error) => {
            eprintln!("launchers.toml: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut trials = vec![Trial::test("the table is whole", {
        let launchers = table.launcher.clone();
        move || whole(&launchers).map_err(Failed::from)
    })];
    for launcher in table.launcher {
        let (launcher, obstacle) = match here(&launcher) {
            Ok(program) => {
                let mut launcher = launcher;
                launcher.command[0] = program;
                (launcher, None)
            }
            Err(why) => (launcher, Some(why)),
        };
        for via in ["preload", "audit"] {
            for (order, what) in [
                (Order::RecordFirst, ""),
                (Order::LauncherFirst, ", record inside"),
            ] {
                let name = format!("{via}: {}{what}", launcher.name);
                if let Some(why) = &obstacle {
                    let name = format!("{name} (skipped: {why})");
                    trials.push(Trial::test(name, || Ok(())).with_ignored_flag(true));
                    continue;
                }
                let launcher = launcher.clone();
                trials.push(Trial::test(name, move || {
                    launched(&launcher, via, order).map_err(Failed::from)
                }));
            }
        }
    }
    if !arguments.list {
        built();
    }
    let listing = arguments.list;
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !listing {
        parts().clean_up();
    }
    conclusion.exit_code()
}

/// A reason wherever a program is not recorded, and nowhere else.
fn whole(launchers: &[Launcher]) -> Result<(), String> {
    for launcher in launchers {
        let all = [launcher.recorded, launcher.audited]
            .iter()
            .all(|number| number.is_none_or(|n| n == launcher.programs));
        if launcher.why.is_empty() != all {
            return Err(format!("{}: `why` says why not", launcher.name));
        }
    }
    Ok(())
}

/// The launcher's program on this machine, or why it cannot be run.
fn here(launcher: &Launcher) -> Result<String, String> {
    // SAFETY: no memory is involved.
    if launcher.root && unsafe { libc::geteuid() } != 0 {
        return Err("only root may".to_owned());
    }
    if let Some(missing) = launcher.needs.iter().find(|name| !is_installed(name)) {
        return Err(format!("{missing} is not installed"));
    }
    let first = &launcher.command[0];
    // Debian has `mpirun.openmpi` beside `mpirun`, others only that.
    let short = first.split('.').next().unwrap_or(first);
    let says = |name: &str| {
        let version = run(Command::new(name).arg("--version"));
        let said = |words: &String| version.stdout.contains(words.as_str());
        launcher.says.is_empty() || launcher.says.iter().any(said)
    };
    let found = [first, short]
        .into_iter()
        .find(|name| is_installed(name) && says(name))
        .ok_or_else(|| format!("{first} is not installed"))?;
    // A parallel program needs more of a machine than there may be: ports, names, memory that processes share.
    if !launcher.says.is_empty() {
        let mut words = launcher.command[1..].to_vec();
        words.retain(|word| word != "{parallel}");
        let nothing = run(as_root(Command::new(found).args(words).arg("true")));
        if nothing.code() != Some(0) {
            return Err(format!("{found} cannot start `true` here"));
        }
    }
    Ok(found.to_owned())
}

fn is_installed(program: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|folders| {
        std::env::split_paths(&folders).any(|folder| folder.join(program).is_file())
    })
}

/// The launcher's command, where `before` stands before the words of each program.
fn words(launcher: &Launcher, before: &[String]) -> Vec<String> {
    let program = |name: &str| {
        let own = [format!("{{folder}}/{name}"), "{driver}".to_owned()];
        let own = own.iter().map(|word| filled_in(word));
        before.iter().cloned().chain(own).collect::<Vec<_>>()
    };
    let programs = [
        ("{open}", program("open")),
        ("{parallel}", program("parallel")),
    ];
    let expand = |word: &String| {
        for (place, words) in &programs {
            if word == place {
                return words.clone();
            }
        }
        let filled = programs
            .iter()
            .fold(filled_in(word), |word, (place, words)| {
                word.replace(place, &words.join(" "))
            });
        vec![filled]
    };
    launcher.command.iter().flat_map(expand).collect()
}

fn launched(launcher: &Launcher, via: &str, order: Order) -> Result<(), String> {
    let bare = words(launcher, &[]);
    let bare = run(as_root(Command::new(&bare[0]).args(&bare[1..])));
    bare.expect(0)?;
    let inside = match order {
        Order::RecordFirst => "",
        Order::LauncherFirst => " inside",
    };
    let folder = folder(&format!("launcher {} {via}{inside}", launcher.name));
    let (all, stem, recorded) = match order {
        Order::RecordFirst => {
            let mut all = record_words(via);
            all.extend(["-o".to_owned(), "t.cutape".to_owned(), "--".to_owned()]);
            all.extend(words(launcher, &[]));
            let recorded = launcher.recorded.unwrap_or(launcher.programs);
            let audited = launcher.audited.filter(|_| via == "audit");
            (all, "t", audited.unwrap_or(recorded))
        }
        // Without a name for the trace: several take different ones.
        Order::LauncherFirst => {
            let is_parallel = launcher.command.iter().any(|word| word == "{parallel}");
            let stem = if is_parallel { "parallel" } else { "open" };
            let all = words(launcher, &record_words(via));
            (all, stem, launcher.programs)
        }
    };
    let mut command = Command::new(&all[0]);
    let output = run(as_root(command.args(&all[1..]).current_dir(&folder)));
    output.expect_code(0)?;
    ensure(
        sorted(&output.stdout) == sorted(&bare.stdout),
        "the programs printed something else",
        &output,
    )?;
    let nothing = output.stderr.contains("nothing was recorded");
    ensure(nothing == (recorded == 0), "other words", &output)?;
    if nothing {
        let advice = format!("{} ... cutape record -- PROGRAM", launcher.command[0]);
        ensure(output.stderr.contains(&advice), "no advice", &output)?;
    }
    let names = names(&folder)?;
    ensure(
        names.len() == recorded,
        &format!("{recorded} were to be recorded: {names:?}"),
        &output,
    )?;
    if recorded > 0 {
        output.expect_quiet()?;
    }
    let expected: Vec<&str> = CALLS.into_iter().cycle().take(3 * recorded).collect();
    ensure_calls(&expected, &folder, &output)?;
    if launcher.ranks {
        ranked(&folder, stem, &names, launcher.programs)?;
    }
    Ok(())
}

/// `cutape record` and its options.
fn record_words(via: &str) -> Vec<String> {
    let cutape = parts().cutape.display().to_string();
    let words = [&cutape, "record", "--backend", via, "--driver", "{driver}"];
    words.into_iter().map(filled_in).collect()
}

/// Open MPI refuses to run for root unless it is told twice that this is meant.
fn as_root(command: &mut Command) -> &mut Command {
    command
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
}

fn names(folder: &Path) -> Result<BTreeSet<String>, String> {
    let entries = fs::read_dir(folder).map_err(|error| error.to_string())?;
    let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    Ok(entries.flatten().map(name).collect())
}

/// Each rank has its own trace, and `info` lists them.
fn ranked(folder: &Path, stem: &str, names: &BTreeSet<String>, count: usize) -> Result<(), String> {
    let expected: BTreeSet<_> = (0..count)
        .map(|rank| format!("{stem}.rank{rank}.cutape"))
        .collect();
    if *names != expected {
        return Err(format!("the traces are {names:?}"));
    }
    let info = run(&mut parts().cutape(&[&"info", &"--format", &"json", &folder]));
    info.expect(0)?;
    let json: serde_json::Value =
        serde_json::from_str(&info.stdout).map_err(|error| error.to_string())?;
    let traces = json["traces"].as_array().ok_or("no traces")?;
    let ranks: Vec<_> = traces.iter().map(|t| t["rank"].as_u64()).collect();
    let in_order: Vec<_> = (0..count as u64).map(Some).collect();
    ensure(ranks == in_order, "other ranks", &info)
}

/// Processes that run at once print in any order.
fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}
