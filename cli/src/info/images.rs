//! What module images a trace holds.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use cutape_analyzer::decode::{image_word, is_image};
use cutape_format::layout::BlobRef;
use cutape_format::{Bytes, Call, Snapshot, Trace};
use cutape_image::{CodeKind, ImageKind};
use serde::Serialize;

/// What an image is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ImageFacts {
    /// `cubin`, `fatbin`, `fatbin wrapper`, `PTX`, `host object`, `host archive`, `NVVM`, `unknown`.
    #[serde(rename = "image")]
    pub(crate) kind: &'static str,
    /// Its length.
    pub(crate) bytes: u64,
    /// What its entries are for, in order: `sm_90`, `PTX sm_80`; several of one target stand once.
    pub(crate) targets: Vec<String>,
    /// How many cubins, PTX texts and so on it has.
    pub(crate) entries: usize,
    /// Names of its kernels, as in the image; those of several entries stand once.
    pub(crate) kernels: Vec<String>,
    /// Why it, or an entry, cannot be read.
    pub(crate) problem: Option<String>,
}

impl ImageFacts {
    /// Looks into an image.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let kind = cutape_image::kind(bytes);
        let mut facts = Self {
            kind: image_word(kind),
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
                // What else a PTX text would be is said by the kind.
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
        write!(f, "{} {} bytes", self.kind, self.bytes)?;
        if !self.targets.is_empty() {
            write!(f, " {}", self.targets.join(" "))?;
        }
        Ok(())
    }
}

/// Looks into images, each blob once.
#[derive(Debug, Default)]
pub(crate) struct ImageReader {
    known: HashMap<BlobRef, (u64, ImageFacts)>,
}

impl ImageReader {
    /// What the image in a snapshot is, with a hash of its bytes; the error says why the bytes are not there.
    pub(crate) fn read(
        &mut self,
        trace: &Trace,
        bytes: Bytes<'_>,
    ) -> Result<(u64, ImageFacts), String> {
        match bytes {
            Bytes::Inline(bytes) => Ok((hash(bytes), ImageFacts::of(bytes))),
            Bytes::Blob(_) | Bytes::InFile(_) => {
                let blob = match bytes {
                    Bytes::InFile(range) => range.blob(),
                    Bytes::Blob(blob) => blob,
                    _ => return Err("not kept".into()),
                };
                if let Some(known) = self.known.get(&blob) {
                    return Ok(known.clone());
                }
                let content = trace.resolve(bytes).map_err(|damage| damage.what)?;
                let facts = (hash(&content), ImageFacts::of(&content));
                self.known.insert(blob, facts.clone());
                Ok(facts)
            }
            Bytes::Omitted(_) => Err("not kept".into()),
            Bytes::Hashed(..) => Err("not kept, only hashed".into()),
            Bytes::Unreadable => Err("unreadable".into()),
        }
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// An image of the trace.
#[derive(Debug, Serialize)]
pub(crate) struct RecordedImage {
    #[serde(flatten)]
    pub(crate) facts: ImageFacts,
    /// The first call that has it.
    pub(crate) call: u64,
    /// Its function.
    pub(crate) function: String,
    /// How many calls have it.
    pub(crate) uses: u64,
}

/// All images of a trace, each content once.
#[derive(Debug, Default)]
pub(crate) struct Images {
    reader: ImageReader,
    by_hash: HashMap<(u64, u64), usize>,
    list: Vec<RecordedImage>,
    /// Image snapshots whose bytes are not there.
    missing: u64,
}

impl Images {
    /// Takes in a call.
    pub(crate) fn observe(&mut self, trace: &Trace, call: &Call<'_>) {
        for snapshot in call.snapshots() {
            self.snapshot(trace, call, snapshot);
        }
        for snapshot in call.leave.iter().flat_map(|leave| leave.snapshots()) {
            self.snapshot(trace, call, snapshot);
        }
    }

    fn snapshot(&mut self, trace: &Trace, call: &Call<'_>, snapshot: Snapshot<'_>) {
        if !is_image(call, usize::from(snapshot.parameter), snapshot.field) {
            return;
        }
        let Ok((hash, facts)) = self.reader.read(trace, snapshot.bytes) else {
            self.missing += 1;
            return;
        };
        // Its container is a snapshot of its own.
        if facts.kind == "fatbin wrapper" {
            return;
        }
        match self.by_hash.get(&(hash, facts.bytes)) {
            Some(&place) => self.list[place].uses += 1,
            None => {
                self.by_hash.insert((hash, facts.bytes), self.list.len());
                self.list.push(RecordedImage {
                    facts,
                    call: call.index,
                    function: call.signature.name.clone(),
                    uses: 1,
                });
            }
        }
    }

    /// The images, in the order of their first use, and how many times the bytes of one were not kept.
    pub(crate) fn finish(self) -> (Vec<RecordedImage>, u64) {
        (self.list, self.missing)
    }
}

#[cfg(test)]
mod tests {
    use cutape_format::layout::{field, snapshot_flag};
    use cutape_format::{NewCall, NewSnapshot, TraceBuilder};

    use super::*;
    use crate::call_set::test_trace;

    const PTX: &[u8] =
        b".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n\0";

    #[test]
    fn images_of_a_trace() {
        let long = [PTX, &vec![b' '; 20 << 10]].concat();
        let wrapper = [
            0xb1, 0x43, 0x62, 0x46, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        let omitted = 100_u64.to_le_bytes();
        let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
        let snapshots: [&[NewSnapshot<'_>]; 5] = [
            &[NewSnapshot::pointee(1, PTX)],
            &[NewSnapshot::pointee(1, &long)],
            &[NewSnapshot::pointee(1, &long)],
            &[
                NewSnapshot::pointee(1, &wrapper),
                NewSnapshot::piece(1, field::FATBIN, b"junk"),
            ],
            &[NewSnapshot {
                parameter: 1,
                field: field::POINTEE,
                flags: snapshot_flag::OMITTED,
                bytes: &omitted,
            }],
        ];
        for snapshots in snapshots {
            builder
                .call(NewCall {
                    name: "cuModuleLoadData",
                    arguments: &[1, 2],
                    snapshots,
                    ..NewCall::default()
                })
                .leave(0, 0, &[]);
        }
        let trace = test_trace::open(&builder, "images");
        let mut images = Images::default();
        for call in trace.calls() {
            images.observe(&trace, &call);
        }
        let (list, missing) = images.finish();
        let found: Vec<_> = list
            .iter()
            .map(|image| (image.facts.to_string(), image.call, image.uses))
            .collect();
        assert_eq!(
            found,
            [
                (format!("PTX {} bytes sm_80", PTX.len()), 0, 1),
                (format!("PTX {} bytes sm_80", long.len()), 1, 2),
                ("unknown 4 bytes".into(), 3, 1),
            ]
        );
        assert_eq!(list[0].facts.kernels, ["k"]);
        assert_eq!(missing, 1);
    }
}
