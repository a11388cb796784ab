"""Tests ways of loading libcuda with every backend on real hardware, and compares the calls of
frameworks between backends.

The exit status is 1 if the result differs from tests/programs/loading/ways.toml, or if two backends
record different calls.
"""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WAYS = tomllib.loads((ROOT / "tests/programs/loading/ways.toml").read_text())["way"]
# The calls of each of these programs.
CALLS = Counter(["cuDriverGetVersion", "cuDeviceGetCount"])
FRAMEWORKS = [("torch_training.py", "torch"), ("jax_grad.py", "jax"), ("cupy_raw.py", "cupy")]
# Threads of a pool share work in any order.
SPREAD = "the same calls, otherwise spread over threads"
# The number and results of these calls depend on timing.
POLLS = {"cuEventQuery", "cuStreamQuery"}
TIMEOUT = 120


def driver():
    """The machine's libcuda.so.1, as the loader finds it, or the file that CUTAPE_DRIVER names."""
    if os.environ.get("CUTAPE_DRIVER"):
        return Path(os.environ["CUTAPE_DRIVER"]).resolve()
    for line in subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout.splitlines():
        if "libcuda.so.1" in line and "x86-64" in line:
            return Path(line.split("=> ")[1]).resolve()
    sys.exit("loading.py: ldconfig knows no libcuda.so.1")


def run(words, **options):
    try:
        done = subprocess.run(words, capture_output=True, timeout=TIMEOUT, text=True, errors="replace", **options)
        return done.returncode, done.stdout, done.stderr.strip()
    except subprocess.TimeoutExpired:
        return "timeout", "", ""


def dumped(cutape, trace):
    """The calls of a trace, one by one."""
    with subprocess.Popen([cutape, "dump", "--format", "json", trace], stdout=subprocess.PIPE) as process:
        for line in process.stdout:
            yield json.loads(line)


def lay_out(package, results, real):
    """Builds the programs, and a folder where they find the driver."""
    folder = results / "programs"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(package / "loading", folder)
    (folder / "driver").mkdir()
    for name in ["libcuda.so.1", "libcuda.so", "other_name.so"]:
        (folder / "driver" / name).symlink_to(real)
    shutil.copy(real, folder / "driver" / "copy.so")
    return folder


def way_cell(way, via, cutape, folder, results):
    """What is recorded of a way, and whether it matches the table."""
    fill = lambda word: word.replace("{driver}", f"{folder}/driver/libcuda.so.1").replace("{folder}", str(folder))
    words = [fill(word) for word in way["command"]]
    words[0] = f"{folder}/{words[0]}"
    environment = {**os.environ, "LD_LIBRARY_PATH": f"{folder}/driver"}
    bare = run(words, env=environment)
    place = results / "traces" / re.sub(r"\W+", "-", f"{via} {way['name']}")
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    driver_path = folder / "driver" / "libcuda.so.1"
    recorded = run([cutape, "record", "--backend", via, "--driver", driver_path, "-o", place / "t.cutape", "--", *words], env=environment)
    if bare[0] != 0:
        return "-", f"{way['name']}: does not run alone here: {bare[2][-120:]}", False
    if recorded[:2] != bare[:2]:
        return "OTHER", f"{via}: {way['name']}: bare {bare[:2]}, recorded {recorded}", True
    calls = Counter()
    for trace in place.glob("*.cutape"):
        calls.update(call["function"] for call in dumped(cutape, trace))
    seen = Counter({name: count for name, count in calls.items() if name in CALLS})
    expected = via in way["recorded"]
    right = seen == CALLS if expected else not seen
    cell = "yes" if seen == CALLS else "no" if not seen else "PARTLY"
    return cell + ("" if right else " !"), "" if right else f"{via}: {way['name']}: {dict(calls)}, the table says {expected}", not right


def shape(call):
    """A call without addresses, handles and times."""
    plain = lambda part: part.get("value") if isinstance(part.get("value"), int) else part.get("label", "").split("#")[0]
    launch = call.get("launch") or {}
    return (
        call["function"],
        (call.get("result") or {}).get("code"),
        tuple((name, plain(part)) for name, part in sorted(call["arguments"].items())),
        (launch.get("kernel"), tuple(launch.get("grid") or ()), tuple(launch.get("block") or ())),
    )


