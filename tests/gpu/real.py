"""Runs real programs: bare, recorded, checked, replayed. Prints a table. The exit status is 1 if a
replay diverges.
"""

import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from run import AT_ONCE, Ended, machine

PROGRAMS = Path(__file__).resolve().parent / "programs"
# Python packages that a program needs (separated by spaces), by the beginning of its name.
NEEDS = {"torch": "torch", "triton": "triton", "cupy": "cupy", "jax": "jax", "numba": "numba", "core": "cuda.core", "flax": "flax optax"}
COLUMNS = [
    "bare s", "record s", "replay s", "same", "calls", "launches", "images", "copied KiB", "raw KiB", "packed KiB", "findings", "advice", "divergences",
    "placed", "ranges", "strategy", "attempts", "elsewhere", "granules", "skipped", "repeats",
]
# What a context and the libraries' images take on a device, more or less.
CONTEXT_BYTES = 1 << 30
# How many replays of a trace must give the same report.
REPEATS = int(os.environ.get("REPEATS", "1"))
# What of a report says how a child was chosen or how long something took, and not what it did.
# docs/replay.md has the list.
OF_THE_MOMENT = {"wall_seconds", "timing", "span", "attempts", "misplaced", "notes", "put_during_waits", "waiting_launches"}


def has(package):
    """Whether a Python package is installed; does not import it."""
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def command(source, results):
    """How to run a program, or why it cannot be run here."""
    if source.suffix == ".cu":
        if not shutil.which("nvcc"):
            return None, "nvcc is not installed"
        binary = results / source.stem
        first = source.read_text().splitlines()[0]
        options = first.removeprefix("// nvcc:").split() if first.startswith("// nvcc:") else []
        built = subprocess.run(["nvcc", "-arch=native", "-o", binary, source, *options], capture_output=True, text=True)
        return ([binary], "") if built.returncode == 0 else (None, "nvcc: " + built.stderr.strip()[:100])
    missing = [package for package in NEEDS[source.stem.split("_")[0]].split() if not has(package)]
    return (None, f"Python has no {', '.join(missing)}") if missing else ([sys.executable, source], "")


def expected_ranges(source):
    """How often each range of NVTX is to be recorded, from the program's line `ranges: NAME=COUNT ...`."""
    lines = source.read_text().splitlines()[:4]
    words = [line.split("ranges:")[1].split() for line in lines if "ranges:" in line]
    return {name: int(count) for name, _, count in (word.rpartition("=") for word in sum(words, []))}


def chosen(own, package, results, wanted):
    """Names and commands of the wanted programs: of the package, and of this folder; which of these
    cannot be run here, and why."""
    programs = [(name, [package / "programs" / name]) for name in own if wanted(name)]
    missing = []
    for source in sorted(PROGRAMS.glob("*.cu")) + sorted(PROGRAMS.glob("*.py")):
        if wanted(source.stem):
            run, why = command(source, results)
            if run:
                programs.append((source.stem, run))
            else:
                missing.append(f"{source.stem}: skipped: {why}")
    return programs, missing


