//! Writes the library of forwarding functions, an ELF file.

use std::ops::Range;

use object::write::elf::{FileHeader, ProgramHeader, Rel, SectionHeader, SectionIndex, Sym};
use object::write::elf::{SymbolIndex, Writer};
use object::write::{Error, StringId};
use object::{Endianness, elf};

use super::LIBRARY;

/// The symbol of the interposer that the library imports.
pub(super) const RESOLVER: &str = "cutape_forward";

const PAGE: u64 = 4096;
/// Bytes of a function, and of the code that its slot points to at first.
const CODE: u64 = 16;
/// Bytes of a function's data: target, unresolved, name, next.
const ENTRY: u64 = 32;

/// The library that exports these functions.
pub(super) fn write(names: &[String]) -> Result<Vec<u8>, Error> {
    let mut file = Vec::new();
    let mut writer = Writer::new(Endianness::Little, true, &mut file);
    // In the order of the file.
    let layout = Layout::reserve(names, &mut writer)?;
    layout.write_headers(&mut writer)?;
    layout.write_symbols(names, &mut writer);
    layout.write_relocations(&mut writer);
    layout.write_code(&mut writer);
    layout.write_data(&mut writer)?;
    layout.write_sections(&mut writer);
    Ok(file)
}

/// Where the parts are. The address of each is its offset in the file.
struct Layout {
    /// The names of the functions.
    strings: Vec<StringId>,
    soname: StringId,
    resolver_name: StringId,
    resolver: SymbolIndex,
    text_name: StringId,
    text_section: SectionIndex,
    symbols: u32,
    hash: u64,
    dynsym: u64,
    dynstr: u64,
    rela: u64,
    relocations: usize,
    read_only: Range<u64>,
    text: Range<u64>,
    data: Range<u64>,
    dynamic: Range<u64>,
    /// The place of the resolver's address.
    resolver_slot: u64,
    entries: u64,
}

