//! Reads a cubin: an ELF file whose sections are named after the functions they serve.

use std::collections::HashMap;

use crate::content::{Content, Function, Global, KNOWN_CODE, Uses, is_of_heap, supplied_by_driver};
use crate::elf::{
    EM_CUDA, ElfError, Header, SHT_NOBITS, Section, range, u8_at, u16_at, u32_at, u64_at,
};
use crate::info;
use crate::kind::until_nul;
use crate::problem::{Place, Problem, ProblemKind};
use crate::target::{Suffix, Target};

/// EI_OSABI of cubins made by CUDA 13, and for sm_100 and later by CUDA 12; before, it was 51.
pub(crate) const OS_ABI: u8 = 65;
/// st_other: the function is a kernel.
pub(crate) const OTHER_ENTRY: u8 = 0x10;
/// st_other: the variable is managed.
pub(crate) const OTHER_MANAGED: u8 = 0x04;
/// st_other: in shared memory, which is never resolved by name.
const OTHER_SHARED: u8 = 0x40;
/// Bytes that each kernel's shared section has for the system once the cubin is linked, beside the
/// static shared memory: 1024 from sm_90 on (seen in `ptxas` 11.8, 12.1, 12.3, 12.9, 13.0 and 13.5;
/// the first three write no section `.nv.shared.reserved.0`;
/// CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK).
pub(crate) fn reserved_shared(target: Option<Target>, is_linked: bool) -> u64 {
    match target {
        Some(target) if is_linked && target.major >= 9 => 1024,
        _ => 0,
    }
}

/// Bytes of an instruction of [`KNOWN_CODE`], and the bits of its operation.
pub(crate) const INSTRUCTION: usize = 16;
const OPCODE: u16 = 0xfff;
/// PREEXIT and ACQBULK: `griddepcontrol.launch_dependents` and `.wait`.
pub(crate) const EARLY_TRIGGER: u16 = 0x82d;
pub(crate) const DEPENDENCY_WAIT: u16 = 0x82e;

pub(crate) const SHT_SYMTAB: u32 = 2;
const STT_OBJECT: u8 = 1;
pub(crate) const STT_FUNC: u8 = 2;
const STT_TEXTURE: u8 = 10;
const STT_SAMPLER: u8 = 11;
const STT_SURFACE: u8 = 12;
/// A variable in a relocatable cubin.
const STT_CUDA_OBJECT: u8 = 13;
const STB_WEAK: u8 = 2;

pub(crate) struct Symbol {
    pub(crate) name: u32,
    pub(crate) kind: u8,
    bind: u8,
    pub(crate) other: u8,
    pub(crate) section: u16,
    value: u64,
    size: u64,
}

/// Reads the cubin at the start of `bytes`.
pub(crate) fn read(bytes: &[u8]) -> Result<Content, Problem> {
    let (header, mut reader, names) = open(bytes)?;
    let mut content = Content {
        relocatable: header.file_type == 1,
        address_bits: if header.wide { 64 } else { 32 },
        ..Content::default()
    };
    let tool = reader.tool(&names);
    content.target = target(&header, tool.as_deref());
    let producer = tool.as_deref().unwrap_or_default().lines();
    content.producer = producer
        .into_iter()
        .find(|line| line.contains("compilation tools"))
        .map(str::to_owned);
    reader.collect(&names, &mut content)?;
    Ok(content)
}

/// The header, the sections, and their names.
pub(crate) fn open(bytes: &[u8]) -> Result<(Header, Reader<'_>, Vec<&[u8]>), Problem> {
    let header = Header::read(bytes).map_err(elf_problem)?;
    if header.machine != EM_CUDA {
        let what = format!(
            "an ELF file for machine {}, not for CUDA (190)",
            header.machine
        );
        return Err(Problem::new(
            ProblemKind::Unsupported,
            Place::Byte(18),
            what,
        ));
    }
    let count = header.section_count(bytes).map_err(elf_problem)?;
    // Each row takes 40 bytes at least.
    let length = bytes.len() as u64;
    if count > length / 40 {
        return Err(Problem::truncated(
            length,
            format!("too short for {count} sections"),
        ));
    }
    let sections = (0..count)
        .map(|i| header.section(bytes, i))
        .collect::<Result<Vec<_>, _>>()
        .map_err(elf_problem)?;
    // The names of a valid file share few bytes; overlapping tables could make them arbitrarily
    // long.
    let budget = bytes.len().saturating_mul(16).saturating_add(1 << 20);
    let mut reader = Reader {
        bytes,
        wide: header.wide,
        sections,
        budget,
    };
    let names_index = header.names_index(bytes).map_err(elf_problem)?;
    let offsets: Vec<u32> = reader.sections.iter().map(|section| section.name).collect();
    let names = offsets
        .into_iter()
        .map(|offset| reader.name(names_index, offset));
    let names = names.collect::<Result<Vec<_>, _>>()?;
    Ok((header, reader, names))
}

