//! The rules: what is checked before a call changes the model.

mod capture;
pub(crate) mod code;
mod context;
mod copy;
mod decides;
mod deferral;
mod draft;
mod errata;
mod errors;
mod events;
mod function;
mod graph;
mod graph_structure;
pub(crate) mod growth;
mod image;
pub(crate) mod init;
mod jit_options;
mod launch;
mod library;
mod lifetime;
mod link;
mod link_inputs;
mod memory;
mod module;
mod peer;
mod pool;
mod race;
pub(crate) mod silence;
mod tensor_map;
mod texture;
mod threads;
pub(crate) mod undefined;
mod usage;
mod virtual_memory;
mod when;

use std::fmt::Display;

use cutape_format::{Call, StructLayout};
use cutape_model::{Object, ObjectId, Origin, Site};
use cutape_registry::{
    ContextOp, CopyOp, EventOp, Family, FunctionOp, GlobalOwner, GraphOp, HostMemoryOp, Kind,
    LaunchOp, LinkOp, MemoryOp, PrimaryOp, Shared, SharedKind, SharingOp, StreamOp, Waits,
};

use crate::context::TraceContext;
use crate::launch::pointee;
use crate::plan::{Ordered, Plan};
use crate::reported::Reported;
use crate::state::State;
use crate::state::data::Data;
use Rule::{Cause, Consequence};
use When::{
    Accessing, Always, Busy, Captured, Capturing, Devices, Ended, Freed, FreedBusy, Fresh, Lent,
    Libraries, Sourced, Sticky, TensorMaps, Textures, Threads, Unaccessed, Undefined, Uploading,
    Wrong,
};
pub(crate) use deferral::Deferral;
pub(crate) use draft::{Draft, Mistake};
pub(crate) use when::{Gates, When};

/// A call and all that rules may look at.
pub(crate) struct Check<'c, 't> {
    pub(crate) state: &'c State,
    pub(crate) reported: &'c Reported,
    pub(crate) context: &'c dyn TraceContext,
    pub(crate) plan: &'c Plan,
    pub(crate) call: &'c Call<'t>,
    pub(crate) site: Site,
}

