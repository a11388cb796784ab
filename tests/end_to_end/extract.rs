//! `cutape extract` on the null driver: images, and launches as programs that check themselves.
//!
//! Kernels run no code there, so the extracted programs find memory as it was before. That they
//! notice a difference is shown with descriptions that expect other contents.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use cutape_format::Trace;
use cutape_tests::{Output, Verdict, compiled, parts, record, run};
use serde_json::Value;

cutape_tests::tests![
    every_image_is_written_once_and_unpacked,
    machine_code_is_disassembled_where_a_disassembler_is_installed,
    a_launch_is_a_program_that_checks_itself,
    a_difference_is_found_and_told,
    all_launches_run_and_a_table_says_so,
    kernel_nodes_of_graphs_are_launches,
    changed_nodes_of_executable_graphs_run_as_changed,
    textures_arrays_and_variables_of_other_modules_are_recreated,
    a_sample_has_all_kernels,
    what_does_not_fit_is_left_out_and_named,
    kernels_that_use_the_heap_are_left_out,
    bad_input_is_refused_and_nothing_is_written,
    an_interrupted_extraction_leaves_nothing,
];

/// A recorded program of `clean/`.
fn trace(folder: &Path, name: &str) -> PathBuf {
    let trace = folder.join(format!("{name}.cutape"));
    run(&mut record(
        &trace,
        &[],
        &[&compiled(&format!("clean/{name}"))],
    ))
    .assert(0);
    trace
}

/// Runs `cutape extract TRACE OPTIONS` on the null driver.
fn extract(trace: &Path, options: &[&str], target: &Path) -> Output {
    let mut command = parts().cutape(&[&"extract", &trace]);
    run(command.args(options).arg(target).args(["--driver", "null"]))
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

/// Indices of the launches of a trace.
fn launches(trace: &Path) -> Vec<u64> {
    let trace = Trace::open(trace).unwrap();
    let is_launch = |name: &str| name.starts_with("cuLaunch") && name.contains("Kernel");
    let launches = trace.calls().filter(|call| is_launch(&call.signature.name));
    launches
        .filter(|call| call.succeeded())
        .map(|call| call.index)
        .collect()
}

/// The extracted C++ program, compiled once; as C, because there may be no C++ compiler.
fn program(source: &Path) -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let program = parts().new_folder("extracted-program").join("launch");
        let is_there = |name: &&str| run(Command::new(name).arg("--version")).code() == Some(0);
        let compilers = [("c++", "c++", "-std=c++11"), ("cc", "c", "-std=c99")];
        let mut known = 0;
        for (compiler, language, standard) in compilers {
            if !is_there(&compiler) {
                continue;
            }
            known += 1;
            let mut command = Command::new(compiler);
            command.args([
                "-x", language, standard, "-Wall", "-Wextra", "-Werror", "-o",
            ]);
            run(command.arg(&program).arg(source).args(["-ldl", "-lm"])).assert(0);
        }
        assert!(known > 0, "no compiler");
        program
    })
}

/// Runs an extracted launch with the program in C++ and with that in Python, if there is one.
fn run_launch(folder: &Path, description: &Path) -> Vec<Output> {
    let driver = &parts().null_driver;
    let mut commands = vec![Command::new(program(&folder.join("launch.cpp")))];
    if has_python() {
        let mut python = Command::new("python3");
        python.arg(folder.join("launch.py"));
        commands.push(python);
    }
    let run = |mut command: Command| run(command.arg("--driver").arg(driver).arg(description));
    commands.into_iter().map(run).collect()
}

fn has_python() -> bool {
    run(Command::new("python3").args(["-c", "import ctypes"])).code() == Some(0)
}

