//! The same question asked again and again.

use cutape_format::Call;
use cutape_model::Site;
use cutape_registry::{Role, rules};
use rustc_hash::FxHashMap;

use super::tally::Rate;
use crate::plan::Plan;
use crate::rules::Draft;

/// Calls in one second from which on the same question is a storm.
const STORM: u32 = 2000;
/// How many questions are told apart.
const QUESTIONS: usize = 4096;
/// How many functions the finding names.
const NAMED: usize = 4;

/// A question: what was asked, how often in the current second, and in the worst one.
#[derive(Clone, Copy, Debug)]
struct Question {
    site: Site,
    start: u64,
    now: u32,
    most: u32,
    total: u64,
    ticks: u64,
}

/// All questions by function and arguments.
#[derive(Debug, Default)]
pub(super) struct Queries(FxHashMap<(u16, u64), Question>);

impl Queries {
    /// A query that succeeded.
    pub(super) fn asked(&mut self, plan: &Plan, call: &Call<'_>, rate: Rate) {
        let Some(leave) = call.leave else { return };
        let mut arguments = 0u64;
        for (position, param) in plan.function.params.iter().enumerate() {
            if matches!(param.role, Role::Value | Role::Use(_)) {
                let word = call.argument(position);
                arguments = (arguments.rotate_left(5) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            }
        }
        let key = (plan.function.id, arguments);
        if self.0.len() >= QUESTIONS && !self.0.contains_key(&key) {
            return;
        }
        let question = self.0.entry(key).or_insert_with(|| Question {
            site: Site::of(plan.function.name, call),
            start: call.ticks,
            now: 0,
            most: 0,
            total: 0,
            ticks: 0,
        });
        if rate.0 != 0 && call.ticks.saturating_sub(question.start) > rate.0 {
            (question.start, question.now) = (call.ticks, 0);
        }
        question.now += 1;
        question.most = question.most.max(question.now);
        question.total += 1;
        let ticks = leave.ticks.saturating_sub(call.ticks);
        question.ticks = question.ticks.saturating_add(ticks);
    }

    /// One finding for all storms.
    pub(super) fn finish(&self, rate: Rate) -> Option<Draft> {
        let storms = self.0.values().filter(|question| question.most >= STORM);
        let mut storms: Vec<_> = storms.filter(|_| rate.0 != 0).collect();
        storms.sort_by_key(|question| (std::cmp::Reverse(question.total), question.site.index));
        let first = storms.first()?;
        let named = storms.iter().take(NAMED).map(|question| {
            format!(
                "{} {} times (up to {} in a second{})",
                question.site.function,
                question.total,
                question.most,
                rate.in_all(question.ticks),
            )
        });
        let named: Vec<String> = named.collect();
        let more = match storms.len() {
            ..=NAMED => String::new(),
            count => format!(", and {} more", count - NAMED),
        };
        let message = format!(
            "The program asks the same question with the same arguments {STORM} times a second or \
             more: {}{more}.",
            named.join(", ")
        );
        let title = "the same query thousands of times a second";
        let draft = Draft::new(rules::PERFORMANCE_QUERY_STORM, title, message);
        Some(draft.site(first.site))
    }
}
