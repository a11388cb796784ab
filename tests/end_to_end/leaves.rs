//! A program whose trace is changed, and reports of replays.

use std::fs;
use std::path::{Path, PathBuf};

use cutape_tests::{Output, compile, parts, record, replay, run};
use serde_json::Value;

/// Copies a pattern to a device, adds it to itself in the second launch, and leaves without freeing
/// anything; with an argument it is killed before.
const LEAVES: &str = r#"
#include <signal.h>
#include "program.h"

int main(int argc, char **argv)
{
    (void)argv;
    begin();
    CUmodule module = load_ptx(PTX_THREE);
    CUfunction fill = function_of(module, "fill"), add = function_of(module, "vector_add");
    CUdeviceptr in = 0, out = 0, unused = 0;
    static unsigned char pattern[4096];
    memset(pattern, 0x5c, sizeof pattern);
    CHECK(cuMemAlloc(&unused, 100));
    CHECK(cuMemAlloc(&in, sizeof pattern));
    CHECK(cuMemAlloc(&out, sizeof pattern));
    CHECK(cuMemcpyHtoD(in, pattern, sizeof pattern));
    uint32_t zero = 0, count = 1024;
    void *filled[] = {&out, &zero, &count}, *sum[] = {&in, &in, &out, &count};
    launch(fill, 4, 256, NULL, filled);
    launch(add, 4, 256, NULL, sum);
    if (argc > 1)
        raise(SIGKILL);
    CHECK(cuStreamSynchronize(NULL));
    return success();
}
"#;

/// The bytes of the pattern in a trace, as long as no other bytes of it are.
const PATTERN: [u8; 64] = [0x5c; 64];

/// The compiled program.
pub(crate) fn leaves(folder: &Path) -> String {
    let (source, program) = (folder.join("leaves.c"), folder.join("leaves"));
    fs::write(&source, LEAVES).unwrap();
    let driver = parts().driver_folder.join("libcuda.so.1");
    compile(&source, &program, &[&driver]);
    program.display().to_string()
}

/// Records `leaves`, packed, with the first byte of the pattern changed afterwards.
pub(crate) fn changed(folder: &Path, when: &str) -> PathBuf {
    let raw = folder.join(format!("{when}.raw.cutape"));
    let options = [when, "--no-pack"];
    run(&mut record(&raw, &options, &[&leaves(folder)])).assert(0);
    let mut bytes = fs::read(&raw).unwrap();
    let mut places = bytes.windows(PATTERN.len());
    let at = places.position(|bytes| bytes == PATTERN).unwrap();
    bytes[at] ^= 1;
    fs::write(&raw, bytes).unwrap();
    let trace = folder.join(format!("{when}.cutape"));
    run(&mut parts().cutape(&[&"pack", &raw, &"-o", &trace])).assert_code(0);
    trace
}

/// The outcome of a replay, and its report.
pub(crate) fn report(trace: &Path, options: &[&str]) -> (Output, Value) {
    let output = run(replay(trace).args(["--format", "json"]).args(options));
    let report = serde_json::from_str(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", output.stderr));
    (output, report)
}
