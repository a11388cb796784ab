//! The rules: what is looked at before a call changes the model.

mod image;
mod jit_options;
mod library;
mod lifetime;
mod link;
mod link_inputs;
mod memory;
mod module;
mod usage;

use cutape_format::Call;
use cutape_registry::{ContextOp, Family, Kind, LinkOp, PrimaryOp};

use crate::context::TraceContext;
use crate::finding::Severity;
use crate::plan::Plan;
use crate::state::State;
use crate::state::data::Data;
use cutape_model::{ObjectId, Origin, Site};

/// Result codes of cuda.h that rules speak of.
pub(crate) mod code {
    pub(crate) const DEINITIALIZED: i32 = 4;
    pub(crate) const INVALID_IMAGE: i32 = 200;
    pub(crate) const INVALID_CONTEXT: i32 = 201;
    pub(crate) const NO_BINARY_FOR_GPU: i32 = 209;
    pub(crate) const INVALID_PTX: i32 = 218;
    pub(crate) const JIT_COMPILER_NOT_FOUND: i32 = 221;
    pub(crate) const UNSUPPORTED_PTX_VERSION: i32 = 222;
    pub(crate) const JIT_COMPILATION_DISABLED: i32 = 223;
    pub(crate) const FILE_NOT_FOUND: i32 = 301;
    pub(crate) const SYMBOL_NOT_FOUND: i32 = 302;
    pub(crate) const INIT_FAILED: i32 = 303;
    pub(crate) const NOT_FOUND: i32 = 500;
    pub(crate) const CONTEXT_IS_DESTROYED: i32 = 709;
}

/// A finding before it is written out.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) rule: &'static str,
    /// Where it differs from the catalogue's.
    pub(crate) severity: Option<Severity>,
    pub(crate) title: String,
    pub(crate) message: String,
    pub(crate) objects: Vec<ObjectId>,
    pub(crate) chain: Vec<String>,
    /// Distinguishes findings of one rule at one place of the program.
    pub(crate) subject: u64,
    /// Only if no later call of the same function succeeds.
    pub(crate) deferred: bool,
}

impl Draft {
    pub(crate) fn new(
        rule: &'static str,
        title: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            rule,
            severity: None,
            title: title.into(),
            message: message.into(),
            objects: Vec::new(),
            chain: Vec::new(),
            subject: 0,
            deferred: false,
        }
    }

    pub(crate) fn severity(mut self, severity: Severity) -> Self {
        self.severity = Some(severity);
        self
    }

    pub(crate) fn object(mut self, id: ObjectId) -> Self {
        self.subject ^= u64::from(id.number()).rotate_left(17) + 1;
        if !self.objects.contains(&id) {
            self.objects.push(id);
        }
        self
    }

    pub(crate) fn chain(mut self, chain: Vec<String>) -> Self {
        self.chain = chain;
        self
    }

    pub(crate) fn subject(mut self, subject: u64) -> Self {
        self.subject ^= subject.rotate_left(7) + 1;
        self
    }
}

/// A call and all that rules may look at.
pub(crate) struct Check<'c, 't> {
    pub(crate) state: &'c State,
    pub(crate) context: &'c dyn TraceContext,
    pub(crate) plan: &'c Plan,
    pub(crate) call: &'c Call<'t>,
    pub(crate) site: Site,
}

impl Check<'_, '_> {
    /// True if the call failed or did not return.
    pub(crate) fn went_wrong(&self) -> bool {
        self.call.result() != Some(0)
    }

    /// Name of the result.
    pub(crate) fn result_name(&self) -> String {
        result_name(self.call.result())
    }

    /// The argument of that name.
    pub(crate) fn argument(&self, name: &str) -> Option<u64> {
        self.plan
            .at(name)
            .map(|position| self.call.argument(position))
    }

    /// What the driver's answer means for a use of something that is gone.
    pub(crate) fn answer(&self) -> String {
        match self.call.result() {
            None => "The call did not return: the program died inside it.".to_owned(),
            Some(0) => {
                "The driver said CUDA_SUCCESS, which is luck: it does not promise to notice."
                    .to_owned()
            }
            Some(_) => format!("The driver answered {}.", self.result_name()),
        }
    }

