//! Payloads that a loader has copied from a file of tensors to page-locked memory are referred to.

use std::fs;
use std::path::{Path, PathBuf};

use cutape_format::{Bytes, Trace};
use cutape_tests::{bare, record, replay, run};

use crate::size::program;

cutape_tests::tests![
    tensors_are_referred_to,
    other_bytes_are_kept,
    each_file_of_a_model_is_found,
    damaged_headers_have_no_tensors,
];

/// (begin, length) in the data of a file. Two tensors have the same length, one is too short to be
/// referred to, and before the last one is a gap.
const TENSORS: [(usize, usize); 6] = [
    (0, 512 << 10),
    (512 << 10, 4 << 10),
    (516 << 10, 128 << 10),
    (644 << 10, 512 << 10),
    (1156 << 10, 1 << 20),
    ((2180 << 10) + 64, 192 << 10),
];

/// Bytes of the data of a file with these.
const DATA: usize = 3 << 20;

/// Where in the data an upload is found; `None` if its bytes are in the trace.
type Found = Option<usize>;

/// A file with that header and data for all tensors, and the start of the data.
fn tensor_file(folder: &Path, header: &str, said_length: Option<u64>) -> (PathBuf, usize) {
    let path = folder.join("model.safetensors");
    let length = said_length.unwrap_or(header.len() as u64);
    let words = (0..DATA as u64 / 8).map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let data = words.flat_map(u64::to_le_bytes);
    let content = length.to_le_bytes().into_iter().chain(header.bytes());
    fs::write(&path, content.chain(data).collect::<Vec<u8>>()).unwrap();
    (path, 8 + header.len())
}

