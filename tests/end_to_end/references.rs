//! Images in mapped libraries are recorded by reference and packed later; processes with a rank, side by side.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cutape_format::layout::{FILE_PACKED, field};
use cutape_format::{Bytes, Trace};
use cutape_tests::{Output, endings, parts, run};

/// A PTX text so long that it is no part of a record.
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

fn compiler() -> Command {
    let mut command = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    command.args(["-std=gnu11", "-O1", "-Wall", "-Werror"]);
    command
}

/// Makes the library, with or without a build id.
fn make_library(folder: &Path, build_id: &str, more: &str) -> PathBuf {
    let (source, library) = (folder.join("images.c"), folder.join("libimages.so"));
    fs::write(&source, library_source() + more).unwrap();
    run(compiler()
        .args(["-shared", "-fPIC"])
        .arg(format!("-Wl,--build-id={build_id}"))
        .arg(&source)
        .arg("-o")
        .arg(&library))
    .assert(0);
    library
}

fn make_program(folder: &Path, library: &Path) -> PathBuf {
    let (source, program) = (folder.join("user.c"), folder.join("user"));
    fs::write(&source, PROGRAM).unwrap();
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
    run(compiler()
        .arg("-I")
        .arg(programs.join("include"))
        .arg("-I")
        .arg(&programs)
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .arg(library)
        .arg(parts().driver_folder.join("libcuda.so.1")))
    .assert(0);
    program
}

fn record(options: &[&str], trace: &Path, program: &Path) -> Output {
    let mut record = parts().cutape(&[&"record", &"--driver", &"null", &"-o", &trace]);
    run(record.args(options).arg("--").arg(program))
}

fn replay(trace: &Path) -> Output {
    run(&mut parts().cutape(&[&"replay", &"--driver", &"null", &trace]))
}

/// The images that the trace names by the library: where they begin there, and how long they are.
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

#[test]
fn images_of_libraries_are_packed() {
    for build_id in ["sha1", "none"] {
        let folder = parts().new_folder(&format!("references-{build_id}"));
        let library = make_library(&folder, build_id, "");
        let program = make_program(&folder, &library);
        let (raw, packed) = (folder.join("raw.cutape"), folder.join("packed.cutape"));
        record(&["--no-pack"], &raw, &program).assert(0);
        record(&[], &packed, &program).assert_quiet();

        let trace = Trace::open(&raw).unwrap();
        assert_eq!(trace.head().flags & FILE_PACKED, 0);
        let named = references(&trace, &library);
        assert_eq!(named.len(), 2, "the text and the container");
        assert!(named.iter().all(|&(_, length)| length > 20_000));
        assert_eq!(trace.blobs().count(), 0, "nothing was copied");
        let trace = Trace::open(&packed).unwrap();
        assert_eq!(references(&trace, &library), named);
        // With the library both replay; the raw one reads from it.
        replay(&raw).assert(0);
        replay(&packed).assert(0);
        run(&mut parts().cutape(&[&"check", &raw])).assert(0);

        fs::remove_file(&library).unwrap();
        let trace = Trace::open(&packed).unwrap();
        assert_eq!(references(&trace, &library), named);
        let output = replay(&packed);
        output.assert(0);
        assert!(
            !output.stdout.contains("its image"),
            "{}",
            output.describe()
        );
        let output = run(&mut parts().cutape(&[&"check", &packed]));
        output.assert(0);
        output.assert_quiet();
        // Without it the raw one says what is missing, and where it was.
        for verb in ["check", "pack"] {
            let copy = folder.join("copy.cutape");
            fs::copy(&raw, &copy).unwrap();
            let output = run(&mut parts().cutape(&[&verb, &copy]));
            output.assert_code(0);
            let lines = output.stderr.lines();
            let missing = lines.filter(|line| line.contains("libimages.so: No such file"));
            assert_eq!(missing.count(), 2, "{}", output.describe());
        }
        // Its kernels cannot be launched: that is said before anything is done, or after it if somebody insists.
        let output = replay(&raw);
        output.assert_code(2);
        let refused = output.stderr.matches("libimages.so: No such file");
        assert_eq!(refused.count(), 2, "{}", output.describe());
        let output = run(&mut parts().cutape(&[&"replay", &"--driver", &"null", &"--force", &raw]));
        assert!(
            output.stdout.contains("x cuModuleLoadData (first"),
            "{}",
            output.describe()
        );

        // Another library of that name is not taken for it.
        make_library(&folder, build_id, "int more(void) { return 1; }\n");
        let output = run(&mut parts().cutape(&[&"pack", &raw]));
        output.assert_code(0);
        let lines = output.stderr.lines();
        let missing = lines.filter(|line| line.contains("libimages.so: has changed"));
        assert_eq!(missing.count(), 2, "{}", output.describe());
    }
}

#[test]
fn a_library_that_is_gone_at_once_is_copied() {
    let folder = parts().new_folder("references-unlinked");
    let library = make_library(&folder, "sha1", "");
    let program = make_program(&folder, &library);
    // The program removes it before its first call, as a package manager would.
    let source = folder.join("user.c");
    let text = fs::read_to_string(&source).unwrap();
    let remove = format!("    unlink({:?});\n    begin();", library.to_str().unwrap());
    fs::write(&source, text.replace("    begin();", &remove)).unwrap();
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
    run(compiler()
        .arg("-I")
        .arg(programs.join("include"))
        .arg("-I")
        .arg(&programs)
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .arg(&library)
        .arg(parts().driver_folder.join("libcuda.so.1")))
    .assert(0);
    let path = folder.join("t.cutape");
    record(&[], &path, &program).assert_quiet();
    assert!(!library.exists());
    let trace = Trace::open(&path).unwrap();
    assert_eq!(references(&trace, &library), []);
    assert!(trace.blobs().count() > 0);
    replay(&path).assert(0);
}

#[test]
fn ranks_have_traces_of_their_own() {
    let folder = parts().new_folder("ranks");
    let program = endings(parts()).unwrap();
    let program = program.to_str().unwrap();
    let script = format!(
        "for r in 0 1 2; do RANK=$r LOCAL_RANK=$((r % 2)) {program} end $((r + 1)) & done; wait; {program} exit"
    );
    let mut command = parts().cutape(&[
        &"record",
        &"--driver",
        &"null",
        &"-o",
        &folder.join("t.cutape"),
    ]);
    let output = run(command.args(["--", "sh", "-c", &script]));
    output.assert_code(3);
    output.assert_quiet();
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
    // A second rank 1 in the same recording's name takes its process along.
    let output = run(parts()
        .cutape(&[
            &"record",
            &"--driver",
            &"null",
            &"-o",
            &folder.join("u.cutape"),
        ])
        .args([
            "--",
            "sh",
            "-c",
            &format!("{program} end 1; {program} end 1"),
        ])
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
    // An empty folder is said to be one.
    let empty = parts().new_folder("ranks-empty");
    let output = run(&mut parts().cutape(&[&"info", &empty]));
    output.assert_code(2);
    assert!(
        output.stderr.contains("without traces"),
        "{}",
        output.describe()
    );
}
