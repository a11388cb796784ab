//! Every test program in every mode: bare, recorded, checked, checked live, replayed, replayed with
//! threads at once, hashed.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use cutape_tests::{Case, Mode, Suite, programs};

fn main() -> ExitCode {
    let programs = match programs() {
        Ok(programs) => programs,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let mut suite = Suite::new();
    for program in programs {
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
    // Each test waits for other processes most of the time.
    suite.threads(4);
    suite.run()
}
