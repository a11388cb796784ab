//! Walking over all calls of a trace, and looking at their arguments.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use cutape_benches::launch_loop;

const LAUNCHES: usize = 50_000;

fn benches(criterion: &mut Criterion) {
    let trace = launch_loop(LAUNCHES);
    let mut group = criterion.benchmark_group("decode");
    group.throughput(Throughput::Elements(trace.calls().count() as u64));
    group.bench_function("calls", |bencher| bencher.iter(|| trace.calls().count()));
    group.bench_function("arguments_and_captures", |bencher| {
        bencher.iter(|| {
            for call in trace.calls() {
                for position in 0..call.signature.parameters.len() {
                    black_box(call.argument(position));
                }
                black_box(call.captures().count());
            }
        });
    });
    group.finish();
}

criterion_group!(all, benches);
criterion_main!(all);
