"""Records, cuts, replays, checks and measures the programs of programs/perf. Prints a table, and entries
for traces/manifest.toml. The exit status is 1 if a part does not replay or is too large.
"""

import json
import os
import re
import shutil
import sys
import time
from pathlib import Path

from real import command
from run import Ended, machine

PROGRAMS = Path(__file__).resolve().parent / "programs" / "perf"
HOME = Path("/opt/cutape/programs/perf")
# What is cut out, where the end of the trace is not it. A step has its range of NVTX; the second one loads
# nothing any more.
STEPS = {name: ["--calls", "range:step[1]"] for name in ("torch_step", "torch_attention", "triton_softmax")}
OTHERWISE = ["--last", os.environ.get("LAST", "60")]
LARGEST = int(os.environ.get("LARGEST", "700")) << 10
QUICK = ["--samples", "10", "--measure-seconds", "0.1", "--warm-up-seconds", "0.05", "--clock", "gpu", "--no-plots"]
COLUMNS = ["calls", "kept", "KiB", "replays", "left out", "trace us", "findings"]


def counted(cutape, trace):
    return sum(line.startswith(b'{"call"') for line in Ended([cutape, "dump", "--format", "json", trace]).out.splitlines())


def measured(cutape, trace, results):
    """Microseconds of the whole part on the device, or why not."""
    report = results / "bench.json"
    report.unlink(missing_ok=True)
    ended = Ended([cutape, "bench", trace, *QUICK, "--output", results / "measurements", "--report", report])
    if not report.exists():
        return None, f"bench: {ended.message()[-200:]}"
    return json.loads(report.read_text())["benchmarks"][0]["time"]["point"] / 1000, None


def entry(cutape, trace, program, calls, findings):
    info = Ended([cutape, "info", trace]).out.decode(errors="replace")
    found = lambda pattern: (re.search(pattern, info) or [None, "unknown"])[1]
    return "\n".join([
        "[[trace]]",
        f'file = "perf/{trace.name}"',
        f'program = "tests/gpu/programs/perf/{program}"',
        f'date = "{found("started +([^ ]+)")}"',
        f'driver = "{found("libcuda.so.([0-9.]+)")}"',
        f'gpu = "{found("GPU +([^,]+),")}"',
        f"calls = {calls}",
        f"findings = {json.dumps(findings)}",
        "",
    ])


def row(source, cutape, results):
    """Cells, problems, and the entry of the manifest."""
    name, cells, problems = source.stem, {}, []
    whole, part = results / f"{name}.whole.cutape", results / f"{name}.cutape"
    whole.unlink(missing_ok=True)
    part.unlink(missing_ok=True)
    program = [sys.executable, HOME / source.name]
    # Once beforehand: programs compile and cache at first use.
    Ended(program)
    recorded = Ended([cutape, "record", "-o", whole, "--", *program])
    if recorded.status != 0 or not whole.exists():
        return cells, [f"not recorded: {recorded.message()[-300:]}"], None
    cut = Ended([cutape, "trim", whole, *STEPS.get(name, OTHERWISE), "--images", "used", "-o", part])
    if cut.status != 0:
        return cells, [f"trim: {cut.message()[-300:]}"], None
    cells["calls"], cells["kept"] = counted(cutape, whole), counted(cutape, part)
    cells["KiB"] = part.stat().st_size >> 10
    if part.stat().st_size > LARGEST:
        problems.append(f"larger than {LARGEST >> 10} KiB")
    report = results / "replay.json"
    report.unlink(missing_ok=True)
    replayed = Ended([cutape, "replay", "--keep-going", part, "--report", report])
    got = json.loads(report.read_text()) if report.exists() else None
    cells["replays"] = "yes" if replayed.status == 0 else "NO"
    if replayed.status != 0:
        first = got["divergences"][:1] if got else replayed.message()[-300:]
        problems.append(f"does not replay: {first}")
    if got:
        cells["left out"] = sum(skipped["count"] for skipped in got["skipped"])
    time_us, why = measured(cutape, part, results)
    cells["trace us"] = "-" if time_us is None else f"{time_us:.1f}"
    problems += [why] if why else []
    found = json.loads(Ended([cutape, "check", "--format", "json", part]).out or b"{}").get("findings", [])
    rules = sorted({finding["rule"] for finding in found})
    cells["findings"] = ",".join(rules) or "-"
    return cells, problems, entry(cutape, part, source.name, cells["kept"], rules)


def main():
    package, results = (Path(word).resolve() for word in sys.argv[1:3])
    results.mkdir(parents=True, exist_ok=True)
    cutape = package / "cutape"
    os.environ.setdefault("CUPY_CACHE_DIR", str(results / "cupy"))
    HOME.mkdir(parents=True, exist_ok=True)
    lines, wrong, missing, entries = ["  ".join([f"{'program':18}"] + [f"{column:>10}" for column in COLUMNS])], [], [], []
    print(lines[0])
    started = time.monotonic()
    for source in sorted(PROGRAMS.glob("*.py")):
        if sys.argv[3:] and source.stem not in sys.argv[3:]:
            continue
        run, why = command(source, results)
        if run is None:
            missing.append(f"{source.stem}: skipped: {why}")
            continue
        shutil.copy(source, HOME / source.name)
        cells, problems, text = row(source, cutape, results)
        lines.append("  ".join([f"{source.stem:18}"] + [f"{str(cells.get(column, '-')):>10}" for column in COLUMNS]))
        # At once, for when the time is limited.
        print(lines[-1], flush=True)
        for problem in problems:
            print(f"    {problem}", flush=True)
        wrong += [f"{source.stem}: {problem}" for problem in problems]
        entries += [text] if text else []
    end = ["", *wrong, *missing, f"{len(entries)} traces in {time.monotonic() - started:.0f} s, {len(wrong)} problems"]
    (results / "manifest.toml").write_text("\n".join(entries))
    text = "\n".join([*lines, *end]) + "\n"
    (results / "table.txt").write_text(f"{time.strftime('%Y-%m-%d')}\n\n{machine(cutape, results, package / 'programs')}\n{text}")
    print("\n".join(end))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
