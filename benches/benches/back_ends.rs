//! What each back end of `record` costs: a call, the start of a program that never asks for libcuda, and of one that opens it.
//!
//! Everything is run in turn, several times, and the least of each is printed, with its distance from running alone: what disturbs
//! a run only adds to it. The libraries are those of the profile `shim` where they have been built, as they are shipped.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use cutape_tests::{clean_up, parts, root, run};

/// How often each is run.
const ROUNDS: usize = 15;
/// Calls of one run, and runs of a round: the shorter a run, the sooner one is not disturbed.
const CALLS: &str = "20000";
const RUNS: usize = 5;
/// The driver is opened by a name that is not led to us, so that each call comes from the driver's function, which is patched.
const PATCHED: &str = "gum, past us";
/// Programs that are started in one measurement: the session around them is not to count.
const STARTS: u32 = 50;

fn main() {
    // `cargo test --benches` and `cargo bench -- --list` ask for nothing to be measured.
    if !std::env::args().any(|word| word == "--bench") {
        return;
    }
    let folder = parts().new_folder("back-ends");
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
    let mut vias = vec!["alone", "preload", "audit"];
    if refuses("gum", &folder).is_none() {
        vias.extend(["gum", PATCHED]);
    }
    let mut figures = vec![[const { Vec::new() }; 3]; vias.len()];
    for round in 0..ROUNDS {
        for (via, figures) in vias.iter().zip(&mut figures) {
            let trace = folder.join(format!("{via}.{round}.cutape"));
            let driver = if *via == PATCHED {
                &other_name
            } else {
                &driver
            };
            let words = [program.as_os_str(), driver.as_os_str(), CALLS.as_ref()];
            for _ in 0..RUNS {
                let output = run(command(via, &trace).args(words));
                output.assert_code(0);
                figures[0].push(output.stdout.trim().parse::<f64>().expect("a number"));
                let _ = std::fs::remove_file(&trace);
            }
            let opens = format!("{} {} 0", program.display(), driver.display());
            for (what, figures) in ["/bin/true", &opens].into_iter().zip(&mut figures[1..]) {
                figures.push(start(via, &trace, what));
            }
        }
    }
    let alone: Vec<f64> = figures[0].iter().map(|values| least(values)).collect();
    println!(
        "{:<14} {:>22} {:>22} {:>22}",
        "", "a call, ns", "start, µs", "start and open, µs"
    );
    for (via, figures) in vias.iter().zip(&figures) {
        print!("{via:<14}");
        for (values, alone) in figures.iter().zip(&alone) {
            let value = least(values);
            print!(" {:>22}", format!("{value:.1} ({:+.1})", value - alone));
        }
        println!();
    }
    clean_up();
}

/// What runs a program that way; its words follow.
fn command(via: &str, trace: &Path) -> Command {
    if via == "alone" {
        return Command::new("env");
    }
    let mut command = parts().cutape(&[
        &"record",
        &"--via",
        &if via == PATCHED { "gum" } else { via },
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
        // What was named is to be measured.
        let named = name == "libcutape_interposer.so"
            && std::env::var_os("CUTAPE_TESTS_INTERPOSER").is_some();
        if shipped.exists() && !named {
            command.env(variable, shipped);
        }
    }
    command
}

/// Microseconds that a shell takes to run a program, one after the other.
fn start(via: &str, trace: &Path, program: &str) -> f64 {
    // The shell measures inside, so that our own start does not count.
    let script = format!(
        "a=$(date +%s%N); i=0; while [ $i -lt {STARTS} ]; do {program}; i=$((i+1)); done; b=$(date +%s%N); echo $((b-a))"
    );
    let begun = Instant::now();
    let output = run(command(via, trace).args(["sh", "-c", &script]));
    assert_eq!(output.code(), Some(0), "{}", output.describe());
    let nanoseconds: f64 = output.stdout.trim().parse().expect("a number");
    assert!(nanoseconds < begun.elapsed().as_nanos() as f64);
    nanoseconds / 1000.0 / f64::from(STARTS)
}

/// Why a back end cannot be used here.
fn refuses(via: &str, folder: &Path) -> Option<String> {
    let trace = folder.join("try.cutape");
    let output = run(command(via, &trace).arg("/bin/true"));
    (output.code() != Some(0)).then_some(output.stderr)
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}
