//! Reads how to unwind one frame from an object's `.eh_frame` (DWARF call frame information, in
//! the form of the Linux Standard Base).
//!
//! Everything is read in a way that cannot fault, because another thread may unload the object.

use super::memory_view::View;
use super::rules::{Cfa, Rule};

/// Deeper nesting of saved states than compilers produce.
const MOST_STATES: usize = 8;
/// More instructions than a function has: what is read is no table any more.
const MOST_INSTRUCTIONS: u32 = 1 << 16;
/// Numbers of registers in DWARF.
const RBP: u64 = 6;
const RSP: u64 = 7;
const RETURN_ADDRESS: u64 = 16;
/// Of `.eh_frame_hdr`: addresses are 32-bit distances from its start.
const TABLE_ENCODING: u8 = 0x3b;
const OMITTED: u8 = 0xff;

/// The rule at an address, by the object's `.eh_frame_hdr`; `None` if it has none there, or one
/// that is not supported.
pub(super) fn rule(header: u64, address: u64) -> Option<Rule> {
    let description = find(header, address)?;
    let mut entry = View::new(description);
    let length = entry.u32()?;
    // A longer entry has a 64-bit length, which no linker writes for x86-64.
    if length == 0 || length == u32::MAX {
        return None;
    }
    let place = entry.position();
    let end = place.checked_add(length.into())?;
    let common = Common::read(place.checked_sub(entry.u32()?.into())?)?;
    let start = entry.pointer(common.encoding)?;
    let size = entry.pointer(common.encoding & 0x0f)?;
    if address.wrapping_sub(start) >= size {
        return None;
    }
    if common.has_augmentation {
        let skipped = entry.uleb()?;
        entry.skip(skipped);
    }
    let mut machine = Machine::new(&common, address, start);
    machine.run(View::new(common.instructions.0), common.instructions.1)?;
    machine.initial = machine.row;
    machine.run(entry, end)?;
    machine.row.rule(common.is_signal_frame)
}

/// The address of the entry whose range begins last before `address`.
fn find(header: u64, address: u64) -> Option<u64> {
    let mut view = View::new(header);
    let (version, frame_encoding) = (view.u8()?, view.u8()?);
    let (count_encoding, table_encoding) = (view.u8()?, view.u8()?);
    if version != 1 || table_encoding != TABLE_ENCODING || count_encoding == OMITTED {
        return None;
    }
    view.pointer(frame_encoding)?;
    let count = view.pointer(count_encoding)?;
    let table = view.position();
    // A table entry: the start of a range, and where its description is.
    let entry_of = |index: u64| {
        let mut entry = View::new(table.wrapping_add(index.wrapping_mul(8)));
        let [start, description] = [entry.i32()?, entry.i32()?];
        let at = |distance: i32| header.wrapping_add_signed(distance.into());
        Some((at(start), at(description)))
    };
    // The first entry that begins behind the address.
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if entry_of(middle)?.0 <= address {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Some(entry_of(low.checked_sub(1)?)?.1)
}

/// What a common information entry says for all its descriptions.
struct Common {
    code_factor: u64,
    data_factor: i64,
    /// How addresses of its descriptions are encoded.
    encoding: u8,
    has_augmentation: bool,
    is_signal_frame: bool,
    /// Where they begin, and end.
    instructions: (u64, u64),
}

impl Common {
    fn read(at: u64) -> Option<Self> {
        let mut view = View::new(at);
        let length = view.u32()?;
        if length == u32::MAX || view.u32()? != 0 {
            return None;
        }
        let end = at.checked_add(4 + u64::from(length))?;
        let version = view.u8()?;
        let mut augmentation = [0; 8];
        for place in &mut augmentation {
            *place = view.u8()?;
            if *place == 0 {
                break;
            }
        }
        let (code_factor, data_factor) = (view.uleb()?, view.sleb()?);
        let register = match version {
            1 => u64::from(view.u8()?),
            3 => view.uleb()?,
            _ => return None,
        };
        let mut common = Self {
            code_factor,
            data_factor,
            encoding: 0,
            has_augmentation: augmentation.first() == Some(&b'z'),
            is_signal_frame: false,
            instructions: (0, end),
        };
        if register != RETURN_ADDRESS {
            return None;
        }
        let mut behind = None;
        for letter in augmentation.iter().take_while(|letter| **letter != 0) {
            match letter {
                b'z' => {
                    let length = view.uleb()?;
                    behind = Some(view.position().checked_add(length)?);
                }
                b'R' => common.encoding = view.u8()?,
                b'L' => _ = view.u8()?,
                b'P' => {
                    let encoding = view.u8()?;
                    view.pointer(encoding)?;
                }
                b'S' => common.is_signal_frame = true,
                // Of other processors.
                _ => return None,
            }
        }
        common.instructions.0 = behind.unwrap_or_else(|| view.position());
        Some(common)
    }
}

/// How the caller's registers are found, as far as it matters here.
#[derive(Clone, Copy)]
struct Row {
    cfa: Cfa,
    /// Distance from the CFA at which rbp was saved, if it was.
    base: Option<i64>,
    /// Distance from the CFA of the return address; `None` if there is no caller.
    caller: Option<i64>,
    /// By expressions that only the frame of a signal handler's caller has.
    signal_registers: u8,
}

impl Row {
    fn rule(self, is_signal_frame: bool) -> Option<Rule> {
        match self {
            // rbp and the return address by expressions.
            _ if is_signal_frame => (self.signal_registers == 3).then_some(Rule::Signal),
            Row { caller: None, .. } => Some(Rule::End),
            Row {
                caller: Some(-8),
                cfa,
                base,
                signal_registers: 0,
            } if cfa != Cfa::Unsupported => Rule::frame(cfa, base),
            _ => None,
        }
    }
}

struct Machine<'c> {
    common: &'c Common,
    address: u64,
    location: u64,
    row: Row,
    initial: Row,
    saved: [Option<Row>; MOST_STATES],
    depth: usize,
    instructions: u32,
}

