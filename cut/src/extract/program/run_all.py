#!/usr/bin/env python3
"""Runs each extracted launch in a process of its own, and prints a table.

Launches run with the compiled program if --program names one or ./launch or build/launch exists,
otherwise with launch.py. The exit status is 0 if all launches gave what was recorded, 1 if not.
"""

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys

WORDS = ["same", "nondeterministic", "different", "failed", "refused"]


def compiled(folder):
    """The compiled program, if there is one."""
    places = [os.path.join(folder, place) for place in ("launch", "build/launch")]
    return next((place for place in places if os.access(place, os.X_OK)), None)


def run(command, launch, timeout):
    """Runs one launch: its word, and the lines that it printed."""
    try:
        done = subprocess.run([*command, launch], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return "failed", [f"result   failed: no end after {timeout} s"]
    lines = done.stdout.decode(errors="replace").splitlines()
    results = [line for line in lines if line.startswith("result ")]
    if not results:
        how = (f"killed by signal {-done.returncode}" if done.returncode < 0
               else f"exit status {done.returncode}")
        return "failed", [*lines, f"result   failed: {how}"]
    return results[-1].split()[1].rstrip(":"), lines


def main():
    """Runs all launches."""
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("launches", nargs="*", help="run these only, e.g. launches/000057.txt")
    parser.add_argument("--program", help="run launches with this program")
    parser.add_argument("--driver", help="load this driver")
    parser.add_argument("--device", help="use this device")
    parser.add_argument("--repeat", default="0", help="time that many launches (default 0)")
    parser.add_argument("--tolerance", help="as of launch.py")
    parser.add_argument("--jobs", type=int, default=1, help="that many at a time")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for one launch")
    parser.add_argument("--json", help="write the results to this file")
    options = parser.parse_args()
    program = options.program or compiled(here)
    command = [program] if program else [sys.executable, os.path.join(here, "launch.py")]
    for name in ("driver", "device", "repeat", "tolerance"):
        if getattr(options, name) is not None:
            command += [f"--{name}", getattr(options, name)]
    with open(os.path.join(here, "index.json"), encoding="utf-8") as file:
        index = json.load(file)
    wanted = {os.path.abspath(launch) for launch in options.launches}
    launches = [launch for launch in index["launches"]
                if not wanted or os.path.join(here, launch["file"]) in wanted]
    paths = [os.path.join(here, launch["file"]) for launch in launches]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        ends = list(pool.map(lambda path: run(command, path, options.timeout), paths))
    table, problems, results = {}, [], []
    for launch, (word, lines) in zip(launches, ends):
        table.setdefault(launch["kernel"], dict.fromkeys(WORDS, 0))
        table[launch["kernel"]][word if word in WORDS else "failed"] += 1
        details = [line for line in lines if line.split(" ")[0] in ("differs", "result", "recorded")]
        if word != "same":
            problems.append(f"{launch['file']}: " + "; ".join(line.strip() for line in details))
        results.append({**launch, "result": word, "lines": lines})
    total = {word: sum(row[word] for row in table.values()) for word in WORDS}
    print(f"{'launches':>8} " + " ".join(f"{word:>16}" for word in WORDS) + "  kernel")
    for kernel, row in [*sorted(table.items(), key=lambda entry: -sum(entry[1].values())),
                        ("all", total)]:
        counts = " ".join(f"{row[word]:>16}" for word in WORDS)
        print(f"{sum(row.values()):>8} {counts}  {kernel[:100]}")
    for problem in problems:
        print(problem)
    left_out = {} if wanted else index["left_out"]
    for reason, calls in left_out.items():
        print(f"not extracted: {len(calls)}, the first at call {calls[0]}: {reason}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"results": results, "left_out": left_out}, file, indent=1)
    return 0 if total["same"] == len(launches) else 1


if __name__ == "__main__":
    sys.exit(main())
