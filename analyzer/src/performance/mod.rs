//! Patterns that cost time, counted while the calls pass and reported at the end, once for each
//! subject with a count.
//!
//! Tables are bounded by their number of keys; what comes when they are full is not counted.

mod images;
mod launches;
mod memory;
mod queries;
mod tally;
mod waits;

use cutape_format::Call;
use cutape_model::{ObjectId, Site};
use cutape_registry::{
    CopyOp, EventOp, Family, FunctionOp, GlobalOwner, HostMemoryOp, Kind, LaunchOp, MemoryOp,
    MemoryType, Role, StreamOp, Waits, canonical_stream,
};

use crate::context::TraceContext;
use crate::plan::Plan;
use crate::rules::Draft;
use crate::state::State;
use images::Images;
use launches::Launches;
use memory::MemoryUse;
use queries::Queries;
use tally::Rate;
use waits::Waiting;

/// What a call is to performance rules, resolved once for each function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watch {
    /// It asks for what does not change by itself.
    Query,
    /// A launch.
    Launch,
    /// A copy or memset on a stream.
    Work,
    /// A wait of the host.
    Wait,
    /// Neutral: records events, or orders streams.
    Neutral,
    Event(EventOp),
    Load,
    Unload,
    LookUp,
    /// Asks about or configures a function.
    OfFunction,
    /// Anything else.
    Other,
}

/// What a function is to performance rules.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watched {
    watch: Watch,
    /// It may wait although it is no wait.
    may_wait: bool,
    /// It allocates, frees or copies memory, or ends objects.
    of_memory: bool,
}

impl Watched {
    pub(crate) fn of(plan: &Plan) -> Self {
        let function = plan.function;
        let family = function.family;
        let uses_function = plan.used.contains(Kind::Function) || plan.used.contains(Kind::Kernel);
        let watch = match family {
            _ if plan.asks => Watch::Query,
            Family::Launch(LaunchOp::Arguments(_) | LaunchOp::Config(_)) => Watch::Launch,
            Family::Copy(_) | Family::Memset if function.stream.is_some() => Watch::Work,
            Family::Stream(StreamOp::Synchronize)
            | Family::Context(cutape_registry::ContextOp::Synchronize) => Watch::Wait,
            Family::Event(operation) => Watch::Event(operation),
            Family::Stream(StreamOp::WaitEvent) => Watch::Neutral,
            Family::ModuleLoad(_) | Family::LibraryLoad(_) => Watch::Load,
            Family::ModuleUnload | Family::LibraryUnload => Watch::Unload,
            Family::Function(FunctionOp::Find { .. })
            | Family::Kernel(FunctionOp::Find { .. })
            | Family::Global(GlobalOwner::Module | GlobalOwner::Library) => Watch::LookUp,
            _ if uses_function => Watch::OfFunction,
            _ => Watch::Other,
        };
        let of_memory = matches!(
            family,
            Family::Memory(_) | Family::HostMemory(_) | Family::Copy(_)
        ) || plan.destroys;
        Self {
            watch,
            may_wait: matches!(
                family,
                Family::Memory(MemoryOp::Allocate | MemoryOp::Free)
                    | Family::HostMemory(
                        HostMemoryOp::Allocate
                            | HostMemoryOp::Free
                            | HostMemoryOp::Register
                            | HostMemoryOp::Unregister
                    )
                    | Family::ModuleLoad(_)
                    | Family::ModuleUnload
                    | Family::LibraryLoad(_)
                    | Family::LibraryUnload
            ),
            of_memory,
        }
    }
}

/// What is counted.
#[derive(Debug, Default)]
pub(crate) struct Performance {
    rate: Rate,
    queries: Queries,
    images: Images,
    launches: Launches,
    memory: MemoryUse,
    waiting: Waiting,
    /// How much work was submitted.
    work: u64,
    /// The index of the call that submitted work last.
    last_work: Option<u64>,
}

/// A number that tells work of another function or shape apart.
fn shape(plan: &Plan, call: &Call<'_>) -> u64 {
    let word = |position: usize| call.argument(position);
    match plan.function.family {
        Family::Launch(LaunchOp::Arguments(launch)) => {
            // The widths of grid and block; the other sides rarely differ alone.
            let grid = usize::from(launch.grid);
            let sides = word(grid) << 16 ^ word(grid + 3);
            word(usize::from(launch.function)).rotate_left(32) ^ sides
        }
        Family::Launch(LaunchOp::Config(launch)) => word(usize::from(launch.function)),
        _ => plan.function.id.into(),
    }
}

/// The words of eight bytes that a launch passes, whatever they mean.
fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let words = bytes.as_chunks::<8>().0.iter();
    words.map(|word| u64::from_le_bytes(*word))
}

/// The allocations that work is given; `None` if they are not known.
fn operands(plan: &Plan, call: &Call<'_>, state: &State) -> Option<Vec<ObjectId>> {
    if plan.launched.is_some() {
        return Some(
            words(plan.parameters(call)?)
                .filter_map(|at| state.memory_at(at))
                .collect(),
        );
    }
    let params = plan.function.params.iter().enumerate();
    let addresses = params
        .filter(|(_, param)| matches!(param.role, Role::DeviceRead(_) | Role::DeviceWrite(_)));
    let found: Vec<_> = addresses
        .filter_map(|(position, _)| state.memory_at(call.argument(position)))
        .collect();
    (!found.is_empty()).then_some(found)
}

