//! Launches: the first one of a function inside of a measurement, cache preferences that alternate,
//! and work in the legacy default stream between that of others.

use std::collections::VecDeque;

use cutape_format::Call;
use cutape_model::{ObjectId, Site};
use cutape_registry::{Kind, STREAM_LEGACY, is_default_stream, rules};
use rustc_hash::FxHashSet;

use super::tally::Tallies;
use crate::context::TraceContext;
use crate::plan::Plan;
use crate::rules::{Draft, at};
use crate::state::State;
use crate::state::data::{Data, Own};

/// How many functions are known to be loaded; the first launches of more are not looked at.
const LOADED: usize = 1 << 16;
/// How many first launches are remembered.
const FIRST: usize = 64;
/// Changes of the preference from which on they alternate.
const SWITCHES: u64 = 16;
/// Operations in the legacy stream between those of two blocking streams.
const BETWEEN: u64 = 32;
/// How many of them are counted before operands are compared.
const UNCOMPARED: u64 = 8;
/// The attribute number under which the cache configuration is kept, and the carveout's.
const CACHE: i32 = -1;
const CARVEOUT: i32 = 9;

/// Work on a blocking stream and, after it, in the legacy stream.
#[derive(Debug, Default)]
struct Between {
    /// The last blocking stream and what its work was given.
    before: Option<(u64, Vec<ObjectId>)>,
    legacy: Option<(Site, Vec<ObjectId>)>,
    seen: u64,
}

#[derive(Debug, Default)]
pub(super) struct Launches {
    /// Functions that were launched, or asked for so that they are loaded.
    loaded: FxHashSet<u64>,
    /// The one launched last: loops launch the same function again and again.
    last: Option<u64>,
    first: VecDeque<(Site, u64)>,
    /// The first launch of a function between two events whose time was asked for, and how many.
    measured: Option<(Site, u64)>,
    preference: Option<(i64, i64)>,
    /// By place.
    switches: Tallies<u64>,
    between: Between,
    /// By the place of the work in the legacy stream.
    serialized: Tallies<u64>,
    uses_legacy: bool,
    /// Launches are missing.
    has_gap: bool,
}

impl Launches {
    /// A function was asked about; with lazy loading that may load it.
    pub(super) fn asked(&mut self, function: u64) {
        self.add_loaded(function);
    }

    /// Calls are missing here: any function may have been launched, and so be loaded.
    pub(super) fn apply_gap(&mut self) {
        self.waited();
        (self.last, self.preference) = (None, None);
        self.first.clear();
        self.has_gap = true;
    }

    /// True if the function was not known, and is now.
    fn add_loaded(&mut self, function: u64) -> bool {
        self.loaded.len() < LOADED && self.loaded.insert(function)
    }

    /// A launch.
    #[inline]
    pub(super) fn launched(&mut self, plan: &Plan, call: &Call<'_>, site: Site, state: &State) {
        let Some(position) = plan.launched else {
            return;
        };
        let function = call.argument(position);
        if self.last != Some(function) {
            self.last = Some(function);
            self.load(function, site);
        }
        if state.has_preferences {
            self.preferred(function, call, site, state);
        }
    }

    fn load(&mut self, function: u64, site: Site) {
        if !self.has_gap && self.add_loaded(function) {
            if self.first.len() >= FIRST {
                self.first.pop_front();
            }
            self.first.push_back((site, function));
        }
    }

    fn preferred(&mut self, function: u64, call: &Call<'_>, site: Site, state: &State) {
        let id = state.objects.resolve(Kind::Function, function).live();
        let object = id.and_then(|id| state.objects.get(id));
        let value = |attribute| match object.map(|object| &object.data) {
            Some(Data::Other(Own::Attributes(attributes))) => attributes
                .set
                .get(&(attribute, -1))
                .map_or(0, |(value, _)| *value),
            _ => 0,
        };
        let now = (value(CACHE), value(CARVEOUT));
        if self.preference.replace(now).is_some_and(|last| last != now)
            && let Some(tally) = self.switches.of(call.caller, site)
        {
            tally.count += 1;
        }
    }

    /// The time between two events was asked for.
    pub(super) fn measured(&mut self, plan: &Plan, call: &Call<'_>, state: &State) {
        let record = |name| {
            let handle = call.argument(plan.at(name)?);
            let id = state.objects.live(Kind::Event, handle)?;
            state.event(id)?.record
        };
        let (Some(start), Some(end)) = (record("hStart"), record("hEnd")) else {
            return;
        };
        let inside = |site: &Site| {
            let between = start.index < site.index && site.index < end.index;
            between && site.thread == start.thread && site.thread == end.thread
        };
        let before = self.first.len();
        let first = self
            .first
            .iter()
            .find(|(site, _)| inside(site))
            .map(|entry| entry.0);
        self.first.retain(|(site, _)| !inside(site));
        if let Some(first) = first {
            let count = (before - self.first.len()) as u64;
            self.measured.get_or_insert((first, 0)).1 += count;
        }
    }

