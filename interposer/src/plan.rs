//! What is worked out once per function at the start, so that recording a call looks nothing up.

use core::cell::UnsafeCell;

use cutape_format::fixed::{EnterForm, ShortForm, ValueForm};
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
    /// As `Short`, with the arguments of `cuLaunchKernel`.
    Launch,
    /// Nothing but integer arguments, in an `ENTER_SHORT`, which is smaller where they are many.
    Short,
}

/// What is done between the enter record and the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acting {
    Never,
    /// Only if the operands may be host memory that the device reaches.
    OnOperands,
    /// A kernel is launched: its parameters are captured.
    OnLaunch,
    Always,
}

/// How the leave record of a function is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// There is more to be done than the others say.
    ByRoles,
    /// Nothing but the result.
    Result,
    /// The result and one number of 4 or 8 bytes, `Plan::value`.
    Value,
    /// The result and a number, as wide as `Plan::value_types` says.
    ValueByAttribute,
    /// The result and two numbers of 4 or 8 bytes, the first two of `Plan::outputs`.
    Pair,
    /// The result and `Plan::outputs`.
    Outputs,
}

/// Of which attributes the value is a number of 4 or of 8 bytes, a bit each; further ones are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ValueTypes {
    /// The parameter that says which attribute.
    attribute: u8,
    of_four: u64,
    of_eight: u64,
}

impl ValueTypes {
    const NONE: Self = Self {
        attribute: 0,
        of_four: 0,
        of_eight: 0,
    };

    fn new(length: Length) -> Option<Self> {
        let Length::ByAttribute(attribute, types) = length else {
            return None;
        };
        let of = |bytes: u64| {
            let numbers = types
                .iter()
                .filter(|known| u64::from(known.bytes) == bytes)
                .map(|known| u64::from(known.attribute));
            numbers
                .filter(|&number| number < 64)
                .fold(0, |all, number| all | 1 << number)
        };
        Some(Self {
            attribute,
            of_four: of(4),
            of_eight: of(8),
        })
    }

    /// How many bytes the value has that a call asks for, if it is such a number.
    #[inline(always)]
    pub(crate) fn bytes(self, words: &[u64; MOST_PARAMETERS]) -> Option<u8> {
        // Enums travel in 32 bits.
        let attribute = words[usize::from(self.attribute % 16)] as u32;
        let bit = 1_u64.checked_shl(attribute)?;
        match () {
            () if self.of_four & bit != 0 => Some(4),
            () if self.of_eight & bit != 0 => Some(8),
            () => None,
        }
    }
}

/// Bytes that a function writes behind a parameter, always as many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) position: u8,
    pub(crate) bytes: u8,
}

/// Most outputs of a function whose leave record is written without looking at roles.
pub(crate) const MOST_OUTPUTS: usize = 4;
// What has too many arguments for the one has enough for the other, which is the smaller one then.
const _: () = assert!(ShortForm::FEWEST_ARGUMENTS == EnterForm::MOST_ARGUMENTS + 1);

/// A function's plan. What every call needs is first, in one line of the cache.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Plan {
    /// Where `entering` is `Plain`.
    pub(crate) form: EnterForm,
    /// Where it is `Short`.
    pub(crate) short_form: ShortForm,
    pub(crate) count: u8,
    pub(crate) entering: Entering,
    pub(crate) acting: Acting,
    pub(crate) leaving: Leaving,
    /// It leaves by roles while a copy is waited for, or host memory that the device may have written is to be looked at.
    pub(crate) asks_if_idle: bool,
    /// The only output, if it is a number of 4 or 8 bytes, or if an attribute says whether it is; then these are not known.
    pub(crate) value: Output,
    pub(crate) value_form: ValueForm,
    /// The arguments are not in the registers, and then the stack, in the order of the prototype.
    pub(crate) is_scattered: bool,
    /// There is a struct by value.
    pub(crate) by_value: bool,
    /// A bit for each argument that says which memory the device reads or writes.
    pub(crate) operands: u16,
    /// Something behind a pointer is looked at before the call.
    pub(crate) looks_before: bool,
    /// Something behind a pointer is looked at after the call.
    pub(crate) looks_after: bool,
    /// A success means that host memory will be written when a stream gets there.
    pub(crate) writes_later: bool,
    /// The parameter that is a function or kernel.
    pub(crate) function: Option<u8>,
    /// A success proves earlier copies complete.
    pub(crate) waits: bool,
    /// Recording it makes system calls or allocates.
    pub(crate) disturbs: bool,
    pub(crate) output_count: u8,
    pub(crate) outputs: [Output; MOST_OUTPUTS],
    pub(crate) handling: Handling,
    pub(crate) value_types: ValueTypes,
    /// What of each word belongs to the argument.
    pub(crate) masks: [u64; MOST_PARAMETERS],
    /// Bytes in the trace.
    pub(crate) widths: [u8; MOST_PARAMETERS],
    pub(crate) places: [Place; MOST_PARAMETERS],
}

