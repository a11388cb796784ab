//! Packing: same content, one file, nothing else touched.

mod sample;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use cutape_format::control::Incomplete;
use cutape_format::{Symbol, Trace, TraceBuilder, pack};
use sample::{SIGNATURES, describe, place, sample};

#[test]
fn packed_trace_says_the_same() {
    let place = place("pack-same");
    let (raw, packed, again) = (
        place.join("raw.cutape"),
        place.join("packed.cutape"),
        place.join("again.cutape"),
    );
    sample().write(&raw).unwrap();
    let trace = Trace::open(&raw).unwrap();
    assert_eq!(trace.verify(), []);
    let before = describe(&trace);
    assert_eq!(before.len(), 107);
    let meta = [("exit.status".to_owned(), "0".to_owned())];
    let symbols = [Symbol {
        address: 0x40_0010,
        text: "main+0x10".into(),
    }];
    let summary = pack(&trace, &packed, &meta, &symbols).unwrap();
    assert_eq!(summary.before, fs::metadata(&raw).unwrap().len());
    assert_eq!(summary.after, fs::metadata(&packed).unwrap().len());
    assert!(summary.after < summary.before / 2, "{summary:?}");
    assert_eq!(summary.duplicate_blobs, 1);
    assert_eq!(
        fs::metadata(&packed).unwrap().permissions().mode() & 0o777,
        0o600
    );

    let trace = Trace::open(&packed).unwrap();
    assert_eq!(trace.verify(), []);
    assert_eq!(describe(&trace), before);
    assert_eq!(trace.meta_value("exit.status"), Some("0"));
    assert_eq!(trace.meta_value("driver.version"), Some("13000"));
    assert_eq!(trace.symbol(0x40_0010), Some("main+0x10"));
    assert_eq!(trace.mappings().len(), 1);
    assert_eq!(trace.blobs().count(), 3);

    // Packing a packed trace gives the same bytes.
    let summary = pack(&trace, &again, &meta, &symbols).unwrap();
    assert_eq!(fs::read(&again).unwrap(), fs::read(&packed).unwrap());
    assert_eq!(summary.duplicate_blobs, 1);
    // No temporary file is left.
    assert_eq!(fs::read_dir(&place).unwrap().count(), 3);
}

#[test]
fn replaces_its_own_source_and_nothing_else() {
    let place = place("pack-in-place");
    let (raw, other) = (place.join("raw.cutape"), place.join("other"));
    sample().write(&raw).unwrap();
    fs::write(&other, "precious").unwrap();
    let trace = Trace::open(&raw).unwrap();
    let before = describe(&trace);

    let error = pack(&trace, &other, &[], &[]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
    assert!(error.to_string().contains("other"), "{error}");
    assert_eq!(fs::read(&other).unwrap(), b"precious");

    let link = place.join("link.cutape");
    std::os::unix::fs::symlink(&raw, &link).unwrap();
    let summary = pack(&trace, &link, &[], &[]).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::metadata(&raw).unwrap().size(), summary.after);
    assert_eq!(describe(&Trace::open(&raw).unwrap()), before);
    // The trace that is still open has not changed.
    assert_eq!(describe(&trace), before);
    assert_eq!(fs::read_dir(&place).unwrap().count(), 3);
}

#[test]
fn leaves_out_what_no_record_names() {
    let place = place("pack-unused");
    let (raw, packed) = (place.join("raw.cutape"), place.join("packed.cutape"));
    // A blob that no record names, as a recorder leaves it when it abandons a record.
    let mut bytes = sample().bytes();
    let mut stray = sample::noise(20_000);
    stray.reverse();
    let donor = {
        let mut builder = cutape_format::TraceBuilder::new(sample::SIGNATURES);
        builder.call(cutape_format::NewCall {
            name: "cuModuleLoadData",
            arguments: &[0, 0],
            snapshots: &[cutape_format::NewSnapshot::pointee(1, &stray)],
            ..Default::default()
        });
        builder.bytes()
    };
    // Head, signature table (one page each), then the blob's chunk of 20,064 bytes in pages.
    bytes.extend_from_slice(&donor[8192..8192 + 20_480]);
    fs::write(&raw, bytes).unwrap();
    let trace = Trace::open(&raw).unwrap();
    assert_eq!(trace.blobs().count(), 4);
    pack(&trace, &packed, &[], &[]).unwrap();
    let packed = Trace::open(&packed).unwrap();
    assert_eq!(packed.blobs().count(), 3);
    assert_eq!(describe(&packed), describe(&trace));
}

#[test]
fn refuses_a_damaged_trace() {
    let place = place("pack-damaged");
    let raw = place.join("raw.cutape");
    let mut bytes = sample().bytes();
    bytes[20] ^= 1;
    fs::write(&raw, &bytes).unwrap();
    let trace = Trace::open_damaged(&raw).unwrap();
    let error = pack(&trace, &raw, &[], &[]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
    assert!(error.to_string().contains("repair"), "{error}");
    assert_eq!(fs::read(&raw).unwrap(), bytes);
}

#[test]
fn what_is_missing_stays_known() {
    let place = place("pack-incomplete");
    let calls = Incomplete {
        lacks_calls: true,
        error: 28,
        ..Incomplete::default()
    };
    let payloads = Incomplete {
        lacks_payloads: true,
        is_limited: true,
        ..Incomplete::default()
    };
    let others = Incomplete {
        lacks_others: true,
        ..Incomplete::default()
    };
    for (name, incomplete, (lacks_calls, lacks_payloads), why) in [
        ("calls", calls, (true, false), "No space left on device"),
        ("payloads", payloads, (false, true), "--max-size"),
        (
            "both",
            calls.after(Some(payloads)),
            (true, true),
            "--max-size",
        ),
        ("others", others, (false, false), "could not grow"),
    ] {
        let mut builder = TraceBuilder::new(SIGNATURES);
        builder.control(Some(incomplete));
        let raw = place.join(format!("{name}.cutape"));
        builder.write(&raw).unwrap();
        let packed = place.join(format!("{name}-packed.cutape"));
        let again = place.join(format!("{name}-again.cutape"));
        pack(&Trace::open(&raw).unwrap(), &packed, &[], &[]).unwrap();
        pack(&Trace::open(&packed).unwrap(), &again, &[], &[]).unwrap();
        for path in [raw, packed, again] {
            let found = Trace::open(&path).unwrap().shortfall().unwrap();
            let lacks = (found.lacks_calls, found.lacks_payloads);
            assert_eq!(lacks, (lacks_calls, lacks_payloads), "{name}");
            assert!(found.why.contains(why), "{name}: {}", found.why);
        }
    }
}