    /// Work was submitted; `operands` finds the allocations that it is given, or `None` if they are
    /// not known.
    #[inline]
    pub(super) fn submitted(
        &mut self,
        site: Site,
        stream: u64,
        state: &State,
        operands: impl FnOnce() -> Option<Vec<ObjectId>>,
    ) {
        let is_legacy = stream == STREAM_LEGACY;
        self.uses_legacy |= is_legacy;
        let may_be_between = match is_legacy {
            true => self.between.before.is_some(),
            false => self.uses_legacy && !is_default_stream(stream),
        };
        if may_be_between {
            self.ordered_by_legacy(site, (stream, is_legacy), state, operands);
        }
    }

    /// Work was submitted to the legacy stream after that of another one, or to another one.
    fn ordered_by_legacy(
        &mut self,
        site: Site,
        (stream, is_legacy): (u64, bool),
        state: &State,
        operands: impl FnOnce() -> Option<Vec<ObjectId>>,
    ) {
        if !is_legacy {
            let id = state.objects.live(Kind::Stream, stream);
            let data = id
                .and_then(|id| state.objects.get(id))
                .map(|object| &object.data);
            if !matches!(data, Some(Data::Stream(stream)) if !stream.non_blocking) {
                return;
            }
        }
        let between = &mut self.between;
        let given = match between.seen >= UNCOMPARED {
            false => Vec::new(),
            true => match operands() {
                Some(given) => given,
                None => {
                    (between.before, between.legacy) = (None, None);
                    return;
                }
            },
        };
        if is_legacy {
            if let Some((_, before)) = &between.before {
                let is_needed = before.iter().any(|id| given.contains(id));
                between.legacy = (!is_needed).then_some((site, given));
            }
            return;
        }
        if let (Some((last, _)), Some((legacy, used))) = (&between.before, between.legacy.take())
            && *last != stream
            && !used.iter().any(|id| given.contains(id))
        {
            between.seen += 1;
            if between.seen > UNCOMPARED
                && let Some(tally) = self.serialized.of(legacy.caller, legacy)
            {
                tally.count += 1;
            }
        }
        between.legacy = None;
        between.before = Some((stream, given));
    }

    /// The host waited: what comes now is not held up by the legacy stream.
    pub(super) fn waited(&mut self) {
        (self.between.before, self.between.legacy) = (None, None);
    }

    pub(super) fn finish(&self, context: &dyn TraceContext) -> Vec<Draft> {
        let mut drafts = Vec::new();
        let is_eager = context
            .meta("environment.CUDA_MODULE_LOADING")
            .is_some_and(|mode| mode.eq_ignore_ascii_case("eager"));
        if let Some((site, count)) = self.measured.filter(|_| !is_eager) {
            let message = format!(
                "{} launched for the first time between two events whose time was asked for, first in \
                 {}. With lazy loading, the measured time includes the \
                 loading.",
                match count {
                    1 => "A function was".to_owned(),
                    count => format!("{count} functions were"),
                },
                at(site),
            );
            let title = "first launch of a function inside of a measurement";
            let draft = Draft::new(rules::PERFORMANCE_LAZY_LOAD_IN_HOT_PATH, title, message);
            drafts.push(draft.site(site));
        }
        let switches = self.switches.at_least(SWITCHES + 1);
        if let Some((_, worst)) = switches.iter().max_by_key(|(_, tally)| tally.count) {
            let message = format!(
                "{} launches, the first of them {}, had another cache configuration or \
                 shared-memory carveout than the launch before.",
                worst.count,
                at(worst.first),
            );
            let title = "launches with alternating cache preferences";
            let draft = Draft::new(rules::PERFORMANCE_CACHE_CONFIG_SWITCH, title, message);
            drafts.push(draft.site(worst.first));
        }
        if !self.serialized.is_empty() {
            let serialized = self.serialized.at_least(BETWEEN);
            if let Some((_, worst)) = serialized.iter().max_by_key(|(_, tally)| tally.count) {
                let message = format!(
                    "{} and {} operations after it were submitted to the legacy default stream \
                     between operations of two blocking streams. They share no memory with those, \
                     but the default stream makes all of them run one after the other.",
                    at(worst.first),
                    worst.count - 1,
                );
                let title = "work in the legacy default stream holds up other streams";
                let rule = rules::PERFORMANCE_DEFAULT_STREAM_SERIALIZATION;
                drafts.push(Draft::new(rule, title, message).site(worst.first));
            }
        }
        drafts
    }
}
