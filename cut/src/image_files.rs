//! The device code images of a trace, by the call that loads them.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use cutape_analyzer::decode::is_image;
use cutape_format::{Call, Snapshot, Trace};
use cutape_image::ImageKind;

/// An image of a trace.
#[derive(Debug)]
pub(crate) struct RecordedImage {
    /// Its position among the images of the trace.
    pub(crate) number: usize,
    /// The first call that uses it.
    pub(crate) call: u64,
    /// Its function.
    pub(crate) function: String,
    /// How many calls use it.
    pub(crate) uses: u64,
    pub(crate) kind: ImageKind,
    pub(crate) bytes: Vec<u8>,
}

impl RecordedImage {
    /// The ending of its file.
    pub(crate) fn ending(&self) -> &'static str {
        match self.kind {
            ImageKind::Cubin => "cubin",
            ImageKind::Fatbin | ImageKind::FatbinWrapper => "fatbin",
            ImageKind::Ptx => "ptx",
            ImageKind::HostObject => "o",
            ImageKind::HostArchive => "a",
            ImageKind::NvvmBitcode => "bc",
            ImageKind::Unknown => "bin",
        }
    }

    /// What launches of its kernels need to know of it.
    pub(crate) fn facts(&self) -> ImageFacts {
        let Ok(image) = cutape_image::parse(&self.bytes) else {
            return ImageFacts::default();
        };
        let contents = || {
            let entries = image.entries.iter();
            entries.filter_map(|entry| entry.content.as_ref().ok())
        };
        let globals = contents().flat_map(|content| &content.globals);
        let mut names: Vec<String> = globals
            .filter(|global| !global.external)
            .map(|global| global.name.clone())
            .collect();
        names.sort_unstable();
        names.dedup();
        ImageFacts {
            variables: names,
            uses_heap: contents().any(|content| content.uses_heap),
        }
    }
}

/// All images of a trace, each content once.
#[derive(Debug, Default)]
pub(crate) struct RecordedImages {
    /// In the order of first use.
    pub(crate) list: Vec<RecordedImage>,
    by_hash: HashMap<(u64, usize), usize>,
    /// The image that each call uses.
    by_call: HashMap<u64, usize>,
    /// Calls that use an image whose bytes are not in the trace, with the reason.
    pub(crate) missing: HashMap<u64, String>,
}

impl RecordedImages {
    /// Reads those of calls for which `is_wanted` holds.
    pub(crate) fn read(trace: &Trace, is_wanted: impl Fn(&Call<'_>) -> bool) -> Self {
        let mut images = Self::default();
        for call in trace.calls().filter(|call| is_wanted(call)) {
            let post_call = call.leave.iter().flat_map(|leave| leave.snapshots());
            for snapshot in call.snapshots().chain(post_call) {
                images.add(trace, &call, snapshot);
            }
        }
        images
    }

    fn add(&mut self, trace: &Trace, call: &Call<'_>, snapshot: Snapshot<'_>) {
        if !is_image(call, usize::from(snapshot.parameter), snapshot.field) {
            return;
        }
        let bytes = match trace.resolve(snapshot.bytes) {
            Ok(bytes) => bytes,
            Err(damage) => {
                self.missing.insert(call.index, damage.what.to_string());
                return;
            }
        };
        let kind = cutape_image::kind(&bytes);
        // The container in it has a snapshot of its own.
        if kind == ImageKind::FatbinWrapper {
            return;
        }
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        let key = (hasher.finish(), bytes.len());
        let place = match self.by_hash.get(&key) {
            Some(&place) => place,
            None => {
                self.list.push(RecordedImage {
                    number: self.list.len(),
                    call: call.index,
                    function: call.signature.name.clone(),
                    uses: 0,
                    kind,
                    bytes: bytes.into_owned(),
                });
                self.by_hash.insert(key, self.list.len() - 1);
                self.list.len() - 1
            }
        };
        if let Some(image) = self.list.get_mut(place) {
            image.uses += 1;
        }
        self.by_call.insert(call.index, place);
    }

    /// The image that a call loads.
    pub(crate) fn of_call(&self, call: u64) -> Option<&RecordedImage> {
        self.list.get(*self.by_call.get(&call)?)
    }

    /// The calls with their images.
    pub(crate) fn calls(&self) -> impl Iterator<Item = (u64, &RecordedImage)> {
        let calls = self.by_call.iter();
        calls.filter_map(|(&call, &place)| Some((call, self.list.get(place)?)))
    }
}

/// What launches of an image's kernels need to know of it.
#[derive(Debug, Default)]
pub(crate) struct ImageFacts {
    /// The names of the variables that it defines.
    pub(crate) variables: Vec<String>,
    /// It uses the heap of the device.
    pub(crate) uses_heap: bool,
}
