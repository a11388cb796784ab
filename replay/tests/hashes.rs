//! Payloads of which a trace has only the hash: returned bytes are compared with it; for bytes that
//! went to the device, zeros are copied and nothing is compared.

mod recorder;

use cutape_format::layout::{ReadbackNote, snapshot_flag};
use cutape_format::{NewSnapshot, codec};
use cutape_replay::What;

use recorder::{Recorder, assert_agrees, pattern};

#[test]
#[ignore = "not a test: the other tests start it as the child process that replays"]
fn child() {
    recorder::child();
}

const LENGTH: usize = 30_000;

/// The hash that a trace has instead of the bytes.
fn hashed(bytes: &[u8]) -> Vec<u8> {
    let hash = *blake3::hash(bytes).as_bytes().first_chunk().unwrap();
    codec::encode_to_vec((bytes.len() as u64, hash as [u8; 16]))
}

fn capture(parameter: u8, bytes: &[u8]) -> NewSnapshot<'_> {
    NewSnapshot {
        flags: snapshot_flag::HASHED,
        ..NewSnapshot::pointee(parameter, bytes)
    }
}

#[test]
fn what_comes_back_is_compared_with_its_hash() {
    let good = pattern(LENGTH);
    let mut changed = good.clone();
    changed[20_000] ^= 1;
    // The bytes whose hash was recorded, and whether the same bytes come back here.
    let table: [(&str, &[u8], bool); 3] = [
        ("equal", &good, true),
        ("changed", &changed, false),
        ("shorter", &good[..LENGTH - 1], false),
    ];
    for (name, recorded, agrees) in table {
        for is_later in [false, true] {
            let mut recorder = Recorder::new();
            let context = recorder.begin();
            let memory = recorder.allocate(LENGTH as u64);
            recorder.upload(memory, &good);
            let kept = hashed(recorded);
            let copy = recorder.index;
            if is_later {
                let arguments = [0x1000, memory, LENGTH as u64, 0];
                let number = recorder.numbers[0];
                recorder.write("cuMemcpyDtoHAsync_v2", &arguments, &[], |_| {}, 0, &[]);
                let note = ReadbackNote {
                    thread: 0,
                    number,
                    address: 0x1000,
                };
                let arrives = |builder: &mut cutape_format::TraceBuilder| {
                    builder.readback_note(0, note, capture(0, &kept));
                };
                recorder.write("cuCtxSynchronize", &[], &[], arrives, 0, &[]);
            } else {
                let arguments = [0x1000, memory, LENGTH as u64];
                let back = [capture(0, &kept)];
                recorder.write("cuMemcpyDtoH_v2", &arguments, &[], |_| {}, 0, &back);
            }
            recorder.end(context);
            let name = format!("hashes-{name}-{is_later}");
            let report = recorder.replayed(&name, "keep-going");
            assert!(report.died.is_none(), "{name}");
            let length = LENGTH as u64;
            let compared = (report.bytes_compared, report.bytes_compared_by_hash);
            if agrees {
                assert_agrees(&report);
                assert_eq!(compared, (length, length), "{name}");
                continue;
            }
            assert_eq!((report.divergence_count, compared), (1, (0, 0)), "{name}");
            let divergence = &report.divergences[0];
            assert_eq!(divergence.what, What::Bytes, "{name}");
            assert_eq!(divergence.parameter.as_deref(), Some("dstHost"), "{name}");
            let (call, by) = if is_later {
                (copy + 1, Some(copy))
            } else {
                (copy, None)
            };
            assert_eq!(
                (divergence.call, divergence.enqueued_by),
                (call, by),
                "{name}"
            );
            assert_eq!(divergence.first_differing_byte, None, "{name}");
            let says_so = divergence
                .expected
                .contains("which byte differs is unknown");
            assert!(says_so, "{name}: {}", divergence.expected);
            let here = blake3::hash(&good).to_hex();
            assert!(
                divergence.received.contains(&here[..16]),
                "{name}: {}",
                divergence.received
            );
        }
    }
}

#[test]
fn what_went_there_only_as_a_hash_lets_nothing_pass() {
    let good = pattern(LENGTH);
    let kept = hashed(&good);
    for is_hashed in [false, true] {
        let mut recorder = Recorder::new();
        let context = recorder.begin();
        let memory = recorder.allocate(LENGTH as u64);
        let omitted = (LENGTH as u64).to_le_bytes();
        let given = if is_hashed {
            capture(1, &kept)
        } else {
            NewSnapshot {
                flags: snapshot_flag::OMITTED,
                ..NewSnapshot::pointee(1, &omitted)
            }
        };
        let arguments = [memory, 0x2000, LENGTH as u64];
        recorder.write("cuMemcpyHtoD_v2", &arguments, &[given], |_| {}, 0, &[]);
        // Of zeros even the hash would be equal.
        let kept_zeros = hashed(&vec![0; LENGTH]);
        let arguments = [0x1000, memory, LENGTH as u64];
        let back = [capture(0, &kept_zeros)];
        recorder.write("cuMemcpyDtoH_v2", &arguments, &[], |_| {}, 0, &back);
        recorder.end(context);
        let report = recorder.replayed(&format!("hashes-given-{is_hashed}"), "");
        assert_agrees(&report);
        assert_eq!(report.bytes_compared, 0);
        assert_eq!(report.bytes_not_compared, LENGTH as u64);
        let notes: Vec<_> = report.notes.keys().collect();
        let words = if is_hashed { "only a hash" } else { "left out" };
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(
            notes[0].contains(words) && notes[0].contains("zeros"),
            "{notes:?}"
        );
    }
}