def threads(cutape, trace):
    """Each thread's calls in order. Threads are identified by their calls, since ordinals vary."""
    calls = {}
    for call in dumped(cutape, trace):
        if call["function"] not in POLLS:
            calls.setdefault(call["thread"], []).append(shape(call))
    return sorted(calls.values(), key=lambda thread: (-len(thread), repr(thread[:20])))


def difference(one, other):
    """The first difference between two runs, or nothing."""
    if one != other and Counter(call for thread in one for call in thread) == Counter(call for thread in other for call in thread):
        return SPREAD
    if len(one) != len(other):
        return f"{len(one)} and {len(other)} threads"
    for number, (a, b) in enumerate(zip(one, other)):
        for index, (x, y) in enumerate(zip(a, b)):
            if x != y:
                return f"thread {number} call {index}: {x} and {y}"[:300]
        if len(a) != len(b):
            return f"thread {number}: {len(a)} and {len(b)} calls"
    return ""


def framework(source, package, cutape, results, other="audit"):
    """The lines of one framework's program, recorded twice with preload, which shows what varies from run
    to run, and once with another backend."""
    if importlib.util.find_spec(package) is None:
        return [f"{source:20} skipped: Python has no {package}"], False
    path = ROOT / "tests/gpu/programs" / source
    run([sys.executable, path])
    runs, outputs = [], []
    for number, via in enumerate(["preload", "preload", other]):
        trace = results / f"{source}.{number}.{via}.cutape"
        trace.unlink(missing_ok=True)
        status, out, err = run([cutape, "record", "--backend", via, "-o", trace, "--", sys.executable, path])
        if status != 0 or not trace.exists():
            return [f"{source:20} {via}: status {status}: {err[-200:]}"], True
        runs.append(threads(cutape, trace))
        outputs.append(out)
    again, across = difference(runs[0], runs[1]), difference(runs[0], runs[2])
    counts = [sum(map(len, calls)) for calls in runs]
    launches = [sum(shape[0].startswith("cuLaunchKernel") for calls in one for shape in calls) for one in runs]
    lines = [f"{source:20} calls {counts}, launches {launches}, threads {[len(one) for one in runs]}, output {'same' if len(set(outputs)) == 1 else 'OTHER'}"]
    lines.append(f"{'':20} preload twice: {again or 'equal'}")
    lines.append(f"{'':20} preload, {other}: {across or 'equal'}")
    # Differences that also occur between two runs with preload do not count.
    return lines, bool(across not in ("", SPREAD) and not again) or len(set(outputs)) != 1


def main():
    package, results = (Path(word).resolve() for word in sys.argv[1:3])
    results.mkdir(parents=True, exist_ok=True)
    cutape, real = package / "cutape", driver()
    os.environ.pop("CUTAPE_DRIVER", None)
    folder = lay_out(package, results, real)
    gum = run([cutape, "record", "--backend", "gum", "-o", results / "gum.cutape", "--", "/bin/true"])
    vias = ["preload", "audit"] + (["gum"] if gum[0] == 0 else [])
    libc = os.confstr("CS_GNU_LIBC_VERSION")
    lines = [time.strftime("%Y-%m-%d"), f"{libc}, {real}", ""]
    lines.append("  ".join([f"{'way':62}"] + [f"{via:>8}" for via in vias]))
    wrong = []
    for way in WAYS:
        cells = []
        for via in vias:
            cell, problem, is_wrong = way_cell(way, via, cutape, folder, results)
            cells.append(cell)
            if problem:
                wrong.append((problem, is_wrong))
        lines.append("  ".join([f"{way['name']:62}"] + [f"{cell:>8}" for cell in cells]))
    if "gum" not in vias:
        lines += ["gum: skipped: " + gum[2]]
    lines.append("")
    bad = sum(is_wrong for _, is_wrong in wrong)
    for source, needed in FRAMEWORKS:
        if sys.argv[3:] and not any(word in source for word in sys.argv[3:]):
            continue
        more, is_wrong = framework(source, needed, cutape, results)
        lines += more
        bad += is_wrong
    lines += ["", *(problem for problem, _ in wrong), f"{len(WAYS)} ways, {bad} problems"]
    text = "\n".join(lines) + "\n"
    (results / "table.txt").write_text(text)
    # The copy of the driver is large and no result.
    (folder / "driver" / "copy.so").unlink()
    print(text)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
