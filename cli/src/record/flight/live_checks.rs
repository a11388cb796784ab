//! `--keep-on finding`: the check of a program while it is recorded, on a thread of low priority.
//!
//! It never delays the program or a look at what can be erased. If calls are erased before it has
//! seen them, it goes on in the middle of the window: of the calls before, it takes only what they
//! create, change and end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use cutape_analyzer::{Analyzer, Finding, FindingList, Severity};
use cutape_cut::window::Held;
use cutape_format::{Cursor, Trace};
use cutape_render::quantity;
use cutape_symbols::{Resolver, SymbolContext};
use cutape_terminal::clock::TickClock;
use cutape_terminal::message;
use cutape_terminal::output;

/// The shortest time between two looks at new calls.
const PAUSE: Duration = Duration::from_millis(50);
/// Low, so that the check runs where the program leaves processors idle; not the lowest, so that it
/// also runs elsewhere.
const NICE: i32 = 10;
/// How many calls are checked before other traces have their turn.
const MOST_AT_ONCE: usize = 1 << 16;
/// After that many calls, or as many as there are in a trace, it is opened again: a reader knows all
/// chunks since it was opened, erased ones too.
const MOST_CALLS: u64 = 1 << 24;
/// Refreshes after which a reader that has just been opened knows up to when it has all calls.
const REFRESHES: usize = 3;
/// After so many calls that are passed over, it asks whether they have been erased.
const LOOK: u64 = 256;

/// A finding that is new.
#[derive(Debug)]
pub(super) struct FoundMistake {
    pub(super) path: PathBuf,
    pub(super) rule: &'static str,
    pub(super) severity: Severity,
    /// As in the first line of `check`.
    pub(super) text: String,
    /// When its call was entered.
    pub(super) ticks: u64,
}

/// What was not checked.
#[derive(Clone, Copy, Debug, Default)]
struct Skipped {
    times: u64,
    /// From the last call that was checked to the next, in all.
    ticks: u64,
}

impl Skipped {
    fn add(&mut self, other: Self) {
        self.times += other.times;
        self.ticks = self.ticks.saturating_add(other.ticks);
    }

    /// Ends the checks of processes that have ended. What had left the window unchecked is never
    /// checked; the window is in the trace that they leave. `began` is when checking began.
    fn add_ended(
        &mut self,
        shared: &Shared,
        checks: &mut BTreeMap<PathBuf, LiveCheck>,
        began: u64,
    ) {
        for (path, until) in shared.ended().drain(..) {
            let check = checks.remove(&path).unwrap_or_default();
            self.add(check.skipped);
            let checked = check.checked.max(began);
            if until > checked && !check.has_no_clock {
                self.add(Self {
                    times: 1,
                    ticks: until - checked,
                });
            }
        }
    }
}

/// What is left of the calls before the last window of each trace.
#[derive(Debug, Default)]
struct Shared {
    held: Mutex<BTreeMap<PathBuf, Arc<Held>>>,
    /// Traces whose process has ended, and when their last window began, in ticks.
    ended: Mutex<Vec<(PathBuf, u64)>>,
    is_over: AtomicBool,
}

impl Shared {
    fn held(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Arc<Held>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn held_of(&self, path: &Path) -> Arc<Held> {
        self.held().get(path).cloned().unwrap_or_default()
    }

    fn ended(&self) -> MutexGuard<'_, Vec<(PathBuf, u64)>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

/// The checks of all traces.
#[derive(Debug)]
pub(super) struct LiveChecks {
    shared: Arc<Shared>,
    found: Receiver<FoundMistake>,
    thread: JoinHandle<Skipped>,
}

impl LiveChecks {
    pub(super) fn start() -> Self {
        let shared = Arc::new(Shared::default());
        let (sender, found) = channel();
        let thread = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || check_all(&shared, &sender))
        };
        Self {
            shared,
            found,
            thread,
        }
    }

