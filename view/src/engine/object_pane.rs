//! All about an object: what it is, what it belongs to, which calls created and ended it.

use cutape_analyzer::demangle::demangle;
use cutape_model::{Object, ObjectId, Origin};
use cutape_registry::Kind;
use cutape_render::{Renderer, quantity};

use crate::state::object_key::ObjectKey;
use crate::state::pane_line::{Link, PaneLine, Role};

/// The object that a call names, for a renderer that has observed the call.
pub(super) fn find(renderer: &Renderer<'_>, key: ObjectKey) -> Option<ObjectId> {
    let state = &renderer.state.state;
    let by_handle = state.objects.resolve(key.kind, key.handle).known();
    match key.kind.is_address() {
        true => state.last_place_at(key.handle).or(by_handle),
        false => by_handle,
    }
}

/// `module#2 0x7f00`, or with the name of the kind.
pub(super) fn name(renderer: &Renderer<'_>, kind: Kind, handle: u64) -> String {
    let label = renderer.label(kind, handle);
    let label = label.unwrap_or_else(|| kind.name().to_owned());
    format!("{label} {handle:#x}")
}

/// Title and lines.
pub(super) fn lines(renderer: &Renderer<'_>, key: ObjectKey) -> (String, Vec<PaneLine>) {
    let title = name(renderer, key.kind, key.handle);
    let mut lines = vec![PaneLine::new(title.clone(), Role::Strong)];
    let objects = &renderer.state.state.objects;
    let Some(id) = find(renderer, key) else {
        let text = "  no recorded call returned it: it is older than the recording, or a constant";
        lines.push(PaneLine::new(text, Role::Dim));
        return (title, lines);
    };
    let Some(object) = objects.get(id) else {
        return (title, lines);
    };
    if let Some(name) = &object.name {
        lines.push(PaneLine::named("name", &demangle(name)));
    }
    if object.size > 0 {
        lines.push(PaneLine::named(
            "size",
            &format!("{} bytes", quantity::grouped(object.size)),
        ));
    }
    lines.push(created(object));
    if object.handle_use > 1 {
        let text = format!(
            "  its handle stood for {} objects before",
            object.handle_use - 1
        );
        lines.push(PaneLine::new(text, Role::Dim));
    }
    for (word, owner) in [("belongs to", object.parent), ("in", object.context)] {
        let Some(owner) = owner.and_then(|owner| objects.get(owner)) else {
            continue;
        };
        if word == "in" && object.parent == object.context {
            continue;
        }
        lines.push(
            PaneLine::new(format!("  {word} "), Role::Dim)
                .and(name(renderer, owner.kind, owner.handle), Role::Link)
                .to(Link::Object(ObjectKey {
                    kind: owner.kind,
                    handle: owner.handle,
                    call: key.call,
                })),
        );
    }
    (title, lines)
}

fn created<D>(object: &Object<D>) -> PaneLine {
    let word = match object.origin {
        Origin::Created => "created by",
        Origin::Found => "looked up by",
        Origin::FirstSeen => "first seen in",
    };
    let site = object.created;
    PaneLine::new(format!("  {word} "), Role::Dim)
        .and(format!("call {}", site.index), Role::Link)
        .and(format!(" {}", site.function), Role::Plain)
        .to(Link::Call(site.index))
}
