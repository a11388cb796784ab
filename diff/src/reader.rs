//! Takes calls apart, in the order of the trace: what is compared of them, without addresses and
//! handles, which differ from run to run.

use std::borrow::Cow;

use cutape_format::layout::field;
use cutape_format::{Call, CallPositions, Note, Snapshot, Trace};
use cutape_model::{Lookup, Retention, State, Work};
use cutape_registry::{
    AttributeType, Family, Field, Function, GraphOp, ImageSource, Kind, Length, LinkOp, Meaning,
    Param, PointerOp, Role, attributes, is_default_stream,
};
use rustc_hash::FxHashMap;

use crate::contents::{Contents, may_be_address};
use crate::objects::Numbers;
use crate::part::{Facet, KERNEL_PARAMETERS, Label, Part, Payload, Place, Sink, WORD};
use crate::plan::{Behind, ParamPlan, Plan, Query};

/// Where Linux puts the memory of a program: its heap, its stacks and what it maps (assumed of
/// x86-64 with 47 bits of address). A word in this range that no object contains is an address of
/// the host, or looks like one.
const HOST_ADDRESSES: std::ops::Range<u64> = 0x5000_0000_0000..0x8000_0000_0000;

fn position_of(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}

/// Takes the calls of a trace apart.
pub(crate) struct Reader<'t> {
    state: State<()>,
    pub(crate) numbers: Numbers,
    /// By signature number.
    plans: Vec<Option<Plan>>,
    /// Of kernels by handle: offset and size of each parameter.
    layouts: FxHashMap<u64, Box<[(u32, u32)]>>,
    contents: Contents<'t>,
    /// Digests that will come: of which call.
    digests: FxHashMap<u64, Place>,
    positions: CallPositions,
}

/// What `Reader::observe` found.
pub(crate) struct Observed<'r> {
    pub(crate) plan: &'r Plan,
    /// Its place among the calls of its thread.
    pub(crate) position: u32,
    /// It is left out.
    pub(crate) is_noise: bool,
}

impl<'t> Reader<'t> {
    pub(crate) fn new(trace: &'t Trace, lengths_only: bool) -> Self {
        Self {
            state: State::new(Retention::PerHandle),
            numbers: Numbers::default(),
            plans: Vec::new(),
            layouts: FxHashMap::default(),
            contents: Contents::new(trace, lengths_only),
            digests: FxHashMap::default(),
            positions: CallPositions::default(),
        }
    }

    /// Where the next call is.
    pub(crate) fn place_of(&self, call: &Call<'_>) -> Place {
        (
            call.thread,
            position_of(self.positions.before(call.thread, call.number)),
        )
    }

    /// Takes apart what a call was given, without applying it.
    pub(crate) fn observe_inputs(&mut self, call: &Call<'_>, sink: &mut dyn Sink) {
        let (place, plan) = self.take_plan(call);
        self.inputs(&plan, call, sink);
        if let Some(slot) = self.plans.get_mut(place) {
            *slot = Some(plan);
        }
    }

    /// Makes the objects known whose creating calls have returned by then.
    pub(crate) fn settle(&mut self, ticks: u64, thread: u32, call: u64) {
        self.state.settle(ticks, thread);
        self.update(call);
    }

    /// The object that an address lies in, by number, and the offset in it.
    pub(crate) fn place(&self, address: u64) -> Option<(u32, u64)> {
        match self.part_at(address)? {
            Part::Place { object, offset, .. } => Some((object, offset)),
            _ => None,
        }
    }

    /// The function or kernel that a call launches.
    pub(crate) fn launched(&self, call: &Call<'_>) -> Option<u32> {
        let Family::Launch(op) = cutape_registry::function(&call.signature.name)?.family else {
            return None;
        };
        let handle = call.argument(op.function()?.into());
        let found = self.state.objects.resolve(Kind::Function, handle);
        let found = found
            .known()
            .or_else(|| self.state.objects.resolve(Kind::Kernel, handle).known());
        self.numbers.of(found?)
    }

