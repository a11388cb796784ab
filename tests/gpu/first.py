"""Records a training with a planted NaN, and asks who wrote the first one; and a program with writes
of a few bytes in long memory, and asks which bytes changed.

The exit status is 1 if the launch or the bytes are not named.
"""

import json
import re
import sys
from pathlib import Path

from run import Ended

PROGRAM = Path(__file__).resolve().parent / "programs" / "planted" / "training.py"


def named(answer):
    """The writer of the first finding: its call, its place and its kernel."""
    if not answer["findings"]:
        return None, "", ""
    found = answer["findings"][0]
    by, facts = found["by"], found["by_call"]
    kernel = by["node"][1] if isinstance(by, dict) else facts["kernel"] or facts["function"]
    return found["call"], facts["from"] or "", kernel


def exact(cutape, results, program):
    """Whether the bytes of scattered writes in a long range are named; the number of mistakes."""
    trace = results / "scattered_writes.cutape"
    trace.unlink(missing_ok=True)
    recorded = Ended([cutape, "record", "-o", trace, "--", program], text=True)
    replayed = Ended([cutape, "replay", trace], text=True)
    question = ["--changed", "memory#1+0+4000000", "--most", "4", "--report", "-"]
    asked = Ended([cutape, "first", trace, *question], text=True)
    if recorded.status or asked.status:
        print(f"exact bytes: WRONG: {recorded.err.strip()} {asked.err.strip()}")
        return 1
    # The first one writes all; then tests/programs/clean/scattered_writes.c says.
    columns = [[100_000 * row + 7, 3] for row in range(40)]
    expected = [columns, [[65_535, 2]], [[100_000, 1], [200_000, 1]]]
    found = [finding["change"]["parts"] for finding in json.loads(asked.out)["findings"]]
    is_right = found[1:] == expected
    print(
        f"exact bytes: {'ok' if is_right else 'WRONG'}: {[len(parts) for parts in found]} parts, "
        f"replay {replayed.seconds:.2f} s, first {asked.seconds:.2f} s {asked.err.strip()}",
        flush=True,
    )
    return 0 if is_right else 1


def main():
    package, results = (Path(word).resolve() for word in sys.argv[1:3])
    results.mkdir(parents=True, exist_ok=True)
    cutape = package / "cutape"
    wrong = exact(cutape, results, package / "programs" / "clean.scattered_writes")
    print(f"{'program':8} {'options':12} {'call':>7} {'place':26} {'kernel':40} {'replay s':>8} {'first s':>8} ratio")
    for way in sys.argv[3:] or ["eager", "graph"]:
        trace = results / f"training_{way}.cutape"
        trace.unlink(missing_ok=True)
        command = [sys.executable, PROGRAM, way]
        ended = Ended([cutape, "record", "--stacks=all", "-o", trace, "--", *command], text=True)
        found = re.search(r"PLANTED (\S+) (\d+)", ended.out)
        if ended.status != 0 or not found:
            print(f"{way:8} skipped: {ended.err.strip().splitlines()[-1:]}")
            continue
        kernels, line = found.groups()
        replayed = Ended([cutape, "replay", trace], text=True)
        for options in [[], ["--type", "f32"]]:
            asked = Ended([cutape, "first", trace, "--nan", *options, "--report", "-"], text=True)
            if asked.status != 0:
                print(f"{way:8} WRONG: {asked.err.strip()}")
                wrong += 1
                continue
            call, place, kernel = named(json.loads(asked.out))
            is_right = re.search(kernels, kernel) and (
                way == "graph" or place.startswith(f"{PROGRAM}:{line} ") or f"{PROGRAM.name}:{line} " in place
            )
            wrong += not is_right
            mark = "" if is_right else f"  WRONG, line {line}"
            mark += f" {asked.err.strip()}" if asked.err else ""
            short = re.sub(r".*native::", "", kernel)[:40]
            print(
                f"{way:8} {' '.join(options):12} {call!s:>7} {place.rsplit('/', 1)[-1][:26]:26} {short:40} "
                f"{replayed.seconds:8.2f} {asked.seconds:8.2f} {asked.seconds / replayed.seconds:5.2f}{mark}",
                flush=True,
            )
    return 1 if wrong else 0


sys.exit(main())
