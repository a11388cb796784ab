//! System calls that no driver needs fail: programs, networks, other processes (seccomp).

use std::collections::BTreeMap;
use std::path::PathBuf;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, sock_filter,
};

pub(crate) const WHAT: &str = "starts no program, has no network, touches no other process";
pub(crate) const SERVICES: &str = "reaches no service of this machine";

/// They fail with EPERM.
const DENIED: &[i64] = &[
    // Programs, and processes, which could outlive the replay.
    libc::SYS_execve,
    libc::SYS_execveat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_tkill,
    libc::SYS_kcmp,
    libc::SYS_perf_event_open,
    // Requests that a filter does not see.
    libc::SYS_io_uring_setup,
    // Names of files, and who may do what. Landlock before Linux 6.2 does not see `truncate`.
    libc::SYS_truncate,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_add_key,
    libc::SYS_keyctl,
    libc::SYS_request_key,
    // The kernel and the machine.
    libc::SYS_bpf,
    libc::SYS_userfaultfd,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_syslog,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_acct,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
];

/// A filter does not see what these do. They fail with ENOSYS, as on a system that lacks them:
/// callers then use `clone` and `openat`.
const UNSEEN: &[i64] = &[libc::SYS_clone3, libc::SYS_openat2];

/// Modes, owners, times and attributes of files, which Landlock does not know. They succeed without
/// effect: a copy of a file, for example, has the mode already that is set then.
const WITHOUT_EFFECT: &[i64] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchmodat2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
];

/// Numbers from here on are those of the x32 interface, which the rules do not match.
const X32: u32 = 1 << 30;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

pub(crate) fn restrict() -> Result<(), String> {
    is_supported()?;
    let mut denied = always(DENIED);
    let conditions = conditions().map_err(|error| error.to_string())?;
    for (call, conditions) in conditions {
        let rule = SeccompRule::new(conditions).map_err(|error| error.to_string())?;
        denied.entry(call).or_default().push(rule);
    }
    apply(denied, libc::EPERM)?;
    apply(always(UNSEEN), libc::ENOSYS)?;
    apply(always(WITHOUT_EFFECT), 0)?;
    seccompiler::apply_filter(&without_x32()).map_err(|error| error.to_string())
}

/// Keeps the process from connecting to services, which start programs and reach networks for
/// others: Docker, the bus of the desktop.
pub(crate) fn disconnect(has_peers: bool) -> Result<(), String> {
    can_disconnect(has_peers)?;
    // As if there were no service, so that who can do without one does.
    apply(always(&[libc::SYS_connect]), libc::ENOENT)
}

/// Whether the driver can do without connections: processes that share memory or the GPU have some
/// (assumed).
pub(crate) fn can_disconnect(has_peers: bool) -> Result<(), String> {
    is_supported()?;
    if has_peers {
        return Err("ranks that are replayed together may connect to each other".to_owned());
    }
    let control = mps_control();
    match control.exists() {
        true => Err(format!("the driver uses MPS: {}", control.display())),
        false => Ok(()),
    }
}

/// Where programs connect to the Multi-Process Service (its manual, environment variables).
fn mps_control() -> PathBuf {
    let folder = std::env::var_os("CUDA_MPS_PIPE_DIRECTORY").filter(|path| !path.is_empty());
    let folder = folder.map_or_else(|| PathBuf::from("/tmp/nvidia-mps"), PathBuf::from);
    folder.join("control")
}

/// Whether the kernel has filters of system calls.
pub(crate) fn is_supported() -> Result<(), String> {
    let action = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the action outlives the call.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_GET_ACTION_AVAIL,
            0,
            &raw const action,
        )
    };
    match answer {
        0 => Ok(()),
        _ => Err(format!("seccomp: {}", crate::last_error())),
    }
}

/// These calls, whatever their arguments are.
fn always(calls: &[i64]) -> Rules {
    calls.iter().map(|&call| (call, Vec::new())).collect()
}

/// Calls that are denied with some arguments.
fn conditions() -> Result<Vec<(i64, Vec<SeccompCondition>)>, BackendError> {
    use SeccompCmpOp::{Eq, MaskedEq, Ne};
    let when = |argument: u8, operator: SeccompCmpOp, value: u64| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
    };
    let process = u64::from(std::process::id());
    let mut all = vec![
        // Ranks, and the driver's own services, talk through sockets of this machine.
        (libc::SYS_socket, vec![when(0, Ne, libc::AF_UNIX as u64)?]),
        // Threads, and no process.
        (
            libc::SYS_clone,
            vec![when(0, MaskedEq(libc::CLONE_THREAD as u64), 0)?],
        ),
        (
            libc::SYS_prlimit64,
            vec![when(0, Ne, 0)?, when(0, Ne, process)?],
        ),
        // Signal 0 only asks whether there is such a process.
        (libc::SYS_kill, vec![when(0, Ne, process)?, when(1, Ne, 0)?]),
    ];
    // What they put into the terminal, the user's shell takes for a command.
    for request in [libc::TIOCSTI, libc::TIOCLINUX] {
        all.push((libc::SYS_ioctl, vec![when(1, Eq, request)?]));
    }
    for call in [
        libc::SYS_tgkill,
        libc::SYS_rt_sigqueueinfo,
        libc::SYS_rt_tgsigqueueinfo,
        libc::SYS_process_vm_readv,
    ] {
        all.push((call, vec![when(0, Ne, process)?]));
    }
    // Empties a file that is not opened to be written, which Landlock sees since Linux 6.2.
    let modes = (libc::O_TRUNC | libc::O_ACCMODE) as u64;
    for mode in [libc::O_RDONLY, libc::O_ACCMODE] {
        let empties = || when(2, MaskedEq(modes), (libc::O_TRUNC | mode) as u64);
        all.push((libc::SYS_openat, vec![empties()?]));
        #[cfg(target_arch = "x86_64")]
        all.push((
            libc::SYS_open,
            vec![when(1, MaskedEq(modes), (libc::O_TRUNC | mode) as u64)?],
        ));
    }
    Ok(all)
}

/// Has these calls fail with that error.
fn apply(rules: Rules, error: i32) -> Result<(), String> {
    let architecture = TargetArch::try_from(std::env::consts::ARCH);
    let program = architecture.and_then(|architecture| {
        let answer = SeccompAction::Errno(error as u32);
        SeccompFilter::new(rules, SeccompAction::Allow, answer, architecture)?.try_into()
    });
    let program: BpfProgram = program.map_err(|error: BackendError| error.to_string())?;
    seccompiler::apply_filter(&program).map_err(|error| error.to_string())
}

/// All calls through the x32 interface fail with EPERM. The other filters end a process that uses
/// the interface of 32 bits.
fn without_x32() -> BpfProgram {
    const NUMBER: u32 = 0;
    let statement = |code: u32, k| sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    };
    let answer = |action| statement(libc::BPF_RET | libc::BPF_K, action);
    vec![
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, NUMBER),
        sock_filter {
            jf: 1,
            ..statement(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, X32)
        },
        answer(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        answer(libc::SECCOMP_RET_ALLOW),
    ]
}
