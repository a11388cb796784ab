#!/bin/sh
# Compiles pauses.c for tests/gpu/ctl.sh.
#   build.sh FOLDER DRIVER      DRIVER is a libcuda.so.1, or the null driver
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
"${CC:-cc}" -std=gnu11 -O1 -Wall -Werror -I"$here/.." -I"$here/../include" \
    -o "$1/pauses" "$here/pauses.c" "$2" -pthread -ldl
