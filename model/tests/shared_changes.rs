//! Changes of registered shared host memory.

use cutape_format::layout::{HostChangedNote, SharedMappingNote, note_kind};
use cutape_format::{NewCall, NewSnapshot, Trace, TraceBuilder};
use cutape_model::{ExchangeBuilder, HostChanges};

/// What is registered.
const START: u64 = 0x10000;
const LENGTH: u64 = 0x3000;

/// Registers memory of which two parts are mappings of a file, the first page and the last.
fn register(builder: &mut TraceBuilder) {
    builder.call(NewCall {
        name: "cuMemHostRegister_v2",
        arguments: &[START, LENGTH, 0],
        ..NewCall::default()
    });
    for part in [0, 0x2000] {
        let note = SharedMappingNote {
            address: START + part,
            length: 0x1000,
            device: 1,
            inode: 7,
            offset: part,
        };
        builder.note(0, note_kind::SHARED_MAPPING, note, b"/dev/shm/x");
    }
    builder.leave(0, 0, &[]);
}

/// A call with a result that finds bytes at an address.
fn found(builder: &mut TraceBuilder, result: i32, address: u64, length: usize) {
    builder.call(NewCall {
        name: "cuStreamSynchronize",
        arguments: &[5],
        ..NewCall::default()
    });
    let note = HostChangedNote {
        address,
        is_after: 1,
    };
    builder.host_changed_note(0, note, NewSnapshot::pointee(0, &vec![1; length]));
    builder.leave(0, result, &[]);
}

#[test]
fn changes_count_for_the_parts_that_they_are_in() {
    let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
    found(&mut builder, 0, START, 4);
    register(&mut builder);
    // The first look.
    found(&mut builder, 0, START, 100);
    for (result, address, length) in [
        (0, START, 4),
        (700, START + 0xffe, 4),
        // Between the parts, in both, behind them.
        (0, START + 0x1000, 0x1000),
        (0, START + 0xfff, 0x1002),
        (0, START + LENGTH - 1, 1),
        (0, START + LENGTH, 8),
    ] {
        found(&mut builder, result, address, length);
    }
    builder.call(NewCall {
        name: "cuMemHostUnregister",
        arguments: &[START],
        ..NewCall::default()
    });
    builder.leave(0, 0, &[]);
    found(&mut builder, 0, START, 4);
    register(&mut builder);
    found(&mut builder, 0, START, 4);

    let file = format!("cutape-shared-changes-{}.cutape", std::process::id());
    let path = std::env::temp_dir().join(file);
    builder.write(&path).unwrap();
    let trace = Trace::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let mut exchanges = ExchangeBuilder::default();
    for call in trace.calls() {
        exchanges.observe(&call);
    }
    let mapped = exchanges.finish().mapped;
    let changes: Vec<HostChanges> = mapped.iter().map(|part| part.changes).collect();
    let expected = [(3, 4 + 2 + 1), (2, 1 + 1), (0, 0), (0, 0)];
    let expected = expected.map(|(count, bytes)| HostChanges { count, bytes });
    assert_eq!(changes, expected);
}
