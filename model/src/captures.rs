//! Stream captures in progress: which streams take part, and what is joined.

use crate::objects::Site;
use crate::order::Clock;

/// A stream in a capture.
#[derive(Clone, Debug)]
pub struct CapturedStream {
    /// Its number.
    pub stream: u32,
    /// The call that brought it into the capture.
    pub joined: Site,
    /// The number of its last captured work, 0 for none, and that call.
    pub last: u64,
    /// The call that enqueued it.
    pub site: Option<Site>,
    /// Captured work of other streams that its next work depends on.
    before: Clock,
}

impl CapturedStream {
    fn new(stream: u32, joined: Site) -> Self {
        Self {
            stream,
            joined,
            last: 0,
            site: None,
            before: Clock::new(),
        }
    }

    fn wait(&mut self, clock: &Clock) {
        for &(stream, number) in clock {
            match self.before.iter_mut().find(|entry| entry.0 == stream) {
                Some(entry) => entry.1 = entry.1.max(number),
                None => self.before.push((stream, number)),
            }
        }
    }
}

/// A capture in progress.
#[derive(Clone, Debug)]
pub struct OpenCapture {
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
    number: u64,
}

impl OpenCapture {
    /// The number of the stream that began it.
    pub fn origin(&self) -> u32 {
        self.streams.first().map_or(u32::MAX, |first| first.stream)
    }

    /// The streams with captured work that the one that began the capture does not wait for.
    pub fn unjoined(&self) -> impl Iterator<Item = &CapturedStream> {
        let joined = self.streams.first().map(|first| first.before.as_slice());
        let joined = joined.unwrap_or_default();
        self.streams.iter().skip(1).filter(move |captured| {
            captured.last > 0
                && !joined.contains(&(captured.stream, captured.last))
                && !joined
                    .iter()
                    .any(|&(stream, last)| stream == captured.stream && last >= captured.last)
        })
    }

    fn stream_mut(&mut self, stream: u32) -> Option<&mut CapturedStream> {
        self.streams
            .iter_mut()
            .find(|captured| captured.stream == stream)
    }
}

/// The captures in progress; most programs have none or one.
#[derive(Debug, Default)]
pub struct OpenCaptures {
    open: Vec<OpenCapture>,
    begun: u64,
}

/// How many captures in progress are followed.
const CAPTURES: usize = 256;

impl OpenCaptures {
    /// True if no stream captures.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// All, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &OpenCapture> {
        self.open.iter()
    }

    /// The capture that a stream takes part in.
    pub fn of(&self, stream: u32) -> Option<&OpenCapture> {
        let mut open = self.open.iter();
        open.find(|capture| capture.streams.iter().any(|entry| entry.stream == stream))
    }

    fn of_mut(&mut self, stream: u32) -> Option<&mut OpenCapture> {
        let mut open = self.open.iter_mut();
        open.find(|capture| capture.streams.iter().any(|entry| entry.stream == stream))
    }

    pub(crate) fn begin(&mut self, stream: u32, mode: u32, context: u64, begun: Site) {
        self.end(stream);
        if self.open.len() >= CAPTURES {
            self.open.remove(0);
        }
        self.begun += 1;
        self.open.push(OpenCapture {
            id: self.begun,
            thread: begun.thread,
            mode,
            begun,
            context,
            streams: vec![CapturedStream::new(stream, begun)],
            number: 0,
        });
    }

    /// Ends the capture that the stream began.
    pub(crate) fn end(&mut self, stream: u32) {
        self.open.retain(|capture| capture.origin() != stream);
    }

    /// Forgets the captures of a context.
    pub(crate) fn end_context(&mut self, context: u64) {
        self.open.retain(|capture| capture.context != context);
    }

    /// True if the stream captures; then its work is captured.
    pub(crate) fn submit(&mut self, stream: u32, site: Site) -> bool {
        let Some(capture) = self.of_mut(stream) else {
            return false;
        };
        capture.number += 1;
        let number = capture.number;
        if let Some(captured) = capture.stream_mut(stream) {
            captured.last = number;
            captured.site = Some(site);
        }
        true
    }

    /// What an event that is recorded in a capturing stream stands for.
    pub(crate) fn record(&self, stream: u32) -> Option<(u64, Clock)> {
        let capture = self.of(stream)?;
        let mut streams = capture.streams.iter();
        let captured = streams.find(|captured| captured.stream == stream)?;
        let mut clock = captured.before.clone();
        clock.push((stream, captured.last));
        Some((capture.id, clock))
    }

    /// A stream waits for an event that was recorded in a capture, and takes part from now on.
    pub(crate) fn wait(&mut self, stream: u32, (id, clock): &(u64, Clock), site: Site) {
        let Some(capture) = self.open.iter_mut().find(|capture| capture.id == *id) else {
            return;
        };
        if capture.stream_mut(stream).is_none() {
            capture.streams.push(CapturedStream::new(stream, site));
        }
        if let Some(captured) = capture.stream_mut(stream) {
            captured.wait(clock);
        }
    }
}
