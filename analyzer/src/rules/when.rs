//! When a rule can find something: gates that are cheaper than the rules.

use cutape_format::Call;
use cutape_model::Kinds;
use cutape_registry::{Kind, is_sticky};

use super::code;
use crate::launch::LaunchAttributes;
use crate::plan::Plan;
use crate::state::State;

/// Textures and surfaces, and what they are created for.
const TEXTURES: Kinds = Kinds::of(&[
    Kind::TextureObject,
    Kind::SurfaceObject,
    Kind::Array,
    Kind::MipmappedArray,
]);

/// Declares [`When`], [`Gates::passed`] and what they test from one list, in groups by the calls that
/// can pass.
macro_rules! gates {
    (
        any_call { $($(#[$any_doc:meta])* $any:ident,)* }
        with_accesses { $($(#[$accesses_doc:meta])* $accesses:ident,)* }
        failed { $($(#[$failed_doc:meta])* $failed:ident,)* }
    ) => {
        /// When a rule can find something.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum When {
            $($(#[$any_doc])* $any,)*
            $($(#[$accesses_doc])* $accesses,)*
            $($(#[$failed_doc])* $failed,)*
        }

        /// Gates that only a call with a result other than success can pass.
        const OF_FAILURES: Gates = Gates::of(&[$(When::$failed),*]);

        impl Gates {
            /// Those of these gates that a call passes.
            #[inline]
            pub(crate) fn passed(self, state: &State, plan: &Plan, call: &Call<'_>) -> Self {
                let pass = |when: When| {
                    let passes = self.has(when) && when.holds(state, plan, call);
                    u32::from(passes) << when as u32
                };
                // One by one and not in a loop: each is two or three instructions so.
                let mut passed = 0 $(| pass(When::$any))*;
                if !state.ordering.current.is_empty() {
                    passed |= 0 $(| pass(When::$accesses))*;
                }
                if self.intersects(OF_FAILURES) && call.result() != Some(0) {
                    passed |= 0 $(| pass(When::$failed))*;
                }
                Self(passed)
            }
        }
    };
}

gates! {
    any_call {
        Always,
        /// An object of a kind that the call uses has ended. Most programs destroy little while
        /// they run.
        Ended,
        /// Memory was freed.
        Freed,
        /// A call of the thread left its output undefined.
        Undefined,
        /// The program uses libraries.
        Libraries,
        /// It has had contexts of several devices.
        Devices,
        /// A mapping exists to which some device may have no access.
        Unaccessed,
        /// Live objects rely on memory of the program.
        Lent,
        /// Several threads call the driver.
        Threads,
        /// A stream captures.
        Capturing,
        /// Texture or surface objects exist, and they or their memory may have ended.
        Textures,
        /// There are tensor maps, and memory was freed.
        TensorMaps,
        /// A launch passes parameters through `extra`.
        PassesExtra,
        /// A launch passes an array of attributes.
        PassesAttributes,
        /// The code of some kernel uses something of its launches.
        KernelUses,
        /// The last record of some event is by an attribute of a launch.
        LaunchEvents,
        /// Copies from page-locked memory may still run.
        Uploading,
        /// Work on memory may still run.
        Busy,
        /// Work may still use memory that was freed in the order of a stream.
        FreedBusy,
    }
    with_accesses {
        /// The call accesses memory, and so does work that may still run.
        Accessing,
        /// The call accesses memory, and nothing has written some.
        Fresh,
        /// The call accesses memory, and copies from page-locked memory may still run.
        Sourced,
    }
    failed {
        /// The call failed or did not return.
        Wrong,
        /// The call failed in a way that a stream capture explains.
        Captured,
        /// The call returned an error of earlier work.
        Sticky,
        /// Addresses are reserved or mapped, and the call failed.
        ReservedWrong,
    }
}

/// The gates of a function's rules: most calls pass none, and their rules are not looked at one by
/// one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gates(u32);

impl Gates {
    pub(crate) const fn of(gates: &[When]) -> Self {
        let (mut set, mut at) = (0, 0);
        while at < gates.len() {
            set |= 1 << gates[at] as u32;
            at += 1;
        }
        Self(set)
    }

    fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether a gate is one of these.
    #[inline(always)]
    pub(super) fn has(self, when: When) -> bool {
        self.intersects(Self::of(&[when]))
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl When {
    #[inline(always)]
    pub(super) fn holds(self, state: &State, plan: &Plan, call: &Call<'_>) -> bool {
        let objects = &state.objects;
        match self {
            Self::Always => true,
            Self::Wrong => call.result() != Some(0),
            Self::Ended => objects.any_has_ended(plan.used),
            Self::Freed => state.memory.any_freed(),
            Self::Undefined => {
                let thread = state.threads.get(call.thread as usize);
                thread.is_some_and(|thread| !thread.failures.is_empty())
            }
            Self::Libraries => objects.has_had(Kind::Kernel) || objects.has_had(Kind::Library),
            Self::Textures => {
                state.has_textures && (state.memory.any_freed() || objects.any_has_ended(TEXTURES))
            }
            Self::TensorMaps => !state.tensor_maps.is_empty() && state.memory.any_freed(),
            Self::Captured => call.result().is_some_and(|result| {
                matches!(result, 900..=908 | code::ILLEGAL_STATE)
                    || (result == code::INVALID_VALUE && !state.captures.is_empty())
            }),
            Self::Sticky => call.result().is_some_and(is_sticky),
            Self::Threads => state.execution.spans.len() > 1,
            Self::Capturing => !state.captures.is_empty(),
            Self::Accessing => {
                !state.ordering.current.is_empty() && !state.ordering.accesses.is_empty()
            }
            Self::Fresh => !state.ordering.current.is_empty() && !state.ordering.fresh.is_empty(),
            Self::Sourced => {
                !state.ordering.sources.is_empty() && !state.ordering.current.is_empty()
            }
            Self::Uploading => !state.ordering.sources.is_empty(),
            Self::Busy => !state.ordering.accesses.is_empty(),
            Self::FreedBusy => !state.ordering.freed.is_empty(),
            Self::Devices => state.devices.len() > 1,
            Self::Unaccessed => {
                let memory = &state.virtual_memory;
                memory.without_access > 0
                    || (state.devices.len() > 1 && !memory.mappings.is_empty())
            }
            Self::ReservedWrong => {
                let memory = &state.virtual_memory;
                call.result() != Some(0)
                    && !(memory.mappings.is_empty() && memory.reservations.is_empty())
            }
            Self::Lent => !state.writing_links.is_empty() || !state.preserving.is_empty(),
            Self::PassesExtra => {
                let extra = plan.launch_parameters[1];
                extra.is_some_and(|position| call.argument(position) != 0)
            }
            Self::PassesAttributes => plan
                .config
                .is_some_and(|config| LaunchAttributes::of(call, config).address != 0),
            Self::KernelUses => !state.launches.uses.is_empty(),
            Self::LaunchEvents => !state.launches.events.is_empty(),
        }
    }
}
