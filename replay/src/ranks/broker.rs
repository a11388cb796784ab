//! The parent's side of what ranks hand to each other: it keeps what each has exported, and gives
//! it to those that want it.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::ranks::message::{self, Message};

/// How often the broker looks whether it is to stop.
const LOOK_EVERY_MS: i32 = 50;

/// A call of a rank.
pub(crate) type Place = (usize, u64);

/// What a call has exported, or why it has not.
type Exported = Result<(Vec<u8>, Option<OwnedFd>), String>;

/// The state of a broker.
pub(crate) struct Broker<'a> {
    /// A socket for each rank; `None` when the rank has ended.
    sockets: Vec<Option<OwnedFd>>,
    finished: Vec<bool>,
    labels: &'a [String],
    /// Names of functions by place, for messages.
    functions: &'a BTreeMap<Place, &'static str>,
    exported: BTreeMap<Place, Exported>,
    /// Who waits for an export, and where the answer goes.
    waiting: Vec<(Place, OwnedFd)>,
}

impl<'a> Broker<'a> {
    pub(crate) fn new(
        sockets: Vec<OwnedFd>,
        labels: &'a [String],
        functions: &'a BTreeMap<Place, &'static str>,
    ) -> Self {
        Self {
            finished: vec![false; sockets.len()],
            sockets: sockets.into_iter().map(Some).collect(),
            labels,
            functions,
            exported: BTreeMap::new(),
            waiting: Vec::new(),
        }
    }

    /// Serves until all ranks have ended, or until it is to stop.
    pub(crate) fn serve(mut self, stop: &AtomicBool) {
        message::make_room_for_descriptors();
        while self.sockets.iter().any(Option::is_some) && !stop.load(Ordering::Relaxed) {
            let open: Vec<usize> = (0..self.sockets.len())
                .filter(|&rank| matches!(self.sockets.get(rank), Some(Some(_))))
                .collect();
            let sockets: Vec<BorrowedFd<'_>> = self
                .sockets
                .iter()
                .flatten()
                .map(|socket| socket.as_fd())
                .collect();
            let ready = message::wait(&sockets, LOOK_EVERY_MS);
            for (rank, _) in open
                .into_iter()
                .zip(ready)
                .filter(|(_, is_ready)| *is_ready)
            {
                self.take(rank);
            }
        }
    }

    /// Takes one message of a rank.
    fn take(&mut self, rank: usize) {
        let Some(Some(socket)) = self.sockets.get(rank) else {
            return;
        };
        let Ok(Some((message, descriptor))) = message::receive(socket.as_fd()) else {
            return self.has_ended(rank);
        };
        match message {
            Message::Offer { call, bytes } => self.export((rank, call), Ok((bytes, descriptor))),
            Message::Withheld { call, why } => {
                let label = self.labels.get(rank).map_or("", String::as_str);
                self.export((rank, call), Err(format!("{label}: {why}")));
            }
            Message::Want { rank: of, call } => {
                if let Some(answer) = descriptor {
                    self.waiting.push(((of, call), answer));
                    self.answer();
                }
            }
            Message::Finished => self.has_finished(rank),
            Message::Given { .. } | Message::Refused { .. } | Message::Released => {}
        }
    }

    fn export(&mut self, place: Place, exported: Exported) {
        self.exported.insert(place, exported);
        self.answer();
    }

    /// A rank has no more calls: what it has not exported will not come.
    fn has_finished(&mut self, rank: usize) {
        if let Some(finished) = self.finished.get_mut(rank) {
            *finished = true;
        }
        self.answer();
        if self.finished.iter().all(|finished| *finished) {
            for socket in self.sockets.iter().flatten() {
                let _ = message::send(socket.as_fd(), &Message::Released, None);
            }
        }
    }

    fn has_ended(&mut self, rank: usize) {
        if let Some(socket) = self.sockets.get_mut(rank) {
            *socket = None;
        }
        self.has_finished(rank);
    }

