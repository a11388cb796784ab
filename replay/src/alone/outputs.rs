//! What work changed that is left out because it exchanged data with other processes: it is put
//! back from the recording, in the order of its stream.

use cutape_format::layout::exchange_skip;
use cutape_format::{Bytes, Snapshot};
use cutape_registry::{Kind, id};

use crate::api::{Api, Code, result_name};
use crate::compare::payload::Payload;
use crate::place::address::Found;
use crate::plan::exchange_outputs::{Piece, Stored};
use crate::player::Job;
use crate::player::stream::stream_argument;

impl Job<'_, '_> {
    /// Puts back what the call changed. The error says why some of it is missing.
    pub(crate) fn put_exchange_outputs(&mut self) -> Result<(), String> {
        let plan = self.plan;
        let Some(known) = plan.exchange_outputs.of(self.call.index) else {
            return Err(match plan.exchange_outputs.are_recorded() {
                true => "the trace does not say what it changed".to_owned(),
                false => "the trace does not have what it changed: record with \
                     --outputs-of-exchanges"
                    .to_owned(),
            });
        };
        if self.current.is_captured {
            return Err("it is captured into a graph".to_owned());
        }
        if known.kept > 0 && known.pieces.is_empty() {
            return Err("the recording ended before it was complete".to_owned());
        }
        let per_thread = self.function.per_thread;
        let stream = stream_argument(self.call, self.function).unwrap_or(0);
        let stream = self
            .live_handle(Kind::Stream, stream)
            .map_err(|skip| skip.reason)?;
        for piece in &known.pieces {
            self.put_piece_of_exchange(piece, (stream, per_thread))?;
        }
        match known.left_out {
            0 => Ok(()),
            bytes => Err(format!(
                "the recorder kept {} of {} bytes that it may have changed ({})",
                known.kept,
                known.kept.saturating_add(bytes),
                why_left_out(known.reason)
            )),
        }
    }

    fn put_piece_of_exchange(&mut self, piece: &Piece, stream: (u64, bool)) -> Result<(), String> {
        let bytes = match &piece.bytes {
            Stored::Inline(bytes) => Payload::Here(bytes.clone().into()),
            Stored::Blob(blob) => self.payload(&Snapshot {
                parameter: 0,
                field: 0,
                flags: 0,
                bytes: Bytes::Blob(*blob),
            }),
            Stored::Missing => Payload::Unreadable,
        };
        let Payload::Here(bytes) = bytes else {
            return Err("its bytes were left out of the trace".to_owned());
        };
        if bytes.is_empty() {
            return Ok(());
        }
        let length = bytes.len() as u64;
        let live = match self.ranges.find(piece.address) {
            Found::Live(range, offset) if offset.saturating_add(length) <= range.length => {
                range.live.wrapping_add(offset)
            }
            _ => return Err("the replay does not have memory that it changed".to_owned()),
        };
        self.look_for_stale(&bytes);
        let put = self.api.write_on_stream(live, &bytes, stream);
        put.map_err(|code| format!("writing its bytes returned {}", result_name(code)))?;
        let (call, state) = (self.call, &mut **self.player);
        if let Some(recorder) = &mut state.issuer.recorder {
            let context = state.api.current_context().unwrap_or(0);
            recorder.put(call, (live, &bytes), stream, context);
        }
        self.report.exchanges.bytes_put += length;
        Ok(())
    }
}

fn why_left_out(reason: u8) -> &'static str {
    match reason {
        exchange_skip::GRAPH => "in a graph",
        exchange_skip::FULL => "its memory for copies was full",
        exchange_skip::LONG => "longer than it keeps",
        exchange_skip::REFUSED => "the driver refused a copy",
        _ => "no reason given",
    }
}

/// Typed driver calls that putting back makes.
impl Api {
    /// Writes device memory, ordered on a live stream.
    fn write_on_stream(
        &self,
        address: u64,
        bytes: &[u8],
        (stream, per_thread): (u64, bool),
    ) -> Result<(), Code> {
        let id = match per_thread {
            true => id::cuMemcpyHtoDAsync_v2_ptsz,
            false => id::cuMemcpyHtoDAsync_v2,
        };
        // The driver has read pageable memory when it returns (CUDA Driver API, "API
        // synchronization behavior").
        let length = bytes.len() as u64;
        self.own(id, &[address, bytes.as_ptr() as u64, length, stream])
    }
}
