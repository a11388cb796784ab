//! What the screen shows: lists, what is selected in them, and what is known of it. Knows neither
//! the trace nor the terminal.

use std::collections::{BTreeMap, BTreeSet};

use cutape_analyzer::Finding;

use super::findings;
use super::input_line::InputLine;
use super::object_key::ObjectKey;
use super::object_pane;
use super::pane::{Link, PaneLine};
use super::reply::{Progress, Request, Scope, Wanted};
use super::row::Row;

/// Lines that are kept when there are too many.
const MOST_ROWS: usize = 1 << 15;
/// Places to go back to.
pub(super) const MOST_PLACES: usize = 64;
/// The smallest screen that is drawn.
pub(super) const SMALLEST: (u16, u16) = (40, 10);

/// Which list is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Screen {
    Calls,
    Findings,
}

/// Which half of the screen the keys are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Half {
    List,
    Pane,
}

/// A list of calls, and the line selected in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct List {
    pub(super) scope: Scope,
    /// The object whose uses these are.
    pub(super) title: String,
    /// The number of its request.
    pub(super) id: u64,
    /// The calls, unless it has all.
    pub(super) matches: Vec<u64>,
    /// Calls that have been looked at.
    pub(super) seen: u64,
    pub(super) is_done: bool,
    /// The last call ended the object whose uses these are.
    pub(super) is_ended: bool,
    /// The line: the position in the list.
    pub(super) selected: u64,
    /// The first line on the screen.
    pub(super) top: u64,
    /// The call to select as soon as the list has it.
    pub(super) wanted: Option<u64>,
}

impl List {
    pub(super) fn new(scope: Scope, id: u64) -> Self {
        Self {
            title: match scope {
                Scope::Uses(key) => format!("{} {:#x}", key.kind.name(), key.handle),
                _ => String::new(),
            },
            scope,
            id,
            matches: Vec::new(),
            seen: 0,
            is_done: false,
            is_ended: false,
            selected: 0,
            top: 0,
            wanted: None,
        }
    }
}

/// What the pane shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Nothing,
    Call(u64),
    Object(ObjectKey),
    /// By its place in the list.
    Finding(usize),
}

/// The lower half of the screen.
#[derive(Clone, Debug)]
pub(super) struct Pane {
    pub(super) subject: Subject,
    /// As they came.
    content: Vec<PaneLine>,
    /// As wide as the screen.
    pub(super) lines: Vec<PaneLine>,
    /// The line that Enter is for.
    pub(super) selected: usize,
    pub(super) top: usize,
    /// The content is that of the subject.
    pub(super) is_loaded: bool,
}

/// Where one came from.
#[derive(Clone, Debug)]
pub(super) struct Place {
    screen: Screen,
    half: Half,
    list: List,
    finding: usize,
    subject: Subject,
    line: usize,
}

/// A search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Search {
    pub(super) id: u64,
    pub(super) wanted: Wanted,
    /// Where it began, to return to when it is cancelled.
    pub(super) from: u64,
    pub(super) is_running: bool,
    pub(super) seen: u64,
}

/// A line about what just happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) text: String,
    pub(super) is_error: bool,
}

/// How far the check is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Checked {
    pub(super) calls: u64,
    pub(super) is_complete: bool,
    pub(super) omitted: String,
}

/// Everything that the screen shows.
#[derive(Debug)]
pub(super) struct State {
    /// The name of the trace.
    pub(super) name: String,
    /// Columns and lines.
    pub(super) size: (u16, u16),
    pub(super) progress: Progress,
    pub(super) screen: Screen,
    pub(super) half: Half,
    pub(super) list: List,
    /// Lines of calls, by call.
    pub(super) rows: BTreeMap<u64, Row>,
    /// Those of them that are to be read again.
    stale: BTreeSet<u64>,
    /// The calls whose lines were asked for last.
    asked: Vec<u64>,
    pub(super) findings: Vec<Finding>,
    pub(super) checked: Checked,
    pub(super) finding: usize,
    pub(super) finding_top: usize,
    pub(super) pane: Pane,
    /// Lines of the pane that the user has added to the usual height.
    pub(super) extra: i16,
    pub(super) places: Vec<Place>,
    pub(super) input: Option<InputLine>,
    pub(super) search: Option<Search>,
    pub(super) message: Option<Message>,
    pub(super) is_following: bool,
    pub(super) shows_help: bool,
    /// The first line of the help on the screen.
    pub(super) help_top: usize,
    pub(super) has_ended: bool,
    last_id: u64,
}

