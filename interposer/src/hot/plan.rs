//! What is computed once per function when the recording starts, so that recording a call looks
//! nothing up.

use core::cell::UnsafeCell;

use cutape_device_memory::Steps;
use cutape_format::slot::{self, ShortForm, ValueForm};
use cutape_registry::{
    FUNCTIONS, Family, Function, Kind, LaunchArguments, LaunchOp, Length, Location, Locations,
    Role, attributes, id,
};

use super::hook_bits::{FINISH, HookBits, POST, PRE, PUT_POST, PUT_PRE};
use crate::{awaited_roles, call_order};

/// Most parameters of any function.
pub(crate) const MOST_PARAMETERS: usize = 16;

/// The positions of `cuLaunchKernel`, whose enter record has a form of its own.
#[allow(
    clippy::indexing_slicing,
    clippy::panic,
    reason = "evaluated when this is compiled"
)]
pub(crate) const LAUNCH: LaunchArguments = match FUNCTIONS[id::cuLaunchKernel as usize].family {
    Family::Launch(LaunchOp::Arguments(launch)) => launch,
    _ => panic!("cuLaunchKernel is a launch"),
};

/// How the enter record of a function is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EnterForm {
    /// With snapshots, or with arguments that are not plain integers.
    Generic,
    /// As an `ENTER` with few integer arguments.
    Plain,
    /// As `Short`, with the arguments of `cuLaunchKernel`.
    Launch,
    /// As an `ENTER_SHORT`, which is smaller if there are many integer arguments.
    Short,
}

/// What happens between the enter record and the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PreCall {
    Nothing,
    /// Operands may lie in host memory that the device can access.
    Operands,
    /// The parameters of a kernel are recorded.
    Launch,
    /// The same for `cuLaunchKernelEx`.
    LaunchEx,
    /// An override has code for it.
    Override,
}

/// What successful calls of a function have to do with the order of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrderForm {
    Nothing,
    /// They enqueue work, which may pass the order of the default stream on.
    Enqueues,
    /// They tell something of it. Then the leave record is generic while work is followed.
    Tells,
}

/// How the leave record of a function is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaveForm {
    /// With snapshots of any kind, or after code of an override.
    Generic,
    /// The result alone.
    Result,
    /// The result and one number of 4 or 8 bytes, `Plan::value`.
    Value,
    /// The result and one number, as wide as `Plan::attribute_bytes` says.
    ValueByAttribute,
    /// The result and two numbers of 4 or 8 bytes, `Plan::pair`.
    Pair,
}

/// How many bytes the value of an attribute has: one bit per attribute. Higher attributes take the
/// generic path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AttributeBytes {
    /// The position of the attribute.
    attribute: u8,
    four: u64,
    eight: u64,
}

impl AttributeBytes {
    const NONE: Self = Self {
        attribute: 0,
        four: 0,
        eight: 0,
    };

    fn new(length: Length) -> Option<Self> {
        let Length::ByAttribute(attribute, table) = length else {
            return None;
        };
        let with = |bytes: u32| {
            attributes::types(table)
                .iter()
                .filter(|known| known.bytes == bytes)
                .fold(0, |all, known| {
                    all | 1_u64.checked_shl(known.attribute).unwrap_or(0)
                })
        };
        Some(Self {
            attribute,
            four: with(4),
            eight: with(8),
        })
    }

    /// Bytes of the value that a call asks for, if they are 4 or 8.
    #[inline(always)]
    pub(crate) fn of(self, words: &[u64; MOST_PARAMETERS]) -> Option<u8> {
        // Enums travel in 32 bits.
        let attribute = *words.get(usize::from(self.attribute))? as u32;
        let bit = 1_u64.checked_shl(attribute)?;
        match () {
            () if self.four & bit != 0 => Some(4),
            () if self.eight & bit != 0 => Some(8),
            () => None,
        }
    }
}

/// A number that a function writes behind a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) position: u8,
    pub(crate) bytes: u8,
}

