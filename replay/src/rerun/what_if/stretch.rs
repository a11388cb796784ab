//! Work of one stream that nothing interrupts.

use crate::calls::steps::{Issued, Step};
use crate::rerun::repeatable::stream_of;

/// Chosen calls that follow each other on a stream.
#[derive(Debug)]
pub(super) struct Stretch {
    pub(super) context: u64,
    pub(super) stream: u64,
    /// Positions of the calls among the steps.
    pub(super) at: Vec<usize>,
}

/// The stretches of chosen calls. Other calls, and what the program writes, end a stretch.
pub(super) fn stretches(steps: &[Step], is_chosen: impl Fn(&Issued) -> bool) -> Vec<Stretch> {
    let mut all: Vec<Stretch> = Vec::new();
    let mut open: Option<Stretch> = None;
    for (at, step) in steps.iter().enumerate() {
        match step {
            Step::Pause(_) => {}
            Step::Call(issued) if is_chosen(issued) => {
                let (context, stream) = (issued.context, stream_of(issued));
                match &mut open {
                    Some(open) if (open.context, open.stream) == (context, stream) => {
                        open.at.push(at);
                    }
                    _ => {
                        let new = Stretch {
                            context,
                            stream,
                            at: vec![at],
                        };
                        all.extend(open.replace(new));
                    }
                }
            }
            _ => all.extend(open.take()),
        }
    }
    all.extend(open);
    all
}
