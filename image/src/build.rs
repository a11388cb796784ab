//! Makes small images that hold no executable code, for tests and for a driver that runs none.
//!
//! The images are well-formed and read back as what was put in, but no GPU can run them: the code
//! sections are zeros.

use crate::content::{Function, Global};
use crate::cubin::{
    DEPENDENCY_WAIT, EARLY_TRIGGER, INSTRUCTION, OS_ABI, OTHER_ENTRY, OTHER_MANAGED,
    reserved_shared,
};
use crate::elf::{EM_CUDA, SHT_NOBITS};
use crate::fatbin::{
    ENTRY_HEADER, FLAG_64_BIT, FLAG_ARCH, FLAG_FAMILY, FLAG_LINUX, FLAG_LZ4, FLAG_ZSTD, KIND_ELF,
    KIND_PTX,
};
use crate::info;
use crate::kind::FATBIN_MAGIC;
use crate::target::{CodeKind, Suffix, Target};

/// A function to put into a cubin. `const_bytes` is ignored: it follows from the constant
/// variables.
pub type FunctionSpec = Function;

/// A variable to put into a cubin; `initial` is cut or filled with zeros to `size`.
pub type GlobalSpec = Global;

/// How a fatbin entry is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// As it is.
    Stored,
    /// One LZ4 block, as CUDA 12 does.
    Lz4,
    /// A zstd frame, as CUDA 13 does.
    Zstd,
}

/// An entry to put into a fatbin.
#[derive(Clone, Copy, Debug)]
pub struct FatbinEntry<'a> {
    /// Elf or Ptx; another kind is written with its number.
    pub code: CodeKind,
    /// The target in the header.
    pub target: Target,
    /// A whole cubin, or a PTX text (its NUL is added).
    pub payload: &'a [u8],
    /// How it is stored.
    pub packing: Packing,
}

const CODE_SIZE: usize = 128;
/// Initial values that together take more bytes are left out.
const MAX_DATA: u64 = 256 << 20;
/// Symbols number their sections with 16 bits, and a function takes up to three.
const MAX_FUNCTIONS: usize = 16_000;
const SHT_PROGBITS: u32 = 1;
const SHT_SYMTAB: u32 = 2;
const SHT_STRTAB: u32 = 3;
const SHT_CUDA_INFO: u32 = 0x7000_0000;

struct Section {
    name: String,
    kind: u32,
    data: Vec<u8>,
    /// Bytes; more than `data` has for a section without bytes in the file.
    size: u64,
    link: u32,
    info: u32,
    align: u64,
    row: u64,
}

impl Section {
    fn new(name: impl Into<String>, kind: u32, data: Vec<u8>) -> Self {
        let size = data.len() as u64;
        Section {
            name: name.into(),
            kind,
            data,
            size,
            link: 0,
            info: 0,
            align: 4,
            row: 0,
        }
    }

    fn empty(name: impl Into<String>, size: u64) -> Self {
        Section {
            size,
            ..Section::new(name, SHT_NOBITS, Vec::new())
        }
    }
}

/// Section numbers that are the same in every file.
const NAMES: u32 = 1;
const STRINGS: u32 = 2;
const SYMBOLS: u32 = 3;
/// After the three and `.nv.info`, the sections that the content needs.
const FIXED: u32 = 5;

#[derive(Default)]
struct Symbols {
    strings: Vec<u8>,
    rows: Vec<u8>,
}

impl Symbols {
    /// Adds one and returns its index.
    fn add(&mut self, name: &str, info: u8, other: u8, section: u16, value: u64, size: u64) -> u32 {
        let index = (self.rows.len() / 24) as u32;
        let at = if name.is_empty() {
            0
        } else {
            self.strings.len() as u32
        };
        if self.strings.is_empty() || at != 0 {
            // In the file a NUL would end the name.
            self.strings.extend(name.bytes().filter(|&b| b != 0));
            self.strings.push(0);
        }
        self.rows.extend(at.to_le_bytes());
        self.rows.extend([info, other]);
        self.rows.extend(section.to_le_bytes());
        self.rows.extend(value.to_le_bytes());
        self.rows.extend(size.to_le_bytes());
        index
    }
}

