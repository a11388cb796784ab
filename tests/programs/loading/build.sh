#!/bin/sh
# Builds the programs of this folder.
#   build.sh FOLDER LIBRARY
# LIBRARY is a libcuda.so.1 to link to. At run time FOLDER/driver has to hold libcuda.so.1, for
# those that look there.
set -eu
source=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1/private"
folder=$1
library=$2
build() {
    output=$1
    shift
    "${CC:-cc}" -std=gnu11 -O1 -g -Wall -Werror -o "$folder/$output" "$@" -ldl
}
cd "$source"
build linked linked.c "$library"
build rpath linked.c "$library" -Wl,--disable-new-dtags,-rpath,'$ORIGIN/driver'
build runpath linked.c "$library" -Wl,--enable-new-dtags,-rpath,'$ORIGIN/driver'
build constructor constructor.c "$library"
for name in open fork global versioned namespace plugin clean emptied spawned symbols parallel; do
    build "$name" "$name.c"
done
build plugin_linked.so -shared -fPIC plugin_linked.c "$library"
build plugin_open.so -shared -fPIC plugin_open.c
# Only its own RUNPATH leads to the library that it opens.
build plugin_private.so -shared -fPIC plugin_open.c -Wl,--enable-new-dtags,-rpath,'$ORIGIN/private'
build private/libprivate.so -shared -fPIC plugin_linked.c "$library"
