//! Stream captures in progress: which streams take part, what was captured, and what the next work
//! of each stream depends on.

use crate::graphs::{Graph, Node, Work};
use crate::site::Site;

/// How many captures in progress are followed.
const CAPTURES: usize = 256;

/// A point in a capture, which an event stands for that was recorded there.
#[derive(Clone, Debug)]
pub struct CapturePoint {
    /// The id of the capture.
    capture: u64,
    /// The nodes that what waits for it depends on.
    nodes: Vec<usize>,
}

/// A stream in a capture.
#[derive(Clone, Debug)]
pub struct CapturedStream {
    /// Its number.
    pub stream: u32,
    /// The call that brought it into the capture.
    pub joined: Site,
    /// The last node that was captured from it.
    last: Option<usize>,
    /// The nodes that its next work depends on.
    before: Vec<usize>,
}

impl CapturedStream {
    fn new(stream: u32, joined: Site) -> Self {
        Self {
            stream,
            joined,
            last: None,
            before: Vec::new(),
        }
    }
}

/// A capture in progress.
#[derive(Clone, Debug)]
pub struct Capture {
    /// Tells captures apart.
    pub id: u64,
    /// The thread that began it.
    pub thread: u32,
    /// A value of `CUstreamCaptureMode`.
    pub mode: u32,
    /// The call that began it.
    pub begun: Site,
    /// The handle of its context, 0 if not known.
    pub context: u64,
    /// The stream that began it first.
    pub streams: Vec<CapturedStream>,
    /// What was captured so far.
    pub graph: Graph,
    /// The handle of the graph that it adds to; 0 if it makes one.
    pub(crate) target: u64,
}

impl Capture {
    /// A capture that a stream begins; it makes a graph.
    pub(crate) fn new(stream: u32, begun: Site, mode: u32, context: u64) -> Self {
        Self {
            id: 0,
            thread: begun.thread,
            mode,
            begun,
            context,
            streams: vec![CapturedStream::new(stream, begun)],
            graph: Graph::default(),
            target: 0,
        }
    }

    /// The handle of the graph that it adds to; 0 if it makes one.
    pub fn target(&self) -> u64 {
        self.target
    }

    /// The number of the stream that began it.
    pub fn origin(&self) -> u32 {
        self.streams.first().map_or(u32::MAX, |first| first.stream)
    }

    /// The streams with captured work that the one that began the capture does not wait for, and
    /// the last work of each.
    pub fn unjoined(&self) -> impl Iterator<Item = (&CapturedStream, &Node)> {
        let origin = self.streams.first();
        let joined = origin.map_or(&[][..], |origin| &origin.before);
        let joined = self.graph.ancestors_of(joined);
        let forks = self.streams.iter().skip(1);
        forks.filter_map(move |fork| {
            let last = fork.last?;
            let is_joined = joined.get(last).copied().unwrap_or(false);
            let node = self.graph.nodes.get(last)?;
            (!is_joined).then_some((fork, node))
        })
    }

    fn stream(&self, stream: u32) -> Option<&CapturedStream> {
        self.streams
            .iter()
            .find(|captured| captured.stream == stream)
    }

    fn stream_mut(&mut self, stream: u32) -> Option<&mut CapturedStream> {
        let mut streams = self.streams.iter_mut();
        streams.find(|captured| captured.stream == stream)
    }
}

/// The captures in progress; most programs have none or one.
#[derive(Clone, Debug, Default)]
pub struct Captures {
    open: Vec<Capture>,
    begun: u64,
}

