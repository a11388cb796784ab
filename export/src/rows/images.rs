//! Which image each module and library was loaded from.

use std::borrow::Cow;

use cutape_analyzer::decode::{image_word, is_image};
use cutape_format::layout::{BlobRef, field};
use cutape_format::{Bytes, Call, Trace};
use cutape_image::ImageKind;
use cutape_model::ObjectId;
use rustc_hash::{FxHashMap, FxHashSet};

use super::reference::CallRef;
use super::row::{ImageRow, ImageUseRow};
use super::sink::Sink;

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

/// The image in a snapshot.
struct Found<'b> {
    image: ImageRow,
    /// `None` if the trace lacks the bytes, or known from an earlier use.
    kind: Option<ImageKind>,
    is_kept: bool,
    content: Option<Cow<'b, [u8]>>,
}

impl Images {
    /// The rows of a call's images, and the hash of the one that it loads. What a call only makes
    /// gets the row of an image when a later call loads or links it.
    pub(super) fn of_call<S: Sink>(
        &mut self,
        trace: &Trace,
        call: &Call<'_>,
        (row, takes): (CallRef, bool),
        sink: &mut S,
    ) -> Result<Option<String>, S::Error> {
        let mut loaded = None;
        let post_call = call.leave.iter().flat_map(|leave| leave.snapshots());
        for snapshot in call.snapshots().chain(post_call) {
            if !is_image(call, usize::from(snapshot.parameter), snapshot.field) {
                continue;
            }
            let found = self.image(trace, snapshot.bytes, row);
            // The container in a wrapper has its own snapshot.
            let is_wrapper = |found: &Found<'_>| found.kind == Some(ImageKind::FatbinWrapper);
            if found.as_ref().is_some_and(is_wrapper) {
                continue;
            }
            if let Some(Found { image, .. }) = &found {
                if snapshot.field == field::POINTEE || loaded.is_none() {
                    loaded = Some(image.hash.clone());
                }
                if takes && self.known.insert(image.hash.clone()) {
                    sink.image(image)?;
                }
            }
            sink.image_use(&ImageUseRow {
                call: row,
                function: &call.signature.name,
                image: found.as_ref().map(|found| &found.image),
                is_kept: found.as_ref().is_some_and(|found| found.is_kept),
                content: found.as_ref().and_then(|found| found.content.as_deref()),
            })?;
        }
        Ok(loaded)
    }

    fn image<'b>(
        &mut self,
        trace: &'b Trace,
        bytes: Bytes<'b>,
        call: CallRef,
    ) -> Option<Found<'b>> {
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
                return Some(Found {
                    image,
                    kind: Some(kind),
                    is_kept: true,
                    content: Some(Cow::Borrowed(bytes)),
                });
            }
            Bytes::Hashed(length, hash) => {
                let digits = hash.iter().map(|byte| format!("{byte:02x}"));
                let image = ImageRow {
                    hash: digits.collect(),
                    kind: image_word(ImageKind::Unknown),
                    bytes: length,
                    call,
                };
                return Some(Found {
                    image,
                    kind: None,
                    is_kept: false,
                    content: None,
                });
            }
            Bytes::InFile(range) => range.blob(),
            Bytes::Blob(blob) => blob,
            Bytes::Omitted(_) | Bytes::Unreadable => return None,
        };
        if let Some(known) = self.by_blob.get(&blob) {
            let is_wrapper = known.kind == image_word(ImageKind::FatbinWrapper);
            return Some(Found {
                image: ImageRow {
                    call,
                    ..known.clone()
                },
                kind: is_wrapper.then_some(ImageKind::FatbinWrapper),
                is_kept: true,
                content: None,
            });
        }
        let content = trace.resolve(bytes).ok()?;
        let (image, kind) = row(&content);
        self.by_blob.insert(blob, image.clone());
        Some(Found {
            image,
            kind: Some(kind),
            is_kept: true,
            content: Some(content),
        })
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
