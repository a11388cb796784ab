#!/bin/sh
# GPU times of replays (cutape profile) and of the original programs (CUPTI injected into them).
#     tests/gpu/profile.sh FOLDER RESULTS [PROGRAM...]
set -eu
exec python3 "$(dirname "$0")/profile.py" "$@"
