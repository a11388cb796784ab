//! The loaded object that holds an address, found without the loader's lock.

use core::ffi::c_void;
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::sync::Mutex;

use super::{python, store};
use crate::loaded::{maps, objects};
use crate::process::memory::{self, Scratch};

/// What `_dl_find_object` of glibc 2.35 returns (dlfcn.h).
#[repr(C)]
struct FoundObject {
    flags: u64,
    start: u64,
    end: u64,
    link_map: u64,
    unwind_header: u64,
    reserved: [u64; 7],
}

type FindObject = unsafe extern "C" fn(*mut c_void, *mut FoundObject) -> i32;

/// That function; NULL if glibc is older.
static FIND: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Without it: the objects that were loaded when the list was made.
static LISTED: Mutex<Vec<Module>> = Mutex::new(Vec::new());

/// Objects with longer paths are not announced.
const LONGEST_PATH: usize = 4096;

/// A loaded object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Module {
    pub(super) start: u64,
    end: u64,
    /// The address of its `.eh_frame_hdr`; 0 if it has none.
    pub(super) unwind_header: u64,
    /// Its `struct link_map`; 0 if unknown.
    link_map: u64,
}

/// Finds the function, and remembers what the trace's memory map has already.
pub(super) fn begin() {
    // SAFETY: the name ends in NUL.
    let find = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) };
    FIND.store(find, Ordering::Release);
    for module in list() {
        store::is_new(module.mark());
    }
}

impl Module {
    /// A number by which `store` remembers it.
    fn mark(&self) -> u64 {
        store::hash([self.start, self.end, 1])
    }
}

/// All objects, with the loader's lock.
fn list() -> Vec<Module> {
    let mut modules = Vec::new();
    objects::for_each(&mut |object| {
        modules.extend(object.extent().map(|(start, end)| Module {
            start,
            end,
            unwind_header: object.unwind_header().unwrap_or(0),
            link_map: 0,
        }));
        ControlFlow::Continue(())
    });
    modules
}

/// The object that holds an address.
pub(super) fn around(address: u64) -> Option<Module> {
    let find = FIND.load(Ordering::Acquire);
    if find.is_null() {
        return listed(address);
    }
    // SAFETY: the symbol of that name is this function.
    let find: FindObject = unsafe { core::mem::transmute(find) };
    let mut found = FoundObject {
        flags: 0,
        start: 0,
        end: 0,
        link_map: 0,
        unwind_header: 0,
        reserved: [0; 7],
    };
    // SAFETY: any address may be asked for; the answer goes into our struct.
    let answer = unsafe { find(address as *mut c_void, &raw mut found) };
    (answer == 0).then_some(Module {
        start: found.start,
        end: found.end,
        unwind_header: found.unwind_header,
        link_map: found.link_map,
    })
}

fn listed(address: u64) -> Option<Module> {
    let holds = |module: &&Module| (module.start..module.end).contains(&address);
    // A lock that is held here may be held for ever in a child of a fork.
    let mut listed = LISTED.try_lock().ok()?;
    if let Some(module) = listed.iter().find(holds) {
        return Some(*module);
    }
    *listed = list();
    listed.iter().find(holds).copied()
}

/// Has the trace's memory map contain an object that was loaded after the map was written.
pub(super) fn announce(module: &Module) {
    if store::is_new(module.mark()) != Some(true) {
        return;
    }
    if module.link_map == 0 {
        return maps::write_if_changed();
    }
    // The start of `struct link_map` (link.h): the base, and the name.
    let (base, name) = (
        memory::word(module.link_map),
        memory::word(module.link_map + 8),
    );
    let (Some(base), Some(name)) = (base, name) else {
        return;
    };
    let length = memory::string_length(name, LONGEST_PATH).unwrap_or(0);
    let Some(mut path) = Scratch::new(length) else {
        return;
    };
    let Some(path) = path.bytes().get_mut(..length.saturating_sub(1)) else {
        return;
    };
    if memory::read_all(name, path) && !path.is_empty() {
        maps::write_one(module.start, base, path);
        if path.windows(9).any(|part| part == b"libpython") {
            python::found(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_find_the_same() {
        store::begin();
        begin();
        let own = both_ways_find_the_same as *const () as u64;
        let library = libc::getpid as *const () as u64;
        for address in [own, library] {
            let (found, listed) = (around(address).unwrap(), listed(address).unwrap());
            assert_eq!(found.unwind_header, listed.unwind_header);
            assert!(found.start <= address && address < listed.end);
        }
        assert_eq!(around(8), None);
        assert_eq!(listed(8), None);
    }
}
