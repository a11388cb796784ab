//! JIT options: arrays of names and values, some of which the driver writes.

use std::time::Instant;

use cutape_registry::enumeration;

use crate::call::answer::{Answer, INVALID_VALUE, invalid_if};
use crate::call::argument::{In, is_own_stack};

/// Which call the options were given to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// `cuModuleLoadDataEx`, `cuLibraryLoadData`, `cuLinkCreate`.
    Whole,
    /// `cuLinkAddData`, `cuLinkAddFile` with PTX: compiler options only.
    Input,
    /// The same with an input that is not compiled: no options (measured for a cubin with
    /// MAX_REGISTERS).
    FinishedInput,
}

// Numbers of CUjit_option.
const THREADS_PER_BLOCK: u32 = 1;
const WALL_TIME: u32 = 2;
const INFO_LOG: u32 = 3;
const INFO_LOG_SIZE: u32 = 4;
const ERROR_LOG: u32 = 5;
const ERROR_LOG_SIZE: u32 = 6;
const OPTIMIZATION_LEVEL: u32 = 7;
const TARGET_FROM_CONTEXT: u32 = 8;
const TARGET: u32 = 9;
const LAST_OPTION: u32 = 34;

/// A log buffer of the program, and where its used size is written.
#[derive(Clone, Copy, Default)]
struct Log {
    buffer: u64,
    size: u64,
    /// The element of the values array that holds the size.
    size_at: u64,
    used: u64,
}

impl Log {
    /// Appends a line, cut to the free bytes; NUL-terminated.
    fn write(&mut self, text: &str) {
        let is_gone = is_own_stack(self.buffer) || is_own_stack(self.buffer + self.size);
        if self.buffer == 0 || self.size == 0 || is_gone {
            return;
        }
        let free = (self.size - 1).saturating_sub(self.used);
        let bytes = &text.as_bytes()[..text.len().min(free as usize)];
        for (&byte, at) in bytes.iter().chain(&[0]).zip(self.used..) {
            // SAFETY: the program gave a buffer of `size` bytes; at most size - 1 text bytes and a
            // NUL are written.
            unsafe { ((self.buffer + at) as *mut u8).write(byte) };
        }
        self.used += bytes.len() as u64;
    }

    fn write_size(&self) {
        if self.size_at != 0 && !is_own_stack(self.size_at) {
            // SAFETY: the element lies in the program's array of values, which must outlive the
            // call or link state.
            unsafe { (self.size_at as *mut u64).write_unaligned(self.used) };
        }
    }
}

/// The options of one call, checked.
#[derive(Clone)]
pub(crate) struct Options {
    info: Log,
    error: Log,
    /// The element of the values array that takes the milliseconds.
    wall_time: u64,
    started: Instant,
}

impl Options {
    /// No options.
    pub(crate) fn none() -> Options {
        Options {
            info: Log::default(),
            error: Log::default(),
            wall_time: 0,
            started: Instant::now(),
        }
    }

    /// Reads and checks the arrays.
    pub(crate) fn read(
        count: u32,
        names: In<u32>,
        values: In<u64>,
        purpose: Use,
    ) -> Answer<Options> {
        let mut options = Options::none();
        invalid_if(count > LAST_OPTION + 64)?;
        let given = names.list(count as usize)?;
        let (mut has_threads, mut has_target) = (false, false);
        for (index, &name) in given.iter().enumerate() {
            let value = values.get_at(index)?;
            let element = values.address() + 8 * index as u64;
            let outputs = matches!(
                name,
                WALL_TIME..=ERROR_LOG_SIZE | TARGET_FROM_CONTEXT | TARGET
            );
            let refused = match purpose {
                Use::Whole => false,
                Use::Input => outputs,
                Use::FinishedInput => true,
            };
            invalid_if(name > LAST_OPTION || refused)?;
            match name {
                THREADS_PER_BLOCK => has_threads = true,
                TARGET_FROM_CONTEXT => has_target = true,
                TARGET => {
                    has_target = true;
                    let known = enumeration("CUjit_target")
                        .is_some_and(|list| list.name_of(value as u32 as i64).is_some());
                    invalid_if(!known)?;
                }
                WALL_TIME => options.wall_time = element,
                INFO_LOG => options.info.buffer = value,
                INFO_LOG_SIZE => {
                    (options.info.size, options.info.size_at) = (value as u32 as u64, element)
                }
                ERROR_LOG => options.error.buffer = value,
                ERROR_LOG_SIZE => {
                    (options.error.size, options.error.size_at) = (value as u32 as u64, element)
                }
                OPTIMIZATION_LEVEL if value as u32 > 4 => return Err(INVALID_VALUE),
                _ => {}
            }
        }
        // The real driver refused a buffer without its size, and a target beside a block size.
        for (buffer, size) in [(INFO_LOG, INFO_LOG_SIZE), (ERROR_LOG, ERROR_LOG_SIZE)] {
            invalid_if(given.contains(&buffer) && !given.contains(&size))?;
        }
        invalid_if(has_threads && has_target)?;
        Ok(options)
    }

    pub(crate) fn log_info(&mut self, text: &str) {
        self.info.write(text);
    }

    pub(crate) fn log_error(&mut self, text: &str) {
        self.error.write(text);
    }

    /// Writes sizes and time into the values array, once the work is done or has failed.
    pub(crate) fn write_back(&self) {
        self.info.write_size();
        self.error.write_size();
        if self.wall_time != 0 && !is_own_stack(self.wall_time) {
            let milliseconds = (self.started.elapsed().as_secs_f64() * 1e3) as f32;
            // SAFETY: the element lies in the program's array of values; the float takes its first
            // four bytes.
            unsafe { (self.wall_time as *mut u32).write_unaligned(milliseconds.to_bits()) };
        }
    }
}