impl<'c> Machine<'c> {
    fn new(common: &'c Common, address: u64, start: u64) -> Self {
        let row = Row {
            cfa: Cfa::Unsupported,
            base: None,
            caller: Some(-8),
            signal_registers: 0,
        };
        Self {
            common,
            address,
            location: start,
            row,
            initial: row,
            saved: [None; MOST_STATES],
            depth: 0,
            instructions: 0,
        }
    }

    /// Runs instructions up to `end`, or to the row of the address.
    fn run(&mut self, mut view: View, end: u64) -> Option<()> {
        while view.position() < end {
            self.instructions += 1;
            if self.instructions > MOST_INSTRUCTIONS {
                return None;
            }
            let opcode = view.u8()?;
            let low = u64::from(opcode & 0x3f);
            match (opcode >> 6, opcode) {
                (1, _) => self.advance(low),
                (2, _) => {
                    let offset = self.factored(view.uleb()?);
                    self.set(low, Some(offset));
                }
                (3, _) => self.restore(low),
                // DW_CFA_nop
                (_, 0x00) => {}
                // DW_CFA_set_loc
                (_, 0x01) => self.location = view.pointer(self.common.encoding)?,
                (_, 0x02) => self.advance(view.u8()?.into()),
                (_, 0x03) => self.advance(view.u16()?.into()),
                (_, 0x04) => self.advance(view.u32()?.into()),
                // DW_CFA_offset_extended
                (_, 0x05) => {
                    let register = view.uleb()?;
                    let offset = self.factored(view.uleb()?);
                    self.set(register, Some(offset));
                }
                (_, 0x06) => {
                    let register = view.uleb()?;
                    self.restore(register);
                }
                // DW_CFA_undefined, DW_CFA_same_value
                (_, 0x07 | 0x08) => {
                    let register = view.uleb()?;
                    self.set(register, None);
                }
                // DW_CFA_remember_state, DW_CFA_restore_state
                (_, 0x0a) => {
                    *self.saved.get_mut(self.depth)? = Some(self.row);
                    self.depth += 1;
                }
                (_, 0x0b) => {
                    self.depth = self.depth.checked_sub(1)?;
                    self.row = (*self.saved.get(self.depth)?)?;
                }
                // DW_CFA_def_cfa and its parts
                (_, 0x0c) => {
                    let register = view.uleb()?;
                    self.row.cfa = Cfa::at(register, view.uleb()? as i64);
                }
                (_, 0x0d) => {
                    let register = view.uleb()?;
                    self.row.cfa = Cfa::at(register, self.row.cfa.offset());
                }
                (_, 0x0e) => {
                    let offset = view.uleb()? as i64;
                    self.row.cfa = self.row.cfa.with_offset(offset);
                }
                (_, 0x0f) => self.row.cfa = expression_cfa(&mut view)?,
                // DW_CFA_expression
                (_, 0x10) => {
                    let register = view.uleb()?;
                    let length = view.uleb()?;
                    view.skip(length);
                    self.row.signal_registers |= match register {
                        RBP => 1,
                        RETURN_ADDRESS => 2,
                        _ => 0,
                    };
                }
                (_, 0x11) => {
                    let register = view.uleb()?;
                    let offset = view.sleb()?.wrapping_mul(self.common.data_factor);
                    self.set(register, Some(offset));
                }
                (_, 0x12) => {
                    let register = view.uleb()?;
                    let offset = view.sleb()?.wrapping_mul(self.common.data_factor);
                    self.row.cfa = Cfa::at(register, offset);
                }
                (_, 0x13) => {
                    let offset = view.sleb()?.wrapping_mul(self.common.data_factor);
                    self.row.cfa = self.row.cfa.with_offset(offset);
                }
                // DW_CFA_register, DW_CFA_val_offset, DW_CFA_val_offset_sf
                (_, 0x09 | 0x14 | 0x15) => {
                    let register = view.uleb()?;
                    view.uleb()?;
                    self.reject(register)?;
                }
                // DW_CFA_val_expression
                (_, 0x16) => {
                    let register = view.uleb()?;
                    let length = view.uleb()?;
                    view.skip(length);
                    self.reject(register)?;
                }
                // DW_CFA_GNU_args_size
                (_, 0x2e) => _ = view.uleb()?,
                _ => return None,
            }
            if self.location > self.address {
                return Some(());
            }
        }
        Some(())
    }

