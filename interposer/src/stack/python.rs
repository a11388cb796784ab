//! Frames of Python, read from the interpreter's memory, with or without the GIL.
//!
//! `PyGILState_GetThisThreadState` gives the thread's state; it needs no GIL and takes no lock. The
//! frames of a thread that is in a call of the driver do not change, since only their own thread
//! changes them, so what they refer to is alive. All memory is read by `readable`, which never
//! faults at an address that is wrong, and the types of objects are checked: a build of Python with
//! other structs gives no frames. While Python ends, thread states may be freed, and everything is
//! read with system calls.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};
use std::ffi::{CStr, CString};

use cutape_format::layout::{PythonCodeNote, TextHead, note_kind, python_frame};
use cutape_format::write::Record;

use super::python_layout::{self, Frames, Instruction, Layout, Runs};
use super::store;
use super::words::{MOST_PYTHON, Words};
use crate::process::{memory, readable};

/// Most bytes of a frame that are read; bytes of a code object.
const FRAME_LENGTH: usize = 112;
const CODE_LENGTH: usize = 152;
/// Longer names are left out; so are line tables.
const LONGEST_NAME: u64 = 4096;
const LONGEST_TABLE: u64 = 64 << 10;

type ThreadState = unsafe extern "C" fn() -> *const c_void;
type IsInitialized = unsafe extern "C" fn() -> c_int;

/// What is known of the process's Python.
struct Python {
    layout: Layout,
    thread_state: ThreadState,
    /// `Py_IsInitialized`, false from the moment at which Python begins to end.
    is_initialized: IsInitialized,
    /// Addresses of the types of code objects, strings, and bytes.
    code_type: u64,
    string_type: u64,
    bytes_type: u64,
}

/// NULL if there is none. Leaked on purpose.
static PYTHON: AtomicPtr<Python> = AtomicPtr::new(core::ptr::null_mut());

/// Looks for Python among what is loaded.
pub(super) fn begin() {
    if PYTHON.load(Ordering::Relaxed).is_null() {
        look_in(libc::RTLD_DEFAULT);
    }
}

/// A library whose path says that it is Python's was loaded.
pub(super) fn found(path: &[u8]) {
    let Ok(path) = CString::new(path) else {
        return;
    };
    if !PYTHON.load(Ordering::Relaxed).is_null() {
        return;
    }
    // SAFETY: the path ends in NUL; nothing is loaded.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if !handle.is_null() {
        look_in(handle);
    }
}

fn look_in(handle: *mut c_void) -> Option<()> {
    let symbol = |name: &CStr| {
        // SAFETY: a handle of the loader, and a name that ends in NUL.
        let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    };
    let thread_state = symbol(c"PyGILState_GetThisThreadState")?;
    let is_initialized = symbol(c"Py_IsInitialized")?;
    let version = symbol(c"Py_GetVersion")?;
    // SAFETY: Python's function of that name, which returns a string that stays.
    let version: unsafe extern "C" fn() -> *const c_char = unsafe { core::mem::transmute(version) };
    // SAFETY: as above.
    let version = unsafe { CStr::from_ptr(version()) };
    let runtime = symbol(c"_PyRuntime")? as u64;
    let python = Python {
        layout: python_layout::of(version.to_bytes(), runtime)?,
        // SAFETY: Python's function of that name.
        thread_state: unsafe { core::mem::transmute::<*mut c_void, ThreadState>(thread_state) },
        // SAFETY: as above.
        is_initialized: unsafe {
            core::mem::transmute::<*mut c_void, IsInitialized>(is_initialized)
        },
        code_type: symbol(c"PyCode_Type")? as u64,
        string_type: symbol(c"PyUnicode_Type")? as u64,
        bytes_type: symbol(c"PyBytes_Type")? as u64,
    };
    PYTHON.store(Box::into_raw(Box::new(python)), Ordering::Release);
    Some(())
}

/// Appends the thread's frames of Python, two words each.
pub(super) fn add_frames(words: &mut Words<'_>) {
    // SAFETY: NULL, or leaked by `look_in`.
    let Some(python) = (unsafe { PYTHON.load(Ordering::Acquire).as_ref() }) else {
        return;
    };
    if python.add_frames(words).is_none() {
        // A part would be taken for the whole.
        words.truncate(0);
    }
}

