//! What call stacks add to a call, for stacks of several depths, beside two other ways to take
//! them; and the same in Python.

use std::path::Path;
use std::process::Command;

use cutape_benches::recorded::{Recorded, is_asked_for, median, run};
use cutape_format::Trace;

const ROUNDS: usize = 5;

fn main() {
    if !is_asked_for() {
        return;
    }
    let recorded = Recorded::build();
    let native = recorded.compile("benches/programs/stack_cost.c", "stack_cost");
    println!("ns a call (cuCtxGetCurrent)");
    println!(
        "{:<22} {:>9} {:>9} {:>9} {:>9} {:>15} {:>8} {:>11}",
        "frames", "bare", "recorded", "stacks", "added", "frame pointers", "copy", "stack bytes"
    );
    for frames in ["4", "24", "64", "150"] {
        let mut command = Command::new(&native);
        command.args([frames, "20000"]);
        let [bare, off, all] = three(&recorded, &command);
        let figure = |name: &str| {
            bare.iter()
                .find(|figure| figure.0 == name)
                .map_or(0.0, |f| f.1)
        };
        println!(
            "{frames:<22} {:>9.1} {:>9.1} {:>9.1} {:>9.1} {:>15.1} {:>8.1} {:>11}",
            bare[0].1,
            off[0].1,
            all[0].1,
            all[0].1 - off[0].1,
            figure("frame_pointers_ns"),
            figure("copy_ns"),
            figure("stack_bytes"),
        );
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/stack_cost.py");
    for frames in ["4", "24", "64"] {
        let mut command = Command::new("python3");
        command.arg(&script).args([frames, "5000"]);
        let [bare, off, all] = three(&recorded, &command);
        println!(
            "{:<22} {:>9.1} {:>9.1} {:>9.1} {:>9.1}",
            format!("{frames} of Python"),
            bare[0].1,
            off[0].1,
            all[0].1,
            all[0].1 - off[0].1
        );
    }
}

/// The figures of a program: bare, recorded, and recorded with the stacks of all calls.
fn three(recorded: &Recorded, program: &Command) -> [Vec<(String, f64)>; 3] {
    let mut all: [Vec<Vec<(String, f64)>>; 3] = Default::default();
    for _ in 0..ROUNDS {
        for (stacks, figures) in [None, Some("off"), Some("all")].into_iter().zip(&mut all) {
            let mut command = Command::new(program.get_program());
            command.args(program.get_args());
            recorded.prepare(&mut command, stacks.is_some());
            command.env("CUTAPE_STACKS", stacks.unwrap_or("off"));
            let output = run(&mut command);
            if stacks.is_some() {
                let trace = Trace::open(&recorded.trace()).expect("the program was recorded");
                assert_eq!(trace.has_stacks(), stacks == Some("all"));
            }
            let figure = |line: &str| {
                let (name, value) = line.split_once(' ')?;
                Some((name.to_owned(), value.parse().ok()?))
            };
            figures.push(output.lines().filter_map(figure).collect());
        }
    }
    all.map(|runs| {
        let first = runs.first().expect("there are rounds");
        (0..first.len())
            .map(|at| {
                let mut values: Vec<f64> = runs.iter().map(|run| run[at].1).collect();
                (first[at].0.clone(), median(&mut values))
            })
            .collect()
    })
}
