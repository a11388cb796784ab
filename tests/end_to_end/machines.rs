//! Replay on another machine than the recorded one: `replay` refuses a machine that does not fit,
//! with every reason; it notes differences that do not matter; and it maps devices that have
//! another order.

use std::fs;
use std::path::{Path, PathBuf};

use cutape_tests::{Suite, compile, compiled, parts, record, replay, run};

pub(crate) fn add_to(suite: &mut Suite) {
    for row in ROWS {
        suite.test(row.name, |folder: &Path| replayed(row, folder));
    }
    suite.test("ranks", every_rank_finds_a_device).test(
        "missing-functions",
        missing_functions_are_named_before_the_first_call,
    );
}

type Environment = &'static [(&'static str, &'static str)];

/// Three devices, each of another kind.
const THREE: Environment = &[
    ("CUTAPE_NULL_DEVICES", "3"),
    ("CUTAPE_NULL_CAPABILITY", "9.0,8.6,8.0"),
];

/// Records a program on a null driver with that environment.
fn recorded(folder: &Path, program: &str, environment: Environment) -> PathBuf {
    let trace = folder.join("t.cutape");
    let mut record = record(&trace, &[], &[&compiled(program)]);
    run(record.envs(environment.iter().copied())).assert_code(0);
    trace
}

/// A program, the machine that records it, the machine that replays it, and the result.
struct Row {
    name: &'static str,
    program: &'static str,
    recorded: Environment,
    here: Environment,
    options: &'static [&'static str],
    status: i32,
    /// All of them on stderr if the replay is refused, else on stdout.
    expected: &'static [&'static str],
    /// None of them anywhere.
    unexpected: &'static [&'static str],
}

const ROWS: &[Row] = &[
    Row {
        name: "same",
        program: "clean/two_devices",
        recorded: THREE,
        here: &[],
        options: &[],
        status: 0,
        expected: &["no divergence"],
        unexpected: &["machine:", "devices"],
    },
    // Only the right map gives the recorded attributes.
    Row {
        name: "another-order",
        program: "clean/two_devices",
        recorded: THREE,
        here: &[("CUTAPE_NULL_CAPABILITY", "8.6,8.0,9.0")],
        options: &[],
        status: 0,
        expected: &["no divergence", "devices (recorded=here): 0=2,1=0,2=1"],
        unexpected: &["answers otherwise"],
    },
    Row {
        name: "as-asked-for",
        program: "clean/two_devices",
        recorded: THREE,
        here: &[],
        options: &["--devices", "0=1,1=0"],
        status: 0,
        expected: &[
            "no divergence",
            "devices (recorded=here): 0=1,1=0",
            "machine: device 0: recorded cutape null device, compute capability 9.0, here cutape null device, compute capability 8.6",
            "cuDeviceGetAttribute answers otherwise here",
        ],
        unexpected: &["not re-issued"],
    },
    Row {
        name: "not-there",
        program: "clean/two_devices",
        recorded: THREE,
        here: &[],
        options: &["--devices", "1=3"],
        status: 2,
        expected: &[
            "this machine has no device 3",
            "those of the trace: 0: cutape null device, compute capability 9.0; 1:",
            "those of this machine: 0:",
        ],
        unexpected: &[],
    },
    Row {
        name: "twice",
        program: "clean/two_devices",
        recorded: THREE,
        here: &[],
        options: &["--force", "--devices", "0=1,1=1"],
        status: 2,
        expected: &["device 1 of this machine is named twice"],
        unexpected: &[],
    },
    Row {
        name: "recorded-without-peers",
        program: "clean/two_devices",
        recorded: &[("CUTAPE_NULL_DEVICES", "2"), ("CUTAPE_NULL_PEERS", "none")],
        here: &[],
        options: &[],
        status: 0,
        expected: &["no divergence"],
        unexpected: &["answers otherwise"],
    },
    // The program enables access between the first two.
    Row {
        name: "no-peers",
        program: "clean/two_devices",
        recorded: THREE,
        here: &[("CUTAPE_NULL_PEERS", "1-2")],
        options: &[],
        status: 2,
        expected: &[
            "peer access: recorded device 0 accesses the memory of device 1 from call ",
            "here device 0 cannot access that of device 1 (cuDeviceCanAccessPeer says so; ",
        ],
        unexpected: &["replayed in"],
    },
    Row {
        name: "no-map",
        program: "clean/two_devices",
        recorded: THREE,
        here: &[],
        options: &["--devices", "0:1"],
        status: 2,
        expected: &["\"1\" is not of the form recorded=here"],
        unexpected: &[],
    },
    Row {
        name: "more-devices",
        program: "clean/two_devices",
        recorded: &[("CUTAPE_NULL_DEVICES", "2")],
        here: &[("CUTAPE_NULL_DEVICES", "4")],
        options: &[],
        status: 0,
        expected: &[
            "no divergence",
            "machine: number of devices: recorded 2, here 4",
        ],
        unexpected: &["warning", "not re-issued"],
    },
    // A program that uses one device of four fits a machine with one.
    Row {
        name: "enough-devices",
        program: "clean/launch_vector_add",
        recorded: &[("CUTAPE_NULL_DEVICES", "4")],
        here: &[("CUTAPE_NULL_DEVICES", "1")],
        options: &[],
        status: 0,
        expected: &[
            "no divergence",
            "machine: number of devices: recorded 4, here 1",
        ],
        unexpected: &["warning", "not re-issued"],
    },
    Row {
        name: "every-reason",
        program: "clean/two_devices",
        recorded: THREE,
        here: &[
            ("CUTAPE_NULL_DEVICES", "1"),
            ("CUTAPE_NULL_VERSION", "12080"),
        ],
        options: &[],
        status: 2,
        expected: &[
            "driver version: recorded CUDA 13.0, here CUDA 12.8",
            "device 1: recorded cutape null device, compute capability 8.6, here no device is left",
            "use --force to replay anyway",
        ],
        unexpected: &["replayed in", "device 2"],
    },
    Row {
        name: "forced",
        program: "clean/two_devices",
        recorded: THREE,
        here: &[("CUTAPE_NULL_DEVICES", "1")],
        options: &["--force"],
        status: 1,
        expected: &[
            "warning: machine: device 1: recorded cutape null device, compute capability 8.6, here no device is left",
            "1 x cuCtxCreate_v4 (first: call 21): names device 1 of the recorded machine, which has no device here",
        ],
        unexpected: &[],
    },
    Row {
        name: "older-minor",
        program: "clean/launch_vector_add",
        recorded: &[],
        here: &[("CUTAPE_NULL_VERSION", "13000")],
        options: &[],
        status: 0,
        expected: &["no divergence"],
        unexpected: &["machine:"],
    },
    Row {
        name: "newer",
        program: "clean/init_device",
        recorded: &[("CUTAPE_NULL_VERSION", "12080")],
        here: &[("CUTAPE_NULL_VERSION", "13000")],
        options: &[],
        status: 0,
        expected: &[
            "no divergence",
            "machine: driver version: recorded CUDA 12.8, here CUDA 13.0",
        ],
        unexpected: &["warning"],
    },
    Row {
        name: "no-device",
        program: "clean/launch_vector_add",
        recorded: &[],
        here: &[("CUTAPE_NULL_DEVICES", "0")],
        options: &[],
        status: 2,
        expected: &["cuInit: recorded CUDA_SUCCESS, here CUDA_ERROR_NO_DEVICE"],
        unexpected: &["replayed in"],
    },
    // PTX is compiled for the device that runs it.
    Row {
        name: "ptx-elsewhere",
        program: "clean/launch_vector_add",
        recorded: &[],
        here: &[("CUTAPE_NULL_CAPABILITY", "8.0")],
        options: &[],
        status: 0,
        expected: &["no divergence", "compute capability 8.0"],
        unexpected: &["warning"],
    },
    // The same for the output of the driver's linker while the link state exists.
    Row {
        name: "link-elsewhere",
        program: "clean/link_file",
        recorded: &[],
        here: &[("CUTAPE_NULL_CAPABILITY", "8.0")],
        options: &[],
        status: 0,
        expected: &["no divergence"],
        unexpected: &["warning"],
    },
    Row {
        name: "cubin-elsewhere",
        program: "clean/module_load_data",
        recorded: &[],
        here: &[("CUTAPE_NULL_CAPABILITY", "8.0")],
        options: &[],
        status: 2,
        expected: &[
            "device code: recorded call ",
            "sm_90",
            "here compute capability 8.0",
            "no PTX",
        ],
        unexpected: &["replayed in"],
    },
];