const NO_OUTPUT: Output = Output {
    position: 0,
    bytes: 0,
};

// Every count of integer arguments has a fixed form, unless it is beyond both.
const _: () = assert!(ShortForm::FEWEST_ARGUMENTS == slot::EnterForm::MOST_ARGUMENTS + 1);

/// The plan of a function. What every call needs is first, in one cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Plan {
    /// If `enter` is `Plain`.
    pub(crate) plain: slot::EnterForm,
    /// If `enter` is `Short` or `Launch`.
    pub(crate) short: ShortForm,
    pub(crate) count: u8,
    pub(crate) enter: EnterForm,
    pub(crate) pre_call: PreCall,
    pub(crate) leave: LeaveForm,
    pub(crate) order: OrderForm,
    /// If `leave` is `Value`, or `ValueByAttribute` with `bytes` unknown.
    pub(crate) value: Output,
    pub(crate) value_form: ValueForm,
    /// The arguments are not the integer registers, then the stack, in the order of the prototype.
    pub(crate) is_scattered: bool,
    /// A bit for each argument that is the address of memory that the device reads or writes.
    pub(crate) operands: u16,
    /// The registry's roles ask for snapshots in the enter record, in the leave record.
    pub(crate) snapshots_before: bool,
    pub(crate) snapshots_after: bool,
    /// Host memory is written, or its bytes are awaited, when the stream gets there, which may be
    /// after the call has returned.
    pub(crate) awaits_copy: bool,
    /// A success proves earlier work complete.
    pub(crate) waits: bool,
    /// A successful call is left out while recording is paused.
    pub(crate) changes_no_state: bool,
    /// Recording it makes system calls or allocates, so that `errno` has to be kept.
    pub(crate) may_change_errno: bool,
    /// If `leave` is `Pair`.
    pub(crate) pair: [Output; 2],
    /// The position of a function or kernel.
    pub(crate) function: Option<u8>,
    /// A bit for each argument whose memory an override snapshots, so that the roles must not.
    pub(crate) owned: u16,
    pub(crate) family: Family,
    /// What digests of device memory and outputs of exchanges do. If that is something, `pre_call`
    /// and `leave` are the ones that run overrides.
    pub(crate) steps: Steps,
    /// Before the call, memory is compared that work in flight may have written. Then `pre_call` is the
    /// one that runs overrides.
    pub(crate) looks_at_seen: bool,
    pub(crate) attribute_bytes: AttributeBytes,
    /// The bits of each word that belong to the argument.
    pub(crate) masks: [u64; MOST_PARAMETERS],
    /// Bytes of each argument in the trace.
    pub(crate) widths: [u8; MOST_PARAMETERS],
    pub(crate) locations: [Location; MOST_PARAMETERS],
    /// The position of the event that a node of an executable graph is given, to record or wait for
    /// it.
    pub(crate) exec_event: Option<u8>,
}

const EMPTY: Plan = Plan {
    plain: slot::EnterForm::UNUSED,
    short: ShortForm::UNUSED,
    count: 0,
    enter: EnterForm::Generic,
    pre_call: PreCall::Nothing,
    leave: LeaveForm::Generic,
    order: OrderForm::Nothing,
    value: NO_OUTPUT,
    value_form: ValueForm::new(0, false),
    is_scattered: false,
    operands: 0,
    snapshots_before: false,
    snapshots_after: false,
    awaits_copy: false,
    waits: false,
    changes_no_state: false,
    may_change_errno: false,
    pair: [NO_OUTPUT; 2],
    function: None,
    owned: 0,
    family: Family::Plain,
    steps: Steps::NONE,
    looks_at_seen: false,
    attribute_bytes: AttributeBytes::NONE,
    masks: [0; MOST_PARAMETERS],
    widths: [0; MOST_PARAMETERS],
    locations: [Location::Register(0); MOST_PARAMETERS],
    exec_event: None,
};

struct Plans(UnsafeCell<[Plan; FUNCTIONS.len()]>);

