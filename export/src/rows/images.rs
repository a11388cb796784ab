//! Which image each module and library was loaded from.

use cutape_analyzer::decode::{image_word, is_image};
use cutape_format::layout::{BlobRef, field};
use cutape_format::{Bytes, Call, Trace};
use cutape_image::ImageKind;
use cutape_model::ObjectId;
use rustc_hash::{FxHashMap, FxHashSet};

use super::reference::CallRef;
use super::row::ImageRow;

/// How many hexadecimal digits of a hash are kept: those of the hashes in traces.
const DIGITS: usize = 32;

/// The images of the modules and libraries that exist.
#[derive(Debug, Default)]
pub(super) struct Images {
    /// By blob, so that each is read once.
    by_blob: FxHashMap<BlobRef, ImageRow>,
    known: FxHashSet<String>,
    of_object: FxHashMap<ObjectId, Box<str>>,
}

impl Images {
    /// The images of a call that are new, and the hash of the one that it loads.
    pub(super) fn of_call(
        &mut self,
        trace: &Trace,
        call: &Call<'_>,
        row: CallRef,
        new: &mut Vec<ImageRow>,
    ) -> Option<String> {
        let mut loaded = None;
        let post_call = call.leave.iter().flat_map(|leave| leave.snapshots());
        for snapshot in call.snapshots().chain(post_call) {
            if !is_image(call, usize::from(snapshot.parameter), snapshot.field) {
                continue;
            }
            let Some((image, kind)) = self.image(trace, snapshot.bytes, row) else {
                continue;
            };
            // The container in a wrapper has its own snapshot.
            if kind == Some(ImageKind::FatbinWrapper) {
                continue;
            }
            if snapshot.field == field::POINTEE || loaded.is_none() {
                loaded = Some(image.hash.clone());
            }
            if self.known.insert(image.hash.clone()) {
                new.push(image);
            }
        }
        loaded
    }

    fn image(
        &mut self,
        trace: &Trace,
        bytes: Bytes<'_>,
        call: CallRef,
    ) -> Option<(ImageRow, Option<ImageKind>)> {
        let row = |content: &[u8]| {
            let kind = cutape_image::kind(content);
            let mut hash = blake3::hash(content).to_hex().to_string();
            hash.truncate(DIGITS);
            let image = ImageRow {
                hash,
                kind: image_word(kind),
                bytes: content.len() as u64,
                call,
            };
            (image, kind)
        };
        let blob = match bytes {
            Bytes::Inline(bytes) => {
                let (image, kind) = row(bytes);
                return Some((image, Some(kind)));
            }
            Bytes::Hashed(length, hash) => {
                let digits = hash.iter().map(|byte| format!("{byte:02x}"));
                let image = ImageRow {
                    hash: digits.collect(),
                    kind: image_word(ImageKind::Unknown),
                    bytes: length,
                    call,
                };
                return Some((image, None));
            }
            Bytes::InFile(range) => range.blob(),
            Bytes::Blob(blob) => blob,
            Bytes::Omitted(_) | Bytes::Unreadable => return None,
        };
        if let Some(known) = self.by_blob.get(&blob) {
            let is_wrapper = known.kind == image_word(ImageKind::FatbinWrapper);
            return Some((
                known.clone(),
                is_wrapper.then_some(ImageKind::FatbinWrapper),
            ));
        }
        let (image, kind) = row(&trace.resolve(bytes).ok()?);
        self.by_blob.insert(blob, image.clone());
        Some((image, Some(kind)))
    }

    /// An object was loaded from that image.
    pub(super) fn loaded(&mut self, object: ObjectId, hash: &str) {
        self.of_object.insert(object, hash.into());
    }

    /// The hash of an object's image.
    pub(super) fn of(&self, object: ObjectId) -> Option<&str> {
        self.of_object.get(&object).map(AsRef::as_ref)
    }

    /// The object has ended.
    pub(super) fn forget(&mut self, object: ObjectId) {
        self.of_object.remove(&object);
    }
}
