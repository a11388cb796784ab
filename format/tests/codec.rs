//! wincode reads and writes the same bytes as the frozen encoding, so it can replace bincode 2.0.1.

use cutape_format::codec;
use cutape_format::layout::{
    BUFFER_NOTE_LENGTH, BlobRef, BreadcrumbNote, BufferNote, CHUNK_HEAD_LENGTH, ChunkHead,
    DescriptorNote, DigestNote, DigestSetupNote, DigestSkippedNote, DigestVoidNote,
    DriverMessageNote, ENTER_HEAD_LENGTH, EnterHead, ExchangeNote, ExchangeOutputNote,
    FILE_HEAD_ENCODED, FileHead, FramesNote, GapNote, HostChangedNote, HostFunctionNote,
    HostSkippedNote, LEAVE_HEAD_LENGTH, LayoutNote, LeaveHead, LookedNote, MarkerNote, MemoryNote,
    MemorySnapshotNote, NestedCallNote, OriginNote, PythonCodeNote, ReadbackNote,
    SNAPSHOT_HEAD_LENGTH, SharedMappingNote, SnapshotHead, SourceChangedNote, TextHead, ThreadNote,
    ZeroedNote,
};
use cutape_format::{Mapping, SourceFrame, Symbol};
use proptest::prelude::*;
use wincode::{SchemaRead, SchemaWrite};

/// Declares a twin of a struct of `layout` for wincode, and the test that both encode alike. The
/// twin names all fields, so a field that is added to one side only does not compile.
macro_rules! twins {
    ($($test:ident: $name:ident { $($field:ident: $type:ty),* } $length:expr;)*) => {
        mod twin {
            use super::*;
            $(
                #[derive(Debug, PartialEq, SchemaRead, SchemaWrite)]
                pub(super) struct $name { $(pub(super) $field: $type),* }
            )*
        }
        proptest! {
            $(
                #[test]
                fn $test($($field: $type),*) {
                    let ours = $name { $($field: $field.clone()),* };
                    let theirs = twin::$name { $($field),* };
                    let bytes = codec::encode_to_vec(ours.clone());
                    let length: Option<usize> = $length;
                    prop_assert!(length.is_none_or(|length| length == bytes.len()));
                    prop_assert_eq!(&wincode::serialize(&theirs).unwrap(), &bytes);
                    prop_assert_eq!(wincode::deserialize::<twin::$name>(&bytes).unwrap(), theirs);
                    let (back, used) = codec::decode::<$name>(&bytes).unwrap();
                    prop_assert_eq!(used, bytes.len());
                    prop_assert_eq!(back, ours);
                }
            )*
        }
    };
}