/// The header of these tensors, in this order.
fn header(tensors: &[(usize, usize)]) -> String {
    let tensor = |&(begin, length): &(usize, usize)| {
        let (shape, end) = (length / 4, begin + length);
        format!(
            r#""t{begin}": {{"dtype":"F32","shape":[{shape}],"data_offsets": [{begin}, {end}]}}"#
        )
    };
    let tensors: Vec<_> = tensors.iter().map(tensor).collect();
    format!(r#"{{"__metadata__":{{}},{}}}  "#, tensors.join(","))
}

/// Begin and length in the data of a file, and whether the program changes the bytes.
type Part = (usize, usize, bool);

/// Records `staged` with one file.
fn uploads(trace: &Path, file: &Path, read: &str, parts: &[Part]) -> Vec<Found> {
    uploads_of_files(trace, read, &[(file, DATA, parts)])
}

/// Records `staged` with files with that many bytes of data. Says where its uploads were found.
fn uploads_of_files(trace: &Path, read: &str, files: &[(&Path, usize, &[Part])]) -> Vec<Found> {
    let start = |file: &Path, data: usize| fs::metadata(file).unwrap().len() as usize - data;
    let mut words = vec![program(trace.parent().unwrap(), "staged"), read.to_owned()];
    let mut places = Vec::new();
    for &(file, data, parts) in files {
        words.push(file.to_str().unwrap().to_owned());
        let start = start(file, data);
        for (begin, length, is_changed) in parts {
            let change = if *is_changed { "!" } else { "" };
            words.push(format!("{}:{length}{change}", start + begin));
            places.push((file, start));
        }
    }
    let command: Vec<&str> = words.iter().map(String::as_str).collect();
    let output = run(&mut record(trace, &[], &command));
    output.assert(0);
    output.assert_quiet();
    assert_eq!(output.stdout, bare(&command).stdout);
    let trace = Trace::open(trace).unwrap();
    let calls = trace.calls();
    let calls = calls.filter(|call| call.signature.base == "cuMemcpyHtoD");
    let found: Vec<Found> = calls
        .zip(&places)
        .map(|(call, &(file, start))| {
            let snapshot = call.snapshots().next().unwrap();
            let Bytes::InFile(range) = snapshot.bytes else {
                return None;
            };
            assert_eq!(range.path, file.as_os_str().as_encoded_bytes());
            Some(range.offset as usize - start)
        })
        .collect();
    assert_eq!(found.len(), places.len());
    found
}

fn tensors_are_referred_to(folder: &Path) {
    let [first, short, second, third, fourth, last] = TENSORS;
    let (file, _) = tensor_file(
        folder,
        &header(&[third, first, last, short, fourth, second]),
        None,
    );
    let content = fs::read(&file).unwrap();
    // In the file's order, in another one, and in pieces of tensors of which one is left out.
    let in_order = TENSORS.to_vec();
    let mixed = vec![fourth, third, first, last, second];
    let pieces = vec![
        (0, 256 << 10),
        (256 << 10, 256 << 10),
        second,
        (fourth.0, 256 << 10),
    ];
    for (order, in_trace) in [(in_order, Some(short)), (mixed, None), (pieces, None)] {
        for read in ["mapped", "open"] {
            let path = folder.join("t.cutape");
            let uploaded: Vec<_> = order
                .iter()
                .map(|&(at, length)| (at, length, false))
                .collect();
            let place = |&tensor: &(usize, usize)| (Some(tensor) != in_trace).then_some(tensor.0);
            let expected: Vec<Found> = order.iter().map(place).collect();
            assert_eq!(uploads(&path, &file, read, &uploaded), expected, "{read}");
            let length = fs::metadata(&path).unwrap().len();
            assert!(length < 512 << 10, "{length}");
            run(&mut replay(&path)).assert(0);
            let mut changed = content.clone();
            changed[content.len() - DATA + (520 << 10)] ^= 1;
            fs::write(&file, &changed).unwrap();
            let output = run(&mut replay(&path));
            output.assert_code(2);
            let why = "has changed since the recording";
            assert!(output.stderr.contains(why), "{}", output.describe());
            fs::write(&file, &content).unwrap();
            run(&mut replay(&path)).assert(0);
            fs::remove_file(&path).unwrap();
        }
    }
}

fn other_bytes_are_kept(folder: &Path) {
    let (file, _) = tensor_file(folder, &header(&TENSORS), None);
    let path = folder.join("t.cutape");
    let [first, _, second, third, fourth, _] = TENSORS;
    let part = |(begin, length), is_changed| (begin, length, is_changed);
    let order = [
        part(first, false),
        part(third, true),
        part(fourth, false),
        // No tensor, and not where the last one ended.
        part((16 << 10, 128 << 10), false),
        part(second, true),
    ];
    let expected = [Some(first.0), None, Some(fourth.0), None, None];
    for read in ["mapped", "open"] {
        assert_eq!(uploads(&path, &file, read, &order), expected, "{read}");
        // It compares the bytes that the last upload has put there.
        run(&mut replay(&path)).assert(0);
        fs::remove_file(&path).unwrap();
    }
    // What the file does not have needs no file.
    uploads(
        &path,
        &file,
        "open",
        &[part(third, true), part(first, true)],
    );
    fs::remove_file(&file).unwrap();
    run(&mut replay(&path)).assert(0);
}

/// A file is mapped when the one before is no longer, at the same address and with the same length.
fn each_file_of_a_model_is_found(folder: &Path) {
    const TENSOR: usize = 1 << 20;
    const COUNT: usize = 18;
    let tensors: Vec<_> = (0..COUNT).map(|at| (at * TENSOR, TENSOR)).collect();
    let header = header(&tensors);
    let files = [1, 2, 3].map(|file: u64| {
        let path = folder.join(format!("{file}.safetensors"));
        let word = |at: u64| (at ^ file << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let data = (0..(COUNT * TENSOR / 8) as u64).flat_map(|at| word(at).to_le_bytes());
        let content = (header.len() as u64).to_le_bytes().into_iter();
        let content = content.chain(header.bytes()).chain(data);
        fs::write(&path, content.collect::<Vec<u8>>()).unwrap();
        path
    });
    let parts: Vec<Part> = (tensors.iter().map(|&(at, length)| (at, length, false))).collect();
    let files = files
        .each_ref()
        .map(|file| (&**file, COUNT * TENSOR, &*parts));
    let expected: Vec<_> = (tensors.iter().map(|tensor| Some(tensor.0))).collect();
    for read in ["mapped", "open"] {
        let path = folder.join("t.cutape");
        let found = uploads_of_files(&path, read, &files);
        assert_eq!(found, expected.repeat(3), "{read}");
        run(&mut replay(&path)).assert(0);
        fs::remove_file(&path).unwrap();
    }
}

fn damaged_headers_have_no_tensors(folder: &Path) {
    let [_, _, second, third, fourth, _] = TENSORS;
    let good = header(&TENSORS);
    let (begin, end) = (third.0, third.0 + third.1);
    let pair = format!("[{begin}, {end}]");
    let with = |pair_now: &str| good.replace(&pair, pair_now);
    assert_ne!(with(""), good);
    for (header, said_length, is_known) in [
        // Of one tensor, which is then unknown: the others stay known.
        (with(&format!("[-{begin}, {end}]")), None, true),
        (with(&format!("[{end}, {begin}]")), None, true),
        (with(&format!("[{begin}, {}]", 4 << 20)), None, true),
        (with(&format!("[{begin}, {}]", u64::MAX)), None, true),
        (
            with(&format!("[{begin}, {end}99999999999999999999]")),
            None,
            true,
        ),
        (with("{}"), None, true),
        // Of the whole header.
        (good.replace("data_offsets", "offsets"), None, false),
        (format!("[{good}]"), None, false),
        ("not JSON".to_owned(), None, false),
        ("{not JSON".to_owned(), None, false),
        (String::new(), None, false),
        (good.clone(), Some(2), false),
        (good.clone(), Some(4 << 20), false),
        (good.clone(), Some(1 << 40), false),
        (good.clone(), Some(u64::MAX), false),
        (good.clone(), Some(1 << 63), false),
    ] {
        let (file, _) = tensor_file(folder, &header, said_length);
        let path = folder.join("t.cutape");
        // The one with the damage does not follow the one before.
        let order = [fourth, third, second].map(|(begin, length)| (begin, length, false));
        let known = |tensor: (usize, usize)| is_known.then_some(tensor.0);
        let expected = [known(fourth), None, known(second)];
        let found = uploads(&path, &file, "mapped", &order);
        assert_eq!(found, expected, "{said_length:?} {header}");
        run(&mut replay(&path)).assert(0);
        fs::remove_file(&path).unwrap();
    }
}
