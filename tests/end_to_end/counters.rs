//! `cutape profile --counters` on the null driver, with a program in the place of NVIDIA's `ncu`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cutape_format::Trace;
use cutape_tests::{Output, compiled, parts, record, root, run};
use serde_json::Value;

cutape_tests::tests![
    kernels_are_joined_with_calls,
    a_set_chooses_launches,
    what_ncu_cannot_do_is_said,
    other_readers_have_them,
];

/// A recorded program with launches of four kernels.
fn trace() -> &'static Path {
    static TRACE: OnceLock<PathBuf> = OnceLock::new();
    TRACE.get_or_init(|| {
        let trace = parts().new_folder("counters-trace").join("app.cutape");
        let program = compiled("clean/launch_vector_add");
        run(&mut record(&trace, &[], &[&program])).assert(0);
        trace
    })
}

fn launches() -> Vec<u64> {
    let trace = Trace::open(trace()).unwrap();
    let calls = trace.calls();
    let launches = calls.filter(|call| call.signature.name == "cuLaunchKernel");
    launches.map(|call| call.index).collect()
}

/// The launches and their shapes, for the program in the place of ncu.
fn shapes() -> String {
    let shapes = [
        "(32,1,1):(256,1,1)",
        "(1,1,1):(1,1,1)",
        "(16,1,1):(128,1,1)",
        "(2,3,4):(8,4,2)",
    ];
    let shapes = launches().into_iter().zip(shapes);
    let shapes: Vec<String> = shapes
        .map(|(call, shape)| format!("{call}:{shape}"))
        .collect();
    shapes.join(" ")
}

fn profile(options: &[&str], plan: &str) -> Output {
    let mut command = parts().cutape(&[&"profile", &trace(), &"--driver", &"null"]);
    command.args(["--cupti", "none"]).args(options);
    if !options.contains(&"--ncu") {
        let ncu = root().join("tests/programs/profile/ncu.sh");
        command.arg("--ncu").arg(ncu);
    }
    command.env("CUTAPE_TESTS_NCU_SHAPES", shapes());
    run(command.env("CUTAPE_TESTS_NCU", plan))
}

fn counters(options: &[&str], plan: &str) -> Value {
    let options = [options, &["--format", "json"]].concat();
    let output = profile(&options, plan);
    output.assert_code(0);
    let document: Value = serde_json::from_str(&output.stdout).unwrap();
    document["counters"].clone()
}

fn calls(counters: &Value) -> Vec<u64> {
    let kernels = counters["kernels"].as_array().unwrap().iter();
    kernels
        .map(|kernel| kernel["call"].as_u64().unwrap())
        .collect()
}

fn kernels_are_joined_with_calls(folder: &Path) {
    let counters = counters(&["--counters"], "");
    assert_eq!(calls(&counters), launches());
    assert_eq!(counters["version"], "2025.3.1.0");
    assert_eq!(counters["passes"], 28);
    assert!(counters["wall_ns"].as_u64() > Some(0) && counters["plain_ns"].as_u64() > Some(0));
    assert_eq!(counters["left_out"], Value::Null);
    let kernel = &counters["kernels"][0];
    // The name is that of the trace.
    assert_eq!(kernel["name"], "vector_add");
    assert_eq!(kernel["grid"], serde_json::json!([32, 1, 1]));
    assert_eq!(kernel["duration_ns"], 1500.0);
    assert_eq!(kernel["dram_share"], 0.505);
    assert_eq!(kernel["l1_hit_rate"], Value::Null);
    let roofline = &kernel["roofline"];
    assert_eq!(
        (&roofline["flops_per_second"], &roofline["intensity"]),
        (&16_384e9.into(), &16.384.into())
    );
    assert_eq!(
        (&roofline["bound"], &roofline["roof_share"]),
        (&"compute".into(), &0.5.into())
    );
    assert_eq!(kernel["stalls"][0]["reason"], "long scoreboard");
    assert_eq!(kernel["metrics"]["profiler__replayer_passes"], 7.0);
    let options_file = folder.join("options");
    let mut command = parts().cutape(&[&"profile", &trace(), &"--driver", &"null"]);
    command.args(["--cupti", "none", "--counters", "--ncu"]);
    command.arg(root().join("tests/programs/profile/ncu.sh"));
    command.env("CUTAPE_TESTS_NCU_SHAPES", shapes());
    let output = run(command.env("CUTAPE_TESTS_NCU_OPTIONS", &options_file));
    output.assert_code(0);
    for expected in [
        "counters of 4 kernels in 28 passes, by ncu 2025.3.1.0",
        "16.38 T fp32",
        "50 % compute  vector_add (32,1,1)x(256,1,1)\n",
        "warps stalled for: long scoreboard 75 %, wait 25 %\n",
    ] {
        assert!(output.stdout.contains(expected), "{}", output.describe());
    }
    let options = fs::read_to_string(options_file).unwrap();
    for expected in [
        "--profile-from-start off --clock-control none",
        "--target-processes all",
        "--section SpeedOfLight_RooflineChart",
    ] {
        assert!(options.contains(expected), "{options}");
    }
}

