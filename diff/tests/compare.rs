//! Comparisons of small traces. A line is a call: thread, what it does, objects, numbers. Handles
//! and addresses of B differ from those of A.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use cutape_diff::{Kind, Options, Report, compare};
use cutape_format::layout::field;
use cutape_format::{NewCall, NewSnapshot, Trace, TraceBuilder};

/// A trace of these calls, whose handles begin at `base`.
fn trace(base: u64, calls: &str) -> Trace {
    trace_of_driver(base, calls, "real")
}

fn trace_of_driver(base: u64, calls: &str, driver: &str) -> Trace {
    let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
    builder.meta("driver.version", "13000");
    builder.meta("driver.kind", driver);
    let mut handles: HashMap<String, u64> = HashMap::new();
    for line in calls
        .split(';')
        .map(str::trim)
        .filter(|line| !line.is_empty())
    {
        let words: Vec<&str> = line.split(' ').collect();
        let (thread, verb) = (words[0].parse().unwrap(), words[1]);
        let next = base + 0x1000 * (handles.len() as u64 + 1);
        // A name is an object, with an offset behind `+`; the rest are numbers.
        let mut value = |at: usize| match words.get(at).map_or("0", |word| word) {
            word if word.starts_with(char::is_alphabetic) => {
                let (name, offset) = word.split_once('+').unwrap_or((word, "0"));
                let handle = *handles.entry(name.to_owned()).or_insert(next);
                handle + offset.parse::<u64>().unwrap()
            }
            word => word.parse().unwrap(),
        };
        write(
            &mut builder,
            base,
            (thread, verb),
            [value(2), value(3), value(4)],
        );
    }
    // Tests run at the same time.
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let file = format!("cutape-compare-{}-{count}.cutape", std::process::id());
    let path = std::env::temp_dir().join(file);
    builder.write(&path).unwrap();
    let trace = Trace::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    trace
}

/// Writes the call of a verb, with its values.
fn write(builder: &mut TraceBuilder, base: u64, (thread, verb): (u32, &str), [a, b, c]: [u64; 3]) {
    let made = &a.to_le_bytes();
    let made = || vec![NewSnapshot::pointee(0, made)];
    let bytes = c.to_le_bytes();
    let parameters = [b, 5, c].map(u64::to_le_bytes).concat();
    let image = b".version 8.0\n.target sm_90\n.address_size 64\n.entry k() { ret; }\0";
    let none = Vec::new;
    // Host addresses are anywhere: B's stack is elsewhere too.
    let (function, arguments, before, after) = match verb {
        "alloc" => ("cuMemAlloc_v2", vec![base + 1, b], none(), made()),
        "free" => ("cuMemFree_v2", vec![a], none(), none()),
        "stream" => ("cuStreamCreate", vec![base + 1, 0], none(), made()),
        "event" => ("cuEventCreate", vec![base + 1, 0], none(), made()),
        "destroy" => ("cuEventDestroy_v2", vec![a], none(), none()),
        "record" => ("cuEventRecord", vec![a, b], none(), none()),
        "query" => ("cuEventQuery", vec![a], none(), none()),
        "wait" => ("cuStreamSynchronize", vec![a], none(), none()),
        "set" => ("cuMemsetD8_v2", vec![a, b, c], none(), none()),
        "to" => {
            let before = vec![NewSnapshot::pointee(1, &bytes)];
            ("cuMemcpyHtoD_v2", vec![a, base + 2, b], before, none())
        }
        "load" => {
            let before = vec![NewSnapshot::pointee(1, image)];
            ("cuModuleLoadData", vec![base + 1, base + 3], before, made())
        }
        "find" => {
            let before = vec![NewSnapshot::pointee(2, b"k\0")];
            let arguments = vec![base + 1, b, base + 4];
            ("cuModuleGetFunction", arguments, before, made())
        }
        // A number, and a struct of a number and what is behind it.
        "launch" => {
            let arguments = vec![a, 1, 1, 1, 1, 1, 1, 0, 0, base + 5, 0];
            let before = vec![NewSnapshot::piece(9, field::KERNEL_PARAMETERS, &parameters)];
            ("cuLaunchKernel", arguments, before, none())
        }
        "from" => {
            let after = vec![NewSnapshot::piece(0, field::HOST_BYTES, &bytes)];
            ("cuMemcpyDtoH_v2", vec![base + 2, a, b], none(), after)
        }
        "unload" => ("cuModuleUnload", vec![a], none(), none()),
        "device" => {
            let name = if a == 1 { b"one\0" } else { b"two\0" };
            let after = vec![NewSnapshot::pointee(0, name)];
            ("cuDeviceGetName", vec![base + 1, 8, 0], none(), after)
        }
        other => panic!("{other}"),
    };
    builder.call(NewCall {
        thread,
        name: function,
        arguments: &arguments,
        snapshots: &before,
        ..NewCall::default()
    });
    if verb == "launch" {
        builder.layout_note(thread, a, &[(0, 8), (8, 16)]);
    }
    let result = match verb {
        "query" => c as i32,
        "wait" => b as i32,
        _ => 0,
    };
    builder.leave(thread, result, &after);
}