fn every_image_is_written_once_and_unpacked(folder: &Path) {
    let trace = trace(folder, "module_fatbin");
    let target = folder.join("images");
    let output = extract(&trace, &["--images"], &target);
    output.assert(0);
    let index = json(&target.join("index.json"));
    let images = index["images"].as_array().unwrap();
    let kinds: Vec<&str> = images
        .iter()
        .map(|image| image["image"].as_str().unwrap())
        .collect();
    assert!(kinds.contains(&"fatbin"), "{kinds:?}");
    assert_eq!(index["missing"].as_array().unwrap().len(), 0);
    let mut kernels = 0;
    for image in images {
        let whole = fs::read(target.join(image["file"].as_str().unwrap())).unwrap();
        assert_eq!(image["bytes"].as_u64().unwrap(), whole.len() as u64);
        for entry in image["entries"].as_array().unwrap() {
            let bytes = fs::read(target.join(entry["file"].as_str().unwrap())).unwrap();
            let name = entry["file"].as_str().unwrap();
            let (begins, ending) = match entry["code"].as_str().unwrap() {
                "cubin" => (&b"\x7fELF"[..], ".cubin"),
                "PTX" => (&b".version"[..], ".ptx"),
                other => panic!("{other}"),
            };
            let is_begun = bytes
                .windows(begins.len())
                .take(64)
                .any(|part| part == begins);
            assert!(is_begun && name.ends_with(ending), "{name}");
            for kernel in entry["kernels"].as_array().unwrap() {
                kernels += 1;
                let name = kernel["name"].as_str().unwrap().as_bytes();
                let is_inside = bytes.windows(name.len()).any(|part| part == name);
                assert!(is_inside, "{kernel}");
            }
        }
    }
    assert!(kernels > 0);
    let listing = text(&target.join("index.txt"));
    assert!(listing.contains("kernel "), "{listing}");
    assert!(
        output.stdout.contains("index.txt lists them"),
        "{}",
        output.describe()
    );
    // Loaded again, an image is the same.
    let again = extract(
        &self::trace(folder, "module_load_data"),
        &["--images"],
        &folder.join("b"),
    );
    again.assert(0);
    let index = json(&folder.join("b/index.json"));
    let uses = index["images"]
        .as_array()
        .unwrap()
        .iter()
        .map(|image| image["uses"].as_u64());
    assert!(uses.flatten().max() > Some(1), "{index:#}");
}

fn machine_code_is_disassembled_where_a_disassembler_is_installed(folder: &Path) {
    let trace = trace(folder, "module_fatbin");
    let tools = folder.join("tools");
    fs::create_dir(&tools).unwrap();
    let tool = tools.join("nvdisasm");
    fs::write(&tool, "#!/bin/sh\necho \"SASS of ${1##*/}\"\n").unwrap();
    run(Command::new("chmod").arg("+x").arg(&tool)).assert(0);
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
    let target = folder.join("images");
    let mut command = parts().cutape(&[&"extract", &trace, &"--images", &target]);
    let output = run(command.env("PATH", path));
    output.assert(0);
    assert!(
        output.stdout.contains("disassembled with"),
        "{}",
        output.describe()
    );
    let index = json(&target.join("index.json"));
    let entries = index["images"].as_array().unwrap().iter();
    let entries = entries.flat_map(|image| image["entries"].as_array().unwrap());
    let sass: Vec<_> = entries.filter_map(|entry| entry["sass"].as_str()).collect();
    assert!(!sass.is_empty());
    for name in sass {
        let cubin = name.replace(".sass", ".cubin");
        assert_eq!(text(&target.join(name)), format!("SASS of {cubin}\n"));
    }
}

fn a_launch_is_a_program_that_checks_itself(folder: &Path) {
    let trace = trace(folder, "launch_vector_add");
    let number = launches(&trace)[0];
    let target = folder.join("one");
    let output = extract(&trace, &["--launch", &number.to_string()], &target);
    output.assert(0);
    let mut names: Vec<String> = fs::read_dir(&target)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let expected = [
        "CMakeLists.txt",
        "README.md",
        "kernel.ptx",
        "launch.cpp",
        "launch.py",
        "launch.txt",
        "memory.bin",
    ];
    assert_eq!(names, expected);
    let readme = text(&target.join("README.md"));
    assert!(
        readme.contains(&format!("call {number} of launch_vector_add.cutape")),
        "{readme}"
    );
    for output in run_launch(&target, &target.join("launch.txt")) {
        output.assert(0);
        let lines: Vec<&str> = output.stdout.lines().collect();
        assert_eq!(
            lines.last(),
            Some(&"result   same"),
            "{}",
            output.describe()
        );
        assert!(output.stdout.contains("time     "), "{}", output.describe());
        assert!(output.stderr.is_empty(), "{}", output.describe());
    }
}

