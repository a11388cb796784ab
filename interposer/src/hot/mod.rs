//! Everything that a recorded call touches.
//!
//! # What happens in a call
//!
//! | step | where | what |
//! |---|---|---|
//! | 1 | `entry` | the exported function, in assembly: builds a `Frame` on the stack, saves the argument registers, calls `pre_call` |
//! | 2 | `pre_call` | finds the thread (`tls`, `thread`) and what is known of the function (`plan`), writes the enter record, reads the clock, returns the address of the driver's function |
//! | 3 | `entry` | restores the arguments and calls the driver |
//! | 4 | `post_call` | reads the clock, writes the leave record |
//! | 5 | `entry` | returns the driver's result |
//!
//! A launch also writes its parameters in step 2 (`launch`; `state::functions` finds the kernel,
//! `kernel_parameters` packs them). A call that may use host memory which the device can access
//! looks its words up in `host_range_filter`.
//!
//! The fast path handles a call of the program, on a thread that has called before and has seen that
//! the state in `recording` is `RECORDING` and that recording is not paused, of a function whose records have a fixed form (`plan::EnterForm`,
//! `plan::LeaveForm`). `cutape_format::slot` writes such a record with unconditional stores into a
//! free slot of the thread's buffer. Everything else is behind `cold_path`, and ends in one of
//! these:
//!
//! - `pre_call_slowly`, `post_call_slowly`: a thread's first call, a call inside another call,
//!   another state, the first call after a pause has begun or ended.
//! - `pre_call_paused`, `other_returned`: a call while recording is paused.
//! - `enter_in_new_slot`, `leave_slowly`: no slot is free. They make room (flush the buffer, see
//!   `file::thread_buffer`) and write the same record.
//! - `enter_generic`, `leave_generic`: records with snapshots, which `snapshot` and `overrides`
//!   write part by part (`thread::Draft`).
//!
//! # Why it is built like this
//!
//! A call costs two clock reads and some 75 instructions on each side. Counts are in
//! `benches/instructions.txt`; times in `benches/results` were measured on an H200 (2026-11-20),
//! where a read of the clock took 15 to 25 ns.
//!
//! | what | why | effect |
//! |---|---|---|
//! | a plan per function, computed at the start | nothing is looked up or decided by name in a call | not measured alone |
//! | one function per side that calls nothing on the fast path and ends in tail calls | it saves no registers | 12 of 164 instructions of `cuEventQuery` (2026-11-22) |
//! | slots: one check for space, then unconditional stores | no branch per member | not measured alone |
//! | `put_short_enter_of_launch` computes four codes at once | depths of grid and block are nearly always below 8 | 104 of 515 instructions of a launch without parameters (2026-11-22) |
//! | parameters of 4 to 8 bytes are stored as words, without a branch on their size | sizes are mixed | not measured alone |
//! | the thread is found at a fixed distance from the thread pointer (`tls`) | an indirect call less | not measured alone |
//! | each entry calls the driver itself | branch predictors index indirect calls by call site | assumed |
//! | stack arguments are copied word by word | a wider load would wait for the caller's stores | assumed |
//!
//! Removed: a flusher in another process, which made no measurable difference to PyTorch
//! (`file::thread_buffer` has the figures, also of what it did bring), and with it the prefetch of
//! cache lines that the flusher had read.

pub(crate) mod arguments;
pub(crate) mod clock;
pub(crate) mod cost;
mod entry;
pub(crate) mod frame;
pub(crate) mod hook_bits;
pub(crate) mod host_range_filter;
pub(crate) mod kernel_parameters;
pub(crate) mod launch;
pub(crate) mod plan;
mod post_call;
mod pre_call;
pub(crate) mod recording;
mod shape;
pub(crate) mod thread;
mod tls;
