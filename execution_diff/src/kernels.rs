//! The kernels of B with other code, to be run on A's inputs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cutape_analyzer::decode::{function_of, is_image};
use cutape_diff::Kind;
use cutape_format::{Call, Trace};
use cutape_image::ImageKind;
use cutape_registry::{Family, ImageSource};
use cutape_replay::Replacement;
use rustc_hash::FxHashMap;

use crate::Compared;
use crate::launches::Counterparts;
use crate::names::Kernel;

/// Kernels of B by those of A.
pub(crate) type Kernels = FxHashMap<Kernel, Replacement>;

/// The kernels in images of B that differ from those of A.
pub(crate) fn changed(compared: &Compared<'_>, counterparts: &Counterparts) -> Kernels {
    let kinds = compared.aligned.kinds.iter();
    let in_a = kinds
        .filter(|(_, kinds)| kinds.contains(&Kind::Code))
        .map(|(&call, _)| call);
    let mut kernels = Kernels::default();
    if let Some((image, path)) = &compared.image {
        in_a.for_each(|call| add(&mut kernels, call, image, path));
        return kernels;
    }
    let loads = in_a.filter_map(|call| Some((*counterparts.get(&call)?, call)));
    let loads: BTreeMap<u64, u64> = loads.collect();
    let [_, trace] = compared.traces;
    let last = loads.keys().last().copied();
    for call in trace.calls().take_while(|call| Some(call.index) <= last) {
        if let Some(&in_a) = loads.get(&call.index)
            && let Some(image) = image_of(trace, &call)
        {
            add(
                &mut kernels,
                in_a,
                &image,
                &format!("call {} of B", call.index),
            );
        }
    }
    kernels
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

/// Adds the kernels of B's image for those that a call of A loads.
fn add(kernels: &mut Kernels, call: u64, image: &[u8], path: &str) {
    let image: Arc<[u8]> = image.into();
    for name in names(&image) {
        let replacement = Replacement {
            image: Arc::clone(&image),
            name: name.clone(),
            path: path.to_owned(),
        };
        kernels.insert((call, name), replacement);
    }
}
