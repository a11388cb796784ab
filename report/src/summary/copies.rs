//! How many bytes were copied, from where to where.

use cutape_export::rows::CopyRow;
use serde::Serialize;

/// Bytes of successful copies and fills.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Copies {
    /// From the host to a device.
    pub host_to_device_bytes: u64,
    /// From a device to the host.
    pub device_to_host_bytes: u64,
    /// On a device, and between two.
    pub device_to_device_bytes: u64,
    /// From host memory to host memory.
    pub host_to_host_bytes: u64,
    /// Written by `cuMemset*`.
    pub filled_bytes: u64,
    /// Copies whose size or direction the trace lacks.
    pub unknown_copies: u64,
}

impl Copies {
    /// Adds a copy or a fill; failed calls and those in flight count nothing.
    pub(super) fn add(&mut self, row: &CopyRow) {
        if !row.call.succeeded() {
            return;
        }
        let bytes = row.bytes.unwrap_or(0);
        let total = match (row.is_memset, row.from, row.to) {
            (true, ..) => &mut self.filled_bytes,
            (false, Some(from), Some(to)) => match (from.is_device(), to.is_device()) {
                (false, true) => &mut self.host_to_device_bytes,
                (true, false) => &mut self.device_to_host_bytes,
                (true, true) => &mut self.device_to_device_bytes,
                (false, false) => &mut self.host_to_host_bytes,
            },
            _ => {
                self.unknown_copies += 1;
                return;
            }
        };
        *total = total.saturating_add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use cutape_format::{NewCall, NewSnapshot, TraceBuilder};

    use super::*;
    use crate::summary::tests::summary_of;

    fn copy_2d(from: (u32, u64), to: (u32, u64), width: u64, height: u64) -> Vec<u8> {
        let mut bytes = vec![0; 128];
        bytes[16..20].copy_from_slice(&from.0.to_le_bytes());
        bytes[32..40].copy_from_slice(&from.1.to_le_bytes());
        bytes[72..76].copy_from_slice(&to.0.to_le_bytes());
        bytes[88..96].copy_from_slice(&to.1.to_le_bytes());
        bytes[112..120].copy_from_slice(&width.to_le_bytes());
        bytes[120..128].copy_from_slice(&height.to_le_bytes());
        bytes
    }

    type Total = fn(&mut Copies) -> &mut u64;
    const TO_DEVICE: Total = |copies| &mut copies.host_to_device_bytes;
    const TO_HOST: Total = |copies| &mut copies.device_to_host_bytes;
    const ON_DEVICE: Total = |copies| &mut copies.device_to_device_bytes;
    const ON_HOST: Total = |copies| &mut copies.host_to_host_bytes;
    const FILLED: Total = |copies| &mut copies.filled_bytes;
    const UNKNOWN: Total = |copies| &mut copies.unknown_copies;

    /// Asserts that a call adds this to one total, and nothing to the others. The device memory of
    /// the test is 0x1000..0x1100.
    fn assert_adds(
        (name, arguments): (&'static str, &[u64]),
        (pointee, result): (&[u8], i32),
        (total, added): (Total, u64),
    ) {
        let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
        builder
            .call(NewCall {
                name: "cuMemAlloc_v2",
                arguments: &[1, 0x100],
                ..NewCall::default()
            })
            .leave(0, 0, &[NewSnapshot::pointee(0, &0x1000_u64.to_le_bytes())]);
        let snapshot = [NewSnapshot::pointee(0, pointee)];
        builder
            .call(NewCall {
                name,
                arguments,
                snapshots: if pointee.is_empty() { &[] } else { &snapshot },
                ..NewCall::default()
            })
            .leave(0, result, &[]);
        let mut expected = Copies::default();
        *total(&mut expected) = added;
        let copies = summary_of(&builder, "copies").copies;
        assert_eq!(copies, expected, "{name} {arguments:?}");
    }

    #[test]
    fn directions_and_sizes() {
        let cases: &[(&str, &[u64], Total, u64)] = &[
            ("cuMemcpyHtoD_v2", &[1, 2, 100], TO_DEVICE, 100),
            ("cuMemcpyDtoHAsync_v2", &[1, 2, 7, 0], TO_HOST, 7),
            ("cuMemcpyPeer", &[1, 2, 3, 4, 9], ON_DEVICE, 9),
            ("cuMemcpy", &[0x1000, 0x7000, 5], TO_DEVICE, 5),
            ("cuMemcpyAsync", &[0x8000, 0x7000, 5, 0], ON_HOST, 5),
            ("cuMemsetD8_v2", &[1, 0, 10], FILLED, 10),
            ("cuMemsetD16_v2", &[1, 0, 10], FILLED, 20),
            ("cuMemsetD32Async", &[1, 0, 10, 0], FILLED, 40),
            ("cuMemsetD2D32_v2", &[1, 64, 0, 3, 5], FILLED, 60),
            ("cuMemsetD2D8_v2", &[1, 64, 0, 3, 5], FILLED, 15),
        ];
        for &(name, arguments, total, bytes) in cases {
            assert_adds((name, arguments), (&[], 0), (total, bytes));
            assert_adds((name, arguments), (&[], 1), (total, 0));
        }
    }

    #[test]
    fn descriptions() {
        let plane = |from, to| copy_2d(from, to, 6, 7);
        for (described, total, added) in [
            (plane((1, 0), (2, 0x1000)), TO_DEVICE, 42),
            (plane((4, 0x1010), (3, 0)), ON_DEVICE, 42),
            (plane((9, 0), (3, 0)), UNKNOWN, 1),
            (vec![1, 2], UNKNOWN, 1),
        ] {
            let call = ("cuMemcpy2D_v2", &[0x10][..]);
            assert_adds(call, (&described, 0), (total, added));
        }
    }
}
