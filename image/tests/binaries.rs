//! Cubins and fatbins: what was put in comes out, and damage is named.

use cutape_image::build::{self, FatbinEntry, Packing};
use cutape_image::{
    CodeKind, Content, Function, Global, ImageKind, Parameter, ProblemKind, Suffix, Target, Uses,
    parse,
};

const SM_90: Target = Target {
    major: 9,
    minor: 0,
    suffix: Suffix::None,
};

fn functions() -> Vec<Function> {
    vec![
        Function {
            name: "_Z6saxpyfPfS_".to_owned(),
            parameters: [(0, 4), (8, 8), (16, 20000)]
                .map(|(offset, size)| Parameter { offset, size })
                .to_vec(),
            is_entry: true,
            registers: Some(40),
            shared_bytes: 2048,
            local_bytes: 16,
            const_bytes: 12,
            max_threads: Some(256),
            required_threads: Some([32, 4, 2]),
            required_cluster: Some([2, 1, 4]),
            max_cluster_blocks: Some(8),
            uses: Uses {
                dependency_wait: true,
                ..Uses::default()
            },
            needs_cluster: true,
        },
        Function {
            name: "device".to_owned(),
            const_bytes: 12,
            ..Function::default()
        },
    ]
}

fn globals() -> Vec<Global> {
    let global = |name: &str, size, initial: Option<&[u8]>| Global {
        name: name.to_owned(),
        size,
        initial: initial.map(<[u8]>::to_vec),
        ..Global::default()
    };
    vec![
        Global {
            constant: true,
            ..global("table", 3, Some(&[1, 2, 3]))
        },
        Global {
            constant: true,
            ..global("zeros", 4, None)
        },
        global("counter", 4, Some(&[7, 0, 0, 0])),
        global("big", 1 << 40, None),
        Global {
            managed: true,
            ..global("shared", 24, None)
        },
    ]
}

fn only(bytes: &[u8]) -> Content {
    parse(bytes).unwrap().entries.remove(0).content.unwrap()
}

#[test]
fn what_is_built_reads_back() {
    for suffix in [Suffix::None, Suffix::Arch, Suffix::Family] {
        let target = Target {
            suffix,
            ..Target::from_number(103, suffix)
        };
        let bytes = build::cubin(&functions(), &globals(), target);
        let image = parse(&bytes).unwrap();
        assert_eq!((image.kind, image.entries.len()), (ImageKind::Cubin, 1));
        let content = image.entries[0].content.as_ref().unwrap();
        assert_eq!(content.functions, functions());
        assert_eq!(content.globals, globals());
        assert_eq!((content.target, content.address_bits), (Some(target), 64));
        assert!(!content.relocatable && content.undefined.is_empty());
    }
}

#[test]
fn target_and_static_shared_memory() {
    const REL: u8 = 1;
    const EXEC: u8 = 2;
    const WITH_RESERVED: u64 = 2048 + 1024;
    // Flags seen in files that ptxas 12.9 and 13.5 wrote; the builder's note is blanked to leave
    // only the flags. None of these files has a section .nv.shared.reserved.0, as those of ptxas
    // 12.3.
    for (abi, flags, file_type, expected, shared) in [
        (51, 0x0059_0559_u32, EXEC, "sm_89", WITH_RESERVED),
        (51, 0x005a_055a, EXEC, "sm_90", 2048),
        (51, 0x005a_055a, REL, "sm_90", WITH_RESERVED),
        (51, 0x005a_0d5a, EXEC, "sm_90a", 2048),
        (65, 0x0600_5a04, EXEC, "sm_90", 2048),
        (65, 0x0600_6402, EXEC, "sm_100", 2048),
        (65, 0x0600_640a, EXEC, "sm_100a", 2048),
    ] {
        let mut bytes = build::cubin(&functions(), &[], SM_90);
        let note = bytes.windows(6).position(|w| w == b"-arch ").unwrap();
        bytes[note..note + 12].fill(0);
        bytes[7] = abi;
        bytes[48..52].copy_from_slice(&flags.to_le_bytes());
        bytes[16] = file_type;
        let content = only(&bytes);
        assert_eq!(content.target.unwrap().to_string(), expected);
        assert_eq!(content.functions[0].shared_bytes, shared, "{expected}");
    }
}

/// Offset of the row of the symbol that is called `name`.
fn symbol(bytes: &[u8], name: &str) -> usize {
    let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let row = |index: usize| long(40) + 64 * index;
    let (strings, symbols) = (long(row(2) + 24), long(row(3) + 24));
    let named = |at: usize| {
        let offset = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        bytes[strings + offset..].starts_with(format!("{name}\0").as_bytes())
    };
    (symbols..symbols + long(row(3) + 32))
        .step_by(24)
        .find(|&at| named(at))
        .unwrap()
}

