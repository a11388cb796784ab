//! Replay on another machine than the recorded one: what does not fit is refused at once and with every reason, what does
//! not matter is noted, and devices in another order are found again.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use cutape_tests::{Output, parts, programs, run};

type Environment = &'static [(&'static str, &'static str)];

/// Three devices, each of another kind.
const THREE: Environment = &[
    ("CUTAPE_NULL_DEVICES", "3"),
    ("CUTAPE_NULL_CAPABILITY", "9.0,8.6,8.0"),
];

/// Records a test program on a null driver with that environment.
fn recorded(row: &str, program: &str, environment: Environment) -> PathBuf {
    let all = programs().unwrap();
    let program = all.iter().find(|known| known.name == program).unwrap();
    let program = program.compile(parts()).unwrap();
    let trace = parts()
        .new_folder(&format!("machines-{row}"))
        .join("t.cutape");
    let mut record = parts().cutape(&[
        &"record",
        &"--driver",
        &"null",
        &"-o",
        &trace,
        &"--",
        &program,
    ]);
    run(record.envs(environment.iter().copied())).assert_code(0);
    trace
}

/// A program, where it is recorded, where and how it is replayed, and what that gives.
struct Row {
    name: &'static str,
    program: &'static str,
    recorded: Environment,
    here: Environment,
    options: &'static [&'static str],
    status: i32,
    /// All of them on stderr if the replay is refused, else on stdout.
    said: &'static [&'static str],
    /// None of them anywhere.
    unsaid: &'static [&'static str],
}

const ROWS: &[Row] = &[
    Row {
        name: "same",
        program: "clean/two_devices",
        recorded: THREE,
        here: &[],
        options: &[],
        status: 0,
        said: &["no divergence"],
        unsaid: &["machine:", "devices"],
    },
    // Only the right map gives the recorded attributes.
    Row {
        name: "another-order",
        program: "clean/two_devices",
        recorded: THREE,
        here: &[("CUTAPE_NULL_CAPABILITY", "8.6,8.0,9.0")],
        options: &[],
        status: 0,
        said: &["no divergence", "devices (recorded=here): 0=2,1=0,2=1"],
        unsaid: &["answers otherwise"],
    },
    Row {
        name: "as-asked-for",
        program: "clean/two_devices",
        recorded: THREE,
        here: &[],
        options: &["--devices", "0=1,1=0"],
        status: 0,
        said: &[
            "no divergence",
            "devices (recorded=here): 0=1,1=0",
            "machine: device 0: recorded cutape null device, compute capability 9.0, here cutape null device, compute capability 8.6",
            "cuDeviceGetAttribute answers otherwise here",
        ],
        unsaid: &["not re-issued"],
    },
    Row {
        name: "not-there",
        program: "clean/two_devices",
        recorded: THREE,
        here: &[],
        options: &["--devices", "1=3"],
        status: 2,
        said: &[
            "this machine has no device 3",
            "those of the trace: 0: cutape null device, compute capability 9.0; 1:",
            "those of this machine: 0:",
        ],
        unsaid: &[],
    },
    Row {
        name: "twice",
        program: "clean/two_devices",
        recorded: THREE,
        here: &[],
        options: &["--force", "--devices", "0=1,1=1"],
        status: 2,
        said: &["device 1 of this machine is named twice"],
        unsaid: &[],
    },
    Row {
        name: "no-map",
        program: "clean/two_devices",
        recorded: THREE,
        here: &[],
        options: &["--devices", "0:1"],
        status: 2,
        said: &["\"0:1\" is not of the form recorded=here"],
        unsaid: &[],
    },
    Row {
        name: "more-devices",
        program: "clean/two_devices",
        recorded: &[("CUTAPE_NULL_DEVICES", "2")],
        here: &[("CUTAPE_NULL_DEVICES", "4")],
        options: &[],
        status: 0,
        said: &[
            "no divergence",
            "machine: number of devices: recorded 2, here 4",
        ],
        unsaid: &["warning", "not re-issued"],
    },
    // A program that uses one device of four is at home where there is one.
    Row {
        name: "enough-devices",
        program: "clean/launch_vector_add",
        recorded: &[("CUTAPE_NULL_DEVICES", "4")],
        here: &[("CUTAPE_NULL_DEVICES", "1")],
        options: &[],
        status: 0,
        said: &[
            "no divergence",
            "machine: number of devices: recorded 4, here 1",
        ],
        unsaid: &["warning", "not re-issued"],
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
        said: &[
            "driver version: recorded CUDA 13.0, here CUDA 12.8",
            "device 1: recorded cutape null device, compute capability 8.6, here no device is left",
            "--force goes on",
        ],
        unsaid: &["replayed in", "device 2"],
    },
    Row {
        name: "forced",
        program: "clean/two_devices",
        recorded: THREE,
        here: &[("CUTAPE_NULL_DEVICES", "1")],
        options: &["--force"],
        status: 1,
        said: &[
            "warning: machine: device 1: recorded cutape null device, compute capability 8.6, here no device is left",
            "1 x cuCtxCreate_v4 (first: call 20): names device 1 of the recorded machine, for which no device stands here",
        ],
        unsaid: &[],
    },
    Row {
        name: "older-minor",
        program: "clean/launch_vector_add",
        recorded: &[],
        here: &[("CUTAPE_NULL_VERSION", "13000")],
        options: &[],
        status: 0,
        said: &["no divergence"],
        unsaid: &["machine:"],
    },
    Row {
        name: "newer",
        program: "clean/init_device",
        recorded: &[("CUTAPE_NULL_VERSION", "12080")],
        here: &[("CUTAPE_NULL_VERSION", "13000")],
        options: &[],
        status: 0,
        said: &[
            "no divergence",
            "machine: driver version: recorded CUDA 12.8, here CUDA 13.0",
        ],
        unsaid: &["warning"],
    },
    Row {
        name: "no-device",
        program: "clean/launch_vector_add",
        recorded: &[],
        here: &[("CUTAPE_NULL_DEVICES", "0")],
        options: &[],
        status: 2,
        said: &["cuInit: recorded CUDA_SUCCESS, here CUDA_ERROR_NO_DEVICE"],
        unsaid: &["replayed in"],
    },
    // PTX is compiled for whatever is there.
    Row {
        name: "ptx-elsewhere",
        program: "clean/launch_vector_add",
        recorded: &[],
        here: &[("CUTAPE_NULL_CAPABILITY", "8.0")],
        options: &[],
        status: 0,
        said: &["no divergence", "compute capability 8.0"],
        unsaid: &["warning"],
    },
    // The same for what the driver's own linker made of it, while the link state lives.
    Row {
        name: "link-elsewhere",
        program: "clean/link_file",
        recorded: &[],
        here: &[("CUTAPE_NULL_CAPABILITY", "8.0")],
        options: &[],
        status: 0,
        said: &["no divergence"],
        unsaid: &["warning"],
    },
    Row {
        name: "cubin-elsewhere",
        program: "clean/module_load_data",
        recorded: &[],
        here: &[("CUTAPE_NULL_CAPABILITY", "8.0")],
        options: &[],
        status: 2,
        said: &[
            "device code: recorded call ",
            "sm_90",
            "here compute capability 8.0",
            "no PTX",
        ],
        unsaid: &["replayed in"],
    },
];

