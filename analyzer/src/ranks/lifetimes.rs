//! What processes share, from export to end: memory that is freed while others have it open, events
//! that are used after their end.

use cutape_format::Call;
use cutape_model::{Changes, Evidence, ExchangeSite, Exchanges, ObjectId, Sharing};
use cutape_registry::{Family, Kind, MemoryOp, Role, Shared, SharedKind, SharingOp, rules};
use rustc_hash::{FxHashMap, FxHashSet};

use super::finding::{bytes, finding, sentence};
use super::handle::{Handle, handle_of};
use super::memory::Identity;
use super::ordered_ends::OrderedEnds;
use super::process::Process;
use super::recording::RankTraces;
use crate::context::TraceContext;
use crate::finding::{CallSite, Finding, ObjectHistory, Severity};

/// An object that a process exports.
#[derive(Debug)]
pub(super) struct Export {
    pub(super) process: usize,
    pub(super) kind: SharedKind,
    pub(super) object: ObjectId,
    pub(super) size: Option<u64>,
    /// The pool that exported memory was allocated from.
    pub(super) pool: Option<ObjectId>,
    pub(super) label: String,
    pub(super) site: CallSite,
    /// The object when it was exported.
    pub(super) history: Option<ObjectHistory>,
    pub(super) end: Option<ExportEnd>,
    handle: Handle,
    imports: Vec<usize>,
}

/// The end of an exported object in its own process.
#[derive(Clone, Debug)]
pub(super) struct ExportEnd {
    pub(super) left: u64,
    pub(super) site: CallSite,
    /// The call frees or destroys the object itself, not its context.
    is_own: bool,
    pub(super) history: Option<ObjectHistory>,
}

/// An object that a process has imported.
#[derive(Debug)]
pub(super) struct Import {
    pub(super) process: usize,
    pub(super) export: usize,
    object: ObjectId,
    label: String,
    site: CallSite,
    has_ended: bool,
    /// It was open when the exporter freed the object.
    was_open: bool,
    after: Option<After>,
    is_reported: bool,
}

/// What the importer did after the exporter had freed the object.
#[derive(Debug)]
struct After {
    is_use: bool,
    site: CallSite,
    history: Option<ObjectHistory>,
}

/// All exports that processes import, and their imports.
#[derive(Debug, Default)]
pub(super) struct Lifetimes {
    /// The export of each import; those that are assumed are not here.
    sources: FxHashMap<ExchangeSite, ExchangeSite>,
    /// Those that the driver refused.
    refused: FxHashMap<ExchangeSite, cutape_model::RefusedImport>,
    sizes: FxHashMap<ExchangeSite, u64>,
    wanted: FxHashSet<ExchangeSite>,
    handles: FxHashMap<ExchangeSite, Handle>,
    /// The object that was last exported with a handle, and its process.
    owners: FxHashMap<(SharedKind, Handle), (usize, ObjectId)>,
    /// Handles that several objects had at one time, also of different processes: which of them an
    /// import means is not known.
    ambiguous: FxHashSet<(SharedKind, Handle)>,
    pub(super) exports: Vec<Export>,
    pub(super) imports: Vec<Import>,
    /// The last export of each exporting call.
    by_site: FxHashMap<ExchangeSite, usize>,
    exported: FxHashMap<(usize, ObjectId), Vec<usize>>,
    imported: FxHashMap<(usize, ObjectId), usize>,
    /// The pool of each living memory of a process that exports such memory.
    pools: FxHashMap<(usize, ObjectId), ObjectId>,
    exports_pool_memory: FxHashSet<usize>,
    /// By process: open imports whose original has ended.
    dangling: FxHashMap<usize, usize>,
    /// Exports whose memory ends in the order of a stream, and the calls that free it.
    ordered: OrderedEnds<(Vec<usize>, ExportEnd)>,
}

impl Import {
    /// The call that imported it.
    pub(super) fn site(&self) -> &CallSite {
        &self.site
    }
}

