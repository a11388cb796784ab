//! Parts whose memory contents come from a replay: they need fewer calls, and replay and check like
//! their part of the source.

use std::fs;
use std::path::{Path, PathBuf};

use cutape_format::{Note, Trace};
use cutape_tests::{Output, Suite, Verdict, compiled, names, parts, record, replay, run};

/// Programs of which parts are cut at several places: memory of all kinds, order, graphs, captures,
/// textures, threads.
const PROGRAMS: [&str; 16] = [
    "copies_2d3d",
    "copies_batch",
    "events",
    "graph",
    "graph_capture",
    "host_visible",
    "large_copies",
    "launch_vector_add",
    "library_contexts",
    "managed",
    "memory_history",
    "module_globals",
    "stream_ordered",
    "textures",
    "threads",
    "virtual_memory",
];

pub(crate) fn add_to(suite: &mut Suite) {
    for program in PROGRAMS {
        suite.test(format!("parts/{program}"), move |folder| {
            parts_replay_and_check(folder, program)
        });
    }
    suite
        .test("one-step", one_step_of_thirty)
        .test("again", a_part_of_a_part)
        .test("finding", a_finding_about_unwritten_memory)
        .test("refused", what_is_refused);
}

fn recorded(folder: &Path, name: &str, options: &[&str]) -> Result<PathBuf, String> {
    let path = folder.join("source.cutape");
    run(&mut record(&path, options, &[&compiled(name)])).expect_code(0)?;
    Ok(path)
}

fn trim(source: &Path, target: &Path, options: &[&str]) -> Output {
    let mut command = parts().cutape(&[&"trim", &source, &"-o", &target]);
    run(command.args(["--state", "replay"]).args(options))
}

fn open(path: &Path) -> Result<Trace, String> {
    Trace::open(path).map_err(|error| error.to_string())
}

fn parts_replay_and_check(folder: &Path, program: &str) -> Result<Verdict, String> {
    let source = recorded(folder, &format!("clean/{program}"), &[])?;
    let count = names(&open(&source)?).len();
    for (place, length) in [(1, 1), (2, 1), (2, 5), (3, 20)] {
        let start = count * place / 4;
        let set = format!("{start}..{}", (start + length).min(count));
        let target = folder.join(format!("{set}.cutape"));
        trim(&source, &target, &["--calls", &set]).expect_code(0)?;
        let replayed = run(&mut replay(&target));
        replayed.expect_code(0)?;
        if replayed.stdout.contains("they were left out") {
            return Err(replayed.describe());
        }
        run(&mut parts().cutape(&[&"check", &target])).expect_code(0)?;
    }
    // Nothing else is left, not even a folder.
    let left = fs::read_dir(folder).map_err(|error| error.to_string())?;
    match left.count() {
        5 => Ok(Verdict::Passed),
        count => Err(format!("{count} files")),
    }
}

/// Address, length, and the word if it repeats, of the memory that the calls say.
fn memory(trace: &Trace) -> Vec<(u64, u64, Option<u64>)> {
    let notes = trace
        .calls()
        .flat_map(|call| call.notes().collect::<Vec<_>>());
    let memory = notes.filter_map(|note| match note {
        Note::Memory(note, _, bytes) => Some((
            note.address,
            note.length,
            bytes.is_none().then_some(note.fill),
        )),
        _ => None,
    });
    memory.collect()
}

