"""Records programs with and without an event between two streams, and replays both orders.

The exit status is 1 if a race is not proven, or one is where there is none.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from run import Ended

PROGRAM = Path(__file__).resolve().parent / "programs" / "planted" / "race.cu"


def main():
    package, results = (Path(word).resolve() for word in sys.argv[1:3])
    results.mkdir(parents=True, exist_ok=True)
    binary, cutape, wrong = results / "race", package / "cutape", 0
    subprocess.run(["nvcc", "-arch=native", "-o", binary, PROGRAM], check=True)
    # The first launch of a kernel would load its code, and wait for the work that is kept back.
    os.environ["CUDA_MODULE_LOADING"] = "EAGER"
    names = re.findall(r'is\("(\w+)"\)', PROGRAM.read_text())
    print(f"{'program':26} {'ordered':8} {'pairs':>5} {'proven':>6} {'seconds':>8}")
    for name in names:
        if sys.argv[3:] and not any(word in name for word in sys.argv[3:]):
            continue
        for ordered in [], ["ordered"]:
            trace = results / f"race_{name}{''.join(ordered)}.cutape"
            trace.unlink(missing_ok=True)
            recorded = Ended([cutape, "record", "-o", trace, "--", binary, name, *ordered], text=True)
            asked = Ended([cutape, "race", trace, "--report", "-"], text=True)
            if recorded.status != 0 or asked.status not in (0, 1):
                wrong += 1
                print(f"{name:26} FAILED: {recorded.err} {asked.err}")
                continue
            races = json.loads(asked.out)
            proven = sum("proven" in race["outcome"] for race in races if isinstance(race["outcome"], dict))
            is_right = proven == 0 and not races if ordered else proven > 0
            wrong += not is_right
            mark = "" if is_right else f"  WRONG: {[race['outcome'] for race in races]!s:.200}"
            print(
                f"{name:26} {'yes' if ordered else 'no':8} {len(races):5} {proven:6} {asked.seconds:8.2f}{mark}",
                flush=True,
            )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