    /// The plan of a call's function, out of the table while the call is looked at, which needs the
    /// rest of `self`; and where it was.
    fn take_plan(&mut self, call: &Call<'_>) -> (usize, Plan) {
        let place = usize::from(call.signature.id);
        if self.plans.len() <= place {
            self.plans.resize_with(place + 1, || None);
        }
        let plan = self.plans.get_mut(place).and_then(Option::take);
        (place, plan.unwrap_or_else(|| Plan::of(call.signature)))
    }

    /// Takes a call apart and applies it; expects every call, in order.
    pub(crate) fn observe(&mut self, call: &Call<'_>, sink: &mut dyn Sink) -> Observed<'_> {
        let position = position_of(self.positions.add(call.thread, call.number));
        let (place, plan) = self.take_plan(call);
        let is_noise = plan.is_noise(call.result());
        self.state.settle(call.ticks, call.thread);
        self.update(call.index);
        if !is_noise {
            self.inputs(&plan, call, sink);
        }
        if call.succeeded()
            && let Some(known) = &plan.known
        {
            self.state.apply(&known.effects, call, &mut |_| None);
            self.update(call.index);
            if let Family::Graph(GraphOp::AddNode(_) | GraphOp::SetNode(_)) = known.function.family
            {
                self.add_parts_of_node(known.function, call);
            }
        }
        if !is_noise {
            let result = call.result();
            let number = result.map_or(u64::MAX, |result| u64::from(result as u32));
            let is_code = plan
                .known
                .as_ref()
                .is_none_or(|known| known.function.returns_result);
            let c_type = match (result, is_code) {
                (None, _) => "in flight",
                (_, true) => "CUresult",
                (_, false) => "int",
            };
            sink.part(
                Facet::Result,
                Label::of("result"),
                Part::Number(number, c_type),
            );
            if call.succeeded() {
                self.outputs(&plan, call, sink);
            }
        }
        if call.has_notes() {
            self.notes(call, position, sink);
        }
        let plan = self.plans.get_mut(place).map(|slot| slot.insert(plan));
        Observed {
            #[expect(clippy::unwrap_used, reason = "the table was made long enough above")]
            plan: plan.unwrap(),
            position,
            is_noise,
        }
    }

    /// Memory and graphs that belong to a node.
    fn add_parts_of_node(&mut self, function: &Function, call: &Call<'_>) {
        let makes_node = |param: &Param| matches!(param.role, Role::Make(Kind::GraphNode, _));
        let made = function.params.iter().position(makes_node);
        let node = made.and_then(|position| call.out(position));
        let node = node.and_then(|handle| self.state.graphs.node(handle));
        if let Some((_, node)) = node
            && let Work::Allocation { address, size } = node.work
        {
            self.numbers.add_node_memory(address, size, call);
        }
        for snapshot in call.leave.iter().flat_map(|leave| leave.snapshots()) {
            if let (field::ELEMENTS, Some(handles)) = (snapshot.field, snapshot.bytes.inline()) {
                self.numbers.add_bodies(handles, call);
            }
        }
    }

    fn update(&mut self, call: u64) {
        if let Some(changes) = self.state.take_changes() {
            self.numbers.update(&self.state, changes, call);
        }
    }

    /// What the call was given.
    fn inputs(&mut self, plan: &Plan, call: &Call<'_>, sink: &mut dyn Sink) {
        if plan.known.is_none() {
            // Of an unknown function only numbers are safe to compare: the rest may be addresses.
            for (position, parameter) in call.signature.parameters.iter().enumerate() {
                if parameter.value_type.bytes() <= 4 {
                    let label = Label {
                        element: Some(position as u32),
                        ..Label::of("argument")
                    };
                    let number = Part::Number(call.argument(position), "");
                    sink.part(Facet::Argument, label, number);
                }
            }
            return;
        }
        for (position, param) in plan.params.iter().enumerate() {
            self.argument(param, call.argument(position), sink);
        }
        for snapshot in call.snapshots() {
            let Some(param) = plan.params.get(usize::from(snapshot.parameter)) else {
                continue;
            };
            self.given(plan, param, call, &snapshot, sink);
        }
    }

    /// An argument by value.
    fn argument(&mut self, param: &ParamPlan, value: u64, sink: &mut dyn Sink) {
        let label = Label::of(param.name);
        let (facet, part) = match param.role {
            Some(Role::Value) if param.width == 0 => return,
            Some(Role::Value) => (param.facet, Part::Number(value, param.c_type)),
            Some(Role::Use(kind) | Role::Destroy(kind)) => self.handle(kind, value),
            Some(Role::DeviceRead(_) | Role::DeviceWrite(_) | Role::HostAddress) => {
                (Facet::Argument, self.address(value))
            }
            // Of a pointer to host memory only whether there is one.
            _ if value == 0 => (Facet::Argument, Part::Null),
            _ => (Facet::Argument, Part::Unknown),
        };
        sink.part(facet, label, part);
    }

    /// Bytes behind a pointer, as they were before the call.
    fn given(
        &mut self,
        plan: &Plan,
        param: &ParamPlan,
        call: &Call<'_>,
        snapshot: &Snapshot<'_>,
        sink: &mut dyn Sink,
    ) {
        let label = Label::of(param.name);
        let position = usize::from(snapshot.parameter);
        let inline = snapshot.bytes.inline();
        match snapshot.field {
            field::POINTEE => match param.role {
                Some(Role::String) => {
                    if self.is_file_name(plan, position) {
                        return;
                    }
                    let text = Cow::Borrowed(until_nul(inline.unwrap_or_default()));
                    sink.part(Facet::Argument, label, Part::Text(text));
                }
                Some(Role::UseMany(kind, _)) => self.handles(kind, label, inline, sink),
                Some(Role::In(length) | Role::InOut(length)) => {
                    if self.is_image(plan, position) {
                        return self.code(label, snapshot, sink);
                    }
                    self.value(plan, param, length, call, inline, param.facet, sink);
                }
                Some(Role::HostRead(_)) => self.payload(Facet::Data, label, snapshot, sink),
                Some(Role::Image) => {
                    // A wrapper is an address; what it leads to has a snapshot of its own.
                    let is_wrapper = inline.is_some_and(|bytes| {
                        cutape_image::kind(bytes) == cutape_image::ImageKind::FatbinWrapper
                    });
                    if !is_wrapper {
                        self.code(label, snapshot, sink);
                    }
                }
                _ => {}
            },
            field::FATBIN | field::FILE => self.code(label, snapshot, sink),
            field::KERNEL_PARAMETERS => {
                self.words(Label::of(KERNEL_PARAMETERS), inline, Facet::Argument, sink);
            }
            field::ATTRIBUTES => {
                let behind = Behind::of("CUlaunchAttribute *");
                self.behind(&behind, Label::of("attributes"), inline, Facet::Shape, sink);
            }
            field::HOST_BYTES => self.payload(Facet::Data, label, snapshot, sink),
            field::OPTIONS | field::LIBRARY_OPTIONS => {
                let numbers = Behind::Numbers(4, "CUjit_option");
                let numbers = match snapshot.field {
                    field::OPTIONS => numbers,
                    _ => Behind::Numbers(4, "CUlibraryOption"),
                };
                self.behind(&numbers, label, inline, Facet::Argument, sink);
            }
            field::SYMBOL_NAMES => {
                let bytes = inline.unwrap_or_default();
                sink.part(Facet::Argument, label, Part::Text(Cow::Borrowed(bytes)));
            }
            field::ELEMENTS => self.words(label, inline, Facet::Argument, sink),
            // Values of options are addresses of buffers, and numbers that the call writes there.
            _ => {}
        }
    }

    /// What the call wrote.
    fn outputs(&mut self, plan: &Plan, call: &Call<'_>, sink: &mut dyn Sink) {
        let Some(leave) = &call.leave else { return };
        for snapshot in leave.snapshots() {
            let position = usize::from(snapshot.parameter);
            let Some(param) = plan.params.get(position).filter(|param| !param.may_differ) else {
                continue;
            };
            let label = Label::of(param.name);
            let inline = snapshot.bytes.inline();
            match (snapshot.field, param.role) {
                (field::POINTEE, Some(Role::Get(kind))) => {
                    let handle = call.out(position).unwrap_or(0);
                    let (_, part) = self.handle(kind, handle);
                    sink.part(Facet::Output, label, part);
                }
                (field::POINTEE, Some(Role::Out(length) | Role::InOut(length))) => {
                    self.value(plan, param, length, call, inline, Facet::Output, sink);
                }
                (field::POINTEE, Some(Role::Text(_))) | (field::TEXT, _) => {
                    let text = Cow::Borrowed(until_nul(inline.unwrap_or_default()));
                    sink.part(Facet::Output, label, Part::Text(text));
                }
                (field::HOST_BYTES, _) if plan.query == Query::Pointer => {
                    self.answers(plan, call, label, inline, sink);
                }
                (field::POINTEE, Some(Role::HostWrite(_))) | (field::HOST_BYTES, _) => {
                    self.payload(Facet::Output, label, &snapshot, sink);
                }
                (field::ELEMENTS, _) => self.words(label, inline, Facet::Output, sink),
                // Logs of the compiler, which have times; handles of new objects.
                _ => {}
            }
        }
    }

    /// The answers to several questions about a pointer, one after the other.
    fn answers(
        &mut self,
        plan: &Plan,
        call: &Call<'_>,
        label: Label,
        bytes: Option<&[u8]>,
        sink: &mut dyn Sink,
    ) {
        let mut rest = bytes.unwrap_or_default();
        let questions = match plan.known.as_ref().map(|known| known.function.family) {
            Some(Family::Pointer(PointerOp::Attributes { attributes, .. })) => {
                call.snapshot(usize::from(attributes), field::POINTEE)
            }
            _ => return sink.part(Facet::Output, label, Part::Bytes(rest)),
        };
        let questions = questions.and_then(|snapshot| snapshot.bytes.inline());
        let questions = questions.unwrap_or_default().as_chunks::<4>().0;
        for (element, question) in (0..).zip(questions) {
            let question = u64::from(u32::from_le_bytes(*question));
            let known = AttributeType::of(attributes::CUpointer_attribute, question);
            let Some(known) = known else { return };
            let Some((answer, behind)) = rest.split_at_checked(known.bytes as usize) else {
                return;
            };
            rest = behind;
            let label = Label {
                element: Some(element),
                ..label
            };
            self.member(known.meaning, "", label, answer, Facet::Output, sink);
        }
    }

    fn notes(&mut self, call: &Call<'_>, position: u32, sink: &mut dyn Sink) {
        let mut restored = 0;
        for note in call.notes() {
            match note {
                Note::Layout(handle, pairs) => _ = self.layouts.insert(handle, pairs.into()),
                Note::Readback(note, snapshot) => {
                    let (payload, _) = self.with_places(&snapshot, sink.wants_bytes());
                    let label = Label::of("bytes that were copied to the host");
                    if let Some(position) = self.positions.of(note.thread, note.number) {
                        let place = (note.thread, position_of(position));
                        sink.late(place, label, Part::Payload(payload));
                    }
                }
                Note::Memory(note, name, snapshot) => {
                    let label = Label {
                        element: Some(restored),
                        ..Label::of("memory contents before the call")
                    };
                    restored = restored.saturating_add(1);
                    let place = match note.owner {
                        0 => self.address(note.address),
                        _ => Part::Text(Cow::Owned(name.into_bytes())),
                    };
                    sink.part(Facet::Argument, label, place);
                    let part = match snapshot {
                        Some(snapshot) => {
                            Part::Payload(self.contents.payload(&snapshot, sink.wants_bytes()))
                        }
                        None => Part::Number(note.fill, WORD),
                    };
                    sink.part(Facet::Data, label, part);
                }
                Note::Digest(note, ranges) => {
                    for number in (note.first..).take(ranges.len()) {
                        self.digests.insert(number, (call.thread, position));
                    }
                }
                Note::DigestValues(values) => {
                    for (number, value) in values {
                        if let Some(call) = self.digests.remove(&number) {
                            let label = Label::of("digest of device memory");
                            sink.late(call, label, Part::Number(value, "digest"));
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// A handle by value: kernels count by name.
    fn handle(&mut self, kind: Kind, handle: u64) -> (Facet, Part<'static>) {
        let found = match kind {
            Kind::Device => return (Facet::Argument, Part::Number(handle, "int")),
            _ if handle == 0 => return (Facet::Argument, Part::Null),
            Kind::Stream if is_default_stream(handle) => {
                return (Facet::Argument, Part::Number(handle, "CUstream"));
            }
            _ if kind.is_address() => return (Facet::Argument, self.address(handle)),
            _ => self.state.objects.resolve(kind, handle),
        };
        if kind == Kind::Graph
            && !matches!(found, Lookup::Live(_))
            && let Some(object) = self.numbers.body(handle)
        {
            let part = Part::Place {
                object,
                offset: 0,
                is_alive: true,
            };
            return (Facet::Argument, part);
        }
        let id = found.known();
        if matches!(kind, Kind::Function | Kind::Kernel) {
            let object = id.and_then(|id| self.state.objects.get(id));
            if let Some(name) = object.and_then(|object| object.name.as_deref()) {
                let name = Cow::Owned(name.as_bytes().to_vec());
                return (Facet::Kernel, Part::Text(name));
            }
        }
        let number = id.and_then(|id| self.numbers.of(id));
        let part = Part::Place {
            object: number.unwrap_or_else(|| self.numbers.unseen(kind, handle)),
            offset: 0,
            is_alive: !matches!(found, Lookup::Ended(_)),
        };
        (Facet::Argument, part)
    }

    /// An address of the device, or of host memory that the driver knows.
    fn address(&self, address: u64) -> Part<'static> {
        match address {
            0 => Part::Null,
            _ => self.part_at(address).unwrap_or(Part::Unknown),
        }
    }

    fn part_at(&self, address: u64) -> Option<Part<'static>> {
        let of = |id, is_alive| {
            let start = self.state.objects.get(id)?.handle;
            Some(Part::Place {
                object: self.numbers.of(id)?,
                offset: address.wrapping_sub(start),
                is_alive,
            })
        };
        let of_node = self.numbers.in_node_memory(address);
        if let (None, Some(id)) = (of_node, self.state.place_at(address)) {
            return of(id, true);
        }
        if let Some((object, offset)) = of_node.or_else(|| self.numbers.reserved(address)) {
            return Some(Part::Place {
                object,
                offset,
                is_alive: true,
            });
        }
        of(self.state.freed_at(address)?, false)
    }

    /// A word that may be an address, or any number.
    fn word(&self, word: u64) -> Part<'static> {
        match self.part_at(word) {
            Some(place) if word != 0 => place,
            _ if HOST_ADDRESSES.contains(&word) => Part::Unknown,
            _ => Part::Number(word, WORD),
        }
    }

    fn handles(&mut self, kind: Kind, label: Label, bytes: Option<&[u8]>, sink: &mut dyn Sink) {
        let words = bytes.unwrap_or_default().as_chunks::<8>().0;
        for (element, word) in (0..).zip(words) {
            let (facet, part) = self.handle(kind, u64::from_le_bytes(*word));
            let label = Label {
                element: Some(element),
                ..label
            };
            sink.part(facet, label, part);
        }
    }

    fn words(&self, label: Label, bytes: Option<&[u8]>, facet: Facet, sink: &mut dyn Sink) {
        self.bytes_with_addresses(label, bytes.unwrap_or_default(), facet, sink);
    }

    /// Bytes that may contain addresses, at multiples of 8.
    fn bytes_with_addresses(&self, label: Label, bytes: &[u8], facet: Facet, sink: &mut dyn Sink) {
        let (words, rest) = bytes.as_chunks::<8>();
        for (place, word) in (0..).zip(words) {
            let label = Label {
                byte: Some(place * 8),
                ..label
            };
            sink.part(facet, label, self.word(u64::from_le_bytes(*word)));
        }
        if rest.is_empty() {
            return;
        }
        let label = Label {
            byte: Some((words.len() * 8) as u32),
            ..label
        };
        match rest.len() {
            1 | 2 | 4 => sink.part(facet, label, Part::Number(number(rest), WORD)),
            _ => sink.part(facet, label, Part::Bytes(rest)),
        }
    }

    /// Behind a pointer to one value or an array, of the parameter's C type or of an attribute's.
    #[expect(
        clippy::too_many_arguments,
        reason = "what a pointer leads to depends on all of it"
    )]
    fn value(
        &mut self,
        plan: &Plan,
        param: &ParamPlan,
        length: Length,
        call: &Call<'_>,
        bytes: Option<&[u8]>,
        facet: Facet,
        sink: &mut dyn Sink,
    ) {
        let label = Label::of(param.name);
        let Some(bytes) = bytes else { return };
        if let Length::ByAttribute(position, _) = length {
            let attribute = call.argument(usize::from(position));
            let meaning = length.attribute_type(attribute).map(|known| known.meaning);
            let meaning = meaning.unwrap_or(Meaning::Unknown);
            return self.member(meaning, "", label, bytes, facet, sink);
        }
        // Only the driver reads and writes what the type does not describe.
        let is_token = plan.known.is_none();
        if !is_token {
            self.behind(&param.behind, label, Some(bytes), facet, sink);
        }
    }

    fn behind(
        &mut self,
        behind: &Behind,
        label: Label,
        bytes: Option<&[u8]>,
        facet: Facet,
        sink: &mut dyn Sink,
    ) {
        let bytes = bytes.unwrap_or_default();
        let element = |place: usize, count: usize| Label {
            element: (count > 1).then_some(place as u32),
            ..label
        };
        match behind {
            Behind::Addresses => {
                let words = bytes.as_chunks::<8>().0;
                for (place, word) in words.iter().enumerate() {
                    let part = self.address(u64::from_le_bytes(*word));
                    sink.part(facet, element(place, words.len()), part);
                }
            }
            Behind::Numbers(0, _) => self.bytes_with_addresses(label, bytes, facet, sink),
            &Behind::Numbers(size, c_type) => {
                let count = bytes.len() / size;
                for (place, one) in bytes.chunks_exact(size).enumerate() {
                    let part = Part::Number(number(one), c_type);
                    sink.part(facet, element(place, count), part);
                }
            }
            Behind::Structs(size, fields) => {
                let count = bytes.len() / size;
                for (place, one) in bytes.chunks_exact(*size).enumerate() {
                    self.members(fields, element(place, count), one, facet, sink);
                }
            }
        }
    }

    fn members(
        &mut self,
        fields: &[&'static Field],
        label: Label,
        bytes: &[u8],
        facet: Facet,
        sink: &mut dyn Sink,
    ) {
        for field in fields {
            if field.when.is_some_and(|when| !when.holds(bytes)) {
                continue;
            }
            let (start, size) = (field.offset as usize, field.size as usize);
            let Some(raw) = bytes.get(start..start.saturating_add(size)) else {
                continue;
            };
            let label = Label {
                member: field.name,
                ..label
            };
            self.member(field.meaning, field.c_type, label, raw, facet, sink);
        }
    }

    fn member(
        &mut self,
        meaning: Meaning,
        c_type: &'static str,
        label: Label,
        bytes: &[u8],
        facet: Facet,
        sink: &mut dyn Sink,
    ) {
        let (facet, part) = match meaning {
            Meaning::Plain if bytes.len() <= 8 => (facet, Part::Number(number(bytes), c_type)),
            // A tensor map has the address of its memory among other things.
            Meaning::Plain => return self.bytes_with_addresses(label, bytes, facet, sink),
            Meaning::Handle(kind) => {
                let (of_handle, part) = self.handle(kind, number(bytes));
                match (facet, of_handle) {
                    (Facet::Output, _) => (facet, part),
                    _ => (of_handle, part),
                }
            }
            Meaning::Address => (facet, self.address(number(bytes))),
            Meaning::Pointer if number(bytes) == 0 => (facet, Part::Null),
            Meaning::Pointer => (facet, Part::Unknown),
            Meaning::MayDiffer | Meaning::Unknown => return,
        };
        sink.part(facet, label, part);
    }

    /// Where the parameters of the kernel that a call launches are: offset, size. `None` until a
    /// call has told, perhaps one of another thread, so that nothing which is compared may depend
    /// on it.
    pub(crate) fn layout(&self, call: &Call<'_>) -> Option<&[(u32, u32)]> {
        let plan = self.plans.get(usize::from(call.signature.id))?.as_ref()?;
        let launched = plan.known.as_ref()?.launched?;
        self.layouts
            .get(&call.argument(launched))
            .map(|layout| &**layout)
    }

    /// Whether a parameter is an image: of a load, or an input of a link.
    fn is_image(&self, plan: &Plan, position: usize) -> bool {
        let family = plan.known.as_ref().map(|known| known.function.family);
        let at = match family {
            Some(Family::ModuleLoad(load) | Family::LibraryLoad(load)) => load.source.position(),
            Some(Family::Link(LinkOp::AddData { data, .. })) => data,
            _ => return false,
        };
        usize::from(at) == position
    }

    /// Whether a string is the name of a file. It may be a temporary one; the content of an image
    /// is compared.
    fn is_file_name(&self, plan: &Plan, position: usize) -> bool {
        let family = plan.known.as_ref().map(|known| known.function.family);
        let at = match family {
            Some(Family::ModuleLoad(load) | Family::LibraryLoad(load)) => match load.source {
                ImageSource::File(at) => at,
                ImageSource::Data(_) | ImageSource::FatBinary(_) => return false,
            },
            Some(Family::Link(LinkOp::AddFile { path, .. }))
            | Some(Family::Graph(GraphOp::DotFile { path })) => path,
            _ => return false,
        };
        usize::from(at) == position
    }

    fn payload(&mut self, facet: Facet, label: Label, from: &Snapshot<'_>, sink: &mut dyn Sink) {
        let (payload, places) = self.with_places(from, sink.wants_bytes());
        sink.part(facet, label, Part::Payload(payload));
        for (byte, place) in places {
            let label = Label {
                byte: Some(byte),
                ..label
            };
            sink.part(facet, label, place);
        }
    }

    /// Bytes that a call copied, with offsets in objects in place of addresses, and the addresses
    /// by their place in the bytes.
    fn with_places(
        &mut self,
        from: &Snapshot<'_>,
        with_bytes: bool,
    ) -> (Payload<'static>, Vec<(u32, Part<'static>)>) {
        let mut bytes = self.contents.with_addresses(from).unwrap_or_default();
        let mut places = Vec::new();
        for (at, word) in (0..).zip(bytes.as_chunks_mut::<8>().0) {
            let address = u64::from_le_bytes(*word);
            if may_be_address(address)
                && let Some(place) = self.part_at(address)
            {
                if let Part::Place { offset, .. } = place {
                    *word = offset.to_le_bytes();
                }
                places.push((at * 8, place));
            }
        }
        let payload = match places.is_empty() {
            true => self.contents.payload(from, with_bytes),
            false => Contents::replaced(&bytes, with_bytes),
        };
        (payload, places)
    }

    fn code(&mut self, label: Label, from: &Snapshot<'_>, sink: &mut dyn Sink) {
        let (code, payload) = self.contents.code(from, sink.wants_bytes());
        sink.part(Facet::Code, label, Part::Code(code, payload));
    }
}

/// At most eight bytes as a little-endian number.
fn number(bytes: &[u8]) -> u64 {
    let bytes = bytes.iter().take(8).rev();
    bytes.fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or(bytes)
}
