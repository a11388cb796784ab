//! Imports of the wrong thing: of what has ended, of another kind, of another pool, and maps of
//! more than was exported.

use cutape_format::Call;
use cutape_model::ExchangeSite;
use cutape_registry::{Family, Kind, Role, Shared, SharedKind, SharingOp, VirtualMemoryOp, rules};

use super::finding::{bytes, finding, sentence};
use super::lifetimes::{Export, Lifetimes};
use super::process::Process;
use crate::context::TraceContext;
use crate::finding::Finding;

/// Looks at a call before it changes anything.
pub(super) fn check(
    lifetimes: &Lifetimes,
    processes: &[Process],
    (number, context, call): (usize, &dyn TraceContext, &Call<'_>),
    found: &mut Vec<Finding>,
) {
    let uses = processes.get(number).and_then(|process| process.uses(call));
    match uses.map(|uses| uses.function.family) {
        Some(Family::Sharing(SharingOp::Import(shared))) => {
            import(lifetimes, processes, (number, context, call), shared, found);
        }
        Some(Family::VirtualMemory(operation)) => {
            map(
                lifetimes,
                processes,
                (number, context, call),
                operation,
                found,
            );
        }
        _ => {}
    }
}

/// Looks at a call that imports, whether or not the driver accepts it.
fn import(
    lifetimes: &Lifetimes,
    processes: &[Process],
    (number, context, call): (usize, &dyn TraceContext, &Call<'_>),
    shared: Shared,
    found: &mut Vec<Finding>,
) {
    let site = ExchangeSite {
        process: number,
        call: call.index,
    };
    let accepted = lifetimes
        .source(site)
        .map(|(_, export)| (shared.kind, export));
    let refused = || {
        let (refused, export) = lifetimes.refused(site)?;
        Some((refused.exported, export))
    };
    let Some((exported, export)) = accepted.or_else(refused) else {
        return;
    };
    let (Some(process), Some(exporter)) = (processes.get(number), processes.get(export.process))
    else {
        return;
    };
    let check = Check {
        call,
        context,
        process,
        exporter,
        export,
    };
    if exported != shared.kind {
        found.push(check.wrong_kind(exported, shared.kind));
        return;
    }
    if let Some(finding) = check.after_end() {
        found.push(finding);
        return;
    }
    if shared.kind == SharedKind::PoolMemory
        && let Some(pool) = pool_of(process, call)
        && let Some(import) = lifetimes.import_of(number, pool)
        && let Some(through) = lifetimes.exports.get(import.export)
    {
        found.extend(check.wrong_pool(through));
    }
}

/// The pool that a call imports memory through.
fn pool_of(process: &Process, call: &Call<'_>) -> Option<cutape_model::ObjectId> {
    let uses = process.uses(call)?;
    let mut params = uses.function.params.iter();
    let at = params.position(|param| param.role == Role::Use(Kind::MemoryPool))?;
    let objects = &process.trace.state.objects;
    objects.live(Kind::MemoryPool, call.argument(at))
}

/// Looks at a call that maps an allocation.
fn map(
    lifetimes: &Lifetimes,
    processes: &[Process],
    (number, context, call): (usize, &dyn TraceContext, &Call<'_>),
    operation: VirtualMemoryOp,
    found: &mut Vec<Finding>,
) {
    let VirtualMemoryOp::Map {
        size, allocation, ..
    } = operation
    else {
        return;
    };
    let Some(process) = processes.get(number) else {
        return;
    };
    let objects = &process.trace.state.objects;
    let handle = call.argument(usize::from(allocation));
    let Some(import) = objects
        .live(Kind::Allocation, handle)
        .and_then(|object| lifetimes.import_of(number, object))
    else {
        return;
    };
    let Some(export) = lifetimes.exports.get(import.export) else {
        return;
    };
    let mapped = call.argument(usize::from(size));
    let Some(exporter) = processes.get(export.process) else {
        return;
    };
    if export.size.is_none_or(|size| mapped <= size) {
        return;
    }
    // The one that it may have meant.
    let meant = lifetimes.imports.iter().find_map(|other| {
        let of = lifetimes.exports.get(other.export)?;
        let fits = other.process == number
            && of.process == export.process
            && of.kind == SharedKind::Allocation
            && of.size == Some(mapped);
        fits.then_some((of, other))
    });
    let check = Check {
        call,
        context,
        process,
        exporter,
        export,
    };
    let site = process.site(context, call);
    let (from, to) = (&exporter.label, &process.label);
    let mut related = vec![
        ("exported here", export.site.clone()),
        ("imported here", import.site().clone()),
    ];
    let hint = match meant {
        Some((of, other)) => {
            related.push(("exported with that size", of.site.clone()));
            related.push(("imported here", other.site().clone()));
            format!(
                " {} has also exported {}, in call {}: {to} may have imported the two in the wrong \
                 order.",
                sentence(from),
                bytes(of.size),
                of.site.index
            )
        }
        None => String::new(),
    };
    let message = format!(
        "{} maps {} of an allocation that {to} imported from {from}, which created it with {}. \
         The driver returned {}.{hint}",
        site.function,
        bytes(Some(mapped)),
        bytes(export.size),
        site.result_text(),
    );
    let imported = objects.live(Kind::Allocation, handle);
    let imported = imported.and_then(|id| process.history(context, id));
    found.push(finding(
        rules::RANKS_MAP_BEYOND_EXPORT,
        format!("{to} maps more than {from} exported"),
        message,
        site,
        related,
        check.exported_object().into_iter().chain(imported),
    ));
}

/// A call that imports or maps, and the export that it is about.
struct Check<'c, 't> {
    call: &'c Call<'t>,
    context: &'c dyn TraceContext,
    process: &'c Process,
    exporter: &'c Process,
    export: &'c Export,
}

impl Check<'_, '_> {
    /// The exported object, as far as it is remembered.
    fn exported_object(&self) -> Option<crate::finding::ObjectHistory> {
        match &self.export.end {
            Some(end) => end.history.clone(),
            None => self.export.history.clone(),
        }
    }

    fn wrong_kind(&self, exported: SharedKind, imported: SharedKind) -> Finding {
        let site = self.process.site(self.context, self.call);
        let (from, to) = (&self.exporter.label, &self.process.label);
        let message = format!(
            "{} imports {} from a handle that {from} exported from {}, in call {}. The driver \
             returned {}.",
            site.function,
            word(imported),
            word(exported),
            self.export.site.index,
            site.result_text(),
        );
        finding(
            rules::RANKS_IMPORT_WRONG_HANDLE,
            format!(
                "{to} imports {} of {from} as {}",
                noun(exported),
                word(imported)
            ),
            message,
            site,
            vec![("exported here", self.export.site.clone())],
            self.exported_object(),
        )
    }

    fn after_end(&self) -> Option<Finding> {
        let end = self.export.end.as_ref()?;
        let is_counted = matches!(self.export.kind, SharedKind::Allocation | SharedKind::Pool);
        if end.left >= self.call.ticks || is_counted {
            return None;
        }
        let site = self.process.site(self.context, self.call);
        let (from, to) = (&self.exporter.label, &self.process.label);
        let (verb, here) = match self.export.kind {
            SharedKind::Event => ("destroyed", "destroyed here"),
            _ => ("freed", "freed here"),
        };
        let message = format!(
            "{} opens {} that {from} exported, but {from} had {verb} it before, in call {}. \
             The driver returned {}.",
            site.function,
            self.export.label,
            end.site.index,
            site.result_text(),
        );
        Some(finding(
            rules::RANKS_IMPORT_AFTER_END,
            format!(
                "{to} opens {} of {from} that was {verb} before",
                noun(self.export.kind)
            ),
            message,
            site,
            vec![
                ("exported here", self.export.site.clone()),
                (here, end.site.clone()),
            ],
            self.exported_object(),
        ))
    }

    /// Memory of a pool, imported through another one.
    fn wrong_pool(&self, through: &Export) -> Option<Finding> {
        let pool = self.export.pool?;
        if through.process != self.export.process || through.object == pool {
            return None;
        }
        let site = self.process.site(self.context, self.call);
        let (from, to) = (&self.exporter.label, &self.process.label);
        let message = format!(
            "{} imports {} of {from} through {}, but {from} allocated it from another pool. The \
             driver returned {}.",
            site.function,
            self.export.label,
            through.label,
            site.result_text(),
        );
        Some(finding(
            rules::RANKS_IMPORT_WRONG_HANDLE,
            format!("{to} imports memory of {from} through another pool than its own"),
            message,
            site,
            vec![
                ("memory exported here", self.export.site.clone()),
                ("pool exported here", through.site.clone()),
            ],
            self.exported_object()
                .into_iter()
                .chain(through.history.clone()),
        ))
    }
}

fn noun(kind: SharedKind) -> &'static str {
    match kind {
        SharedKind::Memory | SharedKind::PoolMemory => "memory",
        SharedKind::Event => "an event",
        SharedKind::Allocation => "an allocation",
        SharedKind::Pool => "a pool",
    }
}

fn word(kind: SharedKind) -> &'static str {
    match kind {
        SharedKind::Memory => "memory",
        SharedKind::PoolMemory => "memory of a pool",
        kind => noun(kind),
    }
}
