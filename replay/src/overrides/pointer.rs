//! Attributes of addresses. For placed memory the driver would describe the placement, not the
//! program's allocation.

use cutape_format::layout::field;
use cutape_registry::{AttributeType, FUNCTIONS, Kind, Meaning, Role, id};

use crate::api::buffer::{Buffer, number};
use crate::compare::payload::Payload;
use crate::objects::skip::skip;
use crate::overrides::memory::placed;
use crate::player::{Job, Played, Player};
use crate::report::What;

/// Room for one answer.
const ANSWER_BYTES: usize = 256;
/// Most questions of one call.
const MOST_QUESTIONS: usize = 4096;

fn is_placed(player: &Player<'_>, address: u64) -> bool {
    placed(player, address).is_some()
}

/// cuPointerSetAttribute: its only attribute, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, is invalid for
/// mapped memory, which placed memory is. It changes when copies return; a replay does not depend
/// on that.
pub(crate) fn set_attribute(job: &mut Job<'_, '_>) -> Played {
    match job.call.result() {
        Some(result) if is_placed(job, job.call.argument(2)) => job.answer_with(result, &[]),
        _ => job.plain(),
    }
}

/// cuPointerGetAttribute.
pub(crate) fn attribute(job: &mut Job<'_, '_>) -> Played {
    let is_placed = is_placed(job, job.call.argument(2));
    let Some(result) = job.call.result().filter(|_| is_placed) else {
        return job.plain();
    };
    let mut frame = job.marshal(&[])?;
    if let (Some(recorded), Some(param)) = (job.call.out_bytes(0), job.function.params.first())
        && let Role::Out(length) = param.role
    {
        let expected = job.expected_here(param, length, recorded, recorded);
        frame.answer(0, number(&expected));
    }
    job.answer(frame, result)
}

/// cuPointerGetAttributes.
pub(crate) fn attributes(job: &mut Job<'_, '_>) -> Played {
    let questions = job.input(1, 4)?.unwrap_or_default();
    let types: Vec<AttributeType> = questions
        .chunks_exact(4)
        .map(|question| pointer_attribute(number(question)))
        .collect();
    let placed = is_placed(job, job.call.argument(3));
    scattered(job, 2, &types, placed)
}

/// cuMemRangeGetAttributes: the program gives the sizes; values are numbers, some of them devices.
pub(crate) fn range_attributes(job: &mut Job<'_, '_>) -> Played {
    let sizes = job.input(1, 8)?.unwrap_or_default();
    let questions = job.input(2, 4)?.unwrap_or_default();
    let types: Vec<AttributeType> = sizes
        .chunks_exact(8)
        .zip(questions.chunks_exact(4))
        .map(|(size, question)| AttributeType {
            attribute: number(question) as u32,
            bytes: u32::try_from(number(size)).unwrap_or(u32::MAX),
            // CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION and ..._LAST_PREFETCH_LOCATION: one device.
            meaning: match number(question) {
                2 | 4 => Meaning::Handle(Kind::Device),
                _ => Meaning::Plain,
            },
        })
        .collect();
    scattered(job, 0, &types, false)
}

/// The type of a pointer attribute; one that this build does not know has no bytes to compare.
fn pointer_attribute(attribute: u64) -> AttributeType {
    let unknown = AttributeType {
        attribute: attribute as u32,
        bytes: 0,
        meaning: Meaning::Plain,
    };
    let asked = FUNCTIONS.get(usize::from(id::cuPointerGetAttribute));
    match asked
        .and_then(|asked| asked.params.first())
        .map(|param| param.role)
    {
        Some(Role::Out(types)) => types.attribute_type(attribute).copied().unwrap_or(unknown),
        _ => unknown,
    }
}

/// Asks for all attributes, into memory of the replay, and compares answer by answer. `data` is the
/// position of the array of pointers.
fn scattered(job: &mut Job<'_, '_>, data: usize, types: &[AttributeType], placed: bool) -> Played {
    let longest = types.iter().map(|known| known.bytes as usize).max();
    let room = longest.unwrap_or(0).max(ANSWER_BYTES);
    if types.len() > MOST_QUESTIONS || room > 1 << 20 {
        return skip("asks for more than replay has room for");
    }
    let answers = Buffer::zeroed(room * types.len());
    let places: Vec<u64> = (0..types.len())
        .map(|index| answers.address() + (index * room) as u64)
        .collect();
    let places = Buffer::of_words(&places);
    let array = if job.call.argument(data) == 0 {
        0
    } else {
        places.address()
    };
    let frame = job.marshal(&[(data, array)])?;
    if let Some(result) = job.call.result().filter(|_| placed) {
        return job.answer(frame, result);
    }
    let result = job.issue(&frame)?;
    let recorded = job.returned(data, field::HOST_BYTES);
    let recorded = recorded.map(|snapshot| job.payload(&snapshot));
    if let Some(Payload::Here(recorded)) = recorded
        && result == 0
        && job.is_compared()
    {
        let mut rest: &[u8] = &recorded;
        for (known, here) in types.iter().zip(answers.bytes().chunks_exact(room)) {
            let length = known.bytes as usize;
            let (Some((value, behind)), Some(here)) =
                (rest.split_at_checked(length), here.get(..length))
            else {
                break;
            };
            rest = behind;
            let mut expected = value.to_vec();
            job.value_expected(known.meaning, &mut expected, here);
            if expected != here {
                let text =
                    |bytes: &[u8]| format!("attribute {}: {:#x}", known.attribute, number(bytes));
                let texts = (text(&expected), text(here));
                job.diverge(What::OutParameter, Some(data), texts);
            }
        }
    }
    job.conclude(frame, result)
}
