//! The module images that a trace holds.

use std::collections::HashMap;

use cutape_export::rows::ImageUseRow;
use cutape_render::ImageFacts;
use serde::Serialize;

/// An image of the trace.
#[derive(Debug, Serialize)]
pub struct RecordedImage {
    /// What it contains.
    #[serde(flatten)]
    pub facts: ImageFacts,
    /// The first call that uses it.
    pub call: u64,
    /// Its function.
    pub function: String,
    /// The number of calls that use it.
    pub uses: u64,
}

/// All images of a trace, without duplicates.
#[derive(Debug, Default)]
pub(super) struct Images {
    by_hash: HashMap<String, usize>,
    /// In the order of first use.
    pub(super) list: Vec<RecordedImage>,
    /// Uses of images whose bytes are missing.
    pub(super) missing: u64,
}

impl Images {
    /// Adds a use. The image and its bytes, if it is the first one.
    pub(super) fn add<'r>(&mut self, row: &ImageUseRow<'r>) -> Option<(&RecordedImage, &'r [u8])> {
        let Some(image) = row.image.filter(|_| row.is_kept) else {
            self.missing += 1;
            return None;
        };
        let known = self.by_hash.get(&image.hash);
        if let Some(known) = known.and_then(|place| self.list.get_mut(*place)) {
            known.uses += 1;
            None
        } else {
            let content = row.content?;
            self.by_hash.insert(image.hash.clone(), self.list.len());
            self.list.push(RecordedImage {
                facts: ImageFacts::of(content),
                call: row.call.index,
                function: row.function.to_owned(),
                uses: 1,
            });
            Some((self.list.last()?, content))
        }
    }
}

#[cfg(test)]
mod tests {
    use cutape_format::layout::{field, snapshot_flag};
    use cutape_format::{NewCall, NewSnapshot, TraceBuilder};

    use crate::summary::tests::summary_of;

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
        let summary = summary_of(&builder, "images");
        let (list, missing) = (summary.images, summary.images_not_kept);
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