/// A linked 64-bit cubin in the layout of CUDA 13 (OS ABI 65) with these functions and variables
/// and no code.
///
/// External variables are left out. Only the first 16,000 functions are taken, and initial values
/// only up to 256 MiB in all.
pub fn cubin(functions: &[FunctionSpec], globals: &[GlobalSpec], target: Target) -> Vec<u8> {
    let mut symbols = Symbols::default();
    symbols.add("", 0, 0, 0, 0, 0);
    let mut sections = Vec::new();
    let mut all_info = Vec::new();
    let mut next = FIXED;
    let mut place = |section: Section, sections: &mut Vec<Section>| {
        sections.push(section);
        next += 1;
        next - 1
    };
    for function in functions.iter().take(MAX_FUNCTIONS) {
        let code = Section {
            align: 128,
            ..Section::new(
                format!(".text.{}", function.name),
                SHT_PROGBITS,
                code(function),
            )
        };
        let text = place(code, &mut sections);
        let other = if function.is_entry { OTHER_ENTRY } else { 0 };
        let symbol = symbols.add(
            &function.name,
            0x12,
            other,
            text as u16,
            0,
            CODE_SIZE as u64,
        );
        if let Some(registers) = function.registers {
            record(&mut all_info, info::REGISTERS, &[symbol, registers]);
        }
        let frame = u32::try_from(function.local_bytes).unwrap_or(u32::MAX);
        record(&mut all_info, info::FRAME_SIZE, &[symbol, frame]);
        let mut own = Section::new(
            format!(".nv.info.{}", function.name),
            SHT_CUDA_INFO,
            own_info(function),
        );
        (own.link, own.info) = (SYMBOLS, text);
        place(own, &mut sections);
        if function.shared_bytes != 0 {
            let shared = Section::empty(
                format!(".nv.shared.{}", function.name),
                function
                    .shared_bytes
                    .saturating_add(reserved_shared(Some(target), true)),
            );
            place(
                Section {
                    info: text,
                    ..shared
                },
                &mut sections,
            );
        }
    }
    variables(globals, &mut symbols, &mut |section| {
        place(section, &mut sections)
    });
    // The flags cannot hold the suffix `f`, so the options are noted as the assembler does.
    let note = format!("\0ptxas\0cutape: no executable code\0-arch {target} \0");
    place(
        Section::new(".note.nv.tkinfo", 7, note.into_bytes()),
        &mut sections,
    );

    let strings = Section {
        align: 1,
        ..Section::new(".strtab", SHT_STRTAB, symbols.strings)
    };
    let rows = Section {
        link: STRINGS,
        info: 1,
        align: 8,
        row: 24,
        ..Section::new(".symtab", SHT_SYMTAB, symbols.rows)
    };
    let facts = Section {
        link: SYMBOLS,
        ..Section::new(".nv.info", SHT_CUDA_INFO, all_info)
    };
    sections.splice(0..0, [strings, rows, facts]);
    file(sections, target)
}