def row(source, cutape, results):
    cells, problems, skipped = {}, [], []
    run, why = command(source, results)
    if run is None:
        return cells, [], [f"{source.stem}: skipped: {why}"], []
    # Once beforehand: programs compile and cache at first use, and the next runs would differ.
    Ended(run)
    bare = Ended(run)
    trace = results / f"{source.stem}.cutape"
    recorded = Ended([cutape, "record", "-o", trace, "--", *run])
    cells["bare s"], cells["record s"] = f"{bare.seconds:.2f}", f"{recorded.seconds:.2f}"
    same = bare.out == recorded.out and bare.status == recorded.status == 0
    cells["same"] = "yes" if same else "NO"
    if not same:
        problems.append(f"bare {bare.status}, recorded {recorded.status}: {recorded.message()[-150:]}")
    if not trace.exists():
        return cells, [*problems, "no trace"], skipped, []
    info = json.loads(Ended([cutape, "info", "--format", "json", trace]).out)
    cells["calls"] = info["calls"]["total"]
    cells["launches"] = sum(kernel["launches"] for kernel in info["kernels"])
    cells["images"] = len(info["images"])
    cells["copied KiB"] = sum(info["copies"][f"{way}_bytes"] for way in ("host_to_device", "device_to_host")) // 1024
    cells["packed KiB"] = trace.stat().st_size // 1024
    ranges = {f"{entry['domain']}@{entry['range']}" if entry["domain"] else entry["range"]: entry for entry in info["ranges"]}
    expected = expected_ranges(source)
    if expected:
        counts = {name: ranges[name]["count"] if name in ranges else 0 for name in expected}
        cells["ranges"] = f"{sum(counts[name] == count for name, count in expected.items())}/{len(expected)}"
        # Each of them is around work, and ends.
        idle = [name for name in expected if name in ranges and (ranges[name]["open"] or not ranges[name]["calls"])]
        if counts != expected or idle:
            problems.append(f"ranges: {counts}; open or without calls: {', '.join(idle) or 'none'}")
    # What the recorder wrote: without the images of libraries, uncompressed.
    unpacked = results / f"{source.stem}.raw"
    Ended([cutape, "record", "--no-pack", "-o", unpacked, "--", *run])
    cells["raw KiB"] = unpacked.stat().st_size // 1024 if unpacked.exists() else "-"
    unpacked.unlink(missing_ok=True)
    found = results / f"{source.stem}.findings.json"
    Ended([cutape, "check", "--format", "json", "--report", found, trace])
    findings = json.loads(found.read_text())["findings"]
    advice = [finding for finding in findings if finding["severity"] == "advice"]
    cells["findings"], cells["advice"] = len(findings) - len(advice), len(advice)
    said = [f"{source.stem}: {finding['severity']}: {finding['rule']}: {finding['message']}" for finding in findings]
    # The first alone, because it is timed; the others as many at a time as there is memory for.
    taken = sum(kind["peak_bytes"] for name, kind in info["memory"].items() if name != "pinned-host")
    memory = min(device["memory_bytes"] for device in info["machine"]["devices"])
    at_once = max(1, min(AT_ONCE, int(0.8 * memory) // (taken + CONTEXT_BYTES)))
    seconds, got, message = replayed(cutape, trace, results / f"{source.stem}.json")
    cells["replay s"] = f"{seconds:.2f}"
    if got is None:
        return cells, [*problems, f"replay: {message[:200]}"], skipped, said
    with ThreadPoolExecutor(at_once) as workers:
        others = list(workers.map(lambda number: replayed(cutape, trace, results / f"{source.stem}.{number}.json")[1], range(1, REPEATS)))
    compared = [key for key in got if key not in OF_THE_MOMENT]
    same = 1 + sum(report is not None and all(report.get(key) == got[key] for key in compared) for report in others)
    cells["repeats"] = f"{same}/{REPEATS}"
    if same != REPEATS:
        differing = sorted({key for report in others for key in compared if (report or {}).get(key) != got[key]})
        problems.append(f"{REPEATS - same} of {REPEATS} replays gave another report: {', '.join(differing)}")
    cells["divergences"] = got["divergence_count"]
    cells["placed"] = f"{got['placed']['at_recorded_address']}/{got['placed']['allocations']}"
    cells["strategy"], cells["attempts"] = got["placed"]["strategy"], 1 + got["attempts"]
    # How many ranges lie elsewhere, and how many would without natural placement.
    cells["elsewhere"] = len(got["translated"])
    _, other, _ = replayed(cutape, trace, results / f"{source.stem}.granules.json", ["--placement", "granules"])
    cells["granules"] = "-" if other is None else len(other["translated"])
    cells["skipped"] = sum(entry["count"] for entry in got["skipped"])
    skipped = [f"{entry['function']}: {entry['reason']}" for entry in got["skipped"]]
    if got["divergence_count"]:
        first = got["divergences"][0]
        problems.append(f"call {first['call']} {first['function']}: expected {first['expected']}, received {first['received']}"[:200])
    if got["died"]:
        problems.append(got["died"]["text"])
    if cells["findings"]:
        problems.append(f"{cells['findings']} findings on a correct program")
    return cells, problems, skipped, said


def replayed(cutape, trace, file, options=()):
    """One replay: seconds, its report, its messages."""
    ended = Ended([cutape, "replay", "--keep-going", *options, "--report", file, trace])
    if not file.exists():
        return ended.seconds, None, ended.message()
    report = json.loads(file.read_text())
    file.unlink()
    return ended.seconds, report, ended.message()


def main():
    package, results = (Path(word).resolve() for word in sys.argv[1:3])
    results.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("CUPY_CACHE_DIR", str(results / "cupy"))
    sources = sorted(PROGRAMS.glob("*.cu")) + sorted(PROGRAMS.glob("*.py"))
    if sys.argv[3:]:
        sources = [source for source in sources if any(word in source.stem for word in sys.argv[3:])]
    lines = ["  ".join([f"{'program':16}"] + [f"{column:>10}" for column in COLUMNS])]
    print(lines[0])
    wrong, reasons, findings = [], {}, []
    for source in sources:
        cells, problems, skipped, said = row(source, package / "cutape", results)
        mark = "  !" if problems else ""
        lines.append("  ".join([f"{source.stem:16}"] + [f"{str(cells.get(column, '-')):>10}" for column in COLUMNS]) + mark)
        # At once, for when the time is limited.
        print(lines[-1], flush=True)
        wrong += [f"{source.stem}: {problem}" for problem in problems]
        findings += said
        for reason in skipped:
            reasons.setdefault(reason, []).append(source.stem)
    lines += ["", "not re-issued:"] + [f"  {reason} ({len(where)} programs)" for reason, where in sorted(reasons.items())]
    lines += ["", "findings:"] + ([f"  {text}" for text in findings] or ["  none"])
    lines += ["", *wrong, f"{len(sources)} programs, {len(wrong)} problems"]
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("torch", "triton", "cupy-cuda13x", "jax", "numba", "cuda-core") if installed(name)]
    text = "\n".join(lines) + "\n"
    (results / "table.txt").write_text(
        f"{time.strftime('%Y-%m-%d')}\n{', '.join(versions)}\n\n{machine(package / 'cutape', results, package / 'programs')}\n{text}"
    )
    print("\n".join(lines[len(sources) + 1:]))
    return 1 if wrong else 0


def installed(name):
    try:
        importlib.metadata.version(name)
        return True
    except importlib.metadata.PackageNotFoundError:
        return False


if __name__ == "__main__":
    sys.exit(main())
