//! How a program goes on after a call that is not the recorded one.

use cutape_diff::Used;
use cutape_format::{Call, MadeCall};
use cutape_registry::{Family, Kind};

use crate::live::LiveCall;
use crate::rows::written_by;
use crate::state::{Found, OnMismatch, State};
use crate::threads::{LOOK_AHEAD, known};
use crate::unknown::Since;

impl State {
    /// What a call of the program is that is not the next recorded one of its thread.
    pub(crate) fn resume(
        &mut self,
        at: usize,
        live: LiveCall<'_>,
        on_mismatch: OnMismatch,
    ) -> Option<Found> {
        match on_mismatch {
            OnMismatch::Stop => None,
            OnMismatch::Warn => self.resynchronise(at, live, LOOK_AHEAD),
            OnMismatch::Unknown => {
                // A call that the program leaves out looks like a changed one if another one like it
                // follows.
                let distance = match self.stands_for_next(at, live).is_some() {
                    true => 1,
                    false => LOOK_AHEAD,
                };
                let found = self.resynchronise(at, live, 1 + distance);
                found.or_else(|| self.take_changed(at, live))
            }
        }
    }

    /// The next call of a thread, if it may be given other arguments; or the one behind calls that need
    /// not be made.
    pub(crate) fn allowed(&mut self, at: usize, live: LiveCall<'_>) -> Option<Found> {
        if self.allowed.is_empty() {
            return None;
        }
        let coming = self.threads.all.get(at)?.coming();
        let coming: Vec<Call<'static>> = coming.take(LOOK_AHEAD).cloned().collect();
        for (skipped, recorded) in coming.into_iter().enumerate() {
            let kernel = self.comparison.recorded_kernel(recorded.index);
            let is_allowed = self.allowed.has(&recorded.signature.name, kernel);
            let made = match is_allowed && recorded.signature.name == live.function.name {
                true => self.same_kernel(live, &recorded),
                false => self.matched(live, &recorded),
            };
            if let Some(made) = made {
                for _ in 0..skipped {
                    self.threads.all.get_mut(at)?.advance(&self.comparison);
                }
                self.begin(at);
                return Some((at, recorded, made));
            }
            if !is_allowed {
                break;
            }
        }
        None
    }

    /// Whether a call that the recording does not have may be made.
    pub(crate) fn is_allowed(&mut self, live: LiveCall<'_>) -> bool {
        if self.allowed.is_empty() {
            return false;
        }
        let like = self.threads.sample(live.function);
        let kernel = like.and_then(|like| {
            let made = self.read(live, &like);
            self.comparison.live_kernel(&made.at_place_of(&like))
        });
        self.allowed.has(live.function.name, kernel.as_deref())
    }

    /// A call of the program as one of a recorded call's function, unless they launch different kernels.
    fn same_kernel(&mut self, live: LiveCall<'_>, recorded: &Call<'static>) -> Option<MadeCall> {
        let made = self.read(live, recorded);
        let as_read = made.at_place_of(recorded);
        let used = self.comparison.live_objects(&as_read);
        let recorded_use = self.comparison.counterparts(recorded.index);
        let is_launch = matches!(live.function.family, Family::Launch(_));
        (!is_launch || kernel(&used) == kernel(&recorded_use)).then_some(made)
    }

    /// Goes on at the next call of a thread that matches, of so many; the calls before it are not made.
    fn resynchronise(&mut self, at: usize, live: LiveCall<'_>, most: usize) -> Option<Found> {
        let coming = self.threads.all.get(at)?.coming();
        let coming: Vec<Call<'static>> = coming.take(most).cloned().collect();
        for (skipped, recorded) in coming.iter().enumerate() {
            let Some(made) = self.matched(live, recorded) else {
                continue;
            };
            for left_out in coming.iter().take(skipped) {
                let name = &left_out.signature.name;
                let why = format!("the recorded call {}, {name}, was not made", left_out.index);
                let used = self.comparison.counterparts(left_out.index);
                if let (Some(unknown), Some(function)) = (&mut self.unknown, known(left_out)) {
                    unknown.differs(function, &used, &why.into(), false);
                }
                self.threads.all.get_mut(at)?.advance(&self.comparison);
            }
            self.begin(at);
            return Some((at, recorded.clone(), made));
        }
        None
    }

