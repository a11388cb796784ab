//! Every way by which a program gets at libcuda, under every back end of `record`: what is recorded is what
//! `programs/loading/ways.toml` says, no less and no more. And what is refused, and what is said while it runs.

use std::ffi::CStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use cutape_format::Trace;
use cutape_tests::loading::{
    BACK_ENDS, BRIDGE, CALLS, built, calls, ensure, ensure_calls, folder, gum_is_built, record,
    record_command, record_where, words,
};
use cutape_tests::{parts, programs, root, run, stable_dump};
use libtest_mimic::{Arguments, Failed, Trial};
use serde::Deserialize;

#[derive(Deserialize)]
struct Table {
    way: Vec<Way>,
}

/// One way of getting at libcuda.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Way {
    name: String,
    command: Vec<String>,
    recorded: Vec<String>,
    #[serde(default)]
    why: String,
    glibc: Option<String>,
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    let text = fs::read_to_string(root().join("tests/programs/loading/ways.toml"));
    let table: Table = match text
        .map_err(|e| e.to_string())
        .and_then(|text| toml::from_str(&text).map_err(|error| error.to_string()))
    {
        Ok(table) => table,
        Err(error) => {
            eprintln!("ways.toml: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut trials = vec![
        Trial::test("the table is whole", {
            let ways = table.way.clone();
            move || whole(&ways).map_err(Failed::from)
        }),
        Trial::test("auto says what it took", || auto().map_err(Failed::from)),
        Trial::test("a driver that is used past us is told", || {
            told().map_err(Failed::from)
        }),
        sanitized(),
        Trial::test(
            "forked children of a recorded program are no matter",
            || forked().map_err(Failed::from),
        ),
        Trial::test("what outlives the launcher gets the driver", || {
            outlives().map_err(Failed::from)
        }),
        Trial::test("a thread's memory is not in the static block", || {
            crowded_out().map_err(Failed::from)
        }),
        Trial::test("what has no way in is refused", || {
            refused().map_err(Failed::from)
        }),
    ];
    for name in [
        "clean/proc_address",
        "clean/streams",
        "clean/launch_ex",
        "clean/graph",
        "clean/dlopen",
    ] {
        trials.push(Trial::test(
            format!("equal under preload and audit: {name}"),
            move || equal(name).map_err(Failed::from),
        ));
    }
    let bridged = std::env::var_os(BRIDGE).is_some();
    for way in table.way {
        for back_end in BACK_ENDS {
            let name = format!("{back_end}: {}", way.name);
            if back_end == "gum" && !gum_is_built() {
                let name = format!("{name} (skipped: the interposer was built without gum)");
                trials.push(Trial::test(name, || Ok(())).with_ignored_flag(true));
                continue;
            }
            if let Some(needed) = way.glibc.as_deref()
                && version(glibc()) < version(needed)
            {
                let name = format!("{name} (skipped: it needs glibc {needed})");
                trials.push(Trial::test(name, || Ok(())).with_ignored_flag(true));
                continue;
            }
            if back_end == "gum" && bridged {
                let way = way.clone();
                trials.push(Trial::test(format!("{name}, by `replace`"), move || {
                    as_the_table_says(&way, back_end, "fast").map_err(Failed::from)
                }));
            }
            let way = way.clone();
            trials.push(Trial::test(name, move || {
                as_the_table_says(&way, back_end, "").map_err(Failed::from)
            }));
        }
    }
    if bridged {
        trials.push(Trial::test("gum: what cannot be patched", || {
            not_patched().map_err(Failed::from)
        }));
    }
    let listing = arguments.list;
    if !listing {
        arguments.include_ignored = false;
        built();
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !listing {
        parts().clean_up();
    }
    conclusion.exit_code()
}

/// The version of the C library that runs this.
fn glibc() -> &'static str {
    // SAFETY: gives a string that lasts for ever.
    let text = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    text.to_str().unwrap_or_default()
}

/// `2.36` in an order that numbers have.
fn version(text: &str) -> Vec<u32> {
    text.split('.')
        .map_while(|part| part.parse().ok())
        .collect()
}

/// Known back ends, and a reason wherever one of them does not see a way.
fn whole(ways: &[Way]) -> Result<(), String> {
    for way in ways {
        let unknown = way
            .recorded
            .iter()
            .find(|name| !BACK_ENDS.contains(&name.as_str()));
        if let Some(unknown) = unknown {
            return Err(format!("{}: there is no back end {unknown}", way.name));
        }
        if way.why.is_empty() != (way.recorded.len() == BACK_ENDS.len()) {
            return Err(format!("{}: `why` says why not", way.name));
        }
    }
    Ok(())
}

fn as_the_table_says(way: &Way, back_end: &str, refused: &str) -> Result<(), String> {
    let words = words(&way.command);
    let bare = run(Command::new(&words[0])
        .args(&words[1..])
        .env("LD_LIBRARY_PATH", built().join("driver")));
    bare.expect(0)?;
    let folder = folder(&format!("{back_end} {refused} {}", way.name));
    let output = record_where(back_end, &folder.join("t.cutape"), &words, refused);
    output.expect_code(0)?;
    ensure(
        output.stdout == bare.stdout,
        "the program printed something else",
        &output,
    )?;
    let expected = way.recorded.iter().any(|name| name == back_end);
    let calls = calls(&folder);
    // What each program does once it has the driver; how it initialises is not always its own doing.
    let seen: Vec<&String> = calls.iter().filter(|name| *name != "cuInit").collect();
    if expected {
        ensure(
            seen == ["cuDriverGetVersion", "cuDeviceGetCount"],
            &format!("recorded: {calls:?}"),
            &output,
        )?;
        return output.expect_quiet();
    }
    ensure(
        seen.is_empty(),
        &format!("recorded, which the table denies: {calls:?}"),
        &output,
    )?;
    if calls.is_empty() {
        ensure(
            output.stderr.contains("nothing was recorded"),
            "silence",
            &output,
        )?;
    }
    Ok(())
}

/// If gum can patch many functions and then one not, all are as they were: calls come as with preload, once each.
fn not_patched() -> Result<(), String> {
    for (name, expected) in [
        ("libcuda.so.1", &CALLS[..]),
        ("{folder}/driver/other_name.so", &[]),
    ] {
        let folder = folder(&format!("not patched {name}"));
        let words = words(&["open".to_owned(), name.to_owned()]);
        let output = record_where("gum", &folder.join("t.cutape"), &words, "any");
        output.expect_code(0)?;
        ensure(
            output
                .stderr
                .contains("the driver cannot be patched, because of"),
            "the reason is not said",
            &output,
        )?;
        ensure_calls(expected, &folder, &output)?;
    }
    Ok(())
}

/// The same program, recorded by two ways, gives the same trace.
fn equal(name: &str) -> Result<(), String> {
    let all = programs()?;
    let program = all
        .iter()
        .find(|program| program.name == name)
        .ok_or("no such program")?;
    let program = program.compile(parts())?.display().to_string();
    let folder = folder(&format!("equal {name}"));
    let mut dumps = Vec::new();
    for via in ["preload", "audit"] {
        let trace = folder.join(format!("{via}.cutape"));
        record(via, &trace, std::slice::from_ref(&program)).expect(0)?;
        let opened = Trace::open(&trace).map_err(|error| error.to_string())?;
        if opened.meta_value("recorder.via") != Some(via) {
            return Err(format!(
                "the trace says {:?}",
                opened.meta_value("recorder.via")
            ));
        }
        let dump = run(&mut parts().cutape(&[&"dump", &"--format", &"json", &trace]));
        dump.expect(0)?;
        dumps.push(stable_dump(&dump.stdout)?);
    }
    match dumps[0] == dumps[1] {
        true => Ok(()),
        false => Err("the traces differ".to_owned()),
    }
}

/// What was taken is named; without the auditing library it is what always works.
fn auto() -> Result<(), String> {
    let words = words(&["open".to_owned(), "{driver}".to_owned()]);
    let driver = built().join("driver/libcuda.so.1");
    for (name, library, why) in [
        ("whole", parts().audit.as_path(), None),
        (
            "without a library",
            Path::new("/no/such/library.so"),
            Some("preload: the library for --backend audit is missing"),
        ),
    ] {
        let trace = folder(&format!("auto {name}")).join("t.cutape");
        let mut command = parts().cutape(&[
            &"record",
            &"--backend",
            &"auto",
            &"-v",
            &"--driver",
            &driver,
        ]);
        command.arg("-o").arg(&trace).arg("--").args(&words);
        let output = run(command.env("CUTAPE_AUDIT", library));
        output.expect_code(0)?;
        let opened = Trace::open(&trace).map_err(|error| error.to_string())?;
        let via = opened.meta_value("recorder.via").unwrap_or_default();
        for part in [via, why.unwrap_or(via)] {
            ensure(
                output
                    .stderr
                    .contains(&format!("recording with backend {part}")),
                "the way is not named",
                &output,
            )?;
        }
    }
    Ok(())
}

/// A running program that has the driver, and whose calls do not arrive, is named; also a child of what was started.
fn told() -> Result<(), String> {
    for (name, launcher, advice) in [
        ("itself", &[][..], "try --backend audit"),
        (
            "child",
            &["sh", "-c", "\"$@\"; exit $?", "sh"],
            "try --backend audit",
        ),
        (
            "cleaned",
            &["env", "-u", "CUTAPE_TRACE"],
            "replaced its environment",
        ),
    ] {
        let words = words(&[
            "open".to_owned(),
            "{folder}/driver/other_name.so".to_owned(),
        ]);
        let folder = folder(&format!("told {name}"));
        let driver = built().join("driver/libcuda.so.1");
        let mut command =
            parts().cutape(&[&"record", &"--backend", &"preload", &"--driver", &driver]);
        let mut child = command
            .arg("-o")
            .arg(folder.join("t.cutape"))
            .arg("--")
            .args(launcher)
            .args(&words)
            // Far longer than it takes; it is ended as soon as the line is there.
            .env("LOADING_STAY", "50")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let mut line = String::new();
        let mut stderr = BufReader::new(child.stderr.take().ok_or("no stderr")?);
        stderr
            .read_line(&mut line)
            .map_err(|error| error.to_string())?;
        let process = line
            .split_once("process ")
            .and_then(|(_, rest)| rest.split_once(' '));
        let process = process
            .and_then(|(number, _)| number.parse().ok())
            .ok_or(format!("said: {line}"))?;
        // SAFETY: no memory is involved; the process sleeps, as a descendant of our own child.
        unsafe { libc::kill(process, libc::SIGTERM) };
        child.wait().map_err(|error| error.to_string())?;
        for part in ["(open)", "libcutape_null.so", "no call recorded", advice] {
            if !line.contains(part) {
                return Err(format!("{name}: not said: {part}: {line}"));
            }
        }
    }
    Ok(())
}

/// A forked child has the driver mapped and makes no call: nothing is said of it.
fn forked() -> Result<(), String> {
    let folder = folder("forked");
    let words = words(&["fork".to_owned(), "libcuda.so.1".to_owned()]);
    let output = record("auto", &folder.join("t.cutape"), &words);
    output.expect(0)
}

/// Where the loader has no room for a late library in the static block of threads, the recorder finds a thread's state by the TLS
/// descriptor. (glibc before 2.34 does not know the setting, and says nothing.)
fn crowded_out() -> Result<(), String> {
    let folder = folder("crowded out");
    let words = words(&["open".to_owned(), "libcuda.so.1".to_owned()]);
    let mut command = record_command("audit", &folder.join("t.cutape"), &words);
    let output = run(command.env("GLIBC_TUNABLES", "glibc.rtld.optional_static_tls=0"));
    output.expect(0)?;
    ensure_calls(&CALLS, &folder, &output)
}

/// The auditing library is still there when what it leads to is gone.
fn outlives() -> Result<(), String> {
    let words = words(&["open".to_owned(), "libcuda.so.1".to_owned()]);
    let output = run(Command::new(&words[0])
        .args(&words[1..])
        .env("LD_LIBRARY_PATH", built().join("driver"))
        .env("LD_AUDIT", &parts().audit)
        .env("CUTAPE_AUDIT_LEADS_TO", "/no/such/folder/libcuda.so.1"));
    output.expect(0)
}

/// A program that insists that nothing is loaded before its own runtime runs under `audit`.
fn sanitized() -> Trial {
    let name = "AddressSanitizer, by way of audit";
    let folder = folder("sanitized");
    let program = folder.join("program");
    let source = root().join("tests/programs/loading/open.c");
    let built = run(Command::new("cc")
        .args(["-fsanitize=address", "-o"])
        .arg(&program)
        .arg(source)
        .arg("-ldl"));
    if built.code() != Some(0) {
        let name = format!("{name} (skipped: the compiler has no AddressSanitizer)");
        return Trial::test(name, || Ok(())).with_ignored_flag(true);
    }
    Trial::test(name, move || {
        let traces = folder.join("traces");
        fs::create_dir(&traces)?;
        let words = [program.display().to_string(), "libcuda.so.1".to_owned()];
        let output = record("audit", &traces.join("t.cutape"), &words);
        output.expect(0)?;
        ensure_calls(&CALLS, &traces, &output).map_err(Failed::from)
    })
}

/// Programs into which no loader would bring us.
fn refused() -> Result<(), String> {
    let folder = folder("refused");
    let source = folder.join("empty.c");
    fs::write(&source, "int main(void) { return 0; }\n").map_err(|error| error.to_string())?;
    let statically = folder.join("statically");
    let foreign = folder.join("foreign");
    let cc = |arguments: &[&str], output: &Path| {
        run(Command::new("cc")
            .args(arguments)
            .arg("-o")
            .arg(output)
            .arg(&source))
        .expect(0)
    };
    cc(&["-static"], &statically)?;
    cc(&["-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"], &foreign)?;
    // The name of a program that is known to start others elsewhere.
    let container = folder.join("docker");
    fs::copy(&statically, &container).map_err(|error| error.to_string())?;
    for (program, why) in [
        (&statically, "statically linked"),
        (&foreign, "musl"),
        (&container, "docker starts programs in a container"),
    ] {
        for via in ["auto", "preload", "audit"] {
            let trace = folder.join("t.cutape");
            let output = record(via, &trace, &[program.display().to_string()]);
            output.expect_code(2)?;
            ensure(output.stderr.contains(why), "another reason", &output)?;
            ensure(!trace.exists(), "a trace was left", &output)?;
        }
    }
    if !gum_is_built() {
        let words = words(&["linked".to_owned()]);
        let output = record("gum", &folder.join("t.cutape"), &words);
        output.expect_code(2)?;
        ensure(
            output.stderr.contains("was built without frida-gum"),
            "another reason",
            &output,
        )?;
    }
    Ok(())
}
