//! `replay FOLDER --devices`: on which devices ranks are replayed, and where that is refused.

use std::path::Path;

use cutape_tests::{Output, compile, parts, record, root, run};

cutape_tests::tests![ranks_have_maps_of_their_own, what_does_not_fit_is_refused,];

const TWO: (&str, &str) = ("CUTAPE_NULL_DEVICES", "2");

/// Four ranks, in turn on two devices; each imports memory of the one before it.
fn recorded(folder: &Path) {
    let program = folder.join("sharing");
    let driver = parts().driver_folder.join("libcuda.so.1");
    let source = root().join("tests/programs/ranks/sharing.c");
    compile(&source, &program, &[&driver, &"-pthread"]);
    let words = [program.to_str().unwrap(), "1", "spread"];
    let mut record = record(&folder.join("run.cutape"), &[], &words);
    run(record.envs([TWO])).assert_code(0);
}

fn replay(folder: &Path, options: &[&str], peers: &str) -> Output {
    let mut command = parts().cutape(&[&"replay", &"--driver", &"null", &folder]);
    let command = command.args(options).envs([TWO]);
    run(command.env("CUTAPE_NULL_PEERS", peers))
}

fn ranks_have_maps_of_their_own(folder: &Path) {
    recorded(folder);
    let swapped = "devices (recorded=here): 0=1,1=0";
    for (options, maps) in [
        (&[][..], 0),
        (&["--devices", "0=1,1=0"], 4),
        // Those that have no map of their own, and the map for all.
        (
            &["--devices", "0=0,1=1", "--devices", "0:0=1,1=0", "--force"],
            1,
        ),
        (&["--rank", "3", "--devices", "3:0=1,1=0"], 1),
    ] {
        let replayed = replay(folder, options, "0-1");
        replayed.assert(0);
        assert!(replayed.stdout.contains("no divergence"), "{options:?}");
        let count = replayed.stdout.matches(swapped).count();
        assert_eq!(count, maps, "{options:?} {}", replayed.describe());
    }
}

fn what_does_not_fit_is_refused(folder: &Path) {
    recorded(folder);
    let trace = folder.join("run.rank1.cutape");
    for (given, options, peers, why) in [
        (
            folder,
            &[][..],
            "none",
            "peer access: recorded rank 0 (device 0) uses memory of rank 3 (device 1) from call ",
        ),
        (
            folder,
            &[],
            "none",
            "here device 0 cannot access the memory of device 1 (cuDeviceCanAccessPeer says so; \
             choose devices that can with --devices RANK:RECORDED=HERE, or replay each rank alone",
        ),
        // Only one of the ranks of the first device moves to where the others are.
        (
            folder,
            &["--devices", "0:0=1"],
            "0-1",
            "peer access: recorded rank 0 (device 0) uses memory of rank 3 (device 1) from call ",
        ),
        (
            folder,
            &["--devices", "0:0=1"],
            "0-1",
            "here both are device 1 (give them different ones with --devices RANK:RECORDED=HERE)",
        ),
        (
            folder,
            &["--devices", "2:0=0", "--devices", "5:0=1"],
            "0-1",
            "--devices 5:0=1: rank 5 is not replayed; ranks 0, 1, 2, 3 are",
        ),
        (
            folder,
            &["--rank", "1", "--devices", "0:0=1"],
            "0-1",
            "--devices 0:0=1: rank 0 is not replayed; rank 1 is",
        ),
        (
            &trace,
            &["--devices", "1:0=1"],
            "0-1",
            "--devices 1:0=1: rank 1 is not replayed; for a trace by itself, give --devices 0=1",
        ),
        (
            folder,
            &["--devices", "3:0=1,1=1"],
            "0-1",
            "rank 3: devices: device 1 of this machine is named twice",
        ),
        (
            folder,
            &["--devices", "one:0=1"],
            "0-1",
            "\"one\" is not the number of a rank",
        ),
    ] {
        let refused = replay(given, options, peers);
        refused.assert_code(2);
        let text = refused.stderr.replace("\n", " ");
        assert!(text.contains(why), "{options:?} {}", refused.describe());
        assert!(!refused.stdout.contains("replayed in"), "{options:?}");
    }
    // A rank alone needs no peers, and a forced replay says what it lacks.
    let alone = replay(folder, &["--rank", "0"], "none");
    alone.assert(0);
    let forced = replay(folder, &["--force"], "none");
    forced.assert(0);
    let warning = "warning: machine: peer access: recorded rank 0 (device 0) uses memory of rank 3";
    assert_eq!(forced.stdout.matches(warning).count(), 1);
}