impl State {
    /// For a trace of that name.
    pub(super) fn new(name: String, size: (u16, u16)) -> Self {
        Self {
            name,
            size,
            progress: Progress::default(),
            screen: Screen::Calls,
            half: Half::List,
            list: List::new(Scope::All, 0),
            rows: BTreeMap::new(),
            stale: BTreeSet::new(),
            asked: Vec::new(),
            findings: Vec::new(),
            checked: Checked::default(),
            finding: 0,
            finding_top: 0,
            pane: Pane {
                subject: Subject::Nothing,
                content: Vec::new(),
                lines: Vec::new(),
                selected: 0,
                top: 0,
                is_loaded: false,
            },
            extra: 0,
            places: Vec::new(),
            input: None,
            search: None,
            message: None,
            is_following: false,
            shows_help: false,
            help_top: 0,
            has_ended: false,
            last_id: 0,
        }
    }

    /// A number that no earlier request has.
    pub(super) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Lines of the list on the screen.
    pub(super) fn list_height(&self) -> u16 {
        // Title, heading of the pane, and the last line.
        let free = self.size.1.saturating_sub(3);
        let usual = free / 2;
        let height = i32::from(usual) - i32::from(self.extra);
        u16::try_from(height.clamp(3, i32::from(free).max(6) - 3)).unwrap_or(usual)
    }

    /// Lines of the pane on the screen.
    pub(super) fn pane_height(&self) -> u16 {
        self.size
            .1
            .saturating_sub(3)
            .saturating_sub(self.list_height())
    }

    /// Lines of the list of calls.
    pub(super) fn length(&self) -> u64 {
        match self.list.scope {
            Scope::All => self.progress.total,
            _ => self.list.matches.len() as u64,
        }
    }

    /// The call in a line of the list.
    pub(super) fn call_at(&self, line: u64) -> Option<u64> {
        match self.list.scope {
            Scope::All => (line < self.progress.total).then_some(line),
            _ => self.list.matches.get(usize::try_from(line).ok()?).copied(),
        }
    }

    /// The selected call.
    pub(super) fn selected_call(&self) -> Option<u64> {
        self.call_at(self.list.selected)
    }

    /// Selects a line, and scrolls to it.
    pub(super) fn select(&mut self, line: u64) {
        let height = u64::from(self.list_height());
        let last = self.length().saturating_sub(1);
        let list = &mut self.list;
        list.selected = line.min(last);
        list.wanted = None;
        list.top = list.top.min(list.selected);
        list.top = list.top.max((list.selected + 1).saturating_sub(height));
        list.top = list.top.min((last + 1).saturating_sub(height));
    }

    /// Selects a line and shows it in the middle, if it is not on the screen.
    pub(super) fn jump(&mut self, line: u64) {
        let height = u64::from(self.list_height());
        if !(self.list.top..self.list.top + height).contains(&line) {
            self.list.top = line.saturating_sub(height / 2);
        }
        self.select(line);
    }

    /// Selects a call, or the first one behind it; one that the list does not have yet when it
    /// comes.
    pub(super) fn select_call(&mut self, call: u64) {
        let line = match self.list.scope {
            Scope::All => call,
            _ => self.list.matches.partition_point(|&known| known < call) as u64,
        };
        let is_there = line < self.length();
        self.jump(line);
        if !is_there {
            self.list.wanted = Some(call);
        }
    }

    /// Shows another list of calls; the requests that it needs.
    pub(super) fn show_scope(&mut self, scope: Scope, call: Option<u64>) -> Vec<Request> {
        let id = self.next_id();
        self.list = List::new(scope.clone(), id);
        self.is_following &= scope == Scope::All;
        if let Some(call) = call {
            self.select_call(call);
        }
        match scope {
            // Ends a pass for an earlier list as well.
            Scope::All => Vec::new(),
            scope => vec![Request::Filter { id, scope }],
        }
    }

    /// Remembers where one is.
    pub(super) fn push_place(&mut self) {
        if self.places.len() == MOST_PLACES {
            self.places.remove(0);
        }
        self.places.push(Place {
            screen: self.screen,
            half: self.half,
            list: self.list.clone(),
            finding: self.finding,
            subject: self.pane.subject,
            line: self.pane.selected,
        });
    }

    /// Goes back to where one came from.
    pub(super) fn pop_place(&mut self) -> Vec<Request> {
        let Some(place) = self.places.pop() else {
            return Vec::new();
        };
        (self.screen, self.half) = (place.screen, place.half);
        self.finding = place.finding.min(self.findings.len().saturating_sub(1));
        let mut requests = Vec::new();
        if place.list.id != self.list.id {
            let is_complete = place.list.is_done || place.list.scope == Scope::All;
            let call = match place.list.scope {
                Scope::All => Some(place.list.selected),
                _ => place
                    .list
                    .matches
                    .get(place.list.selected as usize)
                    .copied(),
            };
            if is_complete {
                self.list = place.list;
            } else {
                requests = self.show_scope(place.list.scope, call);
            }
        } else {
            self.list.selected = place.list.selected;
            self.list.top = place.list.top;
        }
        self.select(self.list.selected);
        self.show(place.subject);
        self.pane.selected = place.line;
        requests
    }