fn a_set_chooses_launches(_: &Path) {
    let launches = launches();
    assert_eq!(
        calls(&counters(&["--counters=kernel:saxpy"], "")),
        [launches[2]]
    );
    let set = format!("--counters={}..", launches[1]);
    assert_eq!(calls(&counters(&[&set], "")), launches[1..]);
}

fn what_ncu_cannot_do_is_said(folder: &Path) {
    let cases: [(&[&str], &str, &str); 8] = [
        (
            &["--counters"],
            "forbidden",
            "ncu may not read the counters of this GPU (ERR_NVGPUCTRPERM): run cutape as root",
        ),
        (
            &["--counters"],
            "silent",
            "ncu measured nothing: it printed no kernel",
        ),
        (
            &["--counters"],
            "short",
            "ncu measured 3 kernels of 4 calls, which had 4 without it",
        ),
        (
            &["--counters"],
            "failed",
            "ncu measured nothing: the replay hung in call 7; a kernel that waits for another one",
        ),
        (
            &["--counters=cuMemAlloc*"],
            "",
            "no kernel to measure: the replay ran none of these calls",
        ),
        (&["--counters=nowhere"], "", "--counters"),
        (
            &["--counters", "--ncu", "/bin/echo"],
            "",
            "--ncu /bin/echo: it is not ncu",
        ),
        (
            &["--counters", "--ncu", "/no/ncu"],
            "",
            "--ncu /no/ncu: No such file",
        ),
    ];
    for (options, plan, why) in cases {
        let output = profile(options, plan);
        output.assert_code(2);
        assert!(output.stderr.contains(why), "{why}: {}", output.describe());
        assert_eq!(output.stdout, "", "{}", output.describe());
    }
    let mut command = parts().cutape(&[&"profile", &trace(), &"--driver", &"null"]);
    command
        .args(["--cupti", "none", "--counters"])
        .env("PATH", folder)
        .env("CUDA_HOME", folder);
    let output = run(&mut command);
    if !Path::new("/opt/nvidia/nsight-compute").exists() && !Path::new("/usr/local/cuda").exists() {
        output.assert_code(2);
        assert!(
            output.stderr.contains("install Nsight Compute"),
            "{}",
            output.describe()
        );
    }
}

fn other_readers_have_them(folder: &Path) {
    let file = folder.join("profile.json");
    let name = file.to_str().unwrap();
    profile(&["--counters", "--format", "json", "-o", name], "").assert_code(0);
    let lines = folder.join("lines");
    let mut command = parts().cutape(&[&"export", &trace(), &"--format", &"jsonl", &"-o", &lines]);
    run(command.args(["--profile", name])).assert_code(0);
    let text = fs::read_to_string(lines).unwrap();
    let rows = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let rows: Vec<Value> = rows.filter(|row| row["table"] == "gpu_counters").collect();
    let of: Vec<u64> = rows
        .iter()
        .map(|row| row["call"].as_u64().unwrap())
        .collect();
    assert_eq!(of, launches());
    assert_eq!(rows[0]["precision"], "fp32");
    let page = folder.join("page.html");
    let mut command = parts().cutape(&[&"report", &trace(), &"-o", &page]);
    run(command.args(["--profile", name])).assert_code(0);
    // The tables and their rows need no engine.
    let mut command = parts().cutape(&[&"sql", &trace(), &"--profile", &file]);
    let output = run(command.args(["--format", "csv"]));
    output.assert_code(0);
    for expected in [
        "gpu_counters,4,call,integer",
        "gpu_counters,4,dram_share,number",
    ] {
        assert!(
            output.stdout.contains(expected),
            "{expected}: {}",
            output.describe()
        );
    }
    assert!(
        !output.stdout.contains("gpu_work,0,"),
        "{}",
        output.describe()
    );
    let mut command = parts().cutape(&[&"sql", &trace(), &trace(), &"--profile", &file]);
    let output = run(&mut command);
    output.assert_code(2);
    let why = "--profile: a profile is of one trace, and these are 2";
    assert!(output.stderr.contains(why), "{}", output.describe());
}
