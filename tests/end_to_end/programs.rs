//! Every test program in every mode: bare, recorded, checked, checked live, replayed, replayed with
//! threads at once, hashed.

use std::path::Path;
use std::sync::Arc;

use cutape_tests::{Case, Mode, Suite, programs};

pub(crate) fn add_to(suite: &mut Suite) {
    for program in programs().unwrap_or_else(|error| panic!("{error}")) {
        let case = Arc::new(Case::new(program));
        for mode in Mode::ALL {
            if !mode.applies_to(&case.program) {
                continue;
            }
            let case = Arc::clone(&case);
            let name = format!("{}/{}", case.program.name, mode.name());
            suite.test(name, move |_: &Path| case.run(mode));
        }
    }
}
