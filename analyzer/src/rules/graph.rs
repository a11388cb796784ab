//! Graphs that hold what has ended: freed memory, unloaded modules, refused updates; and the
//! lifetime of the memory that graphs allocate.

use cutape_model::{
    AUTO_FREE_ON_LAUNCH, Graph, KernelWork, MemoryKind, Node, NodeAllocation, ObjectId, Site, Work,
};
use cutape_registry::{Kind, rules};
use rustc_hash::FxHashMap;

use super::memory::{as_maybe_end, ended_at, may_be_end};
use super::{Check, Draft, at, code};
use crate::finding::Severity;
use crate::layouts;
use crate::plan::Step;

/// Pairs of nodes that paths are looked for between, in one graph.
const MOST_PATHS: usize = 1 << 22;

/// The handle of the executable graph that a call gets.
fn exec_handle(check: &Check<'_, '_>) -> u64 {
    check
        .plan
        .handle_of(check.call, Kind::GraphExec)
        .unwrap_or(0)
}

/// A number that changes whenever anything that a graph may hold is created or ends.
fn version(check: &Check<'_, '_>) -> u64 {
    let objects = &check.state.objects;
    let kinds = [
        Kind::Memory,
        Kind::HostMemory,
        Kind::Global,
        Kind::Function,
        Kind::Kernel,
        Kind::Module,
        Kind::Library,
        Kind::Context,
    ];
    kinds.into_iter().map(|kind| objects.version(kind)).sum()
}

/// A launch: what its nodes refer to.
pub(super) fn launch(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let handle = exec_handle(check);
    let Some(exec) = check.state.graphs.exec(handle) else {
        return;
    };
    let before = drafts.len();
    if let Some(rejected) = exec.rejected
        && !check.went_wrong()
    {
        let what = format!(
            "launches {}, whose last update, {}, was refused with {}. The nodes still have the \
             parameters from before",
            exec_label(check, handle),
            at(rejected.site),
            super::result_name(rejected.site.result),
        );
        let title = "executable graph launched after an update that was refused";
        let draft = check.draft(rules::GRAPH_UPDATE_INCOMPATIBLE, title, what);
        drafts.push(with_exec(draft, check, handle));
    }
    if let Some(site) = exec
        .active()
        .iter()
        .find_map(|(node, _)| node.is_device_updatable.then_some(node.site))
        && exec.whole
        && !exec.is_uploaded
        && !check.went_wrong()
    {
        let what = format!(
            "launches {} without an upload since it was instantiated or changed, and kernels may \
             update its node from {}",
            exec_label(check, handle),
            at(site),
        );
        let title = "graph with device-updatable nodes launched without an upload";
        let draft = check.draft(rules::GRAPH_DEVICE_UPDATABLE_RESTRICTIONS, title, what);
        drafts.push(with_exec(draft.severity(Severity::Warning), check, handle));
    }
    // Nothing has been created or has ended since it was last looked at.
    let version = version(check);
    if !exec.whole || exec.checked.get() == Some(version) {
        return;
    }
    let mut pointer = None;
    for (node, work) in exec.active() {
        if let Work::Kernel(kernel) = work
            && let Some(id) = dead_function(check, kernel)
        {
            drafts.push(with_exec(unloaded(check, id, node), check, handle));
            return;
        }
        if pointer.is_none() {
            pointer = dead_pointer(check, (node, exec.set_by(node)), work);
        }
    }
    drafts.extend(pointer.map(|draft| with_exec(draft, check, handle)));
    if drafts.len() == before {
        exec.checked.set(Some(version));
    }
}

fn exec_label(check: &Check<'_, '_>, handle: u64) -> String {
    let id = check.state.objects.live(Kind::GraphExec, handle);
    id.map_or_else(|| "an executable graph".to_owned(), |id| check.label(id))
}

fn with_exec(draft: Draft, check: &Check<'_, '_>, handle: u64) -> Draft {
    match check.state.objects.live(Kind::GraphExec, handle) {
        Some(id) => draft.object(id),
        None => draft,
    }
}

/// The function of a node, if its module, library or context has ended.
fn dead_function(check: &Check<'_, '_>, kernel: &KernelWork) -> Option<ObjectId> {
    let objects = &check.state.objects;
    let found = objects.resolve(Kind::Function, kernel.function);
    let id = match found {
        cutape_model::Lookup::Ended(id) => id,
        _ => return None,
    };
    (!objects.may_be_reused(id) && !check.only_released(id)).then_some(id)
}