impl Check<'_, '_> {
    /// The exported name of the function.
    pub(crate) fn function(&self) -> &'static str {
        self.plan.function.name
    }

    pub(crate) fn family(&self) -> Family {
        self.plan.function.family
    }

    /// Whether a finding is known already, so that its words are not needed.
    pub(crate) fn is_reported(&self, draft: &Draft) -> bool {
        self.reported.contains(&draft.key(self.state, self.site))
    }

    /// The name of the parameter at a position.
    pub(crate) fn parameter(&self, position: usize) -> &'static str {
        let parameter = self.plan.function.params.get(position);
        parameter.map_or("", |parameter| parameter.name)
    }

    /// The argument of the parameter of that name.
    pub(crate) fn argument(&self, name: &str) -> Option<u64> {
        let position = self.plan.at(name)?;
        Some(self.call.argument(position))
    }

    /// The live object in the first parameter of that kind.
    pub(crate) fn live(&self, kind: Kind) -> Option<ObjectId> {
        let handle = self.plan.handle_of(self.call, kind)?;
        self.state.objects.live(kind, handle)
    }

    /// The context that the call ends or empties, if it succeeds.
    pub(crate) fn ended_context(&self) -> Option<ObjectId> {
        let contexts = &self.state.contexts;
        let device = || self.call.argument(0) as i32;
        match self.family() {
            Family::Context(ContextOp::Destroy) => self.live(Kind::Context),
            Family::PrimaryContext(PrimaryOp::Release) => contexts.last_retain(device()),
            Family::PrimaryContext(PrimaryOp::Reset) => contexts.primary(device()),
            _ => None,
        }
    }

    /// The kind of an object that is remembered.
    pub(crate) fn kind(&self, id: ObjectId) -> Option<Kind> {
        self.object(id).map(|object| object.kind)
    }

    pub(crate) fn object(&self, id: ObjectId) -> Option<&Object<Data>> {
        self.state.objects.get(id)
    }

    pub(crate) fn label(&self, id: ObjectId) -> String {
        self.state.label(id)
    }

    /// The thread has no current context, as far as the trace shows.
    pub(crate) fn has_no_context(&self) -> bool {
        self.state.contexts.current(self.call.thread).handle == 0
    }

    /// False for a context that may share code and memory with another: a green context has those
    /// of the primary context, and of a context whose creation was not seen nothing is known.
    pub(crate) fn owns_content(&self, context: ObjectId) -> bool {
        self.object(context)
            .is_some_and(|object| object.parent.is_none() && object.origin != Origin::FirstSeen)
    }

    /// The struct that a parameter points at: its members, and its bytes.
    pub(crate) fn structure_at(&self, position: usize) -> Option<(&StructLayout, &[u8])> {
        let param = self.plan.function.params.get(position)?;
        let name = param.c_type.trim_start_matches("const ");
        let structures = self.context.signatures();
        let structure = structures.structure(name.trim_end_matches([' ', '*']))?;
        Some((structure, pointee(self.call, position)?))
    }

    /// The bytes of a launch's parameters.
    pub(crate) fn launch_parameters(&self) -> Option<&[u8]> {
        self.plan.parameters(self.call)
    }

    /// The layout of the parameters of the function that is launched: offset and size of each.
    pub(crate) fn launch_layout(&self) -> Option<&[(u32, u32)]> {
        self.state.layout(self.call.argument(self.plan.launched?))
    }

    /// The name of a value of an enum, else the number after `what`.
    pub(crate) fn enum_name(&self, enumeration: &str, value: i64, what: &str) -> String {
        let table = self.context.signatures().enumeration(enumeration);
        let name = table.and_then(|table| table.name_of(value));
        name.map_or_else(|| format!("{what} {value}"), str::to_owned)
    }

    /// True if the call failed or did not return.
    pub(crate) fn went_wrong(&self) -> bool {
        self.call.result() != Some(0)
    }

    /// Name of the result.
    pub(crate) fn result_name(&self) -> String {
        result_name(self.call.result())
    }

    /// What the driver's result means for a use of an object that has ended.
    pub(crate) fn answer(&self) -> String {
        match self.call.result() {
            None => "The call did not return before the recording ended.".to_owned(),
            Some(0) => "The driver returned CUDA_SUCCESS, but does not promise to detect this \
                        misuse."
                .to_owned(),
            Some(_) => format!("The driver returned {}.", self.result_name()),
        }
    }

    /// A draft that begins with the function and ends with [`Check::answer`].
    pub(crate) fn draft(&self, rule: &'static str, title: &str, what: impl Display) -> Draft {
        let message = format!("{} {what}. {}", self.function(), self.answer());
        Draft::new(rule, title, message)
    }

    /// [`Check::answer`], or `success` if the call succeeded.
    pub(crate) fn answer_or(&self, success: &str) -> String {
        if self.went_wrong() {
            self.answer()
        } else {
            success.to_owned()
        }
    }

    /// True if the object ended with the last release of a primary context that the trace shows.
    /// Others may hold that context still, so only a failure proves that it is gone.
    pub(crate) fn only_released(&self, id: ObjectId) -> bool {
        let root = self.state.objects.root_of_end(id);
        let root = root.and_then(|root| self.object(root));
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
                Origin::Created => "created by",
                Origin::Found => "looked up by",
                Origin::FirstSeen => "first seen in",
            };
            chain.push(format!(
                "{} ({verb} {})",
                self.label(id),
                at(object.created)
            ));
            // The context that everything lives in matters only if it is the cause.
            link = object.parent.filter(|&parent| {
                objects.root_of_end(id) == Some(parent)
                    || self.kind(parent).is_some_and(|kind| kind != Kind::Context)
            });
        }
        chain.reverse();
        if let Some(end) = objects.end_of(id) {
            let root = end.by.unwrap_or(id);
            chain.push(format!("{} ended by {}", self.label(root), at(end.site)));
        }
        chain.push(format!("used by {}", at(self.site)));
        chain
    }
}

/// `cuModuleUnload (call 16)`.
pub(crate) fn at(site: Site) -> String {
    format!("{} (call {})", site.function, site.index)
}

/// A noun with its article.
pub(crate) fn with_article(noun: &str) -> String {
    match noun.as_bytes() {
        _ if noun.ends_with("memory") => noun.to_owned(),
        [b'a' | b'e' | b'i' | b'o' | b'E', ..] => format!("an {noun}"),
        _ => format!("a {noun}"),
    }
}