impl Layout {
    fn reserve<'a>(names: &'a [String], writer: &mut Writer<'a>) -> Result<Self, Error> {
        let count = names.len() as u64;
        writer.reserve_file_header();
        writer.reserve_program_headers(5);
        let text_section = writer.reserve_section_index();
        let text_name = writer.add_section_name(b".text");
        writer.reserve_hash_section_index();
        writer.reserve_dynsym_section_index();
        writer.reserve_dynstr_section_index();
        writer.reserve_dynamic_section_index();
        writer.reserve_shstrtab_section_index();
        let soname = writer.add_dynamic_string(LIBRARY.as_bytes());
        let resolver_name = writer.add_dynamic_string(RESOLVER.as_bytes());
        let resolver = writer.reserve_dynamic_symbol_index();
        let mut strings = Vec::with_capacity(names.len());
        for name in names {
            strings.push(writer.add_dynamic_string(name.as_bytes()));
            writer.reserve_dynamic_symbol_index();
        }
        let symbols = writer.dynamic_symbol_count();
        let hash = writer.reserve_hash(symbols, symbols);
        let dynsym = writer.reserve_dynsym();
        let dynstr = writer.reserve_dynstr()?;
        let relocations = 3 * names.len() + 1;
        let rela = writer.reserve_relocations(relocations, true);
        let read_only = 0..writer.reserved_len();
        let text = writer.reserve(2 * CODE * count, PAGE);
        let text = text..writer.reserved_len();
        let data = writer.reserve(0, PAGE);
        // Includes DT_NULL.
        let dynamic = writer.reserve_dynamic(11);
        let dynamic = dynamic..writer.reserved_len();
        let resolver_slot = writer.reserve(8, 8);
        let entries = writer.reserve(ENTRY * count, 16);
        let data = data..writer.reserved_len();
        writer.reserve_shstrtab()?;
        writer.reserve_section_headers();
        Ok(Self {
            strings,
            soname,
            resolver_name,
            resolver,
            text_name,
            text_section,
            symbols,
            hash,
            dynsym,
            dynstr,
            rela,
            relocations,
            read_only,
            text,
            data,
            dynamic,
            resolver_slot,
            entries,
        })
    }

    /// The address of a function's code.
    fn function(&self, index: u64) -> u64 {
        self.text.start + 2 * CODE * index
    }

    /// The address of a function's data.
    fn entry(&self, index: u64) -> u64 {
        self.entries + ENTRY * index
    }

    fn write_headers(&self, writer: &mut Writer<'_>) -> Result<(), Error> {
        writer.write_file_header(&FileHeader {
            os_abi: elf::ELFOSABI_SYSV,
            abi_version: 0,
            e_type: elf::ET_DYN,
            e_machine: elf::EM_X86_64,
            e_entry: 0,
            e_flags: elf::FileFlags(0),
        })?;
        writer.write_align_program_headers();
        let mut segment = |kind, flags, part: &Range<u64>, align| {
            writer.write_program_header(&ProgramHeader {
                p_type: kind,
                p_flags: flags,
                p_offset: part.start,
                p_vaddr: part.start,
                p_paddr: part.start,
                p_filesz: part.end - part.start,
                p_memsz: part.end - part.start,
                p_align: align,
            });
        };
        let data_flags = elf::PF_R | elf::PF_W;
        segment(elf::PT_LOAD, elf::PF_R, &self.read_only, PAGE);
        segment(elf::PT_LOAD, elf::PF_R | elf::PF_X, &self.text, PAGE);
        segment(elf::PT_LOAD, data_flags, &self.data, PAGE);
        segment(elf::PT_DYNAMIC, data_flags, &self.dynamic, 8);
        // Without it the loader makes the stack executable.
        segment(elf::PT_GNU_STACK, data_flags, &(0..0), 16);
        Ok(())
    }

    fn write_symbols(&self, names: &[String], writer: &mut Writer<'_>) {
        writer.write_hash(self.symbols, self.symbols, |symbol| {
            let name = names.get((symbol as usize).checked_sub(2)?)?;
            Some(elf::hash(name.as_bytes()))
        });
        writer.write_null_dynamic_symbol();
        let mut symbol = |name, section: Option<SectionIndex>, value, size| {
            writer.write_dynamic_symbol(&Sym {
                section: section.map(|section| section.0),
                st_name: writer.dynamic_string_offset(Some(name)),
                st_info: elf::SymbolInfo::new(elf::STB_GLOBAL, elf::STT_FUNC),
                st_other: elf::SymbolOther(0),
                st_shndx: elf::SHN_UNDEF,
                st_value: value,
                st_size: size,
            });
        };
        symbol(self.resolver_name, None, 0, 0);
        for (index, &name) in (0..).zip(&self.strings) {
            symbol(name, Some(self.text_section), self.function(index), 10);
        }
        writer.write_dynstr();
    }

    fn write_relocations(&self, writer: &mut Writer<'_>) {
        writer.write_align_relocation();
        let relocation = |offset, symbol, kind, addend: u64| Rel {
            r_offset: offset,
            r_sym: symbol,
            r_type: kind,
            r_addend: addend as i64,
        };
        for (index, &name) in (0..).zip(&self.strings) {
            let entry = self.entry(index);
            let unresolved = self.function(index) + CODE;
            let name = self.dynstr + u64::from(writer.dynamic_string_offset(Some(name)));
            for (offset, value) in [(0, unresolved), (8, unresolved), (16, name)] {
                let relative = relocation(entry + offset, 0, elf::R_X86_64_RELATIVE, value);
                writer.write_relocation(true, &relative);
            }
        }
        let kind = elf::R_X86_64_GLOB_DAT;
        let address = relocation(self.resolver_slot, self.resolver.0, kind, 0);
        writer.write_relocation(true, &address);
    }

    fn write_code(&self, writer: &mut Writer<'_>) {
        writer.pad_until(self.text.start);
        for index in 0..self.strings.len() as u64 {
            let (function, entry) = (self.function(index), self.entry(index));
            writer.write(&code(function, entry, self.resolver_slot));
        }
    }

    /// Writes the dynamic section; relocations fill the rest of the data.
    fn write_data(&self, writer: &mut Writer<'_>) -> Result<(), Error> {
        writer.pad_until(self.data.start);
        writer.write_align_dynamic();
        writer.write_dynamic_string(elf::DT_SONAME, self.soname)?;
        for (tag, value) in [
            (elf::DT_HASH, self.hash),
            (elf::DT_SYMTAB, self.dynsym),
            (elf::DT_SYMENT, 24),
            (elf::DT_STRTAB, self.dynstr),
            (elf::DT_STRSZ, u64::from(writer.dynstr_len())),
            (elf::DT_RELA, self.rela),
            (elf::DT_RELASZ, 24 * self.relocations as u64),
            (elf::DT_RELAENT, 24),
            (elf::DT_RELACOUNT, self.relocations as u64 - 1),
            (elf::DT_NULL, 0),
        ] {
            writer.write_dynamic(tag, value)?;
        }
        writer.pad_until(self.data.end);
        Ok(())
    }

    fn write_sections(&self, writer: &mut Writer<'_>) {
        writer.write_shstrtab();
        writer.write_null_section_header();
        writer.write_section_header(&SectionHeader {
            sh_name: writer.section_name_offset(Some(self.text_name)),
            sh_type: elf::SHT_PROGBITS,
            sh_flags: elf::SHF_ALLOC | elf::SHF_EXECINSTR,
            sh_addr: self.text.start,
            sh_offset: self.text.start,
            sh_size: self.text.end - self.text.start,
            sh_link: 0,
            sh_info: 0,
            sh_addralign: CODE,
            sh_entsize: 0,
        });
        writer.write_hash_section_header(self.hash);
        writer.write_dynsym_section_header(self.dynsym, 1);
        writer.write_dynstr_section_header(self.dynstr);
        writer.write_dynamic_section_header(self.dynamic.start);
        writer.write_shstrtab_section_header();
    }
}

/// A function's code: `endbr64; jmp *entry`, followed by `lea entry, %r11; jmp *resolver`.
fn code(address: u64, entry: u64, resolver: u64) -> [u8; 2 * CODE as usize] {
    // The padding is int3.
    let mut code = [0xcc; 2 * CODE as usize];
    let mut put = |at: usize, opcode: &[u8], target: u64| {
        let end = at + opcode.len() + 4;
        // Less than 2 GiB apart: the library is small.
        let distance = target.wrapping_sub(address + end as u64) as u32;
        code[at..at + opcode.len()].copy_from_slice(opcode);
        code[end - 4..end].copy_from_slice(&distance.to_le_bytes());
        end
    };
    put(0, &[0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25], entry);
    let end = put(CODE as usize, &[0x4c, 0x8d, 0x1d], entry);
    put(end, &[0xff, 0x25], resolver);
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_jumps_through_the_entry() {
        let code = code(0x1000, 0x3040, 0x3000);
        // Relative to the end of each jump: 0x100a + 0x2036; 0x1017 + 0x2029; 0x101d + 0x1fe3.
        assert_eq!(
            code[..10],
            [0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 0x36, 0x20, 0, 0]
        );
        assert_eq!(
            code[16..29],
            [
                0x4c, 0x8d, 0x1d, 0x29, 0x20, 0, 0, 0xff, 0x25, 0xe3, 0x1f, 0, 0
            ]
        );
    }
}