/// A frame: its code, its instruction, and the index of the thread's bytecode.
#[derive(Clone, Copy, Default)]
struct Found {
    code: u64,
    instruction: u64,
    thread_bytecode: u32,
    is_last: bool,
}

/// Reads Python's memory, directly where that is safe.
#[derive(Clone, Copy)]
struct Reader {
    is_direct: bool,
}

impl Reader {
    fn read(self, address: u64, target: &mut [u8]) -> Option<()> {
        let is_read = match self.is_direct {
            true => readable::read_all(address, target),
            false => memory::read_all(address, target),
        };
        is_read.then_some(())
    }

    fn bytes<const N: usize>(self, address: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.read(address, &mut bytes)?;
        Some(bytes)
    }

    fn word(self, address: u64) -> Option<u64> {
        self.bytes(address).map(u64::from_le_bytes)
    }
}

/// A number of `N` bytes at an offset.
fn at<const N: usize>(bytes: &[u8], offset: u16) -> Option<[u8; N]> {
    bytes.get(usize::from(offset)..)?.first_chunk().copied()
}

fn word_at(bytes: &[u8], offset: u16) -> Option<u64> {
    at(bytes, offset).map(u64::from_le_bytes)
}

impl Python {
    fn add_frames(&self, words: &mut Words<'_>) -> Option<()> {
        let layout = &self.layout;
        // SAFETY: Python's functions, which any thread may call at any time.
        let (state, is_initialized) =
            unsafe { ((self.thread_state)() as u64, (self.is_initialized)() != 0) };
        if state == 0 {
            return None;
        }
        let reader = Reader {
            is_direct: is_initialized,
        };
        // SAFETY: no memory is involved.
        let own = unsafe { libc::pthread_self() };
        if reader.word(state + u64::from(layout.thread))? != own {
            return None;
        }
        let mut frame = reader.word(state + u64::from(layout.frame))?;
        if let Frames::Indirect(offset) = layout.frames {
            frame = reader.word(frame.wrapping_add(offset.into()))?;
        }
        let mut seen = 0;
        let mut bytes = [0; FRAME_LENGTH];
        while frame != 0 && words.count() < 2 * MOST_PYTHON && seen < 2 * MOST_PYTHON {
            seen += 1;
            let bytes = bytes.get_mut(..layout.frame_length())?;
            reader.read(frame, bytes)?;
            frame = word_at(bytes, layout.previous)?;
            if let Runs::Owned(owner) = layout.runs
                && at::<1>(bytes, owner)? >= [3]
            {
                // The interpreter's own frame, below those of one run.
                words.mark_last_of_native();
                continue;
            }
            let found = self.found(bytes)?;
            for word in self.words(reader, &found)? {
                words.push(word);
            }
        }
        Some(())
    }

    fn found(&self, bytes: &[u8]) -> Option<Found> {
        let layout = &self.layout;
        Some(Found {
            // The lowest bits of a reference are flags from 3.14 on.
            code: word_at(bytes, layout.code)? & !7,
            instruction: match layout.instruction_form {
                Instruction::Index(unit) => {
                    let index = at(bytes, layout.instruction).map(u32::from_le_bytes)?;
                    u64::from(index.wrapping_mul(unit.into()))
                }
                Instruction::Address => word_at(bytes, layout.instruction)?,
            },
            thread_bytecode: match layout.thread_bytecode_index {
                0 => 0,
                offset => at(bytes, offset).map(u32::from_le_bytes)?,
            },
            is_last: match layout.runs {
                Runs::Each => true,
                Runs::Flagged(offset) => at::<1>(bytes, offset)? != [0],
                Runs::Owned(_) => false,
            },
        })
    }

