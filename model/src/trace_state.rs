//! The driver's state along a trace: which objects exist, and which kernel a handle names.

use cutape_format::layout::field;
use cutape_format::{Call, Signature};
use cutape_registry::{Family, Function, FunctionOp, Kind};

use crate::effects::{Effect, Effects};
use crate::objects::{Lookup, NewObject, Origin, Retention};
use crate::private_functions::tells_of_functions;
use crate::site::Site;
use crate::state::{Changes, State};

/// The function of that signature, unless this version of the registry has other parameters for it:
/// more, fewer, or of other sizes.
pub fn function_of(signature: &Signature) -> Option<&'static Function> {
    let function = cutape_registry::function(&signature.name)?;
    let (ours, recorded) = (function.params, &signature.parameters);
    let mut both = ours.iter().zip(recorded);
    let is_same = ours.len() == recorded.len()
        && both.all(|(ours, recorded)| ours.width.bytes() == recorded.value_type.bytes());
    is_same.then_some(function)
}

/// Which objects to track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Functions, kernels and what owns them.
    Kernels,
    /// All objects that calls create, find and destroy.
    All,
    /// Also what calls do to streams, events, captures and graphs.
    Work,
}

/// The driver's state after the calls observed so far, and the names of its kernels.
///
/// Handles are values of the recorded process, and may be reused: the last object has the handle.
#[derive(Clone, Debug)]
pub struct TraceState {
    /// Objects, contexts, memory.
    pub state: State<()>,
    scope: Scope,
    /// By signature number; `None` before the first call.
    functions: Vec<Option<Tracked>>,
    names_changed: u64,
}

/// What the calls of one function do.
#[derive(Clone, Debug, Default)]
struct Tracked {
    /// `None` if they change nothing in scope.
    effects: Option<Effects>,
    /// They only put work into a stream, which changes nothing unless the stream captures.
    only_submits: bool,
    event: KernelEvent,
}

/// What a call says about a kernel; numbers are parameter positions.
#[derive(Clone, Copy, Debug, Default)]
enum KernelEvent {
    #[default]
    None,
    /// It finds a handle by its name.
    Found { output: u8, name: u8, kind: Kind },
    /// It returns the name of a handle.
    NameQuery { name: u8, handle: u8, kind: Kind },
    /// It launches a handle.
    Launch(u8),
}

impl Tracked {
    fn of(signature: &Signature, scope: Scope) -> Self {
        let Some(function) = function_of(signature) else {
            return Self::default();
        };
        let event = |op, kind| match op {
            FunctionOp::Find { output, name, .. } => KernelEvent::Found { output, name, kind },
            FunctionOp::Name { name, handle } => KernelEvent::NameQuery { name, handle, kind },
            _ => KernelEvent::None,
        };
        let event = match function.family {
            Family::Function(op) => event(op, Kind::Function),
            Family::Kernel(op) => event(op, Kind::Kernel),
            Family::Launch(op) => op.function().map_or(KernelEvent::None, KernelEvent::Launch),
            _ => KernelEvent::None,
        };
        let effects = Effects::of(function);
        let works = scope == Scope::Work && !effects.is_empty();
        let in_scope = works
            || effects.change_contexts()
            || effects.objects.iter().any(|&(_, effect)| match effect {
                Effect::Create(kind, _)
                | Effect::Find(kind, _)
                | Effect::FindMany(kind, _)
                | Effect::Destroy(kind) => scope != Scope::Kernels || owns_kernels(kind),
                Effect::Get(_) => false,
            });
        Self {
            only_submits: effects.only_submits,
            effects: in_scope.then_some(effects),
            event,
        }
    }
}

fn owns_kernels(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Context | Kind::Module | Kind::Library | Kind::Kernel | Kind::Function
    )
}

impl TraceState {
    /// The state before the first call.
    pub fn new(scope: Scope) -> Self {
        Self {
            state: State::new(Retention::PerHandle),
            scope,
            functions: Vec::new(),
            names_changed: 0,
        }
    }

    /// Whether calls of this function change the state; the others need not be observed.
    pub fn depends_on(&mut self, call: &Call<'_>) -> bool {
        let tracked = self.tracked(call);
        tracked.effects.is_some()
            || matches!(tracked.event, KernelEvent::NameQuery { .. })
            || tells_of_functions(call)
    }