fn report(a: &str, b: &str, options: &Options<'_>) -> Report {
    let a = trace(0x7f00_0000_0000, a);
    let b = trace(0x7e12_3450_0000, b);
    compare(&a, &b, options).unwrap().report
}

const OPTIONS: Options<'static> = Options {
    noise: &[],
    ignored: Vec::new(),
    all: false,
    most: 20,
    strict: false,
    times: false,
    read: None,
};

/// A, B, kinds of differences, and a part of a title.
const DIFFERENCES: &[(&str, &str, &[Kind], &str)] = &[
    (
        "0 alloc m 64; 0 set m 1 9; 0 free m",
        "0 alloc m 64; 0 set m 1 9; 0 free m",
        &[],
        "",
    ),
    // Numbers, offsets, sizes.
    (
        "0 alloc m 64; 0 set m 1 9",
        "0 alloc m 64; 0 set m 1 8",
        &[Kind::Argument],
        "N 9 → 8",
    ),
    (
        "0 alloc m 64; 0 set m+8 1 9",
        "0 alloc m 64; 0 set m+16 1 9",
        &[Kind::Argument],
        "dstDevice memory#1 + 8 → memory#1 + 16",
    ),
    // The other of two objects.
    (
        "0 alloc m 64; 0 alloc n 64; 0 set m 1 9; 0 set n 2 9; 0 set m 3 9",
        "0 alloc m 64; 0 alloc n 64; 0 set m 1 9; 0 set n 2 9; 0 set n 3 9",
        &[Kind::Object],
        "dstDevice memory#1 → memory#2, not memory#1",
    ),
    // One more object of the same sort, made first: the others still correspond.
    (
        "0 alloc m 64; 0 set m 1 9; 0 free m",
        "0 alloc x 64; 0 alloc m 64; 0 set m 1 9; 0 free m",
        &[Kind::Leak],
        "cuMemAlloc_v2: in B only, which leaks memory#1",
    ),
    (
        "0 alloc m 64; 0 to m 8 5",
        "0 alloc m 64; 0 to m 8 6",
        &[Kind::Data],
        "srcHost from byte 0 of 8: 05",
    ),
    // Addresses among copied bytes.
    (
        "0 alloc m 64; 0 alloc n 64; 0 to m 8 n+16",
        "0 alloc m 64; 0 alloc n 64; 0 to m 8 n+16",
        &[],
        "",
    ),
    (
        "0 alloc m 64; 0 alloc n 64; 0 to m 8 n+16",
        "0 alloc m 64; 0 alloc n 64; 0 to m 8 n+24",
        &[Kind::Data],
        "srcHost at byte 0 memory#2 + 16 → memory#2 + 24",
    ),
    (
        "0 alloc m 64; 0 alloc n 64; 0 to m 8 n+16",
        "0 alloc m 64; 0 alloc n 64; 0 to m 8 m+16",
        &[Kind::Object],
        "srcHost at byte 0 memory#2 + 16 → memory#1 + 16",
    ),
    (
        "0 stream s; 0 wait s 0; 0 wait s 0",
        "0 stream s; 0 wait s 0; 0 wait s 700",
        &[Kind::Result],
        "returned CUDA_SUCCESS → CUDA_ERROR_ILLEGAL_ADDRESS",
    ),
    // An object that is not there any more is another argument.
    (
        "0 alloc m 64; 0 set m 1 9; 0 free m; 0 alloc n 64",
        "0 alloc m 64; 0 free m; 0 set m 1 9; 0 alloc n 64",
        &[Kind::Call],
        "cuMemsetD8_v2: in A only",
    ),
    (
        "0 stream s; 0 wait s 0",
        "0 stream s; 0 alloc m 64; 0 set m 1 1; 0 alloc n 64; 0 set n 2 2; 0 wait s 0",
        &[Kind::Call, Kind::Leak],
        "cuMemAlloc_v2: in B only, and the 3 calls after it, which leak 2 objects",
    ),
    (
        "0 load m; 0 unload m",
        "0 load m",
        &[Kind::Leak],
        "B leaks module#1",
    ),
    (
        "0 device 1",
        "0 device 2",
        &[Kind::Machine],
        "name one → two",
    ),
    // How often a program polls is up to time.
    (
        "0 event e; 0 query e 0 600; 0 query e 0 600; 0 query e 0 0; 0 destroy e",
        "0 event e; 0 query e 0 0; 0 destroy e",
        &[],
        "",
    ),
    (
        "0 event e; 0 query e 0 700",
        "0 event e; 0 query e 0 0",
        &[Kind::Call],
        "cuEventQuery",
    ),
    // Threads that do the same in another order, and one that is missing.
    (
        "0 alloc m 64; 1 alloc a 8; 1 set a 1 1; 2 alloc b 8; 2 set b 2 2",
        "0 alloc m 64; 1 alloc b 8; 1 set b 2 2; 2 alloc a 8; 2 set a 1 1",
        &[],
        "",
    ),
    (
        "0 alloc m 64; 1 alloc a 8; 1 free a",
        "0 alloc m 64",
        &[Kind::Thread],
        "thread @1 of A has no counterpart in B",
    ),
    // A pool of threads: who does a piece of work does not matter.
    (
        "0 alloc m 64; 1 set m 1 1; 1 set m 2 2; 1 set m 3 3; 2 set m 7 7; 2 set m 8 8; 2 set m 9 9",
        "0 alloc m 64; 1 set m 1 1; 1 set m 2 2; 2 set m 3 3; 2 set m 7 7; 2 set m 8 8; 2 set m 9 9",
        &[],
        "",
    ),
    // Also where each thread does other pieces of the work instead.
    (
        "0 alloc m 64; 1 set m 1 1; 1 set m 2 2; 1 set m 3 3; 2 set m 7 7; 2 set m 8 8",
        "0 alloc m 64; 1 set m 1 1; 1 set m 7 7; 1 set m 3 3; 2 set m 2 2; 2 set m 8 8",
        &[],
        "",
    ),
    // The order at a shared event does; two waits have none.
    (
        "0 event e; 0 stream s; 1 record e s; 2 set 1 2 3; 2 record e s; 1 set 4 5 6",
        "0 event e; 0 stream s; 2 set 1 2 3; 2 record e s; 1 record e s; 1 set 4 5 6",
        &[Kind::Order],
        "threads reordered at",
    ),
    (
        "0 stream s; 1 wait s 0; 1 set 1 2 3; 2 wait s 0; 2 set 4 5 6",
        "0 stream s; 2 wait s 0; 2 set 4 5 6; 1 wait s 0; 1 set 1 2 3",
        &[],
        "",
    ),
];

