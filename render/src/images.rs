//! What a module image holds.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use cutape_analyzer::decode::image_word;
use cutape_format::layout::BlobRef;
use cutape_format::{Bytes, Trace};
use cutape_image::{CodeKind, ImageKind};
use serde::Serialize;

/// What an image contains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ImageFacts {
    /// `cubin`, `fatbin`, `fatbin wrapper`, `PTX`, `host object`, `host archive`, `NVVM` or
    /// `unknown`.
    #[serde(rename = "image")]
    pub name: &'static str,
    /// The same.
    #[serde(skip)]
    pub kind: ImageKind,
    /// Its length.
    pub bytes: u64,
    /// The targets of its entries, in order and without duplicates: `sm_90`, `PTX sm_80`.
    pub targets: Vec<String>,
    /// The number of cubins, PTX texts and so on.
    pub entries: usize,
    /// The names of its kernels, as in the image and without duplicates.
    pub kernels: Vec<String>,
    /// Why the image or an entry cannot be read.
    pub problem: Option<String>,
}

impl ImageFacts {
    /// Parses an image.
    pub fn of(bytes: &[u8]) -> Self {
        let kind = cutape_image::kind(bytes);
        let mut facts = Self {
            name: image_word(kind),
            kind,
            bytes: bytes.len() as u64,
            targets: Vec::new(),
            entries: 0,
            kernels: Vec::new(),
            problem: None,
        };
        if !matches!(kind, ImageKind::Cubin | ImageKind::Fatbin | ImageKind::Ptx) {
            return facts;
        }
        let image = match cutape_image::parse(bytes) {
            Ok(image) => image,
            Err(problem) => {
                facts.problem = Some(problem.to_string());
                return facts;
            }
        };
        facts.entries = image.entries.len();
        for entry in &image.entries {
            let target = match (entry.target, entry.code) {
                (Some(target), CodeKind::Elf) => target.to_string(),
                // The kind already says PTX.
                (Some(target), CodeKind::Ptx) if kind == ImageKind::Ptx => target.to_string(),
                (Some(target), CodeKind::Ptx) => format!("PTX {target}"),
                (Some(target), CodeKind::LtoIr) => format!("LTO {target}"),
                (Some(target), CodeKind::Other(number)) => format!("kind {number} {target}"),
                (None, _) => "no target".to_owned(),
            };
            if !facts.targets.contains(&target) {
                facts.targets.push(target);
            }
            match &entry.content {
                Ok(content) => {
                    facts.kernels.extend(
                        content
                            .functions
                            .iter()
                            .filter(|f| f.is_entry)
                            .map(|f| f.name.clone()),
                    );
                }
                Err(problem) => {
                    facts.problem.get_or_insert_with(|| problem.to_string());
                }
            }
        }
        facts.kernels.sort_unstable();
        facts.kernels.dedup();
        facts
    }
}

impl fmt::Display for ImageFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} bytes", self.name, self.bytes)?;
        if !self.targets.is_empty() {
            write!(f, " {}", self.targets.join(" "))?;
        }
        Ok(())
    }
}

/// Parses images, each blob once.
#[derive(Debug, Default)]
pub struct ImageReader {
    known: HashMap<BlobRef, (u64, ImageFacts)>,
}

impl ImageReader {
    /// The facts of the image in a snapshot, and a hash of its bytes; `None` if the trace lacks
    /// them.
    pub fn read(&mut self, trace: &Trace, bytes: Bytes<'_>) -> Option<(u64, ImageFacts)> {
        let blob = match bytes {
            Bytes::Inline(bytes) => return Some((hash(bytes), ImageFacts::of(bytes))),
            Bytes::InFile(range) => range.blob(),
            Bytes::Blob(blob) => blob,
            Bytes::Omitted(_) | Bytes::Hashed(..) | Bytes::Unreadable => return None,
        };
        if let Some(known) = self.known.get(&blob) {
            return Some(known.clone());
        }
        let content = trace.resolve(bytes).ok()?;
        let facts = (hash(&content), ImageFacts::of(&content));
        self.known.insert(blob, facts.clone());
        Some(facts)
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}
