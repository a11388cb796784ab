"""Records functions with one input and replays them with another (`--set`, `--save`). Prints a table.

The exit status is 1 if a saved output differs from what the program itself writes for that input, or
if the replay with the recorded input saves anything but the recorded output.
"""

import json
import sys
from pathlib import Path

import numpy

from run import Ended, machine

PROGRAMS = Path(__file__).resolve().parent / "programs" / "inputs"
SHAPE = (96, 64)
COLUMNS = ["recorded output", "other output", "changed", "divergences"]
# The copies by the ranges in which the programs make them.
NAMES = """
[inputs.batch]
within = "range:input"
function = "cuMemcpyHtoD*"
parameter = "srcHost"
type = "f32"
shape = [96, 64]

[outputs.rows]
within = "range:output"
function = "cuMemcpyDtoH*"
parameter = "dstHost"
type = "f32"
shape = [96, 10]
"""


def row(source, cutape, results):
    folder = results / source.stem
    folder.mkdir(parents=True, exist_ok=True)
    for file in folder.glob("*.npy"):
        file.unlink()
    trace = folder / "function.cutape"
    trace.unlink(missing_ok=True)
    (folder / "function.io.toml").write_text(NAMES)
    numbers = numpy.random.default_rng(1)
    for which in ("recorded", "other"):
        numpy.save(folder / f"{which}.in.npy", numbers.standard_normal(SHAPE, dtype=numpy.float32))

    def program(which):
        return [sys.executable, source, folder / f"{which}.in.npy", folder / f"{which}.out.npy"]

    recorded = Ended([cutape, "record", "-o", trace, "--", *program("recorded")])
    bare = Ended(program("other"))
    if recorded.status or bare.status:
        return {}, [f"{which}: {ended.message()[-300:]}" for which, ended in (("record", recorded), ("bare", bare)) if ended.status]
    cells, problems = {}, []
    for which in ("recorded", "other"):
        saved, report = folder / f"{which}.saved.npy", folder / f"{which}.json"
        report.unlink(missing_ok=True)
        put = f"batch={folder / f'{which}.in.npy'}"
        ended = Ended([cutape, "replay", "--set", put, "--save", f"rows={saved}", "--report", report, trace])
        if not saved.exists():
            problems.append(f"{which}: {ended.message()[-300:]}")
            continue
        expected, found = numpy.load(folder / f"{which}.out.npy"), numpy.load(saved)
        equal = expected.dtype == found.dtype and expected.shape == found.shape and expected.tobytes() == found.tobytes()
        cells[f"{which} output"] = "equal" if equal else "differs"
        if not equal:
            problems.append(f"{which}: the saved output is not what the program writes")
        if ended.status:
            problems.append(f"{which}: status {ended.status}: {ended.message()[-200:]}")
        if which == "other" and report.exists():
            said = json.loads(report.read_text())
            cells["divergences"] = said["divergence_count"]
            cells["changed"] = said["changed_input_count"]
    return cells, problems


def main():
    package, results, *wanted = sys.argv[1:]
    package, results = Path(package).resolve(), Path(results).resolve()
    cutape = package / "cutape"
    results.mkdir(parents=True, exist_ok=True)
    sources = [source for source in sorted(PROGRAMS.glob("*.py")) if not wanted or any(word in source.stem for word in wanted)]
    print(f"{'program':18}" + "".join(f"{column:>18}" for column in COLUMNS))
    failed = False
    for source in sources:
        cells, problems = row(source, cutape, results)
        print(f"{source.stem:18}" + "".join(f"{cells.get(column, '-')!s:>18}" for column in COLUMNS), flush=True)
        for problem in problems:
            failed = True
            print(f"  {problem}")
    print(machine(cutape, results, package / "programs"))
    sys.exit(failed)


main()
