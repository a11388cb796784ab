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

    #[test]
    fn directions_and_sizes() {
        let none = Copies::default();
        type Case = (&'static str, Vec<u64>, Vec<u8>, i32, Copies);
        let cases: Vec<Case> = vec![
            (
                "cuMemcpyHtoD_v2",
                vec![1, 2, 100],
                vec![],
                0,
                Copies {
                    host_to_device_bytes: 100,
                    ..none
                },
            ),
            ("cuMemcpyHtoD_v2", vec![1, 2, 100], vec![], 1, none),
            (
                "cuMemcpyDtoHAsync_v2",
                vec![1, 2, 7, 0],
                vec![],
                0,
                Copies {
                    device_to_host_bytes: 7,
                    ..none
                },
            ),
            (
                "cuMemcpyPeer",
                vec![1, 2, 3, 4, 9],
                vec![],
                0,
                Copies {
                    device_to_device_bytes: 9,
                    ..none
                },
            ),
            // The device memory of the test is 0x1000..0x1100.
            (
                "cuMemcpy",
                vec![0x1000, 0x7000, 5],
                vec![],
                0,
                Copies {
                    host_to_device_bytes: 5,
                    ..none
                },
            ),
            (
                "cuMemcpyAsync",
                vec![0x8000, 0x7000, 5, 0],
                vec![],
                0,
                Copies {
                    host_to_host_bytes: 5,
                    ..none
                },
            ),
            (
                "cuMemcpy2D_v2",
                vec![0x10],
                copy_2d((1, 0), (2, 0x1000), 6, 7),
                0,
                Copies {
                    host_to_device_bytes: 42,
                    ..none
                },
            ),
            (
                "cuMemcpy2D_v2",
                vec![0x10],
                copy_2d((4, 0x1010), (3, 0), 6, 7),
                0,
                Copies {
                    device_to_device_bytes: 42,
                    ..none
                },
            ),
            (
                "cuMemcpy2D_v2",
                vec![0x10],
                copy_2d((9, 0), (3, 0), 6, 7),
                0,
                Copies {
                    unknown_copies: 1,
                    ..none
                },
            ),
            (
                "cuMemcpy2D_v2",
                vec![0x10],
                vec![1, 2],
                0,
                Copies {
                    unknown_copies: 1,
                    ..none
                },
            ),
            (
                "cuMemsetD8_v2",
                vec![1, 0, 10],
                vec![],
                0,
                Copies {
                    filled_bytes: 10,
                    ..none
                },
            ),
            (
                "cuMemsetD16_v2",
                vec![1, 0, 10],
                vec![],
                0,
                Copies {
                    filled_bytes: 20,
                    ..none
                },
            ),
            (
                "cuMemsetD32Async",
                vec![1, 0, 10, 0],
                vec![],
                0,
                Copies {
                    filled_bytes: 40,
                    ..none
                },
            ),
            (
                "cuMemsetD2D32_v2",
                vec![1, 64, 0, 3, 5],
                vec![],
                0,
                Copies {
                    filled_bytes: 60,
                    ..none
                },
            ),
            (
                "cuMemsetD2D8_v2",
                vec![1, 64, 0, 3, 5],
                vec![],
                0,
                Copies {
                    filled_bytes: 15,
                    ..none
                },
            ),
        ];
        for (name, arguments, pointee, result, expected) in cases {
            let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
            builder
                .call(NewCall {
                    name: "cuMemAlloc_v2",
                    arguments: &[1, 0x100],
                    ..NewCall::default()
                })
                .leave(0, 0, &[NewSnapshot::pointee(0, &0x1000_u64.to_le_bytes())]);
            let snapshot = [NewSnapshot::pointee(0, &pointee)];
            builder
                .call(NewCall {
                    name,
                    arguments: &arguments,
                    snapshots: if pointee.is_empty() { &[] } else { &snapshot },
                    ..NewCall::default()
                })
                .leave(0, result, &[]);
            let copies = summary_of(&builder, "copies").copies;
            assert_eq!(copies, expected, "{name} {arguments:?}");
        }
    }
}
