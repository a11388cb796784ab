//! What a session and the child that replays for it give each other, and how.

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::observation::job::{Seen, WatchedRange};
use crate::process::position::Counters;

/// How often a child that waits for a request tells the watchdog so.
const LIFE_SIGN: Duration = Duration::from_millis(200);

/// Where a replay can stop: before or after a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Stop {
    /// The call.
    pub call: u64,
    /// After it.
    pub is_after: bool,
}

/// What is to be done at a stop.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) stop: Stop,
    pub(crate) act: Act,
}

/// Addresses are those of the recording.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Act {
    Read {
        address: u64,
        length: u64,
    },
    Write {
        address: u64,
        bytes: Vec<u8>,
    },
    /// Watches ranges on the way to the stop.
    Watch {
        ranges: Vec<WatchedRange>,
        /// Stops at the first change.
        is_first: bool,
    },
}

/// What a request is answered with.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Reply {
    /// Where the replay is now.
    pub(crate) at: Stop,
    /// Divergences so far.
    pub(crate) divergences: u64,
    pub(crate) done: Result<Done, String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Done {
    /// As many of the bytes as the memory has.
    Read(Vec<u8>),
    Written,
    /// What was seen of each range, and what could not be looked at.
    Watched(Vec<Seen>, Vec<String>),
}

/// One end of what joins the two: a line of JSON for each message.
#[derive(Debug)]
pub(crate) struct Link {
    stream: BufReader<UnixStream>,
    /// The begin of a message of which the rest has not come.
    begun: Vec<u8>,
}

impl Link {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self {
            stream: BufReader::new(stream),
            begun: Vec::new(),
        }
    }

    pub(crate) fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line)
    }

    pub(crate) fn receive<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        self.stream.read_until(b'\n', &mut self.begun)?;
        if self.begun.last() != Some(&b'\n') {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let line = std::mem::take(&mut self.begun);
        Ok(serde_json::from_slice(&line)?)
    }
}

/// The child's side, between requests.
#[derive(Debug)]
pub(crate) struct Served {
    link: Link,
    /// What is to be done next; `None` before the first request.
    pub(crate) request: Option<Request>,
}

impl Served {
    pub(crate) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_read_timeout(Some(LIFE_SIGN))?;
        Ok(Self {
            link: Link::new(stream),
            request: None,
        })
    }

    /// Waits for the next request. The process ends if the session does.
    pub(crate) fn wait(&mut self, position: &Counters) {
        loop {
            match self.link.receive() {
                Ok(request) => {
                    self.request = Some(request);
                    return;
                }
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    position.looks_at_others();
                }
                Err(_) => std::process::exit(0),
            }
        }
    }

    /// A session that has ended is found out about by the next wait.
    pub(crate) fn answer(&mut self, reply: &Reply) {
        let _ = self.link.send(reply);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_may_come_in_pieces() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(Duration::from_millis(1)))
            .unwrap();
        let mut link = Link::new(ours);
        theirs.write_all(b"{\"call\":7,").unwrap();
        let early = link.receive::<Stop>().unwrap_err();
        assert_eq!(early.kind(), ErrorKind::WouldBlock);
        theirs.write_all(b"\"is_after\":true}\n{").unwrap();
        let stop = Stop {
            call: 7,
            is_after: true,
        };
        assert_eq!(link.receive::<Stop>().unwrap(), stop);
        drop(theirs);
        let ended = link.receive::<Stop>().unwrap_err();
        assert_eq!(ended.kind(), ErrorKind::UnexpectedEof);
    }
}
