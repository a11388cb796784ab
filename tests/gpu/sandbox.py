"""Replays traces in the sandbox and without, with an empty compute cache, and compares the reports.

The exit status is 1 if one differs, or if a layer is missing.
"""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from run import AT_ONCE, Ended

DRIVER = os.environ.get("DRIVER")
# What may differ from run to run.
VOLATILE = {"wall_seconds", "seconds", "placement", "attempts", "teardown", "notes"}


def replayed(cutape, trace, results, options):
    """How a replay with a compute cache of its own ended, its report, and how many files it cached."""
    name = f"{trace.stem}.{len(options)}"
    report, cache = results / f"{name}.json", results / "cache" / name
    report.unlink(missing_ok=True)
    driver = ["--driver", DRIVER] if DRIVER else []
    words = [cutape, "--log", "info", "replay", *driver, *options, "--keep-going", "--report", report, trace]
    done = Ended(words, env=os.environ | {"CUDA_CACHE_PATH": str(cache)})
    found = json.loads(report.read_text()) if report.exists() else {}
    kept = sum(path.is_file() for path in cache.rglob("*")) if cache.exists() else 0
    return done, {key: value for key, value in found.items() if key not in VOLATILE}, kept


def row(cutape, program, results):
    """The line of a program, and whether it is as expected."""
    trace = results / f"{program.name}.cutape"
    trace.unlink(missing_ok=True)
    driver = ["--driver", DRIVER] if DRIVER else []
    recorded = Ended([cutape, "record", *driver, "-o", trace, "--", program])
    if not trace.exists():
        return f"{program.name:34} not recorded: {recorded.message()[-80:]}", True
    inside, report, kept = replayed(cutape, trace, results, [])
    free, expected, free_kept = replayed(cutape, trace, results, ["--no-sandbox"])
    layers = {line.split("sandbox: ")[1] for line in inside.message().splitlines() if "sandbox: " in line}
    missing = [layer for layer in layers if layer.startswith("not applied")]
    same = inside.status == free.status and report == expected and (kept > 0) == (free_kept > 0)
    result = "the same" if same else "DIFFERS"
    if not same:
        keys = [key for key in expected if report.get(key) != expected[key]]
        result += f" {inside.status} {free.status} {keys} {inside.message()[-300:]}"
    if missing or not layers:
        result += f", LAYERS: {missing or 'none'}"
    line = f"{program.name:34} {inside.seconds:7.2f} {free.seconds:7.2f} {kept:6} {free_kept:6}  {result}"
    return line, result == "the same"


def main():
    package, results = (Path(word).resolve() for word in sys.argv[1:3])
    results.mkdir(parents=True, exist_ok=True)
    cutape = package / "cutape"
    print(Ended([cutape, "doctor", *(["--driver", DRIVER] if DRIVER else [])]).out.decode())
    programs = [path for path in sorted((package / "programs").iterdir()) if os.access(path, os.X_OK)]
    programs = [path for path in programs if not sys.argv[3:] or any(word in path.name for word in sys.argv[3:])]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        rows = list(pool.map(lambda program: row(cutape, program, results), programs))
    wrong = sum(not is_right for _, is_right in rows)
    print(f"{'program':34} {'s':>7} {'free s':>7} {'cached':>6} {'free':>6}  result")
    print("\n".join(line for line, _ in rows))
    print(f"{len(rows)} programs, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
