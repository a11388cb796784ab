//! No bytes make the readers panic, and none make them slow.

use std::time::{Duration, Instant};

use cutape_image::build::{self, FatbinEntry, Packing};
use cutape_image::{
    CodeKind, Extent, Function, Global, Parameter, ProblemKind, Suffix, Target, extent, kind,
    parse, wrapper_data,
};
use proptest::prelude::*;

fn good_images() -> Vec<Vec<u8>> {
    let target = Target::from_number(90, Suffix::None);
    let function = |name: &str| Function {
        name: name.to_owned(),
        parameters: vec![
            Parameter { offset: 0, size: 8 },
            Parameter {
                offset: 8,
                size: 20000,
            },
        ],
        is_entry: true,
        registers: Some(16),
        shared_bytes: 64,
        max_threads: Some(128),
        ..Function::default()
    };
    let global = Global {
        name: "g".to_owned(),
        size: 8,
        initial: Some(vec![1; 8]),
        ..Global::default()
    };
    let cubin = build::cubin(&[function("a"), function("b")], &[global], target);
    let ptx = "// c\n.version 8.0\n.target sm_90, debug\n.address_size 64\n.file 1 \"x\"\n\
        .extern .func (.param .b32 r) f(.param .b64 a);\n.global .align 8 .b8 g[2][2] = {{1,2},{3}};\n\
        .const .f32 c = 0f3f800000;\n.visible .entry k(.param .u64 .ptr .global .align 4 p, .param .b8 q[3]) .maxntid 32,1,1\n\
        { .shared .b32 s[4]; call (r), f, (a); /* x */ ret; }\n.section .debug_info { .b8 1 }\n";
    let fatbin = |packing| {
        build::fatbin(&[
            FatbinEntry {
                code: CodeKind::Elf,
                target,
                payload: &cubin,
                packing,
            },
            FatbinEntry {
                code: CodeKind::Ptx,
                target,
                payload: ptx.as_bytes(),
                packing,
            },
        ])
    };
    let fatbins = [Packing::Stored, Packing::Lz4, Packing::Zstd].map(fatbin);
    [&[cubin.clone(), ptx.as_bytes().to_vec()][..], &fatbins].concat()
}

fn read_all(bytes: &[u8]) {
    let _ = (kind(bytes), wrapper_data(bytes), parse(bytes));
    if let Extent::NeedBytes(need) = extent(bytes) {
        assert!(
            need > bytes.len() as u64,
            "asks for {need} and has {}",
            bytes.len()
        );
    }
}

#[test]
fn every_truncation() {
    for image in good_images() {
        assert!(parse(&image).is_ok());
        for end in 0..image.len() {
            read_all(&image[..end]);
        }
    }
}

