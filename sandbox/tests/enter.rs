//! What a restricted thread can do, and what it cannot.

use std::fs;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use cutape_sandbox::{Layer, Permissions, enter, support};

/// A folder in the folder of the build, since that for temporary files can be written.
fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sandbox");
    fs::create_dir_all(folder.join("outputs")).unwrap();
    fs::write(folder.join("kept"), "kept").unwrap();
    folder
}

#[test]
fn a_replay_cannot_harm_the_machine() {
    let folder = folder();
    let outputs = vec![folder.join("outputs")];
    let supported = support();
    let at = |name: &str| folder.join(name);
    let (kept, new, output) = (at("kept"), at("new"), at("outputs/new"));
    let (layers, done) = thread::spawn(move || {
        let layers = enter(&Permissions {
            writable: outputs,
            has_peers: false,
        });
        let refused = |done: io::Result<()>| done.is_err();
        let done = [
            ("reads", fs::read(&kept).is_ok(), true),
            ("writes an output", fs::write(&output, "x").is_ok(), true),
            ("talks", UnixStream::pair().is_ok(), true),
            (
                "writes",
                refused(fs::write(&new, "x")),
                layers[2].refused.is_none(),
            ),
            (
                "truncates",
                refused(fs::write(&kept, "")),
                layers[2].refused.is_none(),
            ),
            (
                "removes",
                refused(fs::remove_file(&kept)),
                layers[2].refused.is_none(),
            ),
            (
                "starts",
                Command::new("true").status().is_err(),
                layers[3].refused.is_none(),
            ),
            (
                "listens",
                TcpListener::bind("127.0.0.1:0").is_err(),
                layers[3].refused.is_none(),
            ),
            (
                "sends",
                UdpSocket::bind("127.0.0.1:0").is_err(),
                layers[3].refused.is_none(),
            ),
        ];
        (layers, done)
    })
    .join()
    .unwrap();
    assert_eq!(layers, supported);
    for (what, found, expected) in done {
        assert_eq!(found, expected, "{what}");
    }
    // Only that thread and what it starts.
    fs::write(folder.join("new"), "x").unwrap();
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