/// The call that created an object.
fn created_at(state: &State, id: ObjectId) -> String {
    let object = state.objects.get(id);
    object.map(|object| at(object.created)).unwrap_or_default()
}

/// Name of a result code.
pub(crate) fn result_name(result: Option<i32>) -> String {
    let Some(code) = result else {
        return "did not return".to_owned();
    };
    let name = cutape_registry::result_name(code);
    name.map_or_else(|| format!("result {code}"), str::to_owned)
}

/// What is checked about calls.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rule {
    /// Checked whatever else was found.
    Cause(fn(&Check<'_, '_>, &mut Vec<Draft>)),
    /// Checked if nothing was found that explains it.
    Consequence(fn(&Check<'_, '_>) -> Option<Draft>),
}

impl Rule {
    /// By which checks are told apart.
    fn address(self) -> usize {
        match self {
            Self::Cause(check) => check as usize,
            Self::Consequence(check) => check as usize,
        }
    }
}

/// The rules of a function, in the order in which they are checked.
pub(crate) type Rules = Vec<(When, Rule)>;

/// The rules about the calls of a function.
pub(crate) fn rules_of(plan: &Plan) -> Rules {
    let family = plan.function.family;
    let fixed = [
        causes_of(family),
        launch::rules_of(family),
        function::rules_of(family),
    ];
    let [causes, launch, function] = fixed.map(|rules| rules.iter().copied().map(Some));
    // Whatever else is wrong with the call comes first.
    let deprecated = rule_if(
        !plan.function.deprecated.is_empty(),
        Always,
        Consequence(errors::deprecated),
    );
    let operands = rules_of_operands(plan).into_iter().chain(causes);
    let results = rules_of_results(plan)
        .into_iter()
        .chain(launch)
        .chain(function);
    let rules = operands.chain(rules_of_code(plan)).chain(results);
    let defects = errata::rules_of(plan).into_iter().map(Some);
    rules.chain([deprecated]).chain(defects).flatten().collect()
}

/// A rule, if it applies.
fn rule_if(applies: bool, when: When, rule: Rule) -> Option<(When, Rule)> {
    applies.then_some((when, rule))
}