    fn tracked(&mut self, call: &Call<'_>) -> &Tracked {
        let place = usize::from(call.signature.id);
        if self.functions.len() <= place {
            self.functions.resize_with(place + 1, || None);
        }
        let scope = self.scope;
        #[expect(clippy::indexing_slicing, reason = "the table is long enough")]
        let tracked = &mut self.functions[place];
        tracked.get_or_insert_with(|| Tracked::of(call.signature, scope))
    }

    /// Applies a call; expects every call, in order. Returns what it changed.
    pub fn observe(&mut self, call: &Call<'_>) -> Option<Changes> {
        if !self.depends_on(call) {
            return None;
        }
        if tells_of_functions(call) {
            self.state.find_noted(call);
        }
        call.leave.as_ref()?;
        let place = usize::from(call.signature.id);
        let tracked = self.functions.get(place)?.as_ref()?;
        if !call.succeeded() {
            if let Some(effects) = tracked
                .effects
                .as_ref()
                .filter(|_| self.scope == Scope::Work)
            {
                self.state.apply_failed(effects, call);
            }
            return None;
        }
        if let Some(effects) = &tracked.effects {
            // Who asks for captures does not ask when work completes, so only captured work counts.
            if self.scope == Scope::Work && !self.state.captures.is_empty() {
                self.state.submit(effects, call);
            }
            if !tracked.only_submits {
                self.state.apply(effects, call, &mut |_| None);
            }
        }
        match tracked.event {
            // The handle may be reused although nothing showed the end of its owner.
            KernelEvent::Found { output, name, kind } => {
                if let Some(handle) = call.out(usize::from(output))
                    && let Some(name) = call.string(usize::from(name))
                {
                    self.set_name(kind, handle, name, call);
                }
            }
            KernelEvent::NameQuery { name, handle, kind } => {
                let leave = call.leave.as_ref();
                let name = leave.and_then(|leave| leave.text(usize::from(name), field::TEXT));
                if let Some(name) = name {
                    self.set_name(kind, call.argument(usize::from(handle)), name, call);
                }
            }
            KernelEvent::None | KernelEvent::Launch(_) => {}
        }
        self.state.take_changes()
    }

    fn set_name(&mut self, kind: Kind, handle: u64, name: String, call: &Call<'_>) {
        if self.kernel_name(handle) == Some(&name) {
            return;
        }
        self.names_changed += 1;
        let objects = &mut self.state.objects;
        let id = match objects.resolve(kind, handle) {
            Lookup::Live(id) | Lookup::Ended(id) => id,
            Lookup::Unknown => {
                let site = Site::of("", call);
                let new = NewObject::of(kind, handle, Origin::FirstSeen, site, call);
                objects.create(new, Default::default()).0
            }
        };
        if let Some(object) = objects.get_mut(id) {
            object.name = Some(name.into());
        }
    }

    /// Changes whenever a handle may name another kernel than before.
    pub fn kernel_version(&self) -> u64 {
        let versions = [Kind::Function, Kind::Kernel].map(|kind| self.state.objects.version(kind));
        versions.iter().sum::<u64>() + self.names_changed
    }

    /// The name of a kernel in its image, if known.
    pub fn kernel_name(&self, handle: u64) -> Option<&str> {
        let objects = &self.state.objects;
        let id = objects.resolve(Kind::Function, handle).known()?;
        objects.get(id)?.name.as_deref()
    }

    /// The name of the kernel that a call launches, if it is a launch and the name is known.
    pub fn launched_kernel(&mut self, call: &Call<'_>) -> Option<&str> {
        let handle = self.launched_handle(call)?;
        self.kernel_name(handle)
    }