    /// What is left of the calls before the window of a trace, which is checked from then on. To be
    /// said before the others are erased.
    pub(super) fn set_held(&self, path: &Path, held: &Arc<Held>) {
        self.shared.held().insert(path.to_owned(), Arc::clone(held));
    }

    /// The process of a trace has ended.
    pub(super) fn forget(&self, path: &Path) {
        if let Some(held) = self.shared.held().remove(path) {
            self.shared.ended().push((path.to_owned(), held.until));
        }
    }

    /// The findings since the last time.
    pub(super) fn take(&self) -> Vec<FoundMistake> {
        self.found.try_iter().collect()
    }

    /// Ends the checks, and says what they have left out.
    pub(super) fn end(self, ticks_per_second: Option<u64>) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        let Ok(skipped) = self.thread.join() else {
            return message!("--keep-on finding: the check has ended early, which is a bug");
        };
        if skipped.times > 0 {
            let rate = ticks_per_second.unwrap_or(0).max(1);
            let nanoseconds = u128::from(skipped.ticks) * 1_000_000_000 / u128::from(rate);
            message!(
                "--keep-on finding: the check was slower than the program and has left out the calls \
                 of {} ({})",
                quantity::time(u64::try_from(nanoseconds).unwrap_or(u64::MAX)),
                quantity::count(skipped.times, "time")
            );
        }
    }
}

/// Checks all traces until the program has ended.
fn check_all(shared: &Shared, found: &Sender<FoundMistake>) -> Skipped {
    // SAFETY: no memory is involved; on Linux it is about the calling thread. If it fails, the
    // thread has the priority of the others.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
    let clock = TickClock::start();
    let mut checks: BTreeMap<PathBuf, LiveCheck> = BTreeMap::new();
    let mut skipped = Skipped::default();
    let began = clock.settled();
    while !shared.is_over() {
        skipped.add_ended(shared, &mut checks, began);
        let began = Instant::now();
        let paths: Vec<PathBuf> = shared.held().keys().cloned().collect();
        for path in paths {
            let check = checks.entry(path.clone()).or_default();
            check.poll(&path, shared, clock, found);
            let new = std::mem::take(&mut check.skipped);
            skipped.add(new);
        }
        // At most half of a processor.
        let until = Instant::now() + began.elapsed().max(PAUSE);
        while !shared.is_over() && Instant::now() < until {
            thread::sleep(PAUSE);
        }
    }
    let rest = std::mem::take(&mut *shared.held()).into_iter();
    (shared.ended()).extend(rest.map(|(path, held)| (path, held.until)));
    skipped.add_ended(shared, &mut checks, began);
    skipped
}

/// The check of one trace.
#[derive(Default)]
struct LiveCheck {
    trace: Option<Trace>,
    cursor: Cursor,
    analyzer: Analyzer,
    resolver: Resolver,
    /// One of each mistake.
    known: FindingList,
    /// When the last call was entered that was checked, in ticks.
    checked: u64,
    /// Calls that were passed over when the trace was opened, and calls that were checked since.
    passed: u64,
    calls: u64,
    skipped: Skipped,
    has_no_clock: bool,
}

impl LiveCheck {
    /// Checks the calls that have returned since the last time.
    fn poll(
        &mut self,
        path: &Path,
        shared: &Shared,
        clock: TickClock,
        found: &Sender<FoundMistake>,
    ) {
        if self.has_no_clock || self.trace.is_none() && self.open(path, shared, clock).is_none() {
            return;
        }
        let Some(trace) = &mut self.trace else { return };
        let Ok(horizon) = trace.refresh_before(clock.settled()) else {
            return;
        };
        let mut first = None;
        let mut findings = Vec::new();
        for _ in 0..MOST_AT_ONCE {
            let next = self.cursor.next_before(trace, horizon);
            let Some(call) = next.filter(|_| !shared.is_over()) else {
                break;
            };
            first.get_or_insert(call.ticks);
            let context = SymbolContext::new(trace, &self.resolver);
            let new = self.analyzer.push(&context, &call).into_iter();
            findings.extend(new.map(|finding| (call.ticks, finding)));
            self.checked = call.ticks;
            self.calls += 1;
        }
        // What was read may have been erased meanwhile, or may not be found any more.
        let erased_to = shared.held_of(path).until;
        let is_lost = erased_to > first.unwrap_or(self.checked.saturating_add(1));
        if is_lost || !trace.damage().is_empty() {
            self.checked = first.map_or(self.checked, |first| first.saturating_sub(1));
            self.trace = None;
            return;
        }
        for (ticks, finding) in findings {
            if let Some(mistake) = self.counted(path, ticks, finding) {
                // The other end goes last.
                let _ = found.send(mistake);
            }
        }
        if self.calls >= MOST_CALLS.max(self.passed) {
            self.trace = None;
        }
    }

