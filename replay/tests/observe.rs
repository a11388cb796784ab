//! Live memory that is read around calls of a replay.

mod recorder;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cutape_driver::digest;
use cutape_format::layout::field;
use cutape_format::{NewSnapshot, Trace};
use cutape_replay::{
    Error, Guard, MemoryKind, Moments, Observation, Observed, ObservedMemory, Options, Piece,
    Reach, observe_as_child, observe_guarded,
};

use recorder::{Behind, FLAGS, Recorder, TRACE, null_driver, pattern};

#[test]
#[ignore = "not a test: the other tests start it as the child process that replays"]
fn child() {
    let Some(path) = std::env::var_os(TRACE) else {
        return;
    };
    let trace = Trace::open(Path::new(&path)).unwrap();
    let job = serde_json::from_str(&std::env::var(FLAGS).unwrap()).unwrap();
    let options = Options::new(null_driver());
    std::process::exit(observe_as_child(&trace, &options, job));
}

/// What was observed, and the file of contents.
fn observed(recorder: &Recorder, name: &str, job: Observation) -> (Observed, Vec<u8>) {
    let result = try_observe(recorder, name, &job);
    let contents = std::fs::read(&job.contents).unwrap();
    std::fs::remove_file(&job.contents).unwrap();
    (result.unwrap(), contents)
}

fn try_observe(recorder: &Recorder, name: &str, job: &Observation) -> Result<Observed, Error> {
    let job = serde_json::to_string(job).unwrap();
    recorder.in_child(name, &job, &[], |trace, command| {
        observe_guarded(trace, command, &Guard::default(), &mut |_| {})
    })
}

fn job(name: &str, calls: &[(u64, Reach)]) -> Observation {
    let file = format!("cutape-observe-{}-{name}", std::process::id());
    let moments = |reach| Moments {
        reach,
        before: true,
        after: true,
        node: None,
    };
    Observation {
        calls: calls
            .iter()
            .map(|&(call, reach)| (call, moments(reach)))
            .collect(),
        contents: std::env::temp_dir().join(file),
        most_bytes: 1 << 30,
        longest: 1 << 30,
        ..Observation::default()
    }
}

/// The whole contents.
fn bytes_of(memory: &ObservedMemory, pieces: &[Piece], contents: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; memory.length as usize];
    for piece in pieces {
        let range = |from: u64| from as usize..(from + piece.length) as usize;
        bytes[range(piece.at)].copy_from_slice(&contents[range(piece.file)]);
    }
    bytes
}

const LENGTH: u64 = 10_000;

/// A program that digests memory; the digest goes to page-locked memory. The digested memory points
/// at a table, which points at more. Returns the index of the launch, and the addresses of
/// what is digested, the table, what only the table names, the result, and other memory.
fn digesting() -> (Recorder, u64, [u64; 5]) {
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    let image = digest::PTX.to_bytes_with_nul();
    let function = recorder.function(image, digest::NAME.to_bytes_with_nul());
    let [data, table, inner, other] = [(); 4].map(|()| recorder.allocate(LENGTH));
    let result = recorder.make("cuMemHostAlloc", &[0, LENGTH, 3]);
    let mut bytes = pattern(LENGTH as usize);
    bytes[4096..4104].copy_from_slice(&(table + 8).to_le_bytes());
    recorder.upload(data, &bytes);
    recorder.upload(table, &(inner + 5).to_le_bytes());
    recorder.upload(inner, b"inner");
    recorder.upload(other, b"other");
    let parameters = [data, LENGTH, result + 16, 7]
        .map(u64::to_le_bytes)
        .concat();
    let pointers: Vec<u64> = (0..4)
        .map(|at| parameters.as_ptr() as u64 + at * 8)
        .collect();
    let arguments = [
        function,
        1,
        1,
        1,
        256,
        1,
        1,
        0,
        0,
        pointers.as_ptr() as u64,
        0,
    ];
    let id = cutape_registry::function("cuLaunchKernel").unwrap().id;
    // SAFETY: the parameters are those of the kernel.
    assert_eq!(unsafe { recorder.driver.call(id, &arguments) }, Ok(0));
    let packed = [NewSnapshot::piece(9, field::KERNEL_PARAMETERS, &parameters)];
    let launch = recorder.write("cuLaunchKernel", &arguments, &packed, |_| {}, 0, &[]);
    for address in [data, table, inner, other] {
        recorder.call("cuMemFree_v2", &[address], &mut []);
    }
    recorder.call("cuMemFreeHost", &[result], &mut []);
    recorder.end(context);
    (recorder, launch, [data, table, inner, result, other])
}

