//! Every test program, every way: bare, recorded, checked, checked live, replayed, and replayed
//! with threads at once if it has several.

use std::process::ExitCode;
use std::sync::Arc;

use cutape_tests::{Case, Way, parts, programs};
use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    let programs = match programs() {
        Ok(programs) => programs,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let mut trials = Vec::new();
    for program in programs {
        let case = Arc::new(Case::new(program));
        for way in Way::ALL.into_iter().filter(|way| way.fits(&case.program)) {
            let name = format!("{}/{}", case.program.name, way.word());
            let case = Arc::clone(&case);
            trials.push(Trial::test(name, move || {
                case.try_way(way).map_err(Into::into)
            }));
        }
    }
    let listing = arguments.list;
    if !listing {
        parts();
    }
    // Each test waits for other processes most of the time.
    arguments.test_threads = arguments.test_threads.or(Some(4));
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !listing {
        parts().clean_up();
    }
    conclusion.exit_code()
}
