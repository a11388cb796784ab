//! Every way in which a program loads libcuda, with every backend of `record`: the calls are
//! recorded exactly where `programs/loading/ways.toml` has the backend. Also the programs that
//! `record` refuses, and its messages.

use std::ffi::CStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cutape_format::Trace;
use cutape_tests::loading::{
    BACKENDS, BRIDGE, CALLS, built, calls, ensure, ensure_calls, gum_is_built, record,
    record_command, record_refusing, words,
};
use cutape_tests::{Suite, Verdict, compiled, parts, root, run, stable_dump};
use serde::Deserialize;

#[derive(Deserialize)]
struct Table {
    way: Vec<Way>,
}

/// One way in which a program loads libcuda.
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

pub(crate) fn add_to(suite: &mut Suite) {
    let text = fs::read_to_string(root().join("tests/programs/loading/ways.toml")).unwrap();
    let table: Table = toml::from_str(&text).expect("ways.toml");
    let ways = table.way.clone();
    suite
        .test("the table is complete", move |_| is_complete(&ways))
        .test("auto names the backend that it chose", auto)
        .test("a driver that is called without us is reported", unseen)
        .test("AddressSanitizer, with audit", sanitized)
        .test("a forked child that makes no call is not reported", forked)
        .test("the audit library works without the interposer", outlives)
        .test(
            "the audit library, built together with others",
            built_together,
        )
        .test("a thread's memory is not in the static block", crowded_out)
        .test("programs that cannot be instrumented are refused", refused);
    for name in [
        "clean/proc_address",
        "clean/streams",
        "clean/launch_ex",
        "clean/graph",
        "clean/dlopen",
    ] {
        suite.test(
            format!("equal under preload and audit: {name}"),
            move |folder| equal(folder, name),
        );
    }
    let bridged = std::env::var_os(BRIDGE).is_some();
    for way in table.way {
        for backend in BACKENDS {
            let name = format!("{backend}: {}", way.name);
            if backend == "gum" && bridged {
                let way = way.clone();
                suite.test(format!("{name}, with `replace`"), move |folder| {
                    agrees_with_the_table(folder, &way, backend, "fast")
                });
            }
            let way = way.clone();
            suite.test(name, move |folder| {
                agrees_with_the_table(folder, &way, backend, "")
            });
        }
    }
    if bridged {
        suite.test("gum: functions that cannot be patched", not_patched);
    }
}

fn ignored(why: &str) -> Result<Verdict, String> {
    Ok(Verdict::Ignored(why.to_owned()))
}

/// The version of the C library that runs this.
fn glibc() -> &'static str {
    // SAFETY: gives a string that lasts for ever.
    let text = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    text.to_str().unwrap_or_default()
}

/// `2.36` as numbers that can be compared.
fn version(text: &str) -> Vec<u32> {
    text.split('.')
        .map_while(|part| part.parse().ok())
        .collect()
}

/// Every backend is known, and there is a reason wherever one of them does not record.
fn is_complete(ways: &[Way]) -> Result<(), String> {
    for way in ways {
        let unknown = way
            .recorded
            .iter()
            .find(|name| !BACKENDS.contains(&name.as_str()));
        if let Some(unknown) = unknown {
            return Err(format!("{}: unknown backend {unknown}", way.name));
        }
        if way.why.is_empty() != (way.recorded.len() == BACKENDS.len()) {
            return Err(format!(
                "{}: `why` is for the backends that do not record",
                way.name
            ));
        }
    }
    Ok(())
}

