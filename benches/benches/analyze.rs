//! Checking all calls of a correct trace.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use cutape_analyzer::Analyzer;
use cutape_benches::launch_loop;

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
    group.finish();
}

criterion_group!(all, benches);
criterion_main!(all);