// SAFETY: only `prepare` writes, once, before any thread can see the recording as started.
unsafe impl Sync for Plans {}

static PLANS: Plans = Plans(UnsafeCell::new([EMPTY; FUNCTIONS.len()]));

/// Computes all plans; `hooks` says which hooks a function has by its family, and which by its
/// roles. To be called before `of`.
pub(crate) fn prepare(
    hooks: fn(&Plan) -> [HookBits; 2],
    steps: impl Fn(&Function) -> Steps,
    looks_at_seen: bool,
) {
    // SAFETY: see `Plans`.
    let plans = unsafe { &mut *PLANS.0.get() };
    for (plan, function) in plans.iter_mut().zip(&FUNCTIONS) {
        *plan = make(function, hooks);
        set_steps(plan, steps(function));
        if looks_at_seen {
            look_at_seen(plan);
        }
    }
}

/// The plan of a function.
#[inline]
pub(crate) fn of(function: usize) -> &'static Plan {
    // SAFETY: nothing is written after `prepare`.
    let plans = unsafe { &*PLANS.0.get() };
    plans.get(function).unwrap_or(&EMPTY)
}

/// Computes the plan of one function, without steps.
pub(crate) fn make(function: &Function, hooks: fn(&Plan) -> [HookBits; 2]) -> Plan {
    let mut plan = EMPTY;
    plan.family = function.family;
    plan.changes_no_state = function.changes_no_state();
    add_arguments(&mut plan, function);
    add_roles(&mut plan, function);
    let [family_hooks, role_hooks] = hooks(&plan);
    let hooks = family_hooks.and(role_hooks);
    plan.owned = hooks.owned;
    plan.waits = call_order::is_proved_by(function);
    plan.order = match call_order::is_told_by(function) {
        true => OrderForm::Tells,
        false if function.enqueues_in_stream() || function.works_in_default_stream() => {
            OrderForm::Enqueues
        }
        false => OrderForm::Nothing,
    };
    let is_launch = matches!(
        function.family,
        Family::Launch(LaunchOp::Arguments(_) | LaunchOp::Config(_))
    );
    if is_launch {
        // What a launch points at is read behind the enter record; see `launch`.
        plan.snapshots_before = false;
        plan.may_change_errno = false;
    } else {
        // What the roles ask for keeps it itself.
        plan.may_change_errno |= family_hooks.have(u8::MAX);
    }
    if !plan.is_scattered && !plan.snapshots_before && !hooks.have(PUT_PRE) {
        set_enter_form(&mut plan, function);
    }
    plan.pre_call = match function.family {
        Family::Launch(LaunchOp::Arguments(_)) => PreCall::Launch,
        Family::Launch(LaunchOp::Config(_)) => PreCall::LaunchEx,
        _ if hooks.have(PRE) => PreCall::Override,
        _ if plan.operands != 0 => PreCall::Operands,
        _ => PreCall::Nothing,
    };
    if !hooks.have(POST | PUT_POST | FINISH) {
        set_leave_form(&mut plan, function);
    }
    plan
}

fn set_steps(plan: &mut Plan, steps: Steps) {
    if steps == Steps::NONE {
        return;
    }
    plan.steps = steps;
    plan.leave = LeaveForm::Generic;
    plan.may_change_errno = true;
    if !steps.are_after_the_call() {
        run_override_before(plan);
    }
}

fn look_at_seen(plan: &mut Plan) {
    plan.looks_at_seen = true;
    plan.may_change_errno = true;
    if let Family::Global(_) = plan.family {
        // Its variable may be managed.
        plan.leave = LeaveForm::Generic;
    }
    run_override_before(plan);
}

fn run_override_before(plan: &mut Plan) {
    plan.pre_call = PreCall::Override;
    if plan.enter == EnterForm::Launch {
        // Which writes the parameters without an override.
        plan.enter = EnterForm::Short;
    }
}

