"""Runs pytest --cutape-play in its modes. Prints a table. The exit status is 1 if other tests pass,
fail or are recorded than expected.
"""

import os
import re
import shutil
import sys
from pathlib import Path

import real
import run
from run import ROOT, Ended, machine

DRIVER = [f"--cutape-record-args=--driver {os.environ['DRIVER']}"] if "DRIVER" in os.environ else []
COLUMNS = ["seconds", "passed", "failed", "recorded", "result"]
# What each step does: options, whether the tests are changed, and whether those that call the driver
# pass and are recorded.
STEPS = [
    ("bare", None, False, True, False),
    ("missing", ["none"], False, False, False),
    ("once", ["once"], False, True, True),
    ("none", ["none"], False, True, False),
    ("none -n 4", ["none", "-n", "4"], False, True, False),
    ("changed", ["none"], True, False, False),
    ("new", ["new"], True, True, True),
    ("none", ["none"], True, True, False),
    ("all", ["all"], False, True, True),
    ("none", ["none"], False, True, False),
]


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*.cutape")}


def row(tests, step, recordings, environment):
    """The cells of a step, and what is wrong."""
    _, mode, is_changed, passes, records = step
    own = []
    if mode:
        own = [f"--cutape-play={recordings}", f"--cutape-play-mode={mode[0]}", *DRIVER, *mode[1:]]
    command = [sys.executable, "-m", "pytest", "-p", "cutape.pytest_plugin", *own, tests]
    before = contents(recordings)
    ended = Ended(
        [*command, "-p", "no:cacheprovider"],
        env={**environment, "CHANGED": str(int(is_changed))}, cwd=tests.parent,
    )
    after = contents(recordings)
    summary = (ended.out.decode(errors="replace").splitlines() or [""])[-1]
    passed, failed = (int((re.search(rf"(\d+) {word}", summary) or [0, 0])[1]) for word in ("passed", "failed"))
    recorded = sum(before.get(path) != data for path, data in after.items())
    count = len(re.findall(r"^def test_", tests.read_text(), re.MULTILINE)) + 1
    pure = tests.read_text().count("def test_without_driver")
    right = (count, 0) if passes else (pure, count - pure)
    is_right = (passed, failed) == right and recorded == (count - pure if records else 0)
    cells = {
        "seconds": f"{ended.seconds:.1f}", "passed": passed, "failed": failed,
        "recorded": recorded, "result": "as expected" if is_right else "WRONG",
    }
    return cells, [] if is_right else [ended.out.decode(errors="replace")[-3000:] + ended.message()[-500:]]


def main():
    package, results = (Path(word).resolve() for word in sys.argv[1:3])
    results.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "PATH": f"{package}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "python"),
        "CUPY_CACHE_DIR": str(results / "cupy"),
    }
    lines, wrong = [], []
    for tests in sorted((real.PROGRAMS / "played_tests").glob("test_*.py")):
        library = tests.stem.removeprefix("test_")
        if not real.has(library):
            lines.append(f"{library}: skipped: Python has no {library}")
            continue
        recordings = results / f"played_{library}"
        shutil.rmtree(recordings, ignore_errors=True)
        for is_changed in (False, True):
            # Libraries compile and cache at first use, and the next runs would differ.
            row(tests, ("warm", None, is_changed, True, False), recordings, environment)
        for step in STEPS:
            if "-n" in (step[1] or []) and not real.has("xdist"):
                lines.append(f"{library} {step[0]}: skipped: Python has no pytest-xdist")
                continue
            cells, problems = row(tests, step, recordings, environment)
            lines.append(f"{library + ' ' + step[0]:20}" + "".join(f"{cells[column]!s:>13}" for column in COLUMNS))
            print(lines[-1], file=sys.stderr, flush=True)
            wrong += [f"{library} {step[0]}:\n{problem}" for problem in problems]
    print("\n".join(wrong))
    print(f"{'tests':20}" + "".join(f"{column:>13}" for column in COLUMNS))
    print("\n".join(lines))
    print(f"{len(wrong)} problems")
    print(machine(package / "cutape", results, package / "programs"))
    return 1 if wrong else 0


run.TIMEOUT = 600
sys.exit(main())
