//! What a restricted thread can do, and what it cannot.

use std::fs;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use cutape_sandbox::{Layer, Permissions, enter, support};

/// A folder in the folder of the build, since that for temporary files can be written.
fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sandbox");
    fs::create_dir_all(folder.join("outputs")).unwrap();
    fs::write(folder.join("kept"), "kept").unwrap();
    // A test that failed has left it.
    let _ = fs::remove_file(folder.join("service"));
    folder
}

/// A call of the system without pointers; its error.
fn refusal(number: i64, arguments: [u64; 3]) -> Option<i32> {
    let [first, second, third] = arguments;
    // SAFETY: the calls of the tests read and write no memory of this process.
    let answer = unsafe { libc::syscall(number, first, second, third) };
    (answer < 0)
        .then(|| io::Error::last_os_error().raw_os_error())
        .flatten()
}

/// Opens a file to be read, and empties it if that is possible.
fn empty(path: &Path) -> io::Result<fs::File> {
    let mut options = fs::File::options();
    options.read(true).custom_flags(libc::O_TRUNC).open(path)
}

/// The folder for temporary files can be written, and a build may be there.
fn is_temporary(path: &Path) -> bool {
    path.starts_with(std::env::temp_dir())
}

#[test]
fn a_replay_cannot_harm_the_machine() {
    let folder = folder();
    let outputs = vec![folder.join("outputs")];
    let supported = support();
    let at = |name: &str| folder.join(name);
    let (kept, new, output) = (at("kept"), at("new"), at("outputs/new"));
    let service = at("service");
    let listener = UnixListener::bind(&service).unwrap();
    let mode = fs::metadata(&kept).unwrap().permissions().mode();
    let (layers, done) = thread::spawn(move || {
        let layers = enter(&Permissions {
            writable: outputs,
            has_peers: false,
        });
        let has = |what: &str| {
            let mut layers = layers.iter();
            let layer = layers.find(|layer| layer.what.contains(what)).unwrap();
            layer.refused.is_none()
        };
        let (files, services, calls) = (has("files"), has("service"), has("starts"));
        let files = files && !is_temporary(&kept);
        let refused = |done: io::Result<()>| done.is_err();
        let own = u64::from(std::process::id());
        let denied = |number, arguments| refusal(number, arguments) == Some(libc::EPERM);
        let open_to_all = fs::Permissions::from_mode(0o777);
        let done = [
            ("reads", fs::read(&kept).is_ok(), true),
            ("writes an output", fs::write(&output, "x").is_ok(), true),
            ("copies", fs::copy(&kept, &output).is_ok(), true),
            ("talks", UnixStream::pair().is_ok(), true),
            ("has threads", thread::spawn(|| ()).join().is_ok(), true),
            (
                "signals itself",
                refusal(libc::SYS_kill, [own, 0, 0]).is_none(),
                true,
            ),
            ("writes", refused(fs::write(&new, "x")), files),
            ("truncates", refused(fs::write(&kept, "")), files),
            ("empties", empty(&kept).is_err(), files || calls),
            (
                "opens to all",
                fs::set_permissions(&kept, open_to_all).is_ok()
                    && fs::metadata(&kept).unwrap().permissions().mode() == mode,
                calls,
            ),
            ("starts", Command::new("true").status().is_err(), calls),
            ("listens", TcpListener::bind("127.0.0.1:0").is_err(), calls),
            ("sends", UdpSocket::bind("127.0.0.1:0").is_err(), calls),
            (
                "asks a service",
                UnixStream::connect(&service).is_err(),
                services,
            ),
            // To a descriptor that is none: what the filter lets pass fails with EBADF.
            (
                "types",
                denied(libc::SYS_ioctl, [u64::MAX, libc::TIOCSTI, 0]),
                calls,
            ),
            (
                "types on a console",
                denied(libc::SYS_ioctl, [u64::MAX, libc::TIOCLINUX | 1 << 32, 0]),
                calls,
            ),
            // With flags that the system refuses.
            (
                "forks",
                denied(
                    libc::SYS_clone,
                    [(libc::CLONE_NEWNS | libc::CLONE_FS) as u64, 0, 0],
                ),
                calls,
            ),
            (
                "signals others",
                denied(libc::SYS_kill, [own ^ 1, libc::SIGURG as u64, 0]),
                calls,
            ),
            (
                "limits others",
                denied(libc::SYS_prlimit64, [own ^ 1, 0, 0]),
                calls,
            ),
            (
                "uses other numbers",
                denied(libc::SYS_getpid | 1 << 30, [0; 3]),
                calls,
            ),
            // The last, since others use the file.
            ("removes", refused(fs::remove_file(&kept)), files),
        ];
        (layers, done)
    })
    .join()
    .unwrap();
    assert_eq!(layers, supported);
    for (what, found, expected) in done {
        assert_eq!(found, expected, "{what}");
    }
    let is_kept = || fs::read(folder.join("kept")).is_ok_and(|bytes| bytes == b"kept");
    assert!(is_temporary(&folder) || is_kept());
    // Only that thread and what it starts.
    fs::write(folder.join("new"), "x").unwrap();
    drop(listener);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_refusal_is_named() {
    let layer = Layer {
        what: "has no network",
        refused: Some("seccomp: Invalid argument".to_owned()),
    };
    assert_eq!(
        layer.to_string(),
        "not applied: has no network (seccomp: Invalid argument)"
    );
}