/// Each of two processes used a device of its own; each trace fits a machine with one device.
fn every_rank_finds_a_device(folder: &Path) {
    let trace = recorded(folder, "clean/ranks", &[("CUTAPE_NULL_DEVICES", "2")]);
    for (rank, device) in [(0, ""), (1, "devices (recorded=here): 1=0")] {
        let trace = trace.with_file_name(format!("t.rank{rank}.cutape"));
        let output = run(replay(&trace).env("CUTAPE_NULL_DEVICES", "1"));
        output.assert(0);
        for words in [
            "no divergence",
            "number of devices: recorded 2, here 1",
            device,
        ] {
            assert!(output.stdout.contains(words), "{}", output.describe());
        }
        assert!(
            !output.stdout.contains("not re-issued"),
            "{}",
            output.describe()
        );
    }
}

/// A driver with four functions.
const POOR_DRIVER: &str = r"
int cuInit(unsigned flags) { return (int)flags; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = 0; return 1 + device; }
";

fn missing_functions_are_named_before_the_first_call(folder: &Path) {
    let trace = recorded(folder, "clean/launch_vector_add", &[]);
    let source = trace.with_file_name("poor.c");
    let driver = trace.with_file_name("libpoor.so");
    fs::write(&source, POOR_DRIVER).unwrap();
    compile(&source, &driver, &[&"-shared", &"-fPIC"]);
    let output = run(&mut parts().cutape(&[&"replay", &"--driver", &driver, &trace]));
    output.assert_code(2);
    for words in [
        "driver: recorded the null driver, here a real one",
        "functions that the trace calls: recorded cu",
        " (first: call ",
        " more, here not exported (a newer driver may have them)",
    ] {
        assert!(output.stderr.contains(words), "{}", output.describe());
    }
    assert!(
        !output.stderr.contains("cuDeviceGetCount"),
        "{}",
        output.describe()
    );
}

fn replayed(row: &Row, folder: &Path) {
    let trace = recorded(folder, row.program, row.recorded);
    let mut replay = replay(&trace);
    let output = run(replay.args(row.options).envs(row.here.iter().copied()));
    output.assert_code(row.status);
    let place = match row.status {
        2 => &output.stderr,
        _ => &output.stdout,
    };
    for words in row.expected {
        assert!(place.contains(words), "{words:?}\n{}", output.describe());
    }
    for words in row.unexpected {
        let all = output.stdout.clone() + &output.stderr;
        assert!(!all.contains(words), "{words:?}\n{}", output.describe());
    }
}
