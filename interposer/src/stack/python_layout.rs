//! Where CPython keeps what a stack needs, for the versions 3.9 to 3.14.
//!
//! From 3.13 on, CPython says so itself (`_Py_DebugOffsets`, the start of `_PyRuntime`). For
//! earlier versions the offsets are those of x86-64 builds without debug options; `python` checks
//! them before each use.

use crate::process::memory;

/// How a thread's frames are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frames {
    /// 3.9, 3.10: objects; the thread state points at the innermost.
    Objects,
    /// 3.11, 3.12: the thread state points at a struct that points at the innermost, at that
    /// offset.
    Indirect(u16),
    /// 3.13 and later: the thread state points at the innermost.
    Direct,
}

/// Where a frame says which instruction it is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Instruction {
    /// An `int`, in units of that many bytes.
    Index(u16),
    /// The instruction's address.
    Address,
}

/// Which frames begin a run of the interpreter, so that those above run in another native frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runs {
    /// Every frame.
    Each,
    /// 3.11: those with a flag, at that offset.
    Flagged(u16),
    /// Later: those below which there is a frame whose owner, at that offset, is at least 3.
    Owned(u16),
}

/// Offsets in the structs of one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// 0x030b for 3.11.
    pub(super) version: u32,
    pub(super) frames: Frames,
    /// Of the thread state.
    pub(super) frame: u16,
    pub(super) thread: u16,
    /// Of a frame.
    pub(super) previous: u16,
    pub(super) code: u16,
    pub(super) instruction: u16,
    pub(super) instruction_form: Instruction,
    pub(super) runs: Runs,
    /// Of an object.
    pub(super) object_type: u16,
    /// Of a code object.
    pub(super) file: u16,
    pub(super) name: u16,
    pub(super) first_line: u16,
    pub(super) line_table: u16,
    pub(super) bytecode: u16,
    /// Of a code object: the bytecode of each thread, in builds without the GIL; else 0.
    pub(super) thread_bytecode: u16,
    /// Of a frame: which of them.
    pub(super) thread_bytecode_index: u16,
    /// Of a string.
    pub(super) string_length: u16,
    pub(super) string_state: u16,
    /// The bit of the state at which the width begins.
    pub(super) width_bit: u16,
    /// Where the characters of an ASCII string begin, and of another.
    pub(super) ascii: u16,
    pub(super) characters: u16,
    /// Of a bytes object.
    pub(super) bytes_length: u16,
    pub(super) bytes: u16,
}

impl Layout {
    /// Bytes of a frame up to the last that is read. What lies behind may not be readable.
    pub(super) fn frame_length(&self) -> usize {
        let runs = match self.runs {
            Runs::Each => 0,
            Runs::Flagged(offset) | Runs::Owned(offset) => offset + 1,
        };
        let instruction = match self.instruction_form {
            Instruction::Index(_) => self.instruction + 4,
            Instruction::Address => self.instruction + 8,
        };
        let ends = [
            self.previous + 8,
            self.code + 8,
            self.thread_bytecode_index + 4,
            instruction,
            runs,
        ];
        ends.into_iter().max().unwrap_or(0).into()
    }
}

const V3_9: Layout = Layout {
    version: 0x0309,
    frames: Frames::Objects,
    frame: 24,
    thread: 176,
    previous: 24,
    code: 32,
    instruction: 104,
    instruction_form: Instruction::Index(1),
    runs: Runs::Each,
    object_type: 8,
    file: 104,
    name: 112,
    first_line: 40,
    line_table: 120,
    bytecode: 0,
    thread_bytecode: 0,
    thread_bytecode_index: 0,
    string_length: 16,
    string_state: 32,
    width_bit: 2,
    ascii: 48,
    characters: 72,
    bytes_length: 16,
    bytes: 32,
};

const V3_10: Layout = Layout {
    version: 0x030a,
    instruction: 96,
    instruction_form: Instruction::Index(2),
    ..V3_9
};

const V3_11: Layout = Layout {
    version: 0x030b,
    frames: Frames::Indirect(8),
    frame: 56,
    thread: 152,
    previous: 48,
    code: 32,
    instruction: 56,
    instruction_form: Instruction::Address,
    runs: Runs::Flagged(68),
    file: 112,
    name: 128,
    first_line: 72,
    line_table: 136,
    bytecode: 184,
    ..V3_9
};

const V3_12: Layout = Layout {
    version: 0x030c,
    frames: Frames::Indirect(0),
    thread: 136,
    previous: 8,
    code: 0,
    runs: Runs::Owned(70),
    first_line: 68,
    bytecode: 192,
    ascii: 40,
    characters: 56,
    ..V3_11
};

