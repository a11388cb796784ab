#!/bin/sh
# What `what-if` measures of five planted slownesses, and what the repaired programs gain.
#     tests/gpu/what_if.sh FOLDER RESULTS [CASE...]
# FOLDER is the output of `cargo xtask package`.
set -eu
exec python3 "$(dirname "$0")/what_if.py" "$@"