/// Rules that find causes, of one family alone.
fn causes_of(family: Family) -> &'static [(When, Rule)] {
    match family {
        Family::ModuleLoad(_) | Family::LibraryLoad(_) => &[
            (Always, Cause(link::cubin_after_destroy)),
            (Lent, Cause(library::unmapped)),
            (Always, Cause(library::preserved)),
            (Always, Cause(growth::modules)),
            (Always, Cause(jit_options::check)),
            (Always, Cause(image::check)),
        ],
        Family::Link(LinkOp::Create { .. }) => &[
            (Lent, Cause(link::shared)),
            (Always, Cause(jit_options::check)),
            (Wrong, Cause(image::failed_input)),
        ],
        Family::Link(LinkOp::AddData { .. } | LinkOp::AddFile { .. }) => &[
            (Always, Cause(link::check)),
            (Always, Cause(jit_options::check)),
            (Always, Consequence(link_inputs::added)),
            (Wrong, Cause(image::failed_input)),
        ],
        Family::Link(LinkOp::Complete { .. }) => &[
            (Always, Cause(link::check)),
            (Wrong, Consequence(link_inputs::completed)),
            (Wrong, Cause(image::failed_input)),
        ],
        Family::Link(LinkOp::Destroy) => &[(Always, Cause(link::destroyed))],
        Family::PrimaryContext(PrimaryOp::Reset) => &[
            (Always, Cause(link::leaked_in_context)),
            (Always, Cause(context::reset_shared)),
            (Always, Cause(growth::in_context)),
        ],
        Family::Context(ContextOp::Destroy) | Family::PrimaryContext(PrimaryOp::Release) => &[
            (Always, Cause(link::leaked_in_context)),
            (Always, Cause(growth::in_context)),
        ],
        Family::Launch(LaunchOp::Arguments(_) | LaunchOp::Config(_)) => &[
            (Freed, Cause(memory::parameters)),
            (Textures, Cause(texture::launched)),
            (TensorMaps, Cause(tensor_map::launched)),
            (Devices, Cause(peer::access_missing)),
            (Unaccessed, Cause(virtual_memory::parameter_access)),
        ],
        Family::Copy(CopyOp::Described(_)) => &[
            (Always, Cause(memory::described)),
            (Wrong, Consequence(copy::descriptor)),
        ],
        Family::Copy(CopyOp::Batch { .. } | CopyOp::Batch3D { .. }) => &[
            (Always, Cause(memory::described)),
            (Always, Cause(copy::batch)),
        ],
        Family::Copy(CopyOp::Peer(_)) => &[(Always, Consequence(peer::copy_context))],
        Family::Memset => &[(Wrong, Consequence(copy::memset))],
        Family::Context(ContextOp::EnablePeer | ContextOp::DisablePeer) => {
            &[(Wrong, Consequence(peer::enable_state))]
        }
        Family::ModuleUnload => &[
            (Always, Cause(module::unload)),
            (Capturing, Cause(graph::unload)),
        ],
        Family::LibraryUnload => &[
            (Always, Cause(module::unload_library)),
            (Capturing, Cause(graph::unload)),
        ],
        Family::Graph(GraphOp::Launch) => &[
            (Always, Cause(graph::launch)),
            (Wrong, Consequence(graph::relaunch)),
        ],
        Family::Graph(GraphOp::Instantiate { .. }) => &[
            (Always, Cause(graph::instantiate)),
            (Wrong, Consequence(graph_structure::instantiate)),
        ],
        Family::Graph(GraphOp::Clone | GraphOp::Update) => {
            &[(Wrong, Consequence(graph_structure::forbidden))]
        }
        Family::UserObject { .. } | Family::UserReferences(_) => {
            &[(Always, Consequence(graph_structure::user_objects))]
        }
        Family::Context(ContextOp::SetLimit) => &[(Wrong, Consequence(context::limit))],
        Family::Checkpoint(_) => &[(Wrong, Consequence(context::checkpoint))],
        Family::VirtualMemory(_) => &[(Wrong, Consequence(virtual_memory::refused))],
        Family::HostMemory(HostMemoryOp::Register) => &[(Wrong, Consequence(memory::registered))],
        Family::Multicast(_) => &[(Always, Cause(virtual_memory::multicast))],
        Family::ProcAddress { .. } => &[(Always, Consequence(init::proc_address))],
        Family::Function(FunctionOp::List { .. }) | Family::Kernel(FunctionOp::List { .. }) => {
            &[(Always, Cause(module::enumerate))]
        }
        Family::Global(_) => &[(Always, Cause(module::both_null))],
        _ => &[],
    }
}

/// The rule about libraries and their kernels.
fn library_rule(family: Family) -> Option<(When, Rule)> {
    match family {
        Family::Launch(LaunchOp::Arguments(_) | LaunchOp::Config(_)) => {
            Some((Libraries, Cause(library::launched)))
        }
        Family::Kernel(FunctionOp::GetAttribute) => {
            Some((Libraries, Consequence(library::shadowed)))
        }
        Family::LibraryModule
        | Family::Global(GlobalOwner::Library)
        | Family::Function(FunctionOp::OfKernel { .. }) => {
            Some((Wrong, Consequence(library::without_context)))
        }
        Family::Copy(CopyOp::Peer(_)) => Some((Always, Consequence(library::peer_copy))),
        _ => None,
    }
}

/// The rule about the current context, or about calls that go in pairs.
fn usage_rule(plan: &Plan) -> Option<Rule> {
    match plan.function.family {
        Family::Event(EventOp::ElapsedTime) => Some(Consequence(usage::elapsed)),
        Family::PrimaryContext(PrimaryOp::Release) => Some(Consequence(usage::released_too_often)),
        Family::Context(ContextOp::Pop) => Some(Consequence(usage::popped_too_often)),
        // The contexts of a peer copy are arguments.
        Family::Copy(CopyOp::Linear(_) | CopyOp::Unified(_)) | Family::Memset => {
            Some(Consequence(usage::none_current))
        }
        _ => (plan.needs_context).then_some(Consequence(usage::none_current)),
    }
}