/// Adds the variables and their three sections.
fn variables(globals: &[GlobalSpec], symbols: &mut Symbols, place: &mut dyn FnMut(Section) -> u32) {
    for name in [".nv.constant3", ".nv.global.init", ".nv.global"] {
        let belongs = |global: &&GlobalSpec| {
            let section = match (global.constant, &global.initial) {
                (true, _) => ".nv.constant3",
                (false, Some(_)) => ".nv.global.init",
                (false, None) => ".nv.global",
            };
            !global.external && section == name
        };
        let mut rows = Vec::new();
        let mut end = 0_u64;
        for global in globals.iter().filter(belongs) {
            let at = end.checked_next_multiple_of(8).unwrap_or(u64::MAX);
            end = at.saturating_add(global.size);
            rows.push((global, at));
        }
        if rows.is_empty() {
            continue;
        }
        let mut section = Section::empty(name, end);
        if name != ".nv.global" && end <= MAX_DATA {
            let mut data = Vec::new();
            for (global, at) in &rows {
                let initial = global.initial.as_deref().unwrap_or_default();
                data.resize(*at as usize, 0);
                data.extend(initial.iter().take(global.size as usize));
            }
            data.resize(end as usize, 0);
            section = Section::new(name, SHT_PROGBITS, data);
        }
        let index = place(Section {
            align: 8,
            ..section
        });
        for (global, at) in rows {
            let other = if global.managed { OTHER_MANAGED } else { 0 };
            symbols.add(&global.name, 0x11, other, index as u16, at, global.size);
        }
    }
}

fn record(out: &mut Vec<u8>, attribute: u8, words: &[u32]) {
    out.extend([info::FORMAT_SIZED, attribute]);
    out.extend((words.len() as u16 * 4).to_le_bytes());
    out.extend(words.iter().flat_map(|w| w.to_le_bytes()));
}

/// Zeros, but for the operations that readers look for.
fn code(function: &FunctionSpec) -> Vec<u8> {
    let mut code = vec![0; CODE_SIZE];
    let uses = function.uses;
    let marks = [
        (uses.early_trigger, EARLY_TRIGGER),
        (uses.dependency_wait, DEPENDENCY_WAIT),
    ];
    for (place, (_, mark)) in code
        .chunks_exact_mut(INSTRUCTION)
        .zip(marks.iter().filter(|m| m.0))
    {
        if let Some(opcode) = place.first_chunk_mut() {
            *opcode = mark.to_le_bytes();
        }
    }
    code
}

fn own_info(function: &FunctionSpec) -> Vec<u8> {
    let mut out = Vec::new();
    for (ordinal, parameter) in function.parameters.iter().enumerate().rev() {
        let place = ordinal as u32 & 0xffff | parameter.offset << 16;
        if parameter.size < 1 << 14 {
            record(&mut out, info::PARAMETER, &[0, place, parameter.size << 18]);
        } else {
            record(&mut out, info::PARAMETER_WIDE, &[0, place, parameter.size]);
        }
    }
    if let Some(most) = function.max_threads {
        record(&mut out, info::MAX_THREADS, &[most, 1, 1]);
    }
    if let Some(shape) = &function.required_threads {
        record(&mut out, info::REQUIRED_THREADS, shape);
    }
    if function.needs_cluster {
        out.extend([info::FORMAT_EMPTY, info::NEEDS_CLUSTER, 0, 0]);
    }
    if let Some(shape) = &function.required_cluster {
        record(&mut out, info::REQUIRED_CLUSTER, shape);
    }
    if let Some(most) = function.max_cluster_blocks {
        record(&mut out, info::MAX_CLUSTER, &[most]);
    }
    out
}

