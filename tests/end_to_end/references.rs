//! Images in mapped libraries, which are recorded by reference and packed later; and traces of
//! processes with a rank.

use std::fs;
use std::path::{Path, PathBuf};

use cutape_format::layout::{FILE_PACKED, field};
use cutape_format::{Bytes, Trace};
use cutape_tests::{compile, ending, parts, record, replay, run};

cutape_tests::tests![
    images_of_libraries_are_packed,
    a_library_that_is_removed_before_the_first_call_is_copied,
    ranks_have_traces_of_their_own,
];

/// A PTX text that is too long to be part of a record.
fn long_ptx() -> String {
    let padding = r"// nothing\n".repeat(2000);
    let head = r".version 7.0\n.target sm_70\n.address_size 64\n";
    format!(r#""{head}{padding}.visible .entry k()\n{{\n ret;\n}}\n""#)
}

/// A library with a PTX text, and a fat binary of it with its wrapper, in constant data.
fn library_source() -> String {
    format!(
        r#"
#include <stdint.h>
#define TEXT {text}
static const char text[] = TEXT;
enum {{ PADDED = (sizeof text + 7) / 8 * 8 }};
static const struct {{
    uint32_t magic; uint16_t version, header; uint64_t rest;
    uint16_t kind, entry_version; uint32_t entry; uint64_t padded; uint32_t compressed, options;
    uint16_t minor, major; uint32_t arch; uint64_t name; uint64_t flags; uint64_t unused[2]; uint8_t tail[16];
    char text[PADDED];
}} __attribute__((aligned(8))) container = {{
    .magic = 0xBA55ED50, .version = 1, .header = 16, .rest = 80 + PADDED,
    .kind = 1, .entry_version = 0x0101, .entry = 80, .padded = PADDED, .options = 64,
    .major = 7, .arch = 70, .flags = 0x11, .tail = {{0x48}}, .text = TEXT,
}};
static const struct {{ uint32_t magic, version; const void *data; void *list; }}
    wrapper = {{0x466243b1, 1, &container, 0}};
const void *library_text(void) {{ return text; }}
const void *library_wrapper(void) {{ return &wrapper; }}
"#,
        text = long_ptx()
    )
}

const PROGRAM: &str = r#"
#include "program.h"

extern const void *library_text(void);
extern const void *library_wrapper(void);

static void use(const void *image)
{
    CUmodule module = NULL;
    CUfunction function = NULL;
    CHECK(cuModuleLoadData(&module, image));
    CHECK(cuModuleGetFunction(&function, module, "k"));
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuModuleUnload(module));
}

int main(void)
{
    begin();
    use(library_text());
    use(library_wrapper());
    end();
    return 0;
}
"#;

/// Makes the library, with or without a build id.
fn make_library(folder: &Path, build_id: &str, more: &str) -> PathBuf {
    let (source, library) = (folder.join("images.c"), folder.join("libimages.so"));
    fs::write(&source, library_source() + more).unwrap();
    let build_id = format!("-Wl,--build-id={build_id}");
    compile(&source, &library, &[&"-shared", &"-fPIC", &build_id]);
    library
}

/// Makes the program that uses the library; `text` is its source.
fn make_program(folder: &Path, library: &Path, text: &str) -> String {
    let (source, program) = (folder.join("user.c"), folder.join("user"));
    fs::write(&source, text).unwrap();
    let driver = parts().driver_folder.join("libcuda.so.1");
    compile(&source, &program, &[&library, &driver]);
    program.to_str().unwrap().to_owned()
}

/// The images that the trace records by reference to the library: offset and length.
fn references(trace: &Trace, library: &Path) -> Vec<(u64, u64)> {
    let ranges = trace.calls().flat_map(|call| {
        let snapshots = call.snapshots().filter(|snapshot| {
            matches!(snapshot.field, field::POINTEE | field::FATBIN)
                && call.signature.base == "cuModuleLoadData"
        });
        snapshots
            .filter_map(|snapshot| match snapshot.bytes {
                Bytes::InFile(range) => {
                    assert_eq!(range.file(), library);
                    let file = fs::read(library).unwrap_or_default();
                    let bytes = trace.resolve(snapshot.bytes).unwrap();
                    if !file.is_empty() {
                        let place = range.offset as usize..(range.offset + range.length) as usize;
                        assert_eq!(&file[place], &*bytes);
                    }
                    Some((range.offset, range.length))
                }
                _ => None,
            })
            .collect::<Vec<_>>()
    });
    ranges.collect()
}