const NO_OUTPUT: Output = Output {
    position: 0,
    bytes: 0,
};

const EMPTY: Plan = Plan {
    form: EnterForm::new(0, &[]).unwrap(),
    short_form: ShortForm::new(ShortForm::FEWEST_ARGUMENTS).unwrap(),
    count: 0,
    entering: Entering::ByRoles,
    acting: Acting::Always,
    leaving: Leaving::ByRoles,
    asks_if_idle: false,
    value: NO_OUTPUT,
    value_form: ValueForm::new(0, false),
    is_scattered: false,
    by_value: false,
    operands: 0,
    looks_before: false,
    looks_after: false,
    writes_later: false,
    function: None,
    waits: false,
    disturbs: false,
    output_count: 0,
    outputs: [NO_OUTPUT; MOST_OUTPUTS],
    handling: Handling::Generic,
    value_types: ValueTypes::NONE,
    masks: [0; MOST_PARAMETERS],
    widths: [0; MOST_PARAMETERS],
    places: [Place::Register(0); MOST_PARAMETERS],
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
        plan.is_scattered |= !matches!(parameter.width, Width::Unsigned(_) | Width::Signed(_));
        plan.looks_before |= looks_before(parameter.role);
        plan.looks_after |= looks_after(parameter.role);
        plan.writes_later |=
            function.stream.is_some() && matches!(parameter.role, Role::HostWrite(_));
        plan.disturbs |= disturbs(parameter.role);
        let is_operand = matches!(
            parameter.role,
            Role::DeviceRead(_) | Role::DeviceWrite(_) | Role::HostWrite(_)
        );
        plan.operands |= u16::from(is_operand) << index;
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
    if !plan.is_scattered && !plan.looks_before && plan.handling.puts_nothing_before() {
        let count = usize::from(plan.count);
        let form = plan
            .widths
            .get(..count)
            .map(|widths| EnterForm::new(function.id, widths));
        if let Some(form) = form.flatten() {
            plan.form = form;
            plan.entering = Entering::Plain;
        } else if let Some(form) = ShortForm::new(count) {
            plan.short_form = form;
            plan.entering = match plan.handling {
                Handling::Launch { has_extra: true } => Entering::Launch,
                _ => Entering::Short,
            };
        }
    }
    plan.acting = match plan.handling {
        Handling::Launch { .. } | Handling::LaunchEx => Acting::OnLaunch,
        handling if !handling.does_nothing_when_entered() => Acting::Always,
        _ if plan.operands != 0 => Acting::OnOperands,
        _ => Acting::Never,
    };
    plan.asks_if_idle = plan.handling == Handling::EventRecord || plan.waits;
    let leaves_directly = (plan.handling.does_nothing_after()
        || plan.handling == Handling::EventRecord)
        && !plan.writes_later
        && (plan.function.is_none() || plan.handling != Handling::Generic);
    if leaves_directly {
        plan.leaving = collect_outputs(&mut plan, function).unwrap_or(Leaving::ByRoles);
    }
    plan
}

/// Fills in the outputs; `None` if one of them takes more than reading a few bytes that the driver has just written.
fn collect_outputs(plan: &mut Plan, function: &Function) -> Option<Leaving> {
    let mut outputs = (0..)
        .zip(function.params)
        .filter(|(_, parameter)| looks_after(parameter.role));
    if let (Some((position, parameter)), None) = (outputs.next(), outputs.next())
        && let Role::Out(length) = parameter.role
        && let Some(types) = ValueTypes::new(length)
    {
        plan.value = Output { position, bytes: 0 };
        plan.value_types = types;
        return Some(Leaving::ValueByAttribute);
    }
    for (position, parameter) in (0..).zip(function.params) {
        if !looks_after(parameter.role) {
            continue;
        }
        let bytes = match parameter.role {
            Role::Make(..) | Role::Find(..) | Role::Get(_) => {
                crate::snapshot::handle_bytes(parameter.c_type) as u8
            }
            Role::Out(Length::Fixed(bytes)) => bytes.try_into().ok()?,
            _ => return None,
        };
        *plan.outputs.get_mut(usize::from(plan.output_count))? = Output { position, bytes };
        plan.output_count += 1;
    }
    Some(match plan.outputs.get(..usize::from(plan.output_count))? {
        [] => Leaving::Result,
        [one] if matches!(one.bytes, 4 | 8) => {
            plan.value = *one;
            plan.value_form = ValueForm::new(one.position, one.bytes == 4);
            Leaving::Value
        }
        [one, other] if matches!((one.bytes, other.bytes), (4 | 8, 4 | 8)) => Leaving::Pair,
        _ => Leaving::Outputs,
    })
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