fn agrees_with_the_table(
    folder: &Path,
    way: &Way,
    backend: &str,
    refused: &str,
) -> Result<Verdict, String> {
    if backend == "gum" && !gum_is_built() {
        return ignored("the interposer was built without gum");
    }
    if let Some(needed) = way.glibc.as_deref()
        && version(glibc()) < version(needed)
    {
        return ignored(&format!("needs glibc {needed}, this is {}", glibc()));
    }
    let words = words(&way.command);
    let bare = run(Command::new(&words[0])
        .args(&words[1..])
        .env("LD_LIBRARY_PATH", built().join("driver")));
    bare.expect(0)?;
    let output = record_refusing(backend, &folder.join("t.cutape"), &words, refused);
    output.expect_code(0)?;
    ensure(
        output.stdout == bare.stdout,
        "the program's output differs",
        &output,
    )?;
    let expected = way.recorded.iter().any(|name| name == backend);
    let calls = calls(folder);
    // A plug-in may call cuInit as well.
    let seen: Vec<&String> = calls.iter().filter(|name| *name != "cuInit").collect();
    if expected {
        ensure(
            seen == ["cuDriverGetVersion", "cuDeviceGetCount"],
            &format!("recorded: {calls:?}"),
            &output,
        )?;
        return output.expect_quiet().map(|()| Verdict::Passed);
    }
    ensure(
        seen.is_empty(),
        &format!("recorded, unlike the table: {calls:?}"),
        &output,
    )?;
    if calls.is_empty() {
        ensure(
            output.stderr.contains("nothing was recorded"),
            "expected `nothing was recorded` on stderr",
            &output,
        )?;
    }
    Ok(Verdict::Passed)
}

/// When gum cannot patch one function, it restores all of them: calls are recorded as with preload,
/// once each.
fn not_patched(folder: &Path) -> Result<(), String> {
    for (name, expected) in [
        ("libcuda.so.1", &CALLS[..]),
        ("{folder}/driver/other_name.so", &[]),
    ] {
        let folder = &new_folder(folder, &name.replace('/', "-"))?;
        let words = words(&["open".to_owned(), name.to_owned()]);
        let output = record_refusing("gum", &folder.join("t.cutape"), &words, "any");
        output.expect_code(0)?;
        ensure(
            output.stderr.contains("cannot patch the driver: "),
            "expected the reason on stderr",
            &output,
        )?;
        ensure_calls(expected, folder, &output)?;
    }
    Ok(())
}

/// Two backends record the same trace of a program.
fn equal(folder: &Path, name: &str) -> Result<(), String> {
    let program = compiled(name);
    let mut dumps = Vec::new();
    for backend in ["preload", "audit"] {
        let trace = folder.join(format!("{backend}.cutape"));
        record(backend, &trace, std::slice::from_ref(&program)).expect(0)?;
        let opened = Trace::open(&trace).map_err(|error| error.to_string())?;
        if opened.meta_value("recorder.via") != Some(backend) {
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

/// `auto` names the backend that it chose: without the audit library it is preload.
fn auto(folder: &Path) -> Result<(), String> {
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
        let trace = folder.join(format!("{name}.cutape"));
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
                "expected the backend on stderr",
                &output,
            )?;
        }
    }
    Ok(())
}

/// A running program that has loaded the driver, but whose calls are not recorded, is reported; so
/// is a child of the program.
fn unseen(folder: &Path) -> Result<(), String> {
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
        let driver = built().join("driver/libcuda.so.1");
        let mut command =
            parts().cutape(&[&"record", &"--backend", &"preload", &"--driver", &driver]);
        let mut child = command
            .arg("-o")
            .arg(folder.join(format!("{name}.cutape")))
            .arg("--")
            .args(launcher)
            .args(&words)
            // Seconds that the program waits; the test ends it when the line is there.
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
            .ok_or(format!("no process in the line: {line}"))?;
        // SAFETY: no memory is involved; the process sleeps, as a descendant of our own child.
        unsafe { libc::kill(process, libc::SIGTERM) };
        child.wait().map_err(|error| error.to_string())?;
        for part in ["(open)", "libcutape_null.so", "no call recorded", advice] {
            if !line.contains(part) {
                return Err(format!("{name}: expected `{part}` in: {line}"));
            }
        }
    }
    Ok(())
}

/// A forked child has the driver mapped and makes no call: it is not reported.
fn forked(folder: &Path) -> Result<(), String> {
    let words = words(&["fork".to_owned(), "libcuda.so.1".to_owned()]);
    let output = record("auto", &folder.join("t.cutape"), &words);
    output.expect(0)
}

