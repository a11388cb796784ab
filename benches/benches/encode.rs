//! One record, as the interposer writes it.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use cutape_format::layout::{EnterHead, LeaveHead, field, record_kind};
use cutape_format::write::Record;

/// Aligned as a chunk is.
#[repr(align(64))]
struct Space([u8; 512]);

fn scalar(space: &mut Space) -> Option<usize> {
    let mut enter = Record::new(&mut space.0)?;
    enter.put_encoded(EnterHead {
        ticks: black_box(1),
        caller: black_box(2),
    })?;
    enter.put_number(black_box(3), 8)?;
    let used = enter.commit(record_kind::ENTER, 17)?;
    let mut leave = Record::new(&mut space.0[used..])?;
    leave.put_encoded(LeaveHead {
        ticks: black_box(4),
        result: 0,
    })?;
    leave.commit(record_kind::LEAVE, 17)
}

fn launch(space: &mut Space, parameters: &[u8; 52]) -> Option<usize> {
    let mut enter = Record::new(&mut space.0)?;
    enter.put_encoded(EnterHead {
        ticks: black_box(1),
        caller: black_box(2),
    })?;
    for width in [8, 4, 4, 4, 4, 4, 4, 4, 8, 8, 8] {
        enter.put_number(black_box(5), width)?;
    }
    enter.put_snapshot(9, field::KERNEL_PARAMETERS, parameters.len(), |target| {
        target.copy_from_slice(parameters);
        Some(0)
    })?;
    let used = enter.commit(record_kind::ENTER, 18)?;
    let mut leave = Record::new(&mut space.0[used..])?;
    leave.put_encoded(LeaveHead {
        ticks: black_box(4),
        result: 0,
    })?;
    leave.commit(record_kind::LEAVE, 18)
}

fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("encode");
    group.throughput(Throughput::Elements(1));
    let mut space = Box::new(Space([0; 512]));
    let parameters = [9; 52];
    group.bench_function("scalar_call", |bencher| bencher.iter(|| scalar(&mut space)));
    group.bench_function("launch_of_8", |bencher| {
        bencher.iter(|| launch(&mut space, black_box(&parameters)))
    });
    group.finish();
}

criterion_group!(all, benches);
criterion_main!(all);