fn unloaded(check: &Check<'_, '_>, function: ObjectId, node: &Node) -> Draft {
    let objects = &check.state.objects;
    let end = objects.end_of(function);
    let root = objects.root_of_end(function).unwrap_or(function);
    let ended = end.map_or_else(String::new, |end| at(end.site));
    let what = format!(
        "needs the kernel node that {} added. Its function, {}, belongs to {}, which {ended} ended",
        at(node.site),
        check.label(function),
        check.label(root),
    );
    let title = "graph holds a kernel of an unloaded module";
    check
        .draft(rules::GRAPH_BAKED_MODULE_UNLOADED, title, what)
        .object(function)
        .object(root)
        .chain(vec![
            format!("{} loaded", check.label(root)),
            format!("its kernel added to the graph by {}", at(node.site)),
            format!("{} ended by {ended}", check.label(root)),
            format!("the graph used by {}", at(check.site)),
        ])
}

/// A value that a node uses as an address.
struct Pointer {
    address: u64,
    /// It is a device address for certain.
    is_device: bool,
    /// The operand's name, or where it is in the kernel's parameters.
    from: Result<&'static str, layouts::Pointer>,
}

impl Pointer {
    fn what(&self) -> String {
        match self.from {
            Ok(name) => format!("`{name}`"),
            Err(pointer) => format!("{} of its kernel", pointer.what()),
        }
    }

    /// A kernel's parameter of that size may be something else.
    fn is_certain(&self) -> bool {
        self.from.is_ok()
    }

    fn assumption(&self) -> &'static str {
        match self.is_certain() {
            true => "",
            false => " (assumed to be a pointer that the kernel follows)",
        }
    }
}

/// What a node uses as addresses.
fn pointers(check: &Check<'_, '_>, work: &Work) -> Vec<Pointer> {
    match work {
        Work::Memory(operands) => {
            let operands = operands.iter().map(|operand| Pointer {
                address: operand.address,
                is_device: operand.is_device,
                from: Ok(operand.name),
            });
            operands.collect()
        }
        Work::Kernel(kernel) => {
            let layout = check.state.layout(kernel.function).unwrap_or_default();
            let pointers = layouts::pointers(layout, &kernel.parameters);
            let pointers = pointers.map(|pointer| Pointer {
                address: pointer.address,
                is_device: false,
                from: Err(pointer),
            });
            pointers.collect()
        }
        _ => Vec::new(),
    }
}

/// The first address of a node that lies in freed memory.
fn dead_pointer(check: &Check<'_, '_>, (node, set): (&Node, Site), work: &Work) -> Option<Draft> {
    let all = pointers(check, work);
    let found = all.iter().filter_map(|pointer| {
        if check.state.graphs.memory_at(pointer.address).is_some() {
            return None;
        }
        let id =
            freed_since(check, set, pointer).or_else(|| freed_host(check, set, pointer.address))?;
        // What a module's end freed is the module's story.
        let is_memory = matches!(check.kind(id), Some(Kind::Memory | Kind::HostMemory));
        is_memory.then_some(())?;
        let draft = freed(check, (node, set), id, pointer);
        Some(match is_maybe_end(check, pointer, &all) {
            true => as_maybe_end(draft),
            false => draft,
        })
    });
    found.min_by_key(|draft| draft.severity == Some(Severity::Advice))
}

/// Whether a node may get an address as the end of its data, which nothing follows.
fn is_maybe_end(check: &Check<'_, '_>, pointer: &Pointer, all: &[Pointer]) -> bool {
    let others = all.iter().map(|other| other.address);
    !pointer.is_certain() && may_be_end(check, pointer.address, others)
}

/// The freed memory that an address lies in. An address of the host counts only if a node got it
/// before the free: it may be of other memory since, which calls do not show.
fn freed_since(check: &Check<'_, '_>, set: Site, pointer: &Pointer) -> Option<ObjectId> {
    let id = ended_at(check, pointer.address)?;
    let end = check.state.objects.end_of(id)?;
    let may_be_host = match pointer.from {
        Ok(_) => !pointer.is_device,
        Err(_) => {
            let function = check.object(id)?.created.function;
            let kind = MemoryKind::allocated_by(Kind::Memory, function);
            kind == Some(MemoryKind::Managed)
        }
    };
    (!may_be_host || end.site.index > set.index).then_some(id)
}