    fn advance(&mut self, delta: u64) {
        let bytes = delta.wrapping_mul(self.common.code_factor);
        let next = self.location.wrapping_add(bytes);
        self.location = next;
    }

    fn factored(&self, offset: u64) -> i64 {
        (offset as i64).wrapping_mul(self.common.data_factor)
    }

    /// A register is saved at that distance from the CFA, or not at all.
    fn set(&mut self, register: u64, offset: Option<i64>) {
        match register {
            RBP => self.row.base = offset,
            RETURN_ADDRESS => self.row.caller = offset,
            _ => {}
        }
    }

    fn restore(&mut self, register: u64) {
        match register {
            RBP => self.row.base = self.initial.base,
            RETURN_ADDRESS => self.row.caller = self.initial.caller,
            _ => {}
        }
    }

    /// A rule that is not supported is no harm for a register that does not matter.
    fn reject(&self, register: u64) -> Option<()> {
        (!matches!(register, RBP | RETURN_ADDRESS)).then_some(())
    }
}

impl Cfa {
    fn at(register: u64, offset: i64) -> Self {
        match register {
            RBP => Self::Base(offset),
            RSP => Self::Stack(offset),
            _ => Self::Unsupported,
        }
    }
}

/// The CFA of functions that align their stack (`rbp + N`, dereferenced) and of signal frames.
fn expression_cfa(view: &mut View) -> Option<Cfa> {
    const BREG_BASE: u8 = 0x76;
    const DEREFERENCE: u8 = 0x06;
    let length = view.uleb()?;
    let end = view.position().checked_add(length)?;
    let opcode = view.u8()?;
    let offset = view.sleb();
    let is_dereferenced = view.position() + 1 == end && view.u8() == Some(DEREFERENCE);
    view.skip(end.wrapping_sub(view.position()));
    Some(match offset {
        Some(offset) if opcode == BREG_BASE && is_dereferenced => Cfa::AtBase(offset),
        _ => Cfa::Unsupported,
    })
}

#[cfg(test)]
mod tests {
    use super::super::modules;
    use super::*;

    fn header() -> u64 {
        let own = header as *const () as u64;
        modules::begin();
        modules::around(own).expect("this program").unwind_header
    }

    #[test]
    fn every_function_has_a_rule() {
        let header = header();
        let count = View::new(header + 8).u32().unwrap();
        let (mut known, mut total) = (0, 0);
        for index in (0..u64::from(count)).step_by(7) {
            let distance = View::new(header + 12 + 8 * index).i32().unwrap();
            let start = header.wrapping_add_signed(distance.into());
            total += 1;
            // None for the procedure linkage table. At a function's first instruction, only the
            // return address lies on the stack.
            if let Some(found) = rule(header, start) {
                known += 1;
                let entry = Rule::Frame(Cfa::Stack(8), 0);
                assert!(found == entry || found == Rule::End, "{found:?}");
            }
        }
        assert!(
            total > 100 && known * 100 > total * 98,
            "{known} of {total}"
        );
    }

    #[test]
    fn no_bytes_panic() {
        let mut state = 7_u64;
        let mut random = move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state >> 33
        };
        let mut bytes = [0_u8; 4096];
        let mut read = 0;
        for round in 0..6000 {
            bytes.fill_with(|| random() as u8);
            let common = 512 + random() as usize % 64;
            let mut put = |at: usize, content: &[u8]| {
                bytes[at..at + content.len()].copy_from_slice(content);
            };
            let mut number = |at: usize, value: i32| put(at, &value.to_le_bytes());
            // A header with one entry: its range begins at the header, its description is at 1024.
            number(8, 1);
            number(12, 0);
            number(16, 1024);
            number(1024, random() as i32 % 64);
            number(1028, 1028 - common as i32);
            put(0, &[1, 0x1b, 3, TABLE_ENCODING]);
            if round % 2 == 0 {
                // A common entry that is read up to its instructions, and the range.
                put(common + 4, b"\0\0\0\0\x01zRS\0\x01\x78\x10\x01\x1b");
                put(1032, &(-1032_i32).to_le_bytes());
                put(1036, &64_i32.to_le_bytes());
            }
            if round % 8 == 0 {
                // The length of its augmentation.
                put(
                    common + 16,
                    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
                );
            }
            let start = bytes.as_ptr() as u64;
            read += usize::from(Common::read(start + common as u64).is_some());
            let _ = rule(start, start + random() % 64);
            let common = Common {
                code_factor: 1,
                data_factor: -8,
                encoding: 0x1b,
                has_augmentation: true,
                is_signal_frame: false,
                instructions: (0, 0),
            };
            let mut machine = Machine::new(&common, start + 100, start);
            let _ = machine.run(View::new(start + 128), start + 512);
        }
        assert!(read > 1000, "{read}");
    }
}
