//! The code of an image, apart from everything that two compilations of one source differ in.
//!
//! `ptxas` stores the time in a note, so equal machine code comes in cubins of different bytes.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::fatbin::{self, Packed, Unpacker};
use crate::kind::{ImageKind, kind, until_nul};
use crate::problem::Problem;
use crate::target::{CodeKind, Target};
use crate::{cubin, ptx};

/// The code of an image. Hashes are for comparison within one process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Code {
    /// In the order of the file: many in a fatbin, one in a cubin or a PTX text.
    pub entries: Vec<EntryCode>,
}

/// The code of one cubin, PTX text or other entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EntryCode {
    /// What kind of code it is.
    pub code: CodeKind,
    /// What it was compiled for, if it says so.
    pub target: Option<Target>,
    /// A hash of each function: of its code, its constants, its relocations, and what a launch of
    /// it takes; of PTX the text without comments.
    pub functions: BTreeMap<String, u64>,
    /// A hash of everything else that code sees: variables with their initial values.
    pub rest: u64,
}

/// The code of the image at the start of `bytes`. Code that is not read (for link-time
/// optimisation, or damaged) counts with all its bytes, as does what is no image.
pub fn code(bytes: &[u8]) -> Code {
    let entries = match kind(bytes) {
        ImageKind::Cubin => vec![elf(bytes, None)],
        ImageKind::Ptx => vec![text(until_nul(bytes), None)],
        ImageKind::Fatbin => match fatbin::entries(bytes) {
            Ok(packed) => {
                let mut unpacker = Unpacker::new(&packed);
                packed.iter().map(|one| entry(one, &mut unpacker)).collect()
            }
            Err(_) => vec![unread(CodeKind::Other(0), None, bytes)],
        },
        ImageKind::FatbinWrapper
        | ImageKind::HostObject
        | ImageKind::HostArchive
        | ImageKind::NvvmBitcode
        | ImageKind::Unknown => vec![unread(CodeKind::Other(0), None, bytes)],
    };
    Code { entries }
}

fn entry(packed: &Packed<'_>, unpacker: &mut Unpacker) -> EntryCode {
    let read = packed.with_payload(unpacker, |payload| {
        Ok(match packed.code {
            CodeKind::Elf => elf(payload, packed.target),
            CodeKind::Ptx => text(until_nul(payload), packed.target),
            code => unread(code, packed.target, payload),
        })
    });
    // What cannot be unpacked has no bytes to compare.
    read.unwrap_or_else(|_| unread(packed.code, packed.target, &[]))
}

fn unread(code: CodeKind, target: Option<Target>, bytes: &[u8]) -> EntryCode {
    EntryCode {
        code,
        target,
        functions: BTreeMap::new(),
        rest: hash(bytes),
    }
}

fn hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn elf(bytes: &[u8], target: Option<Target>) -> EntryCode {
    sections(bytes, target).unwrap_or_else(|_| unread(CodeKind::Elf, target, bytes))
}

fn sections(bytes: &[u8], target: Option<Target>) -> Result<EntryCode, Problem> {
    let content = cubin::read(bytes)?;
    let declared = content.functions.iter();
    let mut functions: BTreeMap<String, DefaultHasher> = declared
        .map(|function| {
            let mut hasher = DefaultHasher::new();
            function.hash(&mut hasher);
            (function.name.clone(), hasher)
        })
        .collect();
    let mut rest = DefaultHasher::new();
    (&content.globals, &content.textures, &content.surfaces).hash(&mut rest);
    for (name, data) in cubin::code(bytes)? {
        // `.text.NAME`, `.nv.constant0.NAME`, `.rela.text.NAME`: names have dots themselves.
        let dots = name.match_indices('.').map(|(at, _)| at + 1);
        let owner = dots
            .filter_map(|at| name.get(at..))
            .find(|name| functions.contains_key(*name));
        let owner = owner.map(str::to_owned);
        match owner.and_then(|owner| functions.get_mut(&owner)) {
            Some(function) => (&name, &data).hash(function),
            None => (&name, &data).hash(&mut rest),
        }
    }
    let functions = functions.into_iter();
    Ok(EntryCode {
        code: CodeKind::Elf,
        target: target.or(content.target),
        functions: functions
            .map(|(name, hasher)| (name, hasher.finish()))
            .collect(),
        rest: rest.finish(),
    })
}

fn text(bytes: &[u8], target: Option<Target>) -> EntryCode {
    let Ok(statements) = ptx::statements(bytes) else {
        return unread(CodeKind::Ptx, target, bytes);
    };
    let mut functions = BTreeMap::new();
    let mut rest = DefaultHasher::new();
    for statement in statements {
        match statement.function {
            Some(name) => _ = functions.insert(name, statement.hash),
            None => statement.hash.hash(&mut rest),
        }
    }
    EntryCode {
        code: CodeKind::Ptx,
        target,
        functions,
        rest: rest.finish(),
    }
}

