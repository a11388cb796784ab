//! Bytes of a trace for each call of a loop: as recorded, and packed.

use cutape_benches::recorded::{Recorded, is_asked_for, run};
use cutape_format::Trace;

fn main() {
    if !is_asked_for() {
        return;
    }
    const FEW: u64 = 1_000;
    const MORE: u64 = 101_000;
    let recorded = Recorded::build();
    println!("{:<10} {:>10} {:>10}", "call", "raw", "packed");
    for call in ["get", "set", "launch0", "launch8"] {
        let size = |calls: u64| {
            run(&mut recorded.command(true, &["loop", call, &calls.to_string()]));
            let trace = Trace::open(&recorded.trace()).expect("what was just recorded is sound");
            let raw = trace.record_sizes().bytes;
            let packed = cutape_format::pack(&trace, &recorded.trace(), &[], &[])
                .expect("there is room for a smaller file");
            (raw as f64, packed.after as f64)
        };
        let ((raw, packed), (more_raw, more_packed)) = (size(FEW), size(MORE));
        let each = |less: f64, more: f64| (more - less) / (MORE - FEW) as f64;
        println!(
            "{call:<10} {:>10.1} {:>10.2}",
            each(raw, more_raw),
            each(packed, more_packed)
        );
    }
}