/// The rule about events.
fn event_rule(family: Family) -> Option<Rule> {
    match family {
        Family::Event(EventOp::ElapsedTime) => Some(Consequence(events::elapsed_early)),
        Family::Event(EventOp::Query | EventOp::Synchronize) => {
            Some(Consequence(capture::asked_after))
        }
        Family::Event(EventOp::Record) => Some(Consequence(events::record_elsewhere)),
        Family::Stream(StreamOp::AttachMemory) => Some(Consequence(events::attachment)),
        Family::Memory(MemoryOp::AllocateManaged) => Some(Consequence(events::unattached)),
        _ => None,
    }
}

/// Rules about the objects and the memory that a call uses.
fn rules_of_operands(plan: &Plan) -> Vec<Option<(When, Rule)>> {
    let handles = match plan.uses_elsewhere {
        true => Always,
        false => Ended,
    };
    vec![
        rule_if(plan.destroys, Threads, Cause(threads::destroyed_in_use)),
        Some((handles, Cause(lifetime::handles))),
        rule_if(
            plan.needs_context,
            Wrong,
            Consequence(lifetime::current_context),
        ),
        rule_if(
            plan.takes_addresses || plan.destroys,
            Always,
            Cause(memory::live),
        ),
        rule_if(plan.takes_addresses, Freed, Cause(memory::freed)),
        rule_if(
            plan.ordered != Ordered::No,
            Accessing,
            Cause(race::unordered),
        ),
        rule_if(
            plan.ordered == Ordered::Transfer,
            Fresh,
            Cause(race::uninitialised),
        ),
        rule_if(plan.copies, Sourced, Cause(race::overwritten)),
        rule_if(
            plan.function.waits != Waits::No,
            Uploading,
            Cause(race::changed_at_wait),
        ),
        rule_if(plan.frees_memory, Busy, Cause(race::freed_while_pending)),
        rule_if(
            plan.function.family == Family::Memory(MemoryOp::AllocateAsync),
            FreedBusy,
            Cause(race::reused),
        ),
    ]
}

/// Rules about modules, libraries and their functions.
fn rules_of_code(plan: &Plan) -> Vec<Option<(When, Rule)>> {
    let family = plan.function.family;
    let uses_code = [Kind::Module, Kind::Library, Kind::Function, Kind::Kernel]
        .iter()
        .any(|&kind| plan.used.contains(kind));
    let looks_up = matches!(
        family,
        Family::Global(_)
            | Family::Function(FunctionOp::Find { .. })
            | Family::Kernel(FunctionOp::Find { .. })
    );
    vec![
        Some((Undefined, Consequence(undefined::used))),
        rule_if(looks_up, Wrong, Consequence(link_inputs::lacking)),
        rule_if(looks_up, Wrong, Consequence(undefined::not_found)),
        rule_if(uses_code, Wrong, Consequence(image::failed_later)),
        rule_if(
            family == Family::ModuleUnload,
            Wrong,
            Consequence(module::null_unloaded),
        ),
        rule_if(
            plan.takes_functions_only,
            Libraries,
            Consequence(library::kernel_as_function),
        ),
        library_rule(family),
    ]
}

