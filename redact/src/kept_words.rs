//! Which words of kernels' parameters stay: addresses and handles, as the trace shows them.

use std::collections::HashSet;

use cutape_format::layout::field;
use cutape_format::{Call, Error, Trace};
use cutape_model::{IntervalMap, Scope, TraceState, function_of};
use cutape_registry::{Kind, Role};

/// Bytes of a tensor map, and what its address is a multiple of.
const TENSOR_MAP: usize = 128;
const TENSOR_MAP_ALIGNMENT: usize = 64;

/// Objects whose handles kernels take.
const HANDLES: [Kind; 2] = [Kind::TextureObject, Kind::SurfaceObject];

/// Words that stay.
#[derive(Debug, Default)]
pub struct KeptWords {
    words: HashSet<u64>,
    /// Tensor maps, which hold an address.
    maps: HashSet<[u8; TENSOR_MAP]>,
    /// Addresses that memory, variables and reservations have had.
    ranges: IntervalMap<()>,
}

impl KeptWords {
    /// Those of a trace: in memory of the device or of the host that the driver knows at any time,
    /// handles of textures and surfaces, handles of conditions of graphs, and addresses of host
    /// memory that copies use.
    ///
    /// # Errors
    /// Damage of the trace.
    pub fn of(trace: &Trace) -> Result<Self, Error> {
        let mut kept = Self::default();
        let mut state = TraceState::new(Scope::Work);
        trace.walk().run(|call| {
            let words = parameter_words(call).filter(|&word| is_known(&state, word));
            kept.words.extend(words);
            kept.add_operands(call);
            let changes = state.observe(call).unwrap_or_default();
            let created = changes.created.iter();
            let objects = created.filter_map(|&id| state.state.objects.get(id));
            // The handle of an allocation is a number, and has a size.
            for object in objects.filter(|object| object.kind.is_address()) {
                let end = object.handle.saturating_add(object.size);
                kept.ranges.overwrite(&(object.handle..end), ());
            }
            Ok::<_, Error>(())
        })?;
        Ok(kept)
    }

    /// Whether a word stays.
    fn has(&self, word: u64) -> bool {
        self.words.contains(&word) || self.ranges.find(word).is_some()
    }

    /// What a call says about words of parameters, other than by making objects.
    fn add_operands(&mut self, call: &Call<'_>) {
        let Some(function) = function_of(call.signature) else {
            return;
        };
        for (position, param) in function.params.iter().enumerate() {
            let is_host = matches!(param.role, Role::HostRead(_) | Role::HostWrite(_));
            match (param.role, param.c_type) {
                _ if is_host => _ = self.words.insert(call.argument(position)),
                (Role::Out(_), "CUgraphConditionalHandle *") => {
                    self.words.extend(call.out(position))
                }
                (Role::Out(_) | Role::InOut(_), "CUtensorMap *") => {
                    let map = call
                        .out_bytes(position)
                        .and_then(|bytes| bytes.first_chunk());
                    self.maps.extend(map.copied());
                }
                _ => {}
            }
        }
    }

    /// Parameters of a kernel with zeros in the place of all else.
    pub fn only(&self, parameters: &[u8]) -> Vec<u8> {
        let mut kept = vec![0; parameters.len()];
        let words = parameters.as_chunks::<8>().0.iter();
        for (place, word) in kept.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            if self.has(u64::from_le_bytes(*word)) {
                *place = *word;
            }
        }
        if self.maps.is_empty() {
            return kept;
        }
        for start in (0..parameters.len()).step_by(TENSOR_MAP_ALIGNMENT) {
            let bytes = start..start + TENSOR_MAP;
            if let Some(map) = parameters.get(bytes.clone())
                && self.maps.contains(map)
                && let Some(place) = kept.get_mut(bytes)
            {
                place.copy_from_slice(map);
            }
        }
        kept
    }
}

/// The words of the parameters of the kernels that a call names.
fn parameter_words<'c>(call: &Call<'c>) -> impl Iterator<Item = u64> + use<'c> {
    let parameters = call.snapshots();
    let parameters = parameters.filter(|snapshot| snapshot.field == field::KERNEL_PARAMETERS);
    let bytes = parameters.filter_map(|snapshot| snapshot.bytes.inline());
    let words = bytes.flat_map(|bytes| bytes.as_chunks::<8>().0);
    words
        .map(|word| u64::from_le_bytes(*word))
        .filter(|&word| word != 0)
}

fn is_known(state: &TraceState, word: u64) -> bool {
    let state = &state.state;
    state.last_place_at(word).is_some()
        || state.freed_host_at(word).is_some()
        || state.graphs.memory_around(word).is_some()
        || HANDLES
            .iter()
            .any(|&kind| state.objects.live(kind, word).is_some())
}

#[cfg(test)]
mod tests {
    use cutape_format::{NewCall, NewSnapshot, TraceBuilder};

    use super::*;

    #[test]
    fn addresses_stay_and_numbers_do_not() {
        const MEMORY: u64 = 0x7000_0000;
        let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
        for (name, arguments, made) in [
            ("cuMemAlloc_v2", &[8, 4096][..], MEMORY),
            ("cuMemCreate", &[8, 1 << 21, 8, 0], 1),
        ] {
            let call = NewCall {
                name,
                arguments,
                ..NewCall::default()
            };
            let made = made.to_le_bytes();
            builder.call(call);
            builder.leave(0, 0, &[NewSnapshot::pointee(0, &made)]);
        }
        let name = format!("cutape-kept-words-{}.cutape", std::process::id());
        let path = std::env::temp_dir().join(name);
        builder.write(&path).unwrap();
        let kept = KeptWords::of(&Trace::open(&path).unwrap()).unwrap();
        std::fs::remove_file(&path).unwrap();
        for (word, stays) in [
            (MEMORY, true),
            (MEMORY + 4095, true),
            (MEMORY + 4096, false),
            (1, false),
            (100_000, false),
        ] {
            let expected = if stays { word } else { 0 };
            let only = kept.only(&word.to_le_bytes());
            assert_eq!(only, expected.to_le_bytes(), "{word:#x}");
        }
    }
}