#[cfg(test)]
mod tests {
    use crate::build::{FatbinEntry, FunctionSpec, GlobalSpec, Packing};
    use crate::target::{Suffix, Target};

    use super::*;

    const TARGET: Target = Target {
        major: 9,
        minor: 0,
        suffix: Suffix::None,
    };

    fn cubin(registers: u32, initial: u8) -> Vec<u8> {
        let function = |name: &str, registers| FunctionSpec {
            name: name.to_owned(),
            is_entry: true,
            registers: Some(registers),
            ..FunctionSpec::default()
        };
        let global = GlobalSpec {
            name: "table".to_owned(),
            size: 4,
            initial: Some(vec![initial; 4]),
            ..GlobalSpec::default()
        };
        let functions = [function("first", 8), function("a.second", registers)];
        crate::build::cubin(&functions, &[global], TARGET)
    }

    /// The position of bytes in others.
    fn find(bytes: &[u8], wanted: &[u8]) -> usize {
        let mut windows = bytes.windows(wanted.len());
        windows.position(|window| window == wanted).unwrap()
    }

    #[test]
    fn what_counts_of_a_cubin() {
        let plain = code(&cubin(8, 1));
        assert_eq!(plain.entries.len(), 1);
        assert_eq!(plain.entries[0].target, Some(TARGET));
        let names: Vec<&String> = plain.entries[0].functions.keys().collect();
        assert_eq!(names, ["a.second", "first"]);
        assert_eq!(code(&cubin(8, 1)), plain);
        // A function: only its hash changes.
        let changed = code(&cubin(9, 1));
        let (a, b) = (&plain.entries[0], &changed.entries[0]);
        assert_eq!(a.functions["first"], b.functions["first"]);
        assert_ne!(a.functions["a.second"], b.functions["a.second"]);
        assert_eq!(a.rest, b.rest);
        // A variable: only the rest changes.
        let changed = code(&cubin(8, 2));
        assert_eq!(plain.entries[0].functions, changed.entries[0].functions);
        assert_ne!(plain.entries[0].rest, changed.entries[0].rest);
        // Bytes behind the tables, where a note of the time would be.
        let mut longer = cubin(8, 1);
        longer.extend(b"12:30");
        assert_eq!(code(&longer), plain);
    }

    #[test]
    fn machine_code_counts() {
        let bytes = cubin(8, 1);
        let plain = code(&bytes);
        let mut counted = 0;
        // The code of the builder is zeros: any other byte there is other code.
        let zeros = find(&bytes, &[0; 128]);
        for at in zeros..zeros + 128 {
            let mut changed = bytes.clone();
            changed[at] ^= 0x40;
            counted += usize::from(code(&changed) != plain);
        }
        assert!(counted > 100, "{counted} of 128 bytes count");
    }

    #[test]
    fn packing_does_not_count() {
        let cubin = cubin(8, 1);
        let ptx = b".version 8.0\n.target sm_90\n.address_size 64\n.entry k() { ret; }\n";
        let commented = b".version 8.0\n.target sm_90 // b\n.address_size 64\n.entry k() {ret;}\n";
        let fatbin = |packing, text: &[u8]| {
            let entry = |code, payload| FatbinEntry {
                code,
                target: TARGET,
                payload,
                packing,
            };
            let entries = [entry(CodeKind::Elf, &cubin[..]), entry(CodeKind::Ptx, text)];
            code(&crate::build::fatbin(&entries))
        };
        let plain = fatbin(Packing::Stored, ptx);
        assert_eq!(plain.entries.len(), 2);
        assert_eq!(plain.entries[1].functions.len(), 1);
        for packing in [Packing::Stored, Packing::Lz4, Packing::Zstd] {
            assert_eq!(fatbin(packing, commented), plain, "{packing:?}");
        }
        let other = b".version 8.0\n.target sm_90\n.address_size 64\n.entry k() { exit; }\n";
        assert_ne!(fatbin(Packing::Stored, other), plain);
    }

    #[test]
    fn what_is_no_image_counts_with_its_bytes() {
        for bytes in [&b"text"[..], b"", b"\x7fELF", b"!<arch>\n"] {
            assert_eq!(code(bytes), code(bytes));
            assert_ne!(code(bytes), code(b"another text"));
        }
        let mut cut = cubin(8, 1);
        cut.truncate(200);
        assert_ne!(code(&cut), code(&cut[..199]));
    }
}
