"""Records programs with and without an event between streams, lazily and eagerly, and replays other
orders.

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
# Programs with more than two works: how many other orders are tried, and what both variants have.
EXPLORED = {"three_streams": 5}
# The second kernel may overlap the first, whether it waits for it or not: a pair in both variants.
OVERLAPPING = {"overlapping_kernels"}


def is_proven(tried):
    return isinstance(tried["outcome"], dict) and "proven" in tried["outcome"]


def try_one(cutape, trace, name, ordered):
    """Pairs, proven pairs, proven orders, errors of check, what is wrong."""
    orders = ["--explore", str(EXPLORED[name])] if name in EXPLORED else []
    report = trace.with_suffix(".json")
    asked = Ended([cutape, "race", trace, "--report", report, *orders], text=True)
    if asked.status not in (0, 1):
        return 0, 0, 0, 0, asked.err
    found = json.loads(report.read_text())
    races = found["races"]
    proven = sum(map(is_proven, races))
    tried = [order for window in found["explored"] for order in window["tried"]]
    other = sum(map(is_proven, tried))
    check = Ended([cutape, "check", trace, "--proven", report, "--format", "json"], text=True)
    findings = json.loads(check.out)["findings"] if check.status in (0, 1) else []
    errors = sum(finding["severity"] == "error" for finding in findings)
    if ordered:
        is_right = proven == other == errors == 0 and (not races or name in OVERLAPPING)
    else:
        is_right = proven > 0 and errors > 0 and other == EXPLORED.get(name, 0)
    outcomes = [one["outcome"] for one in races + tried]
    return len(races), proven, other, errors, "" if is_right else f"{outcomes!s:.200} {asked.err}"


def main():
    package, results = (Path(word).resolve() for word in sys.argv[1:3])
    results.mkdir(parents=True, exist_ok=True)
    binary, cutape = results / "race", package / "cutape"
    subprocess.run(["nvcc", "-arch=native", "-o", binary, PROGRAM], check=True)
    names = re.findall(r'is\("(\w+)"\)', PROGRAM.read_text())
    names = [name for name in names if not sys.argv[3:] or any(word in name for word in sys.argv[3:])]
    print(f"{'program':26} {'loading':8} {'ordered':8} {'pairs':>5} {'proven':>6} {'orders':>6} {'errors':>6}")
    wrong, summary = 0, []
    for loading in "LAZY", "EAGER":
        proven_programs = programs_with_pairs = 0
        for name in names:
            for ordered in [], ["ordered"]:
                trace = results / f"race_{name}_{loading}{''.join(ordered)}.cutape"
                trace.unlink(missing_ok=True)
                environment = {**os.environ, "CUDA_MODULE_LOADING": loading}
                command = [cutape, "record", "-o", trace, "--", binary, name, *ordered]
                recorded = Ended(command, text=True, env=environment)
                if recorded.status != 0:
                    pairs, proven, other, errors, why = 0, 0, 0, 0, recorded.err
                else:
                    pairs, proven, other, errors, why = try_one(cutape, trace, name, ordered)
                wrong += bool(why)
                proven_programs += bool(proven and not ordered)
                programs_with_pairs += bool(pairs and ordered and name not in OVERLAPPING)
                print(
                    f"{name:26} {loading.lower():8} {'yes' if ordered else 'no':8} {pairs:5} {proven:6} "
                    f"{other:6} {errors:6}{'  WRONG: ' + why if why else ''}",
                    flush=True,
                )
        summary.append(
            f"{loading.lower()}: {proven_programs}/{len(names)} proven without order, "
            f"{programs_with_pairs}/{len(names)} with pairs in spite of order"
        )
    print("\n".join([*summary, f"{wrong} wrong"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
