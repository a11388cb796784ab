//! Trimmed traces replay without divergences and check as their part of the source did.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use cutape_format::Trace;
use cutape_tests::{Suite, Verdict, compiled, names, parts, record, replay, run};

/// Programs whose traces are trimmed: memory, order, graphs, captures, textures, threads, links,
/// host memory that the device writes.
const PROGRAMS: [&str; 16] = [
    "context_stack",
    "copies_2d3d",
    "events",
    "graph",
    "graph_capture",
    "graph_update",
    "host_visible",
    "large_copies",
    "launch_vector_add",
    "library",
    "link_ptx",
    "managed",
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
        .test("all-calls", all_calls_are_the_same)
        .test("finding", a_part_keeps_its_finding)
        .test("range", a_range_is_cut_out)
        .test("images", images_keep_what_is_used)
        .test("no-payloads", payloads_that_are_not_there)
        .test("info", info_names_the_source);
}

/// Records a program on the null driver.
fn recorded(folder: &Path, name: &str, options: &[&str]) -> Result<PathBuf, String> {
    let path = folder.join("source.cutape");
    let output = run(&mut record(&path, options, &[&compiled(name)]));
    output.expect_code(0)?;
    Ok(path)
}

fn trim(source: &Path, target: &Path, choice: [&str; 2]) -> Result<(), String> {
    let [option, value] = choice;
    let mut command = parts().cutape(&[&"trim", &source, &option, &value, &"-o", &target]);
    run(&mut command).expect_code(0)
}

/// The indices that a trimmed trace names.
fn indices(trace: &Trace) -> Vec<usize> {
    let text = trace.meta_value("cut.calls").unwrap_or_default();
    let range = |word: &str| match word.split_once("..") {
        Some((start, end)) => start.parse().unwrap()..end.parse().unwrap(),
        None => word.parse().unwrap()..word.parse::<usize>().unwrap() + 1,
    };
    text.split(',').flat_map(range).collect()
}

fn parts_replay_and_check(folder: &Path, program: &str) -> Result<Verdict, String> {
    let source = recorded(folder, &format!("clean/{program}"), &[])?;
    let whole = names(&Trace::open(&source).map_err(|error| error.to_string())?);
    let count = whole.len();
    for (place, length) in [(1, 1), (2, 1), (2, 5), (3, 2)] {
        let start = count * place / 4;
        let set = format!("{start}..{}", (start + length).min(count));
        let target = folder.join(format!("{set}.cutape"));
        trim(&source, &target, ["--calls", &set])?;
        let trimmed = Trace::open(&target).map_err(|error| error.to_string())?;
        let its_names: Vec<_> = indices(&trimmed).iter().map(|&at| &whole[at]).collect();
        if !names(&trimmed).iter().eq(its_names.iter().copied()) {
            return Err(format!("{set}: other calls than it says: {its_names:?}"));
        }
        let is_smaller =
            fs::metadata(&target).unwrap().len() <= fs::metadata(&source).unwrap().len();
        if !is_smaller || its_names.len() > count {
            return Err(format!("{set}: larger than its source"));
        }
        run(&mut replay(&target)).expect_code(0)?;
        let check = run(&mut parts().cutape(&[&"check", &target]));
        check.expect_code(0)?;
        // The same again, byte for byte.
        let again = folder.join("again.cutape");
        trim(&source, &again, ["--calls", &set])?;
        if fs::read(&again).unwrap() != fs::read(&target).unwrap() {
            return Err(format!("{set}: not deterministic"));
        }
        fs::remove_file(&again).unwrap();
    }
    // No temporary file is left.
    let left = cutape_tests::files(folder);
    let is_trace = |path: &PathBuf| path.extension().is_some_and(|it| it == "cutape");
    match left.iter().all(is_trace) {
        true => Ok(Verdict::Passed),
        false => Err(format!("left: {left:?}")),
    }
}

fn all_calls_are_the_same(folder: &Path) -> Result<Verdict, String> {
    let source = recorded(folder, "clean/threads", &[])?;
    let target = folder.join("all.cutape");
    trim(&source, &target, ["--calls", ".."])?;
    let dump = |path: &Path| run(&mut parts().cutape(&[&"dump", &path])).stdout;
    let (before, after) = (dump(&source), dump(&target));
    let names_source =
        |line: &&str| line.starts_with("    note: call ") && line.ends_with(".cutape");
    let (named, lines): (Vec<_>, Vec<_>) = after.lines().partition(names_source);
    if lines != before.lines().collect::<Vec<_>>() {
        return Err("the dumps differ".into());
    }
    if named.get(3) != Some(&"    note: call 3 of source.cutape") {
        return Err(format!("the source is named {:?}", named.get(3)));
    }
    let length = |path: &Path| fs::metadata(path).unwrap().len();
    match length(&target) <= length(&source) {
        true => Ok(Verdict::Passed),
        false => Err("larger than its source".into()),
    }
}