#[test]
fn differences() {
    for &(a, b, kinds, title) in DIFFERENCES {
        let report = report(a, b, &OPTIONS);
        let found: Vec<Kind> = report.counts.keys().copied().collect();
        let titles: Vec<&str> = report.differences.iter().map(|one| &*one.title).collect();
        assert_eq!(found, kinds, "{a} | {b}: {titles:?}");
        assert_eq!(report.differs(), !kinds.is_empty(), "{a} | {b}");
        let first = report.first.map_or("", |first| titles[first]);
        assert!(first.contains(title), "{a} | {b}: {titles:?}");
    }
}

#[test]
fn bytes_that_may_be_unset() {
    let start = "0 load m; 0 find f m; 0 alloc d 64; 0 launch f 7";
    let of = |words: &str| format!("{start} {words}");
    let strict = Options {
        strict: true,
        ..OPTIONS
    };
    // What follows the first number of a launch, in A and B; the differences; the launches whose
    // bytes may be unset.
    for (a, b, total, unset) in [
        ("1; 0 from d 8 9", "2; 0 from d 8 9", 0, 1),
        // Nothing was copied back, or something else.
        ("1", "2", 1, 0),
        ("1; 0 from d 8 9", "2; 0 from d 8 8", 2, 0),
        // What one launch has shown holds for the others.
        (
            "1; 0 from d 8 9; 0 launch f 7 3",
            "2; 0 from d 8 9; 0 launch f 7 4",
            0,
            2,
        ),
        (
            "1; 0 from d 8 9; 0 launch f 7 3",
            "2; 0 from d 8 9; 0 launch f 7 259",
            1,
            1,
        ),
        // A number is never unset, and what comes behind a difference shows nothing.
        (
            "1; 0 launch f 8 1; 0 from d 8 9",
            "1; 0 launch f 9 1; 0 from d 8 9",
            1,
            0,
        ),
        (
            "1; 0 set d 1 1; 0 from d 8 9",
            "2; 0 set d 1 2; 0 from d 8 9",
            2,
            0,
        ),
        (
            "1; 0 from d 8 9; 0 launch f 8 1",
            "2; 0 from d 8 9; 0 launch f 9 2",
            1,
            1,
        ),
    ] {
        let (a, b) = (of(a), of(b));
        let found = report(&a, &b, &OPTIONS);
        let launches: u64 = found.unset.iter().map(|one| one.launches).sum();
        assert_eq!(
            (found.total, launches),
            (total, unset),
            "{a} | {b}: {:?}",
            found.differences
        );
        assert_eq!(found.differs(), total > 0);
        let counted = report(&a, &b, &strict);
        assert_eq!(
            (counted.total, counted.unset.len()),
            (total + unset, 0),
            "{a} | {b}"
        );
    }
    let (a, b) = (of("1; 0 from d 8 9"), of("2; 0 from d 8 9"));
    let found = report(&a, &b, &OPTIONS);
    assert_eq!(
        (found.unset[0].bytes.len(), found.unset[0].bytes[0].clone()),
        (1, 16..17)
    );
    assert_eq!(found.unset[0].kernel, "k");
    // Where no kernel runs, equal bytes say nothing.
    let a = trace_of_driver(0x7f00_0000_0000, &a, "null");
    let b = trace_of_driver(0x7e12_3450_0000, &b, "null");
    let found = compare(&a, &b, &OPTIONS).unwrap().report;
    assert_eq!((found.total, found.unset.len()), (1, 0));
}