#[test]
fn undefined_symbols() {
    let names = [
        "device", "counter", "vprintf", "malloc", "weak", "texture", "surface",
    ];
    let mut functions = functions();
    for name in ["vprintf", "malloc", "weak", "texture", "surface"] {
        functions.push(Function {
            name: name.to_owned(),
            ..Function::default()
        });
    }
    let mut bytes = build::cubin(&functions, &globals(), SM_90);
    // ET_REL.
    bytes[16] = 1;
    for name in names {
        let at = symbol(&bytes, name);
        bytes[at + 6..at + 8].fill(0);
        match name {
            "weak" => bytes[at + 4] = 0x22,
            "texture" => bytes[at + 4] = 0x1a,
            "surface" => bytes[at + 4] = 0x1c,
            _ => {}
        }
    }
    let content = only(&bytes);
    assert!(content.relocatable && content.uses_heap);
    assert_eq!(content.undefined, ["device", "counter"]);
    assert_eq!(
        content.undefined_functions().collect::<Vec<_>>(),
        ["device"]
    );
    let counter = content.global("counter").unwrap();
    assert!(counter.external && counter.initial.is_none());
    assert_eq!(
        (content.textures, content.surfaces),
        (vec!["texture".to_owned()], vec!["surface".to_owned()])
    );
}

const PTX: &str = ".version 8.0\n.target sm_90\n.visible .entry k(.param .u64 p) { ret; }\n";

#[test]
fn fatbins() {
    let cubin = build::cubin(&functions(), &globals()[..3], SM_90);
    let suffixed = Target::from_number(100, Suffix::Family);
    let mut entries = Vec::new();
    for packing in [Packing::Stored, Packing::Lz4, Packing::Zstd] {
        entries.push(FatbinEntry {
            code: CodeKind::Elf,
            target: SM_90,
            payload: &cubin,
            packing,
        });
        entries.push(FatbinEntry {
            code: CodeKind::Ptx,
            target: suffixed,
            payload: PTX.as_bytes(),
            packing,
        });
    }
    entries.push(FatbinEntry {
        code: CodeKind::LtoIr,
        target: SM_90,
        payload: b"\xed\x43\x4e\x7f",
        packing: Packing::Stored,
    });
    let mut bytes = build::fatbin(&entries);
    // What follows a container is ignored.
    bytes.extend([0xff; 100]);
    let image = parse(&bytes).unwrap();
    assert_eq!((image.kind, image.entries.len()), (ImageKind::Fatbin, 7));
    for (entry, given) in image.entries.iter().zip(&entries) {
        assert_eq!((entry.code, entry.target), (given.code, Some(given.target)));
        assert_eq!(entry.compressed, given.packing != Packing::Stored);
        match given.code {
            CodeKind::Elf => assert_eq!(entry.content.as_ref().unwrap().functions, functions()),
            CodeKind::Ptx => assert_eq!(entry.content.as_ref().unwrap().functions[0].name, "k"),
            _ => assert_eq!(
                entry.content.as_ref().unwrap_err().kind,
                ProblemKind::Unsupported
            ),
        }
    }
}

/// Reads frames of the reference compressor, and a header with more than 64 bytes.
#[test]
fn frames_of_the_reference_compressor() {
    let cubin = build::cubin(&functions(), &globals(), SM_90);
    for level in [1, 3, 19] {
        let frame = zstd::bulk::compress(&cubin, level).unwrap();
        let mut bytes = Vec::new();
        bytes.extend(b"\x50\xed\x55\xba\x01\0\x10\0");
        bytes.extend((frame.len() as u64 + 112).to_le_bytes());
        bytes.extend(b"\x02\0\x01\x01\x70\0\0\0");
        bytes.extend((frame.len() as u64).to_le_bytes());
        bytes.extend((frame.len() as u32).to_le_bytes());
        bytes.extend(b"\0\0\0\0\x08\0\x01\0");
        bytes.extend(90_u32.to_le_bytes());
        bytes.extend([0; 8]);
        bytes.extend(0x10_8011_u64.to_le_bytes());
        bytes.extend([0; 8]);
        bytes.extend((cubin.len() as u64).to_le_bytes());
        bytes.extend([0; 48]);
        bytes.extend(frame);
        let entry = parse(&bytes).unwrap().entries.remove(0);
        assert_eq!(entry.target.unwrap().to_string(), "sm_90a");
        assert_eq!(entry.size, Some(cubin.len() as u64));
        assert_eq!(entry.content.unwrap().functions, functions());
    }
}