fn add_arguments(plan: &mut Plan, function: &Function) {
    let mut locations = Locations::new();
    let places = plan
        .locations
        .iter_mut()
        .zip(&mut plan.widths)
        .zip(&mut plan.masks);
    for (((location, width), mask), parameter) in places.zip(function.params) {
        *location = locations.next(parameter.width);
        *width = parameter.width.bytes() as u8;
        *mask = u64::MAX >> (64 - 8 * u32::from((*width).clamp(1, 8)));
        plan.is_scattered |= !parameter.width.is_integer();
        plan.count += 1;
    }
}

fn add_roles(plan: &mut Plan, function: &Function) {
    for (position, parameter) in (0..).zip(function.params) {
        let role = parameter.role;
        plan.snapshots_before |= is_read(role);
        plan.snapshots_after |= is_written(role);
        plan.awaits_copy |= function.stream.is_some() && awaited_roles::is_awaited(role);
        plan.may_change_errno |= needs_care(role);
        let is_operand = matches!(
            role,
            Role::DeviceRead(_) | Role::DeviceWrite(_) | Role::HostWrite(_)
        );
        plan.operands |= u16::from(is_operand) << position;
        if let Role::Use(Kind::Function | Kind::Kernel) = role {
            plan.function = plan.function.or(Some(position));
        }
    }
    plan.exec_event = exec_event(function);
}

/// The position of the event that a node of an executable graph is given.
fn exec_event(function: &Function) -> Option<u8> {
    let uses = |kind| {
        let mut parameters = function.params.iter();
        parameters.position(|parameter| parameter.role == Role::Use(kind))
    };
    let event = uses(Kind::Event).filter(|_| uses(Kind::GraphExec) == Some(0));
    event.and_then(|at| u8::try_from(at).ok())
}

fn set_enter_form(plan: &mut Plan, function: &Function) {
    let widths = plan.widths.get(..plan.count.into()).unwrap_or_default();
    if let Some(form) = slot::EnterForm::new(function.id, widths) {
        plan.plain = form;
        plan.enter = EnterForm::Plain;
    } else if let Some(form) = ShortForm::new(widths.len()) {
        plan.short = form;
        plan.enter = match function.family {
            Family::Launch(LaunchOp::Arguments(LAUNCH)) => EnterForm::Launch,
            _ => EnterForm::Short,
        };
    }
}

/// Leaves the form generic if an output is not a number of 4 or 8 bytes, or there are more than
/// two.
fn set_leave_form(plan: &mut Plan, function: &Function) {
    let outputs = (0..)
        .zip(function.params)
        .filter(|(_, parameter)| is_written(parameter.role));
    let outputs: Vec<_> = outputs.collect();
    if let [(position, parameter)] = *outputs
        && let Role::Out(length) = parameter.role
        && let Some(attribute_bytes) = AttributeBytes::new(length)
    {
        plan.value = Output { position, bytes: 0 };
        plan.attribute_bytes = attribute_bytes;
        plan.leave = LeaveForm::ValueByAttribute;
        return;
    }
    let number = |&(position, parameter): &(u8, &cutape_registry::Param)| {
        let bytes = match parameter.role {
            Role::Make(..) | Role::Find(..) | Role::Get(_) => parameter.handle_bytes(),
            Role::Out(Length::Fixed(bytes)) => bytes as usize,
            _ => return None,
        };
        matches!(bytes, 4 | 8).then_some(Output {
            position,
            bytes: bytes as u8,
        })
    };
    match *outputs.iter().map(number).collect::<Vec<_>>() {
        [] => plan.leave = LeaveForm::Result,
        [Some(value)] => {
            plan.value = value;
            plan.value_form = ValueForm::new(value.position, value.bytes == 4);
            plan.leave = LeaveForm::Value;
        }
        [Some(first), Some(second)] => {
            plan.pair = [first, second];
            plan.leave = LeaveForm::Pair;
        }
        _ => {}
    }
}

/// Whether the memory behind a parameter of that role is recorded before the call.
fn is_read(role: Role) -> bool {
    matches!(
        role,
        Role::String | Role::In(_) | Role::InOut(_) | Role::UseMany(..) | Role::HostRead(_)
    )
}