#[test]
fn objects_that_end_in_another_order() {
    let start = "0 alloc m 64; 0 alloc n 32; 0 event e; 0 set m 1 1; 0 set n 2 2";
    for (a, b, ends) in [
        ("0 free m; 0 free n", "0 free n; 0 free m", 4),
        (
            "0 free m; 0 free n; 0 destroy e",
            "0 destroy e; 0 free m; 0 free n",
            4,
        ),
        (
            "0 free m; 0 destroy e; 0 free n",
            "0 free n; 0 destroy e; 0 free m",
            4,
        ),
        // Something else is between.
        (
            "0 free m; 0 set n 3 3; 0 free n",
            "0 set n 3 3; 0 free n; 0 free m",
            0,
        ),
        (
            "0 free m; 0 set 1 3 3; 0 free n",
            "0 free n; 0 set 1 3 3; 0 free m",
            0,
        ),
    ] {
        let found = report(&format!("{start}; {a}"), &format!("{start}; {b}"), &OPTIONS);
        let titles: Vec<&str> = found.differences.iter().map(|one| &*one.title).collect();
        assert_eq!(
            (found.differs(), found.reordered_ends),
            (ends == 0, ends),
            "{a} | {b}: {titles:?}"
        );
    }
    // An object that one trace does not end is none of them.
    let [a, b] = ["0 free m; 0 free n", "0 free n"].map(|ends| format!("{start}; {ends}"));
    let found = report(&a, &b, &OPTIONS);
    assert!(found.differs());
    assert_eq!(found.reordered_ends, 0);
}

#[test]
fn lists() {
    let lines =
        |value: u64| -> String { (0..50).map(|at| format!("0 set m {at} {value};")).collect() };
    let a = format!("0 alloc m 64; {}", lines(1));
    let b = format!("0 alloc m 64; {}", lines(2));
    let all = Options {
        all: true,
        most: 30,
        ..OPTIONS
    };
    let found = report(&a, &b, &all);
    assert_eq!(
        (found.total, found.differences.len(), found.omitted),
        (50, 30, 20)
    );
    let ignored = Options {
        ignored: vec![Kind::Argument],
        ..OPTIONS
    };
    let found = report(&a, &b, &ignored);
    assert_eq!((found.total, found.differs()), (0, false));
    // A leak that does not count is still a call in one trace only.
    let ignored = Options {
        ignored: vec![Kind::Leak],
        ..OPTIONS
    };
    let found = report("0 stream s", "0 stream s; 0 alloc m 64", &ignored);
    assert_eq!(found.differences[0].kinds, [Kind::Call]);
    // Differences that read the same are one.
    let c: String = (0..50).map(|_| "0 set m 1 1;").collect();
    let d: String = (0..50).map(|_| "0 set m 1 2;").collect();
    let (c, d) = (format!("0 alloc m 64; {c}"), format!("0 alloc m 64; {d}"));
    let found = report(&c, &d, &OPTIONS);
    assert_eq!(
        (found.total, found.differences.len(), found.omitted),
        (50, 1, 0)
    );
    assert_eq!(found.differences[0].count, 50);
    // Calls in a row too.
    let found = report(&c, "0 alloc m 64", &OPTIONS);
    assert_eq!((found.total, found.differences.len()), (50, 1));
    assert!(
        found.differences[0]
            .title
            .ends_with("and the 49 calls after it")
    );
}
