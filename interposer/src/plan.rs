//! What is worked out once per function at the start, so that recording a call looks nothing up.

use core::cell::UnsafeCell;

use cutape_format::layout::short_enter;
use cutape_registry::{Class, FUNCTIONS, Function, Kind, Length, Role, Waits, Width};

use crate::overrides::Handling;

/// Most parameters that any function has.
pub(crate) const MOST_PARAMETERS: usize = 16;

/// Where an argument is when a function is entered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In that integer register.
    Register(u8),
    /// In that vector register.
    Vector(u8),
    /// From that word of the stack on.
    Stack(u8),
}

/// How the enter record of a function is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entering {
    /// Something is to be looked at, or arguments are where they need care.
    ByRoles,
    /// Nothing but integer arguments, in an `ENTER`.
    Plain,
    /// Nothing but integer arguments, in an `ENTER_SHORT`, which is smaller where they are many.
    Short,
}

/// Bytes that a function writes behind a parameter, always as many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) position: u8,
    pub(crate) bytes: u8,
}

/// Most outputs of a function whose leave record is written without looking at roles.
pub(crate) const MOST_OUTPUTS: usize = 4;
/// From that many arguments on a short record is the smaller one.
const MANY_ARGUMENTS: u8 = 5;

/// A function's plan.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) count: u8,
    pub(crate) entering: Entering,
    /// Something is done between the enter record and the driver, whatever the operands are.
    pub(crate) acts_when_entered: bool,
    /// The leave record holds no more than the result and `outputs`, and nothing else is to be done.
    pub(crate) leaves_directly: bool,
    /// That is so while no copy is waited for and no host memory that the device may have written is to be looked at.
    pub(crate) leaves_directly_when_idle: bool,
    pub(crate) output_count: u8,
    pub(crate) outputs: [Output; MOST_OUTPUTS],
    /// The only output, if it is a number of 4 or 8 bytes.
    pub(crate) value: Option<Output>,
    /// What of each word belongs to the argument.
    pub(crate) masks: [u64; MOST_PARAMETERS],
    pub(crate) places: [Place; MOST_PARAMETERS],
    /// Bytes in the trace.
    pub(crate) widths: [u8; MOST_PARAMETERS],
    /// There is a struct by value.
    pub(crate) by_value: bool,
    /// Something behind a pointer is looked at before the call.
    pub(crate) looks_before: bool,
    /// Something behind a pointer is looked at after the call.
    pub(crate) looks_after: bool,
    /// A success means that host memory will be written when a stream gets there.
    pub(crate) writes_later: bool,
    /// The parameter that is a function or kernel.
    pub(crate) function: Option<u8>,
    /// An argument says which memory the device reads or writes.
    pub(crate) has_operands: bool,
    /// A success proves earlier copies complete.
    pub(crate) waits: bool,
    /// Recording it makes system calls or allocates.
    pub(crate) disturbs: bool,
    pub(crate) handling: Handling,
}

const EMPTY: Plan = Plan {
    count: 0,
    entering: Entering::ByRoles,
    acts_when_entered: true,
    leaves_directly: false,
    leaves_directly_when_idle: false,
    output_count: 0,
    outputs: [Output {
        position: 0,
        bytes: 0,
    }; MOST_OUTPUTS],
    value: None,
    masks: [0; MOST_PARAMETERS],
    places: [Place::Register(0); MOST_PARAMETERS],
    widths: [0; MOST_PARAMETERS],
    by_value: false,
    looks_before: false,
    looks_after: false,
    writes_later: false,
    function: None,
    has_operands: false,
    waits: false,
    disturbs: false,
    handling: Handling::Generic,
};

struct Plans(UnsafeCell<[Plan; FUNCTIONS.len()]>);

// SAFETY: written by `prepare` alone, which runs once, before any thread can see the recording as started.
unsafe impl Sync for Plans {}

static PLANS: Plans = Plans(UnsafeCell::new([EMPTY; FUNCTIONS.len()]));

/// Works all plans out. To be called once, before `of`.
pub(crate) fn prepare() {
    // SAFETY: see `Plans`.
    let plans = unsafe { &mut *PLANS.0.get() };
    for (plan, function) in plans.iter_mut().zip(&FUNCTIONS) {
        *plan = make(function);
    }
}

/// The plan of a function.
#[inline]
pub(crate) fn of(function: usize) -> &'static Plan {
    // SAFETY: nobody writes after `prepare`; the index comes from our own entries and is checked all the same.
    let plans = unsafe { &*PLANS.0.get() };
    plans.get(function).unwrap_or(&EMPTY)
}

