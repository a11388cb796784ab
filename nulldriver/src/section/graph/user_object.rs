//! Graph Management: user objects, whose destructor runs when neither the program nor a graph holds
//! a reference any more.

use std::collections::HashMap;

use crate::call::answer::{Answer, INVALID_VALUE, invalid_if};
use crate::call::argument::OutRef;
use crate::call::entry::entries;
use crate::object::graph::UserObject;
use crate::state::{Locked, State, lock};
use crate::work::host_function::run_destructors;

entries! {
    cuUserObjectCreate: create;
    cuUserObjectRetain: retain;
    cuUserObjectRelease: release;
    cuGraphRetainUserObject: graph_retain;
    cuGraphReleaseUserObject: graph_release;
}

const MAX_REFERENCES: u32 = i32::MAX as u32;

fn create(object: OutRef<u64>, data: u64, destroy: u64, references: u32, flags: u32) -> Answer {
    let is_counted = (1..=MAX_REFERENCES).contains(&references);
    // CU_USER_OBJECT_NO_DESTRUCTOR_SYNC is required.
    invalid_if(destroy == 0 || !is_counted || flags != 1)?;
    let mut state = lock();
    let made = UserObject {
        references: references.into(),
        destroy,
        data,
    };
    object.set(state.user_objects.add(made)?)
}

fn check(state: &mut State, object: u64, count: u32) -> Answer<&mut UserObject> {
    invalid_if(count == 0 || count > MAX_REFERENCES)?;
    state.user_objects.find_mut(object)
}

fn retain(object: u64, count: u32) -> Answer {
    check(&mut lock(), object, count)?.references += u64::from(count);
    Ok(())
}

fn release(mut state: Locked, object: u64, count: u32) -> Answer {
    check(&mut state, object, count)?;
    state.drop_references(&HashMap::from([(object, count)]));
    run_destructors(state)
}

fn graph_retain(graph: u64, object: u64, count: u32, flags: u32) -> Answer {
    const MOVE: u32 = 1;
    let mut state = lock();
    check(&mut state, object, count)?;
    state.graphs.find(graph)?;
    invalid_if(flags & !MOVE != 0)?;
    if flags & MOVE == 0 {
        state.add_references(&HashMap::from([(object, count)]));
    }
    *state
        .graphs
        .find_mut(graph)?
        .objects
        .entry(object)
        .or_default() += count;
    Ok(())
}

fn graph_release(mut state: Locked, graph: u64, object: u64, count: u32) -> Answer {
    check(&mut state, object, count)?;
    let held = state.graphs.find_mut(graph)?.objects.get_mut(&object);
    let held = held.filter(|held| **held >= count).ok_or(INVALID_VALUE)?;
    *held -= count;
    state.drop_references(&HashMap::from([(object, count)]));
    run_destructors(state)
}
