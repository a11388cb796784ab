//! Usual launches, with as little as can be between one and the next: what a function handle stands for, and the memory that its
//! parameters are given in, are found out once and hold until objects of the kind come or go.
//!
//! Everything else about a launch (a capture, memory that lies elsewhere than recorded, a measurement) is for
//! [`crate::overrides::launch`]; both do the same for the driver and for the report.

use std::sync::atomic::Ordering;

use cutape_format::Call;
use cutape_registry::{FUNCTIONS, Kind, id};

use crate::api::{Api, LaunchEntry};
use crate::buffer::Buffer;
use crate::issue::frame::Frame;
use crate::issue::handles::Resolved;
use crate::issue::player::Player;
use crate::measure::clock;
use crate::measure::timing::Measure;
use crate::overrides::launch::{PARAMETERS_AT, put_packed};
use crate::schedule::prefetch::Launch;

/// What launches of a function need.
#[derive(Debug)]
struct Prepared {
    /// The state of the books in which this was found out.
    changes: u64,
    /// The live handle, and the index of the call that gave out the recorded one: together the object.
    live: u64,
    made: u64,
    /// The two arguments.
    kernel_params: u64,
    extra: u64,
    /// What they point into; the parameters stand there from `at` on, so many bytes.
    memory: Buffer,
    at: usize,
    length: u16,
}

impl Prepared {
    /// Parameters as most programs give them: an array of pointers. `layout` is what the driver says of the function itself.
    fn pointed_at(layout: &[(u32, u32)], length: u16) -> Self {
        let at = ((layout.len() + 1) * 8).next_multiple_of(64);
        let mut memory = Buffer::zeroed(at + usize::from(length));
        let base = memory.address() + at as u64;
        // One more, so that a driver that looks behind the last finds memory.
        let offsets = layout.iter().map(|parameter| parameter.0);
        for (place, offset) in memory
            .bytes_mut()
            .chunks_exact_mut(8)
            .zip(offsets.chain([0]))
        {
            place.copy_from_slice(&(base + u64::from(offset)).to_le_bytes());
        }
        Self::new(memory.address(), 0, memory, at, length)
    }

    /// Packed parameters, where the driver does not say how the function takes them.
    fn packed(length: u16) -> Self {
        let mut memory = Buffer::zeroed(PARAMETERS_AT + usize::from(length));
        put_packed(&mut memory, &vec![0; usize::from(length)]);
        Self::new(0, memory.address(), memory, PARAMETERS_AT, length)
    }

    fn new(kernel_params: u64, extra: u64, memory: Buffer, at: usize, length: u16) -> Self {
        Self {
            changes: 0,
            live: 0,
            made: 0,
            kernel_params,
            extra,
            memory,
            at,
            length,
        }
    }
}

/// What is known of handles that launches name, by the numbers that [`crate::schedule::prefetch`] gives their values.
#[derive(Debug, Default)]
pub(crate) struct Launches {
    functions: Vec<Option<Prepared>>,
    /// Live handles, and the state of the books in which they were looked up.
    streams: Vec<Option<(u64, u64)>>,
    /// The driver's two entries, without and with per-thread default streams; `None` before they are asked for.
    entries: Option<[Option<LaunchEntry>; 2]>,
}

impl Launches {
    fn entry(&mut self, api: &Api, per_thread: bool) -> Option<LaunchEntry> {
        let entries = self
            .entries
            .get_or_insert_with(|| [api.launch_entry(false), api.launch_entry(true)]);
        entries[usize::from(per_thread)]
    }
}

fn place<T>(places: &mut Vec<Option<T>>, slot: u32) -> &mut Option<T> {
    let slot = slot as usize;
    if places.len() <= slot {
        places.resize_with(slot + 1, || None);
    }
    &mut places[slot]
}

impl<'t> Player<'t> {
    /// Plays a usual launch, `call` being its record; false if that is for [`Player::play_selected`].
    pub(crate) fn launch(&mut self, call: &Call<'t>, launch: &Launch, packed: &[u8]) -> bool {
        if self.has_more_to_do(packed) {
            return false;
        }
        let Some(entry) = self.launches.entry(&self.api, launch.per_thread) else {
            return false;
        };
        let Some(stream) = self.stream_of(launch) else {
            return false;
        };
        let is_known = |known: &Option<Prepared>, changes| {
            let known = known.as_ref();
            known.is_some_and(|known| known.changes == changes)
        };
        let changes = self.handles.changes_of_functions();
        let known = self.launches.functions.get(launch.function_slot as usize);
        if !known.is_some_and(|known| is_known(known, changes)) && !self.prepare(launch) {
            return false;
        }
        let Some(Some(prepared)) = self
            .launches
            .functions
            .get_mut(launch.function_slot as usize)
        else {
            return false;
        };
        if prepared.length != launch.length {
            return false;
        }
        let room = &mut prepared.memory.bytes_mut()[prepared.at..];
        room[..packed.len()].copy_from_slice(packed);
        let (live, kernel_params, extra) = (prepared.live, prepared.kernel_params, prepared.extra);

        self.begins_launch(launch);
        self.position.call.store(launch.index, Ordering::Relaxed);
        // SAFETY: the handles are live; one of the two pointers is that of an array or list in memory of `prepared`, which holds
        // the parameters of this function as the driver or the recording says, and nothing else uses it meanwhile.
        let issue = || unsafe { entry.call(live, &launch.shape, stream, kernel_params, extra) };
        let is_timed = self.comparing && self.measure.as_ref().is_some_and(Measure::is_of_calls);
        let (result, ticks) = if is_timed {
            let begin = clock::ticks();
            let result = issue();
            (result, clock::ticks().saturating_sub(begin))
        } else {
            (issue(), 0)
        };
        self.report.calls_replayed += 1;
        if result != 0 || self.measure.is_some() {
            self.ends_launch(call, launch, result, is_timed.then_some(ticks));
        }
        true
    }