/// Works out the plan of one function.
pub(crate) fn make(function: &Function) -> Plan {
    let mut plan = EMPTY;
    let (mut registers, mut vectors, mut words) = (0, 0, 0);
    for (index, parameter) in function.params.iter().enumerate().take(MOST_PARAMETERS) {
        let mut stack = |count: u8| {
            words += count;
            Place::Stack(words - count)
        };
        // The System V calling convention: six integer registers, eight vector registers, then the stack; structs of
        // more than 16 bytes always on the stack.
        plan.places[index] = match parameter.width {
            Width::Memory(bytes) => stack(bytes.div_ceil(8)),
            Width::Float(_) if vectors < 8 => {
                vectors += 1;
                Place::Vector(vectors - 1)
            }
            Width::Unsigned(_) | Width::Signed(_) if registers < 6 => {
                registers += 1;
                Place::Register(registers - 1)
            }
            _ => stack(1),
        };
        plan.widths[index] = parameter.width.bytes() as u8;
        plan.masks[index] = u64::MAX >> (64 - 8 * u32::from(plan.widths[index].clamp(1, 8)));
        plan.by_value |= matches!(parameter.width, Width::Memory(_));
        plan.looks_before |= looks_before(parameter.role);
        plan.looks_after |= looks_after(parameter.role);
        plan.writes_later |=
            function.stream.is_some() && matches!(parameter.role, Role::HostWrite(_));
        plan.disturbs |= disturbs(parameter.role);
        plan.has_operands |= matches!(
            parameter.role,
            Role::DeviceRead(_) | Role::DeviceWrite(_) | Role::HostWrite(_)
        );
        if let Role::Use(Kind::Function | Kind::Kernel) = parameter.role {
            plan.function = plan.function.or(Some(index as u8));
        }
        plan.count += 1;
    }
    plan.waits = function.waits != Waits::No;
    plan.handling = if function.class == Class::Opaque && function.reason != "not yet" {
        Handling::Generic
    } else {
        Handling::of(function.base)
    };
    plan.disturbs |= plan.handling.disturbs();
    if plan.handling == Handling::LaunchEx {
        // Its struct is read like the parameters, behind the enter record.
        plan.looks_before = false;
        plan.disturbs = false;
    }
    let are_integers = !plan.by_value && vectors == 0;
    if are_integers && !plan.looks_before && plan.handling.puts_nothing_before() {
        plan.entering = match plan.count {
            ..MANY_ARGUMENTS => Entering::Plain,
            count if usize::from(count) <= short_enter::MOST_ARGUMENTS => Entering::Short,
            _ => Entering::ByRoles,
        };
    }
    plan.acts_when_entered = !plan.handling.does_nothing_when_entered();
    let needs_idle = plan.handling == Handling::EventRecord || plan.waits;
    plan.leaves_directly_when_idle = (plan.handling.does_nothing_after()
        || plan.handling == Handling::EventRecord)
        && !plan.writes_later
        && (plan.function.is_none() || plan.handling != Handling::Generic)
        && collect_outputs(&mut plan, function).is_some();
    plan.leaves_directly = plan.leaves_directly_when_idle && !needs_idle;
    plan
}

/// Fills in the outputs; `None` if one of them takes more than reading a few bytes that the driver has just written.
fn collect_outputs(plan: &mut Plan, function: &Function) -> Option<()> {
    for (position, parameter) in (0..).zip(function.params) {
        if !looks_after(parameter.role) {
            continue;
        }
        let bytes = match parameter.role {
            Role::Make(..) | Role::Find(..) | Role::Get(_) => {
                crate::capture::handle_bytes(parameter.c_type) as u8
            }
            Role::Out(Length::Fixed(bytes)) => bytes.try_into().ok()?,
            _ => return None,
        };
        *plan.outputs.get_mut(usize::from(plan.output_count))? = Output { position, bytes };
        plan.output_count += 1;
    }
    plan.value = match plan.outputs.get(..usize::from(plan.output_count))? {
        [one] if matches!(one.bytes, 4 | 8) => Some(*one),
        _ => None,
    };
    Some(())
}

/// Whether a role means that something is captured before the call.
pub(crate) fn looks_before(role: Role) -> bool {
    matches!(
        role,
        Role::String | Role::In(_) | Role::InOut(_) | Role::UseMany(..) | Role::HostRead(_)
    )
}

/// Whether a role takes more than reading a few bytes that the driver has just written.
fn disturbs(role: Role) -> bool {
    match role {
        Role::Make(..) | Role::Find(..) | Role::Get(_) | Role::Out(Length::Fixed(_)) => false,
        _ => looks_before(role) || looks_after(role),
    }
}

