//! The tables of a core dump, and the functions of its images.

use std::collections::BTreeMap;

use object::elf::{EM_CUDA, ET_CORE, FileHeader64, SectionHeader64};
use object::read::elf::{FileHeader, SectionHeader};
use object::{LittleEndian, ReadRef};

type Header = FileHeader64<LittleEndian>;

/// `SHT_LOUSER`: the first of the types that are CUDA's.
const FIRST_TYPE: u32 = 0x8000_0000;
/// A relocated image: its sections have the addresses at which the device runs them.
const IMAGE: u32 = FIRST_TYPE + 7;

/// What the rows of a table are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Devices,
    Multiprocessors,
    Grids,
    Blocks,
    Warps,
    Lanes,
}

impl Kind {
    fn of(section_type: u32) -> Option<Self> {
        Some(match section_type.checked_sub(FIRST_TYPE)? {
            9 => Self::Devices,
            11 => Self::Multiprocessors,
            12 => Self::Grids,
            13 => Self::Blocks,
            14 => Self::Warps,
            15 => Self::Lanes,
            _ => return None,
        })
    }
}

/// A table.
#[derive(Debug)]
pub(super) struct Table<'d> {
    kind: Kind,
    /// Its section.
    pub(super) index: usize,
    /// The section of the table that it belongs to.
    pub(super) link: usize,
    /// The row of that table.
    pub(super) info: usize,
    bytes: &'d [u8],
    /// Bytes of a row.
    stride: usize,
}

impl<'d> Table<'d> {
    /// Its rows.
    pub(super) fn rows(&self) -> impl Iterator<Item = Row<'d>> + use<'d> {
        self.bytes.chunks_exact(self.stride).map(Row)
    }
}

/// A row of a table.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Row<'d>(&'d [u8]);

impl Row<'_> {
    /// A number at an offset; 0 if the row is shorter.
    pub(super) fn u32(self, at: usize) -> u32 {
        let bytes = self.0.get(at..).and_then(<[u8]>::first_chunk);
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }

    /// As [`Row::u32`].
    pub(super) fn u64(self, at: usize) -> u64 {
        let bytes = self.0.get(at..).and_then(<[u8]>::first_chunk);
        bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }
}

/// A function of an image.
#[derive(Debug)]
pub(super) struct Function {
    /// Its address.
    pub(super) start: u64,
    end: u64,
    /// Its symbol.
    pub(super) name: String,
}

impl Function {
    /// Whether an address is in its code.
    pub(super) fn has(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }
}

/// All tables, by their sections, and all functions, by their addresses.
#[derive(Debug, Default)]
pub(super) struct Tables<'d> {
    tables: BTreeMap<usize, Table<'d>>,
    functions: BTreeMap<u64, Function>,
}

impl<'d> Tables<'d> {
    /// Reads the tables.
    pub(super) fn read(data: impl ReadRef<'d>) -> Result<Self, String> {
        let error = |error: object::read::Error| error.to_string();
        let header = Header::parse(data).map_err(error)?;
        let endian = LittleEndian;
        let kind = (header.e_machine(endian), header.e_type(endian));
        if kind != (EM_CUDA, ET_CORE) || !header.is_little_endian() {
            return Err("it is no core dump of a GPU".to_owned());
        }
        let sections = header.sections(endian, data).map_err(error)?;
        // Sections of a valid file do not overlap.
        let mut budget = data
            .len()
            .map_err(|()| "its length is not known".to_owned())?;
        let mut content = |section: &SectionHeader64<LittleEndian>| {
            let content = section.data(endian, data).map_err(error)?;
            let left = budget.checked_sub(content.len() as u64);
            budget = left.ok_or_else(|| "its sections overlap".to_owned())?;
            Ok::<_, String>(content)
        };
        let mut found = Self::default();
        for (index, section) in sections.iter().enumerate() {
            let section_type = section.sh_type(endian).0;
            if section_type == IMAGE {
                // If it is no image, others may be.
                let _ = found.add_functions(content(section)?);
                continue;
            }
            let Some(kind) = Kind::of(section_type) else {
                continue;
            };
            let table = Table {
                kind,
                index,
                link: section.sh_link(endian) as usize,
                info: section.sh_info(endian) as usize,
                bytes: content(section)?,
                stride: usize::try_from(section.sh_entsize(endian))
                    .ok()
                    .filter(|stride| *stride != 0)
                    .ok_or_else(|| format!("section {index} has no length of rows"))?,
            };
            found.tables.insert(index, table);
        }
        Ok(found)
    }

    /// The code of an image: a section for each function, named after it.
    fn add_functions(&mut self, image: &'d [u8]) -> object::read::Result<()> {
        let header = Header::parse(image)?;
        let sections = header.sections(LittleEndian, image)?;
        for section in sections.iter() {
            let name = sections.section_name(LittleEndian, section)?;
            let Some(name) = name.strip_prefix(b".text.") else {
                continue;
            };
            let start = section.sh_addr(LittleEndian);
            let function = Function {
                start,
                end: start.saturating_add(section.sh_size(LittleEndian)),
                name: String::from_utf8_lossy(name).into_owned(),
            };
            self.functions.insert(start, function);
        }
        Ok(())
    }

    /// The tables of a kind.
    pub(super) fn of(&self, kind: Kind) -> impl Iterator<Item = &Table<'d>> {
        self.tables.values().filter(move |table| table.kind == kind)
    }

    /// The table that a table belongs to, and the row.
    pub(super) fn parent(&self, table: &Table<'_>) -> Option<(&Table<'d>, Row<'d>)> {
        let parent = self.tables.get(&table.link)?;
        Some((parent, parent.rows().nth(table.info)?))
    }

    /// The number of a device, by its row.
    pub(super) fn device(&self, row: usize) -> u32 {
        let mut devices = self.of(Kind::Devices).flat_map(Table::rows);
        devices.nth(row).map_or(row as u32, |device| device.u32(24))
    }

    /// The function with that address.
    pub(super) fn function_at(&self, address: u64) -> Option<&Function> {
        let (_, function) = self.functions.range(..=address).next_back()?;
        function.has(address).then_some(function)
    }
}