    /// The function or kernel that a call launches, if it is a launch.
    pub fn launched_handle(&mut self, call: &Call<'_>) -> Option<u64> {
        match self.tracked(call).event {
            KernelEvent::Launch(position) => Some(call.argument(usize::from(position))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use cutape_format::layout::OriginNote;
    use cutape_format::{NewCall, NewSnapshot, Trace, TraceBuilder};

    use super::*;

    /// `cuModuleGetFunction` that gives `handle` for `name`.
    fn get_function(builder: &mut TraceBuilder, handle: u64, name: &str) {
        let name = [name.as_bytes(), &[0]].concat();
        builder
            .call(NewCall {
                name: "cuModuleGetFunction",
                arguments: &[0x7000, 0x11, 0x400000],
                snapshots: &[NewSnapshot::pointee(2, &name)],
                ..NewCall::default()
            })
            .leave(0, 0, &[NewSnapshot::pointee(0, &handle.to_le_bytes())]);
    }

    fn launch(builder: &mut TraceBuilder, handle: u64) {
        builder
            .call(NewCall {
                name: "cuLaunchKernel",
                arguments: &[handle, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0],
                ..NewCall::default()
            })
            .leave(0, 0, &[]);
    }

    fn open(builder: &TraceBuilder) -> Trace {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("cutape-trace-state-{}-{number}.cutape", std::process::id());
        let path = std::env::temp_dir().join(name);
        builder.write(&path).unwrap();
        let trace = Trace::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        trace
    }

    #[test]
    fn names_follow_handles() {
        let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
        launch(&mut builder, 0x51);
        get_function(&mut builder, 0x51, "first");
        launch(&mut builder, 0x51);
        // A kernel's function has the kernel's name.
        builder
            .call(NewCall {
                name: "cuLibraryGetKernel",
                arguments: &[0x7000, 0x11, 0x400000],
                snapshots: &[NewSnapshot::pointee(2, b"second\0")],
                ..NewCall::default()
            })
            .leave(0, 0, &[NewSnapshot::pointee(0, &0x60_u64.to_le_bytes())])
            .call(NewCall {
                name: "cuKernelGetFunction",
                arguments: &[0x7000, 0x60],
                ..NewCall::default()
            })
            .leave(0, 0, &[NewSnapshot::pointee(0, &0x61_u64.to_le_bytes())]);
        launch(&mut builder, 0x60);
        launch(&mut builder, 0x61);
        // The handle comes again, for another kernel.
        get_function(&mut builder, 0x51, "third");
        launch(&mut builder, 0x51);
        // Only the driver tells the name.
        builder
            .call(NewCall {
                name: "cuFuncGetName",
                arguments: &[0x7000, 0x70],
                ..NewCall::default()
            })
            .leave(
                0,
                0,
                &[
                    NewSnapshot::pointee(0, &0x9000_u64.to_le_bytes()),
                    NewSnapshot::piece(0, field::TEXT, b"fourth\0"),
                ],
            );
        launch(&mut builder, 0x70);
        // Only a note tells of it.
        let origin = OriginNote {
            handle: 0x80,
            owner: 0x11,
            is_kernel: 0,
        };
        builder
            .call(NewCall {
                name: "cuFuncGetAttribute",
                arguments: &[0x7000, 0, 0x80],
                ..NewCall::default()
            })
            .origin_note(0, origin, "fifth")
            .leave(0, 0, &[]);
        launch(&mut builder, 0x80);
        let trace = open(&builder);
        let mut state = TraceState::new(Scope::Kernels);
        let mut names = Vec::new();
        for call in trace.calls() {
            state.observe(&call);
            if call.signature.name == "cuLaunchKernel" {
                names.push(state.launched_kernel(&call).unwrap_or("?").to_owned());
            }
        }
        assert_eq!(
            names,
            ["?", "first", "second", "second", "third", "fourth", "fifth"]
        );
    }

    #[test]
    fn functions_have_the_parameters_of_the_registry() {
        let text = cutape_registry::SIGNATURE_TEXT;
        let line = text.lines().find(|line| line.contains("\tcuMemsetD8_v2\t"));
        let line = line.unwrap();
        let (shorter, _) = line.rsplit_once('\t').unwrap();
        for (changed, is_known) in [
            (line.to_owned(), true),
            (shorter.to_owned(), false),
            (line.replace("unsigned char|u1|", "unsigned int|u4|"), false),
        ] {
            let mut builder = TraceBuilder::new(&text.replace(line, &changed));
            builder.call(NewCall {
                name: "cuMemsetD8_v2",
                arguments: if changed == shorter {
                    &[1, 2]
                } else {
                    &[1, 2, 3]
                },
                ..NewCall::default()
            });
            let trace = open(&builder);
            let known = trace
                .calls()
                .map(|call| function_of(call.signature).is_some());
            assert_eq!(known.collect::<Vec<_>>(), [is_known], "{changed}");
        }
    }
}
