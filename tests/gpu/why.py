"""Records programs with a planted wrong byte, and asks who wrote it.

The exit status is 1 if the launch or the line is not named.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from run import Ended

PROGRAMS = Path(__file__).resolve().parent / "programs" / "planted"


def programs(results):
    """Names and commands."""
    source = PROGRAMS / "planted.py"
    for name in re.findall(r"^def (?!planted)(\w+)\(\)", source.read_text(), re.MULTILINE):
        yield name, source, [sys.executable, source, name]
    if not shutil.which("nvcc"):
        return print("C++: skipped: nvcc is not installed")
    source, binary = PROGRAMS / "planted.cu", results / "planted"
    subprocess.run(["nvcc", "-arch=native", "-g", "-o", binary, source], check=True)
    for name in re.findall(r"^static void (?!planted)(\w+)\(\)", source.read_text(), re.MULTILINE):
        yield f"c++ {name}", source, [binary, name]


def line_of(asked):
    """What the last write of an answer says: the call, its place, whether it is a node."""
    writes = [write for write in asked["writes"] if write["by"] not in ("ends", "begins")]
    if not writes:
        return None, "", "", ""
    last = writes[0]
    by, facts = last["by"], last["by_call"]
    node = by["node"][1] if isinstance(by, dict) else ""
    kernel = node or facts["kernel"] or facts["function"]
    return last["call"], facts["from"] or "", kernel, node


def main():
    package, results = (Path(word).resolve() for word in sys.argv[1:3])
    results.mkdir(parents=True, exist_ok=True)
    cutape, wrong = package / "cutape", 0
    print(f"{'program':20} {'call':>6} {'place':34} {'kernel':30} {'replay s':>8} {'why s':>7} ratio")
    for name, source, command in programs(results):
        if sys.argv[3:] and not any(word in name for word in sys.argv[3:]):
            continue
        trace = results / f"{name.replace(' ', '_')}.cutape"
        trace.unlink(missing_ok=True)
        ended = Ended([cutape, "record", "--stacks=all", "-o", trace, "--", *command], text=True)
        found = re.search(r"PLANTED (\S+) (\d+) ?(\w*)", ended.out)
        if ended.status != 0 or not found:
            print(f"{name:20} skipped: {ended.err.strip().splitlines()[-1:]}")
            continue
        address, line, kernel = found.groups()
        replayed = Ended([cutape, "replay", trace], text=True)
        asked = [cutape, "why", trace, f"{address}+1", "--depth", "1", "--report", "-"]
        answered = Ended(asked, text=True)
        if answered.status != 0:
            print(f"{name:20} WRONG: {answered.err.strip()}")
            wrong += 1
            continue
        call, place, named, node = line_of(json.loads(answered.out))
        is_right = f"{source.name}:{line}" in place
        is_right &= bool(node) if kernel == "graph" else kernel in named
        wrong += not is_right
        ratio = answered.seconds / replayed.seconds
        mark = "" if is_right else f"  WRONG, line {line} {kernel}"
        mark += f" {answered.err.strip()}" if answered.err else ""
        place = place.rsplit("/", 1)[-1]
        print(
            f"{name:20} {call!s:>6} {place[:34]:34} {named[:30]:30} {replayed.seconds:8.2f} "
            f"{answered.seconds:7.2f} {ratio:5.2f}{mark}",
            flush=True,
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