twins! {
    file_head: FileHead {
        magic: [u8; 8], major: u32, minor: u32, head_length: u32, flags: u32, process: u32,
        clock: u32, start_unix: u64, start_ticks: u64, ticks_per_second: u64, index: u64,
        checksum: u32
    } Some(FILE_HEAD_ENCODED);
    chunk_head: ChunkHead {
        magic: u32, kind: u16, flags: u16, length: u64, thread: u32, sequence: u32, used: u64,
        first: u64, ticks: u64, nanoseconds: u64, body_checksum: u32, head_checksum: u32
    } Some(CHUNK_HEAD_LENGTH);
    buffer_note: BufferNote {
        sequence: u32, first: u64, ticks: u64, nanoseconds: u64
    } Some(BUFFER_NOTE_LENGTH - 12);
    enter_head: EnterHead { ticks: u64, caller: u64 } Some(ENTER_HEAD_LENGTH);
    leave_head: LeaveHead { ticks: u64, result: i32 } Some(LEAVE_HEAD_LENGTH);
    snapshot_head: SnapshotHead {
        parameter: u8, field: u8, flags: u16, length: u32
    } Some(SNAPSHOT_HEAD_LENGTH);
    blob_ref: BlobRef { position: u64, length: u64 } Some(16);
    thread_note: ThreadNote { number: u32, name: [u8; 16] } Some(20);
    layout_note: LayoutNote { handle: u64, count: u32 } Some(12);
    origin_note: OriginNote { handle: u64, owner: u64, is_kernel: u8 } Some(17);
    host_changed_note: HostChangedNote { address: u64, is_after: u8 } Some(9);
    looked_note: LookedNote { ticks: u64 } Some(8);
    gap_note: GapNote { calls: u64, pause: u32, paused: u64, resumed: u64 } Some(28);
    nested_call_note: NestedCallNote { caller: u64, result: i32, function: u16 } Some(14);
    breadcrumb_note: BreadcrumbNote {
        context: u64, stream: u64, address: u64, value: u32, kind: u8
    } Some(29);
    host_skipped_note: HostSkippedNote { address: u64, length: u64, reason: u8 } Some(17);
    zeroed_note: ZeroedNote { address: u64, length: u64 } Some(16);
    digest_setup_note: DigestSetupNote { context: u64, result: i32 } Some(12);
    digest_note: DigestNote { first: u64, context: u64, is_before: u8, reach: u8 } Some(18);
    digest_void_note: DigestVoidNote { first: u64, count: u64 } Some(16);
    digest_skipped_note: DigestSkippedNote { reason: u8 } Some(1);
    host_function_note: HostFunctionNote { thread: u32, number: u64, begun: u64, ended: u64 } Some(28);
    source_changed_note: SourceChangedNote { thread: u32, number: u64, address: u64, length: u64 } Some(28);
    descriptor_note: DescriptorNote {
        descriptor: u32, mode: u32, device: u64, inode: u64, size: u64, owner: u32,
        mark: u32
    } Some(40);
    shared_mapping_note: SharedMappingNote {
        address: u64, length: u64, device: u64, inode: u64, offset: u64
    } Some(40);
    memory_snapshot_note: MemorySnapshotNote {
        number: u64, bytes: u64, left_out: u64, nanoseconds: u64, result: i32, state: u8
    } Some(37);
    memory_note: MemoryNote {
        address: u64, length: u64, fill: u64, owner: u64, is_library: u8, name_length: u16
    } Some(35);
    driver_message_note: DriverMessageNote { level: u32 } Some(4);
    marker_note: MarkerNote {
        ticks: u64, thread: u32, number: u32, id: u64, payload: u64, category: u32, color: u32,
        action: u8, source: u8, payload_type: u8, domain_length: u16, text_length: u32
    } Some(MarkerNote::LENGTH);
    exchange_note: ExchangeNote { kept: u64, left_out: u64, reason: u8 } Some(17);
    exchange_output_note: ExchangeOutputNote {
        thread: u32, number: u64, address: u64
    } Some(20);
    readback_note: ReadbackNote { thread: u32, number: u64, address: u64 } Some(20);
    frames_note: FramesNote { id: u64, flags: u64 } Some(16);
    python_code_note: PythonCodeNote { id: u64, version: u32, first_line: u32 } Some(16);
    text_head: TextHead { width: u32, length: u32 } Some(8);
    mapping: Mapping { start: u64, end: u64, offset: u64, path: String, build_id: Vec<u8> } None;
    symbol: Symbol { address: u64, text: String } None;
    source_frame: SourceFrame { function: String, file: String, line: u32 } None;
}

proptest! {
    #[test]
    fn meta(entries: Vec<(String, String)>) {
        let bytes = codec::encode_to_vec(&entries);
        prop_assert_eq!(&wincode::serialize(&entries).unwrap(), &bytes);
        prop_assert_eq!(wincode::deserialize::<Vec<(String, String)>>(&bytes).unwrap(), entries);
    }

    #[test]
    fn nothing_decodes_into_a_panic(bytes: Vec<u8>, huge: u64) {
        let claim = [&huge.to_le_bytes()[..], &bytes].concat();
        let _ = codec::decode::<Vec<(String, String)>>(&claim);
        let _ = codec::decode::<Vec<Mapping>>(&claim);
        let _ = codec::decode::<FileHead>(&bytes);
    }
}

#[test]
fn a_length_of_terabytes_is_refused() {
    let claim = [&(1_u64 << 62).to_le_bytes()[..], &[0; 64]].concat();
    assert!(codec::decode::<Vec<(String, String)>>(&claim).is_none());
    assert!(codec::decode::<String>(&claim).is_none());
}
