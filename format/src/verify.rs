//! Checking everything in a trace, blobs and records included, which opening it leaves for later.

use std::collections::{HashMap, HashSet};

use crate::layout::{BlobRef, chunk_kind, record_kind};
use crate::records::{Named, record_at, records, records_end};
use crate::trace::{Damage, Trace};

impl Trace {
    /// Reads the whole file and says all that is wrong with it, [`Trace::damage`] first; empty for a sound trace.
    pub fn verify(&self) -> Vec<Damage> {
        let mut damage = self.damage().to_vec();
        let mut seen: HashSet<BlobRef> = HashSet::new();
        for (chunk, (head, position, body)) in self.raw_chunks().enumerate() {
            match head.kind {
                chunk_kind::CALLS => {
                    let end = records_end(body);
                    // The records end at a zero word or with the body; anything else there was not written as a record.
                    let behind = body.get(end..).unwrap_or(&[]);
                    if record_at(body, end).is_none()
                        && behind.iter().take(8).any(|&byte| byte != 0)
                    {
                        damage.push(Damage {
                            position,
                            what: format!(
                                "the record {end} bytes into a chunk of calls is malformed"
                            ),
                        });
                    }
                    let mut named = Named::default();
                    named.add(body, self.signatures());
                    for blob in named.blobs {
                        if seen.insert(blob)
                            && let Err(what) = self.blob(blob)
                        {
                            damage.push(what);
                        }
                    }
                }
                chunk_kind::BLOB => damage.extend(self.blob_content(chunk, u64::MAX).err()),
                _ => {}
            }
        }
        damage.extend(self.misnumbered());
        // A damaged blob is found as a chunk as well as by its name.
        let mut known = HashSet::new();
        damage.retain(|entry| known.insert((entry.position, entry.what.clone())));
        damage
    }

    /// The first record of a call whose function the trace's own signature table does not have. Readers get it as a call of a
    /// function `unknown`, but no recorder writes one, so what it did cannot be told.
    pub fn unknown_function(&self) -> Option<Damage> {
        self.raw_chunks()
            .filter(|(head, ..)| head.kind == chunk_kind::CALLS)
            .find_map(|(_, position, body)| {
                let (at, head, _) = records(body).find(|(_, head, _)| {
                    record_kind::is_enter(head.kind)
                        && self.signatures().function(head.function).is_none()
                })?;
                let what = format!(
                    "the record {at} bytes into a chunk is of the unknown call id {}",
                    head.function
                );
                Some(Damage { position, what })
            })
    }

    /// Chunks of calls that do not begin with the call that their heads say.
    fn misnumbered(&self) -> Vec<Damage> {
        let mut entered: HashMap<u32, u64> = HashMap::new();
        let mut chunks: Vec<_> = self
            .raw_chunks()
            .filter(|(head, ..)| head.kind == chunk_kind::CALLS)
            .collect();
        chunks.sort_by_key(|(head, ..)| (head.thread, head.sequence));
        let mut damage = Vec::new();
        // A repaired trace has gaps; what follows a gap is numbered by its head.
        let repaired = self.meta_value("repair.0").is_some();
        for (head, position, body) in chunks {
            let entered = entered.entry(head.thread).or_default();
            if *entered != head.first && !(repaired && *entered < head.first) {
                let what = format!(
                    "a chunk of calls begins with call {} of thread {} and says {}",
                    entered, head.thread, head.first
                );
                damage.push(Damage { position, what });
            }
            *entered = head.first.max(*entered);
            *entered += records(body)
                .filter(|(_, record, _)| record_kind::is_enter(record.kind))
                .count() as u64;
        }
        damage
    }
}
