//! The module images that a trace holds.

use std::collections::HashMap;

use cutape_analyzer::decode::is_image;
use cutape_format::{Call, Snapshot, Trace};
use cutape_image::ImageKind;
use serde::Serialize;

use crate::render::images::{ImageFacts, ImageReader};

/// An image of the trace.
#[derive(Debug, Serialize)]
pub(crate) struct RecordedImage {
    #[serde(flatten)]
    pub(crate) facts: ImageFacts,
    /// The first call that uses it.
    pub(crate) call: u64,
    /// Its function.
    pub(crate) function: String,
    /// The number of calls that use it.
    pub(crate) uses: u64,
}

/// All images of a trace, without duplicates.
#[derive(Debug, Default)]
pub(crate) struct Images {
    reader: ImageReader,
    by_hash: HashMap<(u64, u64), usize>,
    /// In the order of first use.
    pub(crate) list: Vec<RecordedImage>,
    /// Uses of images whose bytes are missing.
    pub(crate) missing: u64,
}

impl Images {
    /// Adds the images of a call.
    pub(crate) fn observe(&mut self, trace: &Trace, call: &Call<'_>) {
        let post_call = call.leave.iter().flat_map(|leave| leave.snapshots());
        for snapshot in call.snapshots().chain(post_call) {
            self.snapshot(trace, call, snapshot);
        }
    }

    fn snapshot(&mut self, trace: &Trace, call: &Call<'_>, snapshot: Snapshot<'_>) {
        if !is_image(call, usize::from(snapshot.parameter), snapshot.field) {
            return;
        }
        let Some((hash, facts)) = self.reader.read(trace, snapshot.bytes) else {
            self.missing += 1;
            return;
        };
        // The container in it has its own snapshot.
        if facts.kind == ImageKind::FatbinWrapper {
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
}

#[cfg(test)]
mod tests {
    use cutape_format::layout::{field, snapshot_flag};
    use cutape_format::{NewCall, NewSnapshot, TraceBuilder};

    use super::*;
    use crate::test_trace;

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
        let (list, missing) = (images.list, images.missing);
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