    /// The next recorded call, if it is one of the same function that is given the same objects: the
    /// program's call takes its place.
    fn stands_for_next(
        &mut self,
        at: usize,
        live: LiveCall<'_>,
    ) -> Option<(Call<'static>, MadeCall)> {
        let recorded = self.threads.all.get(at)?.next()?.clone();
        if recorded.signature.name != live.function.name {
            return None;
        }
        let made = self.read(live, &recorded);
        let given = self.comparison.live_objects(&made.at_place_of(&recorded));
        let recorded_given = self.comparison.counterparts(recorded.index);
        let numbers = |used: &[Used]| used.iter().map(|one| one.number).collect::<Vec<u32>>();
        (numbers(&given) == numbers(&recorded_given)).then_some((recorded, made))
    }

    /// Takes the program's call in place of the next recorded one.
    fn take_changed(&mut self, at: usize, live: LiveCall<'_>) -> Option<Found> {
        let (recorded, made) = self.stands_for_next(at, live)?;
        let given = self.comparison.counterparts(recorded.index);
        let name = live.function.name;
        let why = format!(
            "a call of {name} differs from the recorded call {}",
            recorded.index
        );
        let why: Since = why.into();
        let unknown = self.unknown.as_mut()?;
        unknown.differs(live.function, &given, &why, false);
        unknown.begin_changed(recorded.index, why);
        self.begin(at);
        Some((at, recorded, made))
    }

    /// A call that the recording does not have: what it is given is unknown from now on. Why the
    /// program cannot have the bytes that it brings, if it brings any.
    pub(crate) fn take_additional(&mut self, live: LiveCall<'_>) -> Option<String> {
        let function = live.function;
        let why: Since = format!("a call of {} is not in the recording", function.name).into();
        let writes = matches!(
            function.family,
            Family::Launch(_) | Family::Copy(_) | Family::Memset
        );
        let Some(like) = self.like(live) else {
            // Without a recorded call like it, what it is given cannot be read.
            self.unknown.as_mut()?.differs(function, &[], &why, writes);
            return matches!(function.family, Family::Copy(_)).then(|| why.to_string());
        };
        let made = self.read(live, &like);
        let as_read = made.at_place_of(&like);
        let used = self.comparison.live_objects(&as_read);
        self.unknown.as_mut()?.differs(function, &used, &why, false);
        let is_host = |address: u64| {
            let object = self.comparison.live_object_at(address);
            object.is_none_or(|object| object.kind == Kind::HostMemory)
        };
        let mut targets = written_by(function, &as_read).into_iter();
        let brings = targets.any(|(address, _)| is_host(address));
        brings.then(|| why.to_string())
    }

    /// A recorded call by which a call of the program can be read: of its function, and a launch of its
    /// kernel, since kernels take different parameters.
    fn like(&mut self, live: LiveCall<'_>) -> Option<Call<'static>> {
        let sample = self.threads.sample(live.function)?;
        let Family::Launch(_) = live.function.family else {
            return Some(sample);
        };
        let made = self.read(live, &sample);
        let given = self.comparison.live_objects(&made.at_place_of(&sample));
        let kernel = kernel_of(&given)?;
        let launch = self.comparison.recorded_launch(kernel)?;
        let launch = self.threads.with_index(launch);
        launch.filter(|launch| launch.signature.name == live.function.name)
    }
}

fn kernel_of(used: &[Used]) -> Option<&Used> {
    let mut used = used.iter();
    used.find(|one| matches!(one.kind, Kind::Function | Kind::Kernel))
}

/// The number of the kernel among objects.
fn kernel(used: &[Used]) -> Option<u32> {
    kernel_of(used).map(|one| one.number)
}