    /// Opens the trace at the first call that is not checked. If calls have left the window that were
    /// not checked, in the middle of the window, so that this does not happen again at once.
    fn open(&mut self, path: &Path, shared: &Shared, clock: TickClock) -> Option<()> {
        let mut trace = Trace::follow(path).ok()?;
        let mut horizon = 0;
        for _ in 0..REFRESHES {
            horizon = trace.refresh_before(clock.settled()).ok()?;
        }
        if trace.head().clock != 0 {
            // Without the processor's clock, the order of threads is known only at the end.
            self.has_no_clock = true;
            let path = output::shown(path);
            message!("{path}: --keep-on finding needs the processor's clock; it is not checked");
            return None;
        }
        let held = shared.held_of(path);
        let mut cursor = Cursor::new();
        let mut from = self.checked.saturating_add(1);
        let skips = held.until > from;
        if skips {
            from = held.until + horizon.checked_sub(held.until)? / 2;
            self.analyzer = Analyzer::new();
        }
        let context = SymbolContext::new(&trace, &self.resolver);
        while let Some(call) = cursor.next_entered(&trace, from) {
            let is_in_window = call.ticks >= held.until;
            if skips && (is_in_window || held.is_needed(&call)) {
                self.analyzer.pass(&context, &call);
            }
            let is_lost = || shared.held_of(path).until > call.ticks.max(held.until);
            if shared.is_over() || call.index % LOOK == 0 && is_lost() {
                return None;
            }
        }
        if !trace.damage().is_empty() {
            return None;
        }
        if skips {
            self.analyzer.skip_calls(trace.thread_count());
            self.skipped.times += 1;
            let last = self.checked.max(trace.head().start_ticks);
            self.skipped.ticks += from.saturating_sub(last);
            self.checked = from.saturating_sub(1);
        }
        (self.passed, self.calls) = (cursor.index(), 0);
        (self.trace, self.cursor) = (Some(trace), cursor);
        Some(())
    }