impl Performance {
    /// The rate of the clock, which a growing trace may not have at first.
    fn rate(&mut self, context: &dyn TraceContext) -> Rate {
        if self.rate.0 == 0 {
            self.rate = Rate(context.ticks_per_second());
        }
        self.rate
    }

    /// A call that succeeded, before the model applies it.
    #[inline]
    pub(crate) fn observe(
        &mut self,
        (plan, watched): (&Plan, Watched),
        (call, site): (&Call<'_>, Option<&Site>),
        state: &State,
        context: &dyn TraceContext,
    ) {
        let site = || site.map_or_else(|| Site::of(plan.function.name, call), |site| *site);
        match watched.watch {
            Watch::Query => {
                let rate = self.rate(context);
                self.queries.asked(plan, call, rate);
                if let Some(function) = plan.launched {
                    self.launches.asked(call.argument(function));
                }
            }
            Watch::Neutral => self.neutral(plan, call, state),
            Watch::Event(operation) => self.event(operation, plan, call, state),
            Watch::Launch | Watch::Work => self.work((plan, watched), call, site(), state),
            Watch::Wait => {
                let site = site();
                let stream = match plan.function.waits {
                    Waits::Stream(position) => Some(call.argument(usize::from(position))),
                    _ => None,
                };
                self.waiting.waited(call, site, stream);
                self.launches.waited();
            }
            _ => self.rare(plan, watched, call, state, context),
        }
    }

    fn work(
        &mut self,
        (plan, watched): (&Plan, Watched),
        call: &Call<'_>,
        site: Site,
        state: &State,
    ) {
        self.work += 1;
        self.last_work = Some(call.index);
        if watched.watch == Watch::Launch {
            self.launches.launched(plan, call, site, state);
        } else {
            self.memory
                .observe((plan, call, site), state, self.last_work);
        }
        let stream = canonical_stream(plan.stream(call).unwrap_or(0), plan.function.per_thread);
        self.launches
            .submitted(site, stream, state, || operands(plan, call, state));
        let reads_back = match plan.function.family {
            Family::Copy(CopyOp::Linear(transfer)) => transfer.to == MemoryType::Host,
            Family::Copy(_) => true,
            _ => false,
        };
        let shape = shape(plan, call);
        let is_shared = || {
            let is_shared = |address| state.shared_around(address).is_some();
            let shared = |bytes| words(bytes).any(is_shared);
            plan.parameters(call).is_some_and(shared)
        };
        self.waiting
            .submitted(call, (stream, shape), reads_back, is_shared);
    }

    fn neutral(&mut self, plan: &Plan, call: &Call<'_>, state: &State) {
        if let Some(event) = plan.handle_of(call, Kind::Event) {
            self.waiting.event_waited(state, event);
        }
    }

    fn event(&mut self, operation: EventOp, plan: &Plan, call: &Call<'_>, state: &State) {
        match operation {
            EventOp::Create | EventOp::Record => {}
            EventOp::Query => self.neutral(plan, call, state),
            EventOp::Synchronize => {
                self.neutral(plan, call, state);
                let site = Site::of(plan.function.name, call);
                // Which work the event covers is not looked at.
                self.waiting.waited(call, site, Some(u64::MAX));
                self.launches.waited();
            }
            EventOp::ElapsedTime => {
                for name in ["hStart", "hEnd"] {
                    if let Some(position) = plan.at(name) {
                        self.waiting.event_timed(state, call.argument(position));
                    }
                }
                self.launches.measured(plan, call, state);
                self.waiting.other(call.thread);
            }
        }
    }

    fn rare(
        &mut self,
        plan: &Plan,
        watched: Watched,
        call: &Call<'_>,
        state: &State,
        context: &dyn TraceContext,
    ) {
        let site = Site::of(plan.function.name, call);
        let rate = self.rate(context);
        match watched.watch {
            Watch::Load => self.images.loaded((plan, call, site), state, context, rate),
            Watch::Unload => self.images.unloaded(call.argument(0)),
            Watch::LookUp => self.images.looked_up(plan, call, site, self.work),
            Watch::OfFunction => {
                let kinds = [Kind::Function, Kind::Kernel].into_iter();
                for handle in kinds.filter_map(|kind| plan.handle_of(call, kind)) {
                    self.launches.asked(handle);
                }
            }
            _ => {}
        }
        if watched.may_wait {
            self.waiting.timed((plan, call, site), state, rate);
        }
        if watched.of_memory {
            self.memory
                .observe((plan, call, site), state, self.last_work);
        }
        self.waiting.other(call.thread);
    }

    /// Calls are missing here.
    pub(crate) fn apply_gap(&mut self) {
        self.waiting.apply_gap();
        self.launches.apply_gap();
    }

    /// What was found.
    pub(crate) fn finish(&mut self, context: &dyn TraceContext) -> Vec<Draft> {
        let rate = self.rate(context);
        let mut drafts: Vec<Draft> = self.queries.finish(rate).into_iter().collect();
        drafts.extend(self.images.finish(rate));
        drafts.extend(self.memory.finish(context, rate));
        drafts.extend(self.waiting.finish(rate));
        drafts.extend(self.launches.finish(context));
        drafts
    }
}
