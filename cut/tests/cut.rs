//! A part of a trace, written and read again.

use std::collections::BTreeMap;
use std::fs;

use cutape_cut::{Part, needs, part, write};
use cutape_format::{
    NewCall, NewSnapshot, Provenance, StateOrigin, Trace, TraceBuilder, file_hash,
};

/// Function, arguments, the handle that it writes behind its first parameter (0 for none).
const CALLS: [(&str, &[u64], u64); 8] = [
    ("cuInit", &[0], 0),
    ("cuCtxCreate_v2", &[1, 0, 0], 0xc),
    ("cuMemAlloc_v2", &[1, 0x100], 0x10000),
    ("cuMemAlloc_v2", &[1, 0x100], 0x20000),
    ("cuMemsetD8_v2", &[0x10000, 1, 16], 0),
    ("cuMemsetD8_v2", &[0x20000, 1, 16], 0),
    ("cuMemFree_v2", &[0x10000], 0),
    ("cuMemFree_v2", &[0x20000], 0),
];

fn builder() -> TraceBuilder {
    let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
    for (name, arguments, handle) in CALLS {
        let bytes = u64::to_le_bytes(handle);
        let written = [NewSnapshot::pointee(0, &bytes)];
        builder
            .call(NewCall {
                name,
                arguments,
                ..NewCall::default()
            })
            .leave(0, 0, if handle == 0 { &[] } else { &written });
    }
    builder
}

#[test]
fn a_part_says_where_it_comes_from() {
    let folder = std::env::temp_dir().join(format!("cutape-cut-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    builder().write(&folder.join("source.cutape")).unwrap();
    let source = Trace::open(&folder.join("source.cutape")).unwrap();
    let mut passed = 0;
    let needs = needs(&source, &mut || passed += 1).unwrap();
    assert_eq!(passed, CALLS.len());
    for (file, chosen, expected) in [
        ("first", &[4][..], &[0, 1, 2, 4, 6][..]),
        ("second", &[5, 99], &[0, 1, 3, 5, 7]),
        ("both", &[4, 5], &[0, 1, 2, 3, 4, 5, 6, 7]),
        ("none", &[0], &[0]),
    ] {
        let part = part(&needs, chosen);
        let calls: Vec<u64> = part.indices().collect();
        assert_eq!(calls, expected, "{file}");
        assert_eq!(part.count(), expected.len() as u64, "{file}");
        let in_trace = chosen.iter().filter(|&&call| call < 8).count() as u64;
        assert_eq!(part.chosen, in_trace, "{file}");
        let provenance = Provenance {
            source: "source.cutape".into(),
            hash: file_hash(source.path()).unwrap(),
            choice: format!("trim --calls {chosen:?}"),
            version: "1".into(),
            calls: calls.iter().copied().collect(),
            of: part.calls.len() as u64,
            changed: chosen.iter().copied().filter(|&call| call < 8).collect(),
            state: (file == "both").then(|| StateOrigin {
                driver: "CUDA 13.0, libcuda.so.1".into(),
                devices: "2 × GPU".into(),
                call: 4,
                bytes: 1 << 40,
            }),
        };
        let target = folder.join(file);
        let changes = BTreeMap::new();
        let write = |provenance: &Provenance| {
            let of = (&part, &needs);
            write(&source, of, provenance, None, &target, &changes, &|| {})
        };
        write(&provenance).unwrap();
        let read = Trace::open(&target).unwrap();
        assert_eq!(Provenance::of(&read), Some(provenance), "{file}");
        let names = |trace: &Trace, calls: &[u64]| -> Vec<String> {
            let wanted = trace.calls().filter(|call| calls.contains(&call.index));
            wanted.map(|call| call.signature.name.clone()).collect()
        };
        let all: Vec<u64> = (0..expected.len() as u64).collect();
        assert_eq!(names(&read, &all), names(&source, expected), "{file}");
        // The output is never replaced.
        assert!(write(&Provenance::default()).is_err(), "{file}");
    }
    assert_eq!(Provenance::of(&source), None);
    let nothing = Part {
        calls: vec![false; 8],
        ..Part::default()
    };
    assert_eq!(part(&needs, &[]), nothing);
    fs::remove_dir_all(&folder).unwrap();
}
