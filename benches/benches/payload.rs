//! Copies to the device whose bytes are recorded, beside `memcpy` of as many. The driver copies nothing, so that the bare figure
//! has no meaning here.

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
