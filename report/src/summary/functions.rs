//! Calls by function: how many, how many failed, how long they took.

use cutape_export::rows::CallRow;
use cutape_format::TraceClock;
use cutape_registry::Family;
use serde::Serialize;

use super::revealed::Revealed;

/// The calls of a function.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FunctionFacts {
    /// The exported name.
    pub function: String,
    /// How many.
    pub calls: u64,
    /// Those that returned an error.
    pub failed: u64,
    /// Those that did not return.
    pub in_flight: u64,
    /// How long all that returned took on the host.
    pub total_ns: Option<u64>,
    /// How long one took on average.
    pub mean_ns: Option<u64>,
    /// How long the longest took.
    pub max_ns: Option<u64>,
    /// Labels of objects depend on them.
    #[serde(skip)]
    pub(super) makes_labels: bool,
    #[serde(skip)]
    pub(super) is_launch: bool,
    /// They may have payloads or parameters of kernels.
    #[serde(skip)]
    pub(super) reveals: bool,
    #[serde(skip)]
    total_ticks: u64,
    #[serde(skip)]
    max_ticks: u64,
}

impl FunctionFacts {
    /// Before the function's first call.
    pub(super) fn new(row: &CallRow<'_>, makes_labels: bool) -> Self {
        Self {
            function: row.function.to_owned(),
            makes_labels,
            reveals: Revealed::concerns(row),
            is_launch: row
                .known
                .is_some_and(|function| matches!(function.family, Family::Launch(_))),
            ..Self::default()
        }
    }

    pub(super) fn add(&mut self, row: &CallRow<'_>) {
        self.calls += 1;
        match row.call.leave_ticks {
            None => self.in_flight += 1,
            Some(leave) => {
                let ticks = leave.saturating_sub(row.call.enter_ticks);
                self.total_ticks = self.total_ticks.saturating_add(ticks);
                self.max_ticks = self.max_ticks.max(ticks);
                self.failed += u64::from(row.failed);
            }
        }
    }

    pub(super) fn finish(&mut self, clock: TraceClock) {
        let total = clock.between(0, self.total_ticks);
        self.total_ns = total;
        self.mean_ns = total.and_then(|total| total.checked_div(self.calls - self.in_flight));
        self.max_ns = clock.between(0, self.max_ticks);
    }
}