/// When the static TLS block has no space for another library, the interposer finds a thread's
/// state through the TLS descriptor. (glibc before 2.34 ignores the setting.)
fn crowded_out(folder: &Path) -> Result<(), String> {
    let words = words(&["open".to_owned(), "libcuda.so.1".to_owned()]);
    let mut command = record_command("audit", &folder.join("t.cutape"), &words);
    let output = run(command.env("GLIBC_TUNABLES", "glibc.rtld.optional_static_tls=0"));
    output.expect(0)?;
    ensure_calls(&CALLS, folder, &output)
}

/// The audit library finds the driver when the interposer does not exist.
fn outlives(_: &Path) -> Result<(), String> {
    let words = words(&["open".to_owned(), "libcuda.so.1".to_owned()]);
    let output = run(Command::new(&words[0])
        .args(&words[1..])
        .env("LD_LIBRARY_PATH", built().join("driver"))
        .env("LD_AUDIT", &parts().audit)
        .env("CUTAPE_AUDIT_LEADS_TO", "/no/such/folder/libcuda.so.1"));
    output.expect(0)
}

/// The audit library needs the C library itself, whatever features other packages of the same build
/// turn on. As it is shipped, it has no standard library that would bring it.
fn built_together(folder: &Path) -> Result<(), String> {
    let target = parts().programs.with_file_name("audit");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // The null driver turns on this feature.
    let build = run(Command::new(cargo)
        .current_dir(root())
        .args(["build", "--quiet", "--package", "cutape-audit"])
        .args([
            "--profile",
            "shim",
            "--features",
            "libc/std",
            "--target-dir",
        ])
        .arg(&target));
    build.expect(0)?;
    let traces = new_folder(folder, "traces")?;
    let words = words(&["open".to_owned(), "libcuda.so.1".to_owned()]);
    let mut command = record_command("audit", &traces.join("t.cutape"), &words);
    let output = run(command.env("CUTAPE_AUDIT", target.join("shim/libcutape_audit.so")));
    output.expect(0)?;
    ensure_calls(&CALLS, &traces, &output)
}

/// AddressSanitizer refuses to start when another library is loaded before its own; `audit` loads
/// none.
fn sanitized(folder: &Path) -> Result<Verdict, String> {
    let program = folder.join("program");
    let source = root().join("tests/programs/loading/open.c");
    let compiled = run(Command::new("cc")
        .args(["-fsanitize=address", "-o"])
        .arg(&program)
        .arg(source)
        .arg("-ldl"));
    if compiled.code() != Some(0) {
        return ignored("the compiler has no AddressSanitizer");
    }
    let traces = new_folder(folder, "traces")?;
    let words = [program.display().to_string(), "libcuda.so.1".to_owned()];
    let output = record("audit", &traces.join("t.cutape"), &words);
    output.expect(0)?;
    ensure_calls(&CALLS, &traces, &output)?;
    Ok(Verdict::Passed)
}

fn new_folder(folder: &Path, name: &str) -> Result<PathBuf, String> {
    let new = folder.join(name);
    fs::create_dir(&new).map_err(|error| format!("{}: {error}", new.display()))?;
    Ok(new)
}

/// Programs that the loader cannot bring the interposer into.
fn refused(folder: &Path) -> Result<(), String> {
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
    // The name of a program that starts others in a container.
    let container = folder.join("docker");
    fs::copy(&statically, &container).map_err(|error| error.to_string())?;
    for (program, why) in [
        (&statically, "statically linked"),
        (&foreign, "musl"),
        (&container, "docker starts programs in a container"),
    ] {
        for backend in ["auto", "preload", "audit"] {
            let trace = folder.join("t.cutape");
            let output = record(backend, &trace, &[program.display().to_string()]);
            output.expect_code(2)?;
            ensure(
                output.stderr.contains(why),
                "expected another reason",
                &output,
            )?;
            ensure(!trace.exists(), "expected no trace", &output)?;
        }
    }
    if !gum_is_built() {
        let words = words(&["linked".to_owned()]);
        let output = record("gum", &folder.join("t.cutape"), &words);
        output.expect_code(2)?;
        ensure(
            output.stderr.contains("was built without frida-gum"),
            "expected another reason",
            &output,
        )?;
    }
    Ok(())
}
