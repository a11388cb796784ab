//! The kernels of B with other code, to be run on A's inputs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cutape_analyzer::decode::{function_of, is_image};
use cutape_diff::Kind;
use cutape_format::{Call, Trace};
use cutape_image::{Code, EntryCode, ImageKind};
use cutape_registry::{Family, ImageSource};
use cutape_replay::Replacement;
use rustc_hash::FxHashMap;

use crate::compared::Compared;
use crate::launches::Counterparts;
use crate::names::Kernel;

/// Kernels of B by those of A.
pub(crate) type Kernels = FxHashMap<Kernel, Replacement>;

/// The kernels of B with other code than those of A.
pub(crate) fn changed(compared: &Compared<'_>, counterparts: &Counterparts) -> Kernels {
    let kinds = compared.aligned.kinds.iter();
    let loads = kinds.filter(|(_, kinds)| kinds.contains(&Kind::Code));
    let loads: BTreeSet<u64> = loads.map(|(&call, _)| call).collect();
    let [a, b] = compared.traces;
    let in_a = images(a, &loads);
    let mut kernels = Kernels::default();
    if let Some((image, path)) = &compared.image {
        for (&call, recorded) in &in_a {
            add(&mut kernels, (call, recorded), image, path);
        }
        return kernels;
    }
    let other = |call: &u64| counterparts.get(call).copied();
    let in_b = images(b, &loads.iter().filter_map(other).collect());
    for (call, recorded) in &in_a {
        if let Some(other) = other(call)
            && let Some(image) = in_b.get(&other)
        {
            let path = format!("call {other} of B");
            add(&mut kernels, (*call, recorded), image, &path);
        }
    }
    kernels
}

/// The names of the variables in the images that calls load.
pub(crate) fn variables(trace: &Trace, loads: &BTreeSet<u64>) -> BTreeMap<u64, Vec<String>> {
    let images = images(trace, loads).into_iter();
    let named = images.map(|(call, image)| {
        let parsed = cutape_image::parse(&image);
        let entries = parsed.into_iter().flat_map(|image| image.entries);
        let contents = entries.filter_map(|entry| entry.content.ok());
        let globals = contents.flat_map(|content| content.globals);
        let own = globals.filter(|global| !global.external);
        let names: BTreeSet<String> = own.map(|global| global.name).collect();
        (call, names.into_iter().collect())
    });
    named.collect()
}

/// The images that calls load.
fn images(trace: &Trace, loads: &BTreeSet<u64>) -> BTreeMap<u64, Vec<u8>> {
    let last = loads.last().copied();
    let calls = trace.calls().take_while(|call| Some(call.index) <= last);
    let loads = calls.filter(|call| loads.contains(&call.index));
    let images = loads.filter_map(|call| Some((call.index, image_of(trace, &call)?)));
    images.collect()
}

/// The calls of a trace that load kernels which an image has too.
pub fn loads_of(trace: &Trace, image: &[u8]) -> Vec<u64> {
    let wanted = names(image);
    let loads = trace.calls().filter(|call| {
        let family = function_of(call.signature).map(|known| known.family);
        matches!(
            family,
            Some(Family::ModuleLoad(load) | Family::LibraryLoad(load))
                if !matches!(load.source, ImageSource::File(_))
        )
    });
    let loads = loads.filter(|call| {
        let image = image_of(trace, call);
        image.is_some_and(|image| names(&image).iter().any(|name| wanted.contains(name)))
    });
    loads.map(|call| call.index).collect()
}

/// The image that a call loads.
fn image_of(trace: &Trace, call: &Call<'_>) -> Option<Vec<u8>> {
    let mut images = call.snapshots().filter_map(|snapshot| {
        if !is_image(call, usize::from(snapshot.parameter), snapshot.field) {
            return None;
        }
        let bytes = trace.resolve(snapshot.bytes).ok()?;
        // What a wrapper leads to has a snapshot of its own.
        let is_wrapper = cutape_image::kind(&bytes) == ImageKind::FatbinWrapper;
        (!is_wrapper).then(|| bytes.into_owned())
    });
    images.next()
}

/// The kernels of an image.
fn names(image: &[u8]) -> BTreeSet<String> {
    let Ok(parsed) = cutape_image::parse(image) else {
        return BTreeSet::new();
    };
    let contents = parsed
        .entries
        .iter()
        .filter_map(|entry| entry.content.as_ref().ok());
    let functions = contents.flat_map(|content| &content.functions);
    let kernels = functions.filter(|function| function.is_entry);
    kernels.map(|kernel| kernel.name.clone()).collect()
}

/// Adds the kernels of B's image with other code than those of the image that a call of A loads.
fn add(kernels: &mut Kernels, (call, recorded): (u64, &[u8]), image: &[u8], path: &str) {
    let (all, image): (_, Arc<[u8]>) = (names(image), image.into());
    let codes = [recorded, &image].map(cutape_image::code);
    for name in all.iter().filter(|name| has_other_code(&codes, name, &all)) {
        let replacement = Replacement {
            image: Arc::clone(&image),
            name: name.clone(),
            path: path.to_owned(),
        };
        kernels.insert((call, name.clone()), replacement);
    }
}

/// Whether a kernel has other code, or what else it may see. Which functions it calls is not known.
fn has_other_code([a, b]: &[Code; 2], kernel: &str, kernels: &BTreeSet<String>) -> bool {
    let seen = |entry: &EntryCode| {
        let functions = entry.functions.iter();
        let functions = functions.filter(|(name, _)| *name == kernel || !kernels.contains(*name));
        let functions: Vec<(String, u64)> = functions
            .map(|(name, &hash)| (name.clone(), hash))
            .collect();
        (entry.code, entry.target, functions, entry.rest)
    };
    let seen = |code: &Code| code.entries.iter().map(seen).collect::<Vec<_>>();
    seen(a) != seen(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kernels_with_other_code_are_run() {
        let image = |first: u32, second: u32| {
            format!(
                ".version 7.0\n.target sm_70\n.address_size 64\n\
                 .visible .entry first(.param .u64 out)\n{{\n .reg .b32 %x;\n \
                 mov.u32 %x, {first};\n ret;\n}}\n\
                 .visible .entry second(.param .u64 out)\n{{\n .reg .b32 %x;\n \
                 mov.u32 %x, {second};\n ret;\n}}\n"
            )
        };
        for (b, expected) in [
            (image(1, 2), &[][..]),
            (image(1, 3), &["second"]),
            (image(4, 2), &["first"]),
            (image(4, 3), &["first", "second"]),
        ] {
            let mut kernels = Kernels::default();
            add(
                &mut kernels,
                (7, image(1, 2).as_bytes()),
                b.as_bytes(),
                "b.ptx",
            );
            let mut names: Vec<&str> = kernels.keys().map(|(_, name)| name.as_str()).collect();
            names.sort_unstable();
            assert_eq!(names, expected, "{b}");
            assert!(kernels.keys().all(|(call, _)| *call == 7));
        }
    }
}
