//! What replies change in the state, and what is to be asked next.

use cutape_render::quantity;

use super::reply::{Progress, Reply, Request, Scope, Wanted};
use super::{Half, State, Subject};

impl State {
    /// Applies a reply; returns what is to be asked.
    pub(crate) fn receive(&mut self, reply: Reply) -> Vec<Request> {
        let mut requests = self.apply(reply);
        requests.extend(self.missing());
        requests
    }

    fn apply(&mut self, reply: Reply) -> Vec<Request> {
        match reply {
            Reply::Progress(progress) => self.progressed(progress),
            Reply::Rows(rows) => self.add_rows(rows),
            Reply::Call { index, lines } => {
                if self.pane.subject == Subject::Call(index) {
                    self.fill_pane(lines);
                    if self.half == Half::Pane && self.pane.selected == 0 {
                        self.select_line(self.link_from(0).unwrap_or(0));
                    }
                }
            }
            Reply::Object { key, title, lines } => {
                if self.list.scope == Scope::Uses(key) {
                    self.list.title = title;
                }
                if self.pane.subject == Subject::Object(key) {
                    self.fill_pane(lines);
                    self.show_end();
                    if let Some(line) = self.link_from(0) {
                        self.select_line(line);
                    }
                }
            }
            Reply::Matches {
                id,
                calls,
                rows,
                seen,
                is_done,
                is_ended,
            } => {
                self.add_rows(rows);
                if self.list.id == id {
                    self.list.matches.extend(calls);
                    (self.list.seen, self.list.is_done) = (seen, is_done);
                    self.list.is_ended = is_ended;
                    self.show_end();
                    if let Some(call) = self.list.wanted
                        && (is_done || self.list.matches.last() >= Some(&call))
                    {
                        self.select_call(call);
                        self.list.wanted = None;
                    }
                    if is_done && self.length() == 0 {
                        self.say("no call matches");
                    }
                }
            }
            Reply::BadScope { id, why } => {
                if self.list.id == id {
                    let requests = self.go_back();
                    self.complain(why);
                    return requests;
                }
                self.complain(why);
            }
            Reply::Found {
                id,
                call,
                is_wrapped,
            } => self.found(id, call, is_wrapped),
            Reply::Searching { id, seen } => {
                if let Some(search) = self.search.as_mut().filter(|search| search.id == id) {
                    search.seen = seen;
                }
            }
            Reply::Findings(findings) => {
                self.findings.extend(findings);
                self.select_finding(self.finding);
            }
            Reply::Checked {
                calls,
                is_complete,
                omitted,
            } => {
                self.checked.calls = calls;
                self.checked.is_complete = is_complete;
                self.checked.omitted = omitted;
            }
            Reply::Failed(why) => self.complain(why),
        }
        Vec::new()
    }

    fn progressed(&mut self, progress: Progress) {
        let before = std::mem::replace(&mut self.progress, progress);
        // Lines before the scan's first look at a growing trace do not exist.
        let has_moved = before.total != self.progress.total
            || before.settled != self.progress.settled
            || before.is_growing != self.progress.is_growing;
        if before.is_growing && has_moved {
            self.forget_unsettled(before.settled);
        }
        if before.is_growing && !self.progress.is_growing {
            self.is_following = false;
            let calls = quantity::grouped(self.progress.total);
            self.say(format!("the recording has ended after {calls} calls"));
        }
        if self.is_following {
            self.select(u64::MAX);
        } else if let Some(call) = self.list.wanted.filter(|&call| call < self.length()) {
            self.select_call(call);
        }
    }

    fn found(&mut self, id: u64, call: Option<u64>, is_wrapped: bool) {
        let Some(search) = self.search.as_mut().filter(|search| search.id == id) else {
            return;
        };
        search.is_running = false;
        let what = match &search.wanted {
            Wanted::Text(text) => format!("`{}`", text.escape_debug()),
            Wanted::Failure => "call that failed".to_owned(),
        };
        match call {
            Some(call) => {
                self.is_following = false;
                self.select_call(call);
                if is_wrapped && self.input.is_none() {
                    self.say("search went on from the other end");
                }
            }
            None => self.complain(format!("no {what}")),
        }
    }
}