fn one_step_of_thirty(folder: &Path) -> Result<Verdict, String> {
    let source = recorded(folder, "clean/memory_history", &[])?;
    let target = folder.join("step.cutape");
    let step = ["--calls", "range:step[20]"];
    trim(&source, &target, &step).expect_code(0)?;
    run(&mut replay(&target)).expect_code(0)?;
    run(&mut parts().cutape(&[&"check", &target])).expect_code(0)?;
    let (whole, part) = (open(&source)?, open(&target)?);
    let launches = |trace: &Trace| {
        let names = names(trace);
        names
            .iter()
            .filter(|name| *name == "cuLaunchKernel")
            .count()
    };
    if (launches(&whole), launches(&part)) != (30, 1) {
        return Err(format!("{} launches", launches(&part)));
    }
    // The numbers are reached only through the address in the table; the long memory is one word.
    let allocated: Vec<u64> = part
        .calls()
        .filter(|call| call.signature.name.starts_with("cuMemAlloc"))
        .filter_map(|call| call.out(0))
        .collect();
    let memory = memory(&part);
    let starts: Vec<u64> = memory.iter().map(|memory| memory.0).collect();
    let is_there = |address: &u64| starts.contains(address);
    // Of the filled memory the step reads a part.
    let ones = memory
        .iter()
        .find(|memory| memory.2 == Some(0x3f80_0000_3f80_0000));
    if allocated.len() != 5 || !allocated[..3].iter().all(is_there) || ones.is_none() {
        return Err(format!("{memory:x?} of {allocated:x?}"));
    }
    // The calls that computed the memory are needed without it.
    let other = folder.join("recorded.cutape");
    let command = &mut parts().cutape(&[&"trim", &source, &"-o", &other]);
    let hinted = run(command.args(step));
    hinted.expect_code(0)?;
    let all = names(&open(&other)?).len();
    let few = names(&part).len();
    if few * 4 > all || !hinted.stderr.contains("--state replay") {
        return Err(format!("{few} of {all} calls; {}", hinted.describe()));
    }
    let length = |path: &Path| fs::metadata(path).map_or(0, |file| file.len());
    if length(&target) >= length(&source) {
        return Err("larger than its source".into());
    }
    // The same again, byte for byte; and it says how it was made.
    let again = folder.join("again.cutape");
    trim(&source, &again, &step).expect_code(0)?;
    if fs::read(&again).unwrap() != fs::read(&target).unwrap() {
        return Err("not deterministic".into());
    }
    let info = run(&mut parts().cutape(&[&"info", &target]));
    info.expect_code(0)?;
    let dump = run(&mut parts().cutape(&[&"dump", &target]));
    dump.expect_code(0)?;
    let words = [
        (&info, "by trim --calls range:step[20] --state replay"),
        (&info, "null driver: does not run kernels"),
        (&dump, "holds before the call: "),
        (&dump, "the bytes 0000803f0000803f, repeated"),
    ];
    for (output, word) in words {
        if !output.stdout.contains(word) {
            return Err(format!("{word:?} is not in: {}", output.describe()));
        }
    }
    Ok(Verdict::Passed)
}

fn a_part_of_a_part(folder: &Path) -> Result<Verdict, String> {
    let source = recorded(folder, "clean/memory_history", &[])?;
    let steps = folder.join("steps.cutape");
    trim(&source, &steps, &["--calls", "range:step[10..20]"]).expect_code(0)?;
    // Contents that the first part stores are moved, or taken anew.
    for (name, state) in [("recorded", &[][..]), ("replay", &["--state", "replay"])] {
        let target = folder.join(format!("{name}.cutape"));
        let mut command = parts().cutape(&[&"trim", &steps, &"-o", &target]);
        let trimmed = run(command.args(["--calls", "range:step[13]"]).args(state));
        trimmed.expect_code(0)?;
        run(&mut replay(&target)).expect_code(0)?;
        run(&mut parts().cutape(&[&"check", &target])).expect_code(0)?;
        let trace = open(&target)?;
        if memory(&trace).is_empty() || trace.meta_value("cut.state") != Some("replay") {
            return Err(format!("{name}: no memory"));
        }
        let differs = run(&mut parts().cutape(&[&"diff", &target, &target]));
        differs.expect_code(0)?;
    }
    // Without its bytes a part cannot be compared, and says so.
    let packed = folder.join("packed.cutape");
    let pack = &mut parts().cutape(&[&"pack", &"--payloads", &"none", &steps, &"-o", &packed]);
    run(pack).expect_code(0)?;
    let replayed = run(&mut replay(&packed));
    match replayed
        .stdout
        .contains("host bytes were left out of the trace")
    {
        true => Ok(Verdict::Passed),
        false => Err(replayed.describe()),
    }
}

