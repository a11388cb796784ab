//! Checking all calls of a correct trace.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use cutape_analyzer::Analyzer;
use cutape_benches::{launch_loop, packed_launch_loop};
use cutape_format::{Error, Trace};

const LAUNCHES: usize = 50_000;

fn benches(criterion: &mut Criterion) {
    let trace = launch_loop(LAUNCHES);
    let mut group = criterion.benchmark_group("analyze");
    group.throughput(Throughput::Elements(trace.calls().count() as u64));
    group.sample_size(20);
    group.bench_function("launch_loop", |bencher| {
        bencher.iter(|| {
            let mut analyzer = Analyzer::new();
            trace
                .calls()
                .map(|call| analyzer.push(&trace, &call).len())
                .sum::<usize>()
        });
    });
    let packed = packed_launch_loop(LAUNCHES);
    group.bench_function("open_and_check_packed", |bencher| {
        bencher.iter(|| {
            let trace = Trace::open(packed.path()).expect("the trace is sound");
            let mut analyzer = Analyzer::new();
            let mut findings = 0;
            let walked = trace.walk().run(|call| {
                findings += analyzer.push(&trace, call).len();
                Ok::<_, Error>(())
            });
            walked.expect("the trace is sound");
            findings
        });
    });
    group.finish();
}

criterion_group!(all, benches);
criterion_main!(all);
