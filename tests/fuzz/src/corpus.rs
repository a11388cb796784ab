//! What inputs are made of.

use std::fs;
use std::path::{Path, PathBuf};

use cutape_format::Trace;
use cutape_format::layout::BlobRef;
use cutape_image::{ImageKind, kind};

use crate::trace::Parts;

/// Folders of the repository with small traces.
const FOLDERS: &[&str] = &[
    "format/tests/golden",
    "traces/clean",
    "traces/misuse",
    "traces/frameworks",
];
/// The largest input: larger ones take long to read without saying more.
const LARGEST: usize = 160 << 10;
/// The same for readers in the process.
const LARGEST_CUT: usize = 64 << 10;
const LARGEST_IMAGE: usize = 24 << 10;

/// Traces and images.
pub struct Corpus {
    /// Traces with their files.
    pub traces: Vec<(PathBuf, Parts)>,
    /// The same cut, for readers in the process.
    pub cut: Vec<Parts>,
    /// Images.
    pub images: Vec<Vec<u8>>,
}

impl Corpus {
    /// The small traces below the root of the repository, and the images in them.
    ///
    /// # Panics
    /// If a file cannot be read.
    pub fn below(root: &Path) -> Self {
        let mut files: Vec<PathBuf> = FOLDERS
            .iter()
            .flat_map(|folder| fs::read_dir(root.join(folder)).unwrap())
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|ending| ending == "cutape"))
            .collect();
        files.sort();
        let mut images = vec![fs::read(root.join("driver/src/mix.ptx")).unwrap()];
        let mut traces = Vec::new();
        for path in files {
            let bytes = fs::read(&path).unwrap();
            if bytes.len() > LARGEST {
                continue;
            }
            let trace = Trace::open_damaged(&path).unwrap();
            for (position, length) in trace.blobs() {
                let blob = BlobRef { position, length };
                images.extend(trace.blob(blob).ok().map(|bytes| bytes.to_vec()));
            }
            traces.extend(Parts::of(&bytes).map(|parts| (path, parts)));
        }
        images.retain(|image| image.len() <= LARGEST_IMAGE && kind(image) != ImageKind::Unknown);
        images.sort();
        images.dedup();
        let cut = traces.iter().map(|(_, parts)| parts.clone().cut());
        let cut = cut.filter(|parts| parts.written().len() <= LARGEST_CUT);
        Self {
            cut: cut.collect(),
            traces,
            images,
        }
    }

    /// A trace that every reader takes, and its file.
    ///
    /// # Panics
    /// If it is not there.
    pub fn sound(&self) -> (&Path, &Parts) {
        let is_sound = |path: &Path| path.ends_with("traces/clean/events.cutape");
        let (path, parts) = self.traces.iter().find(|(path, _)| is_sound(path)).unwrap();
        (path, parts)
    }
}
