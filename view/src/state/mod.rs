//! What the screen shows: lists, what is selected in them, and what is known of it. Knows neither
//! the trace nor the terminal.

pub(crate) mod finding_lines;
pub(crate) mod help;
pub(crate) mod input_line;
mod keys;
pub(crate) mod object_key;
pub(crate) mod pane_line;
mod press;
mod receive;
pub(crate) mod reply;
pub(crate) mod row;
mod rows;

use std::collections::{BTreeMap, BTreeSet};

use cutape_analyzer::Finding;

use self::input_line::InputLine;
use self::object_key::ObjectKey;
use self::pane_line::{Link, PaneLine, Role};
use self::reply::{Progress, Request, Scope, Wanted};
use self::row::Row;

/// Places to go back to.
const MOST_PLACES: usize = 64;
/// The smallest screen that is drawn.
pub(crate) const SMALLEST: (u16, u16) = (40, 10);

/// Which list is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Screen {
    Calls,
    Findings,
}

/// Which half of the screen the keys are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    List,
    Pane,
}

/// A list of calls, and the line selected in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct List {
    pub(crate) scope: Scope,
    /// The object whose uses these are.
    pub(crate) title: String,
    /// The number of its request.
    pub(crate) id: u64,
    /// The calls, unless it has all.
    pub(crate) matches: Vec<u64>,
    /// Calls that have been looked at.
    pub(crate) seen: u64,
    pub(crate) is_done: bool,
    /// The last call ended the object whose uses these are.
    pub(crate) is_ended: bool,
    /// The line: the position in the list.
    pub(crate) selected: u64,
    /// The first line on the screen.
    pub(crate) top: u64,
    /// The call to select as soon as the list has it.
    pub(crate) wanted: Option<u64>,
}

impl List {
    pub(crate) fn new(scope: Scope, id: u64) -> Self {
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
pub(crate) enum Subject {
    Nothing,
    Call(u64),
    Object(ObjectKey),
    /// By its place in the list.
    Finding(usize),
}

/// The lower half of the screen.
#[derive(Clone, Debug)]
pub(crate) struct Pane {
    pub(crate) subject: Subject,
    /// As they came.
    content: Vec<PaneLine>,
    /// As wide as the screen.
    pub(crate) lines: Vec<PaneLine>,
    /// The line that Enter is for.
    pub(crate) selected: usize,
    pub(crate) top: usize,
    /// The content is that of the subject.
    pub(crate) is_loaded: bool,
}

/// Where one came from.
#[derive(Clone, Debug)]
struct Place {
    screen: Screen,
    half: Half,
    list: List,
    finding: usize,
    subject: Subject,
    line: usize,
}

/// A search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Search {
    pub(crate) id: u64,
    pub(crate) wanted: Wanted,
    /// Where it began, to return to when it is cancelled.
    pub(crate) from: u64,
    pub(crate) is_running: bool,
    pub(crate) seen: u64,
}

/// A line about what just happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) text: String,
    pub(crate) is_error: bool,
}

/// How far the check is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checked {
    pub(crate) calls: u64,
    pub(crate) is_complete: bool,
    pub(crate) omitted: String,
}

/// Everything that the screen shows.
#[derive(Debug)]
pub(crate) struct State {
    /// The name of the trace.
    pub(crate) name: String,
    /// Columns and lines.
    pub(crate) size: (u16, u16),
    pub(crate) progress: Progress,
    pub(crate) screen: Screen,
    pub(crate) half: Half,
    pub(crate) list: List,
    /// Lines of calls, by call.
    pub(crate) rows: BTreeMap<u64, Row>,
    /// Those of them that are to be read again.
    stale: BTreeSet<u64>,
    /// The calls whose lines were asked for last.
    asked: Vec<u64>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) checked: Checked,
    pub(crate) finding: usize,
    pub(crate) finding_top: usize,
    pub(crate) pane: Pane,
    /// Lines of the pane that the user has added to the usual height.
    pub(crate) extra: i16,
    places: Vec<Place>,
    pub(crate) input: Option<InputLine>,
    pub(crate) search: Option<Search>,
    pub(crate) message: Option<Message>,
    pub(crate) is_following: bool,
    pub(crate) shows_help: bool,
    /// The first line of the help on the screen.
    pub(crate) help_top: usize,
    pub(crate) has_ended: bool,
    last_id: u64,
}