/// Rules about what follows from the state and the result, in the order in which one explains the
/// next.
fn rules_of_results(plan: &Plan) -> Vec<Option<(When, Rule)>> {
    let family = plan.function.family;
    let has_flags = matches!(
        family,
        Family::Event(EventOp::Create | EventOp::Record)
            | Family::Sharing(SharingOp::Export(Shared {
                kind: SharedKind::Event,
                ..
            }))
            | Family::Stream(StreamOp::WaitEvent)
    );
    let is_memory_operation = matches!(family, Family::StreamMemory(_));
    let looks_for_code = matches!(
        family,
        Family::ModuleLoad(_)
            | Family::LibraryLoad(_)
            | Family::LibraryModule
            | Family::Global(_)
            | Family::Function(_)
            | Family::Kernel(_)
            | Family::Launch(LaunchOp::Arguments(_) | LaunchOp::Config(_))
    );
    let uses_graphs = plan.used.contains(Kind::Graph) || plan.used.contains(Kind::GraphExec);
    vec![
        Some((Sticky, Cause(errors::skipped_function))),
        Some((Sticky, Consequence(errors::of_earlier_work))),
        Some((Wrong, Consequence(threads::in_host_function))),
        rule_if(
            threads::may_run_destructor(plan),
            Always,
            Consequence(threads::in_destructor),
        ),
        rule_if(uses_graphs, Threads, Consequence(threads::graph_shared)),
        rule_if(looks_for_code, Wrong, Consequence(threads::stuck_load)),
        rule_if(
            is_memory_operation,
            Wrong,
            Consequence(threads::value_operand),
        ),
        rule_if(
            is_memory_operation,
            Always,
            Consequence(threads::hidden_order),
        ),
        rule_if(
            plan.function.waits != Waits::No,
            Wrong,
            Consequence(threads::stuck_value),
        ),
        Some((Captured, Consequence(capture::refused))),
        rule_if(plan.takes_flags, Wrong, Consequence(errors::reserved)),
        rule_if(
            family == Family::Stream(StreamOp::Destroy),
            Capturing,
            Consequence(capture::open_at_destroy),
        ),
        event_rule(family).map(|rule| (Wrong, rule)),
        rule_if(has_flags, Wrong, Consequence(events::flags)),
        rule_if(
            plan.destroys && plan.used.contains(Kind::Event),
            Always,
            Cause(events::waited_early),
        ),
        pool::rule_of(plan),
        context::rule_of(plan),
        virtual_memory::rule_of(plan),
        usage_rule(plan).map(|rule| (Wrong, rule)),
        rule_if(plan.describes, Wrong, Consequence(texture::descriptor)),
        rule_if(plan.describes, Always, Consequence(texture::mirrored)),
        rule_if(
            plan.tensor_map.is_some(),
            Wrong,
            Consequence(tensor_map::refused),
        ),
        rule_if(plan.tensor_map.is_some(), Always, Cause(tensor_map::extent)),
        rule_if(
            plan.takes_addresses || plan.destroys,
            Wrong,
            Consequence(graph::allocation),
        ),
        rule_if(
            plan.takes_nodes,
            Wrong,
            Consequence(graph_structure::structure),
        ),
        rule_if(
            plan.takes_nodes || plan.used.contains(Kind::GraphNode),
            Wrong,
            Consequence(graph_structure::forbidden),
        ),
        rule_if(!plan.written.is_empty(), Lent, Cause(link::memory_reused)),
    ]
}

/// Adds all that is wrong with a call to an empty list; `passed` are the gates that it passes.
pub(crate) fn check(check: &Check<'_, '_>, rules: &Rules, passed: Gates, drafts: &mut Vec<Draft>) {
    if check.call.result() == Some(code::DEINITIALIZED) {
        // The driver is shutting down; rules do not cover what destructors do then.
        return;
    }
    if init::is_uninitialized(check.call) || init::fails_in_forked_child(check) {
        return drafts.extend(init::not_initialized(check));
    }
    for (when, rule) in rules {
        let before = drafts.len();
        debug_assert_eq!(
            passed.has(*when),
            when.holds(check.state, check.plan, check.call),
            "{when:?}"
        );
        match rule {
            _ if !passed.has(*when) => {}
            Rule::Cause(rule) => rule(check, drafts),
            Rule::Consequence(rule) if drafts.is_empty() => drafts.extend(rule(check)),
            Rule::Consequence(_) => {}
        }
        for draft in &drafts[before..] {
            debug_assert!(
                decides::decided_by(*rule).any(|decided| decided == draft.rule),
                "{} is missing in DECIDES",
                draft.rule
            );
        }
    }
}

/// What is missing when the trace ends.
pub(crate) fn at_end(state: &State, context: &dyn TraceContext) -> Vec<Draft> {
    let mut drafts = link::leaked_at_end(state);
    drafts.extend(capture::open_at_end(state));
    drafts.extend(growth::at_end(state));
    drafts.extend(errors::continued_at_end(state));
    // Of a trace that was cut, more calls are missing than a wait.
    let was_cut = context.meta("exit.status") != Some("0");
    drafts.extend(events::waited_early_at_end(state, was_cut));
    if !was_cut {
        drafts.extend(usage::unbalanced_at_end(state));
        drafts.extend(errors::unobserved_at_end(state));
    }
    drafts
}
