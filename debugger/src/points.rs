//! Where a debugger stops: breakpoints are sets of calls, watchpoints are bytes.

use cutape_calls::CallSet;
use cutape_format::Trace;
use cutape_history::Bytes;
use cutape_render::Element;
use cutape_render::quantity::count;
use cutape_replay::WatchedRange;

/// Calls before which it stops.
#[derive(Debug)]
pub(crate) struct Breakpoint {
    pub(crate) number: u32,
    pub(crate) text: String,
    /// In order.
    pub(crate) calls: Vec<u64>,
}

/// Bytes at whose changes it stops.
#[derive(Debug)]
pub(crate) struct Watchpoint {
    pub(crate) number: u32,
    pub(crate) text: String,
    pub(crate) bytes: Bytes,
    pub(crate) element: Option<&'static Element>,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Points {
    last_number: u32,
    breakpoints: Vec<Breakpoint>,
    watchpoints: Vec<Watchpoint>,
}

impl Points {
    fn number(&mut self) -> u32 {
        self.last_number += 1;
        self.last_number
    }

    /// Adds a breakpoint at calls in the language of `--calls`; its number, and how many calls.
    pub(crate) fn add_breakpoint(
        &mut self,
        trace: &Trace,
        text: &str,
    ) -> Result<(u32, u64), String> {
        let set = CallSet::parse(text)?.resolve(trace)?;
        let calls: Vec<u64> = set.calls(trace).collect();
        if calls.is_empty() {
            return Err(set.no_match(trace));
        }
        let added = (self.number(), calls.len() as u64);
        self.breakpoints.push(Breakpoint {
            number: added.0,
            text: text.to_owned(),
            calls,
        });
        Ok(added)
    }

    pub(crate) fn add_watchpoint(
        &mut self,
        text: &str,
        bytes: Bytes,
        element: Option<&'static Element>,
    ) -> u32 {
        let number = self.number();
        self.watchpoints.push(Watchpoint {
            number,
            text: text.to_owned(),
            bytes,
            element,
        });
        number
    }

    /// Removes one of them, or all; false if there is none.
    pub(crate) fn delete(&mut self, number: Option<u32>) -> bool {
        let before = self.breakpoints.len() + self.watchpoints.len();
        let is_kept = |own: u32| number.is_some_and(|number| number != own);
        self.breakpoints.retain(|point| is_kept(point.number));
        self.watchpoints.retain(|point| is_kept(point.number));
        self.breakpoints.len() + self.watchpoints.len() < before
    }

    /// The breakpoints at a call.
    pub(crate) fn at(&self, call: u64) -> Vec<u32> {
        let points = self.breakpoints.iter();
        let at = points.filter(|point| point.calls.binary_search(&call).is_ok());
        at.map(|point| point.number).collect()
    }

    /// The first call after this one at which a breakpoint is.
    pub(crate) fn next_after(&self, call: u64) -> Option<u64> {
        let next = |point: &Breakpoint| {
            let at = point.calls.partition_point(|&known| known <= call);
            point.calls.get(at).copied()
        };
        self.breakpoints.iter().filter_map(next).min()
    }

    /// The last call before this one at which a breakpoint is.
    pub(crate) fn last_before(&self, call: u64) -> Option<u64> {
        let last = |point: &Breakpoint| {
            let at = point.calls.partition_point(|&known| known < call);
            point.calls.get(at.checked_sub(1)?).copied()
        };
        self.breakpoints.iter().filter_map(last).max()
    }

    pub(crate) fn watchpoints(&self) -> &[Watchpoint] {
        &self.watchpoints
    }

    pub(crate) fn watched(&self) -> Vec<WatchedRange> {
        let ranges = self.watchpoints.iter().map(|point| WatchedRange {
            address: point.bytes.address,
            length: point.bytes.length,
            until: None,
        });
        ranges.collect()
    }

    /// One line for each, by number.
    pub(crate) fn list(&self) -> String {
        let breakpoints = self.breakpoints.iter().map(|point| {
            let calls = count(point.calls.len() as u64, "call");
            (point.number, format!("breakpoint {}, {calls}", point.text))
        });
        let watchpoints = self.watchpoints.iter().map(|point| {
            let Bytes { address, length } = point.bytes;
            let bytes = count(length, "byte");
            let text = format!("watchpoint {}: {address:#x}, {bytes}", point.text);
            (point.number, text)
        });
        let mut all: Vec<_> = breakpoints.chain(watchpoints).collect();
        all.sort();
        let lines = all
            .iter()
            .map(|(number, text)| format!("{number} {text}\n"));
        lines.collect()
    }
}