/// Memory that nothing has written is not restored, so that reading it is still found.
fn a_finding_about_unwritten_memory(folder: &Path) -> Result<Verdict, String> {
    let source = recorded(folder, "misuse/read-before-write/violation", &[])?;
    let check = |path: &Path| {
        let found = run(&mut parts().cutape(&[&"check", &"--format", &"json", &path]));
        let found: serde_json::Value = serde_json::from_str(&found.stdout).unwrap_or_default();
        let list = found["findings"].as_array().cloned().unwrap_or_default();
        let rules = list.iter().map(|one| one["rule"].to_string());
        (
            rules.collect::<Vec<_>>(),
            list.first().map(|one| one["call"]["call"].to_string()),
        )
    };
    let (rules, call) = check(&source);
    let target = folder.join("part.cutape");
    trim(&source, &target, &["--calls", &call.unwrap_or_default()]).expect_code(0)?;
    match check(&target).0 {
        found if found == rules && !rules.is_empty() => Ok(Verdict::Passed),
        found => Err(format!("{rules:?} in the source, {found:?} in the part")),
    }
}

fn what_is_refused(folder: &Path) -> Result<Verdict, String> {
    let source = recorded(folder, "clean/memory_history", &[])?;
    let target = folder.join("part.cutape");
    let hashed = folder.join("hashed.cutape");
    let mut pack = parts().cutape(&[&"pack", &"--payloads", &"hash", &source, &"-o", &hashed]);
    run(&mut pack).expect_code(0)?;
    let step = ["--calls", "range:step[20]"];
    let nowhere = ["--driver", "/nowhere/libcuda.so.1"];
    let wrong_driver = [&step[..], &nowhere].concat();
    for (source, target, options, words) in [
        (
            &source,
            &target,
            &["--calls", "range:epoch"][..],
            "no range `epoch`",
        ),
        (&hashed, &target, &step, "record with --payloads all"),
        (&source, &source, &step, "it exists"),
        (
            &source,
            &target,
            &wrong_driver,
            "--driver /nowhere/libcuda.so.1",
        ),
    ] {
        let refused = trim(source, target, options);
        refused.expect_code(2)?;
        let is_one_line = refused.stderr.trim_end().lines().count() == 1;
        if !is_one_line || !refused.stderr.contains(words) {
            return Err(format!("{words}: {}", refused.describe()));
        }
    }
    // A replay that differs before the part does not have its memory.
    let mut failing = parts().cutape(&[&"trim", &source, &"-o", &target]);
    failing.args(["--state", "replay"]).args(step);
    let failed = run(failing.env("CUTAPE_NULL_FAIL", "cuMemcpyDtoD_v2@3=700"));
    failed.expect_code(2)?;
    if !failed.stderr.contains("before call") || !failed.stderr.contains("--force") {
        return Err(failed.describe());
    }
    // A driver that crashes ends the replay.
    let mut crashing = parts().cutape(&[&"trim", &source, &"-o", &target]);
    crashing.args(["--state", "replay"]).args(step);
    let crashed = run(crashing.env("CUTAPE_NULL_CRASH", "cuMemcpyDtoD_v2@3"));
    crashed.expect_code(2)?;
    // The driver is that of a replay.
    let mut lone = parts().cutape(&[&"trim", &source, &"-o", &target, &"--driver", &"null"]);
    run(lone.args(step)).expect_code(2)?;
    let left = fs::read_dir(folder).map_err(|error| error.to_string())?;
    match left.count() {
        2 => Ok(Verdict::Passed),
        count => Err(format!("{count} files: {}", crashed.describe())),
    }
}