/// Sections with machine code, constants and their relocations: name and content. Notes, which have
/// the time of the compilation, and sections for debuggers are left out, and so is `.nv.info`,
/// which has the toolkit's version.
pub(crate) fn code(bytes: &[u8]) -> Result<Vec<(String, Vec<u8>)>, Problem> {
    let (_, mut reader, names) = open(bytes)?;
    let symbols = reader.sections.iter().enumerate();
    let symbols = symbols.filter(|(_, section)| section.kind == SHT_SYMTAB);
    let table = symbols.map(|(at, section)| (at, section.link)).next();
    let symbols = match table {
        Some((at, _)) => reader.symbols(at)?,
        None => Vec::new(),
    };
    let mut found = Vec::new();
    for (index, &name) in names.iter().enumerate() {
        let is_relocation = name.starts_with(b".rel");
        let bare = match is_relocation {
            true => name.get(
                name.iter()
                    .skip(1)
                    .position(|&b| b == b'.')
                    .map_or(0, |at| at + 1)..,
            ),
            false => Some(name),
        };
        let bare = bare.unwrap_or_default();
        if !bare.starts_with(b".text.") && !bare.starts_with(b".nv.constant") {
            continue;
        }
        let data = reader.data(index)?;
        reader.spend(data.len())?;
        let kept = match is_relocation {
            true => {
                let strings = table.map_or(0, |(_, strings)| strings);
                reader.relocations(name.starts_with(b".rela"), data, &symbols, strings)?
            }
            false => data.to_vec(),
        };
        found.push((text(name), kept));
    }
    Ok(found)
}

fn elf_problem(error: ElfError) -> Problem {
    match error {
        ElfError::Short(need) => Problem::truncated(need, "the ELF headers reach to here"),
        ElfError::Bad => Problem::malformed(0, "the ELF headers contradict themselves"),
    }
}

/// The target by the flags; only the note of the assembler's options has the suffix `f` and, from
/// CUDA 13 on, `a`.
fn target(header: &Header, tool: Option<&str>) -> Option<Target> {
    let (number, arch) = if header.os_abi == OS_ABI {
        (header.flags >> 8 & 0xff, header.flags & 0x8 != 0)
    } else {
        (header.flags & 0xff, header.flags & 0x800 != 0)
    };
    let plain = Target::from_number(number as u16, Suffix::None);
    let noted = tool
        .and_then(|t| t.split_whitespace().filter_map(Target::from_name).next())
        .filter(|t| (t.major, t.minor) == (plain.major, plain.minor));
    let suffix = if arch {
        Suffix::Arch
    } else {
        noted.map_or(Suffix::None, |t| t.suffix)
    };
    (number != 0).then_some(Target { suffix, ..plain })
}

pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    wide: bool,
    pub(crate) sections: Vec<Section>,
    budget: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn data(&self, index: usize) -> Result<&'a [u8], Problem> {
        let Some(section) = self.sections.get(index) else {
            return Err(Problem::malformed(
                0,
                format!("there is no section {index}"),
            ));
        };
        if section.kind == SHT_NOBITS {
            return Ok(&[]);
        }
        let end = section.offset.checked_add(section.size);
        let data = end.and_then(|end| range(self.bytes, section.offset, end));
        let what = || format!("section {index} ends beyond the file");
        data.ok_or_else(|| Problem::truncated(section.offset, what()))
    }

    fn spend(&mut self, bytes: usize) -> Result<(), Problem> {
        self.budget = self.budget.checked_sub(bytes).ok_or_else(|| {
            Problem::too_large("names and initial values are longer than the file")
        })?;
        Ok(())
    }

    /// The string at `offset` of string table `table`.
    pub(crate) fn name(&mut self, table: u32, offset: u32) -> Result<&'a [u8], Problem> {
        if table == 0 {
            return Ok(&[]);
        }
        let strings = self.data(table as usize)?;
        let name = until_nul(strings.get(offset as usize..).unwrap_or_default());
        self.spend(name.len() + 1)?;
        Ok(name)
    }

    /// The printable strings of the note in which the assembler names itself, one a line.
    fn tool(&mut self, names: &[&[u8]]) -> Option<String> {
        let index = names.iter().position(|n| *n == b".note.nv.tkinfo")?;
        let data = self.data(index).ok()?;
        let note = data.get(..4096).unwrap_or(data);
        let words = note.split(|&b| b == 0);
        let words = words.filter(|w| w.len() > 3 && w.iter().all(|b| (0x20..0x7f).contains(b)));
        Some(words.map(text).collect::<Vec<_>>().join("\n"))
    }

    pub(crate) fn symbols(&self, table: usize) -> Result<Vec<Symbol>, Problem> {
        let data = self.data(table)?;
        let row = if self.wide { 24 } else { 16 };
        let read = |row: &[u8]| {
            let (at, value, size) = match self.wide {
                true => (4, u64_at(row, 8)?, u64_at(row, 16)?),
                false => (12, u32_at(row, 4)?.into(), u32_at(row, 8)?.into()),
            };
            let info = u8_at(row, at)?;
            Some(Symbol {
                name: u32_at(row, 0)?,
                kind: info & 0xf,
                bind: info >> 4,
                other: u8_at(row, at + 1)?,
                section: u16_at(row, at + 2)?,
                value,
                size,
            })
        };
        Ok(data.chunks_exact(row).filter_map(read).collect())
    }

    /// Relocations with the names of their symbols, whose numbers depend on other sections.
    fn relocations(
        &mut self,
        has_addend: bool,
        data: &[u8],
        symbols: &[Symbol],
        strings: u32,
    ) -> Result<Vec<u8>, Problem> {
        let row = match (self.wide, has_addend) {
            (true, true) => 24,
            (true, false) => 16,
            (false, true) => 12,
            (false, false) => 8,
        };
        let mut kept = Vec::new();
        for row in data.chunks_exact(row) {
            let (symbol, head) = match self.wide {
                true => (u32_at(row, 12), 12),
                false => (u32_at(row, 4).map(|info| info >> 8), 5),
            };
            let (before, after) = row.split_at_checked(head).unwrap_or((row, &[]));
            kept.extend_from_slice(before);
            // The number of the symbol has four bytes, or three.
            kept.extend_from_slice(
                after
                    .get(if self.wide { 4 } else { 3 }..)
                    .unwrap_or_default(),
            );
            let symbol = symbol.and_then(|number| symbols.get(number as usize));
            let name = symbol.map_or(Ok(&[][..]), |symbol| self.name(strings, symbol.name))?;
            kept.extend_from_slice(name);
            kept.push(0);
        }
        Ok(kept)
    }

    fn collect(&mut self, names: &[&[u8]], content: &mut Content) -> Result<(), Problem> {
        let mut sections = self.sections.iter().enumerate();
        let Some((table, section)) = sections.find(|(_, s)| s.kind == SHT_SYMTAB) else {
            return Ok(());
        };
        let strings = section.link;
        let symbols = self.symbols(table)?;
        let mut by_name: HashMap<&[u8], usize> = HashMap::new();
        let mut by_symbol: HashMap<u32, usize> = HashMap::new();
        for (index, symbol) in symbols.iter().enumerate() {
            let section_name = names.get(usize::from(symbol.section)).copied();
            let section_name = section_name.unwrap_or_default();
            let variable = matches!(symbol.kind, STT_OBJECT | STT_CUDA_OBJECT);
            let undefined = symbol.section == 0;
            if symbol.kind == STT_FUNC && !undefined && section_name.starts_with(b".text.") {
                let name = self.name(strings, symbol.name)?;
                by_symbol.insert(index as u32, content.functions.len());
                by_name.insert(name, content.functions.len());
                content.functions.push(Function {
                    name: text(name),
                    is_entry: symbol.other & OTHER_ENTRY != 0,
                    ..Function::default()
                });
            } else if variable && !undefined {
                self.variable(strings, symbol, section_name, content)?;
            } else if matches!(symbol.kind, STT_TEXTURE | STT_SURFACE) {
                let name = text(self.name(strings, symbol.name)?);
                match symbol.kind {
                    STT_TEXTURE => content.textures.push(name),
                    _ => content.surfaces.push(name),
                }
            } else if undefined
                && symbol.bind != 0
                && symbol.bind != STB_WEAK
                && symbol.kind != STT_SAMPLER
                && symbol.other & OTHER_SHARED == 0
            {
                let name = text(self.name(strings, symbol.name)?);
                content.uses_heap |= is_of_heap(&name);
                if name.is_empty() || supplied_by_driver(&name) {
                    continue;
                }
                if variable {
                    content.globals.push(Global {
                        name: name.clone(),
                        size: symbol.size,
                        constant: symbol.other & 0x80 != 0,
                        managed: symbol.other & OTHER_MANAGED != 0,
                        initial: None,
                        external: true,
                    });
                }
                content.undefined.push(name);
            }
        }
        self.per_function(names, &by_name, &by_symbol, content)
    }

    fn variable(
        &mut self,
        strings: u32,
        symbol: &Symbol,
        section_name: &[u8],
        content: &mut Content,
    ) -> Result<(), Problem> {
        let constant = section_name.starts_with(b".nv.constant3");
        if !constant && !section_name.starts_with(b".nv.global") {
            return Ok(());
        }
        let name = self.name(strings, symbol.name)?;
        if name.is_empty() {
            return Ok(());
        }
        let data = self.data(usize::from(symbol.section))?;
        let end = symbol.value.checked_add(symbol.size);
        let initial = end.and_then(|end| range(data, symbol.value, end));
        if let Some(initial) = initial {
            self.spend(initial.len())?;
        }
        content.globals.push(Global {
            name: text(name),
            size: symbol.size,
            constant,
            managed: symbol.other & OTHER_MANAGED != 0,
            // A constant without an initial value is zeros in the file; both count as none.
            initial: initial
                .filter(|i| i.iter().any(|&b| b != 0))
                .map(<[u8]>::to_vec),
            external: false,
        });
        Ok(())
    }

    /// Adds what the sections named after functions hold.
    fn per_function(
        &mut self,
        names: &[&[u8]],
        by_name: &HashMap<&[u8], usize>,
        by_symbol: &HashMap<u32, usize>,
        content: &mut Content,
    ) -> Result<(), Problem> {
        let functions = &mut content.functions;
        let reserved = reserved_shared(content.target, !content.relocatable);
        for (index, name) in names.iter().enumerate() {
            let size = self.sections.get(index).map_or(0, |section| section.size);
            let named = |name| by_name.get(name).copied();
            if let Some(of) = name.strip_prefix(b".text.") {
                let target = content
                    .target
                    .filter(|target| KNOWN_CODE.contains(&target.major));
                let function = named(of).and_then(|at| functions.get_mut(at));
                if let (Some(function), Some(_)) = (function, target) {
                    let data = self.data(index)?;
                    self.spend(data.len())?;
                    function.uses = uses(data);
                }
            } else if let Some(of) = name.strip_prefix(b".nv.info.") {
                let Some(function) = named(of).and_then(|at| functions.get_mut(at)) else {
                    continue;
                };
                let data = self.data(index)?;
                self.spend(data.len())?;
                own_records(data, function);
            } else if *name == b".nv.info" {
                let data = self.data(index)?;
                self.spend(data.len())?;
                for record in info::records(data) {
                    let Some((symbol, value)) = record.of_symbol() else {
                        continue;
                    };
                    let at = by_symbol.get(&symbol).copied();
                    let function = at.and_then(|at| functions.get_mut(at));
                    match (record.attribute, function) {
                        (info::REGISTERS, Some(function)) => function.registers = Some(value),
                        (info::FRAME_SIZE, Some(function)) => function.local_bytes = value.into(),
                        _ => {}
                    }
                }
            } else if let Some(of) = name.strip_prefix(b".nv.shared.") {
                if let Some(function) = named(of).and_then(|at| functions.get_mut(at)) {
                    // Cubins that earlier null drivers linked have no such bytes.
                    function.shared_bytes = size.checked_sub(reserved).unwrap_or(size);
                }
            } else if *name == b".nv.constant3" {
                functions.iter_mut().for_each(|f| f.const_bytes = size);
            }
        }
        Ok(())
    }
}