    /// True if the object ended with a primary context's last release that we saw: somebody whom a trace does not show may hold
    /// that context, so only a failure proves that it is gone.
    pub(crate) fn only_released(&self, id: ObjectId) -> bool {
        let objects = &self.state.objects;
        let root = objects.root_of_end(id).and_then(|root| objects.get(root));
        root.is_some_and(|root| matches!(root.data, Data::Context(context) if context.primary))
    }

    /// How an object came to its end, from its outermost cause to this call.
    pub(crate) fn poison_chain(&self, id: ObjectId) -> Vec<String> {
        let objects = &self.state.objects;
        let mut chain = Vec::new();
        let mut link = Some(id);
        while let Some(id) = link.filter(|_| chain.len() < 16) {
            let Some(object) = objects.get(id) else { break };
            let verb = match object.origin {
                Origin::Created => "made by",
                Origin::Found => "looked up by",
                Origin::FirstSeen => "first seen in",
            };
            chain.push(format!(
                "{} ({verb} {})",
                self.state.label(id),
                at(object.created)
            ));
            // The context that everything lives in is of interest only if it is the cause.
            link = object.parent.filter(|&parent| {
                objects.root_of_end(id) == Some(parent)
                    || objects
                        .get(parent)
                        .is_some_and(|parent| parent.kind != Kind::Context)
            });
        }
        chain.reverse();
        if let Some(end) = objects.end_of(id) {
            let root = end.by.unwrap_or(id);
            chain.push(format!(
                "{} ended by {}",
                self.state.label(root),
                at(end.site)
            ));
        }
        chain.push(format!("used by {}", at(self.site)));
        chain
    }
}

/// `cuModuleUnload (call 16)`.
pub(crate) fn at(site: Site) -> String {
    format!("{} (call {})", site.function, site.index)
}

/// Name of a result code.
pub(crate) fn result_name(result: Option<i32>) -> String {
    match result {
        None => "did not return".to_owned(),
        Some(code) => match cutape_registry::result_name(code) {
            Some(name) => name.to_owned(),
            None => format!("result {code}"),
        },
    }
}

/// All that is wrong with a call. Rules of causes come before rules of consequences, which look whether any was found.
pub(crate) fn check(check: &Check<'_, '_>) -> Vec<Draft> {
    let mut drafts = Vec::new();
    if check.call.result() == Some(code::DEINITIALIZED) {
        // The driver is being shut down; what destructors do then is beyond these rules.
        return drafts;
    }
    lifetime::check(check, &mut drafts);
    memory::check(check, &mut drafts);
    match check.plan.function.family {
        Family::ModuleLoad(_) | Family::LibraryLoad(_) => {
            link::cubin_after_destroy(check, &mut drafts);
            library::preserved(check, &mut drafts);
            jit_options::check(check, &mut drafts);
            image::check(check, &mut drafts);
        }
        Family::Link(
            LinkOp::Create { .. }
            | LinkOp::AddData { .. }
            | LinkOp::AddFile { .. }
            | LinkOp::Complete { .. },
        ) => {
            link::check(check, &mut drafts);
            jit_options::check(check, &mut drafts);
            link_inputs::check(check, &mut drafts);
            image::failed_input(check, &mut drafts);
        }
        Family::Context(ContextOp::Destroy)
        | Family::PrimaryContext(PrimaryOp::Release | PrimaryOp::Reset)
            if drafts.is_empty() =>
        {
            link::leaked_in_context(check, &mut drafts);
        }
        _ => {}
    }
    module::check(check, &mut drafts);
    library::check(check, &mut drafts);
    usage::check(check, &mut drafts);
    if !check.state.writing_links.is_empty() || !check.state.preserving.is_empty() {
        link::memory_reused(check, &mut drafts);
    }
    drafts
}

/// What is missing when the trace ends.
pub(crate) fn at_end(state: &State) -> Vec<Draft> {
    link::leaked_at_end(state)
}
