//! Images that are loaded again and again or compiled at load, and names that are looked up before
//! every launch.

use std::hash::{Hash, Hasher};

use cutape_format::Call;
use cutape_image::{CodeKind, ImageKind, runs_on};
use cutape_model::Site;
use cutape_registry::{Family, FunctionOp, rules};
use rustc_hash::{FxHashMap, FxHasher};

use super::tally::{Rate, Tallies};
use crate::context::{TraceContext, bytes_of};
use crate::plan::Plan;
use crate::rules::growth::is_live_growth;
use crate::rules::{Draft, at};
use crate::state::growth::fingerprint;
use crate::state::{State, image_snapshot};

/// Loads of one image into one context from which on it is reloaded.
const RELOADS: u64 = 8;
/// A load that takes longer than this compiles; results from the disk cache are faster.
const COMPILES: u64 = 50_000;
/// Look-ups of one name, each after other work, from which on they are repeated.
const LOOKUPS: u64 = 32;
/// Compiled images of which a finding is made.
const MOST_COMPILED: usize = 4;
/// How many names are remembered.
const NAMES: usize = 4096;

/// A load that compiled.
#[derive(Debug)]
struct Compiled {
    site: Site,
    microseconds: u64,
    /// `PTX`, or what the fat binary lacks.
    what: String,
}

/// A name of a module that was looked up.
#[derive(Clone, Copy, Debug)]
struct Lookup {
    first: Site,
    count: u64,
    /// How much work had been submitted.
    work: u64,
}

#[derive(Debug, Default)]
pub(super) struct Images {
    /// By content and context.
    loads: Tallies<(u64, u64)>,
    compiled: Vec<Compiled>,
    /// By owner, function and name.
    lookups: FxHashMap<(u64, u64), Lookup>,
}

fn hash_of(value: impl Hash) -> u64 {
    let mut hasher = FxHasher::default();
    value.hash(&mut hasher);
    hasher.finish()
}

impl Images {
    /// A module or library was loaded.
    pub(super) fn loaded(
        &mut self,
        (plan, call, site): (&Plan, &Call<'_>, Site),
        state: &State,
        context: &dyn TraceContext,
        rate: Rate,
    ) {
        let (Some(leave), Some(snapshot)) = (call.leave, image_snapshot(plan, call)) else {
            return;
        };
        let ticks = leave.ticks.saturating_sub(call.ticks);
        let content = fingerprint(snapshot.bytes);
        if content != 0 {
            let current = state.contexts.current(call.thread).handle;
            if let Some(tally) = self.loads.of((content, current), site) {
                // Modules that are never unloaded are worse than reloads, and a finding themselves.
                tally.count = match is_live_growth(state, plan, call) {
                    true => 0,
                    false => tally.count + 1,
                };
                tally.ticks = tally.ticks.saturating_add(ticks);
            }
        }
        let microseconds = rate.microseconds(ticks).unwrap_or(0);
        if microseconds < COMPILES || self.compiled.len() >= MOST_COMPILED {
            return;
        }
        let Some(bytes) = bytes_of(context, snapshot.bytes) else {
            return;
        };
        let what = match cutape_image::kind(&bytes) {
            ImageKind::Ptx => "PTX".to_owned(),
            ImageKind::Fatbin | ImageKind::FatbinWrapper => {
                let Some((major, minor)) = state.capability(call.thread, context) else {
                    return;
                };
                let Ok(image) = cutape_image::parse(&bytes) else {
                    return;
                };
                let has_code = image.entries.iter().any(|entry| {
                    entry.code == CodeKind::Elf
                        && entry
                            .target
                            .is_none_or(|target| runs_on(target, entry.code, (major, minor)))
                });
                if has_code || image.entries.is_empty() {
                    return;
                }
                format!("a fat binary without machine code for compute capability {major}.{minor}")
            }
            _ => return,
        };
        self.compiled.push(Compiled {
            site,
            microseconds,
            what,
        });
    }

    /// A name of a module or library was looked up, when that much work had been submitted.
    pub(super) fn looked_up(&mut self, plan: &Plan, call: &Call<'_>, site: Site, work: u64) {
        let find = match plan.function.family {
            Family::Function(FunctionOp::Find { owner, name, .. })
            | Family::Kernel(FunctionOp::Find { owner, name, .. }) => Some((owner, name)),
            Family::Global(_) => plan.at("name").map(|name| {
                let owner = if plan.at("hmod").is_some() {
                    "hmod"
                } else {
                    "library"
                };
                (plan.at(owner).unwrap_or(0) as u8, name as u8)
            }),
            _ => None,
        };
        let Some((owner, name)) = find else { return };
        let Some(name) = call.string(usize::from(name)) else {
            return;
        };
        let owner = call.argument(usize::from(owner));
        let key = (owner, hash_of((plan.function.id, name)));
        if self.lookups.len() >= NAMES && !self.lookups.contains_key(&key) {
            return;
        }
        let lookup = self.lookups.entry(key).or_insert(Lookup {
            first: site,
            count: 0,
            work: u64::MAX,
        });
        if lookup.work != work {
            (lookup.count, lookup.work) = (lookup.count + 1, work);
        }
    }

    /// A module or library was unloaded; a later one may have its handle.
    pub(super) fn unloaded(&mut self, handle: u64) {
        let is_of = |key: &(u64, u64)| key.0 == handle;
        self.lookups
            .retain(|key, lookup| !is_of(key) || lookup.count >= LOOKUPS);
    }

    pub(super) fn finish(&self, rate: Rate) -> Vec<Draft> {
        let mut drafts = Vec::new();
        let reloads = self.loads.at_least(RELOADS);
        if let Some((_, worst)) = reloads.iter().max_by_key(|(_, tally)| tally.count) {
            let message = format!(
                "The image from {} was loaded {} times into one context{}. Images that were loaded \
                 {RELOADS} times or more: {}.",
                at(worst.first),
                worst.count,
                rate.in_all(worst.ticks),
                reloads.len(),
            );
            let title = "the same image loaded again and again";
            let draft = Draft::new(rules::PERFORMANCE_MODULE_RELOADED, title, message);
            drafts.push(draft.site(worst.first));
        }
        for compiled in &self.compiled {
            let message = format!(
                "{} loads {}, which the driver compiles: the call took {} ms. Calls of less than \
                 {} ms are not counted. Assumed: the program does not generate the code itself.",
                at(compiled.site),
                compiled.what,
                compiled.microseconds / 1000,
                COMPILES / 1000,
            );
            let title = "code compiled at load";
            let draft = Draft::new(rules::PERFORMANCE_JIT_AT_RUN_TIME, title, message);
            drafts.push(draft.site(compiled.site));
        }
        let repeated = self
            .lookups
            .values()
            .filter(|lookup| lookup.count >= LOOKUPS);
        let mut repeated: Vec<_> = repeated.collect();
        repeated.sort_by_key(|lookup| (std::cmp::Reverse(lookup.count), lookup.first.index));
        if let Some(worst) = repeated.first() {
            let message = format!(
                "The name that {} asks for was looked up {} times in the same module, with other work in \
                 between. Names that were looked up {LOOKUPS} times or more: {}.",
                at(worst.first),
                worst.count,
                repeated.len(),
            );
            let title = "the same name looked up again and again";
            let draft = Draft::new(rules::PERFORMANCE_SYMBOL_LOOKUP_PER_LAUNCH, title, message);
            drafts.push(draft.site(worst.first));
        }
        drafts
    }
}
