//! `cutape profile FOLDER` on the null driver: the ranks of `programs/ranks/communicators.c`, whose
//! collectives are known. `cutape-profile` has ranks whose times are known.

use std::path::Path;

use cutape_tests::{Output, parts, run};
use serde_json::Value;

use crate::ranks_rules::record_communicators;

cutape_tests::tests![collectives_of_all_ranks, what_is_for_one_trace_is_refused,];

fn profile(folder: &Path, options: &[&str]) -> Output {
    let mut command = parts().cutape(&[&"profile", &folder, &"--driver", &"null"]);
    run(command.args(["--cupti", "none"]).args(options))
}

fn sum(values: &Value, member: &str) -> u64 {
    let values = values.as_array().unwrap().iter();
    values.map(|value| value[member].as_u64().unwrap()).sum()
}

fn collectives_of_all_ranks(folder: &Path) {
    record_communicators(folder, "correct", [0; 4]);
    let output = profile(folder, &["--format", "json"]);
    output.assert_code(0);
    let document: Value = serde_json::from_str(&output.stdout).unwrap();
    let summary = &document["summary"];
    let exchanges = summary["exchanges"].as_array().unwrap();
    // Two in each of four steps of all ranks. What a pair launches after its first one is not
    // known, since one of the two sends more often.
    let of_all: Vec<&Value> = exchanges
        .iter()
        .filter(|one| one["arrivals"].as_array().unwrap().len() == 4)
        .collect();
    assert_eq!((of_all.len(), exchanges.len()), (8, 10), "{summary:#}");
    let mut before = 0;
    for exchange in exchanges {
        let begin = exchange["begin_ns"].as_u64().unwrap();
        assert!(begin >= before, "in order of time");
        before = begin;
        let last = exchange["last"].as_u64().unwrap();
        for arrival in exchange["arrivals"].as_array().unwrap() {
            let number = |member: &str| arrival[member].as_u64().unwrap();
            assert!(number("begin_ns") <= begin);
            assert!(number("waited_ns") <= begin - number("begin_ns"));
            if number("rank") == last {
                assert_eq!((number("begin_ns"), number("waited_ns")), (begin, 0));
            }
            // The call is one of the rank's launches.
            let rank = &document["ranks"][number("rank") as usize];
            let facts = &rank["profile"]["calls"][number("call").to_string()];
            assert_eq!(facts["function"], "cuLaunchKernel");
        }
    }
    let ranks = summary["ranks"].as_array().unwrap();
    let labels: Vec<_> = ranks.iter().map(|rank| &rank["label"]).collect();
    assert_eq!(labels, ["rank 0", "rank 1", "rank 2", "rank 3"]);
    assert_eq!(sum(&summary["ranks"], "last_in"), 10);
    assert_eq!(
        sum(&summary["ranks"], "waited_ns"),
        sum(&summary["ranks"], "awaited_ns")
    );
    let path = ranks
        .iter()
        .map(|rank| sum(&rank["critical_path"]["shares"], "total_ns"));
    let wall = summary["wall_ns"].as_u64().unwrap();
    let on_path: u64 = path.sum();
    // The rank in which the path ends may have begun later than another one.
    assert!(on_path <= wall && on_path > 0, "{on_path} of {wall}");
    assert_eq!(sum(&summary["ranges"], "total_ns"), on_path);
    let text = profile(folder, &[]);
    text.assert_code(0);
    for expected in [
        "GPU times of 4 ranks, replayed together in ",
        "  6 x ncclDevKernel_AllReduce",
        "  4 x ncclDevKernel_AllGather",
        "critical path through the ranks:",
    ] {
        assert!(
            text.stdout.contains(expected),
            "{expected}: {}",
            text.describe()
        );
    }
}

fn what_is_for_one_trace_is_refused(folder: &Path) {
    record_communicators(folder, "correct", [0; 4]);
    for (options, why) in [
        (
            &["--repeat", "2"][..],
            "--repeat cannot be used with a folder of ranks",
        ),
        (
            &["--counters"],
            "--counters cannot be used with a folder of ranks",
        ),
        (&["--devices", "9:0=0"], "rank 9 is not replayed"),
    ] {
        let output = profile(folder, options);
        output.assert_code(2);
        assert!(output.stderr.contains(why), "{}", output.describe());
    }
    // One rank by itself has a profile of its own.
    let output = profile(folder, &["--rank", "1"]);
    output.assert_code(0);
    assert!(
        output.stdout.contains("GPU times of 1 replay"),
        "{}",
        output.describe()
    );
}
