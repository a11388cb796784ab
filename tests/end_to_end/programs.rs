//! Every test program in every mode: bare, recorded, checked, checked live, replayed, replayed with
//! threads at once, hashed.

use std::path::Path;

use cutape_tests::{Mode, Suite, cases};

pub(crate) fn add_to(suite: &mut Suite) {
    for case in cases() {
        for mode in Mode::ALL {
            if mode.applies_to(&case.program) {
                let name = format!("{}/{}", case.program.name, mode.name());
                suite.test(name, move |_: &Path| case.run(mode));
            }
        }
    }
}