    /// The words of a frame, whose code object is stored if it is new.
    fn words(&self, reader: Reader, found: &Found) -> Option<[u64; 2]> {
        let layout = &self.layout;
        let code = &reader.bytes::<CODE_LENGTH>(found.code)?;
        if word_at(code, layout.object_type)? != self.code_type {
            return None;
        }
        let offset = match layout.instruction_form {
            Instruction::Index(_) => found.instruction,
            Instruction::Address => found
                .instruction
                .wrapping_sub(self.bytecode(reader, found)?),
        };
        let references = [layout.file, layout.name, layout.line_table];
        let [file, name, table] = references.map(|offset| word_at(code, offset));
        let first_line = at(code, layout.first_line).map(u32::from_le_bytes)?;
        let references = [file?, name?, table?];
        let id = store::hash(
            [found.code, first_line.into(), 3]
                .into_iter()
                .chain(references),
        );
        if store::is_new(id) == Some(true) {
            self.put_code(id, first_line, references);
        }
        let last = if found.is_last {
            python_frame::LAST_OF_NATIVE
        } else {
            0
        };
        Some([
            python_frame::MARK | last | offset & python_frame::OFFSET,
            id,
        ])
    }

    /// Where the bytecode begins that a frame runs.
    fn bytecode(&self, reader: Reader, found: &Found) -> Option<u64> {
        let layout = &self.layout;
        if layout.thread_bytecode != 0 && found.thread_bytecode != 0 {
            // An array that begins with its length.
            let array = reader.word(found.code + u64::from(layout.thread_bytecode))?;
            let place = 8 + 8 * u64::from(found.thread_bytecode);
            return reader.word(array.wrapping_add(place));
        }
        Some(found.code + u64::from(layout.bytecode))
    }

    fn put_code(&self, id: u64, first_line: u32, [file, name, table]: [u64; 3]) -> Option<()> {
        let texts = [self.string(file), self.string(name), self.bytes(table)];
        let length: u64 = texts.iter().map(|text| 8 + text.length).sum();
        store::put(note_kind::PYTHON_CODE, 24 + length as usize, |record| {
            record.put_encoded(PythonCodeNote {
                id,
                version: self.layout.version,
                first_line,
            })?;
            texts.iter().try_for_each(|text| text.put(record))
        })
    }

    /// A string's characters; none if it is not a string, or too long.
    fn string(&self, address: u64) -> Text {
        let layout = &self.layout;
        let read = || {
            let field = |offset: u16| memory::word(address + u64::from(offset));
            let state = field(layout.string_state)? >> layout.width_bit;
            let (width, is_compact, is_ascii) = (state & 7, state & 8 != 0, state & 16 != 0);
            let is_string = field(layout.object_type)? == self.string_type;
            let characters = if is_ascii {
                layout.ascii
            } else {
                layout.characters
            };
            let length = field(layout.string_length)?.checked_mul(width)?;
            let is_usable = is_string && is_compact && matches!(width, 1 | 2 | 4);
            (is_usable && length <= LONGEST_NAME).then_some(Text {
                address: address + u64::from(characters),
                width: width as u32,
                length,
            })
        };
        read().unwrap_or(Text::EMPTY)
    }

    fn bytes(&self, address: u64) -> Text {
        let layout = &self.layout;
        let read = || {
            let field = |offset: u16| memory::word(address + u64::from(offset));
            let is_bytes = field(layout.object_type)? == self.bytes_type;
            let length = field(layout.bytes_length)?;
            (is_bytes && length <= LONGEST_TABLE).then_some(Text {
                address: address + u64::from(layout.bytes),
                width: 1,
                length,
            })
        };
        read().unwrap_or(Text::EMPTY)
    }
}

/// Characters or bytes in Python's memory.
struct Text {
    address: u64,
    width: u32,
    length: u64,
}

impl Text {
    const EMPTY: Self = Self {
        address: 0,
        width: 1,
        length: 0,
    };

    fn put(&self, record: &mut Record<'_>) -> Option<()> {
        record.put_encoded(TextHead {
            width: self.width,
            length: self.length as u32,
        })?;
        let mut piece = [0; 512];
        let mut done = 0;
        while done < self.length {
            let length = (self.length - done).min(piece.len() as u64) as usize;
            let piece = piece.get_mut(..length)?;
            memory::read_all(self.address + done, piece).then_some(())?;
            record.put(piece)?;
            done += length as u64;
        }
        Some(())
    }
}