/// Both processes of one program used a device of their own; each trace is at home where there is one.
#[test]
fn every_rank_finds_a_device() {
    let trace = recorded("ranks", "clean/ranks", &[("CUTAPE_NULL_DEVICES", "2")]);
    for (rank, device) in [(0, ""), (1, "devices (recorded=here): 1=0")] {
        let trace = trace.with_file_name(format!("t.rank{rank}.cutape"));
        let mut replay = parts().cutape(&[&"replay", &"--driver", &"null", &trace]);
        let output = run(replay.env("CUTAPE_NULL_DEVICES", "1"));
        output.assert(0);
        for said in [
            "no divergence",
            "number of devices: recorded 2, here 1",
            device,
        ] {
            assert!(output.stdout.contains(said), "{}", output.describe());
        }
        assert!(
            !output.stdout.contains("not re-issued"),
            "{}",
            output.describe()
        );
    }
}

/// A driver that has hardly any function.
const POOR_DRIVER: &str = r"
int cuInit(unsigned flags) { return (int)flags; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = 0; return 1 + device; }
";

#[test]
fn functions_that_are_not_there_are_named_before_the_first_call() {
    let trace = recorded("poor", "clean/launch_vector_add", &[]);
    let source = trace.with_file_name("poor.c");
    let driver = trace.with_file_name("libpoor.so");
    fs::write(&source, POOR_DRIVER).unwrap();
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    run(Command::new(compiler)
        .args(["-shared", "-fPIC", "-o"])
        .args([&driver, &source]))
    .assert(0);
    let output = run(&mut parts().cutape(&[&"replay", &"--driver", &driver, &trace]));
    output.assert_code(2);
    for said in [
        "driver: recorded the null driver, here a real one",
        "functions that the trace calls: recorded cu",
        " (first: call ",
        " more, here not exported (a newer driver may have them)",
    ] {
        assert!(output.stderr.contains(said), "{}", output.describe());
    }
    assert!(
        !output.stderr.contains("cuDeviceGetCount"),
        "{}",
        output.describe()
    );
}

fn replayed(row: &Row) -> Output {
    let trace = recorded(row.name, row.program, row.recorded);
    let mut replay = parts().cutape(&[&"replay", &"--driver", &"null"]);
    run(replay
        .args(row.options)
        .arg(&trace)
        .envs(row.here.iter().copied()))
}

#[test]
fn what_matters_is_refused_and_the_rest_is_noted() {
    for row in ROWS {
        let output = replayed(row);
        output.assert_code(row.status);
        let place = match row.status {
            2 => &output.stderr,
            _ => &output.stdout,
        };
        for said in row.said {
            assert!(
                place.contains(said),
                "{}: {said:?}\n{}",
                row.name,
                output.describe()
            );
        }
        for unsaid in row.unsaid {
            let all = output.stdout.clone() + &output.stderr;
            assert!(
                !all.contains(unsaid),
                "{}: {unsaid:?}\n{}",
                row.name,
                output.describe()
            );
        }
    }
}
