//! `cutape matrix` on the null driver.
//!
//! No test checks a time. For a verdict, launches take 30 ms on one side and microseconds on the
//! other, or times are written into files.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cutape_tests::{Browser, Output, Verdict, compiled, parts, record, run};
use serde_json::{Value, json};

cutape_tests::tests![
    slower_launches_are_found,
    what_crashes_or_hangs_is_a_row,
    interrupted_runs_continue,
    histories_name_what_changed,
    what_cannot_be_compared_is_refused,
    pages_open,
];

/// A folder with traces: one with launches, one without.
fn traces() -> &'static Path {
    static TRACES: OnceLock<PathBuf> = OnceLock::new();
    TRACES.get_or_init(|| {
        let folder = parts().new_folder("matrix-traces");
        for program in ["launch_many_parameters", "memory_basic"] {
            let trace = folder.join(format!("{program}.cutape"));
            let program = compiled(&format!("clean/{program}"));
            run(&mut record(&trace, &[], &[&program])).assert(0);
        }
        folder
    })
}

/// Short measurements, with thresholds far above the noise of a busy machine.
const QUICK: [&str; 12] = [
    "--samples",
    "10",
    "--measure-seconds",
    "0.02",
    "--warm-up-seconds",
    "0.01",
    "--threshold",
    "40",
    "--host-threshold",
    "900",
    "--driver",
    "null",
];

/// Measures into a file, with variables for the null driver.
fn measure(file: &Path, inputs: &[&Path], options: &[&str], set: &[(&str, &str)]) -> Output {
    let mut command = parts().cutape(&[&"matrix", &"-o", &file]);
    command.args(inputs).args(QUICK).args(options);
    run(command.envs(set.iter().copied()))
}

fn launches() -> PathBuf {
    traces().join("launch_many_parameters.cutape")
}

