//! Bytes that a trace refers to by a file: packed while the file is there, reported otherwise.

mod sample;

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use cutape_driver::digest::digest;
use cutape_format::layout::snapshot_flag;
use cutape_format::{
    Bytes, Error, FileRange, MissingFileRange, NewCall, NewSnapshot, PayloadFile, PayloadPolicies,
    Trace, TraceBuilder, pack, pack_with_policies,
};
use sample::place;

const SIGNATURES: &str =
    "cutape-signatures\t1\nfunction\t0\tload\tload\tX\tCUresult\tplain\timage|void *|u8|in\n";
const BUILD_ID: [u8; 20] = [0xab; 20];

/// An ELF file with only a build id, then these bytes.
fn library(build_id: &[u8; 20], content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 64 + 56];
    bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    bytes[32..40].copy_from_slice(&64_u64.to_le_bytes());
    bytes[54..56].copy_from_slice(&56_u16.to_le_bytes());
    bytes[56..58].copy_from_slice(&1_u16.to_le_bytes());
    bytes[64..68].copy_from_slice(&4_u32.to_le_bytes());
    bytes[72..80].copy_from_slice(&120_u64.to_le_bytes());
    bytes[96..104].copy_from_slice(&36_u64.to_le_bytes());
    for word in [4_u32, 20, 3] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(b"GNU\0");
    bytes.extend(build_id);
    bytes.extend(content);
    bytes
}

/// Where `library` puts the content.
const CONTENT_AT: u64 = 156;

fn encoded(range: FileRange<'_>) -> Vec<u8> {
    let mut bytes = vec![0; range.encoded_length()];
    range.encode(&mut bytes).unwrap();
    bytes
}

