//! Module Management: the JIT linker.

use crate::call::answer::{Answer, FILE_NOT_FOUND, invalid_if};
use crate::call::argument::{In, Out, Text, arguments};
use crate::call::entry::entries;
use crate::crash;
use crate::object::jit_options::{Options, Use};
use crate::object::link::{LIBRARY, Link, PTX};
use crate::settings;
use crate::state::{Locked, State, lock};

entries! {
    cuLinkCreate: create;
    cuLinkAddData: add_data;
    cuLinkAddFile: add_file;
    cuLinkComplete: complete;
    cuLinkDestroy: destroy;
}

/// The link of a handle; a destroyed one crashes as in the real driver.
fn find(state: &mut State, handle: u64) -> &mut Link {
    match state.links.get_mut(&handle) {
        Some(link) => link,
        None => crash::segmentation_fault(),
    }
}

fn create(count: u32, names: In<u32>, values: In<u64>, link: Out<u64>) -> Answer {
    let mut state = lock();
    state.current()?;
    link.check()?;
    let options = Options::read(count, names, values, Use::Whole)?;
    let object = Link::new(options, state.capability());
    let handle = state.links.add(object)?;
    state.quarantine.destroyed.remove(&handle);
    link.set(handle)
}

arguments! {
    /// The JIT options of one input.
    struct InputOptions {
        count: u32,
        names: In<u32>,
        values: In<u64>,
    }
}

/// A link that takes an input of that type with those options.
fn find_for(state: &mut State, link: u64, input: u32, options: InputOptions) -> Answer<&mut Link> {
    let link = find(state, link);
    // Nothing can be added to a completed link, and NVVM is no longer accepted (both measured).
    invalid_if(link.image.is_some() || input > LIBRARY)?;
    let purpose = match input {
        PTX => Use::Input,
        _ => Use::FinishedInput,
    };
    Options::read(options.count, options.names, options.values, purpose)?;
    Ok(link)
}

fn add_data(
    mut state: Locked,
    link: u64,
    input: u32,
    data: u64,
    size: usize,
    name: Text,
    options: InputOptions,
) -> Answer {
    let link = find_for(&mut state, link, input, options)?;
    invalid_if(data == 0 || size == 0)?;
    let name = match name.is_null() {
        true => "unnamed input".to_owned(),
        false => name.get()?,
    };
    // SAFETY: by the C prototype the program gives `size` readable bytes.
    let bytes = unsafe { std::slice::from_raw_parts(data as *const u8, size) };
    link.add(bytes, input, &name)
}

fn add_file(mut state: Locked, link: u64, input: u32, path: Text, options: InputOptions) -> Answer {
    let link = find_for(&mut state, link, input, options)?;
    let path = path.get()?;
    let bytes = std::fs::read(&path).map_err(|_| FILE_NOT_FOUND)?;
    link.add(&bytes, input, &path)
}

fn complete(mut state: Locked, link: u64, image: Out<u64>, size: Out<usize>) -> Answer {
    let link = find(&mut state, link);
    image.check()?;
    if link.image.is_none() {
        link.complete()?;
    }
    if let Some(bytes) = &link.image {
        image.set_if(bytes.as_ptr() as u64);
        size.set_if(bytes.len());
    }
    Ok(())
}

fn destroy(mut state: Locked, link: u64) -> Answer {
    let Some(object) = state.links.remove(link) else {
        if state.quarantine.destroyed.contains(&link) {
            // The real driver frees the state twice: the C library aborts the process.
            settings::print_line("cuLinkDestroy of a destroyed link state");
            std::process::abort();
        }
        crash::segmentation_fault()
    };
    object.options.write_back();
    state.quarantine.add(link, object.image);
    Ok(())
}
