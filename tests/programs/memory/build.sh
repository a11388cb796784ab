#!/bin/sh
# Compiles evolving.c for tests/gpu/flight.sh.
#   build.sh FOLDER DRIVER      DRIVER is a libcuda.so.1, or the null driver
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
"${CC:-cc}" -std=gnu11 -O1 -Wall -Werror -I"$here/.." -I"$here/../include" \
    -o "$1/evolving" "$here/evolving.c" "$2" -pthread -ldl
