#!/usr/bin/env bash
# Looks for undefined behaviour, data races and wrong accesses with the tools of nightly Rust.
#   tests/sanitizers.sh miri       Miri: how records are written, published and read
#   tests/sanitizers.sh address    AddressSanitizer: readers and parsers; the recorder in C programs
#   tests/sanitizers.sh thread     ThreadSanitizer: the recorder in C programs
# Needs gcc and `rustup toolchain install nightly --component miri,rust-src`.
# docs/reliability.md says what each has found and what it cannot see.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_INCREMENTAL=0
# Named, so that build scripts and macros are not sanitized.
host=$(rustc +nightly -vV | sed -n 's/^host: //p')
target=${CARGO_TARGET_DIR:-$PWD/target}

miri() {
    local format=(cargo +nightly miri test -q --target-dir "$target" -p cutape-format --features build --lib)
    echo "== publication of records, under many schedules"
    # The reader looks at memory that is being written, as through a map of the file; the models of
    # aliasing know no such memory.
    MIRIFLAGS="-Zmiri-disable-stacked-borrows -Zmiri-many-seeds=0..32" "${format[@]}" -- \
        published_records pauses_are_seen
    echo "== unit tests of what writes and reads records"
    MIRIFLAGS=-Zmiri-disable-isolation PROPTEST_CASES=4 "${format[@]}" -- \
        slot:: control:: file_range:: record::tests::heads short_enter::tests::forms
}

# The C programs of tests/programs/clean, sanitized, with a sanitized recorder and null driver: what
# runs without a report alone must do so when it is recorded.
# $1: name of the sanitizer, $2: that of its library, $3...: options of cargo
programs() {
    local sanitizer=$1 library=$2 folder=$target/$1/programs libraries=$target/$1/$host/debug
    shift 2
    RUSTFLAGS="-Zsanitizer=$sanitizer --cfg ${sanitizer}_sanitizer" cargo +nightly build -q "$@" \
        -p cutape-nulldriver -p cutape-interposer --target "$host" --target-dir "$target/$sanitizer"
    cargo build -q -p cutape
    cargo build -q -p cutape-audit
    rm -rf "$folder"
    mkdir -p "$folder/driver"
    ln -s "$libraries/libcutape_null.so" "$folder/driver/libcuda.so.1"
    # That of Rust, whose compiler calls functions that gcc's has not.
    library=$(rustc +nightly --print sysroot)/lib/rustlib/$host/lib/librustc-nightly_rt.$library.a
    local source name settings ran=0 alone=0 failed=0 include=(-Itests/programs/include -Itests/programs)
    local runtime=("-Wl,--whole-archive" "$library" "-Wl,--no-whole-archive" "-Wl,--export-dynamic")
    for source in tests/programs/clean/*.c; do
        # The CPU writes a word that the device polls, here the null driver: a race on purpose.
        [[ $sanitizer != thread || $source != */graph_awaits_cpu.c ]] || continue
        name=$folder/$(basename "$source" .c)
        gcc -std=gnu11 -O1 -g "-fsanitize=$sanitizer" "${include[@]}" -c -o "$name.o" "$source"
        gcc -o "$name" "$name.o" "${runtime[@]}" "$folder/driver/libcuda.so.1" \
            -lpthread -ldl -lm -lrt -lresolv
        # What the program's null driver must do: NAME=VALUE, with spaces between them.
        read -ra settings < <(sed -n 's,^// null-driver: ,,p' "$source") || true
        if ! LD_LIBRARY_PATH=$folder/driver timeout 120 env "${settings[@]}" "$name" >"$name.alone" 2>&1; then
            alone=$((alone + 1))
            echo "not run: $source fails without cutape: $(grep -m 1 -e SUMMARY -e FAILED "$name.alone" || true)"
            continue
        fi
        ran=$((ran + 1))
        if ! CUTAPE_INTERPOSER=$libraries/libcutape_interposer.so timeout 300 \
            env "${settings[@]}" "$target/debug/cutape" record --driver "$folder/driver/libcuda.so.1" --stacks=all \
            --breadcrumbs=1 --check-sources --overwrite -o "$name.cutape" -- "$name" \
            >"$name.recorded" 2>&1; then
            failed=$((failed + 1))
            echo "FAILED: $source: $name.recorded: $(grep -m 1 SUMMARY "$name.recorded" || true)"
        fi
    done
    echo "$ran programs recorded, $failed with a report; $alone not run"
    ((failed == 0 && ran > 0))
}

case "${1-}" in
miri) miri ;;
address)
    # A panic that a test expects leaks, and a test asks for more memory than there is.
    RUSTFLAGS=-Zsanitizer=address ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 cargo +nightly test -q --lib --tests \
        --target "$host" --target-dir "$target/address" -p cutape-format -p cutape-image \
        -p cutape-model
    programs address asan
    ;;
thread) programs thread tsan -Zbuild-std ;;
*)
    sed -n '2,7s/^# //p' "$0" >&2
    exit 2
    ;;
esac
