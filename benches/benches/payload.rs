//! Recorded copies to the device, beside `memcpy` of as many bytes. The stub driver copies nothing,
//! so the figure of the bare program has no meaning.

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
}