fn a_difference_is_found_and_told(folder: &Path) {
    let trace = trace(folder, "launch_vector_add");
    let number = launches(&trace)[0];
    let target = folder.join("one");
    extract(&trace, &["--launch", &number.to_string()], &target).assert(0);
    let description = text(&target.join("launch.txt"));
    // The kernel was to leave zeros where there is something.
    let piece = description
        .lines()
        .find(|line| line.starts_with("before "))
        .unwrap();
    let mut words = piece.split(' ').skip(1);
    let (at, length) = (words.next().unwrap(), words.next().unwrap());
    let other = format!("{piece}\nafter-zero {at} {length}");
    let zeroed = target.join("zeroed.txt");
    fs::write(&zeroed, description.replacen(piece, &other, 1)).unwrap();
    for output in run_launch(&target, &zeroed) {
        output.expect_code(1).unwrap();
        assert!(
            output.stdout.contains("\nresult   different\n"),
            "{}",
            output.describe()
        );
        assert!(
            output.stdout.contains("expected 00, received "),
            "{}",
            output.describe()
        );
    }
    for (from, to, why) in [
        (
            "kernel ",
            "kernel no_such_",
            "cuModuleGetFunction returned CUDA_ERROR_NOT_FOUND",
        ),
        ("image kernel", "image nowhere/kernel", "nowhere/kernel"),
        (
            "contents memory",
            "contents nowhere/memory",
            "nowhere/memory",
        ),
    ] {
        let changed = target.join("changed.txt");
        fs::write(&changed, description.replacen(from, to, 1)).unwrap();
        for output in run_launch(&target, &changed) {
            output.expect_code(2).unwrap();
            let last = output.stdout.lines().last().unwrap();
            let is_told = last.starts_with("result   refused: ") && last.contains(why);
            assert!(is_told, "{}", output.describe());
        }
    }
}

fn all_launches_run_and_a_table_says_so(folder: &Path) -> Verdict {
    if !has_python() {
        return Verdict::Ignored("no python3".to_owned());
    }
    // Attributes, many parameters, shared memory, structs, variables, libraries, other memory.
    for name in [
        "launch_ex",
        "launch_many_parameters",
        "launch_shared",
        "launch_struct",
        "launch_extra",
        "launch_cooperative",
        "launch_variables",
        "module_globals",
        "module_load_file",
        "library",
        "managed",
        "memory_host",
        "virtual_memory",
        "stream_ordered",
    ] {
        let trace = trace(folder, name);
        let count = launches(&trace).len();
        if count == 0 {
            continue;
        }
        let target = folder.join(name);
        let output = extract(&trace, &["--all"], &target);
        output.assert(0);
        let index = json(&target.join("index.json"));
        let extracted = index["launches"].as_array().unwrap().len();
        assert_eq!(extracted, count, "{name}\n{}", output.describe());
        assert!(
            index["left_out"].as_object().unwrap().is_empty(),
            "{name} {index:#}"
        );
        let program = program(&target.join("launch.cpp"));
        for with_program in [false, true] {
            let mut command = Command::new("python3");
            command.arg(target.join("run_all.py"));
            command.arg("--driver").arg(&parts().null_driver);
            command.arg("--json").arg(target.join("results.json"));
            if with_program {
                command.arg("--program").arg(program);
            }
            let output = run(&mut command);
            output.assert(0);
            let results = json(&target.join("results.json"));
            let results = results["results"].as_array().unwrap();
            assert!(
                results.iter().all(|result| result["result"] == "same"),
                "{name}"
            );
            assert_eq!(results.len(), extracted, "{name}");
            let last = output
                .stdout
                .lines()
                .find(|line| line.ends_with("  all"))
                .unwrap();
            let counts: Vec<&str> = last.split_whitespace().take(2).collect();
            let expected = extracted.to_string();
            assert_eq!(counts, [&expected, &expected], "{}", output.describe());
        }
    }
    Verdict::Passed
}

