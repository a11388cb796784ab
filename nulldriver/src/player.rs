//! The recording that answers the calls of this process: `CUTAPE_NULL_PLAY`.

use std::cell::Cell;
use std::sync::LazyLock;
use std::time::Duration;

use cutape_play::{CallId, Player, Turn};
use cutape_registry::Function;

use crate::call::answer::{CUresult, NOT_READY};
use crate::call::argument::WORDS;
use crate::object::memory::Segment;
use crate::settings;

static PLAYER: LazyLock<Option<Player>> = LazyLock::new(|| {
    let options = settings::get().play.as_ref()?;
    Player::open(options).unwrap_or_else(|error| {
        settings::print_line(&format!("{error}; CUTAPE_NULL_PLAY needs a readable trace"));
        // SAFETY: what the program would go on with is not what was asked for.
        unsafe { libc::_exit(2) }
    })
});

/// How often it is asked whether work is complete that was in the recording, and after which pauses.
const MOST_QUERIES: u32 = 50_000;
const PAUSE: Duration = Duration::from_micros(100);

thread_local! {
    static CALL: Cell<Option<CallId>> = const { Cell::new(None) };
}

/// The recorded call that this thread is making, if it is played: its work gets what the device
/// computed from there.
pub(crate) fn call() -> Option<CallId> {
    CALL.get()
}

/// Where the memory was in the recording that this call makes: programs sort by address.
pub(crate) fn address() -> Option<u64> {
    CALL.get()?.address()
}

/// The work of a call copies to an address of the program's memory now. False if the driver has to.
pub(crate) fn deliver(call: CallId, address: u64) -> bool {
    player().is_some_and(|player| player.deliver(call, address))
}

/// The work of a call calls a function of the program now, or writes a value.
pub(crate) fn show(call: Option<CallId>) {
    if let (Some(call), Some(player)) = (call, player()) {
        player.show(call);
    }
}

/// Whether the function of the program that a call has enqueued may be called now.
pub(crate) fn may_call_function(call: Option<CallId>) -> bool {
    let player = call.and_then(|_| player());
    call.zip(player)
        .is_none_or(|(call, player)| player.may_call_function(call))
}

/// It has returned.
pub(crate) fn called_function(call: Option<CallId>) {
    if let (Some(call), Some(player)) = (call, player()) {
        player.called_function(call);
    }
}

/// The work of a call has written there.
pub(crate) fn wrote(target: &[Segment], call: Option<CallId>) {
    let (Some(call), Some(player)) = (call, call.and_then(|_| player())) else {
        return;
    };
    for segment in target.iter().filter(|segment| segment.is_shared) {
        player.wrote(segment.bytes, segment.size, call);
    }
}

fn player() -> Option<&'static Player> {
    PLAYER.as_ref().filter(|player| player.is_of_this_process())
}

/// Whether what the device computes comes from a recording.
pub(crate) fn is_playing() -> bool {
    settings::get().play.is_some() && player().is_some()
}

/// Answers a call from the recording, if there is one; `make` is the driver's own answer.
pub(crate) fn answer(
    function: &'static Function,
    words: &[u64; WORDS],
    make: impl Fn() -> CUresult,
) -> CUresult {
    if settings::get().play.is_none() {
        return make();
    }
    let Some(player) = player() else {
        return make();
    };
    player.watch();
    match player.before(function, words) {
        Turn::Return(code) => CUresult(code as u32),
        Turn::Make(begun) => {
            CALL.set(begun.call());
            let mut code = make();
            // What the program knows to be complete has to be.
            for _ in 0..MOST_QUERIES {
                if code != NOT_READY || !begun.found_complete() {
                    break;
                }
                std::thread::sleep(PAUSE);
                code = make();
            }
            CALL.set(None);
            CUresult(player.after(begun, function, words, code.0 as i32) as u32)
        }
    }
}