    /// A finding that counts and is the first of its mistake.
    fn counted(&mut self, path: &Path, ticks: u64, finding: Finding) -> Option<FoundMistake> {
        if !self.known.add(finding) {
            return None;
        }
        let finding = self.known.findings.last()?;
        Some(FoundMistake {
            path: path.to_owned(),
            rule: finding.rule,
            severity: finding.severity,
            text: format!(
                "{}[{}]: {}",
                finding.severity.word(),
                finding.rule,
                output::printable(&finding.title)
            ),
            ticks,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use cutape_cut::window::Window;
    use cutape_format::{NewCall, NewSnapshot, TraceBuilder};
    use cutape_registry::SIGNATURE_TEXT;
    use cutape_terminal::clock;

    use super::*;

    const CALLS: u64 = 600;

    /// When a call is entered: 800 are as long as it is since the first, some 20 seconds.
    fn ticks(call: u64) -> u64 {
        static START: LazyLock<u64> = LazyLock::new(|| clock::ticks() - (1 << 36));
        *START + (1 << 36) / 800 * call
    }

    /// A process uses memory for long, then frees one piece twice and another once.
    fn misuse() -> TraceBuilder {
        let mut builder = TraceBuilder::new(SIGNATURE_TEXT);
        builder.process(std::process::id()).control(None);
        builder.chunk_length(4096).time_stamps();
        let mut put = |call: u64, name, arguments: &[u64], handle: u64, result| {
            let bytes = u64::to_le_bytes(handle);
            let written = [NewSnapshot::pointee(0, &bytes)];
            let call = (builder.at(ticks(call))).call(NewCall {
                name,
                arguments,
                ..NewCall::default()
            });
            call.leave(0, result, if handle == 0 { &[] } else { &written });
        };
        put(0, "cuInit", &[0], 0, 0);
        put(1, "cuCtxCreate_v2", &[1, 0, 0], 0xc, 0);
        put(2, "cuMemAlloc_v2", &[1, 0x100], 0x10000, 0);
        put(3, "cuMemAlloc_v2", &[1, 0x100], 0x20000, 0);
        for call in 4..CALLS - 3 {
            put(call, "cuMemsetD8_v2", &[0x10000, 1, 16], 0, 0);
        }
        put(CALLS - 3, "cuMemFree_v2", &[0x20000], 0, 0);
        put(CALLS - 2, "cuMemFree_v2", &[0x20000], 0, 1);
        put(CALLS - 1, "cuMemFree_v2", &[0x10000], 0, 0);
        builder
    }

    /// What a check finds, and the check.
    fn found(path: &Path, held: Held) -> (Vec<FoundMistake>, LiveCheck) {
        let shared = Shared::default();
        shared.held().insert(path.to_owned(), Arc::new(held));
        let mut check = LiveCheck::default();
        let (sender, found) = channel();
        let clock = TickClock::start();
        for _ in 0..4 {
            check.poll(path, &shared, clock, &sender);
        }
        (found.try_iter().collect(), check)
    }

    #[test]
    fn what_was_not_checked_when_the_process_ended_is_counted() {
        // When checking began, what was checked, where the last window began; what is missing.
        for (began, checked, until, expected) in [
            (100, 900, 500, None),
            (100, 500, 500, None),
            (100, 300, 500, Some(200)),
            (100, 0, 500, Some(400)),
        ] {
            let shared = Shared::default();
            shared.ended().push((PathBuf::from("a"), until));
            let check = LiveCheck {
                checked,
                ..LiveCheck::default()
            };
            let mut checks = BTreeMap::from([(PathBuf::from("a"), check)]);
            let mut skipped = Skipped::default();
            skipped.add_ended(&shared, &mut checks, began);
            let got = (skipped.times > 0).then_some(skipped.ticks);
            assert_eq!(got, expected, "{began} {checked} {until}");
            assert!(checks.is_empty());
        }
    }

    #[test]
    fn mistakes_are_found_also_after_calls_were_erased() {
        let path = std::env::temp_dir().join(format!("live-checks-{}", std::process::id()));
        misuse().write(&path).unwrap();
        let is_double_free = |found: &[FoundMistake]| {
            let [one] = found else { return false };
            one.rule == "memory-double-free" && one.ticks == ticks(CALLS - 2)
        };
        let (all, mut check) = found(&path, Held::default());
        assert!(is_double_free(&all) && check.skipped.times == 0, "{all:?}");
        assert_eq!((check.passed, check.calls), (0, CALLS));
        // A trace that is opened again is not checked again.
        let clock = TickClock::start();
        (check.open(&path, &Shared::default(), clock)).unwrap();
        assert_eq!((check.passed, check.calls), (CALLS, 0));

        let trace = Trace::open(&path).unwrap();
        let window = Window::of(&trace, ticks(200), &Held::default(), &|_| false);
        assert!(window.erase_others(&trace, 0).unwrap().bytes > 0);
        let (all, check) = found(&path, window.held());
        assert!(is_double_free(&all), "{all:?}");
        // From about call 500 on; the memory that these use was allocated before.
        assert!(
            check.skipped.times == 1 && check.passed > 200,
            "{}",
            check.passed
        );
        assert_eq!(check.checked, ticks(CALLS - 1));
        std::fs::remove_file(&path).unwrap();
    }
}