#[test]
fn a_launch_is_observed_with_the_memory_that_it_can_reach() {
    let (recorder, launch, [data, table, inner, result, _]) = digesting();
    let (observed, contents) = observed(
        &recorder,
        "launch",
        job("launch", &[(launch, Reach::Launch)]),
    );
    assert_eq!(
        observed.report.divergence_count, 0,
        "{:#?}",
        observed.report.divergences
    );
    let [call] = &observed.calls[..] else {
        panic!("{observed:#?}");
    };
    assert_eq!(
        (call.call, &call.refused, &call.left_out),
        (launch, &None, &vec![])
    );
    let kernel = call.launch.as_ref().unwrap();
    assert_eq!(kernel.kernel, digest::NAME.to_str().unwrap());
    assert_eq!(
        (kernel.grid, kernel.block, kernel.shared),
        ([1, 1, 1], [256, 1, 1], 0)
    );
    assert_eq!(kernel.layout, [(0, 8), (8, 8), (16, 8), (24, 8)]);
    assert_eq!(kernel.parameters.len(), 32);
    assert_eq!(kernel.loaded, Some(2), "the call that loads the module");
    assert!(kernel.textures.is_empty() && kernel.attributes.is_empty());
    // What the table names is two steps away.
    let read: BTreeMap<u64, &ObservedMemory> = call
        .memory
        .iter()
        .map(|memory| (memory.recorded, memory))
        .collect();
    assert_eq!(read.keys().copied().collect::<Vec<_>>(), {
        let mut wanted = [data, table, result];
        wanted.sort_unstable();
        wanted
    });
    assert!(!read.contains_key(&inner));
    for (address, memory) in read {
        let (kind, name) = match address == result {
            true => (MemoryKind::Host, "cuMemHostAlloc"),
            false => (MemoryKind::Device, "cuMemAlloc_v2"),
        };
        assert_eq!(
            (memory.length, memory.kind, &*memory.name),
            (LENGTH, kind, name)
        );
        let before = bytes_of(memory, &memory.before, &contents);
        let after = bytes_of(memory, &memory.after, &contents);
        if address != result {
            assert_eq!(before, after);
            assert_eq!(
                memory.before, memory.after,
                "equal contents share their place"
            );
            continue;
        }
        assert_eq!(before, [0; LENGTH as usize]);
        assert_eq!(&after[24..32], &7u64.to_le_bytes());
        assert_ne!(&after[16..24], &[0; 8]);
    }
}

#[test]
fn all_live_memory_is_observed_before_and_after_any_call() {
    let (recorder, launch, memory) = digesting();
    // Before the first upload, and the first free.
    let calls = [launch - 4, launch + 1].map(|call| (call, Reach::All));
    let (observed, contents) = observed(&recorder, "all", job("all", &calls));
    let [upload, free] = &observed.calls[..] else {
        panic!("{observed:#?}");
    };
    let names = |call: &cutape_replay::ObservedCall| {
        call.memory
            .iter()
            .map(|memory| memory.recorded)
            .collect::<Vec<_>>()
    };
    let mut all = memory;
    all.sort_unstable();
    assert_eq!(names(upload), all);
    let data = |call: &cutape_replay::ObservedCall, is_after: bool| {
        let found = call
            .memory
            .iter()
            .find(|known| known.recorded == memory[0])
            .unwrap();
        let pieces = if is_after {
            &found.after
        } else {
            &found.before
        };
        bytes_of(found, pieces, &contents)
    };
    assert_eq!(data(upload, false), [0; LENGTH as usize]);
    assert_eq!(data(upload, true)[..100], pattern(100));
    assert_eq!(data(free, false), data(upload, true));
    assert_eq!(free.refused, None);
    let after: Vec<_> = free
        .memory
        .iter()
        .filter(|memory| memory.after.is_empty())
        .collect();
    // The one that ended; all others hold something.
    assert_eq!(after.len(), 1, "{after:#?}");
    assert_eq!(after[0].recorded, memory[0]);
}

