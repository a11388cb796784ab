//! Packing a raw trace of launches, and packing it again.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use cutape_benches::{launch_loop, packed_launch_loop};
use cutape_format::{Trace, pack};

const LAUNCHES: usize = 50_000;

fn benches(criterion: &mut Criterion) {
    let raw = launch_loop(LAUNCHES);
    let packed = packed_launch_loop(LAUNCHES);
    let packed = Trace::open(packed.path()).expect("the trace is sound");
    let target = std::env::temp_dir().join(format!("cutape-bench-{}-out", std::process::id()));
    let mut group = criterion.benchmark_group("pack");
    group.throughput(Throughput::Elements(raw.calls().count() as u64));
    group.sample_size(20);
    for (name, trace) in [("raw", &raw), ("packed", &packed)] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                pack(trace, &target, &[], &[]).expect("the trace is sound");
                std::fs::remove_file(&target).expect("a file of our own can be removed");
            });
        });
    }
    group.finish();
}

criterion_group!(all, benches);
criterion_main!(all);