/// The layout of a version, as `Py_GetVersion` names it; `runtime` is the address of `_PyRuntime`.
pub(super) fn of(version: &[u8], runtime: u64) -> Option<Layout> {
    let mut numbers = version
        .split(|byte| !byte.is_ascii_digit())
        .map(|digits| core::str::from_utf8(digits).ok()?.parse::<u32>().ok());
    let (major, minor) = (numbers.next()??, numbers.next()??);
    match (major, minor) {
        (3, 9) => Some(V3_9),
        (3, 10) => Some(V3_10),
        (3, 11) => Some(V3_11),
        (3, 12) => Some(V3_12),
        (3, 13 | 14) => from_runtime(minor, runtime),
        _ => None,
    }
}

/// Positions in `_Py_DebugOffsets`, in words.
struct Positions {
    frame: u64,
    frame_struct: u64,
    code: u64,
    /// Offsets of thread-local bytecode: in a frame, in a code object; 0 if there is none.
    thread_bytecode: (u64, u64),
    object_type: u64,
    bytes: u64,
    string: u64,
}

const POSITIONS_3_13: Positions = Positions {
    frame: 23,
    frame_struct: 28,
    code: 34,
    thread_bytecode: (0, 0),
    object_type: 45,
    bytes: 64,
    string: 67,
};

const POSITIONS_3_14: Positions = Positions {
    frame: 26,
    frame_struct: 31,
    code: 39,
    thread_bytecode: (38, 49),
    object_type: 51,
    bytes: 74,
    string: 77,
};

fn from_runtime(minor: u32, runtime: u64) -> Option<Layout> {
    const COOKIE: u64 = u64::from_le_bytes(*b"xdebugpy");
    let positions = match minor {
        13 => POSITIONS_3_13,
        _ => POSITIONS_3_14,
    };
    let word = |position: u64| memory::word(runtime + 8 * position);
    // Version 3.13.0 is 0x030d00f0.
    let is_this = word(0)? == COOKIE && word(1)? >> 16 == 0x0300 | u64::from(minor);
    let has_no_lock = word(2)? != 0;
    if !is_this {
        return None;
    }
    let offset = |position| {
        let offset = u16::try_from(word(position)?).ok()?;
        (offset < 1024).then_some(offset)
    };
    let at_or_none = |position| match position {
        0 => Some(0),
        _ if !has_no_lock => Some(0),
        position => offset(position),
    };
    let frame = positions.frame_struct;
    let code = positions.code;
    let string = positions.string;
    let ascii = offset(string + 3)?;
    Some(Layout {
        version: 0x0300 | minor,
        frames: Frames::Direct,
        frame: offset(positions.frame)?,
        thread: offset(positions.frame + 1)?,
        previous: offset(frame + 1)?,
        code: offset(frame + 2)?,
        instruction: offset(frame + 3)?,
        instruction_form: Instruction::Address,
        runs: Runs::Owned(offset(frame + 5)?),
        object_type: offset(positions.object_type)?,
        file: offset(code + 1)?,
        name: offset(code + 3)?,
        line_table: offset(code + 4)?,
        first_line: offset(code + 5)?,
        bytecode: offset(code + 9)?,
        thread_bytecode_index: at_or_none(positions.thread_bytecode.0)?,
        thread_bytecode: at_or_none(positions.thread_bytecode.1)?,
        string_state: offset(string + 1)?,
        string_length: offset(string + 2)?,
        // Without the GIL, 3.14 keeps a byte before it.
        width_bit: if has_no_lock && minor >= 14 { 8 } else { 2 },
        ascii,
        // Behind `PyASCIIObject` follow a length and a pointer (`PyCompactUnicodeObject`).
        characters: ascii + 16,
        bytes_length: offset(positions.bytes + 1)?,
        bytes: offset(positions.bytes + 2)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_have_layouts() {
        for (version, expected) in [
            ("3.9.2 (default, Feb 28 2021)", Some(0x0309)),
            ("3.10.12", Some(0x030a)),
            ("3.11.7 (main, ", Some(0x030b)),
            ("3.12.3", Some(0x030c)),
            // Without a runtime that says so.
            ("3.13.1", None),
            ("3.8.10", None),
            ("3.15.0a1", None),
            ("2.7", None),
            ("", None),
        ] {
            let layout = of(version.as_bytes(), 0);
            assert!(layout.is_none_or(|layout| (64..=112).contains(&layout.frame_length())));
            assert_eq!(layout.map(|layout| layout.version), expected, "{version}");
        }
    }
}
