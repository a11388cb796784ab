//! Attributes of addresses. For placed memory the driver would describe the placement, not the
//! program's allocation.

use cutape_format::{Call, layout::field};
use cutape_registry::{AttributeType, FUNCTIONS, Function, Kind, Meaning, Role, id};

use crate::buffer::{Buffer, number};
use crate::compare::payload::Payload;
use crate::issue::player::{Job, Played, Player};
use crate::issue::skip::skip;
use crate::overrides::memory::placed;
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
pub(crate) fn set_attribute(Job(player, call, function): Job<'_, '_>) -> Played {
    match call.result() {
        Some(result) if is_placed(player, call.argument(2)) => {
            player.answer_with(call, function, result, &[])
        }
        _ => player.plain(call, function),
    }
}

/// cuPointerGetAttribute.
pub(crate) fn attribute(Job(player, call, function): Job<'_, '_>) -> Played {
    let is_placed = is_placed(player, call.argument(2));
    let Some(result) = call.result().filter(|_| is_placed) else {
        return player.plain(call, function);
    };
    let mut frame = player.marshal(call, function, &[])?;
    if let (Some(recorded), Some(param)) = (call.out_bytes(0), function.params.first())
        && let Role::Out(length) = param.role
    {
        let expected = player.expected_here(call, param, length, recorded, recorded);
        frame.answer(0, number(&expected));
    }
    player.answer(call, function, frame, result)
}

/// cuPointerGetAttributes.
pub(crate) fn attributes(Job(player, call, function): Job<'_, '_>) -> Played {
    let questions = player.input(call, 1, 4)?.unwrap_or_default();
    let types: Vec<AttributeType> = questions
        .chunks_exact(4)
        .map(|question| pointer_attribute(number(question)))
        .collect();
    let placed = is_placed(player, call.argument(3));
    scattered(player, call, function, 2, &types, placed)
}

/// cuMemRangeGetAttributes: the program gives the sizes; values are numbers, some of them devices.
pub(crate) fn range_attributes(Job(player, call, function): Job<'_, '_>) -> Played {
    let sizes = player.input(call, 1, 8)?.unwrap_or_default();
    let questions = player.input(call, 2, 4)?.unwrap_or_default();
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
    scattered(player, call, function, 0, &types, false)
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
fn scattered<'t>(
    player: &mut Player<'t>,
    call: &Call<'t>,
    function: &'static Function,
    data: usize,
    types: &[AttributeType],
    placed: bool,
) -> Played {
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
    let array = if call.argument(data) == 0 {
        0
    } else {
        places.address()
    };
    let frame = player.marshal(call, function, &[(data, array)])?;
    if let Some(result) = call.result().filter(|_| placed) {
        return player.answer(call, function, frame, result);
    }
    let result = player.issue(call, function, &frame)?;
    let recorded = call
        .leave
        .and_then(|leave| leave.snapshot(data, field::HOST_BYTES))
        .map(|capture| player.payload(&capture));
    if let Some(Payload::Here(recorded)) = recorded
        && result == 0
        && player.is_compared()
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
            player.value_expected(known.meaning, &mut expected, here);
            if expected != here {
                let text =
                    |bytes: &[u8]| format!("attribute {}: {:#x}", known.attribute, number(bytes));
                let texts = (text(&expected), text(here));
                player.diverge(call, function, What::OutParameter, Some(data), texts);
            }
        }
    }
    player.conclude(call, function, frame, result)
}