/// Two cubins compressed as one, in the layout of `fatbinary --concat`.
#[test]
fn groups() {
    let parts = [
        build::cubin(&functions(), &[], SM_90),
        build::cubin(&[], &[], SM_90),
    ];
    let whole = parts.concat();
    let packed = lz4_flex::block::compress(&whole);
    let mut header = Vec::new();
    header.extend(b"\0\x01\x01\x01");
    header.extend((72_u32 + 128).to_le_bytes());
    header.extend((packed.len() as u64).to_le_bytes());
    header.extend((packed.len() as u32).to_le_bytes());
    header.extend(64_u32.to_le_bytes());
    header.extend([0; 16]);
    header.extend(0x2011_u64.to_le_bytes());
    header.extend([0; 8]);
    header.extend((whole.len() as u64).to_le_bytes());
    header.extend([2, 0, 0, 0, 136, 0, 0, 0]);
    for (part, (at, number)) in parts.iter().zip([(0, 90_u32), (parts[0].len() as u32, 75)]) {
        header.extend(b"\x02\0\x01\x01");
        header.extend(at.to_le_bytes());
        header.extend((part.len() as u64).to_le_bytes());
        header.extend([0; 12]);
        header.extend(number.to_le_bytes());
        header.extend([0; 8]);
        header.extend(0x11_u64.to_le_bytes());
        header.extend([0; 16]);
    }
    let mut bytes = b"\x50\xed\x55\xba\x01\0\x10\0".to_vec();
    bytes.extend(((header.len() + packed.len()) as u64).to_le_bytes());
    bytes.extend(header);
    bytes.extend(packed);
    let entries = parse(&bytes).unwrap().entries;
    let found: Vec<_> = entries
        .iter()
        .map(|e| {
            (
                e.target.unwrap().number(),
                e.content.as_ref().unwrap().functions.len(),
                e.compressed,
            )
        })
        .collect();
    assert_eq!(found, [(90, 2, true), (75, 0, true)]);
}

#[test]
fn damage_is_named() {
    let cubin = build::cubin(&functions(), &globals(), SM_90);
    let entry = FatbinEntry {
        code: CodeKind::Elf,
        target: SM_90,
        payload: &cubin,
        packing: Packing::Lz4,
    };
    let fatbin = build::fatbin(&[
        entry,
        FatbinEntry {
            packing: Packing::Zstd,
            ..entry
        },
    ]);
    let patched = |bytes: &[u8], at: usize, with: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes[at..at + with.len()].copy_from_slice(with);
        bytes
    };
    for (what, bytes, expected) in [
        ("empty", vec![], ProblemKind::NotAnImage),
        ("noise", vec![1, 2, 3], ProblemKind::NotAnImage),
        (
            "cut cubin",
            cubin[..cubin.len() - 1].to_vec(),
            ProblemKind::Truncated,
        ),
        (
            "host ELF",
            patched(&cubin, 18, &[62]),
            ProblemKind::Unsupported,
        ),
        (
            "many sections",
            patched(&cubin, 60, &[0xff, 0xfe]),
            ProblemKind::Truncated,
        ),
        (
            "cut fatbin",
            fatbin[..fatbin.len() - 1].to_vec(),
            ProblemKind::Truncated,
        ),
        (
            "half a header",
            fatbin[..12].to_vec(),
            ProblemKind::Truncated,
        ),
        (
            "short entry header",
            patched(&fatbin, 20, &[63]),
            ProblemKind::Malformed,
        ),
        (
            "long entry",
            patched(&fatbin, 24, &[0xff; 8]),
            ProblemKind::Truncated,
        ),
        (
            "wrapper",
            b"\xb1\x43\x62\x46".to_vec(),
            ProblemKind::Unsupported,
        ),
        ("archive", b"!<arch>\n".to_vec(), ProblemKind::Unsupported),
    ] {
        assert_eq!(parse(&bytes).expect_err(what).kind, expected, "{what}");
    }
    // Damage inside an entry leaves its neighbour readable.
    for (what, at, with, expected) in [
        ("LZ4 data", 16 + 64, &[0xff; 16][..], ProblemKind::Malformed),
        ("length", 16 + 56, &[1, 0, 0, 0], ProblemKind::Malformed),
        (
            "impossible LZ4 length",
            16 + 56,
            &[0, 0, 0, 0x3f],
            ProblemKind::Malformed,
        ),
        (
            "length beyond the limit",
            16 + 56,
            &[0xff; 8],
            ProblemKind::TooLarge,
        ),
    ] {
        let image = parse(&patched(&fatbin, at, with)).unwrap();
        assert_eq!(
            image.entries[0].content.as_ref().expect_err(what).kind,
            expected,
            "{what}"
        );
        assert!(image.entries[1].content.is_ok(), "{what}");
    }
}
