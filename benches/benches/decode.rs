//! Reading all calls of a trace with their arguments; of a packed trace, with decompression.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use cutape_benches::{launch_loop, packed_launch_loop};
use cutape_format::{Call, Error, Trace};

const LAUNCHES: usize = 50_000;

fn look_at(call: &Call<'_>) {
    for position in 0..call.signature.parameters.len() {
        black_box(call.argument(position));
    }
    black_box(call.snapshots().count());
}

fn benches(criterion: &mut Criterion) {
    let trace = launch_loop(LAUNCHES);
    let packed = packed_launch_loop(LAUNCHES);
    let mut group = criterion.benchmark_group("decode");
    group.throughput(Throughput::Elements(trace.calls().count() as u64));
    group.bench_function("calls", |bencher| bencher.iter(|| trace.calls().count()));
    group.bench_function("arguments_and_snapshots", |bencher| {
        bencher.iter(|| trace.calls().for_each(|call| look_at(&call)));
    });
    group.bench_function("walk", |bencher| {
        bencher.iter(|| {
            trace
                .walk()
                .run(|call| {
                    look_at(call);
                    Ok::<_, Error>(())
                })
                .expect("the trace is sound")
        });
    });
    group.bench_function("open_and_walk_packed", |bencher| {
        bencher.iter(|| {
            let trace = Trace::open(packed.path()).expect("the trace is sound");
            let walked = trace.walk().run(|call| {
                look_at(call);
                Ok::<_, Error>(())
            });
            walked.expect("the trace is sound");
        });
    });
    group.finish();
}

criterion_group!(all, benches);
criterion_main!(all);
