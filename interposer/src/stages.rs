//! The stages of one thread: the one that it fills, and those that the mover has or had.

use core::cell::Cell;

use crate::stage::Stage;
use crate::trace_file;

/// How many a thread has at most. A thread that does nothing but call fills one in some 80 us, and the mover may have to wait
/// several times as long while the file system makes the file longer (calls that did so seem to have taken 50 to 217 us, ext4 on Linux 6.18).
const MOST: usize = 8;
/// Bytes of all stages of a thread, if the first is not longer.
const ALL: u64 = MOST as u64 * (64 << 10);

/// Where they are kept. Not in the thread's own memory, of which a library that comes late gets some hundred bytes where every
/// thread has it at the same distance: see `thread_word`.
type Places = [Cell<Option<Stage>>; MOST];

/// All of them; plain cells without destructor.
pub(crate) struct Stages {
    /// NULL, or of a box.
    all: Cell<*mut Places>,
    /// Which of them is being filled.
    current: Cell<usize>,
    /// Whether there may be more than there are.
    may_grow: Cell<bool>,
}

impl Stages {
    /// None yet.
    pub(crate) const fn none() -> Self {
        Self {
            all: Cell::new(core::ptr::null_mut()),
            current: Cell::new(0),
            may_grow: Cell::new(true),
        }
    }

    fn all(&self) -> &[Cell<Option<Stage>>] {
        // SAFETY: NULL, or of a box that is there until `end`; only this thread has it.
        unsafe { self.all.get().as_ref() }.map_or(&[], |places| places)
    }

    /// Makes one of that many bytes, where there is none; it is to be begun. False if the file cannot be longer.
    ///
    /// Most threads call little: further ones are made when the mover has all that there are.
    pub(crate) fn open(&self, length: u64, thread: u32) -> bool {
        self.current.set(0);
        self.may_grow.set(true);
        if self.all.get().is_null() {
            let places = Box::new([const { Cell::new(None) }; MOST]);
            self.all.set(Box::into_raw(places));
        }
        let (Some(place), Some(stage)) = (self.all().first(), Stage::open(length, thread)) else {
            return false;
        };
        place.set(Some(stage));
        true
    }

    /// Forgets them without a change to any: in a forked child they are the parent's.
    pub(crate) fn forget(&self) {
        self.all().iter().for_each(|stage| stage.set(None));
    }

    /// Lets go of the places, when all stages have been taken away.
    pub(crate) fn end(&self) {
        let places = self.all.replace(core::ptr::null_mut());
        if !places.is_null() {
            // SAFETY: `open` has made them of a box, and no reference to them is kept.
            drop(unsafe { Box::from_raw(places) });
        }
    }

    /// Does something with the stage that is being filled; `None` if there is none.
    pub(crate) fn with_current<T>(&self, act: impl FnOnce(&mut Stage) -> T) -> Option<T> {
        with(self.all().get(self.current.get())?, act)
    }

    /// Takes away the stage that is being filled.
    pub(crate) fn take_current(&self) -> Option<Stage> {
        self.all().get(self.current.get())?.take()
    }

    /// Takes away one that is not being filled.
    pub(crate) fn take_other(&self) -> Option<Stage> {
        let others = self.all().iter().enumerate();
        others
            .filter(|&(at, _)| at != self.current.get())
            .find_map(|(_, stage)| stage.take())
    }

    /// Goes on in another stage, or in the same one after it was moved; its records end there. What is current then is to be
    /// begun. False if the file cannot be written; then nothing has changed.
    pub(crate) fn change(&self, end: *const u8) -> bool {
        if is_attended()
            && self.with_current(|stage| stage.can_be_handed_over()) == Some(true)
            && let Some(next) = self.find_next()
            && self.with_current(|stage| stage.hand_over(end)) == Some(true)
        {
            self.current.set(next);
            return true;
        }
        self.with_current(|stage| stage.move_out(end)) == Some(true)
    }

    /// Another stage that may be filled: one that the mover does not have, a new one, or the oldest, which is then moved here.
    fn find_next(&self) -> Option<usize> {
        let current = self.current.get();
        let mut oldest: Option<(u32, usize)> = None;
        for (at, place) in self
            .all()
            .iter()
            .enumerate()
            .filter(|&(at, _)| at != current)
        {
            match with(place, |stage| (stage.is_free(), stage.sequence())) {
                Some((true, _)) => return Some(at),
                Some((false, sequence)) => {
                    oldest = Some(oldest.map_or((sequence, at), |known| known.min((sequence, at))));
                }
                None => {}
            }
        }
        if let Some(at) = self.grow() {
            return Some(at);
        }
        let (_, at) = oldest?;
        // The mover may just have been faster.
        let is_free = with(self.all().get(at)?, |stage| {
            stage.take_back() || stage.is_free()
        })?;
        is_free.then_some(at)
    }

    /// Makes one more stage, if there may be more; where it is.
    fn grow(&self) -> Option<usize> {
        if !self.may_grow.replace(false) {
            return None;
        }
        let (length, thread) = self.with_current(|stage| (stage.length(), stage.thread()))?;
        let most = (ALL / length).min(MOST as u64) as usize;
        let mut places = self.all().iter().take(most);
        let at = places.position(|place| with(place, |_| ()).is_none())?;
        let stage = Stage::open_another(length, thread)?;
        if !stage.can_be_handed_over() {
            // As many threads have stages as can have them.
            stage.close(true);
            return None;
        }
        self.all().get(at)?.set(Some(stage));
        self.may_grow.set(true);
        Some(at)
    }
}

fn is_attended() -> bool {
    trace_file::control().is_some_and(|control| control.is_attended())
}

fn with<T>(place: &Cell<Option<Stage>>, act: impl FnOnce(&mut Stage) -> T) -> Option<T> {
    let mut stage = place.take()?;
    let result = act(&mut stage);
    place.set(Some(stage));
    Some(result)
}
