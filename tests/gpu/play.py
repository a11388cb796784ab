"""Records programs and plays them: the test programs, then those of the CUDA runtime and of Python
libraries. Prints a table. The exit status is 1 if a played program prints or returns something else.
"""

import json
import os
import re
import sys
from pathlib import Path

import real
import run
from run import SOURCES, Ended, machine

DRIVER = ["--driver", os.environ["DRIVER"]] if "DRIVER" in os.environ else []
# Of host_sees.c: what the host sees without a copy.
CASES = ["pinned", "registered", "managed", "variable", "indirect", "long", "once", "rounds", "thread"]
CASES += ["copy", "values", "queries"]
COLUMNS = ["bare s", "recorded s", "played s", "calls", "played", "unset", "result"]
# How often a program is played to find bytes that nothing has set.
LEARNING = 3


def is_played(source):
    return not re.search(r"^// not-played: ", source.read_text(), re.MULTILINE)


def row(name, program, cutape, results):
    """The cells of a program, and what is wrong."""
    sees = name.startswith("host_sees.")
    options = [*DRIVER, "--cassette"]
    # The null driver runs no kernels.
    device = ["env", "DEVICE=1"] if sees and DRIVER else []
    program, played_program = [*device, *program], program
    trace, report = results / f"{name}.cutape", results / f"{name}.play.json"
    for file in (trace, report):
        file.unlink(missing_ok=True)
    # Once beforehand: programs compile and cache at first use, and the next runs would differ.
    Ended(program)
    bare = Ended(program)
    recorded = Ended([*device, cutape, "record", *options, "-o", trace, "--", *played_program])
    cells = {"bare s": f"{bare.seconds:.2f}", "recorded s": f"{recorded.seconds:.2f}"}
    if not trace.exists():
        return {**cells, "result": "no trace"}, [recorded.message()[-300:]]
    command = [cutape, "play", "--report", report]
    played = Ended([*command, trace, "--", *played_program])
    if played.status == 1 and b"kernel parameter" in played.err:
        # Bytes that nothing has set; a played program without a change says which.
        unset = results / f"{name}.unset"
        for _ in range(LEARNING):
            Ended([*command, "--learn-unset", unset, trace, "--", *played_program])
        cells["unset"] = len(unset.read_text().splitlines()) if unset.exists() else "-"
        played = Ended([*command, "--unset", unset, trace, "--", *played_program])
    cells["played s"] = f"{played.seconds:.2f}"
    if report.exists():
        calls = json.loads(report.read_text())["calls"]
        cells["calls"], cells["played"] = calls["recorded"], calls["played"]
    problems = []
    if played.status != recorded.status:
        problems.append(f"status {played.status}, recorded {recorded.status}: {played.message()[:600]}")
    elif played.out != recorded.out:
        problems.append(f"other output: {played.out[-200:]!r}, recorded {recorded.out[-200:]!r}")
    elif played.err != b"".join(line for line in recorded.err.splitlines(True) if not line.startswith(b"cutape: ")):
        problems.append(f"stderr: {played.message()[:600]}")
    cells["result"] = "differs" if problems else "same"
    return cells, problems


def main():
    package, results = (Path(word).resolve() for word in sys.argv[1:3])
    results.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("CUPY_CACHE_DIR", str(results / "cupy"))
    names = sys.argv[3:]
    own = [f"clean.{source.stem}" for source in sorted((SOURCES / "clean").glob("*.c")) if is_played(source)]
    programs, missing = real.chosen(own, package, results, lambda name: not names or any(word in name for word in names))
    played = {source.stem for source in real.PROGRAMS.iterdir() if source.is_file() and is_played(source)}
    programs = [(name, program) for name, program in programs if name.startswith("clean.") or name in played]
    for case in CASES:
        if not names or any(word in f"host_sees.{case}" for word in names):
            programs.append((f"host_sees.{case}", [str(package / "programs" / "play.host_sees"), case]))
    lines, wrong = [], []
    for name, program in programs:
        cells, problems = row(name, program, package / "cutape", results)
        lines.append(f"{name:28}" + "".join(f"{cells.get(column, '-')!s:>12}" for column in COLUMNS))
        new = [f"{name}: {problem}" for problem in problems]
        print("\n".join([lines[-1], *new]), file=sys.stderr, flush=True)
        wrong += new
    print(f"{'program':28}" + "".join(f"{column:>12}" for column in COLUMNS))
    print("\n".join([*lines, "", *missing, *wrong, f"{len(programs)} programs, {len(wrong)} problems"]))
    print(machine(package / "cutape", results, package / "programs"))
    return 1 if wrong else 0


run.TIMEOUT = 120
sys.exit(main())
