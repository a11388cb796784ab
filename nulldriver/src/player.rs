//! The recording that answers the calls of this process: `CUTAPE_NULL_PLAY`.

use std::sync::LazyLock;

use cutape_play::{Player, Turn};
use cutape_registry::Function;

use crate::call::answer::CUresult;
use crate::call::argument::WORDS;
use crate::settings;

static PLAYER: LazyLock<Option<Player>> = LazyLock::new(|| {
    let options = settings::get().play.as_ref()?;
    Player::open(options).unwrap_or_else(|error| {
        settings::print_line(&format!("{error}; CUTAPE_NULL_PLAY needs a readable trace"));
        // SAFETY: what the program would go on with is not what was asked for.
        unsafe { libc::_exit(2) }
    })
});

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
    make: impl FnOnce() -> CUresult,
) -> CUresult {
    if settings::get().play.is_none() {
        return make();
    }
    let Some(player) = player() else {
        return make();
    };
    match player.before(function, words) {
        Turn::Return(code) => CUresult(code as u32),
        Turn::Make(begun) => {
            let code = make();
            CUresult(player.after(begun, function, words, code.0 as i32) as u32)
        }
    }
}
