//! Profiles made by hand.

use std::collections::BTreeMap;

use crate::record::{CallFacts, Device, HostCall, Method, Profile, Run, Work, WorkKind};

/// A device like an H200.
pub(crate) fn h200() -> Device {
    Device {
        ordinal: 0,
        name: "NVIDIA H200".into(),
        capability: [9, 0],
        multiprocessors: 132,
        warps: 64,
        blocks: 32,
        registers: 65536,
        shared_bytes: 233_472,
        bytes_per_second: 4_800_000_000_000,
    }
}

/// A kernel of a call on stream 1 without shape.
pub(crate) fn kernel(name: &str, call: u64, begin_ns: u64, end_ns: u64) -> Work {
    Work {
        name: name.into(),
        begin_ns,
        end_ns,
        stream: 1,
        call: Some(call),
        ..Work::of(WorkKind::Kernel)
    }
}

/// A call and its times.
pub(crate) fn host(call: u64, begin_ns: u64, end_ns: u64) -> HostCall {
    HostCall {
        call,
        begin_ns,
        end_ns,
        taken_ns: None,
        done_ns: None,
    }
}

/// A profile of one run; calls in `waits` are waits, the others launches.
pub(crate) fn profile(work: Vec<Work>, calls: Vec<HostCall>, waits: &[u64]) -> Profile {
    let facts = |call: &HostCall| CallFacts {
        function: match waits.contains(&call.call) {
            true => "cuCtxSynchronize".into(),
            false => "cuLaunchKernel".into(),
        },
        is_wait: waits.contains(&call.call),
        ..CallFacts::default()
    };
    Profile {
        trace: "app.cutape".into(),
        driver: "libcuda.so.1".into(),
        method: Method::Cupti {
            version: 130_001,
            path: "libcupti.so.13".into(),
        },
        devices: vec![h200()],
        streams: BTreeMap::from([(1, "default stream".into()), (2, "stream#1".into())]),
        calls: calls.iter().map(|call| (call.call, facts(call))).collect(),
        runs: vec![Run {
            work,
            host: calls,
            ..Run::default()
        }],
        counters: None,
        notes: BTreeMap::new(),
    }
}