    /// Answers those whose answer is known.
    fn answer(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        for (place, answer) in waiting {
            let (message, descriptor) = match self.exported.get(&place) {
                Some(Ok((bytes, descriptor))) => {
                    let bytes = bytes.clone();
                    let descriptor = descriptor.as_ref().map(AsRawFd::as_raw_fd);
                    (Message::Given { bytes }, descriptor)
                }
                Some(Err(why)) => (Message::Refused { why: why.clone() }, None),
                None if self.finished.get(place.0) == Some(&false) => {
                    self.waiting.push((place, answer));
                    continue;
                }
                None => {
                    let why = self.missing(place);
                    (Message::Refused { why }, None)
                }
            };
            // Whoever waited may have ended.
            let _ = message::send(answer.as_fd(), &message, descriptor);
        }
    }

    fn missing(&self, place: Place) -> String {
        let label = self.labels.get(place.0).map_or("a rank", String::as_str);
        let function = self.functions.get(&place).copied().unwrap_or("a call");
        format!("{label} ended before its call {} ({function})", place.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    /// Sends a wish and returns the socket for the answer.
    fn want(socket: &OwnedFd, rank: usize, call: u64) -> io::Result<OwnedFd> {
        let (own, answer) = message::pair()?;
        let wish = Message::Want { rank, call };
        message::send(socket.as_fd(), &wish, Some(answer.as_raw_fd()))?;
        Ok(own)
    }

    fn answer(socket: &OwnedFd) -> Message {
        message::receive(socket.as_fd()).unwrap().unwrap().0
    }

    #[test]
    fn there_is_room_for_the_descriptors_of_many_exports() {
        const EXPORTS: u64 = 700;
        // SAFETY: it writes and reads the limits of this process.
        unsafe {
            let mut limit = std::mem::zeroed();
            libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
            limit.rlim_cur = EXPORTS;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
        let (parent, rank) = message::pair().unwrap();
        let (labels, functions) = (["rank 0".to_owned()], BTreeMap::new());
        let file = crate::process::memory_file::create(c"test").unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| Broker::new(vec![parent], &labels, &functions).serve(&stop));
            for call in 0..EXPORTS {
                let offer = Message::Offer {
                    call,
                    bytes: Vec::new(),
                };
                message::send(rank.as_fd(), &offer, Some(file.as_raw_fd())).unwrap();
            }
            let last = want(&rank, 0, EXPORTS - 1).unwrap();
            let (answer, descriptor) = message::receive(last.as_fd()).unwrap().unwrap();
            assert!(matches!(answer, Message::Given { .. }) && descriptor.is_some());
            drop(rank);
        });
    }

    #[test]
    fn a_rank_gets_what_another_exports_or_why_it_does_not() {
        let pairs: Vec<_> = (0..2).map(|_| message::pair().unwrap()).collect();
        let (parents, mut ranks): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let labels = ["rank 0".to_owned(), "rank 1".to_owned()];
        let functions = BTreeMap::from([((0, 9), "cuIpcGetMemHandle")]);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| Broker::new(parents, &labels, &functions).serve(&stop));
            let offer = |call, byte| Message::Offer {
                call,
                bytes: vec![byte],
            };
            // Before and after the export; one that another rank wants later.
            let early = want(&ranks[1], 0, 3).unwrap();
            message::send(ranks[0].as_fd(), &offer(3, 33), None).unwrap();
            assert_eq!(answer(&early), Message::Given { bytes: vec![33] });
            let late = want(&ranks[1], 0, 3).unwrap();
            assert_eq!(answer(&late), Message::Given { bytes: vec![33] });
            let why = "the driver returned X".to_owned();
            message::send(ranks[0].as_fd(), &Message::Withheld { call: 4, why }, None).unwrap();
            let withheld = want(&ranks[1], 0, 4).unwrap();
            let why = "rank 0: the driver returned X".to_owned();
            assert_eq!(answer(&withheld), Message::Refused { why });
            let never = want(&ranks[1], 0, 9).unwrap();
            drop(ranks.remove(0));
            let why = "rank 0 ended before its call 9 (cuIpcGetMemHandle)".to_owned();
            assert_eq!(answer(&never), Message::Refused { why });
            message::send(ranks[0].as_fd(), &Message::Finished, None).unwrap();
            assert_eq!(answer(&ranks[0]), Message::Released);
            drop(ranks);
        });
    }
}