fn a_part_keeps_its_finding(folder: &Path) -> Result<Verdict, String> {
    let source = recorded(folder, "rules/module-use-after-unload/violation", &[])?;
    let check = run(&mut parts().cutape(&[&"check", &"--format", &"json", &source]));
    let findings: serde_json::Value =
        serde_json::from_str(&check.stdout).map_err(|error| error.to_string())?;
    let call = findings["findings"][0]["call"]["call"].to_string();
    let target = folder.join("part.cutape");
    trim(&source, &target, ["--calls", &call])?;
    let check = run(&mut parts().cutape(&[&"check", &target]));
    check.expect_code(1)?;
    match check.stdout.contains("[module-use-after-unload]") {
        true => Ok(Verdict::Passed),
        false => Err(check.describe()),
    }
}

/// One step of a training, by the NVTX range around it.
fn a_range_is_cut_out(folder: &Path) -> Result<Verdict, String> {
    let source = recorded(folder, "clean/nvtx_ranges", &[])?;
    let target = folder.join("step.cutape");
    trim(&source, &target, ["--calls", "range:step[2]"])?;
    run(&mut replay(&target)).expect_code(0)?;
    let launches = |set: &str, path: &Path| {
        let dump = run(&mut parts().cutape(&[&"dump", &"--calls", &set, &path]));
        let lines = dump
            .stdout
            .lines()
            .filter(|line| line.contains(" cuLaunchKernel("));
        lines.count()
    };
    let counts = ["range:step", "cuLaunch*"].map(|set| launches(set, &target));
    match (counts, launches("range:step[2]", &source)) {
        ([3, 3], 3) => Ok(Verdict::Passed),
        other => Err(format!("{other:?} launches")),
    }
}

/// The fat binaries lose the entries for other devices, and nothing else changes.
fn images_keep_what_is_used(folder: &Path) -> Result<Verdict, String> {
    let source = recorded(folder, "clean/module_fatbin", &[])?;
    let [whole, used] = ["whole", "used"].map(|images| {
        let target = folder.join(format!("{images}.cutape"));
        let options: [&dyn AsRef<OsStr>; 6] =
            [&"--calls", &"..", &"--images", &images, &"-o", &target];
        let mut words: Vec<&dyn AsRef<OsStr>> = vec![&"trim", &source];
        words.extend(options);
        run(&mut parts().cutape(&words))
            .expect_code(0)
            .map(|()| target)
    });
    let (whole, used) = (whole?, used?);
    run(&mut replay(&used)).expect_code(0)?;
    run(&mut parts().cutape(&[&"check", &used])).expect_code(0)?;
    let loaded = |path: &Path| {
        let trace = Trace::open(path).unwrap();
        let images = trace.calls().filter_map(|call| {
            let snapshot = call.snapshots().find(|snapshot| {
                matches!(
                    &*trace.resolve(snapshot.bytes).unwrap_or_default(),
                    [0x50, 0xed, 0x55, 0xba, ..]
                )
            })?;
            Some((call.index, trace.resolve(snapshot.bytes).unwrap().len()))
        });
        let changed = trace
            .meta_value("cut.changed")
            .unwrap_or_default()
            .to_owned();
        (images.collect::<Vec<_>>(), changed)
    };
    let ((before, none), (after, changed)) = (loaded(&whole), loaded(&used));
    let smaller = before
        .iter()
        .zip(&after)
        .filter(|(before, after)| after.1 < before.1);
    let smaller: Vec<String> = smaller.map(|(before, _)| before.0.to_string()).collect();
    if smaller.is_empty() || before.len() != after.len() || !none.is_empty() {
        return Err(format!("{before:?} before, {after:?} after"));
    }
    match smaller.join(",") == changed {
        true => Ok(Verdict::Passed),
        false => Err(format!("{smaller:?} are smaller, {changed} are noted")),
    }
}

fn payloads_that_are_not_there(folder: &Path) -> Result<Verdict, String> {
    let source = recorded(folder, "clean/launch_vector_add", &["--payloads", "hash"])?;
    let target = folder.join("part.cutape");
    let trim = |option: &str, value: &str| {
        run(&mut parts().cutape(&[&"trim", &source, &option, &value, &"-o", &target]))
    };
    let refused = trim("--calls", "cuMemcpyHtoD*");
    refused.expect_code(2)?;
    if target.exists() || !refused.stderr.contains("record with --payloads all") {
        return Err(refused.describe());
    }
    trim("--calls", "cuInit").expect_code(0)?;
    Ok(Verdict::Passed)
}

fn info_names_the_source(folder: &Path) -> Result<Verdict, String> {
    let source = recorded(folder, "clean/events", &[])?;
    let target = folder.join("part.cutape");
    trim(&source, &target, ["--last", "3"])?;
    let info = run(&mut parts().cutape(&[&"info", &target]));
    info.expect_code(0)?;
    match info.stdout.contains("source.cutape, by trim --last 3: ") {
        true => Ok(Verdict::Passed),
        false => Err(info.describe()),
    }
}
