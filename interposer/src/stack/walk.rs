//! Walks over the frames of a call in progress.

use super::rules::{self, Cfa, Rule};
use super::words::{MOST_NATIVE, NO_WORDS, Space, Words};
use super::{bounds, modules, python, store, unwind_table};
use crate::hot::frame::Frame;
use crate::hot::thread::Thread;
use crate::process::memory::{self, Scratch};

/// Offsets from rsp in the frame of glibc's `__restore_rt`, which a signal handler returns to: the
/// saved rbp, rsp and rip of `struct ucontext` (x86-64).
const SIGNAL_BASE: u64 = 120;
const SIGNAL_STACK: u64 = 160;
const SIGNAL_CALLER: u64 = 168;

/// A frame: where it continues, and the registers that rules count from.
#[derive(Clone, Copy)]
struct Registers {
    /// A return address, unless a signal interrupted the frame.
    address: u64,
    stack: u64,
    base: u64,
    is_interrupted: bool,
}

/// Takes the stack of the call in progress and stores it if it is new. Its id; `None` if there is
/// no room for it.
pub(super) fn stack_of(thread: &Thread, frame: &Frame) -> Option<u64> {
    if Stack::of(thread).has(core::ptr::from_ref(frame) as u64) {
        return with_own_space(thread, frame);
    }
    // A signal handler's stack may be short.
    let mut scratch = Scratch::new(size_of::<Space>())?;
    // SAFETY: the mapping is that long, aligned to pages, and ours; any bytes make a value.
    let space = unsafe { &mut *scratch.bytes().as_mut_ptr().cast::<Space>() };
    with_space(thread, frame, space)
}

/// With the words on the thread's stack.
#[inline(never)]
fn with_own_space(thread: &Thread, frame: &Frame) -> Option<u64> {
    with_space(thread, frame, &mut { NO_WORDS })
}

#[inline(never)]
fn with_space(thread: &Thread, frame: &Frame, space: &mut Space) -> Option<u64> {
    let mut words = Words::new(space);
    python::add_frames(&mut words);
    let first = words.count();
    walk(&mut words, thread, frame, false);
    let id = words.id();
    match store::is_new(id) {
        Some(false) => return Some(id),
        Some(true) if !words.is_cut => {}
        Some(true) => {
            // A remembered rule may be of code that has been unloaded since.
            words.truncate(first);
            walk(&mut words, thread, frame, true);
            let again = words.id();
            if again != id && !store::is_new(again)? {
                return Some(again);
            }
        }
        None => return None,
    }
    announce_modules(words.all().get(first..)?);
    let id = words.id();
    store::put_stack(id, words.flags(), words.all());
    Some(id)
}

/// Has the trace's memory map contain the objects of these addresses.
fn announce_modules(addresses: &[u64]) {
    let mut last: Option<modules::Module> = None;
    for &address in addresses {
        if let Some(module) = modules::around(address)
            && last != Some(module)
        {
            modules::announce(&module);
            last = Some(module);
        }
    }
}

/// Appends the native frames. Reads every rule anew if `is_careful`.
fn walk(words: &mut Words<'_>, thread: &Thread, frame: &Frame, is_careful: bool) {
    let stack = Stack::of(thread);
    let mut registers = Registers {
        address: frame.caller,
        stack: (&raw const frame.caller) as u64 + 8,
        base: frame.base,
        is_interrupted: false,
    };
    let limit = words.count() + MOST_NATIVE;
    words.is_cut = true;
    while registers.address != 0 && words.count() < limit && words.push(registers.address) {
        // A return address may lie behind its function; the byte before never does.
        let at = registers.address - u64::from(!registers.is_interrupted);
        let known = rules::known(at).filter(|_| !is_careful);
        let rule = known.unwrap_or_else(|| compute(at));
        match stack.caller(registers, rule) {
            Step::Caller(caller) => registers = caller,
            Step::End => {
                words.is_cut = false;
                return;
            }
            Step::Lost => return,
        }
    }
    // Some programs end the chain with a zero return address.
    words.is_cut &= registers.address != 0;
}

#[cold]
fn compute(address: u64) -> Rule {
    let header = modules::around(address).map_or(0, |module| module.unwind_header);
    let rule = match header {
        0 => None,
        header => unwind_table::rule(header, address),
    };
    let rule = rule.unwrap_or(Rule::Unknown);
    rules::remember(address, rule);
    rule
}

enum Step {
    Caller(Registers),
    End,
    Lost,
}

/// The memory of a thread's stack.
struct Stack {
    start: u64,
    end: u64,
}

impl Stack {
    fn of(thread: &Thread) -> Self {
        let (start, end) = bounds::of(thread);
        Self { start, end }
    }

    fn has(&self, address: u64) -> bool {
        self.start <= address && address < self.end
    }

    /// The word at an address of the stack that is in use.
    fn word(&self, address: u64) -> Option<u64> {
        if !address.is_multiple_of(8) {
            return None;
        }
        if self.has(address) {
            // SAFETY: a word between the present frame and the end of this thread's stack, which is
            // mapped as long as the thread lives.
            return Some(unsafe { (address as *const u64).read_volatile() });
        }
        // The program runs on a stack of its own: a coroutine, or a signal handler.
        memory::word(address)
    }

    fn caller(&self, registers: Registers, rule: Rule) -> Step {
        let found = match rule {
            Rule::End => return Step::End,
            Rule::Frame(cfa, base) => self.by_rule(registers, cfa, base),
            Rule::Signal => self.interrupted(registers),
            Rule::Unknown => self.by_frame_pointer(registers),
        };
        // Frames lie in ascending order, except that a signal handler may have another stack.
        match found {
            Some(found) if found.stack > registers.stack || found.is_interrupted => {
                Step::Caller(found)
            }
            _ => Step::Lost,
        }
    }

    fn by_rule(&self, registers: Registers, cfa: Cfa, base: i64) -> Option<Registers> {
        let Registers {
            stack, base: old, ..
        } = registers;
        let cfa = match cfa {
            Cfa::Stack(offset) => stack.wrapping_add_signed(offset),
            Cfa::Base(offset) => old.wrapping_add_signed(offset),
            Cfa::AtBase(offset) => self.above(stack, old.wrapping_add_signed(offset))?,
            Cfa::Unsupported => return None,
        };
        Some(Registers {
            address: self.above(stack, cfa.wrapping_sub(8))?,
            stack: cfa,
            base: match base {
                0 => old,
                base => self.above(stack, cfa.wrapping_add_signed(base))?,
            },
            is_interrupted: false,
        })
    }

    /// Of code without unwind tables, such as what a JIT compiler emits.
    fn by_frame_pointer(&self, registers: Registers) -> Option<Registers> {
        let Registers { stack, base, .. } = registers;
        let address = self.above(stack, base.wrapping_add(8))?;
        modules::around(address)?;
        Some(Registers {
            address,
            stack: base.wrapping_add(16),
            base: self.above(stack, base)?,
            is_interrupted: false,
        })
    }

    fn interrupted(&self, registers: Registers) -> Option<Registers> {
        let saved = |offset| self.above(registers.stack, registers.stack.wrapping_add(offset));
        Some(Registers {
            address: saved(SIGNAL_CALLER)?,
            stack: saved(SIGNAL_STACK)?,
            base: saved(SIGNAL_BASE)?,
            is_interrupted: true,
        })
    }

    /// The word at an address that is not below the frame.
    fn above(&self, stack: u64, address: u64) -> Option<u64> {
        (address >= stack).then(|| self.word(address)).flatten()
    }
}
