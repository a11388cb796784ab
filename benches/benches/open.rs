//! Reading ten calls in the middle of a packed trace through its index: the time should not depend
//! on the length of the trace.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use cutape_benches::packed_launch_loop;
use cutape_format::{Error, Trace};

fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("open");
    for launches in [20_000, 200_000, 1_000_000] {
        let packed = packed_launch_loop(launches);
        let middle = launches as u64;
        group.bench_function(BenchmarkId::new("ten_calls_of", 2 * launches), |bencher| {
            bencher.iter(|| {
                let trace = Trace::open_indexed(packed.path()).expect("the trace is sound");
                let mut seen = 0;
                let range = middle..middle + 10;
                let walked = trace.walk().calls(range.clone()).run(|call| {
                    seen += u32::from(range.contains(&call.index));
                    Ok::<_, Error>(())
                });
                walked.expect("the trace is sound");
                assert_eq!(seen, 10);
            });
        });
    }
    group.finish();
}

criterion_group!(all, benches);
criterion_main!(all);