impl State {
    /// For a trace of that name.
    pub(crate) fn new(name: String, size: (u16, u16)) -> Self {
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
    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Lines of the list on the screen.
    pub(crate) fn list_height(&self) -> u16 {
        // Title, heading of the pane, and the last line.
        let free = self.size.1.saturating_sub(3);
        let usual = free / 2;
        let height = i32::from(usual) - i32::from(self.extra);
        u16::try_from(height.clamp(3, i32::from(free).max(6) - 3)).unwrap_or(usual)
    }

    /// Lines of the pane on the screen.
    pub(crate) fn pane_height(&self) -> u16 {
        self.size
            .1
            .saturating_sub(3)
            .saturating_sub(self.list_height())
    }

    /// Lines of the list of calls.
    pub(crate) fn length(&self) -> u64 {
        match self.list.scope {
            Scope::All => self.progress.total,
            _ => self.list.matches.len() as u64,
        }
    }

    /// The call in a line of the list.
    pub(crate) fn call_at(&self, line: u64) -> Option<u64> {
        match self.list.scope {
            Scope::All => (line < self.progress.total).then_some(line),
            _ => self.list.matches.get(usize::try_from(line).ok()?).copied(),
        }
    }

    /// The selected call.
    fn selected_call(&self) -> Option<u64> {
        self.call_at(self.list.selected)
    }

    /// Selects a line, and scrolls to it.
    fn select(&mut self, line: u64) {
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
    fn jump(&mut self, line: u64) {
        let height = u64::from(self.list_height());
        if !(self.list.top..self.list.top + height).contains(&line) {
            self.list.top = line.saturating_sub(height / 2);
        }
        self.select(line);
    }

    /// Selects a call, or the first one behind it; one that the list does not have yet when it
    /// comes.
    fn select_call(&mut self, call: u64) {
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
    pub(crate) fn show_scope(&mut self, scope: Scope, call: Option<u64>) -> Vec<Request> {
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
    fn push_place(&mut self) {
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
    fn go_back(&mut self) -> Vec<Request> {
        let mut requests = self.pop_place();
        if !self.pane.is_loaded {
            match self.pane.subject {
                Subject::Call(call) => requests.push(Request::Call(call)),
                Subject::Object(key) => requests.push(Request::Object(key)),
                _ => {}
            }
        }
        requests
    }

    fn pop_place(&mut self) -> Vec<Request> {
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
    pub(crate) fn show(&mut self, subject: Subject) {
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
            self.pane.lines =
                finding.map_or(Vec::new(), |found| finding_lines::lines(found, width));
        }
    }

    /// Fills the pane.
    fn fill_pane(&mut self, lines: Vec<PaneLine>) {
        self.pane.content = lines;
        self.pane.is_loaded = true;
        self.wrap_pane();
    }

    /// Adds to the object in the pane which call ended it, once the list of its uses is complete.
    fn show_end(&mut self) {
        let Subject::Object(key) = self.pane.subject else {
            return;
        };
        if !self.pane.is_loaded || !self.list.is_done || self.list.scope != Scope::Uses(key) {
            return;
        }
        let end = self.list.matches.last().filter(|_| self.list.is_ended);
        let line = ended(end.copied());
        if !self.pane.content.contains(&line) {
            self.pane.content.push(line);
            self.wrap_pane();
        }
    }

    /// Breaks the lines of the pane to the width of the screen.
    fn wrap_pane(&mut self) {
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
    fn select_line(&mut self, line: usize) {
        let height = usize::from(self.pane_height()).max(1);
        let length = self.pane.lines.len();
        let pane = &mut self.pane;
        pane.selected = line.min(length.saturating_sub(1));
        pane.top = pane.top.min(pane.selected);
        pane.top = pane.top.max((pane.selected + 1).saturating_sub(height));
        pane.top = pane.top.min(length.saturating_sub(height));
    }

    /// The first line of the pane with a link, from a line on.
    fn link_from(&self, line: usize) -> Option<usize> {
        let lines = self.pane.lines.iter().enumerate().skip(line);
        lines
            .clone()
            .find(|(_, line)| line.link.is_some())
            .map(|(line, _)| line)
    }

    /// The link in the selected line of the pane.
    fn selected_link(&self) -> Option<Link> {
        self.pane.lines.get(self.pane.selected)?.link
    }

    /// Selects a finding, and scrolls to it.
    fn select_finding(&mut self, finding: usize) {
        let height = usize::from(self.list_height());
        self.finding = finding.min(self.findings.len().saturating_sub(1));
        self.finding_top = self.finding_top.min(self.finding);
        self.finding_top = self
            .finding_top
            .max((self.finding + 1).saturating_sub(height));
    }

    /// Requests for what the screen needs and does not have: lines, and the pane's content.
    pub(crate) fn missing(&mut self) -> Vec<Request> {
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

    /// Says something in the last line.
    pub(crate) fn say(&mut self, text: impl Into<String>) {
        self.message = Some(Message {
            text: text.into(),
            is_error: false,
        });
    }

    /// Says in the last line what went wrong.
    pub(crate) fn complain(&mut self, text: impl Into<String>) {
        self.message = Some(Message {
            text: text.into(),
            is_error: true,
        });
    }
}

/// The line about the object's end.
fn ended(call: Option<u64>) -> PaneLine {
    match call {
        Some(call) => PaneLine::new("  ended by ", Role::Dim)
            .and(format!("call {call}"), Role::Link)
            .to(Link::Call(call)),
        None => PaneLine::new("  not ended", Role::Dim),
    }
}
