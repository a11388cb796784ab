//! Kind and length from the first bytes alone.

use cutape_image::build::{self, FatbinEntry, Packing};
use cutape_image::{CodeKind, Extent, ImageKind, Suffix, Target, extent, kind, wrapper_data};

const TARGET: Target = Target {
    major: 9,
    minor: 0,
    suffix: Suffix::None,
};

fn cubin() -> Vec<u8> {
    build::cubin(&[], &[], TARGET)
}

fn fatbin() -> Vec<u8> {
    let payload = cubin();
    let entry = FatbinEntry {
        code: CodeKind::Elf,
        target: TARGET,
        payload: &payload,
        packing: Packing::Lz4,
    };
    build::fatbin(&[entry])
}

#[test]
fn kinds() {
    let mut host = cubin();
    host[18] = 62;
    let long_comment = [b"/* ".repeat(100), b"*/ .version 8.0".to_vec()].concat();
    for (bytes, expected) in [
        (&cubin()[..], ImageKind::Cubin),
        (&host, ImageKind::HostObject),
        (&fatbin(), ImageKind::Fatbin),
        (b"\xb1\x43\x62\x46", ImageKind::FatbinWrapper),
        (b".version 8.0\n", ImageKind::Ptx),
        (b"\n // x\n\t/* .entry */ .version", ImageKind::Ptx),
        (&long_comment, ImageKind::Ptx),
        (b".versions 8.0\n", ImageKind::Unknown),
        (b".target sm_90\n.version 8.0\n", ImageKind::Unknown),
        (b"// nothing\n", ImageKind::Unknown),
        (b"/* nothing", ImageKind::Unknown),
        (b"// nothing\0.version 8.0", ImageKind::Unknown),
        (b"/*", ImageKind::Unknown),
        (b"/", ImageKind::Unknown),
        (b"!<arch>\n/", ImageKind::HostArchive),
        (b"BC\xc0\xde", ImageKind::NvvmBitcode),
        (b"\xed\x43\x4e\x7f", ImageKind::NvvmBitcode),
        (b"\x7fELF", ImageKind::Unknown),
        (b"\0\0\0\0", ImageKind::Unknown),
        (b"", ImageKind::Unknown),
    ] {
        assert_eq!(
            kind(bytes),
            expected,
            "{:?}",
            String::from_utf8_lossy(&bytes[..bytes.len().min(40)])
        );
    }
}

#[test]
fn lengths() {
    let narrow_container = [&fatbin()[..6], &[15, 0], &[0; 8]].concat();
    let huge_container = [&fatbin()[..8], &[0xff; 8]].concat();
    for (bytes, expected) in [
        (&b""[..], Extent::NeedBytes(24)),
        (b"\x7fE", Extent::NeedBytes(24)),
        (b"\x50", Extent::NeedBytes(24)),
        (b"\x7fELF\x02\x01\x01", Extent::NeedBytes(64)),
        (
            b"\x7fELF\x03\x01\x01\0\0\0\0\0\0\0\0\0",
            Extent::Unrecognised,
        ),
        (b"\x50\xed\x55\xba\x01\0", Extent::NeedBytes(16)),
        (&narrow_container, Extent::Unrecognised),
        (&huge_container, Extent::Unrecognised),
        (b"\xb1\x43\x62\x46", Extent::Known(24)),
        (b".version 8.0", Extent::Unbounded),
        (b".target sm_90\n", Extent::Unbounded),
        (b"  // c\n", Extent::NeedBytes(256)),
        (b"// c\n\0", Extent::Unbounded),
        (b".", Extent::NeedBytes(65)),
        (b"hello", Extent::Unrecognised),
        (b"\x01\x02", Extent::Unrecognised),
    ] {
        assert_eq!(extent(bytes), expected, "{bytes:02x?}");
    }
    assert_eq!(extent(&b" ".repeat(70_000)), Extent::Unbounded);
    assert_eq!(
        extent(&fatbin()[..16]),
        Extent::Known(fatbin().len() as u64)
    );
}

/// A reader that fetches what it is asked for gets the whole length, in a few steps, whatever
/// follows the image.
#[test]
fn a_reader_that_comes_back_gets_the_length() {
    for whole in [cubin(), fatbin()] {
        let memory = [&whole[..], &[0xcc; 5000]].concat();
        let mut have = 1;
        for step in 0.. {
            assert!(step < 5, "too many steps");
            match extent(&memory[..have]) {
                Extent::NeedBytes(bytes) => {
                    assert!(bytes > have as u64 && bytes <= whole.len() as u64);
                    have = bytes as usize;
                }
                found => {
                    assert_eq!(found, Extent::Known(whole.len() as u64));
                    break;
                }
            }
        }
    }
}

/// A section after the tables counts, one without bytes in the file does not.
#[test]
fn what_counts_for_the_length() {
    let table_last = cubin();
    let at = u64::from_le_bytes(table_last[40..48].try_into().unwrap()) as usize;
    for (kind, expected) in [(1_u32, 0x10010), (8, table_last.len() as u64)] {
        let mut bytes = table_last.clone();
        let row = at + 64;
        bytes[row + 4..row + 8].copy_from_slice(&kind.to_le_bytes());
        bytes[row + 24..row + 32].copy_from_slice(&0x10000_u64.to_le_bytes());
        bytes[row + 32..row + 40].copy_from_slice(&0x10_u64.to_le_bytes());
        assert_eq!(extent(&bytes), Extent::Known(expected));
    }
    // The file's largest offsets overflow.
    let mut bytes = table_last.clone();
    bytes[40..48].copy_from_slice(&(u64::MAX - 8).to_le_bytes());
    assert_eq!(extent(&bytes), Extent::Unrecognised);
}

#[test]
fn small_word_files_have_a_length() {
    // ELFCLASS32: one segment of 16 bytes at 0x100, no sections.
    let mut bytes = vec![0_u8; 52 + 32];
    bytes[..7].copy_from_slice(b"\x7fELF\x01\x01\x01");
    bytes[18] = 190;
    bytes[28] = 52;
    bytes[42] = 32;
    bytes[44] = 1;
    bytes[46] = 40;
    bytes[52 + 5] = 1;
    bytes[52 + 16] = 16;
    assert_eq!(extent(&bytes), Extent::Known(0x110));
    assert_eq!(extent(&bytes[..60]), Extent::NeedBytes(84));
}

#[test]
fn wrappers() {
    let mut bytes = b"\xb1\x43\x62\x46\x02\0\0\0".to_vec();
    bytes.extend(0x7f00_1234_5678_u64.to_le_bytes());
    bytes.extend(9_u64.to_le_bytes());
    let wrapper = wrapper_data(&bytes).unwrap();
    assert_eq!(
        (wrapper.version, wrapper.data, wrapper.second),
        (2, 0x7f00_1234_5678, 9)
    );
    assert_eq!(wrapper_data(&bytes[..23]), None);
    assert_eq!(wrapper_data(&cubin()), None);
}
