//! What keys change in the state, and what is to be asked next.

use ratatui::crossterm::event::{Event, KeyEvent, KeyEventKind};

use super::help;
use super::input_line::{Edit, InputLine, Purpose};
use super::keys::{self, Command};
use super::pane_line::Link;
use super::reply::{Request, Scope, Wanted};
use super::{Half, Screen, Search, State, Subject};

/// The step by which the pane grows.
const STEP: i16 = 2;

impl State {
    /// Applies an event of the terminal; returns what is to be asked.
    pub(crate) fn handle(&mut self, event: &Event) -> Vec<Request> {
        let mut requests = match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.press(*key),
            Event::Resize(columns, lines) => {
                self.size = (*columns, *lines);
                self.select(self.list.selected);
                self.select_finding(self.finding);
                self.wrap_pane();
                Vec::new()
            }
            _ => Vec::new(),
        };
        requests.extend(self.missing());
        requests
    }

    fn press(&mut self, key: KeyEvent) -> Vec<Request> {
        if let Some(input) = &mut self.input {
            let edit = input.press(key);
            return self.edited(edit);
        }
        self.message = None;
        let Some(command) = keys::command(key) else {
            self.say("no such key; ? shows the keys");
            return Vec::new();
        };
        if self.shows_help {
            self.press_in_help(command);
            return Vec::new();
        }
        self.command(command)
    }

    fn press_in_help(&mut self, command: Command) {
        let height = usize::from(self.size.1.saturating_sub(2));
        let last = help::lines().len().saturating_sub(height);
        let moved = match command {
            Command::Up => self.help_top.saturating_sub(1),
            Command::Down => self.help_top + 1,
            Command::PageUp => self.help_top.saturating_sub(height),
            Command::PageDown => self.help_top + height,
            Command::First => 0,
            Command::Last => last,
            Command::Quit => {
                self.shows_help = false;
                0
            }
            _ => {
                self.shows_help = false;
                0
            }
        };
        self.help_top = moved.min(last);
    }

    fn command(&mut self, command: Command) -> Vec<Request> {
        match command {
            Command::Up => self.step(-1),
            Command::Down => self.step(1),
            Command::PageUp => self.step(-self.page()),
            Command::PageDown => self.step(self.page()),
            Command::First => self.step(i64::MIN),
            Command::Last => self.step(i64::MAX),
            Command::OtherHalf => self.other_half(),
            Command::Open => return self.open(),
            Command::Back => {
                if self.places.is_empty() {
                    self.say("nowhere to go back to");
                }
                return self.go_back();
            }
            Command::Search => {
                self.input = Some(InputLine::new(Purpose::Search, ""));
                let from = self.selected_call().unwrap_or(0);
                let id = self.next_id();
                self.search = Some(Search {
                    id,
                    wanted: Wanted::Text(String::new()),
                    from,
                    is_running: false,
                    seen: 0,
                });
            }
            Command::SearchNext => return self.search_again(false),
            Command::SearchPrevious => return self.search_again(true),
            Command::NextFailure => return self.start_search(Wanted::Failure, false),
            Command::PreviousFailure => return self.start_search(Wanted::Failure, true),
            Command::Filter => {
                let text = match &self.list.scope {
                    Scope::Set(text) => text.clone(),
                    _ => String::new(),
                };
                self.input = Some(InputLine::new(Purpose::Filter, &text));
            }
            Command::GoTo => self.input = Some(InputLine::new(Purpose::GoTo, "")),
            Command::Follow => self.follow(),
            Command::Calls => self.screen = Screen::Calls,
            Command::Findings => {
                self.screen = Screen::Findings;
                self.half = Half::List;
            }
            Command::Object => {
                if let Scope::Uses(key) = self.list.scope {
                    self.half = Half::Pane;
                    self.show(Subject::Object(key));
                    return vec![Request::Object(key)];
                }
                self.say("the list has no object; choose one in the details with Tab and Enter");
            }
            Command::Grow => self.resize_pane(STEP),
            Command::Shrink => self.resize_pane(-STEP),
            Command::Help => self.shows_help = true,
            Command::Cancel => return self.cancel(),
            Command::Suspend => return vec![Request::Suspend],
            Command::Quit => self.has_ended = true,
        }
        Vec::new()
    }

    fn page(&self) -> i64 {
        let height = match self.half {
            Half::List => self.list_height(),
            Half::Pane => self.pane_height(),
        };
        i64::from(height.max(2) - 1)
    }

    /// Moves in the half that has the keys.
    fn step(&mut self, by: i64) {
        match (self.half, self.screen) {
            (Half::Pane, _) => {
                let line = (self.pane.selected as u64).saturating_add_signed(by);
                self.select_line(usize::try_from(line).unwrap_or(usize::MAX));
            }
            (Half::List, Screen::Calls) => {
                let line = self.list.selected.saturating_add_signed(by);
                self.is_following &= line >= self.length().saturating_sub(1) && by > 0;
                self.leave_object();
                self.select(line);
            }
            (Half::List, Screen::Findings) => {
                let finding = (self.finding as u64).saturating_add_signed(by);
                self.select_finding(usize::try_from(finding).unwrap_or(usize::MAX));
            }
        }
    }

    /// The pane follows the list again.
    fn leave_object(&mut self) {
        if let Subject::Object(_) = self.pane.subject {
            self.pane.subject = Subject::Nothing;
        }
    }

    fn other_half(&mut self) {
        self.half = match self.half {
            Half::Pane => Half::List,
            Half::List => Half::Pane,
        };
        if self.half == Half::Pane
            && let Some(line) = self.link_from(self.pane.selected)
        {
            self.select_line(line);
        }
    }

    /// Enter.
    fn open(&mut self) -> Vec<Request> {
        match (self.half, self.screen) {
            (Half::Pane, _) => match self.selected_link() {
                Some(link) => self.go(link),
                None => {
                    self.say("no link in this line; underlined ones can be followed");
                    Vec::new()
                }
            },
            (Half::List, Screen::Calls) => {
                self.other_half();
                Vec::new()
            }
            (Half::List, Screen::Findings) => {
                let finding = self.findings.get(self.finding);
                let call = finding.and_then(|finding| finding.call.as_ref());
                match call.map(|call| call.index) {
                    Some(call) => self.go(Link::Call(call)),
                    None => {
                        self.other_half();
                        Vec::new()
                    }
                }
            }
        }
    }

    /// Follows a link.
    fn go(&mut self, link: Link) -> Vec<Request> {
        self.push_place();
        self.screen = Screen::Calls;
        self.is_following = false;
        match link {
            Link::Call(call) => {
                self.half = Half::List;
                self.leave_object();
                let is_listed = match self.list.scope {
                    Scope::All => true,
                    _ => self.list.matches.binary_search(&call).is_ok(),
                };
                match is_listed {
                    true => {
                        self.select_call(call);
                        Vec::new()
                    }
                    false => self.show_scope(Scope::All, Some(call)),
                }
            }
            Link::Object(key) => {
                self.half = Half::Pane;
                let mut requests = self.show_scope(Scope::Uses(key), Some(key.call));
                self.show(Subject::Object(key));
                requests.push(Request::Object(key));
                requests
            }
        }
    }

    fn follow(&mut self) {
        if !self.progress.is_growing {
            self.say("the recording has ended: no calls will be added");
            return;
        }
        self.is_following = !self.is_following;
        if self.is_following {
            self.screen = Screen::Calls;
            self.half = Half::List;
            self.leave_object();
            self.select(u64::MAX);
        }
    }

    fn resize_pane(&mut self, by: i16) {
        let before = self.list_height();
        self.extra += by;
        if self.list_height() == before {
            self.extra -= by;
        }
        self.select(self.list.selected);
        self.select_line(self.pane.selected);
    }

    /// Esc.
    fn cancel(&mut self) -> Vec<Request> {
        if let Some(search) = self.search.as_mut().filter(|search| search.is_running) {
            search.is_running = false;
            return vec![Request::StopSearch];
        }
        if self.half == Half::Pane {
            self.half = Half::List;
            return Vec::new();
        }
        if self.screen == Screen::Findings {
            self.screen = Screen::Calls;
            return Vec::new();
        }
        if self.list.scope == Scope::All {
            return Vec::new();
        }
        let call = self.selected_call();
        self.leave_object();
        self.show_scope(Scope::All, call)
    }

    /// After a key in the input line.
    fn edited(&mut self, edit: Edit) -> Vec<Request> {
        let Some(input) = &self.input else {
            return Vec::new();
        };
        let (purpose, text) = (input.purpose, input.text());
        match (purpose, edit) {
            (_, Edit::Nothing) | (Purpose::Filter | Purpose::GoTo, Edit::Changed) => Vec::new(),
            (Purpose::Search, Edit::Changed) => self.search_as_typed(&text),
            (Purpose::Search, Edit::Cancelled) => {
                self.input = None;
                if let Some(search) = self.search.take() {
                    self.select_call(search.from);
                }
                vec![Request::StopSearch]
            }
            (_, Edit::Cancelled) => {
                self.input = None;
                Vec::new()
            }
            (Purpose::Search, Edit::Done) => {
                self.input = None;
                Vec::new()
            }
            (Purpose::Filter, Edit::Done) => {
                self.input = None;
                self.screen = Screen::Calls;
                self.half = Half::List;
                self.leave_object();
                let call = self.selected_call();
                self.push_place();
                match text.trim() {
                    "" => self.show_scope(Scope::All, call),
                    text => self.show_scope(Scope::Set(text.to_owned()), call),
                }
            }
            (Purpose::GoTo, Edit::Done) => {
                self.input = None;
                match text.trim().parse() {
                    Ok(call) if call < self.progress.total => self.go(Link::Call(call)),
                    Ok(_) => {
                        let last = self.progress.total.saturating_sub(1);
                        self.complain(format!("the last call is {last}"));
                        Vec::new()
                    }
                    Err(_) => {
                        self.complain(format!("not a call number: {}", text.escape_debug()));
                        Vec::new()
                    }
                }
            }
        }
    }

    /// Searches from where the search began, while its text is being typed.
    fn search_as_typed(&mut self, text: &str) -> Vec<Request> {
        let (id, scope) = (self.next_id(), self.list.scope.clone());
        let Some(search) = &mut self.search else {
            return Vec::new();
        };
        search.id = id;
        search.wanted = Wanted::Text(text.to_lowercase());
        let from = search.from;
        if text.is_empty() {
            search.is_running = false;
            self.select_call(from);
            return vec![Request::StopSearch];
        }
        search.is_running = true;
        search.seen = 0;
        // The call where it began may match as well.
        let from = from.checked_sub(1).unwrap_or(u64::MAX);
        vec![Request::Search {
            id,
            wanted: search.wanted.clone(),
            scope,
            from,
            is_backward: false,
        }]
    }

    fn search_again(&mut self, is_backward: bool) -> Vec<Request> {
        match &self.search {
            Some(Search { wanted, .. }) if *wanted != Wanted::Text(String::new()) => {
                let wanted = wanted.clone();
                self.start_search(wanted, is_backward)
            }
            _ => {
                self.say("no search yet; / begins one");
                Vec::new()
            }
        }
    }

    fn start_search(&mut self, wanted: Wanted, is_backward: bool) -> Vec<Request> {
        self.screen = Screen::Calls;
        self.half = Half::List;
        self.leave_object();
        let from = self.selected_call().unwrap_or(0);
        let id = self.next_id();
        self.search = Some(Search {
            id,
            wanted: wanted.clone(),
            from,
            is_running: true,
            seen: 0,
        });
        vec![Request::Search {
            id,
            wanted,
            scope: self.list.scope.clone(),
            from,
            is_backward,
        }]
    }
}