impl Captures {
    /// True if no stream captures.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// All, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Capture> {
        self.open.iter()
    }

    /// The capture that a stream takes part in.
    pub fn of(&self, stream: u32) -> Option<&Capture> {
        let mut open = self.open.iter();
        open.find(|capture| capture.stream(stream).is_some())
    }

    pub(crate) fn of_mut(&mut self, stream: u32) -> Option<&mut Capture> {
        let mut open = self.open.iter_mut();
        open.find(|capture| capture.stream(stream).is_some())
    }

    pub(crate) fn begin(&mut self, mut capture: Capture) {
        self.end(capture.origin());
        if self.open.len() >= CAPTURES {
            self.open.remove(0);
        }
        self.begun += 1;
        capture.id = self.begun;
        self.open.push(capture);
    }

    /// Ends the capture that the stream began.
    pub(crate) fn end(&mut self, stream: u32) -> Option<Capture> {
        let mut open = self.open.iter();
        let at = open.position(|capture| capture.origin() == stream)?;
        Some(self.open.remove(at))
    }

    /// Forgets the captures of a context.
    pub(crate) fn end_context(&mut self, context: u64) {
        self.open.retain(|capture| capture.context != context);
    }

    /// Work is captured, if the stream takes part in a capture.
    pub(crate) fn add(&mut self, stream: u32, work: Work, site: Site) {
        let Some(capture) = self.of_mut(stream) else {
            return;
        };
        let index = capture.graph.nodes.len();
        let Some(captured) = capture.stream_mut(stream) else {
            return;
        };
        let before = std::mem::replace(&mut captured.before, vec![index]);
        captured.last = Some(index);
        capture.graph.nodes.push(Node {
            handle: 0,
            site,
            set: site,
            work,
            before,
            is_removed: false,
            is_device_updatable: false,
        });
    }

    /// What an event stands for that is recorded in a capturing stream.
    pub(crate) fn record(&self, stream: u32) -> Option<CapturePoint> {
        let capture = self.of(stream)?;
        Some(CapturePoint {
            capture: capture.id,
            nodes: capture.stream(stream)?.before.clone(),
        })
    }

    /// A stream waits for an event that was recorded in a capture, and takes part from now on.
    pub(crate) fn wait(&mut self, stream: u32, point: &CapturePoint, site: Site) {
        let mut open = self.open.iter_mut();
        let Some(capture) = open.find(|capture| capture.id == point.capture) else {
            return;
        };
        if capture.stream(stream).is_none() {
            capture.streams.push(CapturedStream::new(stream, site));
        }
        let Some(captured) = capture.stream_mut(stream) else {
            return;
        };
        for &node in &point.nodes {
            if !captured.before.contains(&node) {
                captured.before.push(node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(index: u64) -> Site {
        Site {
            index,
            function: "cuLaunchKernel",
            thread: 0,
            caller: 0,
            stack: 0,
            result: Some(0),
        }
    }

    /// What is captured in three streams, of which the first begins: `r0` records an event in
    /// stream 0, `w10` lets stream 1 wait for what was recorded in stream 0, `1` is work in it.
    fn capture(script: &str) -> Captures {
        let mut captures = Captures::default();
        captures.begin(Capture::new(0, site(0), 0, 7));
        let mut points: [Option<CapturePoint>; 3] = [const { None }; 3];
        for (index, step) in (1..).zip(script.split(' ')) {
            let numbers: Vec<u32> = step
                .chars()
                .filter_map(|digit| digit.to_digit(10))
                .collect();
            match (step.as_bytes()[0], numbers.as_slice()) {
                (b'r', &[stream]) => points[stream as usize] = captures.record(stream),
                (b'w', &[stream, other]) => {
                    let point = points[other as usize].as_ref().unwrap();
                    captures.wait(stream, point, site(index));
                }
                (_, &[stream]) => captures.add(stream, Work::Empty, site(index)),
                _ => panic!("{step}"),
            }
        }
        captures
    }

    #[test]
    fn nodes_edges_and_streams_that_are_not_joined() {
        let none: &[u32] = &[];
        for (script, edges, unjoined) in [
            ("0 0", &[&[][..], &[0]][..], none),
            // Work in a stream that takes no part is not captured.
            ("0 1", &[&[]], none),
            ("0 r0 w10 1", &[&[], &[0]], &[1]),
            ("0 r0 w10 1 r1 w01", &[&[], &[0]], none),
            ("0 r0 w10 1 r1 w01 0", &[&[], &[0], &[0, 1]], none),
            // Only what was captured before the record is joined.
            ("0 r0 w10 1 r1 1 w01", &[&[], &[0], &[1]], &[1]),
            // A stream without work has nothing to join.
            ("0 r0 w10", &[&[]], none),
            // Through a third stream.
            ("r0 w10 1 r1 w21 2 r2 w02", &[&[], &[0]], none),
            ("r0 w10 1 w20 2 r2 w02", &[&[], &[]], &[1]),
            ("r0 w10 1 w20 2 r1 r2 w01 w02 0", &[&[], &[], &[0, 1]], none),
        ] {
            let captures = capture(script);
            let capture = captures.of(0).unwrap();
            let nodes = &capture.graph.nodes;
            let found: Vec<&[usize]> = nodes.iter().map(|node| node.before.as_slice()).collect();
            assert_eq!(found, edges, "{script}");
            let found: Vec<u32> = capture.unjoined().map(|(fork, _)| fork.stream).collect();
            assert_eq!(found, unjoined, "{script}");
        }
    }

    #[test]
    fn captures_end_with_their_stream_and_their_context() {
        let mut captures = capture("0 r0 w10 1");
        captures.begin(Capture::new(5, site(9), 0, 8));
        assert!(captures.of(1).is_some_and(|capture| capture.origin() == 0));
        assert!(captures.end(1).is_none(), "it did not begin it");
        captures.end_context(7);
        assert!(captures.of(0).is_none() && captures.of(1).is_none());
        assert_eq!(captures.end(5).map(|capture| capture.begun), Some(site(9)));
        assert!(captures.is_empty());
        for stream in 0..=CAPTURES as u32 {
            captures.begin(Capture::new(stream, site(0), 0, 7));
        }
        assert_eq!(captures.iter().count(), CAPTURES);
    }
}
