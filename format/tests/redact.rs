//! Redaction knows everything that a trace can hold.

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use cutape_format::{
    Contents, Needed, NewCall, Note, PayloadPolicies, Redaction, Secret, Secrets, Subject, Symbol,
    Trace, TraceBuilder, pack, pack_redacted,
};

/// Writes a trace without these secrets, and opens the result.
fn redacted(trace: &Trace, name: &str, secrets: Secrets) -> Trace {
    redacted_with(trace, name, secrets, &[])
}

/// The same, adding symbols.
fn redacted_with(trace: &Trace, name: &str, secrets: Secrets, symbols: &[Symbol]) -> Trace {
    let path = std::env::temp_dir().join(format!("cutape-redact-{}-{name}", std::process::id()));
    let redaction = Redaction {
        secrets,
        contents: Contents::Zeros,
        policies: PayloadPolicies::default(),
        subject: &|_, _| Subject::Call,
        parameters: &|bytes| bytes.to_vec(),
    };
    let written = AtomicU64::new(0);
    pack_redacted(trace, &path, &[], symbols, &redaction, &written).unwrap();
    let opened = Trace::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    opened
}

fn notes(trace: &Trace) -> Vec<String> {
    let calls = trace.calls();
    let notes = calls.flat_map(|call| {
        call.notes()
            .map(|note| format!("{note:?}"))
            .collect::<Vec<_>>()
    });
    notes.collect()
}

/// A note that `pack/redact/notes.rs` does not list would be lost from every redacted trace.
#[test]
fn every_note_is_known() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut seen = 0;
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let Ok(trace) = Trace::open(&entry.path()) else {
            continue;
        };
        let name = entry.file_name().into_string().unwrap();
        let environment = redacted(&trace, &name, Secrets::from_iter([Secret::Environment]));
        // Of a later version, which is to be left out.
        let mut before = notes(&trace);
        before.retain(|note| !note.starts_with("Other("));
        let blobs = |text: &String| text.contains("Blob(") || text.contains("InFile(");
        assert_eq!(notes(&environment).len(), before.len(), "{name}");
        for (after, before) in notes(&environment).iter().zip(&before) {
            assert!(
                after == before || blobs(before),
                "{name}: {after} instead of {before}"
            );
        }
        seen += before.len();
        let everything = redacted(&trace, &name, Secret::EVERY.into_iter().collect());
        for call in everything.calls() {
            let has_value = |note: Note<'_>| matches!(note, Note::DigestValues(_));
            assert!(!call.notes().any(has_value), "{name}");
        }
    }
    assert!(seen > 30, "{seen}");
}

#[test]
fn facts_and_symbols_have_no_names() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let source = Trace::open(&folder.join("v1.11.cutape")).unwrap();
    let path = std::env::temp_dir().join(format!("cutape-redact-{}-facts", std::process::id()));
    let facts = [("kept.reason", "the mark secret"), ("kept.time", "7")];
    let facts = facts.map(|(key, value)| (key.to_owned(), value.to_owned()));
    pack(&source, &path, &facts, &[]).unwrap();
    let trace = Trace::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let symbol = Symbol {
        address: 0x10,
        text: "main+0x2f in not in public".to_owned(),
    };
    for (secret, reason, text) in [
        (Secret::Payloads, "the mark secret", Some(&*symbol.text)),
        (Secret::Paths, "removed", Some("main+0x2f")),
        (Secret::Names, "removed", None),
    ] {
        let symbols = [symbol.clone()];
        let redacted = redacted_with(&trace, "names", Secrets::from_iter([secret]), &symbols);
        assert_eq!(redacted.meta_value("kept.reason"), Some(reason));
        assert_eq!(redacted.meta_value("kept.time"), Some("7"));
        assert_eq!(redacted.symbol(0x10), text);
    }
}

#[test]
fn erased_calls_are_no_damage() {
    let path = std::env::temp_dir().join(format!("cutape-redact-{}-erased", std::process::id()));
    let table = "cutape-signatures\t1\nfunction\t0\ta\ta\tS\tCUresult\tplain\n";
    let mut builder = TraceBuilder::new(table);
    builder.control(None).chunk_length(4096);
    let call = NewCall {
        name: "a",
        ..NewCall::default()
    };
    for _ in 0..1000 {
        builder.call(call).leave(0, 0, &[]);
    }
    builder.write(&path).unwrap();
    let needed = Needed {
        calls: &|_, _| false,
        blob: &|_| false,
        from: u64::MAX,
    };
    let erased = Trace::open(&path).unwrap().erase(&needed, 0).unwrap();
    assert!(erased.bytes > 4096, "{erased:?}");
    let trace = Trace::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let redacted = redacted(&trace, "erased", Secrets::from_iter([Secret::Paths]));
    assert!(redacted.has_erased());
    assert_eq!(redacted.calls().count(), trace.calls().count());
    assert_eq!(redacted.verify(), []);
}
