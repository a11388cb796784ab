//! The entries of images, unpacked.

use cutape_image::build::{self, FatbinEntry, Packing};
use cutape_image::{CodeKind, Function, Target, entries_for, parse, unpack};

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

#[test]
fn a_device_needs_the_nearest_machine_code_or_the_newest_text() {
    let names = ["sm_70", "sm_80", "sm_86", "sm_90a", "sm_90"];
    let cubins = names.map(|name| {
        let target = Target::from_name(name).unwrap();
        (CodeKind::Elf, target, build::cubin(&[], &[], target))
    });
    let texts = ["sm_50", "sm_75"].map(|name| {
        let text = format!(".version 8.0\n.target {name}\n.address_size 64\n");
        let target = Target::from_name(name).unwrap();
        (CodeKind::Ptx, target, text.into_bytes())
    });
    let all: Vec<_> = cubins.into_iter().chain(texts).collect();
    for packing in [Packing::Stored, Packing::Lz4, Packing::Zstd] {
        let entry = |(code, target, payload): &(CodeKind, Target, Vec<u8>)| -> Vec<u8> {
            let entry = FatbinEntry {
                code: *code,
                target: *target,
                payload,
                packing,
            };
            build::fatbin(&[entry])[16..].to_vec()
        };
        let entries: Vec<Vec<u8>> = all.iter().map(entry).collect();
        let fatbin = |chosen: &[usize]| {
            let body = chosen.iter().flat_map(|&place| entries[place].clone());
            let body: Vec<u8> = body.collect();
            let mut whole = build::fatbin(&[])[..8].to_vec();
            whole.extend((body.len() as u64).to_le_bytes());
            whole.extend(body);
            whole
        };
        let whole = fatbin(&[0, 1, 2, 3, 4, 5, 6]);
        for (devices, chosen) in [
            (&[(9, 0)][..], Some(&[3, 4][..])),
            (&[(8, 6)], Some(&[2])),
            (&[(8, 9)], Some(&[2])),
            (&[(8, 0), (9, 0)], Some(&[1, 3, 4])),
            // No machine code for them.
            (&[(10, 0)], Some(&[6])),
            (&[(6, 0)], Some(&[5])),
            (&[(6, 0), (3, 5)], None),
            (&[], None),
        ] {
            assert_eq!(
                entries_for(&whole, devices),
                chosen.map(fatbin),
                "{devices:?}"
            );
        }
        // Nothing to leave out.
        assert_eq!(entries_for(&fatbin(&[1]), &[(8, 0)]), None);
        let mut cut = whole.clone();
        cut.truncate(whole.len() - 1);
        assert_eq!(entries_for(&cut, &[(9, 0)]), None);
    }
}