    /// True if more has to be looked at than a usual launch needs.
    #[inline]
    fn has_more_to_do(&self, packed: &[u8]) -> bool {
        self.rerun.is_some()
            || self.recorder.is_some()
            || self.captures.any_open()
            || !self.captures.conditions.is_empty()
            || !self.unavailable.is_empty()
            || self.ranges.any_translated() && self.ranges.stale_words(packed, 4).is_some()
            || self.ranges.any_of_host(packed)
    }

    /// As [`Player::play_selected`] and [`Player::play`] begin.
    #[inline]
    fn begins_launch(&mut self, launch: &Launch) {
        self.is_about_to_play(launch.compared);
        if !launch.compared {
            self.report.calls_not_compared += 1;
        } else if let Some(measure) = &mut self.measure {
            measure.begin(launch.index, launch.entered);
        }
        self.captures.is_captured = false;
        self.forget_query(launch.thread);
    }

    /// What is to be done with a launch that failed, or is measured.
    fn ends_launch(&mut self, call: &Call<'t>, launch: &Launch, result: i32, ticks: Option<u64>) {
        let name = if launch.per_thread {
            id::cuLaunchKernel_ptsz
        } else {
            id::cuLaunchKernel
        };
        let function = &FUNCTIONS[usize::from(name)];
        if let (Some(measure), Some(ticks)) = (&mut self.measure, ticks) {
            let recorded = launch.returned.saturating_sub(launch.entered);
            measure.add(function, recorded, ticks);
        }
        if result != 0 {
            self.conclude(call, function, Frame::default(), result);
        }
        if self.comparing
            && let Some(measure) = &mut self.measure
        {
            measure.end(launch.index, launch.returned);
        }
    }

    /// The live handle of a launch's stream.
    #[inline]
    fn stream_of(&mut self, launch: &Launch) -> Option<u64> {
        if launch.stream == 0 {
            return Some(0);
        }
        let changes = self.handles.changes_of_streams();
        match self.launches.streams.get(launch.stream_slot as usize) {
            Some(&Some((live, known))) if known == changes => Some(live),
            _ => self.look_up_stream(launch, changes),
        }
    }

    #[cold]
    fn look_up_stream(&mut self, launch: &Launch, changes: u64) -> Option<u64> {
        let live = match self.handles.resolve(Kind::Stream, launch.stream) {
            Resolved::Live(live) => live,
            // CU_STREAM_LEGACY and CU_STREAM_PER_THREAD.
            Resolved::Unknown if launch.stream <= 2 => launch.stream,
            _ => return None,
        };
        *place(&mut self.launches.streams, launch.stream_slot) = Some((live, changes));
        Some(live)
    }

    /// Finds out what launches of a function need; false if the function is not alive.
    #[cold]
    fn prepare(&mut self, launch: &Launch) -> bool {
        let Some(object) = self.handles.live_object(Kind::Function, launch.function) else {
            return false;
        };
        let (Some(live), made) = (object.live, object.made) else {
            return false;
        };
        let changes = self.handles.changes_of_functions();
        let place = place(&mut self.launches.functions, launch.function_slot);
        let known = place.take();
        let known = known
            .filter(|known| (known.live, known.made, known.length) == (live, made, launch.length));
        let mut prepared = known.unwrap_or_else(|| {
            let layout = self
                .api
                .parameters_of(live, self.handles.is_live_kernel(live));
            let end =
                |layout: &[(u32, u32)]| layout.iter().map(|(offset, size)| offset + size).max();
            match layout {
                Some(layout) if end(&layout) == Some(u32::from(launch.length)) => {
                    Prepared::pointed_at(&layout, launch.length)
                }
                _ => Prepared::packed(launch.length),
            }
        });
        (prepared.changes, prepared.live, prepared.made) = (changes, live, made);
        *place = Some(prepared);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::number;

    #[test]
    fn parameters_are_given_as_the_driver_takes_them() {
        let prepared = Prepared::pointed_at(&[(0, 8), (8, 4), (16, 8)], 24);
        assert_eq!((prepared.extra, prepared.kernel_params % 64), (0, 0));
        let base = prepared.kernel_params + 64;
        let pointers: Vec<u64> = prepared.memory.bytes()[..32]
            .chunks_exact(8)
            .map(number)
            .collect();
        assert_eq!(pointers, [base, base + 8, base + 16, base]);
        assert_eq!(prepared.memory.len() - prepared.at, 24);
        let prepared = Prepared::packed(5);
        assert_eq!(prepared.kernel_params, 0);
        let list: Vec<u64> = prepared.memory.bytes()[..56]
            .chunks_exact(8)
            .map(number)
            .collect();
        let base = prepared.extra;
        assert_eq!(list, [1, base + 64, 2, base + 48, 0, 0, 5]);
        assert_eq!(prepared.at, 64);
    }
}
