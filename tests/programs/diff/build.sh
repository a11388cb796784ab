#!/bin/sh
# Compiles changes.c once as it is (base) and once with each of its macros, for tests/gpu/diff.sh.
#   build.sh FOLDER DRIVER      DRIVER is a libcuda.so.1, or the null driver
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
for macro in $(sed -n 's/^ \*   \([A-Z_]*\)  .*/\1/p' "$here/changes.c") base; do
    "${CC:-cc}" -std=gnu11 -O1 -Wall -Werror -I"$here/.." -I"$here/../include" -D"$macro" \
        -o "$1/$macro" "$here/changes.c" "$2" -pthread
done