/// Whether the memory behind a parameter of that role is recorded after the call.
fn is_written(role: Role) -> bool {
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

/// Whether recording the memory takes more than loading a few bytes that the driver has just
/// written.
fn needs_care(role: Role) -> bool {
    match role {
        Role::Make(..) | Role::Find(..) | Role::Get(_) | Role::Out(Length::Fixed(_)) => false,
        _ => is_read(role) || is_written(role),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overrides::hooks;

    #[test]
    fn arguments_fit_the_frame() {
        for function in &FUNCTIONS {
            assert!(
                function.params.len() <= MOST_PARAMETERS,
                "{}",
                function.name
            );
            let plan = make(function, hooks::bits);
            for location in plan.locations.iter().take(plan.count.into()) {
                // Entries pass on sixteen words of the stack.
                assert!(
                    !matches!(location, Location::Stack(at) if *at >= 16),
                    "{}",
                    function.name
                );
            }
        }
    }

    #[test]
    fn locations_follow_the_calling_convention() {
        for (name, at, expected) in [
            ("cuInit", 0, Location::Register(0)),
            ("cuLaunchKernel", 5, Location::Register(5)),
            ("cuLaunchKernel", 6, Location::Stack(0)),
            ("cuLaunchKernel", 10, Location::Stack(4)),
            ("cuParamSetf", 2, Location::Vector(0)),
            // A struct of 64 bytes by value, then flags that still fit a register.
            ("cuIpcOpenMemHandle", 1, Location::Stack(0)),
            ("cuIpcOpenMemHandle", 2, Location::Register(1)),
        ] {
            let function = cutape_registry::function(name).expect(name);
            let found = make(function, hooks::bits).locations[at];
            assert_eq!(found, expected, "{name}, parameter {at}");
        }
    }

    #[test]
    fn calls_that_are_followed_before_the_driver_have_an_override() {
        for name in [
            "cuDevicePrimaryCtxReset_v2",
            "cuGraphExecEventRecordNodeSetEvent",
            "cuLaunchGridAsync",
            "cuMemcpy2D_v2",
            "cuMemcpy3DPeerAsync",
            "cuMemcpyBatchAsync",
            "cuStreamBatchMemOp",
        ] {
            let plan = make(cutape_registry::function(name).expect(name), hooks::bits);
            assert_eq!(plan.pre_call, PreCall::Override, "{name}");
        }
    }

    #[test]
    fn frequent_functions_take_the_fast_path() {
        use {EnterForm as E, LeaveForm as L, PreCall as P};
        for (name, expected) in [
            ("cuCtxGetCurrent", (E::Plain, P::Nothing, L::Value)),
            ("cuCtxSetCurrent", (E::Plain, P::Nothing, L::Result)),
            (
                "cuDevicePrimaryCtxGetState",
                (E::Plain, P::Nothing, L::Pair),
            ),
            (
                "cuPointerGetAttribute",
                (E::Plain, P::Operands, L::ValueByAttribute),
            ),
            ("cuEventRecord", (E::Plain, P::Nothing, L::Result)),
            ("cuStreamSynchronize", (E::Plain, P::Nothing, L::Result)),
            ("cuMemsetD8Async", (E::Plain, P::Operands, L::Result)),
            ("cuLaunchKernel", (E::Launch, P::Launch, L::Result)),
            (
                "cuLaunchCooperativeKernel",
                (E::Short, P::Launch, L::Result),
            ),
            ("cuLaunchKernelEx", (E::Plain, P::LaunchEx, L::Result)),
            ("cuModuleLoadData", (E::Generic, P::Override, L::Generic)),
            ("cuMemcpyHtoD_v2", (E::Generic, P::Operands, L::Result)),
        ] {
            let plan = make(cutape_registry::function(name).expect(name), hooks::bits);
            assert_eq!((plan.enter, plan.pre_call, plan.leave), expected, "{name}");
        }
    }
}