/// The page-locked memory that an address lay in when the node got it, and that was freed since.
fn freed_host(check: &Check<'_, '_>, set: Site, address: u64) -> Option<ObjectId> {
    let id = check.state.freed_host_at(address)?;
    let end = check.state.objects.end_of(id)?;
    let is_known = !check.state.objects.may_be_reused(id) && !check.only_released(id);
    (is_known && end.site.index > set.index).then_some(id)
}

fn freed(
    check: &Check<'_, '_>,
    (node, set): (&Node, Site),
    id: ObjectId,
    pointer: &Pointer,
) -> Draft {
    let end = check.state.objects.end_of(id).map(|end| at(end.site));
    let end = end.unwrap_or_default();
    let what = format!(
        "launches a graph whose node from {} has {:#x} as {}{}. That is in {}, which {end} freed, \
         and no call has allocated memory there since",
        at(node.site),
        pointer.address,
        pointer.what(),
        pointer.assumption(),
        check.label(id),
    );
    let title = "graph launched with the address of freed memory";
    let mut draft = check
        .draft(rules::GRAPH_BAKED_POINTER_FREED, title, what)
        .object(id)
        .chain(vec![
            format!("{} allocated", check.label(id)),
            format!("its address put into a node by {}", at(set)),
            format!("freed by {end}"),
            format!("the graph launched by {}", at(check.site)),
        ]);
    if let Err(parameter) = pointer.from {
        draft = draft.assumed().severity(parameter.severity());
    }
    draft
}

/// An unload while a capture holds kernels of the module.
pub(super) fn unload(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let objects = &check.state.objects;
    let Some(image) = [Kind::Module, Kind::Library]
        .into_iter()
        .find_map(|kind| check.live(kind))
    else {
        return;
    };
    for capture in check.state.captures.iter() {
        let holds = |node: &&Node| match &node.work {
            Work::Kernel(kernel) => {
                let function = objects.resolve(Kind::Function, kernel.function).live();
                function.is_some_and(|id| objects.ancestors(id).any(|parent| parent == image))
            }
            _ => false,
        };
        let Some(node) = capture.graph.nodes.iter().find(holds) else {
            continue;
        };
        let what = format!(
            "unloads {} while the capture that {} began is in progress and holds a kernel of it, \
             from {}",
            check.label(image),
            at(capture.begun),
            at(node.site),
        );
        let title = "module unloaded while a capture holds its kernels";
        drafts.push(
            check
                .draft(rules::GRAPH_BAKED_MODULE_UNLOADED, title, what)
                .object(image),
        );
        return;
    }
}

/// An instantiation: unloaded modules, and memory that is used outside of its lifetime in the
/// graph.
pub(super) fn instantiate(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let handle = check.plan.handle_of(check.call, Kind::Graph).unwrap_or(0);
    let Some(graph) = check.state.graphs.graph(handle) else {
        return;
    };
    let graph_id = check.state.objects.live(Kind::Graph, handle);
    for (_, node) in graph.live() {
        if let Work::Kernel(kernel) = &node.work
            && graph.whole
            && let Some(id) = dead_function(check, kernel)
        {
            drafts.push(unloaded(check, id, node));
            return;
        }
    }
    if !graph.whole {
        return;
    }
    if let Some(draft) = unordered_memory(check, graph) {
        drafts.push(match graph_id {
            Some(id) => draft.object(id),
            None => draft,
        });
    }
}

/// A node that uses memory of the graph without a path from the allocation or to the free.
fn unordered_memory(check: &Check<'_, '_>, graph: &Graph) -> Option<Draft> {
    let allocations = graph.allocations();
    if allocations
        .iter()
        .all(|allocation| allocation.free.is_none())
        || allocations.len().saturating_mul(graph.nodes.len()) > MOST_PATHS
    {
        return None;
    }
    let mut before_free: FxHashMap<usize, Vec<bool>> = FxHashMap::default();
    for (index, node) in graph.live() {
        let all = pointers(check, &node.work);
        for pointer in &all {
            let is_meant = |allocation: &NodeAllocation| allocation.contains(pointer.address);
            let any = allocations
                .iter()
                .find(|known| is_meant(known) && known.free.is_some());
            if any.is_none() || is_maybe_end(check, pointer, &all) {
                continue;
            }
            let before = graph.allocation_before(index, &allocations, is_meant);
            let before = before.and_then(|position| allocations.get(position));
            let Some((allocation, free)) = before
                .or(any)
                .and_then(|known| Some((known.node, known.free?)))
            else {
                continue;
            };
            let users = before_free
                .entry(free)
                .or_insert_with(|| graph.ancestors(free));
            let other = match (users.get(index), before) {
                (Some(true), Some(_)) => continue,
                (Some(true), None) => allocation,
                _ => free,
            };
            return Some(unordered(check, graph, (other, index), pointer));
        }
    }
    None
}

