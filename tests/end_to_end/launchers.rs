//! Launchers under `record`, and `record` under launchers: every process that calls the driver has
//! a trace, or the table in `programs/loading/launchers.toml` has the reason.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, OnceLock};

use cutape_tests::loading::{CALLS, ensure, ensure_calls, filled_in};
use cutape_tests::{Suite, Verdict, parts, root, run};
use serde::Deserialize;

#[derive(Deserialize)]
struct Table {
    launcher: Vec<Launcher>,
}

/// A program that starts others.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Launcher {
    name: String,
    command: Vec<String>,
    programs: usize,
    recorded: Option<usize>,
    /// With `audit`, if the number differs.
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

/// Which command starts the other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// `cutape record -- LAUNCHER ... PROGRAM`.
    RecordFirst,
    /// `LAUNCHER ... cutape record -- PROGRAM`.
    LauncherFirst,
}

pub(crate) fn add_to(suite: &mut Suite) {
    let text = fs::read_to_string(root().join("tests/programs/loading/launchers.toml")).unwrap();
    let table: Table = toml::from_str(&text).expect("launchers.toml");
    let launchers = table.launcher.clone();
    suite.test("the table is complete", move |_| is_complete(&launchers));
    for launcher in table.launcher {
        // Found once, by the first test that needs it.
        let program = Arc::new(OnceLock::new());
        for backend in ["preload", "audit"] {
            for (order, suffix) in [
                (Order::RecordFirst, ""),
                (Order::LauncherFirst, ", record inside"),
            ] {
                let name = format!("{backend}: {}{suffix}", launcher.name);
                let (mut launcher, program) = (launcher.clone(), Arc::clone(&program));
                suite.test(name, move |folder: &Path| {
                    match program.get_or_init(|| find(&launcher)) {
                        Ok(program) => launcher.command[0].clone_from(program),
                        Err(why) => return Ok(Verdict::Ignored(why.clone())),
                    }
                    launched(folder, &launcher, backend, order)?;
                    Ok::<_, String>(Verdict::Passed)
                });
            }
        }
    }
}

/// There is a reason wherever a program is not recorded, and nowhere else.
fn is_complete(launchers: &[Launcher]) -> Result<(), String> {
    for launcher in launchers {
        let all = [launcher.recorded, launcher.audited]
            .iter()
            .all(|number| number.is_none_or(|n| n == launcher.programs));
        if launcher.why.is_empty() != all {
            return Err(format!(
                "{}: `why` is for programs that are not recorded",
                launcher.name
            ));
        }
    }
    Ok(())
}

/// The launcher's program on this machine, or why it cannot run.
fn find(launcher: &Launcher) -> Result<String, String> {
    // SAFETY: no memory is involved.
    if launcher.root && unsafe { libc::geteuid() } != 0 {
        return Err("needs root".to_owned());
    }
    if let Some(missing) = launcher.needs.iter().find(|name| !is_installed(name)) {
        return Err(format!("{missing} is not installed"));
    }
    let first = &launcher.command[0];
    // Debian has both `mpirun.openmpi` and `mpirun`, other systems only the latter.
    let short = first.split('.').next().unwrap_or(first);
    let says = |name: &str| {
        let version = run(Command::new(name).arg("--version"));
        let printed = |words: &String| version.stdout.contains(words.as_str());
        launcher.says.is_empty() || launcher.says.iter().any(printed)
    };
    let found = [first, short]
        .into_iter()
        .find(|name| is_installed(name) && says(name))
        .ok_or_else(|| format!("{first} is not installed"))?;
    // A parallel program needs ports, host names and shared memory, which a container may not have.
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

/// The launcher's command, with the words `before` inserted before each program.
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

fn launched(folder: &Path, launcher: &Launcher, backend: &str, order: Order) -> Result<(), String> {
    let bare = words(launcher, &[]);
    let bare = run(as_root(Command::new(&bare[0]).args(&bare[1..])));
    bare.expect(0)?;
    let (all, stem, recorded) = match order {
        Order::RecordFirst => {
            let mut all = record_words(backend);
            all.extend(["-o".to_owned(), "t.cutape".to_owned(), "--".to_owned()]);
            all.extend(words(launcher, &[]));
            let recorded = launcher.recorded.unwrap_or(launcher.programs);
            let audited = launcher.audited.filter(|_| backend == "audit");
            (all, "t", audited.unwrap_or(recorded))
        }
        // No name for the trace: each process chooses one.
        Order::LauncherFirst => {
            let is_parallel = launcher.command.iter().any(|word| word == "{parallel}");
            let stem = if is_parallel { "parallel" } else { "open" };
            let all = words(launcher, &record_words(backend));
            (all, stem, launcher.programs)
        }
    };
    let mut command = Command::new(&all[0]);
    let output = run(as_root(command.args(&all[1..]).current_dir(folder)));
    output.expect_code(0)?;
    ensure(
        sorted(&output.stdout) == sorted(&bare.stdout),
        "the programs' output differs",
        &output,
    )?;
    let nothing = output.stderr.contains("nothing was recorded");
    ensure(
        nothing == (recorded == 0),
        "`nothing was recorded` and the number of traces disagree",
        &output,
    )?;
    if nothing {
        let advice = format!("{} ... cutape record -- PROGRAM", launcher.command[0]);
        ensure(
            output.stderr.contains(&advice),
            "expected the advice",
            &output,
        )?;
    }
    let names = names(folder)?;
    ensure(
        names.len() == recorded,
        &format!("expected {recorded} traces: {names:?}"),
        &output,
    )?;
    if recorded > 0 {
        output.expect_quiet()?;
    }
    let expected: Vec<&str> = CALLS.into_iter().cycle().take(3 * recorded).collect();
    ensure_calls(&expected, folder, &output)?;
    if launcher.ranks {
        ranked(folder, stem, &names, launcher.programs)?;
    }
    Ok(())
}

/// `cutape record` and its options.
fn record_words(backend: &str) -> Vec<String> {
    let cutape = parts().cutape.display().to_string();
    let words = [
        &cutape,
        "record",
        "--backend",
        backend,
        "--driver",
        "{driver}",
    ];
    words.into_iter().map(filled_in).collect()
}

/// Open MPI runs for root only when both variables are set.
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
    ensure(ranks == in_order, "unexpected ranks", &info)
}

/// The lines in an order that does not depend on which process printed first.
fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}
