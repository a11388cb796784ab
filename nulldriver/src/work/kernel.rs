//! Kernels that have an effect here. They are known by their names, and what they would compute is
//! computed on the CPU.

use cutape_driver::dirty::{self, Header, Page};
use cutape_driver::{digest, mix};

use crate::object::function::Spec;
use crate::object::memory::{Segment, move_bytes};
use crate::player;
use crate::settings;
use crate::state::{Action, State};
use crate::work::nondeterminism;

/// What a launch with these parameter values enqueues. Memory that a launch cannot use makes it do
/// nothing: only running code would show what becomes of it.
pub(crate) fn action(state: &State, spec: &Spec, values: &[Box<[u8]>]) -> Action {
    if player::is_playing() {
        // What it would compute is in the recording.
        return Action::Nothing;
    }
    let known = match spec.name {
        name if name == digest::NAME => digest_action(state, values),
        name if name == mix::NAME => mix_action(state, spec, values),
        name if name == dirty::NAME => dirty_action(state, values),
        name => nondeterminism::action(state, name, values),
    };
    known.unwrap_or(Action::Nothing)
}

/// Whether launches may have one; the values of others need not be kept.
pub(crate) fn has_effect(spec: &Spec) -> bool {
    let known = [digest::NAME, mix::NAME, dirty::NAME];
    known.contains(&spec.name) || settings::get().has_nondeterministic_kernels()
}

fn word<const N: usize>(value: &[u8]) -> Option<[u8; N]> {
    value.try_into().ok()
}

fn digest_action(state: &State, values: &[Box<[u8]>]) -> Option<Action> {
    let words: Option<Vec<u64>> = values
        .iter()
        .map(|value| word(value).map(u64::from_le_bytes))
        .collect();
    let &[address, length, slot, mark] = words.as_deref()? else {
        return None;
    };
    let source = match length {
        0 => Vec::new(),
        _ => state.any_range(address, length).ok()?,
    };
    let target = state.any_range(slot, 16).ok()?;
    Some(Action::Run(Box::new(move |_| {
        let digest = digest_of(&source);
        move_bytes(
            &target,
            &[Segment::of(&[digest, mark].map(u64::to_le_bytes).concat())],
        );
    })))
}

fn digest_of(segments: &[Segment]) -> u64 {
    match segments {
        // SAFETY: known segments lie in living memory: what ends waits for the work before it.
        [one] => digest::digest(unsafe {
            std::slice::from_raw_parts(one.bytes as *const u8, one.size as usize)
        }),
        _ => digest::digest(&read(segments)),
    }
}

/// A look for dirty pages. Whoever keeps the table has it written before the launch.
fn dirty_action(state: &State, values: &[Box<[u8]>]) -> Option<Action> {
    let words: Option<Vec<u64>> = values
        .iter()
        .map(|value| word(value).map(u64::from_le_bytes))
        .collect();
    let &[table, begin, end, look] = words.as_deref()? else {
        return None;
    };
    const HEADER: u64 = dirty::HEADER_WORDS as u64 * 8;
    const PAGE: u64 = dirty::PAGE_WORDS as u64 * 8;
    let table = state.any_range(table, end.checked_mul(PAGE)?.checked_add(HEADER)?);
    let table = table.ok()?;
    Some(Action::Run(Box::new(move |state| {
        let bytes = read(&table);
        let mut words: Vec<u64> = bytes
            .as_chunks::<8>()
            .0
            .iter()
            .map(|word| u64::from_le_bytes(*word))
            .collect();
        let Some((header_words, pages)) = words.split_first_chunk_mut() else {
            return;
        };
        let mut header = Header::of(header_words);
        let pages = (0..).zip(pages.as_chunks_mut().0);
        for (at, page_words) in pages.skip(begin as usize) {
            let mut page = Page::of(page_words);
            let range = state.any_range(page.address, page.length.into());
            let bytes = range.map(|range| read(&range)).unwrap_or_default();
            dirty::look(&mut header, &mut page, at, look, &bytes);
            *page_words = page.words();
        }
        *header_words = header.words();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        move_bytes(&table, &[Segment::of(&bytes)]);
    })))
}

fn mix_action(state: &State, spec: &Spec, values: &[Box<[u8]>]) -> Option<Action> {
    let [out, input, count, seed] = values else {
        return None;
    };
    let [out, input] = [out, input].map(|value| word(value).map(u64::from_le_bytes));
    let [count, seed] = [count, seed].map(|value| word(value).map(u32::from_le_bytes));
    let (out, input, count, seed) = (out?, input?, count?, seed?);
    // Other code in tests: the same kernel, declared with `.maxntid`.
    let seed = seed.wrapping_add(spec.image().max_threads.unwrap_or(0));
    let size = u64::from(count) * 4;
    if count == 0 || !out.is_multiple_of(4) || !input.is_multiple_of(4) {
        return None;
    }
    let target = state.device_range(out, size).ok()?;
    let source = state.device_range(input, size).ok()?;
    Some(Action::Run(Box::new(move |_| {
        let (old, input) = (read(&target), read(&source));
        let (old, input) = (old.as_chunks::<4>().0, input.as_chunks::<4>().0);
        let pairs = old
            .iter()
            .zip(input)
            .map(|(old, input)| [old, input].map(|word| u32::from_le_bytes(*word)));
        let mixed = (0..)
            .zip(pairs)
            .map(|(at, [old, input])| mix::mix(old, input, at, seed));
        let bytes: Vec<u8> = mixed.flat_map(u32::to_le_bytes).collect();
        move_bytes(&target, &[Segment::of(&bytes)]);
    })))
}

/// The bytes of segments.
pub(crate) fn read(segments: &[Segment]) -> Vec<u8> {
    let size: u64 = segments.iter().map(|segment| segment.size).sum();
    let mut bytes = vec![0; size as usize];
    move_bytes(&[Segment::of_mut(&mut bytes)], segments);
    bytes
}
