//! What each backend of `record` costs: a call, the start of a program that does not open libcuda,
//! and the start of one that does.
//!
//! All cases run in turn, several times. The least of each is printed, because disturbances only
//! add time, with its difference from the bare program. If the libraries were built with the
//! profile `shim`, as they are shipped, those are measured. A run that was not recorded ends the
//! benchmark with the reason.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use cutape_benches::recorded::ensure_recorded;
use cutape_tests::{clean_up, parts, root, run};

/// Rounds of all cases.
const ROUNDS: usize = 15;
/// Calls of a run, and runs of a round. Of short runs, more are undisturbed.
const CALLS: usize = 20_000;
const RUNS: usize = 5;
/// The bare program.
const ALONE: &str = "alone";
/// The driver is opened by a name that is not redirected to the interposer, so that each call goes
/// through a patched function of the driver.
const PATCHED: &str = "gum, patched";
/// Programs that one measurement starts; with many, the start of `record` itself does not count.
const STARTS: u32 = 50;

fn main() {
    // `cargo test --benches` and `cargo bench -- --list` measure nothing.
    if !std::env::args().any(|word| word == "--bench") {
        return;
    }
    let folder = parts().new_folder("backends");
    let program = folder.join("scalar_calls");
    let source = root().join("benches/programs/scalar_calls.c");
    run(Command::new("cc")
        .args(["-O2", "-o"])
        .arg(&program)
        .arg(source)
        .arg("-ldl"))
    .assert(0);
    let driver = folder.join("libcuda.so.1");
    std::os::unix::fs::symlink(&parts().null_driver, &driver).expect("a link");
    let other_name = folder.join("other_name.so");
    std::os::unix::fs::symlink(&parts().null_driver, &other_name).expect("a link");
    let mut backends = vec![ALONE, "preload", "audit"];
    if refuses("gum", &folder).is_none() {
        backends.extend(["gum", PATCHED]);
    }
    let mut figures = vec![[const { Vec::new() }; 3]; backends.len()];
    for round in 0..ROUNDS {
        for (backend, figures) in backends.iter().zip(&mut figures) {
            let trace = folder.join(format!("{backend}.{round}.cutape"));
            let driver = if *backend == PATCHED {
                &other_name
            } else {
                &driver
            };
            let calls = CALLS.to_string();
            let words = [program.as_os_str(), driver.as_os_str(), calls.as_ref()];
            for _ in 0..RUNS {
                let output = run(command(backend, &trace).args(words));
                output.assert_code(0);
                figures[0].push(output.stdout.trim().parse::<f64>().expect("a number"));
                if *backend != ALONE {
                    let recorded = ensure_recorded(&trace, "cuCtxGetCurrent", CALLS);
                    if let Err(error) = recorded {
                        eprintln!("{backend}: {error}\n{}", output.describe());
                        clean_up();
                        std::process::exit(1);
                    }
                }
                let _ = std::fs::remove_file(&trace);
            }
            let opens = format!("{} {} 0", program.display(), driver.display());
            for (what, figures) in ["/bin/true", &opens].into_iter().zip(&mut figures[1..]) {
                figures.push(start(backend, &trace, what));
            }
        }
    }
    let alone: Vec<f64> = figures[0].iter().map(|values| least(values)).collect();
    println!(
        "{:<14} {:>22} {:>22} {:>22}",
        "", "a call, ns", "start, µs", "start and open, µs"
    );
    for (backend, figures) in backends.iter().zip(&figures) {
        print!("{backend:<14}");
        for (values, alone) in figures.iter().zip(&alone) {
            let value = least(values);
            print!(" {:>22}", format!("{value:.1} ({:+.1})", value - alone));
        }
        println!();
    }
    clean_up();
}

/// The command that runs a program with that backend; the program's words follow.
fn command(backend: &str, trace: &Path) -> Command {
    if backend == ALONE {
        return Command::new("env");
    }
    let mut command = parts().cutape(&[
        &"record",
        &"--backend",
        &if backend == PATCHED { "gum" } else { backend },
        &"--driver",
        &"null",
        &"--no-pack",
        &"-o",
        &trace,
        &"--",
    ]);
    for (variable, name) in [
        ("CUTAPE_INTERPOSER", "libcutape_interposer.so"),
        ("CUTAPE_AUDIT", "libcutape_audit.so"),
    ] {
        let shipped = parts().cutape.with_file_name("../shim").join(name);
        // A library that the environment names is measured instead.
        let named = name == "libcutape_interposer.so"
            && std::env::var_os("CUTAPE_TESTS_INTERPOSER").is_some();
        if shipped.exists() && !named {
            command.env(variable, shipped);
        }
    }
    command
}

/// Microseconds that a shell takes for each run of a program.
fn start(backend: &str, trace: &Path, program: &str) -> f64 {
    // The shell measures, so that the start of `record` does not count.
    let script = format!(
        "a=$(date +%s%N); i=0; while [ $i -lt {STARTS} ]; do {program}; i=$((i+1)); done; \
         b=$(date +%s%N); echo $((b-a))"
    );
    let begun = Instant::now();
    let output = run(command(backend, trace).args(["sh", "-c", &script]));
    assert_eq!(output.code(), Some(0), "{}", output.describe());
    let nanoseconds: f64 = output.stdout.trim().parse().expect("a number");
    assert!(nanoseconds < begun.elapsed().as_nanos() as f64);
    nanoseconds / 1000.0 / f64::from(STARTS)
}

/// Why a backend cannot be used here.
fn refuses(backend: &str, folder: &Path) -> Option<String> {
    let trace = folder.join("try.cutape");
    let output = run(command(backend, &trace).arg("/bin/true"));
    (output.code() != Some(0)).then_some(output.stderr)
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}
