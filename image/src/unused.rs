//! Images without the machine code of kernels that are never launched.
//!
//! The code becomes zeros in its place, so that all offsets, names and tables stay as they are: the
//! driver finds the same functions with the same attributes, and the image compresses well.

use std::collections::{HashMap, HashSet};

use crate::cubin::{self, OTHER_ENTRY, Reader, SHT_SYMTAB, STT_FUNC, Symbol};
use crate::elf::{Section, u32_at, u64_at};
use crate::fatbin::{self, Unpacker};
use crate::kind::{ImageKind, kind};
use crate::target::CodeKind;

const SHT_PROGBITS: u32 = 1;
const SHT_RELA: u32 = 4;
const SHT_REL: u32 = 9;
/// ET_EXEC: linked, so that no other image refers to its functions.
const LINKED: u16 = 2;
/// From there on, the section of a symbol is in another table.
const MOST_SECTIONS: usize = 0xff00;
/// Functions of the device runtime, through which kernels launch kernels.
const DEVICE_RUNTIME: [&[u8]; 3] = [b"cudaLaunchDevice", b"cudaGetParameterBuffer", b"cudaCDP"];

/// The cubin or fatbin at the start of `bytes` with zeros in place of the code of kernels that are
/// not used and that no other code or data of the image refers to. Device functions stay.
///
/// `None` if that would leave nothing out, or if it is not certain what kernels can reach: in
/// relocatable cubins and in those that launch kernels from the device. Entries of a fatbin that
/// change are stored without compression; PTX and groups of entries stay as they are.
pub fn without_unused_code(bytes: &[u8], is_used: &dyn Fn(&str) -> bool) -> Option<Vec<u8>> {
    match kind(bytes) {
        ImageKind::Cubin => cubin_without(bytes, is_used),
        ImageKind::Fatbin => fatbin_without(bytes, is_used),
        _ => None,
    }
}

fn fatbin_without(bytes: &[u8], is_used: &dyn Fn(&str) -> bool) -> Option<Vec<u8>> {
    let entries = fatbin::entries(bytes).ok()?;
    let mut unpacker = Unpacker::new(&entries);
    let mut changed = HashMap::new();
    for entry in &entries {
        if entry.code != CodeKind::Elf || entry.is_member() {
            continue;
        }
        let smaller =
            entry.with_payload(&mut unpacker, |payload| Ok(cubin_without(payload, is_used)));
        // A well compressed entry may be smaller than its uncompressed rest.
        let smaller = smaller
            .ok()
            .flatten()
            .filter(|smaller| lz4_flex::block::compress(smaller).len() < entry.stored_length());
        changed.extend(smaller.map(|smaller| (entry.place(), smaller)));
    }
    if changed.is_empty() {
        return None;
    }
    fatbin::with_payloads(bytes, &changed)
}

