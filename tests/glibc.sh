#!/bin/sh
# The tests of loading and of launchers with the C libraries of other systems.
#   tests/glibc.sh ROOT...
# Each ROOT is a folder with a Debian or Ubuntu system and a C compiler, as made by
#   debootstrap --variant=minbase --include=gcc,libc6-dev,make SUITE ROOT
# Name the oldest system first: everything is compiled there, offline, into ROOT/target, and also
# runs in the others. Needs root. The Rust toolchain and cargo's registry are mounted read-only.
set -eu
if [ $# -eq 0 ]; then
    sed -n '2,7s/^# //p' "$0" >&2
    exit 2
fi
source=$(cd "$(dirname "$0")/.." && pwd)
export source toolchain="$(cd "$source" && rustc --print sysroot)" registry="${CARGO_HOME:-$HOME/.cargo}/registry"
first=$(cd "$1" && pwd)
mkdir -p "$first/target"
export target="$first/target"
status=0
for root; do
    export root="$(cd "$root" && pwd)"
    echo "== $(chroot "$root" ldd --version | head -n 1)"
    # What is mounted here is mounted for this command alone.
    unshare --mount --propagation private sh -eu -c '
        see() {
            mkdir -p "$root/$2"
            mount --rbind "$1" "$root/$2"
            test "$3" = write || mount -o remount,bind,ro "$root/$2"
        }
        see "$source" src read
        see "$toolchain" rust read
        see "$registry" cargo/registry read
        test "$target" = "$root/target" || see "$target" target write
        see /dev dev write
        mount -t proc proc "$root/proc"
        exec chroot "$root" env -i PATH=/rust/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root CARGO_HOME=/cargo CARGO_TARGET_DIR=/target \
            sh -c "cd /src
                failed=0
                for tests in loading/ launchers/; do
                    cargo test --offline --quiet -p cutape-tests --test end_to_end -- \$tests || failed=1
                done
                exit \$failed"
    ' || status=1
done
exit $status
