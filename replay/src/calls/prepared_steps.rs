//! Steps that are issued many times while a clock runs: all that can be done once is done before.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cutape_driver::{CallError, PreparedCall};

use crate::api::{Api, Code, NOT_READY, result_name};
use crate::calls::pace::Pace;
use crate::calls::steps::{Issued, Step};
use crate::calls::traits;
use crate::measure::clock::Clock;
use crate::process::position::Position;

/// How long the device may take until a query reports that its work is done.
const PATIENCE_SECONDS: u64 = 30;

/// By how much a pause is made shorter at most because the one before was too long.
const MOST_LATE: Duration = Duration::from_nanos(200);

/// Steps to issue. The memory that they point to lives as long as the steps.
#[derive(Debug)]
pub(crate) struct PreparedSteps<'s> {
    api: &'s Api,
    /// What the calls give to the driver. Equal calls share it, so that it stays in the processor's
    /// caches, as what the program's own loop gives does.
    calls: Vec<(PreparedCall, u64)>,
    actions: Vec<Action<'s>>,
    /// [`MOST_LATE`] in ticks.
    most_late: u64,
}

/// What is done of a step, or of a pause and the step after it.
#[derive(Debug)]
struct Action<'s> {
    /// Ticks of the processor from the return of the last call to the begin of this one, at least.
    pause: u64,
    /// The next call has a pause.
    is_before_pause: bool,
    what: What<'s>,
}

#[derive(Debug)]
enum What<'s> {
    /// A call by its position in [`PreparedSteps::calls`], its index in the trace, and for errors.
    Call(u32, u64, &'s Issued),
    Store(u64, &'s [u8]),
    Nothing,
}

impl<'s> PreparedSteps<'s> {
    /// `clock` has run for a millisecond or more.
    ///
    /// # Errors
    /// The first call that cannot be made, in one line.
    pub(crate) fn of(api: &'s Api, steps: &'s [Step], clock: &Clock) -> Result<Self, String> {
        let nanoseconds = clock.nanoseconds_per_tick();
        let ticks = |time: Duration| (time.as_nanos() as f64 / nanoseconds) as u64;
        let mut prepared = Self {
            api,
            calls: Vec::new(),
            actions: Vec::with_capacity(steps.len()),
            most_late: ticks(MOST_LATE),
        };
        let mut known: HashMap<(u16, u64, &[u64]), u32> = HashMap::new();
        let mut paused = Duration::ZERO;
        for step in steps {
            match step {
                Step::Pause(lasts) => paused = paused.saturating_add(*lasts),
                // The program wrote in the time before its next call.
                Step::Store { address, bytes } => prepared.add(0, What::Store(*address, bytes)),
                Step::Call(issued) | Step::Put { issued, .. } => {
                    let key = (issued.function.id, issued.context, &*issued.args);
                    let number = match known.get(&key) {
                        Some(&number) => number,
                        None => {
                            let call = api.prepare(issued.function.id, &issued.args);
                            let call = call.map_err(|error| not_made(issued, &error))?;
                            let number = prepared.calls.len() as u32;
                            prepared.calls.push((call, issued.context));
                            known.insert(key, number);
                            number
                        }
                    };
                    let pause = ticks(std::mem::take(&mut paused));
                    prepared.add(pause, What::Call(number, issued.index, issued));
                }
            }
        }
        prepared.add(ticks(paused), What::Nothing);
        Ok(prepared)
    }

    fn add(&mut self, pause: u64, what: What<'s>) {
        if pause > 0 {
            let mut calls = self.actions.iter_mut().rev();
            let last = calls.find(|action| matches!(action.what, What::Call(..)));
            if let Some(last) = last {
                last.is_before_pause = true;
            }
        }
        self.actions.push(Action {
            pause,
            is_before_pause: false,
            what,
        });
    }

    /// Issues all once. `current` is the thread's current context, before and after.
    ///
    /// # Errors
    /// The first call that does not succeed, in one line.
    pub(crate) fn issue(&self, current: &mut u64, position: &Position) -> Result<(), String> {
        let mut pace = Pace::new(self.most_late);
        for action in &self.actions {
            match &action.what {
                What::Call(number, index, issued) => {
                    let Some((call, context)) = self.calls.get(*number as usize) else {
                        continue;
                    };
                    if *context != *current && *context != 0 {
                        let entered = self.api.set_current(*context);
                        entered.map_err(|code| failed(issued, code))?;
                        *current = *context;
                    }
                    if action.pause > 0 {
                        pace.pause(action.pause);
                    }
                    position.call.store(*index, Ordering::Relaxed);
                    let result = make(call);
                    if result != Ok(0) {
                        not_successful(call, issued, result)?;
                    }
                    if action.is_before_pause {
                        pace.returned();
                    }
                }
                What::Store(address, bytes) => {
                    // SAFETY: the player found these bytes inside live host memory of this process
                    // when it made the step, and calls that end such memory are deferred from then
                    // on.
                    unsafe {
                        std::ptr::copy_nonoverlapping(
                            bytes.as_ptr(),
                            *address as *mut u8,
                            bytes.len(),
                        );
                    }
                }
                What::Nothing => pace.pause(action.pause),
            }
        }
        Ok(())
    }
}

#[inline]
fn make(call: &PreparedCall) -> Result<Code, CallError> {
    // SAFETY: the player has issued the same arguments; the memory that they point to is kept with
    // the steps, and nothing that the call uses ends before them.
    unsafe { call.call() }
}

/// A query waits until work is done; all else is an error.
#[cold]
fn not_successful(
    call: &PreparedCall,
    issued: &Issued,
    mut result: Result<Code, CallError>,
) -> Result<(), String> {
    let begin = Instant::now();
    let is_query = traits::of(issued.function).is_query;
    while is_query && result == Ok(NOT_READY) && begin.elapsed().as_secs() < PATIENCE_SECONDS {
        std::hint::spin_loop();
        result = make(call);
    }
    match result {
        Ok(0) => Ok(()),
        Ok(code) => Err(failed(issued, code)),
        Err(error) => Err(not_made(issued, &error)),
    }
}

fn not_made(issued: &Issued, error: &CallError) -> String {
    format!("call {} {}: {error}", issued.index, issued.function.name)
}

fn failed(issued: &Issued, code: Code) -> String {
    format!(
        "call {} {} returned {} when it was repeated",
        issued.index,
        issued.function.name,
        result_name(code)
    )
}
