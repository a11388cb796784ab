"""Compares recordings of a program with recordings of a changed one, with `diff --execute` and with
`first --differs` (its columns: the writer, its call, writes that differ and all). Prints a table; the exit status
is 1 if the changed kernel or the upload is not named.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

from run import Ended, machine

SOURCE = Path(__file__).resolve().parent / "execute.cu"
KERNELS, STEP = 20, 7


def first_launch(kernel):
    """Which launch is the first of a kernel."""
    return next(launch for launch in range(KERNELS) if launch * STEP % KERNELS == kernel)


class Execute:
    def __init__(self, package, results):
        self.cutape, self.results = package / "cutape", results
        self.lines, self.wrong = [], 0

    def compiled(self, name, *options):
        made = self.results / name
        command = ["nvcc", "-arch=native", *options, "-o", made, SOURCE]
        built = subprocess.run(command, capture_output=True, text=True)
        if built.returncode != 0:
            sys.exit(f"execute: {' '.join(map(str, command))}: {built.stderr.strip()}")
        return made

    def recorded(self, name, *options):
        program = self.compiled(name, *options)
        trace = self.results / f"{name}.cutape"
        trace.unlink(missing_ok=True)
        ended = Ended([self.cutape, "record", "-o", trace, "--", program])
        if ended.status != 0:
            sys.exit(f"execute: recording {name}: status {ended.status}: {ended.message()}")
        return trace

    def row(self, what, status, holds, *arguments):
        """One comparison: its status, and what must hold for its report."""
        report = self.results / f"{what.replace(' ', '_')}.json"
        report.unlink(missing_ok=True)
        command = [self.cutape, "diff", "--execute", "--format", "json", "--report", report]
        ended = Ended([*command, *arguments], text=True)
        found = json.loads(report.read_text()) if report.exists() else {}
        first = found.get("first") or {}
        named, place = "no difference", ""
        if first:
            launch = first["launches"][0]
            named, place = f"{first['verdict']} {launch['kernel']}", launch["launch"]
        good = ended.status == status and bool(found) and holds(found, first)
        self.wrong += not good
        mark = "ok" if good else "WRONG"
        rest = f"{found.get('differing', ''):>9} {found.get('introduced', ''):>10}"
        self.lines.append(
            f"{mark:6}{what:32} {named:24} {place!s:>6} {rest} {ended.seconds:6.1f} s"
            + ("" if good else f"  status {ended.status}: {ended.err.strip()[:300]}")
        )
        print(self.lines[-1], flush=True)


    def differs(self, what, status, writer, *arguments):
        """`first --differs` of two traces: its status, and the function or kernel that it names."""
        report = self.results / f"differs_{what.replace(' ', '_')}.json"
        report.unlink(missing_ok=True)
        base, other, *options = arguments
        command = [self.cutape, "first", base, "--differs", other, "--report", report, *options]
        ended = Ended(command, text=True)
        found = json.loads(report.read_text()) if report.exists() else {}
        named, place = "no difference", ""
        if found.get("first"):
            first = found["first"]["writers"][0]
            named, place = first["by_call"]["kernel"] or first["by_call"]["function"], first["call"]
        good = ended.status == status and bool(found) and writer in named
        self.wrong += not good
        counts = f"{found.get('differing', ''):>9} {found.get('writes', ''):>10}"
        self.lines.append(
            f"{'ok' if good else 'WRONG':6}{'differs: ' + what:32} {named:24} {place!s:>6} {counts} "
            f"{ended.seconds:6.1f} s"
            + ("" if good else f"  status {ended.status}: {ended.err.strip()[:300]}")
        )
        print(self.lines[-1], flush=True)


def is_introduced(kernel):
    def holds(found, first):
        launch = first["launches"][0]
        named = first["verdict"] == "introduced" and launch["kernel"] == f"stage_{kernel}"
        kernels = [one["kernel"] for one in found["kernels"]]
        return named and launch["launch"] == first_launch(kernel) and kernels == [f"stage_{kernel}"]

    return holds


def is_uploaded(kernels):
    def holds(found, first):
        origin = first["origin"] or {}
        named = first["verdict"] == "inherited" and "HtoD" in origin.get("function", "")
        return named and [one["kernel"] for one in found["kernels"]] == kernels

    return holds


def main():
    package, results = (Path(word).resolve() for word in sys.argv[1:3])
    results.mkdir(parents=True, exist_ok=True)
    execute = Execute(package, results)
    print(f"{'':6}{'comparison':32} {'first':24} launch differing introduced")
    base = execute.recorded("base")
    again = execute.recorded("again")
    nothing = lambda found, first: not first and found["launches"] == 5000
    execute.row("equal", 0, nothing, base, again)
    # The status of `first` is 0 if there is a difference.
    execute.differs("equal", 1, "no difference", base, again)
    for kernel in range(0, KERNELS, 2):
        changed = execute.recorded(f"changed-{kernel}", f"-DCHANGED={kernel}")
        execute.row(f"kernel {kernel}", 1, is_introduced(kernel), base, changed)
        execute.differs(f"kernel {kernel}", 0, f"stage_{kernel}", base, changed)
    within = ["--tolerance", "f32=1"]
    execute.row("kernel 18 within 1", 0, lambda found, first: not first, base, changed, *within)
    execute.differs("kernel 18 within 1", 1, "no difference", base, changed, *within)
    upload = execute.recorded("upload", "-DUPLOAD")
    execute.differs("upload", 0, "HtoD", base, upload)
    execute.row("upload", 1, is_uploaded([]), base, upload)
    both = execute.recorded("both", "-DUPLOAD", "-DCHANGED=11")
    execute.row("upload and kernel 11", 1, is_uploaded(["stage_11"]), base, both, "--most", "20")
    cubin = execute.compiled("changed.cubin", "-cubin", "-DCHANGED=13")
    execute.row("rebuilt kernel 13", 1, is_introduced(13), base, "--kernel", cubin)
    text = "\n".join([*execute.lines, f"{execute.wrong} problems"]) + "\n"
    header = machine(execute.cutape, results, package / "programs")
    (results / "table.txt").write_text(f"{time.strftime('%Y-%m-%d')}\n\n{header}\n{text}")
    print(f"{execute.wrong} problems")
    return 1 if execute.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
