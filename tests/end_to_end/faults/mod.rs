//! Bad states of the system and of the process, and other tools in it: the program does what it does
//! without cutape, no returned call is lost, and one line says what is wrong. `docs/reliability.md`
//! lists them.

use std::path::PathBuf;
use std::sync::OnceLock;

use cutape_tests::{Suite, compile, parts, root};

mod background;
mod kills;
mod other_tools;
mod system_calls;
mod time;

pub(crate) fn add_to(suite: &mut Suite) {
    background::add_to(suite);
    kills::add_to(suite);
    other_tools::add_to(suite);
    system_calls::add_to(suite);
    time::add_to(suite);
}

/// The compiled programs in `tests/programs/faults/`.
struct Programs {
    /// Counts the calls that have returned.
    counted: PathBuf,
    /// Plays a system in a bad state.
    shim: PathBuf,
    /// Another auditing library.
    auditor: PathBuf,
}

fn programs() -> &'static Programs {
    static PROGRAMS: OnceLock<Programs> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let folder = parts().new_folder("faults");
        let sources = root().join("tests/programs/faults");
        let programs = Programs {
            counted: folder.join("counted"),
            shim: folder.join("shim.so"),
            auditor: folder.join("auditor.so"),
        };
        let driver = parts().driver_folder.join("libcuda.so.1");
        compile(
            &sources.join("counted.c"),
            &programs.counted,
            &[&driver, &"-lpthread"],
        );
        for (name, library) in [("shim.c", &programs.shim), ("auditor.c", &programs.auditor)] {
            compile(
                &sources.join(name),
                library,
                &[&"-shared", &"-fPIC", &"-ldl"],
            );
        }
        programs
    })
}