fn read(file: &Path) -> Value {
    let text = fs::read_to_string(file).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn compare(words: &[&Path], options: &[&str]) -> Output {
    let mut command = parts().cutape(&[&"matrix", &"--compare"]);
    command
        .args(words)
        .args(["--threshold", "40", "--host-threshold", "900"]);
    run(command.args(options))
}

fn slower_launches_are_found(folder: &Path) {
    let file = |name: &str| folder.join(name).with_extension("json");
    let launches = launches();
    let options = ["--each-kernel", "--rounds", "5", "--clock", "gpu"];
    // A thousand times as long: a machine that is busy with other tests does not make up for that.
    for (name, set) in [
        ("before", &[][..]),
        ("same", &[]),
        ("slower", &[("CUTAPE_NULL_DELAY", "cuLaunchKernel=30ms")]),
    ] {
        measure(&file(name), &[&launches], &options, set).assert_code(0);
    }
    let results = read(&file("before"));
    let trace = &results["traces"][0];
    assert_eq!(trace["replay"]["outcome"], "agrees", "{trace}");
    let benchmarks = trace["benchmarks"].as_array().unwrap();
    // The trace, and its kernels.
    let count = benchmarks.len();
    assert!(count > 1, "{trace}");
    assert_eq!(benchmarks[0]["name"], "trace");
    for benchmark in benchmarks {
        let rounds = benchmark["rounds"].as_array().unwrap();
        assert_eq!(rounds.len(), 5, "{benchmark}");
        let samples = rounds[0]["samples"].as_array().unwrap();
        assert_eq!(samples.len(), 10, "{benchmark}");
    }

    let same = compare(&[&file("before"), &file("same")], &[]);
    same.assert(0);
    assert!(
        same.stdout.contains(" benchmarks compared: 0 slower"),
        "{}",
        same.stdout
    );
    let slower = compare(&[&file("before"), &file("slower")], &["--report", "-"]);
    slower.expect_code(1).unwrap();
    let report: Value = serde_json::from_str(&slower.stdout).unwrap();
    let verdicts = report["rows"].as_array().unwrap().iter();
    let verdicts: Vec<_> = verdicts
        .map(|row| row["verdict"].as_str().unwrap())
        .collect();
    assert_eq!(verdicts, vec!["slower"; count], "{report}");
    let faster = compare(&[&file("slower"), &file("before"), &file("same")], &[]);
    faster.assert(0);
    assert!(
        faster
            .stdout
            .contains(&format!("0 slower, {} faster", 2 * count)),
        "{}",
        faster.stdout
    );
}

fn what_crashes_or_hangs_is_a_row(folder: &Path) {
    let inputs = [traces()];
    for (name, options, set, reason) in [
        (
            "crash",
            &[][..],
            ("CUTAPE_NULL_CRASH", "cuLaunchKernel@12"),
            "died by signal 11 in call",
        ),
        (
            "hang",
            &["--time-limit", "2"],
            ("CUTAPE_NULL_DELAY", "cuLaunchKernel=5s"),
            "not done after 2 s (--time-limit)",
        ),
    ] {
        let file = folder.join(name);
        let rounds = ["--rounds", "1", "--clock", "host"];
        let options = [&rounds, options].concat();
        let output = measure(&file, &inputs, &options, &[set]);
        output.expect_code(1).unwrap();
        assert!(output.stdout.contains(reason), "{}", output.describe());
        let results = read(&file);
        let [with_launches, other] = [0, 1].map(|at| &results["traces"][at]);
        let failure = with_launches["processes"][0]["failure"].as_str().unwrap();
        assert!(failure.contains(reason), "{failure}");
        // The others are measured all the same.
        assert_eq!(other["benchmarks"].as_array().unwrap().len(), 1, "{other}");
        assert_eq!(results["complete"], true);
    }
}

fn interrupted_runs_continue(folder: &Path) {
    let file = folder.join("results.json");
    let options = ["--rounds", "2", "--clock", "host"];
    let again = |options: &[&str]| measure(&file, &[traces()], options, &[]);
    again(&options).assert_code(0);
    let complete = again(&options);
    complete.assert_code(2);
    assert!(
        complete.stderr.contains("--overwrite"),
        "{}",
        complete.stderr
    );

    // As an interrupted run leaves it.
    let mut results = read(&file);
    results["complete"] = json!(false);
    for trace in results["traces"].as_array_mut().unwrap() {
        trace["processes"].as_array_mut().unwrap().truncate(1);
        let benchmark = &mut trace["benchmarks"][0];
        benchmark["rounds"].as_array_mut().unwrap().truncate(1);
    }
    fs::write(&file, results.to_string()).unwrap();
    let other = again(&["--rounds", "3", "--clock", "host"]);
    other.assert_code(2);
    assert!(other.stderr.contains("other options"), "{}", other.stderr);
    let continued = again(&options);
    continued.assert_code(0);
    assert!(
        continued.stderr.contains("continued after 2 processes"),
        "{}",
        continued.stderr
    );
    let now = read(&file);
    assert_eq!(now["complete"], true);
    for at in 0..2 {
        let rounds = |of: &Value| of["traces"][at]["benchmarks"][0]["rounds"].clone();
        assert_eq!(rounds(&now).as_array().unwrap().len(), 2);
        assert_eq!(rounds(&now)[0], rounds(&results)[0], "measured again");
    }
    again(&[&options[..], &["--overwrite"]].concat()).assert_code(0);
    assert_ne!(read(&file)["traces"], now["traces"]);
}

/// Files of one benchmark with these times, as if they were measured one after the other.
fn files(folder: &Path, times: &[f64]) -> PathBuf {
    let results = folder.join("results");
    fs::create_dir_all(&results).unwrap();
    for (number, time) in times.iter().enumerate() {
        let round = |round: u32| {
            let samples: Vec<f64> = (0..10)
                .map(|at| time * (1.0 + 1e-4 * f64::from(at)))
                .collect();
            let estimate = json!({"lower": time, "point": time, "upper": time});
            json!({"round": round, "mean": estimate, "median": estimate, "mad": 0.0, "samples": samples})
        };
        let trace = json!({
            "name": "step", "digest": "d", "calls": 3, "has_kernels": true,
            "replay": {"outcome": "agrees", "reason": null, "calls_replayed": 3, "divergences": 0,
                "left_out": 0, "bytes_compared": 0},
            "processes": [],
            "benchmarks": [{"clock": "gpu", "name": "</script><b>k", "call": 1,
                "rounds": [round(1), round(2), round(3)]}],
        });
        let file = json!({
            "schema": "1.0", "cutape": "0.1.0", "started": 1000 * number, "finished": 1000 * number + 9,
            "complete": true, "before": [], "after": [], "traces": [trace],
            "settings": {"each_kernel": true, "replace": [], "clocks": ["gpu"], "rounds": 3, "samples": 10,
                "measure_seconds": 0.3, "warm_up_seconds": 0.1, "restore": true},
            "machine": {"cpu": null, "cpus": 1, "driver": "null", "driver_version": null, "cuda": null, "gpus": []},
        });
        fs::write(
            results.join(format!("commit-{number}.json")),
            file.to_string(),
        )
        .unwrap();
    }
    results
}

fn histories_name_what_changed(folder: &Path) {
    for (times, status, words) in [
        (&[1000.0, 1001.0, 1000.0, 1001.0][..], 0, "0 changed"),
        (
            &[1000.0, 1001.0, 1000.0, 1050.0],
            1,
            "slower since commit-3: +5.0 %",
        ),
        (
            &[1050.0, 1001.0, 1000.0, 1001.0],
            0,
            "faster since commit-1: -4.7 %",
        ),
    ] {
        let folder = folder.join(format!("{status}-{}", times[0]));
        let results = files(&folder, times);
        let output = run(&mut parts().cutape(&[&"matrix", &"--history", &results]));
        output.expect_code(status).unwrap();
        assert!(output.stdout.contains(words), "{}", output.stdout);
    }
}

fn what_cannot_be_compared_is_refused(folder: &Path) {
    let results = files(folder, &[1.0, 1.0]);
    let [one, two] = [0, 1].map(|number| results.join(format!("commit-{number}.json")));
    let change = |name: &str, member: &str, value: Value| {
        let mut file = read(&two);
        file[member] = value;
        let path = folder.join(name);
        fs::write(&path, file.to_string()).unwrap();
        path
    };
    let text = folder.join("text.json");
    fs::write(&text, "no results").unwrap();
    let later = change("later.json", "schema", json!("2.0"));
    // Whatever else has changed.
    fs::write(folder.join("other.json"), "{\"schema\": \"2.0\"}").unwrap();
    let other = folder.join("other.json");
    let nothing = change("nothing.json", "traces", json!([]));
    let [one, two, later, other, nothing, text] =
        [&one, &two, &later, &other, &nothing, &text].map(PathBuf::as_path);
    for (words, status, why) in [
        (&[one][..], 2, "needs two files"),
        (&[one, text], 2, "no results of `cutape matrix`"),
        (&[one, &launches()], 2, "launch_many_parameters.cutape"),
        (&[one, later], 2, "schema \"2.0\" is not readable"),
        (&[one, other], 2, "schema \"2.0\" is not readable"),
        (&[one, nothing], 2, "nothing can be compared"),
        (&[one, two], 0, ""),
    ] {
        let output = compare(words, &[]);
        output.assert_code(status);
        assert!(output.stderr.contains(why), "{}", output.describe());
    }
    let twice = measure(
        &folder.join("twice.json"),
        &[&launches(), traces()],
        &[],
        &[],
    );
    twice.assert_code(2);
    assert!(
        twice.stderr.contains("the same trace as "),
        "{}",
        twice.describe()
    );
    for (words, why) in [
        ("--history no-such-folder", "no-such-folder"),
        ("--compare a b --rounds 3", "cannot be used with"),
        ("--compare a b --time-limit 3", "cannot be used with"),
        ("a.cutape", "--output"),
        ("a.cutape -o x --samples 9", "--samples 9: too few"),
        ("a.cutape -o x --threshold=-1", "--threshold -1"),
        ("a.cutape -o x --measure-seconds=-1", "--measure-seconds -1"),
        ("a.cutape -o x --keep-placement y", "is for one trace"),
    ] {
        let output = run(parts().cutape(&[&"matrix"]).args(words.split(' ')));
        output.assert_code(2);
        assert!(output.stderr.contains(why), "{}", output.describe());
    }
}

fn pages_open(folder: &Path) -> Verdict {
    let Some(mut browser) = Browser::start(folder) else {
        return Verdict::Ignored("Chromium is not installed: apt-get install chromium".to_owned());
    };
    let results = files(folder, &[1000.0, 1001.0, 1000.0, 1050.0]);
    let [first, last] = [0, 3].map(|number| results.join(format!("commit-{number}.json")));
    let compared: [&Path; 3] = ["--compare".as_ref(), &first, &last];
    let history: [&Path; 2] = ["--history".as_ref(), &results];
    for (name, words, expected) in [
        (
            "compared",
            &compared[..],
            ["Comparison", "slower", "+5.0 %"],
        ),
        ("history", &history, ["History", "commit-3", "+5.0 %"]),
    ] {
        let page = folder.join(name).with_extension("html");
        let mut command = parts().cutape(&[&"matrix", &"-o", &page]);
        run(command.args(words)).expect_code(1).unwrap();
        browser.open(&page, "document.documentElement?.dataset.ready");
        let text = browser.text("main");
        for words in expected.into_iter().chain(["</script><b>k"]) {
            assert!(text.contains(words), "{name}: {words}: {text}");
        }
    }
    assert!(browser.problems.is_empty(), "{:?}", browser.problems);
    Verdict::Passed
}