/// Whether a role means that something is captured after the call.
pub(crate) fn looks_after(role: Role) -> bool {
    matches!(
        role,
        Role::Make(..)
            | Role::Find(..)
            | Role::FindMany(..)
            | Role::Get(_)
            | Role::Out(_)
            | Role::InOut(_)
            | Role::OutString
            | Role::Text(_)
            | Role::HostWrite(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_has_room() {
        for function in &FUNCTIONS {
            assert!(
                function.params.len() <= MOST_PARAMETERS,
                "{}",
                function.name
            );
            let plan = make(function);
            for place in plan.places.iter().take(plan.count.into()) {
                // The stubs copy sixteen words of the stack.
                assert!(
                    !matches!(place, Place::Stack(at) if *at >= 16),
                    "{}",
                    function.name
                );
            }
        }
    }

    #[test]
    fn places_follow_the_calling_convention() {
        let place =
            |name: &str, at: usize| make(cutape_registry::function(name).expect(name)).places[at];
        let table: [(&str, usize, Place); 6] = [
            ("cuInit", 0, Place::Register(0)),
            ("cuLaunchKernel", 5, Place::Register(5)),
            ("cuLaunchKernel", 6, Place::Stack(0)),
            ("cuLaunchKernel", 10, Place::Stack(4)),
            ("cuParamSetf", 2, Place::Vector(0)),
            // A struct of 64 bytes by value, then flags that still fit a register.
            ("cuIpcOpenMemHandle", 2, Place::Register(1)),
        ];
        for (name, at, expected) in table {
            assert!(place(name, at) == expected, "{name}, parameter {at}");
        }
        assert!(place("cuIpcOpenMemHandle", 1) == Place::Stack(0));
    }

    #[test]
    fn families_match_prototypes() {
        // A family names its parameters by position; here by name, as the header has them.
        let table = [
            ("cuLaunchKernel", 9, "kernelParams"),
            ("cuLaunchKernel", 10, "extra"),
            ("cuLaunchCooperativeKernel", 9, "kernelParams"),
            ("cuLaunchKernelEx", 2, "kernelParams"),
            ("cuLaunchKernelEx", 3, "extra"),
            ("cuModuleLoadDataEx", 2, "numOptions"),
            ("cuModuleLoadDataEx", 3, "options"),
            ("cuModuleLoadDataEx", 4, "optionValues"),
            ("cuLibraryLoadData", 2, "jitOptions"),
            ("cuLibraryLoadData", 3, "jitOptionsValues"),
            ("cuLibraryLoadData", 4, "numJitOptions"),
            ("cuLibraryLoadData", 5, "libraryOptions"),
            ("cuLibraryLoadData", 6, "libraryOptionValues"),
            ("cuLibraryLoadData", 7, "numLibraryOptions"),
            ("cuLinkCreate_v2", 2, "optionValues"),
            ("cuLinkCreate_v2", 3, "stateOut"),
            ("cuLinkAddData_v2", 2, "data"),
            ("cuLinkAddData_v2", 3, "size"),
            ("cuLinkAddData_v2", 5, "numOptions"),
            ("cuLinkAddData_v2", 7, "optionValues"),
            ("cuLinkAddFile_v2", 2, "path"),
            ("cuLinkAddFile_v2", 3, "numOptions"),
            ("cuLinkAddFile_v2", 5, "optionValues"),
            ("cuLinkComplete", 1, "cubinOut"),
            ("cuGetProcAddress_v2", 1, "pfn"),
            ("cuMemcpyBatchAsync_v2", 2, "sizes"),
            ("cuMemcpyBatchAsync", 3, "count"),
            ("cuMemcpy3DBatchAsync", 0, "numOps"),
            ("cuMemcpy3DBatchAsync_v2", 1, "opList"),
            ("cuOccupancyMaxActiveClusters", 2, "config"),
            ("cuOccupancyMaxPotentialClusterSize", 2, "config"),
            ("cuPointerGetAttributes", 1, "attributes"),
            ("cuPointerGetAttributes", 2, "data"),
            ("cuMemRangeGetAttributes", 1, "dataSizes"),
            ("cuMemRangeGetAttributes", 3, "numAttributes"),
            ("cuMemcpy", 1, "src"),
            ("cuEventRecord", 0, "hEvent"),
            ("cuModuleEnumerateFunctions", 2, "mod"),
            ("cuLibraryEnumerateKernels", 2, "lib"),
        ];
        for (function, at, name) in table {
            let params = cutape_registry::function(function).expect(function).params;
            assert_eq!(
                params.get(at).map(|param| param.name),
                Some(name),
                "{function}"
            );
        }
    }
}