/// What machine code of [`KNOWN_CODE`] uses of its launch.
fn uses(code: &[u8]) -> Uses {
    let mut uses = Uses::default();
    for instruction in code.chunks_exact(INSTRUCTION) {
        match u16_at(instruction, 0).map(|word| word & OPCODE) {
            Some(EARLY_TRIGGER) => uses.early_trigger = true,
            Some(DEPENDENCY_WAIT) => uses.dependency_wait = true,
            _ => {}
        }
    }
    uses
}

fn own_records(data: &[u8], function: &mut Function) {
    let mut parameters = Vec::new();
    for record in info::records(data) {
        match record.attribute {
            info::PARAMETER | info::PARAMETER_WIDE => parameters.extend(record.parameter()),
            info::MAX_THREADS => {
                let product = record
                    .shape()
                    .map(|s| s.into_iter().fold(1, u32::saturating_mul));
                function.max_threads = product;
            }
            info::REQUIRED_THREADS => function.required_threads = record.shape(),
            info::REQUIRED_CLUSTER => function.required_cluster = record.shape(),
            info::NEEDS_CLUSTER => function.needs_cluster = true,
            info::MAX_CLUSTER => function.max_cluster_blocks = record.number(),
            _ => {}
        }
    }
    // The assembler lists them from the last to the first.
    parameters.sort_by_key(|(ordinal, _)| *ordinal);
    parameters.dedup_by_key(|(ordinal, _)| *ordinal);
    function.parameters = parameters
        .into_iter()
        .map(|(_, parameter)| parameter)
        .collect();
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}