    /// Shows something in the pane, whose content comes later.
    pub(super) fn show(&mut self, subject: Subject) {
        if self.pane.subject == subject && self.pane.is_loaded {
            return;
        }
        self.pane.subject = subject;
        self.pane.is_loaded = false;
        (self.pane.selected, self.pane.top) = (0, 0);
        if subject == Subject::Nothing {
            self.pane.content = Vec::new();
            self.pane.lines = Vec::new();
        }
        if let Subject::Finding(number) = subject {
            self.pane.is_loaded = true;
            self.pane.content = Vec::new();
            let width = usize::from(self.size.0).saturating_sub(1);
            let finding = self.findings.get(number);
            self.pane.lines = finding.map_or(Vec::new(), |found| findings::lines(found, width));
        }
    }

    /// Fills the pane.
    pub(super) fn fill_pane(&mut self, lines: Vec<PaneLine>) {
        self.pane.content = lines;
        self.pane.is_loaded = true;
        self.wrap_pane();
    }

    /// Adds to the object in the pane which call ended it, once the list of its uses is complete.
    pub(super) fn show_end(&mut self) {
        let Subject::Object(key) = self.pane.subject else {
            return;
        };
        if !self.pane.is_loaded || !self.list.is_done || self.list.scope != Scope::Uses(key) {
            return;
        }
        let end = self.list.matches.last().filter(|_| self.list.is_ended);
        let line = object_pane::ended(end.copied());
        if !self.pane.content.contains(&line) {
            self.pane.content.push(line);
            self.wrap_pane();
        }
    }

    /// Breaks the lines of the pane to the width of the screen.
    pub(super) fn wrap_pane(&mut self) {
        if let Subject::Finding(_) = self.pane.subject {
            let (subject, selected) = (self.pane.subject, self.pane.selected);
            self.pane.is_loaded = false;
            self.show(subject);
            self.pane.selected = selected;
        } else {
            let width = usize::from(self.size.0).saturating_sub(1);
            let content = self.pane.content.iter().cloned();
            self.pane.lines = content.flat_map(|line| line.wrapped(width)).collect();
        }
        self.select_line(self.pane.selected);
    }

    /// Selects a line of the pane, and scrolls to it.
    pub(super) fn select_line(&mut self, line: usize) {
        let height = usize::from(self.pane_height()).max(1);
        let length = self.pane.lines.len();
        let pane = &mut self.pane;
        pane.selected = line.min(length.saturating_sub(1));
        pane.top = pane.top.min(pane.selected);
        pane.top = pane.top.max((pane.selected + 1).saturating_sub(height));
        pane.top = pane.top.min(length.saturating_sub(height));
    }

    /// The first line of the pane with a link, from a line on.
    pub(super) fn link_from(&self, line: usize) -> Option<usize> {
        let lines = self.pane.lines.iter().enumerate().skip(line);
        lines
            .clone()
            .find(|(_, line)| line.link.is_some())
            .map(|(line, _)| line)
    }

    /// The link in the selected line of the pane.
    pub(super) fn selected_link(&self) -> Option<Link> {
        self.pane.lines.get(self.pane.selected)?.link
    }

    /// Selects a finding, and scrolls to it.
    pub(super) fn select_finding(&mut self, finding: usize) {
        let height = usize::from(self.list_height());
        self.finding = finding.min(self.findings.len().saturating_sub(1));
        self.finding_top = self.finding_top.min(self.finding);
        self.finding_top = self
            .finding_top
            .max((self.finding + 1).saturating_sub(height));
    }

    /// Requests for what the screen needs and does not have: lines, and the pane's content.
    pub(super) fn missing(&mut self) -> Vec<Request> {
        let mut requests = Vec::new();
        if self.screen == Screen::Calls {
            requests.extend(self.missing_rows());
            let follows = !matches!(self.pane.subject, Subject::Object(_));
            if let Some(call) = self
                .selected_call()
                .filter(|_| follows && self.half == Half::List)
                && self.pane.subject != Subject::Call(call)
            {
                self.show(Subject::Call(call));
                requests.push(Request::Call(call));
            }
        } else if self.half == Half::List {
            self.show(match self.findings.is_empty() {
                true => Subject::Nothing,
                false => Subject::Finding(self.finding),
            });
        }
        requests
    }

    /// A request for the lines around the screen, if some on it are missing.
    fn missing_rows(&mut self) -> Option<Request> {
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

    /// Says something in the last line.
    pub(super) fn say(&mut self, text: impl Into<String>) {
        self.message = Some(Message {
            text: text.into(),
            is_error: false,
        });
    }

    /// Says in the last line what went wrong.
    pub(super) fn complain(&mut self, text: impl Into<String>) {
        self.message = Some(Message {
            text: text.into(),
            is_error: true,
        });
    }
}
