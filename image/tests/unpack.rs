//! The entries of images, unpacked.

use cutape_image::build::{self, FatbinEntry, Packing};
use cutape_image::{CodeKind, Function, Target, parse, unpack};

/// All entries of an image.
fn entries(bytes: &[u8]) -> Vec<Result<Vec<u8>, String>> {
    let mut found = Vec::new();
    let unpacked = unpack(bytes, |number, entry| {
        assert_eq!(number, found.len(), "in order");
        let entry = entry.map(<[u8]>::to_vec);
        found.push(entry.map_err(|problem| problem.to_string()));
    });
    unpacked.unwrap();
    found
}

#[test]
fn each_entry_of_a_fatbin_comes_out_as_it_went_in() {
    let target = Target::from_name("sm_90").unwrap();
    let function = Function {
        name: "k".to_owned(),
        is_entry: true,
        ..Function::default()
    };
    let cubin = build::cubin(&[function], &[], target);
    let text = b".version 8.0\n.target sm_90\n.address_size 64\n.entry k() { ret; }\n";
    for packing in [Packing::Stored, Packing::Lz4, Packing::Zstd] {
        let entry = |code, payload| FatbinEntry {
            code,
            target,
            payload,
            packing,
        };
        let fatbin = build::fatbin(&[entry(CodeKind::Elf, &cubin[..]), entry(CodeKind::Ptx, text)]);
        let found = entries(&fatbin);
        assert_eq!(found, [Ok(cubin.clone()), Ok(text.to_vec())], "{packing:?}");
        // What comes out is what `parse` describes.
        let image = parse(&fatbin).unwrap();
        for (entry, bytes) in image.entries.iter().zip(found) {
            let alone = parse(&bytes.unwrap()).unwrap();
            assert_eq!(alone.entries[0].content, entry.content);
        }
    }
}

#[test]
fn a_lone_image_is_its_only_entry_without_what_follows() {
    let cubin = build::cubin(&[], &[], Target::from_name("sm_80").unwrap());
    for (image, follows) in [(&cubin[..], &b"more"[..]), (b".version 8.0\n", b"\0more")] {
        let bytes = [image, follows].concat();
        assert_eq!(entries(&bytes), [Ok(image.to_vec())]);
    }
}

#[test]
fn damage_is_a_problem_of_its_entry_or_of_the_container() {
    let target = Target::from_name("sm_90").unwrap();
    let entry = FatbinEntry {
        code: CodeKind::Ptx,
        target,
        payload: &[b' '; 4096],
        packing: Packing::Lz4,
    };
    let fatbin = build::fatbin(&[entry, entry]);
    assert!(unpack(&fatbin[..fatbin.len() - 1], |_, _| ()).is_err());
    let mut damaged = fatbin.clone();
    let last = damaged.len() - 16;
    damaged[last..].fill(0xff);
    let found = entries(&damaged);
    assert!(found[0].is_ok() && found[1].is_err(), "{found:?}");
}
