//! Files of every version can be read, and the writer of this version still writes the same bytes.
//!
//! `examples/golden.rs` writes such a file when the format gets a new version.

mod sample;

use std::fs;
use std::path::PathBuf;

use cutape_format::Trace;
use sample::{SIGNATURES, describe, place, sample, short_sample};

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name)
}

#[test]
fn golden_files_are_read() {
    // Every version has the same sample, so their descriptions are equal.
    let expected = fs::read_to_string(golden("v1.txt")).unwrap();
    let names = ["v1", "v1-packed", "v1.1", "v1.1-packed"].map(|name| format!("{name}.cutape"));
    for name in &names {
        let trace = Trace::open(&golden(name)).unwrap();
        assert_eq!(trace.verify(), [], "{name}");
        for (line, expected) in describe(&trace).iter().zip(expected.lines()) {
            assert_eq!(line, expected, "{name}");
        }
        assert_eq!(trace.calls().count(), expected.lines().count(), "{name}");
        let who: Vec<_> = trace
            .threads()
            .into_iter()
            .map(|t| (t.number, t.name))
            .collect();
        assert_eq!(who[0], (4243, "main".to_owned()), "{name}");
        assert_eq!(who.len(), 3, "{name}");
        assert_eq!(trace.meta_value("program"), Some("/bin/example"), "{name}");
        assert_eq!(trace.mappings()[0].build_id, [1, 2, 3], "{name}");
        assert_eq!(
            trace
                .signatures()
                .enumeration("CUresult")
                .unwrap()
                .name_of(-3),
            Some("NEGATIVE")
        );
        assert_eq!(trace.signatures().structure("CUuuid").unwrap().size, 16);
    }
}

#[test]
fn the_writer_still_writes_these_bytes() {
    for (builder, name) in [(sample(), "v1.cutape"), (short_sample(), "v1.1.cutape")] {
        assert!(
            builder.bytes() == fs::read(golden(name)).unwrap(),
            "{name}: see examples/golden.rs"
        );
    }
}

#[test]
fn arguments_are_the_same_together_as_one_by_one() {
    for (builder, name) in [(sample(), "packed"), (short_sample(), "short")] {
        let path = place("golden-arguments").join(format!("{name}.cutape"));
        builder.write(&path).unwrap();
        let trace = Trace::open(&path).unwrap();
        let mut signed = 0;
        for call in trace.calls() {
            // One more than any call has, and of some calls fewer than they have.
            for count in [2, 12] {
                let mut together = vec![7; count];
                call.arguments(&mut together);
                let each: Vec<u64> = (0..count).map(|at| call.argument(at)).collect();
                assert_eq!(together, each, "{name}: call {}", call.index);
                signed += usize::from(together.contains(&u64::MAX));
            }
        }
        assert!(signed > 0, "{name} has a negative argument");
    }
}

#[test]
fn known_calls_have_their_values() {
    let path = place("golden-values").join("raw.cutape");
    sample().write(&path).unwrap();
    let trace = Trace::open(&path).unwrap();
    let calls: Vec<_> = trace.calls().collect();
    assert!(calls.windows(2).all(|pair| pair[0].ticks < pair[1].ticks));
    assert!(
        calls
            .iter()
            .zip(0..)
            .all(|(call, index)| call.index == index)
    );
    let signed = &calls[1];
    assert_eq!(
        (signed.signature.name.as_str(), signed.argument(1)),
        ("cuDeviceGet", u64::MAX)
    );
    assert_eq!((signed.result(), signed.succeeded()), (Some(1), false));
    assert_eq!(signed.out(0), None);
    let load = &calls[2];
    assert_eq!(
        (load.thread, load.number, load.out(0)),
        (1, 0, Some(0xbeef))
    );
    assert_eq!(load.snapshot(1, 0).unwrap().bytes.length(), Some(17_000));
    assert_eq!(load.argument_named("image"), Some(0x8000));
    let float = &calls[5];
    assert_eq!(*float.argument_bytes(2), 1.5_f32.to_le_bytes());
    let by_value = &calls[6];
    assert_eq!(by_value.argument_bytes(1).len(), 64);
    assert_eq!(by_value.argument_bytes(1)[..8], 7_u64.to_le_bytes());
    assert!(by_value.leave.is_none(), "in flight");
    assert_eq!(by_value.signature.parameters.len(), 2);
    assert!(trace.signatures().by_name("cuTomorrow").is_none());
    assert!(SIGNATURES.contains("a-line-of-a-later-version"));
}
