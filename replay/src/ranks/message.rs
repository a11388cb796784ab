//! Messages between the replaying processes of ranks and their parent, with file descriptors.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use serde::{Deserialize, Serialize};

/// Longest message, in bytes.
const LONGEST: usize = 16 << 10;

/// What is sent. A descriptor may go with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Message {
    /// A call has exported: its bytes, or the descriptor that comes along.
    Offer { call: u64, bytes: Vec<u8> },
    /// A call did not export, for this reason.
    Withheld { call: u64, why: String },
    /// Wants what a call of another rank exports. The answer goes into the descriptor that comes
    /// along.
    Want { rank: usize, call: u64 },
    /// The answer to `Want`: the bytes, or the descriptor that comes along.
    Given { bytes: Vec<u8> },
    /// The answer to `Want` if there is nothing to give.
    Refused { why: String },
    /// The rank has played its last call.
    Finished,
    /// All ranks have; the process may end.
    Released,
}

/// Two connected sockets, which keep messages apart.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: the array has room for two descriptors, which are owned from here on.
    unsafe {
        if libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

/// Lets this process open as many descriptors as the system allows: one is kept for each export,
/// and what finds no room is lost on its way.
pub(crate) fn make_room_for_descriptors() {
    // SAFETY: a rlimit consists of numbers, for which zeros are valid; the calls read and write it.
    unsafe {
        let mut limit: libc::rlimit = MaybeUninit::zeroed().assume_init();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// Room for the control data of one descriptor.
const CONTROL: usize = 64;

/// Bytes with the alignment of control data.
#[repr(align(8))]
struct Control([u8; CONTROL]);

/// Sends a message in one piece; a copy of the descriptor goes along.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    message: &Message,
    descriptor: Option<RawFd>,
) -> io::Result<()> {
    let mut text = serde_json::to_vec(message)?;
    let mut data = libc::iovec {
        iov_base: text.as_mut_ptr().cast(),
        iov_len: text.len(),
    };
    let mut control = Control([0; CONTROL]);
    // SAFETY: a msghdr consists of numbers and pointers, for which zeros are valid. The control
    // data has room for a header and one descriptor (24 bytes), and is aligned for it.
    let sent = unsafe {
        let mut header: libc::msghdr = MaybeUninit::zeroed().assume_init();
        header.msg_iov = &raw mut data;
        header.msg_iovlen = 1;
        if let Some(descriptor) = descriptor {
            let length = size_of::<RawFd>() as u32;
            header.msg_control = control.0.as_mut_ptr().cast();
            header.msg_controllen = libc::CMSG_SPACE(length) as usize;
            let first = libc::CMSG_FIRSTHDR(&raw const header);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(length) as usize;
            libc::CMSG_DATA(first)
                .cast::<RawFd>()
                .write_unaligned(descriptor);
        }
        libc::sendmsg(socket.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL)
    };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The next message, and the descriptor that came along; `None` when the other end is closed.
pub(crate) fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<(Message, Option<OwnedFd>)>> {
    let mut text = vec![0; LONGEST];
    let mut data = libc::iovec {
        iov_base: text.as_mut_ptr().cast(),
        iov_len: text.len(),
    };
    let mut control = Control([0; CONTROL]);
    // SAFETY: as in `send`; the kernel writes within the two buffers, and what it installs is owned
    // from here on.
    let (length, descriptor) = unsafe {
        let mut header: libc::msghdr = MaybeUninit::zeroed().assume_init();
        header.msg_iov = &raw mut data;
        header.msg_iovlen = 1;
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = CONTROL;
        let flags = libc::MSG_CMSG_CLOEXEC;
        let length = libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags);
        let first = libc::CMSG_FIRSTHDR(&raw const header);
        let has_one = length > 0
            && !first.is_null()
            && (*first).cmsg_level == libc::SOL_SOCKET
            && (*first).cmsg_type == libc::SCM_RIGHTS;
        let descriptor = has_one.then(|| {
            let raw = libc::CMSG_DATA(first).cast::<RawFd>().read_unaligned();
            OwnedFd::from_raw_fd(raw)
        });
        (length, descriptor)
    };
    match usize::try_from(length) {
        Err(_) => {
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::ECONNRESET) => Ok(None),
                _ => Err(error),
            }
        }
        Ok(0) => Ok(None),
        Ok(length) => {
            let message = serde_json::from_slice(text.get(..length).unwrap_or_default())?;
            Ok(Some((message, descriptor)))
        }
    }
}

/// Waits until one of the sockets can be read or is closed; which ones, and false after the time.
pub(crate) fn wait(sockets: &[BorrowedFd<'_>], milliseconds: i32) -> Vec<bool> {
    let mut polled: Vec<libc::pollfd> = sockets
        .iter()
        .map(|socket| libc::pollfd {
            fd: socket.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    // SAFETY: the array has that many entries.
    unsafe {
        libc::poll(
            polled.as_mut_ptr(),
            polled.len() as libc::nfds_t,
            milliseconds,
        )
    };
    polled.iter().map(|polled| polled.revents != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Seek, Write};
    use std::os::fd::AsFd;

    #[test]
    fn messages_arrive_whole_and_with_their_descriptor() {
        let (one, other) = pair().unwrap();
        let offer = Message::Offer {
            call: 7,
            bytes: vec![1, 2, 3],
        };
        let want = Message::Want { rank: 1, call: 9 };
        let mut file = File::from(crate::process::memory_file::create(c"test").unwrap());
        file.write_all(b"here").unwrap();
        send(one.as_fd(), &offer, Some(file.as_raw_fd())).unwrap();
        send(one.as_fd(), &want, None).unwrap();
        assert_eq!(wait(&[other.as_fd(), one.as_fd()], 1000), [true, false]);
        let (message, descriptor) = receive(other.as_fd()).unwrap().unwrap();
        assert_eq!(message, offer);
        let mut received = File::from(descriptor.unwrap());
        received.rewind().unwrap();
        let mut text = String::new();
        received.read_to_string(&mut text).unwrap();
        assert_eq!(text, "here");
        let (message, descriptor) = receive(other.as_fd()).unwrap().unwrap();
        assert!(message == want && descriptor.is_none());
        drop(one);
        assert!(receive(other.as_fd()).unwrap().is_none());
        assert!(send(other.as_fd(), &want, None).is_err());
    }
}