fn unordered(
    check: &Check<'_, '_>,
    graph: &Graph,
    (other, user): (usize, usize),
    pointer: &Pointer,
) -> Draft {
    let site = |index: usize| {
        graph
            .nodes
            .get(index)
            .map_or_else(String::new, |n| at(n.site))
    };
    let is_free = graph
        .nodes
        .get(other)
        .is_some_and(|n| matches!(n.work, Work::Free { .. }));
    let (relation, title) = match is_free {
        true => (
            "has no path to node",
            "graph frees memory without a path from a node that uses it",
        ),
        false => (
            "has no path from node",
            "graph uses memory without a path from its allocation",
        ),
    };
    let verb = if is_free { "frees" } else { "allocates" };
    let message = format!(
        "Node {user}, from {}, uses memory of the graph as {}{}. It {relation} {other}, from {}, \
         which {verb} that memory, so nothing orders the two. {}",
        site(user),
        pointer.what(),
        pointer.assumption(),
        site(other),
        check.answer_or(
            "The driver returned CUDA_SUCCESS: it does not check this; the launch may use memory \
             that is not allocated."
        ),
    );
    let mut draft = Draft::new(rules::GRAPH_ALLOCATION_LIFETIME, title, message);
    if let Err(parameter) = pointer.from {
        draft = draft.assumed().severity(parameter.severity());
    }
    draft
}

/// A launch that failed because memory of the last launch was not freed.
pub(super) fn relaunch(check: &Check<'_, '_>) -> Option<Draft> {
    let handle = exec_handle(check);
    let exec = check.state.graphs.exec(handle)?;
    if check.call.result() != Some(code::INVALID_VALUE)
        || !exec.whole
        || exec.flags & AUTO_FREE_ON_LAUNCH != 0
    {
        return None;
    }
    let live = |address: &u64| {
        let memory = check.state.graphs.memory_at(*address);
        memory
            .filter(|(_, memory)| memory.is_live)
            .and_then(|(_, memory)| memory.launched)
    };
    let unfreed = exec.unfreed();
    let (address, launched) = unfreed
        .iter()
        .find_map(|address| Some((*address, live(address)?)))?;
    let what = format!(
        "launches {} again, and nothing has freed the memory at {address:#x} that {} allocated",
        exec_label(check, handle),
        at(launched),
    );
    let title = "graph launched again before its memory was freed";
    let draft = check.draft(rules::GRAPH_RELAUNCH_UNFREED_ALLOCATION, title, what);
    Some(with_exec(draft, check, handle))
}

/// A call that failed because the memory of a graph is not allocated then.
pub(super) fn allocation(check: &Check<'_, '_>) -> Option<Draft> {
    if check.call.result() != Some(code::INVALID_VALUE) {
        return None;
    }
    let frees = check.plan.destroys;
    check.plan.steps.iter().find_map(|&(position, step)| {
        match step {
            Step::Device(_) | Step::Destroy(Kind::Memory) => {}
            _ => return None,
        }
        let address = check.call.argument(position);
        let (start, memory) = check.state.graphs.memory_at(address)?;
        if memory.is_live {
            return None;
        }
        let state = match (memory.launched, memory.freed) {
            (None, _) => "no launch has allocated it yet".to_owned(),
            (Some(launched), Some(freed)) if launched == freed => {
                format!("{} launched a graph with a free node for it", at(launched))
            }
            (_, Some(freed)) => format!("{} freed it", at(freed)),
            (Some(_), None) => return None,
        };
        let verb = if frees { "frees" } else { "uses" };
        let what = format!(
            "{verb} {address:#x}. That is in the memory at {start:#x} that the graph node from {} \
             allocates, but {state}",
            at(memory.site),
        );
        let title = "memory of a graph used outside of its lifetime";
        let draft = check.draft(rules::GRAPH_ALLOCATION_LIFETIME, title, what);
        Some(draft.subject(start))
    })
}
