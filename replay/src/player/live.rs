//! Live handles and addresses for recorded ones.

use cutape_registry::{Kind, is_default_stream};

use crate::api::buffer::first;
use crate::compare::received::holds;
use crate::objects::handles::{Resolved, crashes_after_end};
use crate::objects::skip::{Root, Skip, skip};
use crate::place::address::{Found, Range};
use crate::player::{Job, Player};
use crate::report::Stale;
use crate::unavailable::Unavailable;
use crate::unavailable::absent::skip_of_function;
use crate::unavailable::held_addresses::LOOKED_AT;

impl Job<'_, '_> {
    /// Names copied bytes that look like addresses of memory that lies elsewhere now.
    pub(crate) fn look_for_stale(&mut self, bytes: &[u8]) {
        let looked_at = first(bytes, LOOKED_AT);
        if let Some((address, words)) = self.ranges.stale_words(looked_at, 8) {
            self.name_stale(address, words);
        }
    }

    /// Reports that a call carries recorded addresses that are not replaced.
    pub(crate) fn name_stale(&mut self, address: u64, words: u64) {
        let memory = match self.ranges.find(address) {
            Found::Live(range, _) => range.describe(),
            _ => String::new(),
        };
        self.player.report.stale(Stale {
            call: self.call.index,
            function: self.call.signature.name.clone(),
            words,
            address,
            memory,
        });
    }

    /// The live handle of a recorded one.
    #[inline]
    pub(crate) fn live_handle(&mut self, kind: Kind, value: u64) -> Result<u64, Skip> {
        match self.handles.resolve(kind, value) {
            Resolved::Live(live) => Ok(live),
            other => self.handle_not_live(kind, value, other),
        }
    }

    /// What to give for a recorded value that is not the handle of a live object.
    fn handle_not_live(&mut self, kind: Kind, value: u64, resolved: Resolved) -> Result<u64, Skip> {
        if kind == Kind::Device {
            return self.live_device(value);
        }
        if value == 0 {
            return Ok(0);
        }
        if kind.is_address() {
            return Ok(self.ranges.translate(value));
        }
        if resolved == Resolved::Unknown && kind == Kind::Stream && is_default_stream(value) {
            return Ok(value);
        }
        let name = kind.name();
        match resolved {
            Resolved::Live(live) => Ok(live),
            Resolved::Dead(_) if crashes_after_end(kind) && !self.options.reissue_fatal => {
                let reason = format!("would use a destroyed {name} (crashes the driver)");
                Err(Skip::from_root(Root::Misuse, reason))
            }
            Resolved::Dead(live) if self.handles.is_taken(kind, live) => {
                let reason = format!(
                    "would use a destroyed {name} whose handle value the driver has given to another one at replay"
                );
                Err(Skip::from_root(Root::Misuse, reason))
            }
            Resolved::Dead(live) => Ok(live),
            Resolved::Missing => Err(
                match Unavailable::maker_of_missing(&self.handles, kind, value) {
                    Some(function) => skip_of_function(function, name),
                    None => Skip::from_root(
                        self.handles.root_of_missing(kind, value),
                        format!("needs {} {name} that replay could not make", article(name)),
                    ),
                },
            ),
            Resolved::Unknown => match kind {
                _ if self.call.succeeded() => Err(Skip::because(format!(
                    "needs {} {name} that no re-issued call made",
                    article(name)
                ))),
                _ if crashes_after_end(kind) => Err(Skip::because(format!(
                    "would use a value that is no {name} (crashes the driver)"
                ))),
                // The driver says what a value is not without following it into our own memory.
                _ => Ok(self.lent.nothing()),
            },
        }
    }

    /// The live address of recorded device memory.
    pub(crate) fn live_address(&self, address: u64) -> Result<u64, Skip> {
        match self.ranges.find(address) {
            _ if address == 0 => Ok(0),
            Found::Live(range, offset) => Ok(range.live.wrapping_add(offset)),
            Found::Freed(range) if !range.is_translated() => Ok(address),
            Found::Freed(range) => Ok(range.live.wrapping_add(address - range.start)),
            Found::Unknown if self.placement.reserves(address, 1) => Ok(address),
            Found::Unknown if self.call.succeeded() => {
                skip("uses memory that no re-issued call made")
            }
            Found::Unknown if is_mapped(address) => skip(
                "names memory that no call made, at an address that the replaying process uses itself",
            ),
            Found::Unknown => Ok(address),
        }
    }
}

impl Player<'_> {
    /// Where pinned or registered host memory is at replay; `None` if the bytes do not lie in any.
    pub(crate) fn live_host(&self, address: u64, length: u64) -> Option<u64> {
        match self.ranges.find(address) {
            Found::Live(
                Range {
                    kind: Kind::HostMemory | Kind::Registration,
                    live,
                    ..
                },
                offset,
            ) if self.ranges.covers(address, length) => Some(live.wrapping_add(offset)),
            _ => None,
        }
    }

    /// Puts recorded bytes into pinned memory as the program had done before the call; waits for
    /// copies still reading it.
    pub(crate) fn store_host(&mut self, address: u64, bytes: &[u8]) {
        if holds(address, bytes) {
            return;
        }
        let end = address.saturating_add(bytes.len() as u64);
        if self.lent.in_flight.may_read(address, end) {
            self.finish_in_flight();
        }
        // SAFETY: the caller found these bytes inside a live range of host memory of this process.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len()) };
        if let Some(recorder) = &mut self.issuer.recorder {
            recorder.stored(address, bytes);
        }
    }

    /// The ordinal of the device that replaces a recorded one.
    fn live_device(&self, value: u64) -> Result<u64, Skip> {
        match self.machine.devices.ordinal(value as i32) {
            Some(here) => Ok(u64::from(here as u32)),
            None => Err(Skip::because(format!(
                "names device {value} of the recorded machine, which has no device here"
            ))),
        }
    }
}

/// True if this process has something mapped there.
fn is_mapped(address: u64) -> bool {
    let page = address / crate::plan::PAGE * crate::plan::PAGE;
    let mut residency = 0u8;
    // SAFETY: mincore looks at no memory of ours but the one byte that it is given for one page.
    let result = unsafe {
        libc::mincore(
            page as *mut libc::c_void,
            crate::plan::PAGE as usize,
            &raw mut residency,
        )
    };
    result == 0
}

/// The words before the name of a kind.
fn article(name: &str) -> &'static str {
    match name.starts_with(['a', 'e', 'i', 'o']) {
        true => "an",
        false => "a",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_this_process_is_recognised() {
        let here = 7u32;
        assert!(is_mapped(&raw const here as u64));
        assert!(!is_mapped(0x10));
        assert!(!is_mapped(u64::MAX - 5));
    }
}
