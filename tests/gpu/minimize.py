"""Minimises recordings and replays the results. Prints a table. The exit status is 1 if a divergence
needs 30 calls or more, if a crash is not kept, or if a result does not show what was kept.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

from digests import OTHER_SCALE, calls
from real import PROGRAMS, has
from run import Ended, machine

# The most calls that a divergence may need.
LIMIT = 30
# Rounds of the program whose kernel is replaced; each has four calls.
ROUNDS = 300
# Seconds for one search.
TIME_LIMIT = os.environ.get("TIME_LIMIT", "240")
COLUMNS = ["calls", "left", "KiB", "left KiB", "attempts", "seconds", "shown"]
# Programs that die in the driver, and the call that is fatal. Of the last ones a replay may not die:
# the driver reads memory of the program that is not in the trace.
FATAL = {
    "misuse.stream-after-destroy.violate": "cuLaunchKernel",
    "misuse.event-after-destroy.violate": "cuEventRecord",
    "misuse.double-link-destroy.violate": "cuLinkDestroy",
    "misuse.context-after-destroy.violate": "",
    "rules.link-use-after-destroy.violate": "cuLinkComplete",
    "rules.library-use-after-unload.violate": "",
}
MAY_SURVIVE = [
    "misuse.context-after-destroy.violate", "rules.library-use-after-unload.violate", "misuse.exec-extra-malformed.violate",
    "misuse.exec-params-array-shape.violate", "rules.link-option-values-lifetime.violate", "rules.module-ptx-unterminated.violate",
]


class Search:
    """One search for a smaller trace, and a replay of its result."""

    def __init__(self, cutape, trace, options):
        self.target = trace.with_suffix(".small.cutape")
        self.target.unlink(missing_ok=True)
        words = [cutape, "minimize", trace, *options, "--time-limit", TIME_LIMIT, "-o", self.target]
        begin = time.monotonic()
        # Not stopped from outside before its own limit.
        done = subprocess.run(words, capture_output=True, timeout=2 * int(TIME_LIMIT) + 60)
        self.status, self.message = done.returncode, done.stderr.decode(errors="replace").strip()
        self.cells = {"seconds": f"{time.monotonic() - begin:.1f}", "KiB": trace.stat().st_size // 1024}
        if self.status != 0:
            return
        self.calls = list(calls(cutape, self.target))
        said = re.search(r"of (\d+) calls after (\d+) attempt", self.message)
        self.cells.update({"calls": said[1], "attempts": said[2], "left": len(self.calls), "left KiB": self.target.stat().st_size // 1024})
        # The command that shows it, as the search prints it.
        shows = re.search(r"`cutape (replay .*)` shows it", self.message)
        words = shlex.split(shows[1]) if shows else ["replay", str(self.target)]
        self.shown = Ended([cutape, *words])
        self.plain = Ended([cutape, "replay", self.target])

    def names(self):
        return ", ".join(call["function"] for call in self.calls)


def recorded(name, run, cutape, results):
    trace = results / f"{name}.minimize.cutape"
    trace.unlink(missing_ok=True)
    ended = Ended([cutape, "record", "-o", trace, "--", *run])
    return trace, [] if trace.exists() else [f"not recorded: {ended.message()[-200:]}"]


def loads(cutape, trace, kernel):
    """The call that loads the image with a kernel."""
    for call in calls(cutape, trace):
        image = (call["arguments"].get("image") or call["arguments"].get("code") or {}).get("pointee") or {}
        if isinstance(image, dict) and kernel in (image.get("kernels") or []):
            return call["call"]
    return None


def replaced(name, trace, kernel, image, cutape):
    """Minimises the divergence that another image for a kernel causes."""
    load = loads(cutape, trace, kernel)
    if load is None:
        return {}, [f"the trace loads no {kernel}"]
    search = Search(cutape, trace, ["--keep-divergence", "--replace-image", f"{load}={image}"])
    if search.status != 0:
        return search.cells, [f"status {search.status}: {search.message[-300:]}"]
    problems = []
    if search.shown.status != 1:
        problems.append(f"with the other image the result's replay has status {search.shown.status}")
    if search.plain.status != 0:
        problems.append(f"with its own image the result's replay has status {search.plain.status}: {search.plain.out.decode()[:300]}")
    if len(search.calls) >= LIMIT:
        problems.append(f"{len(search.calls)} calls are left: {search.names()}")
    if "shows it" not in search.message or "the time is over" in search.message:
        problems.append(search.message[-300:])
    search.cells["shown"] = "NO" if problems else "yes"
    return search.cells, problems


def late(cutape, trace, results):
    """The kernel `fill` of the trace, changed so that only its later launches write other values."""
    folder = results / "minimize.images"
    shutil.rmtree(folder, ignore_errors=True)
    Ended([cutape, "extract", trace, "--images", folder])
    for file in sorted(folder.glob("*.ptx")):
        text = file.read_text()
        add = "add.u32 %result, %start, %index;"
        if ".entry fill(" in text and add in text:
            # The program counts its rounds from 1000.
            more = f".reg .pred %late; setp.ge.u32 %late, %start, {1000 + ROUNDS * 2 // 3}; @%late add.u32 %result, %result, 1;"
            image = results / "fill.late.ptx"
            image.write_text(text.replace(add, f"{add} {more}"))
            return image
    return None


def planted(name, package, cutape, results):
    trace, problems = recorded(name, [package / "diff" / "base", str(ROUNDS)], cutape, results)
    image = None if problems else late(cutape, trace, results)
    if image is None:
        return {}, problems or ["the image of fill is not in the trace"]
    return replaced(name, trace, "fill", image, cutape)


def planted_cupy(name, package, cutape, results):
    run = [sys.executable, PROGRAMS / "cupy_raw.py"]
    # Once beforehand: programs compile and cache at first use.
    Ended(run)
    trace, problems = recorded(name, run, cutape, results)
    printed = Ended([sys.executable, "-c", OTHER_SCALE])
    if problems or printed.status != 0:
        return {}, problems or [f"no other image: {printed.message()[-200:]}"]
    image = results / "scale.image"
    image.write_bytes(bytes.fromhex(printed.out.decode().strip()))
    return replaced(name, trace, "scale", image, cutape)


def fatal(name, package, cutape, results):
    """Minimises a crash inside the driver to the fatal call and what it needs."""
    bare = Ended([package / "programs" / name])
    trace, problems = recorded(name, [package / "programs" / name], cutape, results)
    if problems:
        return {}, problems
    search = Search(cutape, trace, ["--keep-crash"])
    if search.status != 0:
        survives = "does not crash" in search.message and name in MAY_SURVIVE
        search.cells["shown"] = "survives" if survives else "NO"
        return search.cells, [] if survives else [f"bare {bare.status}; status {search.status}: {search.message[-300:]}"]
    problems = []
    last = search.calls[-1]["function"]
    if not last.startswith(FATAL.get(name, "")):
        problems.append(f"the last call is {last}: {search.names()}")
    said = search.shown.out.decode(errors="replace")
    if search.shown.status != 1 or "died by signal" not in said:
        problems.append(f"the result's replay does not die: {said[:300]}")
    search.cells["shown"] = "NO" if problems else "yes"
    return search.cells, problems


def main():
    package, results = (Path(word).resolve() for word in sys.argv[1:3])
    results.mkdir(parents=True, exist_ok=True)
    cutape = package / "cutape"
    os.environ.setdefault("CUPY_CACHE_DIR", str(results / "cupy"))
    wanted = lambda name: not sys.argv[3:] or any(word in name for word in sys.argv[3:])
    cases, missing = [("divergence.diff.base", planted)], []
    if has("cupy"):
        cases.append(("divergence.cupy_raw", planted_cupy))
    else:
        missing.append("divergence.cupy_raw: skipped: Python has no cupy")
    cases += [(name, fatal) for name in [*FATAL, *MAY_SURVIVE[2:]] if (package / "programs" / name).exists()]
    lines = ["  ".join([f"{'what is kept':46}"] + [f"{column:>9}" for column in COLUMNS])]
    print(lines[0])
    wrong = []
    for name, keep in cases:
        if not wanted(name):
            continue
        cells, problems = keep(name, package, cutape, results)
        lines.append("  ".join([f"{name:46}"] + [f"{str(cells.get(column, '-')):>9}" for column in COLUMNS]))
        # At once, for when the time is limited.
        print(lines[-1], flush=True)
        for problem in problems:
            print(f"    {problem}", flush=True)
        wrong += [f"{name}: {problem}" for problem in problems]
    lines += ["", *missing, *wrong, f"{len(wrong)} problems"]
    here = machine(cutape, results, package / "programs")
    text = "\n".join(lines) + "\n"
    (results / "table.txt").write_text(f"{time.strftime('%Y-%m-%d')}\n\n{here}\n{text}")
    print(f"\n{text}", end="")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