/// Writes the header, the sections (first the one of names), and the section table.
fn file(mut sections: Vec<Section>, target: Target) -> Vec<u8> {
    const NAMES_SECTION: &str = ".shstrtab";
    let mut names = vec![0];
    let mut name_at = Vec::new();
    let others = sections.iter().map(|section| section.name.as_str());
    for name in std::iter::once(NAMES_SECTION).chain(others) {
        name_at.push(names.len() as u32);
        names.extend(name.bytes().filter(|&b| b != 0));
        names.push(0);
    }
    sections.insert(0, Section::new(NAMES_SECTION, SHT_STRTAB, names));

    let mut out = vec![0; 64];
    // The first row of the table is empty.
    let mut table = vec![0_u8; 64];
    for (section, name) in sections.iter().zip(name_at) {
        out.resize(out.len().next_multiple_of(section.align as usize), 0);
        let offset = out.len() as u64;
        out.extend(&section.data);
        for word in [name, section.kind] {
            table.extend(word.to_le_bytes());
        }
        for long in [0, 0, offset, section.size] {
            table.extend(long.to_le_bytes());
        }
        for word in [section.link, section.info] {
            table.extend(word.to_le_bytes());
        }
        for long in [section.align, section.row] {
            table.extend(long.to_le_bytes());
        }
    }
    out.resize(out.len().next_multiple_of(8), 0);
    let sections_at = out.len() as u64;
    out.extend(table);

    let arch = if target.suffix == Suffix::Arch {
        0x8
    } else {
        0
    };
    let flags: u32 = 0x0600_0002 | arch | u32::from(target.number() & 0xff) << 8;
    let mut header = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, OS_ABI, 8];
    header.resize(16, 0);
    let halves = |out: &mut Vec<u8>, values: &[u16]| {
        out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    };
    // e_type (ET_EXEC), e_machine, e_version; no entry point and no program headers.
    halves(&mut header, &[2, EM_CUDA, 1]);
    header.resize(40, 0);
    header.extend(sections_at.to_le_bytes());
    header.extend(flags.to_le_bytes());
    halves(
        &mut header,
        &[64, 56, 0, 64, sections.len() as u16 + 1, NAMES as u16],
    );
    out.splice(..header.len(), header);
    out
}

/// A fatbin container with these entries.
pub fn fatbin(entries: &[FatbinEntry<'_>]) -> Vec<u8> {
    let mut body = Vec::new();
    for entry in entries {
        let kind = match entry.code {
            CodeKind::Elf => KIND_ELF,
            CodeKind::Ptx => KIND_PTX,
            CodeKind::LtoIr => 8,
            CodeKind::Other(number) => number,
        };
        let mut payload = entry.payload.to_vec();
        if entry.code == CodeKind::Ptx {
            payload.push(0);
        }
        let original = payload.len() as u64;
        let (flag, mut packed) = match entry.packing {
            Packing::Stored => (0, payload),
            Packing::Lz4 => (FLAG_LZ4, lz4_flex::block::compress(&payload)),
            Packing::Zstd => {
                let level = ruzstd::encoding::CompressionLevel::Fastest;
                (
                    FLAG_ZSTD,
                    ruzstd::encoding::compress_to_vec(&payload[..], level),
                )
            }
        };
        let suffix = match entry.target.suffix {
            Suffix::None => 0,
            Suffix::Arch => FLAG_ARCH,
            Suffix::Family => FLAG_FAMILY,
        };
        let flags = FLAG_64_BIT | FLAG_LINUX | flag | suffix;
        // Stored entries leave both sizes of compression 0.
        let (packed_size, original) = if flag == 0 {
            (0, 0)
        } else {
            (packed.len() as u32, original)
        };
        packed.resize(packed.len().next_multiple_of(8), 0);
        body.extend(kind.to_le_bytes());
        body.extend(0x101_u16.to_le_bytes());
        body.extend((ENTRY_HEADER as u32).to_le_bytes());
        body.extend((packed.len() as u64).to_le_bytes());
        body.extend(packed_size.to_le_bytes());
        body.extend(0_u32.to_le_bytes());
        // Minor, then major: the ABI of cubins, and a PTX version that stands for any.
        body.extend((if kind == KIND_ELF { 8 } else { 0_u16 }).to_le_bytes());
        body.extend((if kind == KIND_ELF { 1 } else { 8_u16 }).to_le_bytes());
        body.extend(u32::from(entry.target.number()).to_le_bytes());
        body.extend([0; 8]);
        body.extend(flags.to_le_bytes());
        body.extend(0_u64.to_le_bytes());
        body.extend(original.to_le_bytes());
        body.extend(packed);
    }
    let mut out = Vec::with_capacity(16 + body.len());
    out.extend(FATBIN_MAGIC.to_le_bytes());
    out.extend(1_u16.to_le_bytes());
    out.extend(16_u16.to_le_bytes());
    out.extend((body.len() as u64).to_le_bytes());
    out.extend(body);
    out
}