fn kernel_nodes_of_graphs_are_launches(folder: &Path) {
    let mut nodes = 0;
    for name in ["graph", "graph_capture", "graph_nodes", "launch_texture"] {
        let trace = trace(folder, name);
        let target = folder.join(name);
        let output = extract(&trace, &["--all"], &target);
        output.assert(0);
        let index = json(&target.join("index.json"));
        // The nodes in place of the graph do what the graph did, copies and memsets too.
        assert_eq!(index["divergences"], 0, "{name} {index:#}");
        for launch in index["launches"].as_array().unwrap() {
            let file = launch["file"].as_str().unwrap();
            if let Some(node) = launch["node"].as_u64() {
                nodes += 1;
                assert!(file.ends_with(&format!(".{node}.txt")), "{launch}");
            }
            let mut command = Command::new(program(&target.join("launch.cpp")));
            command
                .arg("--driver")
                .arg(&parts().null_driver)
                .arg(target.join(file));
            let output = run(&mut command);
            output.assert(0);
            assert!(
                output.stdout.ends_with("result   same\n"),
                "{}",
                output.describe()
            );
        }
    }
    assert!(nodes > 4, "{nodes}");
    let changed = extract(
        &self::trace(folder, "graph_update"),
        &["--all"],
        &folder.join("none"),
    );
    changed.expect_code(2).unwrap();
    let why = "the graphs have no kernel nodes";
    assert!(changed.stderr.contains(why), "{}", changed.describe());
    let trace = folder.join("graph_capture.cutape");
    let index = json(&folder.join("graph_capture/index.json"));
    let mut launches = index["launches"].as_array().unwrap().iter();
    let of_graph = launches.find(|launch| launch["node"] == 0).unwrap();
    let call = of_graph["call"].as_u64().unwrap();
    let target = folder.join("one");
    extract(&trace, &["--launch", &format!("{call}.0")], &target).assert(0);
    let all = text(&folder.join(format!("graph_capture/launches/{call:06}.0.txt")));
    let one = text(&target.join("launch.txt"));
    let shape = |text: &str| {
        let wanted = |line: &&str| {
            ["kernel", "grid", "block"]
                .iter()
                .any(|word| line.starts_with(word))
        };
        text.lines()
            .filter(wanted)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(shape(&one), shape(&all));
    let source = format!("source kernel node 0 of the graph of call {call} of ");
    assert!(one.contains(&source), "{one}");
    for (number, why) in [
        (
            format!("{call}"),
            "that call launches a graph: name one of its kernel nodes",
        ),
        (
            format!("{call}.99"),
            "the graph has no kernel node of that number",
        ),
        ("0.1".to_owned(), "which launches no graph"),
    ] {
        let output = extract(&trace, &["--launch", &number], &folder.join("none"));
        output.expect_code(2).unwrap();
        assert!(output.stderr.contains(why), "{}", output.describe());
    }
}

fn changed_nodes_of_executable_graphs_run_as_changed(folder: &Path) {
    let trace = trace(folder, "graph_kernel_update");
    let target = folder.join("all");
    extract(&trace, &["--all"], &target).assert(0);
    let index = json(&target.join("index.json"));
    assert_eq!(index["divergences"], 0, "{index:#}");
    assert!(
        index["left_out"].as_object().unwrap().is_empty(),
        "{index:#}"
    );
    // The number that fill is given, by launch of the graph and node.
    let mut values: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for launch in index["launches"].as_array().unwrap() {
        let Some(node) = launch["node"].as_u64() else {
            continue;
        };
        let text = text(&target.join(launch["file"].as_str().unwrap()));
        let value = text.lines().find_map(|line| {
            let rest = line.strip_prefix("parameter 8 4 # ")?;
            Some(rest.split(',').next().unwrap().to_owned())
        });
        let values = values.entry(launch["call"].as_u64().unwrap()).or_default();
        values.push(format!("{node}: {}", value.unwrap()));
    }
    let values: Vec<_> = values.values().map(|nodes| nodes.join(", ")).collect();
    // In the second launch, node 1 is switched off.
    let expected = [
        "0: 100, 1: 100",
        "0: 200",
        "0: 200, 1: 300",
        "0: 100, 1: 400",
    ];
    assert_eq!(values, expected);
    let open = Trace::open(&trace).unwrap();
    let mut launches = open
        .calls()
        .filter(|call| call.signature.name == "cuGraphLaunch");
    let off = format!("{}.1", launches.nth(1).unwrap().index);
    let output = extract(&trace, &["--launch", &off], &folder.join("off"));
    output.expect_code(2).unwrap();
    let why = "the node is switched off";
    assert!(output.stderr.contains(why), "{}", output.describe());
}

fn textures_arrays_and_variables_of_other_modules_are_recreated(folder: &Path) {
    // What differs in an array, in a variable of another module, and in the address of one.
    for (name, kernel, from, to) in [
        ("launch_texture", "sample", "array 2048 ", "after-zero 4 4"),
        (
            "launch_variables",
            "read",
            "variable 16 table",
            "after-zero 0 4",
        ),
        (
            "launch_variables",
            "follow",
            "before-address 0 ",
            "after-zero 0 8",
        ),
    ] {
        let traces = folder.join(kernel);
        fs::create_dir(&traces).unwrap();
        let trace = trace(&traces, name);
        let target = traces.join("all");
        extract(&trace, &["--all"], &target).assert(0);
        let index = json(&target.join("index.json"));
        let mut launches = index["launches"].as_array().unwrap().iter();
        let launch = launches.find(|launch| launch["kernel"] == kernel).unwrap();
        let description = target.join(launch["file"].as_str().unwrap());
        for output in run_launch(&target, &description) {
            output.assert(0);
            let is_same = output.stdout.ends_with("result   same\n");
            assert!(is_same, "{}", output.describe());
        }
        let whole = text(&description);
        let mut lines: Vec<&str> = whole.lines().collect();
        let at = lines
            .iter()
            .position(|line| line.starts_with(from))
            .unwrap();
        let after = "after-address 0 ";
        lines.insert(at + 1, to);
        lines.retain(|line| !line.starts_with(after));
        fs::write(&description, lines.join("\n")).unwrap();
        for output in run_launch(&target, &description) {
            output.expect_code(1).unwrap();
            let is_different = output.stdout.ends_with("result   different\n");
            assert!(is_different, "{}", output.describe());
        }
    }
    // One launch alone, with the image of the other module beside it.
    let trace = folder.join("read/launch_variables.cutape");
    let target = folder.join("one");
    let number = launches(&trace)[0].to_string();
    extract(&trace, &["--launch", &number], &target).assert(0);
    let files = cutape_tests::files(&target);
    let is_module = |file: &PathBuf| file.to_string_lossy().contains("/module-");
    assert_eq!(files.iter().filter(|file| is_module(file)).count(), 1);
    for output in run_launch(&target, &target.join("launch.txt")) {
        output.assert(0);
    }
}

fn a_sample_has_all_kernels(folder: &Path) {
    let trace = trace(folder, "launch_thousand");
    let kernels = |index: &Value| {
        let mut counts = BTreeMap::new();
        for launch in index["launches"].as_array().unwrap() {
            *counts.entry(launch["kernel"].to_string()).or_insert(0) += 1;
        }
        counts
    };
    extract(&trace, &["--all"], &folder.join("all")).assert(0);
    let all = kernels(&json(&folder.join("all/index.json")));
    assert!(all.values().sum::<i32>() >= 1000, "{all:?}");
    extract(&trace, &["--all", "--sample", "7"], &folder.join("some")).assert(0);
    let some = kernels(&json(&folder.join("some/index.json")));
    assert_eq!(some.values().sum::<i32>(), 7);
    assert!(some.keys().eq(all.keys()), "{some:?} {all:?}");
    // Equal pages are in the file once.
    let size = |name: &str| fs::metadata(folder.join(name)).unwrap().len();
    assert!(
        size("all/memory.bin") < 4 * size("some/memory.bin"),
        "shared contents"
    );
    let set = format!("{}..", launches(&trace)[990]);
    extract(&trace, &["--all", "--calls", &set], &folder.join("last")).assert(0);
    let last = kernels(&json(&folder.join("last/index.json")));
    assert!(last.values().sum::<i32>() < 100, "{last:?}");
}

fn what_does_not_fit_is_left_out_and_named(folder: &Path) {
    let trace = trace(folder, "launch_vector_add");
    let output = extract(
        &trace,
        &["--all", "--limit-bytes", "1"],
        &folder.join("all"),
    );
    output.assert(0);
    // One launch has memory of zeros only.
    let expected = "memory is left out: the limit of 1 bytes for contents is reached";
    assert!(
        output.stdout.contains("1 launch, 0 bytes"),
        "{}",
        output.describe()
    );
    assert!(output.stdout.contains(expected), "{}", output.describe());
    let index = json(&folder.join("all/index.json"));
    let left_out = index["left_out"][expected].as_array().unwrap();
    let count = launches(&trace).len();
    assert_eq!(left_out.len() + 1, count, "{index:#}");
    let target = folder.join("one");
    let number = launches(&trace)[0].to_string();
    let options = ["--launch", &number, "--limit-bytes", "1"];
    let output = extract(&trace, &options, &target);
    output.expect_code(2).unwrap();
    assert!(
        output.stderr.contains("memory of cuMemAlloc"),
        "{}",
        output.describe()
    );
}

fn kernels_that_use_the_heap_are_left_out(folder: &Path) {
    let trace = trace(folder, "launch_heap");
    let why = "its image calls malloc or free: the heap of the device is not extracted";
    let output = extract(&trace, &["--all"], &folder.join("all"));
    output.assert(0);
    assert!(
        output.stdout.contains("left out: 1, the first at call"),
        "{}",
        output.describe()
    );
    let index = json(&folder.join("all/index.json"));
    let call = index["left_out"][why][0].as_u64().unwrap();
    // That of program.h, which asks whether kernels run.
    assert_eq!(index["launches"].as_array().unwrap().len(), 1, "{index:#}");
    let target = folder.join("one");
    let output = extract(&trace, &["--launch", &call.to_string()], &target);
    output.expect_code(2).unwrap();
    assert!(output.stderr.contains(why), "{}", output.describe());
    assert!(!target.exists());
}

fn bad_input_is_refused_and_nothing_is_written(folder: &Path) {
    let vector = trace(folder, "launch_vector_add");
    let hashed = folder.join("hashed.cutape");
    let program = compiled("clean/launch_vector_add");
    run(&mut record(&hashed, &["--payloads", "hash"], &[&program])).assert(0);
    let no_launch = trace(folder, "memory_basic");
    let number = launches(&vector)[0].to_string();
    let there = folder.join("there");
    fs::write(&there, "mine").unwrap();
    let before = cutape_tests::files(folder);
    let (new, inner) = (folder.join("new"), folder.join("no/where"));
    type Row<'a> = (&'a Path, &'a [&'a str], &'a Path, &'a str);
    let table: [Row<'_>; 13] = [
        (
            &vector,
            &["--launch", "0"],
            &new,
            "which launches no kernel",
        ),
        (
            &vector,
            &["--launch", "999999"],
            &new,
            "no call of that number",
        ),
        (&vector, &["--launch", "x"], &new, "invalid value"),
        (
            &vector,
            &["--all", "--calls", "kernel:none"],
            &new,
            "no kernel `none` is launched",
        ),
        (
            &vector,
            &["--all", "--calls", "cuMemAlloc*"],
            &new,
            "none of these calls",
        ),
        (
            &vector,
            &["--all", "--limit-bytes", "many"],
            &new,
            "number of bytes",
        ),
        (&vector, &["--all", "--images"], &new, "cannot be used with"),
        (&vector, &[], &new, "required"),
        (
            &vector,
            &["--images"],
            &there,
            "it exists; choose another name",
        ),
        (&vector, &["--all"], &inner, "No such file"),
        (
            &no_launch,
            &["--all"],
            &new,
            "no call of the trace launches a kernel",
        ),
        (
            &no_launch,
            &["--images"],
            &new,
            "no call of the trace loads device code",
        ),
        (
            &hashed,
            &["--launch", &number],
            &new,
            "are not in the trace: record it with",
        ),
    ];
    for (trace, options, target, why) in table {
        let output = extract(trace, options, target);
        output.expect_code(2).unwrap();
        assert!(output.stderr.contains(why), "{why}\n{}", output.describe());
        assert!(!output.stderr.contains("panicked"), "{}", output.describe());
        assert_eq!(cutape_tests::files(folder), before, "{}", output.describe());
    }
    assert_eq!(text(&there), "mine");
}

fn an_interrupted_extraction_leaves_nothing(folder: &Path) {
    let trace = trace(folder, "launch_vector_add");
    let place = folder.join("place");
    fs::create_dir(&place).unwrap();
    let mut command = parts().cutape(&[&"extract", &trace, &"--all", &place.join("all")]);
    command
        .args(["--driver", "null"])
        .env("CUTAPE_NULL_DELAY", "cuLaunchKernel=20s");
    let mut child = command.spawn().unwrap();
    let entries = || fs::read_dir(&place).unwrap().count();
    let begin = Instant::now();
    while entries() == 0 && begin.elapsed() < Duration::from_secs(20) {
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(entries(), 1, "the folder in progress");
    // SAFETY: a system call without pointers, for a child that has not been waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130), "{:?}", status.signal());
    assert_eq!(entries(), 0, "nothing is left");
}