#[test]
fn what_cannot_be_observed_has_a_reason() {
    let (recorder, launch, _) = digesting();
    let mut wanted = job(
        "refused",
        &[(launch - 1, Reach::Launch), (launch, Reach::Launch)],
    );
    wanted.most_bytes = 4096;
    let (observed, _) = observed(&recorder, "refused", wanted);
    let [copy, limited] = &observed.calls[..] else {
        panic!("{observed:#?}");
    };
    assert_eq!(
        copy.refused.as_deref(),
        Some("it is not a launch of a kernel")
    );
    let [.., left_out] = &limited.left_out[..] else {
        panic!("{limited:#?}");
    };
    let ending = "10000 bytes: the limit of 4096 bytes for contents is reached";
    assert!(left_out.ends_with(ending), "{left_out}");

    let mut nowhere = job("nowhere", &[(launch, Reach::Launch)]);
    nowhere.contents = PathBuf::from("/nowhere/contents");
    let error = try_observe(&recorder, "nowhere", &nowhere).unwrap_err();
    let error = error.to_string();
    assert!(
        error.starts_with("/nowhere/contents: contents of memory"),
        "{error}"
    );
}

#[test]
fn variables_are_observed_with_the_kernels_of_their_module() {
    const PTX: &[u8] = b".version 7.0\n.target sm_70\n.address_size 64\n\
        .visible .global .align 4 .u32 counter = 5;\n\
        .visible .const .align 4 .u32 scale = 3;\n\
        .visible .entry k(.param .u64 p) { ret; }\n\0";
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    let loaded = recorder.index;
    let function = recorder.function(PTX, b"k\0");
    let launch = |recorder: &mut Recorder| {
        let arguments = [function, 1, 1, 1, 1, 1, 1, 0, 0, 0x1000, 0];
        let packed = [NewSnapshot::piece(9, field::KERNEL_PARAMETERS, &[0; 8])];
        recorder.write("cuLaunchKernel", &arguments, &packed, |_| {}, 0, &[])
    };
    let first = launch(&mut recorder);
    let mut module = [0; 8];
    let behind = &mut [(0, Behind::Output(&mut module[..]))];
    recorder.call("cuFuncGetModule", &[0, function], behind);
    let (mut address, mut size) = ([0; 8], [0; 8]);
    let behind = &mut [
        (0, Behind::Output(&mut address[..])),
        (1, Behind::Output(&mut size[..])),
        (3, Behind::Input(b"counter\0")),
    ];
    recorder.call(
        "cuModuleGetGlobal_v2",
        &[0, 0, u64::from_le_bytes(module), 0],
        behind,
    );
    recorder.upload(u64::from_le_bytes(address), &99u32.to_le_bytes());
    let second = launch(&mut recorder);
    recorder.end(context);
    let mut wanted = job(
        "variables",
        &[(first, Reach::Launch), (second, Reach::Launch)],
    );
    let names = ["counter", "scale", "unheard"].map(str::to_owned);
    wanted.variables.insert(loaded, names.to_vec());
    let (observed, contents) = observed(&recorder, "variables", wanted);
    let [one, two] = &observed.calls[..] else {
        panic!("{observed:#?}");
    };
    for (call, values) in [
        (one, [(5, true), (3, true)]),
        (two, [(99, false), (3, true)]),
    ] {
        assert_eq!(call.refused, None);
        assert!(call.left_out.is_empty(), "{:?}", call.left_out);
        assert_eq!(call.memory.len(), 2);
        for (memory, (value, as_loaded)) in call.memory.iter().zip(values) {
            let bytes = bytes_of(memory, &memory.before, &contents);
            assert_eq!(bytes, u32::to_le_bytes(value), "{memory:?}");
            assert_eq!((memory.as_loaded, memory.made), (as_loaded, loaded));
        }
    }
}