/// A trace with one call for each of these ranges.
fn record(path: &Path, ranges: &[FileRange<'_>]) -> Trace {
    let mut builder = TraceBuilder::new(SIGNATURES);
    for range in ranges {
        builder
            .call(NewCall {
                name: "load",
                arguments: &[0x1000],
                snapshots: &[NewSnapshot {
                    flags: snapshot_flag::IN_FILE,
                    ..NewSnapshot::pointee(0, &encoded(*range))
                }],
                ..NewCall::default()
            })
            .leave(0, 0, &[]);
    }
    builder.write(path).unwrap();
    Trace::open(path).unwrap()
}

/// What the first snapshot of each call holds, or why it is unavailable.
fn contents(trace: &Trace) -> Vec<Result<Vec<u8>, String>> {
    trace
        .calls()
        .map(|call| {
            let bytes = call.snapshot(0, 0).unwrap().bytes;
            assert!(matches!(bytes, Bytes::InFile(_)), "{bytes:?}");
            match trace.resolve(bytes) {
                Ok(bytes) => Ok(bytes.into_owned()),
                Err(damage) => Err(damage.what),
            }
        })
        .collect()
}

fn missing(trace: &Trace) -> Vec<MissingFileRange> {
    let summary = trace.walk().run(|_| Ok::<_, Error>(()));
    summary.unwrap().missing_file_ranges(trace)
}

#[test]
fn packed_with_the_trace() {
    let place = place("files-packed");
    let file = place.join("libx.so");
    fs::write(&file, library(&BUILD_ID, b"one two one")).unwrap();
    let range = |offset, length| FileRange {
        offset: CONTENT_AT + offset,
        length,
        file_length: 0,
        modified: 0,
        path: file.as_os_str().as_bytes(),
        build_id: &BUILD_ID,
        digest: None,
    };
    // The same range twice, and the same content at two places.
    let ranges = [range(0, 3), range(4, 3), range(8, 3), range(0, 3)];
    let expected = ["one", "two", "one", "one"].map(|text| Ok(text.as_bytes().to_vec()));
    let raw = record(&place.join("raw.cutape"), &ranges);
    assert_eq!(contents(&raw), expected);
    assert_eq!(missing(&raw), []);
    let packed = place.join("packed.cutape");
    let summary = pack(&raw, &packed, &[], &[]).unwrap();
    assert_eq!((summary.files, &summary.missing[..]), (3, &[][..]));
    fs::remove_file(&file).unwrap();

    assert!(contents(&raw).iter().all(|content| {
        let why = content.as_ref().unwrap_err();
        why.contains("libx.so") && why.contains("No such file")
    }));
    assert_eq!(missing(&raw).len(), 3, "each range is named once");
    let trace = Trace::open(&packed).unwrap();
    assert_eq!(trace.verify(), []);
    assert_eq!(contents(&trace), expected);
    assert_eq!(trace.blobs().count(), 3, "a name for each range");
    assert_eq!(missing(&trace), []);
    // Once packed they stay, without the file.
    let again = place.join("again.cutape");
    let summary = pack(&trace, &again, &[], &[]).unwrap();
    assert_eq!((summary.files, &summary.missing[..]), (0, &[][..]));
    assert_eq!(fs::read(&again).unwrap(), fs::read(&packed).unwrap());
}

#[test]
fn what_has_changed_is_not_taken() {
    let place = place("files-changed");
    let file = place.join("libx.so");
    let content = library(&BUILD_ID, b"bytes");
    let modified = UNIX_EPOCH + Duration::new(1_700_000_000, 5);
    let base = FileRange {
        offset: CONTENT_AT,
        length: 5,
        file_length: content.len() as u64,
        modified: 1_700_000_000_000_000_005,
        path: file.as_os_str().as_bytes(),
        build_id: &BUILD_ID,
        digest: None,
    };
    let stat = FileRange {
        build_id: &[],
        ..base
    };
    let later = modified + Duration::from_nanos(1);
    let other = library(&[1; 20], b"bytes");
    let longer = library(&BUILD_ID, b"bytes and more");
    for (what, range, there, time, is_the_same) in [
        ("as it was", base, &content, modified, true),
        ("touched", base, &content, later, true),
        ("another build", base, &other, modified, false),
        ("no ELF", base, &vec![7; 200], modified, false),
        ("a short one", base, &vec![7; 3], modified, false),
        ("as it was, without id", stat, &content, modified, true),
        ("touched, without id", stat, &content, later, false),
        ("longer, without id", stat, &longer, modified, false),
        (
            "beyond its end",
            FileRange { length: 6, ..base },
            &content,
            modified,
            false,
        ),
        (
            "beyond every end",
            FileRange {
                offset: u64::MAX,
                ..base
            },
            &content,
            modified,
            false,
        ),
    ] {
        fs::write(&file, there).unwrap();
        fs::File::options()
            .write(true)
            .open(&file)
            .unwrap()
            .set_modified(time)
            .unwrap();
        let path = place.join("raw.cutape");
        let _ = fs::remove_file(&path);
        let trace = record(&path, &[range]);
        let found = contents(&trace).remove(0);
        let missing = missing(&trace);
        let summary = pack(&trace, &path, &[], &[]).unwrap();
        assert_eq!(summary.missing, missing, "{what}");
        assert_eq!(summary.files, u64::from(is_the_same), "{what}");
        if is_the_same {
            assert_eq!(found.as_deref(), Ok(&b"bytes"[..]), "{what}");
            assert_eq!(missing, [], "{what}");
        } else {
            assert!(found.unwrap_err().contains("has changed"), "{what}");
            assert_eq!(missing[0].path, file, "{what}");
            assert!(missing[0].why.contains("has changed"), "{what}");
        }
    }
    // Neither a folder nor a pipe is read, and opening a pipe does not wait.
    let pipe = place.join("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    for path in [
        place.as_os_str().as_bytes(),
        pipe.as_os_str().as_bytes(),
        b"/dev/zero",
        b"",
        b"\0",
    ] {
        let trace = record(
            &place.join(format!("{}", path.len())),
            &[FileRange { path, ..base }],
        );
        assert!(contents(&trace).remove(0).is_err());
    }
}

#[test]
fn payloads_stay_in_their_file() {
    let place = place("files-payloads");
    let file = place.join("weights");
    let content = b"0123456789";
    fs::write(&file, content).unwrap();
    let range = |offset: usize, length: usize| FileRange {
        offset: offset as u64,
        length: length as u64,
        file_length: 10,
        modified: 0,
        path: file.as_os_str().as_bytes(),
        build_id: &[],
        digest: Some(digest(&content[offset..][..length])),
    };
    let raw = record(
        &place.join("raw.cutape"),
        &[range(0, 4), range(2, 8), range(0, 4)],
    );
    let expected = ["0123", "23456789", "0123"].map(|text| Ok(text.as_bytes().to_vec()));
    let packed = place.join("packed.cutape");
    let embedded = place.join("embedded.cutape");
    let summary = pack(&raw, &packed, &[], &[]).unwrap();
    assert_eq!((summary.files, &summary.missing[..]), (0, &[][..]));
    let with_files = PayloadPolicies {
        embeds_files: true,
        ..PayloadPolicies::default()
    };
    let summary = pack_with_policies(&raw, &embedded, &[], &[], with_files).unwrap();
    assert_eq!((summary.files, &summary.missing[..]), (2, &[][..]));
    let [packed, embedded] = [packed, embedded].map(|path| Trace::open(&path).unwrap());
    let files = |trace: &Trace| {
        let summary = trace.walk().run(|_| Ok::<_, Error>(()));
        summary.unwrap().payload_files(trace)
    };
    // Another time, the same bytes.
    for trace in [&raw, &packed, &embedded] {
        assert_eq!(contents(trace), expected);
        assert_eq!(trace.verify(), []);
        assert_eq!(missing(trace), []);
    }
    let found = files(&packed);
    let [
        PayloadFile {
            parts: 2,
            bytes: 12,
            changed: Some(why),
            path,
        },
    ] = &found[..]
    else {
        panic!("{found:?}");
    };
    assert!(
        *path == file && why.ends_with("has changed since the recording"),
        "{why}"
    );
    assert_eq!(files(&embedded), []);

    let unavailable = |whether: &[(bool, &str)]| {
        for (content, (is_there, why)) in contents(&packed).iter().zip(whether) {
            assert_eq!(content.is_ok(), *is_there, "{content:?}");
            let why_not = content.as_ref().err().cloned().unwrap_or_default();
            assert!(why_not.contains(why), "{why_not}");
        }
        assert_eq!(contents(&embedded), expected);
    };
    fs::write(&file, b"012345678x").unwrap();
    unavailable(&[
        (true, ""),
        (false, "weights: has changed since the recording; put"),
    ]);
    fs::write(&file, b"012345678").unwrap();
    unavailable(&[(true, ""), (false, "(9 bytes, then 10)")]);
    fs::remove_file(&file).unwrap();
    unavailable(&[(false, "No such file"), (false, "weights")]);
    let again = place.join("again.cutape");
    let summary = pack_with_policies(&packed, &again, &[], &[], with_files).unwrap();
    assert_eq!(
        (summary.files, summary.missing.len()),
        (0, 2),
        "each once, by name"
    );
}

#[test]
fn a_malformed_reference_is_damage() {
    let place = place("files-malformed");
    let path = place.join("raw.cutape");
    let mut builder = TraceBuilder::new(SIGNATURES);
    builder.call(NewCall {
        name: "load",
        arguments: &[0x1000],
        snapshots: &[NewSnapshot {
            flags: snapshot_flag::IN_FILE,
            ..NewSnapshot::pointee(0, &[0xff; 48])
        }],
        ..NewCall::default()
    });
    builder.write(&path).unwrap();
    let trace = Trace::open(&path).unwrap();
    let call = trace.calls().next().unwrap();
    assert!(call.snapshot(0, 0).is_none());
}
