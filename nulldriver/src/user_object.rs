//! Graph Management: user objects, whose destructor runs when neither the program nor a graph holds them any more.

use std::collections::HashMap;

use cutape_registry::Kind;

use crate::answer::{Answer, INVALID_VALUE};
use crate::argument::Out;
use crate::dispatch::{Entry, bind};
use crate::host_call;
use crate::state::{State, lock};

pub(crate) const ENTRIES: &[Entry] = &[
    ("cuUserObjectCreate", bind(create_object)),
    ("cuUserObjectRetain", bind(retain)),
    ("cuUserObjectRelease", bind(release)),
    ("cuGraphRetainUserObject", bind(graph_retain)),
    ("cuGraphReleaseUserObject", bind(graph_release)),
];

/// A user object: references, destructor and what it is given.
#[derive(Debug)]
pub(crate) struct Object {
    references: u64,
    destroy: u64,
    data: u64,
}

/// Destructors of user objects, to be run when the state is not locked.
#[must_use]
#[derive(Debug, Default)]
pub(crate) struct Destructors(pub(crate) Vec<(u64, u64)>);

impl Destructors {
    pub(crate) fn run(self) {
        for (entry, data) in self.0 {
            // Nobody waits for a destructor's result.
            let _ = host_call::run_function(entry, data);
        }
    }
}

impl State {
    /// Takes references for another holder.
    pub(crate) fn add_references(&mut self, object: u64, count: u32) {
        if let Some(object) = self.graphs.objects.get_mut(&object) {
            object.references += u64::from(count);
        }
    }

    /// Gives references to user objects up.
    pub(crate) fn drop_objects(&mut self, objects: &HashMap<u64, u32>) -> Destructors {
        let mut destructors = Destructors::default();
        for (&handle, &count) in objects {
            let Some(object) = self.graphs.objects.get_mut(&handle) else {
                continue;
            };
            object.references = object.references.saturating_sub(u64::from(count));
            if object.references == 0 {
                destructors.0.push((object.destroy, object.data));
                self.graphs.objects.remove(&handle);
                self.release(Kind::UserObject, handle);
            }
        }
        destructors
    }
}

fn create_object(object: Out<u64>, data: u64, destroy: u64, references: u32, flags: u32) -> Answer {
    object.check()?;
    // CU_USER_OBJECT_NO_DESTRUCTOR_SYNC has to be said.
    if destroy == 0 || references == 0 || references > i32::MAX as u32 || flags != 1 {
        return Err(INVALID_VALUE);
    }
    let mut state = lock();
    let handle = state.make(Kind::UserObject)?;
    let made = Object {
        references: references.into(),
        destroy,
        data,
    };
    state.graphs.objects.insert(handle, made);
    object.set(handle)
}

fn check_count(state: &State, object: u64, count: u32) -> Answer {
    if count == 0 || count > i32::MAX as u32 || !state.graphs.objects.contains_key(&object) {
        Err(INVALID_VALUE)
    } else {
        Ok(())
    }
}

fn retain(object: u64, count: u32) -> Answer {
    let mut state = lock();
    check_count(&state, object, count)?;
    if let Some(object) = state.graphs.objects.get_mut(&object) {
        object.references += u64::from(count);
    }
    Ok(())
}

fn release(object: u64, count: u32) -> Answer {
    let mut state = lock();
    check_count(&state, object, count)?;
    let destructors = state.drop_objects(&HashMap::from([(object, count)]));
    drop(state);
    destructors.run();
    Ok(())
}

fn graph_retain(graph: u64, object: u64, count: u32, flags: u32) -> Answer {
    const MOVE: u32 = 1;
    let mut state = lock();
    check_count(&state, object, count)?;
    state.graph(graph)?;
    if flags & !MOVE != 0 {
        return Err(INVALID_VALUE);
    }
    if flags & MOVE == 0
        && let Some(object) = state.graphs.objects.get_mut(&object)
    {
        object.references += u64::from(count);
    }
    if let Some(graph) = state.graphs.graphs.get_mut(&graph) {
        *graph.objects.entry(object).or_default() += count;
    }
    Ok(())
}

fn graph_release(graph: u64, object: u64, count: u32) -> Answer {
    let mut state = lock();
    check_count(&state, object, count)?;
    state.graph(graph)?;
    let held = state
        .graphs
        .graphs
        .get_mut(&graph)
        .and_then(|graph| graph.objects.get_mut(&object));
    match held {
        Some(held) if *held >= count => *held -= count,
        _ => return Err(INVALID_VALUE),
    }
    let destructors = state.drop_objects(&HashMap::from([(object, count)]));
    drop(state);
    destructors.run();
    Ok(())
}
