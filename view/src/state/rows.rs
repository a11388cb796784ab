//! The lines of calls: which are known, and which are to be read.

use super::reply::Request;
use super::row::Row;
use super::{Half, State, Subject};

/// Lines that are kept when there are too many.
const MOST_ROWS: usize = 1 << 15;

impl State {
    /// A request for the lines around the screen, if some on it are missing.
    pub(super) fn missing_rows(&mut self) -> Option<Request> {
        let height = u64::from(self.list_height());
        let top = self.list.top;
        let is_missing = |state: &Self, line| {
            let call = state.call_at(line);
            call.filter(|call| !state.rows.contains_key(call) || state.stale.contains(call))
        };
        let on_screen = (top..top + height).filter_map(|line| is_missing(self, line));
        let on_screen: Vec<u64> = on_screen.collect();
        if on_screen.is_empty() || on_screen.iter().all(|call| self.asked.contains(call)) {
            return None;
        }
        // A screen before and two behind are read with it.
        let near = top.saturating_sub(height)..top + 3 * height;
        let calls: Vec<u64> = near.filter_map(|line| is_missing(self, line)).collect();
        self.asked.clone_from(&calls);
        Some(Request::Rows(calls))
    }

    /// Keeps lines; forgets those that are far from the screen if there are too many.
    pub(super) fn add_rows(&mut self, rows: Vec<Row>) {
        for row in rows {
            self.stale.remove(&row.index);
            self.rows.insert(row.index, row);
        }
        self.asked.clear();
        if self.rows.len() > MOST_ROWS {
            let height = u64::from(self.list_height());
            let lines = self.list.top.saturating_sub(height)..self.list.top + 3 * height;
            let near: Vec<u64> = lines.filter_map(|line| self.call_at(line)).collect();
            self.rows.retain(|call, _| near.binary_search(call).is_ok());
        }
    }

    /// Reads lines again that may have changed: of calls that had not returned, and of those
    /// behind.
    pub(super) fn forget_unsettled(&mut self, settled: u64) {
        let height = u64::from(self.list_height());
        let lines = self.list.top..self.list.top + height;
        let on_screen: Vec<u64> = lines.filter_map(|line| self.call_at(line)).collect();
        let unsettled = self.rows.split_off(&settled);
        for (call, row) in unsettled {
            if on_screen.binary_search(&call).is_ok() {
                self.rows.insert(call, row);
                self.stale.insert(call);
            }
        }
        self.asked.clear();
        if let Subject::Call(call) = self.pane.subject
            && call >= settled
            && self.half == Half::List
        {
            self.pane.subject = Subject::Nothing;
        }
    }
}
