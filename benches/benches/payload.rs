//! Recorded copies to the device, beside `memcpy` of as many bytes, and of bytes that are new, equal to
//! others or in a mapped file. The stub driver copies nothing, so the figures of the bare programs
//! have no meaning.

use std::process::Command;

use cutape_benches::recorded::{Recorded, is_asked_for};

fn main() {
    if !is_asked_for() {
        return;
    }
    let recorded = Recorded::build();
    for (mebibytes, rounds) in [("1", "200"), ("16", "20"), ("256", "4")] {
        let [_, figures] = recorded.compare(3, &["upload", mebibytes, rounds]);
        let (copy, upload) = (figures["memcpy_mib_s"], figures["upload_mib_s"]);
        println!(
            "{mebibytes:>4} MiB: memcpy {copy:.0} MiB/s, recorded {upload:.0} MiB/s, ratio {:.3}",
            upload / copy
        );
    }
    let program = recorded.compile("benches/programs/payloads.c", "payloads");
    for (kibibytes, rounds) in [
        ("64", "400"),
        ("256", "200"),
        ("1024", "100"),
        ("65536", "8"),
    ] {
        let mut command = Command::new(&program);
        let file = program.with_extension("mapped");
        command.args([kibibytes, rounds]).arg(file);
        recorded.prepare(&mut command, true);
        let output = command.output().expect("the program was just compiled");
        recorded.expect_trace();
        let figures = String::from_utf8_lossy(&output.stdout).replace('\n', ", ");
        println!("{kibibytes:>5} KiB: {}", figures.trim_end_matches(", "));
    }
}