#[test]
fn every_single_byte_changed() {
    for image in good_images() {
        for at in 0..image.len().min(3000) {
            for value in [0, 1, 0x7f, 0xff, image[at].wrapping_add(1)] {
                let mut image = image.clone();
                image[at] = value;
                read_all(&image);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        read_all(&bytes);
    }

    #[test]
    fn random_bytes_after_a_magic(magic in 0..5_usize, bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let magics: [&[u8]; 5] =
            [b"\x7fELF\x02\x01\x01\x41", b"\x7fELF\x01\x01", b"\x50\xed\x55\xba\x01\0\x10\0", b".version 8.0\n.target sm_90\n", b"\xb1\x43\x62\x46"];
        read_all(&[magics[magic], &bytes].concat());
    }

    #[test]
    fn many_bytes_changed(which in 0..5_usize, changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40)) {
        let mut image = good_images().swap_remove(which);
        for (at, value) in changes {
            let at = at.index(image.len());
            image[at] = value;
        }
        read_all(&image);
    }

    #[test]
    fn texts_of_ptx_pieces(pieces in prop::collection::vec(prop::sample::select(vec![
        ".entry", ".func", "k", "(", ")", "{", "}", "[", "]", ";", ",", "=", ".param", ".b32", ".align", "4", "-", "0x1", ".shared",
        ".global", ".extern", ".ptr", ".attribute", ".managed", "\"s\"", "/*", "*/", "//", "\n", ".section", ".maxntid", "..", "_", "1e", ".alias",
    ]), 0..60)) {
        read_all(format!(".version 8.0\n.target sm_90\n{}", pieces.join(" ")).as_bytes());
    }

    #[test]
    fn cubins_read_back(names in prop::collection::hash_set("[a-zA-Z_$][a-zA-Z0-9_$.]{0,20}", 0..6), size in 0..40_000_u32, shared in any::<u64>()) {
        let functions: Vec<_> = names.into_iter().map(|name| Function {
            name, is_entry: true, shared_bytes: shared, parameters: vec![Parameter { offset: 0, size }, Parameter { offset: 65535, size: 1 }], ..Function::default()
        }).collect();
        let bytes = build::cubin(&functions, &[], Target::from_number(75, Suffix::None));
        prop_assert_eq!(extent(&bytes), Extent::Known(bytes.len() as u64));
        let content = parse(&bytes).unwrap().entries.remove(0).content.unwrap();
        prop_assert_eq!(content.functions, functions);
    }
}

/// Inputs that would take a careless reader quadratic time or endless memory.
#[test]
fn nothing_takes_long() {
    let head = ".version 8.0\n.target sm_90\n";
    let mut shared = head.to_owned();
    for i in 0..20_000 {
        shared += &format!(".shared .b8 s{i};\n.entry k{i}() {{ }}\n.extern .func f{i};\n");
    }
    let deep = format!("{head}.global .b8 x[2] = {}1", "{".repeat(200_000));
    let wide = format!(
        "{head}.global .b8 x[2][0xfffffff] = {{{}}};",
        "{1},".repeat(50_000)
    );
    let open = format!("{head}.entry k() {}", "{".repeat(1_000_000));
    let comments = "/* ".repeat(300_000) + "*/";
    // Every symbol named by the same long string.
    let long = Function {
        name: "n".repeat(100_000),
        ..Function::default()
    };
    let few: Vec<_> = (0..400)
        .map(|i| Function {
            name: format!("f{i}"),
            ..Function::default()
        })
        .collect();
    let mut cubin = build::cubin(
        &[&[long][..], &few].concat(),
        &[],
        Target::from_number(90, Suffix::None),
    );
    let table = u64::from_le_bytes(cubin[40..48].try_into().unwrap()) as usize;
    for row in (table + 64..cubin.len()).step_by(64) {
        cubin[row..row + 4].copy_from_slice(&1_u32.to_le_bytes());
    }
    for bytes in [
        shared.as_bytes(),
        deep.as_bytes(),
        wide.as_bytes(),
        open.as_bytes(),
        comments.as_bytes(),
        &cubin,
    ] {
        let start = Instant::now();
        let _ = (kind(bytes), extent(bytes), parse(bytes));
        assert!(
            start.elapsed() < Duration::from_secs(5),
            "{:?}",
            String::from_utf8_lossy(&bytes[..60])
        );
    }
}

/// A short image that claims to be long is not decompressed.
#[test]
fn short_images_stay_short() {
    let zeros = vec![0; 20 << 20];
    let entry = FatbinEntry {
        code: CodeKind::Elf,
        target: Target::from_number(90, Suffix::None),
        payload: &zeros,
        packing: Packing::Zstd,
    };
    let fatbin = build::fatbin(&[entry; 3]);
    assert!(fatbin.len() < 100_000);
    let kinds: Vec<_> = parse(&fatbin)
        .unwrap()
        .entries
        .into_iter()
        .map(|entry| entry.content.unwrap_err().kind)
        .collect();
    // 32 MiB are allowed.
    let expected = [
        ProblemKind::Malformed,
        ProblemKind::TooLarge,
        ProblemKind::TooLarge,
    ];
    assert_eq!(kinds, expected);
}