fn cubin_without(bytes: &[u8], is_used: &dyn Fn(&str) -> bool) -> Option<Vec<u8>> {
    let (header, mut reader, names) = cubin::open(bytes).ok()?;
    if header.file_type != LINKED || !header.wide || reader.sections.len() >= MOST_SECTIONS {
        return None;
    }
    let tables = reader.sections.iter().enumerate();
    let mut tables = tables.filter(|(_, section)| section.kind == SHT_SYMTAB);
    let (table, strings) = tables.next().map(|(at, section)| (at, section.link))?;
    if tables.next().is_some() {
        return None;
    }
    let symbols = reader.symbols(table).ok()?;
    let mut code = Code::default();
    for (index, (section, name)) in reader.sections.iter().zip(&names).enumerate() {
        if section.kind == SHT_PROGBITS && name.starts_with(b".text.") {
            code.sections.insert(index, false);
        }
    }
    for symbol in &symbols {
        let name = reader.name(strings, symbol.name).ok()?;
        if DEVICE_RUNTIME.iter().any(|start| contains(name, start)) {
            return None;
        }
        let is_kernel = symbol.kind == STT_FUNC && symbol.other & OTHER_ENTRY != 0;
        let section = usize::from(symbol.section);
        if is_kernel && code.sections.contains_key(&section) {
            code.sections.insert(section, true);
            let is_used = std::str::from_utf8(name).map_or(true, is_used);
            if is_used {
                code.reached.push(section);
            }
        }
    }
    // Device functions may be called through pointers.
    let functions = code.sections.iter();
    let functions = functions.filter(|(_, has_kernel)| !**has_kernel);
    code.reached.extend(functions.map(|(&section, _)| section));
    code.references(&reader, &names, &symbols)?;
    let unused = code.unreached();
    blank(bytes, &reader, &unused)
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

/// The sections with machine code, and which refer to which.
#[derive(Default)]
struct Code {
    /// By number: whether the section has a kernel.
    sections: HashMap<usize, bool>,
    /// Sections that are used.
    reached: Vec<usize>,
    references: HashMap<usize, Vec<usize>>,
}

impl Code {
    /// Reads relocations and the call graph. `None` if a table is not understood.
    fn references(
        &mut self,
        reader: &Reader<'_>,
        names: &[&[u8]],
        symbols: &[Symbol],
    ) -> Option<()> {
        let of_name: HashMap<&[u8], usize> = names
            .iter()
            .enumerate()
            .filter_map(|(index, name)| Some((name.strip_prefix(b".text.")?, index)))
            .collect();
        let target = |symbol: u32| {
            let symbol = symbols.get(symbol as usize)?;
            Some(usize::from(symbol.section)).filter(|at| self.sections.contains_key(at))
        };
        let mut found = Vec::new();
        for (index, (section, name)) in reader.sections.iter().zip(names).enumerate() {
            let row = match section.kind {
                SHT_RELA => 24,
                SHT_REL => 16,
                _ if name.starts_with(b".nv.callgraph") => {
                    for call in reader.data(index).ok()?.chunks_exact(8) {
                        let caller = target(u32_at(call, 0)?);
                        let callee = target(u32_at(call, 4)?);
                        if let (Some(caller), Some(callee)) = (caller, callee) {
                            found.push((Some(caller), callee));
                        }
                    }
                    continue;
                }
                _ => continue,
            };
            let changed = section.info as usize;
            let changed_name = *names.get(changed)?;
            if changed_name.starts_with(b".debug") {
                continue;
            }
            let owner = match self.sections.contains_key(&changed) {
                true => Some(changed),
                // `.nv.constant2.NAME` is of the function with that name.
                false => changed_name
                    .strip_prefix(b".nv.constant")
                    .and_then(|rest| of_name.get(rest.get(2..)?).copied()),
            };
            for relocation in reader.data(index).ok()?.chunks_exact(row) {
                let symbol = (u64_at(relocation, 8)? >> 32) as u32;
                symbols.get(symbol as usize)?;
                found.extend(target(symbol).map(|target| (owner, target)));
            }
        }
        for (owner, target) in found {
            match owner {
                Some(owner) => self.references.entry(owner).or_default().push(target),
                // Data of the whole image.
                None => self.reached.push(target),
            }
        }
        Some(())
    }

    /// The sections that nothing used refers to, in order.
    fn unreached(mut self) -> Vec<usize> {
        let mut known = HashSet::new();
        while let Some(section) = self.reached.pop() {
            if known.insert(section) {
                self.reached
                    .extend(self.references.remove(&section).unwrap_or_default());
            }
        }
        let sections = self.sections.keys().copied();
        let mut unreached: Vec<usize> = sections.filter(|at| !known.contains(at)).collect();
        unreached.sort_unstable();
        unreached
    }
}

/// The cubin with zeros in these sections; `None` if that changes nothing or anything else.
fn blank(bytes: &[u8], reader: &Reader<'_>, unused: &[usize]) -> Option<Vec<u8>> {
    let mut out = bytes.to_vec();
    for &index in unused {
        let section = reader.sections.get(index)?;
        let start = usize::try_from(section.offset).ok()?;
        let end = start.checked_add(usize::try_from(section.size).ok()?)?;
        out.get_mut(start..end)?.fill(0);
    }
    let (_, blanked, _) = cubin::open(&out).ok()?;
    let rows = reader.sections.iter().zip(&blanked.sections);
    let is_same = |(a, b): (&Section, &Section)| {
        (a.name, a.kind, a.offset, a.size, a.link, a.info)
            == (b.name, b.kind, b.offset, b.size, b.link, b.info)
    };
    let are_same = reader.sections.len() == blanked.sections.len() && { rows }.all(is_same);
    // Sections of a damaged file may overlap.
    let mut others = (0..reader.sections.len()).filter(|at| unused.binary_search(at).is_err());
    let are_whole = others.all(|at| reader.data(at).ok() == blanked.data(at).ok());
    drop(blanked);
    (are_same && are_whole && out != bytes).then_some(out)
}

#[cfg(test)]
mod tests {
    use crate::build::{FatbinEntry, FunctionSpec, Packing};
    use crate::elf::u16_at;
    use crate::target::{Suffix, Target};

    use super::*;

    const TARGET: Target = Target {
        major: 9,
        minor: 0,
        suffix: Suffix::None,
    };

    /// A cubin of these functions, kernels but for the last, whose code is not zeros.
    fn cubin() -> Vec<u8> {
        let function = |(name, is_entry): (&str, bool)| FunctionSpec {
            name: name.to_owned(),
            is_entry,
            ..FunctionSpec::default()
        };
        let functions = [("a", true), ("b", true), ("a.b", true), ("called", false)];
        let functions: Vec<FunctionSpec> = functions.into_iter().map(function).collect();
        let mut bytes = crate::build::cubin(&functions, &[], TARGET);
        for (_, range) in code(&bytes) {
            for at in range {
                // Like code, it compresses badly.
                bytes[at] = (at * at / 7 % 251) as u8 | 1;
            }
        }
        bytes
    }

    /// Where the code of each function is.
    fn code(bytes: &[u8]) -> Vec<(String, std::ops::Range<usize>)> {
        let (_, reader, names) = cubin::open(bytes).unwrap();
        let sections = reader.sections.iter().zip(names);
        let sections = sections.filter_map(|(section, name)| {
            let name = name.strip_prefix(b".text.")?;
            let start = section.offset as usize;
            let range = start..start + section.size as usize;
            Some((String::from_utf8(name.to_vec()).unwrap(), range))
        });
        sections.collect()
    }

    /// The functions that have code.
    fn left(bytes: &[u8]) -> Vec<String> {
        let functions = code(bytes).into_iter();
        let functions = functions.filter(|(_, range)| bytes[range.clone()].iter().any(|&b| b != 0));
        functions.map(|(name, _)| name).collect()
    }

    #[test]
    fn only_unused_kernels_lose_their_code() {
        let bytes = cubin();
        for (used, expected) in [
            (&["a"][..], Some(&["a", "called"][..])),
            (&["a.b", "b"], Some(&["b", "a.b", "called"])),
            (&["called"], Some(&["called"])),
            (&[], Some(&["called"])),
            (&["a", "b", "a.b"], None),
        ] {
            let smaller = without_unused_code(&bytes, &|name| used.contains(&name));
            assert_eq!(
                smaller.as_deref().map(left).as_deref(),
                expected
                    .map(|names| {
                        names
                            .iter()
                            .map(|&name| name.to_owned())
                            .collect::<Vec<_>>()
                    })
                    .as_deref(),
                "{used:?}"
            );
            if let Some(smaller) = smaller {
                assert_eq!(cubin::read(&smaller), cubin::read(&bytes));
                assert_eq!(
                    without_unused_code(&smaller, &|name| used.contains(&name)),
                    None
                );
            }
        }
        // A relocatable cubin is linked with others.
        let mut relocatable = bytes;
        relocatable[16] = 1;
        assert_eq!(without_unused_code(&relocatable, &|_| false), None);
    }

    #[test]
    fn what_code_and_data_refer_to_stays() {
        let bytes = cubin();
        let (_, mut reader, names) = cubin::open(&bytes).unwrap();
        let section = |wanted: &str| names.iter().position(|name| *name == wanted.as_bytes());
        let table = reader
            .sections
            .iter()
            .position(|row| row.kind == SHT_SYMTAB)
            .unwrap();
        let strings = reader.sections[table].link;
        let symbols = reader.symbols(table).unwrap();
        let symbol = |wanted: &str| {
            let mut places = (0..).zip(&symbols);
            let found = places.find(|(_, symbol)| {
                symbol.kind == STT_FUNC
                    && reader.name(strings, symbol.name) == Ok(wanted.as_bytes())
            });
            found.unwrap().0
        };
        let [a, b, other] = ["a", "b", "a.b"].map({
            let mut symbol = symbol;
            move |name| symbol(name)
        });
        // Sections behind the end of the file, in place of rows that say nothing about code.
        let with = |kind: u32, info: usize, data: &[u8]| {
            let mut bytes = bytes.clone();
            let at = bytes.len();
            bytes.extend_from_slice(data);
            let row = section(".nv.info").unwrap() * usize::from(u16_at(&bytes, 58).unwrap())
                + u64_at(&bytes, 40).unwrap() as usize;
            bytes[row + 4..row + 8].copy_from_slice(&kind.to_le_bytes());
            bytes[row + 24..row + 32].copy_from_slice(&(at as u64).to_le_bytes());
            bytes[row + 32..row + 40].copy_from_slice(&(data.len() as u64).to_le_bytes());
            bytes[row + 44..row + 48].copy_from_slice(&(info as u32).to_le_bytes());
            let smaller = without_unused_code(&bytes, &|name| name == "a");
            smaller.as_deref().map(left)
        };
        let relocation = |symbol: u32| {
            let mut row = vec![0; 24];
            row[12..16].copy_from_slice(&symbol.to_le_bytes());
            row
        };
        let kept = |names: &[&str]| Some(names.iter().map(|&name| name.to_owned()).collect());
        let text = |name: &str| section(&format!(".text.{name}")).unwrap();
        let data = section(".strtab").unwrap();
        for (kind, info, rows, expected) in [
            (
                SHT_RELA,
                text("a"),
                relocation(b),
                kept(&["a", "b", "called"]),
            ),
            (
                SHT_RELA,
                text("b"),
                relocation(other),
                kept(&["a", "called"]),
            ),
            (
                SHT_RELA,
                text("called"),
                relocation(other),
                kept(&["a", "a.b", "called"]),
            ),
            (SHT_RELA, data, relocation(b), kept(&["a", "b", "called"])),
            (SHT_RELA, data, relocation(a), kept(&["a", "called"])),
            // Tables that are not understood.
            (SHT_RELA, data, relocation(10_000), None),
            (SHT_RELA, 10_000, relocation(a), None),
        ] {
            assert_eq!(with(kind, info, &rows), expected, "{kind} {info} {rows:?}");
        }
    }

    #[test]
    fn entries_of_a_fatbin_that_change_are_stored() {
        let cubin = cubin();
        let ptx = b".version 8.0\n.target sm_90\n.address_size 64\n.entry k() { ret; }\n";
        for packing in [Packing::Stored, Packing::Lz4, Packing::Zstd] {
            let entry = |code, payload| FatbinEntry {
                code,
                target: TARGET,
                payload,
                packing,
            };
            let entries = [entry(CodeKind::Elf, &cubin[..]), entry(CodeKind::Ptx, ptx)];
            let bytes = crate::build::fatbin(&entries);
            let Some(smaller) = without_unused_code(&bytes, &|name| name == "a") else {
                panic!("{packing:?}: nothing left out");
            };
            let (before, after) = (
                crate::parse(&bytes).unwrap(),
                crate::parse(&smaller).unwrap(),
            );
            assert_eq!(after.entries.len(), 2);
            for (before, after) in before.entries.iter().zip(&after.entries) {
                assert_eq!(before.content, after.content, "{packing:?}");
                assert_eq!(before.target, after.target);
            }
            assert!(!after.entries[0].compressed);
            crate::unpack(&smaller, |number, unpacked| {
                if number == 0 {
                    assert_eq!(left(unpacked.unwrap()), ["a", "called"]);
                }
            })
            .unwrap();
        }
    }
}