impl Lifetimes {
    pub(super) fn of(sharing: &Sharing, all: &[Exchanges]) -> Self {
        let mut found = Self::default();
        let known = sharing.links.iter();
        for link in known.filter(|link| link.evidence != Evidence::Order) {
            found.sources.insert(link.to, link.from);
            found.wanted.insert(link.from);
            found.sizes.extend(link.size.map(|size| (link.from, size)));
        }
        for refused in &sharing.refused {
            found.refused.insert(refused.to, *refused);
            found.wanted.insert(refused.from);
        }
        for (process, exchanges) in all.iter().enumerate() {
            for export in &exchanges.exports {
                let site = ExchangeSite {
                    process,
                    call: export.call,
                };
                found.handles.insert(site, handle_of(&export.identity));
                if export.kind == SharedKind::PoolMemory {
                    found.exports_pool_memory.insert(process);
                }
            }
        }
        found
    }

    /// What an object is for all processes: of an import, the object that was exported.
    pub(super) fn identity(&self, process: usize, id: ObjectId) -> Identity {
        match self
            .import_of(process, id)
            .and_then(|import| self.exports.get(import.export))
        {
            Some(export) => Identity::Object(export.process, export.object.serial_number()),
            None => Identity::Object(process, id.serial_number()),
        }
    }

