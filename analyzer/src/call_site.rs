//! Calls and objects as findings name them.

use cutape_format::Call;
use cutape_model::{ObjectId, Objects, Origin, Site};
use cutape_registry::Kind;

use crate::context::TraceContext;
use crate::decode::Names;
use crate::finding::{CallSite, CodePlace, ObjectHistory, own_frame};
use crate::render::{driver_messages, render_call, result_of};

/// A call with its decoded arguments, in which `names` labels handles.
pub(crate) fn call_site(
    context: &dyn TraceContext,
    call: &Call<'_>,
    names: &dyn Names,
    thread_number: u32,
) -> CallSite {
    CallSite {
        process: None,
        index: call.index,
        function: call.signature.name.clone(),
        text: render_call(call, context, names),
        thread: call.thread,
        thread_number,
        place: place(context, Site::of("", call)),
        caller: symbol(context, call.caller),
        frames: call
            .stack()
            .map(|stack| context.frames(stack))
            .unwrap_or_default(),
        driver_messages: driver_messages(call),
        ranges: Vec::new(),
        result: result_of(call, context.signatures()),
    }
}

/// Where the program itself made a call, if the trace says so; else a symbol or the address.
pub(crate) fn place(context: &dyn TraceContext, site: Site) -> String {
    let frames = match site.stack {
        0 => Vec::new(),
        stack => context.frames(stack),
    };
    match own_frame(&frames) {
        Some(frame) => frame.place(context.meta("directory")),
        None => symbol(context, site.caller),
    }
}

/// Where the program makes a call, without what differs from run to run.
pub(crate) fn code_place(context: &dyn TraceContext, site: Site) -> CodePlace {
    let frames = match site.stack {
        0 => Vec::new(),
        stack => context.frames(stack),
    };
    CodePlace::of(site.function, &frames, &symbol(context, site.caller))
}

/// A symbol, else the address.
pub(crate) fn symbol(context: &dyn TraceContext, address: u64) -> String {
    context
        .symbol(address)
        .unwrap_or_else(|| format!("{address:#x}"))
}

/// Kind, generation, handle and name, e.g. `function#3 0x55d0 "saxpy"`.
pub(crate) fn label<D>(objects: &Objects<D>, id: ObjectId) -> String {
    let Some(object) = objects.get(id) else {
        return "an object that is no longer remembered".to_owned();
    };
    let name = object
        .name
        .as_ref()
        .map_or(String::new(), |name| format!(" \"{name}\""));
    format!(
        "{}#{} {:#x}{name}",
        object.kind.name(),
        object.generation,
        object.handle
    )
}

/// The object that a handle means, in the text of a call; `None` for kinds that have no names.
pub(crate) fn name_of<D>(objects: &Objects<D>, kind: Kind, handle: u64) -> Option<String> {
    let has_name = matches!(
        kind,
        Kind::Module
            | Kind::Function
            | Kind::Library
            | Kind::Kernel
            | Kind::Link
            | Kind::Stream
            | Kind::Event
            | Kind::Context
    );
    let id = objects.resolve(kind, handle).known()?;
    let object = objects.get(id).filter(|_| has_name)?;
    let name = object
        .name
        .as_ref()
        .map_or(String::new(), |name| format!(" \"{name}\""));
    let word = object.kind.name();
    Some(format!("{word}#{}{name}", object.generation))
}

/// An object from its creation to its end.
pub(crate) fn history<D>(
    objects: &Objects<D>,
    context: &dyn TraceContext,
    id: ObjectId,
) -> Option<ObjectHistory> {
    let object = objects.get(id)?;
    let when = |site: Site| {
        format!(
            "{}, call {}, thread {}, at {}",
            site.function,
            site.index,
            site.thread,
            place(context, site)
        )
    };
    let parents = objects.ancestors(id);
    let parents = parents.map(|parent| label(objects, parent)).collect();
    let verb = match object.origin {
        Origin::Created => "",
        Origin::Found => "looked up: ",
        Origin::FirstSeen => "first seen: ",
    };
    let end = objects.end_of(id);
    Some(ObjectHistory {
        process: None,
        kind: object.kind.name().to_owned(),
        handle: object.handle,
        label: label(objects, id),
        created: format!("{verb}{}", when(object.created)),
        created_call: object.created.index,
        created_ranges: Vec::new(),
        destroyed_call: end.map(|end| end.site.index),
        destroyed: end.map(|end| match end.by {
            None => when(end.site),
            Some(root) => format!("with {}: {}", label(objects, root), when(end.site)),
        }),
        parents,
        creation: code_place(context, object.created),
    })
}