fn images_of_libraries_are_packed(folder: &Path) {
    for build_id in ["sha1", "none"] {
        let folder = &folder.join(build_id);
        fs::create_dir(folder).unwrap();
        let library = make_library(folder, build_id, "");
        let program = make_program(folder, &library, PROGRAM);
        let (raw, packed) = (folder.join("raw.cutape"), folder.join("packed.cutape"));
        run(&mut record(&raw, &["--no-pack"], &[&program])).assert(0);
        run(&mut record(&packed, &[], &[&program])).assert(0);

        let trace = Trace::open(&raw).unwrap();
        assert_eq!(trace.head().flags & FILE_PACKED, 0);
        let named = references(&trace, &library);
        assert_eq!(named.len(), 2, "the text and the container");
        assert!(named.iter().all(|&(_, length)| length > 20_000));
        assert_eq!(trace.blobs().count(), 0, "nothing was copied");
        let trace = Trace::open(&packed).unwrap();
        assert_eq!(references(&trace, &library), named);
        // While the library exists, both replay; the raw trace is completed from it.
        run(&mut replay(&raw)).assert(0);
        run(&mut replay(&packed)).assert(0);
        run(&mut parts().cutape(&[&"check", &raw])).assert(0);

        fs::remove_file(&library).unwrap();
        let trace = Trace::open(&packed).unwrap();
        assert_eq!(references(&trace, &library), named);
        let output = run(&mut replay(&packed));
        output.assert(0);
        assert!(
            !output.stdout.contains("its image"),
            "{}",
            output.describe()
        );
        let output = run(&mut parts().cutape(&[&"check", &packed]));
        output.assert(0);
        output.assert_quiet();
        // Without the library, messages about the raw trace name what is missing.
        for verb in ["check", "pack"] {
            let copy = folder.join("copy.cutape");
            fs::copy(&raw, &copy).unwrap();
            let output = run(&mut parts().cutape(&[&verb, &copy]));
            output.assert_code(0);
            let lines = output.stderr.lines();
            let missing = lines.filter(|line| line.contains("libimages.so: No such file"));
            assert_eq!(missing.count(), 2, "{}", output.describe());
        }
        // Its kernels cannot be launched: `replay` refuses, or with `--force` reports it.
        let output = run(&mut replay(&raw));
        output.assert_code(2);
        let refused = output.stderr.matches("libimages.so: No such file");
        assert_eq!(refused.count(), 2, "{}", output.describe());
        let output = run(replay(&raw).arg("--force"));
        assert!(
            output.stdout.contains("x cuModuleLoadData (first"),
            "{}",
            output.describe()
        );

        // Another library of that name is not used.
        make_library(folder, build_id, "int more(void) { return 1; }\n");
        let output = run(&mut parts().cutape(&[&"pack", &raw]));
        output.assert_code(0);
        let lines = output.stderr.lines();
        let missing = lines.filter(|line| line.contains("libimages.so: has changed"));
        assert_eq!(missing.count(), 2, "{}", output.describe());
    }
}

fn a_library_that_is_removed_before_the_first_call_is_copied(folder: &Path) {
    let library = make_library(folder, "sha1", "");
    // The program removes it before its first call, as a package manager would.
    let remove = format!("    unlink({library:?});\n    begin();");
    let program = make_program(folder, &library, &PROGRAM.replace("    begin();", &remove));
    let path = folder.join("t.cutape");
    run(&mut record(&path, &[], &[&program])).assert(0);
    assert!(!library.exists());
    let trace = Trace::open(&path).unwrap();
    assert_eq!(references(&trace, &library), []);
    assert!(trace.blobs().count() > 0);
    run(&mut replay(&path)).assert(0);
}

fn ranks_have_traces_of_their_own(folder: &Path) {
    let program = ending();
    let script = format!(
        "for r in 0 1 2; do RANK=$r LOCAL_RANK=$((r % 2)) {program} end $((r + 1)) & done; wait; {program} exit"
    );
    run(&mut record(
        &folder.join("t.cutape"),
        &[],
        &["sh", "-c", &script],
    ))
    .assert(3);
    for (name, rank, local) in [
        ("t.rank0.cutape", Some("0"), Some("0")),
        ("t.rank1.cutape", Some("1"), Some("1")),
        ("t.rank2.cutape", Some("2"), Some("0")),
        ("t.cutape", None, None),
    ] {
        let trace = Trace::open(&folder.join(name)).unwrap();
        assert_ne!(trace.head().flags & FILE_PACKED, 0, "{name}");
        assert_eq!(trace.meta_value("rank"), rank, "{name}");
        assert_eq!(trace.meta_value("rank.local"), local, "{name}");
        assert!(trace.meta_value("parent").is_some(), "{name}");
    }
    // When a name is taken, the process id is added to it.
    let script = format!("{program} end 1; {program} end 1");
    let mut command = record(&folder.join("u.cutape"), &[], &["sh", "-c", &script]);
    let output = run(command
        .env("SLURM_STEP_NUM_TASKS", "2")
        .env("SLURM_PROCID", "1"));
    output.assert_code(0);
    assert!(folder.join("u.rank1.cutape").exists());
    assert!(!folder.join("u.cutape").exists());

    fs::write(folder.join("broken.cutape"), "no trace").unwrap();
    fs::write(folder.join("other.txt"), "no trace").unwrap();
    let output = run(&mut parts().cutape(&[&"info", &folder]));
    output.assert_code(0);
    for words in [
        "t.rank0.cutape",
        "t.rank2.cutape",
        "broken.cutape",
        "6 traces",
        "parent",
    ] {
        assert!(
            output.stdout.contains(words),
            "{words}\n{}",
            output.describe()
        );
    }
    let output = run(&mut parts().cutape(&[&"info", &"--format", &"json", &folder]));
    output.assert(0);
    let json: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    let traces = json["traces"].as_array().unwrap();
    let ranks: Vec<_> = traces.iter().map(|trace| trace["rank"].as_u64()).collect();
    assert_eq!(
        ranks,
        [Some(0), Some(1), Some(1), Some(1), Some(2), None],
        "{json:#}"
    );
    assert!(
        traces
            .iter()
            .all(|trace| trace["calls"]["total"].as_u64() > Some(1))
    );
    assert_eq!(json["unusable"].as_array().map(Vec::len), Some(1));
    // A folder without traces is an error.
    let empty = folder.join("empty");
    fs::create_dir(&empty).unwrap();
    let output = run(&mut parts().cutape(&[&"info", &empty]));
    output.assert_code(2);
    assert!(
        output.stderr.contains("without traces"),
        "{}",
        output.describe()
    );
}