    pub(super) fn is_needed(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// Looks at a call before it changes anything: what it uses.
    pub(super) fn pre_call(
        &mut self,
        processes: &[Process],
        (number, context, call): (usize, &dyn TraceContext, &Call<'_>),
        found: &mut Vec<Finding>,
    ) {
        let Some(process) = processes.get(number) else {
            return;
        };
        let Some(uses) = process.uses(call) else {
            return;
        };
        if self.dangling.get(&number).is_some_and(|count| *count > 0) {
            for id in process.used(uses, call) {
                self.used(processes, (number, context, call), id, found);
            }
        }
        if let Family::Sharing(SharingOp::Export(shared)) = uses.function.family
            && call.succeeded()
        {
            self.export(processes, (number, context, call), shared);
        }
    }

    /// Takes note of what a call has changed.
    pub(super) fn post_call(
        &mut self,
        processes: &mut [Process],
        (number, context, call): (usize, &dyn TraceContext, &Call<'_>),
        changes: Option<&Changes>,
    ) {
        let Some(process) = processes.get_mut(number) else {
            return;
        };
        let family = process.uses(call).map(|uses| uses.function.family);
        for id in changes.into_iter().flat_map(|changes| &changes.ended) {
            self.pools.remove(&(number, *id));
            self.export_ended(process, (number, context, call), *id);
            self.import_ended(process, (number, context, call), *id);
        }
        for ((exports, mut end), left) in self.ordered.take_over((number, process, call)) {
            end.left = left;
            for at in exports {
                self.ended(at, end.clone());
            }
        }
        match family {
            Some(Family::Sharing(SharingOp::Import(shared))) if call.succeeded() => {
                self.import(process, (number, context, call), shared);
            }
            Some(Family::Memory(MemoryOp::AllocateAsync))
                if self.exports_pool_memory.contains(&number) && call.succeeded() =>
            {
                self.allocated(process, number, call);
            }
            _ => {}
        }
        // The driver gave these handles out again: the ends of their objects were not seen. Memory
        // that is opened again is known by its new object already.
        for id in changes.into_iter().flat_map(|changes| &changes.superseded) {
            self.exported.remove(&(number, *id));
            if let Some(at) = self.imported.remove(&(number, *id)) {
                self.forget(at);
            }
        }
    }

    fn export(
        &mut self,
        processes: &[Process],
        (number, context, call): (usize, &dyn TraceContext, &Call<'_>),
        shared: Shared,
    ) {
        let Some(process) = processes.get(number) else {
            return;
        };
        let site = ExchangeSite {
            process: number,
            call: call.index,
        };
        let handle = self.handles.get(&site).copied().unwrap_or_default();
        let argument = call.argument(usize::from(shared.object));
        let objects = &process.trace.state.objects;
        let Some(object) = objects.live(kind_of(shared.kind), argument) else {
            return;
        };
        if handle.is_unique() {
            let key = (shared.kind, handle);
            let owner = self.owners.insert(key, (number, object));
            let is_live = |(of, id): (usize, ObjectId)| {
                let objects = processes
                    .get(of)
                    .map(|process| &process.trace.state.objects);
                objects.is_some_and(|all| all.get(id).is_some() && all.end_of(id).is_none())
            };
            if owner.is_some_and(|owner| owner != (number, object) && is_live(owner)) {
                self.ambiguous.insert(key);
            }
        }
        if !self.wanted.contains(&site) {
            return;
        }
        let at = self.exports.len();
        self.exports.push(Export {
            process: number,
            kind: shared.kind,
            object,
            size: self.sizes.get(&site).copied(),
            pool: self.pools.get(&(number, object)).copied(),
            label: process.label_of(object),
            site: process.site(context, call),
            history: process.history(context, object),
            end: None,
            handle,
            imports: Vec::new(),
        });
        self.by_site.insert(site, at);
        self.exported.entry((number, object)).or_default().push(at);
    }

    /// The export of an import that the driver accepted.
    pub(super) fn source(&self, import: ExchangeSite) -> Option<(usize, &Export)> {
        self.export_at(self.sources.get(&import)?)
    }

    /// The export that a refused import means.
    pub(super) fn refused(
        &self,
        import: ExchangeSite,
    ) -> Option<(&cutape_model::RefusedImport, &Export)> {
        let refused = self.refused.get(&import)?;
        Some((refused, self.export_at(&refused.from)?.1))
    }

    fn export_at(&self, site: &ExchangeSite) -> Option<(usize, &Export)> {
        let at = *self.by_site.get(site)?;
        let export = self.exports.get(at)?;
        (!self.is_ambiguous(export)).then_some((at, export))
    }

    fn is_ambiguous(&self, export: &Export) -> bool {
        self.ambiguous.contains(&(export.kind, export.handle))
    }

    /// The import that made a living object.
    pub(super) fn import_of(&self, process: usize, object: ObjectId) -> Option<&Import> {
        self.imports.get(*self.imported.get(&(process, object))?)
    }

    fn import(
        &mut self,
        process: &mut Process,
        (number, context, call): (usize, &dyn TraceContext, &Call<'_>),
        shared: Shared,
    ) {
        let site = ExchangeSite {
            process: number,
            call: call.index,
        };
        let Some(handle) = call.out(usize::from(shared.object)) else {
            return;
        };
        let state = &mut process.trace.state;
        let Some(object) = state.objects.live(kind_of(shared.kind), handle) else {
            return;
        };
        let Some((export, source)) = self.source(site) else {
            return;
        };
        // What ended before is another rule's.
        if source.end.is_some() {
            return;
        }
        if let Some(size) = source.size.filter(|_| kind_of(shared.kind) == Kind::Memory) {
            state.set_size(object, size);
        }
        // Memory that is open already has the same address and counts its openings.
        let known = self.imports.iter_mut().rposition(|import| {
            let is_open = import.process == number && import.export == export && !import.has_ended;
            let objects = &state.objects;
            let same = || objects.get(import.object).map(|object| object.handle);
            is_open && same() == Some(handle)
        });
        if let Some(at) = known {
            if let Some(import) = self.imports.get_mut(at) {
                self.imported.remove(&(number, import.object));
                import.object = object;
            }
            self.imported.insert((number, object), at);
            return;
        }
        let at = self.imports.len();
        self.imports.push(Import {
            process: number,
            export,
            object,
            label: process.label_of(object),
            site: process.site(context, call),
            has_ended: false,
            was_open: false,
            after: None,
            is_reported: false,
        });
        self.imported.insert((number, object), at);
        if let Some(export) = self.exports.get_mut(export) {
            export.imports.push(at);
        }
    }

    fn allocated(&mut self, process: &Process, number: usize, call: &Call<'_>) {
        let objects = &process.trace.state.objects;
        let Some(uses) = process.uses(call) else {
            return;
        };
        let mut params = uses.function.params.iter();
        let pool = params.position(|param| param.role == Role::Use(Kind::MemoryPool));
        let pool = pool.and_then(|at| objects.live(Kind::MemoryPool, call.argument(at)));
        let memory = call.out(0).and_then(|at| objects.live(Kind::Memory, at));
        if let (Some(pool), Some(memory)) = (pool, memory) {
            self.pools.insert((number, memory), pool);
        }
    }

    /// An exported object ends in its own process.
    fn export_ended(
        &mut self,
        process: &Process,
        (number, context, call): (usize, &dyn TraceContext, &Call<'_>),
        id: ObjectId,
    ) {
        let Some(exports) = self.exported.remove(&(number, id)) else {
            return;
        };
        let Some(left) = call.leave.map(|leave| leave.ticks) else {
            return;
        };
        let state = &process.trace.state;
        let is_own = state.objects.end_of(id).is_some_and(|end| end.by.is_none());
        let end = ExportEnd {
            left,
            site: process.site(context, call),
            is_own,
            history: process.history(context, id),
        };
        if OrderedEnds::<()>::is_one(process, call) {
            self.ordered.push((number, process, call), (exports, end));
            return;
        }
        for at in exports {
            self.ended(at, end.clone());
        }
    }

    /// An exported object has ended.
    fn ended(&mut self, at: usize, end: ExportEnd) {
        let Some(export) = self.exports.get_mut(at) else {
            return;
        };
        let is_undefined = match export.kind {
            SharedKind::Memory | SharedKind::PoolMemory => end.is_own,
            SharedKind::Event => true,
            // They live as long as an import does.
            SharedKind::Allocation | SharedKind::Pool => false,
        };
        export.end = Some(end);
        if !is_undefined {
            return;
        }
        for import in &export.imports {
            let Some(import) = self.imports.get_mut(*import) else {
                continue;
            };
            if !import.has_ended {
                import.was_open = true;
                *self.dangling.entry(import.process).or_default() += 1;
            }
        }
    }

    /// An import ends.
    fn import_ended(
        &mut self,
        process: &Process,
        (number, context, call): (usize, &dyn TraceContext, &Call<'_>),
        id: ObjectId,
    ) {
        let Some(at) = self.imported.remove(&(number, id)) else {
            return;
        };
        let Some(import) = self.imports.get_mut(at) else {
            return;
        };
        import.has_ended = true;
        let end = self
            .exports
            .get(import.export)
            .and_then(|export| export.end.as_ref());
        // A close that overlaps with the end in time may have come first.
        let is_later = end.is_some_and(|end| end.left < call.ticks);
        if import.was_open && is_later && import.after.is_none() {
            import.after = Some(After {
                is_use: false,
                site: process.site(context, call),
                history: process.history(context, id),
            });
        }
        if import.was_open {
            self.forget_dangling(number);
        }
    }

    fn forget(&mut self, at: usize) {
        let Some(import) = self.imports.get_mut(at) else {
            return;
        };
        import.has_ended = true;
        let process = import.process;
        if import.was_open {
            // What was seen before stays.
            import.was_open = import.after.is_some();
            self.forget_dangling(process);
        }
    }

    fn forget_dangling(&mut self, process: usize) {
        if let Some(count) = self.dangling.get_mut(&process) {
            *count = count.saturating_sub(1);
        }
    }

    /// A call uses an object of which the original may have ended.
    fn used(
        &mut self,
        processes: &[Process],
        (number, context, call): (usize, &dyn TraceContext, &Call<'_>),
        id: ObjectId,
        found: &mut Vec<Finding>,
    ) {
        let Some(process) = processes.get(number) else {
            return;
        };
        let at = self.imported.get(&(number, id));
        let Some(import) = at.and_then(|at| self.imports.get_mut(*at)) else {
            return;
        };
        let Some(export) = self.exports.get(import.export) else {
            return;
        };
        let Some(end) = export.end.as_ref().filter(|end| end.left < call.ticks) else {
            return;
        };
        let key = (export.kind, export.handle);
        if !import.was_open || import.is_reported || self.ambiguous.contains(&key) {
            return;
        }
        import.is_reported = true;
        if export.kind != SharedKind::Event {
            import.after = Some(After {
                is_use: true,
                site: process.site(context, call),
                history: process.history(context, id),
            });
            return;
        }
        let exporter = processes.get(export.process);
        let exporter = exporter.map_or("", |process| &process.label);
        let importer = &process.label;
        let site = process.site(context, call);
        let how = match end.is_own {
            true => format!("{exporter} had destroyed the event"),
            false => format!(
                "{} had destroyed the event with its context",
                sentence(exporter)
            ),
        };
        let message = format!(
            "{} uses {}, which {importer} opened from a handle of {exporter}, but {how} before, in \
             call {}. What the driver does then is undefined. The driver returned {}.",
            site.function,
            import.label,
            end.site.index,
            site.result_text(),
        );
        let related = vec![
            ("exported here", export.site.clone()),
            ("opened here", import.site.clone()),
            ("destroyed here", end.site.clone()),
        ];
        found.push(finding(
            rules::RANKS_EVENT_USE_AFTER_DESTROY,
            format!("event of {exporter} used by {importer} after it was destroyed"),
            message,
            site,
            related,
            process
                .history(context, id)
                .into_iter()
                .chain(end.history.clone()),
        ));
    }

    /// Memory that was freed while others had it open.
    pub(super) fn finish(
        &mut self,
        processes: &[Process],
        traces: &dyn RankTraces,
        found: &mut Vec<Finding>,
    ) {
        for export in self
            .exports
            .iter()
            .filter(|export| export.kind != SharedKind::Event && !self.is_ambiguous(export))
        {
            let Some(end) = &export.end else { continue };
            for import in export.imports.iter().filter_map(|at| self.imports.get(*at)) {
                if import.was_open {
                    found.extend(freed(processes, traces, export, end, import));
                }
            }
        }
    }
}

/// The finding about memory that was freed while a process had it open.
fn freed(
    processes: &[Process],
    traces: &dyn RankTraces,
    export: &Export,
    end: &ExportEnd,
    import: &Import,
) -> Option<Finding> {
    let exporter = &processes.get(export.process)?.label;
    let process = processes.get(import.process)?;
    let importer = &process.label;
    let mut related = vec![
        ("exported here", export.site.clone()),
        ("opened here", import.site.clone()),
    ];
    let is_use = import.after.as_ref().is_some_and(|after| after.is_use);
    let (then, history) = match &import.after {
        Some(after) => {
            let (verb, what) = match is_use {
                true => ("used it", "used here"),
                false => ("closed it", "closed here"),
            };
            related.push((what, after.site.clone()));
            let then = format!(
                "{importer} {verb} only after that, in call {}",
                after.site.index
            );
            (then, after.history.clone())
        }
        // It may have been killed before, or have come to its end.
        None if import.has_ended || process.last_ticks <= end.left => return None,
        None => {
            let context = traces.context(import.process)?;
            let then = format!("{importer} never closed it and made further calls");
            (then, process.history(context, import.object))
        }
    };
    let then = match is_use {
        true => then.replace("only after that", "after that"),
        false => then,
    };
    let message = format!(
        "{} freed {} ({}), which it had exported, while {importer} had it open: {then}. What the \
         driver does then is undefined.",
        sentence(exporter),
        export.label,
        bytes(export.size),
    );
    let title = match is_use {
        true => format!("memory of {exporter} used by {importer} after it was freed"),
        false => format!("memory freed while {importer} has it open"),
    };
    let mut found = finding(
        rules::RANKS_MEMORY_FREED_WHILE_OPEN,
        title,
        message,
        end.site.clone(),
        related,
        end.history.clone().into_iter().chain(history),
    );
    if !is_use {
        found.severity = Severity::Warning;
    }
    Some(found)
}

/// The kind of the object behind what is shared.
pub(super) fn kind_of(kind: SharedKind) -> Kind {
    match kind {
        SharedKind::Memory | SharedKind::PoolMemory => Kind::Memory,
        SharedKind::Event => Kind::Event,
        SharedKind::Allocation => Kind::Allocation,
        SharedKind::Pool => Kind::MemoryPool,
    }
}
