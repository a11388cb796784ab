//! Calls made ready to be issued again: arguments with live handles and addresses, and the memory that they point into.

use std::sync::atomic::Ordering;
use std::time::Instant;

use cutape_format::Call;
use cutape_registry::Function;

use crate::api::{Api, Code, NOT_READY, result_name};
use crate::buffer::Buffer;
use crate::guard::Position;
use crate::issue::player::is_query;

/// How long the device may take until a query of the program answers that its work is done.
const PATIENCE_SECONDS: u64 = 30;

/// A call as the driver got it.
#[derive(Clone, Debug)]
pub(super) struct Issued {
    pub index: u64,
    pub function: &'static Function,
    pub args: Vec<u64>,
    /// The current context then.
    pub context: u64,
}

/// What one iteration does, in order.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// What the program had written into pinned or managed memory.
    Store { address: u64, bytes: Vec<u8> },
    /// A call of the driver.
    Call(Issued),
}

/// Keeps what is done for one call of the trace; the player has one while a call is played that is to be repeated.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    pub(super) steps: Vec<Step>,
    pub(super) buffers: Vec<Buffer>,
    /// What the driver answered first other than success.
    pub(super) failed: Option<Code>,
}

impl Recorder {
    /// The driver was called.
    pub(crate) fn issued(
        &mut self,
        call: &Call,
        function: &'static Function,
        args: &[u64],
        context: u64,
        result: Code,
    ) {
        if result != 0 {
            self.failed.get_or_insert(result);
        }
        self.steps.push(Step::Call(Issued {
            index: call.index,
            function,
            args: args.to_vec(),
            context,
        }));
    }

    /// Bytes were put into host memory of the program.
    pub(crate) fn stored(&mut self, address: u64, bytes: &[u8]) {
        let bytes = bytes.to_vec();
        self.steps.push(Step::Store { address, bytes });
    }

    /// Memory that arguments point into.
    pub(crate) fn keep(&mut self, buffers: impl IntoIterator<Item = Buffer>) {
        self.buffers.extend(buffers);
    }
}

/// The calls among some steps.
pub(super) fn calls_of(steps: &[Step]) -> impl Iterator<Item = &Issued> {
    steps.iter().filter_map(|step| match step {
        Step::Call(issued) => Some(issued),
        Step::Store { .. } => None,
    })
}

/// Does all steps once. `current` is the thread's current context, before and after.
///
/// # Errors
/// The first call that does not succeed, in one line.
pub(super) fn issue(
    api: &Api,
    steps: &[Step],
    current: &mut u64,
    position: &Position,
) -> Result<(), String> {
    for step in steps {
        match step {
            Step::Store { address, bytes } => {
                // SAFETY: the player found these bytes inside live host memory of this process when the step was made,
                // and what ends such memory is put off from then on.
                unsafe {
                    std::ptr::copy_nonoverlapping(bytes.as_ptr(), *address as *mut u8, bytes.len())
                };
            }
            Step::Call(issued) => {
                if issued.context != *current && issued.context != 0 {
                    api.set_current(issued.context)
                        .map_err(|code| failed(issued, code))?;
                    *current = issued.context;
                }
                position.call.store(issued.index, Ordering::Relaxed);
                let mut code = give(api, issued)?;
                if code == NOT_READY && is_query(issued.function) {
                    code = wait_until_ready(api, issued)?;
                }
                if code != 0 {
                    return Err(failed(issued, code));
                }
            }
        }
    }
    Ok(())
}

fn wait_until_ready(api: &Api, issued: &Issued) -> Result<Code, String> {
    let begin = Instant::now();
    loop {
        match give(api, issued)? {
            NOT_READY if begin.elapsed().as_secs() < PATIENCE_SECONDS => std::hint::spin_loop(),
            code => return Ok(code),
        }
    }
}

fn give(api: &Api, issued: &Issued) -> Result<Code, String> {
    // SAFETY: the player has issued these very arguments; the memory that they point into is kept beside the steps, and
    // nothing that the call uses ends as long as they are.
    unsafe { api.call(issued.function.id, &issued.args) }
        .map_err(|error| format!("call {} {}: {error}", issued.index, issued.function.name))
}

fn failed(issued: &Issued, code: Code) -> String {
    format!(
        "call {} {} answers {} when it is repeated",
        issued.index,
        issued.function.name,
        result_name(code)
    )
}
