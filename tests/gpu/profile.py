"""Compares the GPU times of replays with those of the original programs, by shape of kernels.

Each round runs the program with CUPTI's activity records (activities.so, which the driver loads) and
then `cutape profile` on its trace. The times of all kernels of one grid and block are compared: the
median over rounds of the difference of the medians of each round. Prints a table; the exit status is 1 if a kernel differs
by more than 2 % and 300 ns, or has run another number of times.
"""

import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parent / "programs"
DEFAULT = ["torch_training", "torch_graph", "torch_attention", "torch_gpt2", "jax_grad", "cupy_raw"]
ROUNDS = int(os.environ.get("ROUNDS", "5"))
TOLERANCE, LEAST_NS = 0.02, 300
# Kernels that wait for the host: XLA's, with which it measures (xla/stream_executor/cuda).
WAIT_FOR_HOST = "delaykernel"
KINDS = {"kernel", "copy", "memset"}


def run(command, log, **variables):
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=300)
    if done.returncode:
        log.write_text(done.stdout[-4000:] + done.stderr[-4000:])
        raise RuntimeError(f"{command[0]}: exit status {done.returncode}; {log}: {done.stderr[-600:]}")
    return done.stdout


def of_program(command, folder, cupti, activities, log):
    """What CUPTI has seen in the program: (kind, name, grid, block, bytes) -> durations."""
    for old in folder.glob("bare.*"):
        old.unlink()
    run(command, log, CUDA_INJECTION64_PATH=str(activities), ACTIVITIES_CUPTI=cupti, ACTIVITIES_OUT=str(folder / "bare"))
    files = list(folder.glob("bare.*"))
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return grouped((row["kind"], row["end"] - row["start"], row) for row in rows if row["kind"] in KINDS)


def grouped(rows):
    times = defaultdict(list)
    for kind, lasted, row in rows:
        if WAIT_FOR_HOST in row.get("name", "").lower().replace("_", ""):
            continue
        shape = tuple(map(tuple, (row["grid"], row["block"]))) if kind == "kernel" else ()
        times[kind, shape, row.get("bytes")].append(lasted)
    return times


def of_replay(document):
    return [grouped((row["kind"], row["end_ns"] - row["begin_ns"], row) for row in one["work"]) for one in document["runs"]]


def wall(document):
    """The parts of a replay's wall time in ms, and how much of it is in a part that says what it was."""
    parts = dict(document["summary"]["wall"])
    total = max(parts.pop("total_ns"), 1)
    assert sum(parts.values()) == total, parts
    text = ", ".join(f"{name.removesuffix('_ns')} {time / 1e6:.2f}" for name, time in parts.items())
    return f"{(1 - parts['between_ns'] / total) * 100:.2f} % of {total / 1e6:.2f} ms: {text}"


def read_by_others(cutape, trace, profile, log):
    """The page and the timeline with the profile, to be looked at."""
    page, timeline = trace.with_suffix(".html"), trace.with_suffix(".perfetto-trace")
    run([cutape, "report", str(trace), "--overwrite", "--profile", str(profile), "-o", str(page)], log)
    words = ["export", str(trace), "--overwrite", "--format", "perfetto", "--profile", str(profile)]
    run([cutape, *words, "-o", str(timeline)], log)


def compare(name, package, results, cupti):
    folder = results / name
    folder.mkdir(parents=True, exist_ok=True)
    log, trace = folder / "log.txt", folder / f"{name}.cutape"
    command = [sys.executable, str(PROGRAMS / f"{name}.py")]
    cutape = str(package / "cutape")
    run([cutape, "record", "--overwrite", "-o", str(trace), "--", *command], log)
    differences, counts, document = defaultdict(list), {}, {}
    originals = defaultdict(list)
    for _ in range(ROUNDS):
        original = of_program(command, folder, cupti, package / "bench" / "activities.so", log)
        text = run([cutape, "profile", str(trace), "--cupti", cupti, "--format", "json"], log)
        document = json.loads(text)
        replayed = of_replay(document)[0]
        for key in set(original) | set(replayed):
            here, there = replayed.get(key, []), original.get(key, [])
            counts.setdefault(key, set()).add((len(there), len(here)))
            if key[0] == "kernel" and here and there:
                originals[key].append(statistics.median(there))
                differences[key].append(statistics.median(here) - statistics.median(there))
    (folder / "profile.json").write_text(json.dumps(document))
    read_by_others(cutape, trace, folder / "profile.json", log)
    bad = []
    worst = 0.0
    for key, values in differences.items():
        difference, original = statistics.median(values), statistics.median(originals[key])
        worst = max(worst, abs(difference) if abs(difference) / original > TOLERANCE else 0)
        if abs(difference) > max(LEAST_NS, TOLERANCE * original):
            bad.append(f"{key}: {original:.0f} ns, replayed {difference:+.0f} ns")
    # A program that measures its kernels to choose some, as XLA does, runs others each time.
    other = [f"{key}: {sorted(count)}" for key, count in counts.items() if key[0] == "kernel" and all(a != b for a, b in count)]
    last = document["runs"][0]
    with_call = sum("call" in row for row in last["work"])
    kernels = sum(row["kind"] == "kernel" for row in last["work"])
    print(f"{name:<18}{len(differences):>8}{kernels:>9}{with_call:>9}/{len(last['work'])}{' ':>3}{worst:>9.0f}{len(bad):>6}{len(other):>7}   lost {last['lost']}, overhead {last['overhead_ns'] / 1e6:.1f} ms", flush=True)
    print(f"    {wall(document)}", flush=True)
    for line in bad[:5] + other[:5]:
        print("   ", line[:220], flush=True)
    return not bad and not other


def main():
    package, results = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    results.mkdir(parents=True, exist_ok=True)
    toolkits = sorted(Path("/usr/local").glob("cuda*/targets/x86_64-linux/lib/libcupti.so"))
    cupti = os.environ.get("CUPTI") or str(toolkits[-1] if toolkits else "libcupti.so")
    print(f"{'program':<18}{'shapes':>8}{'kernels':>9}{'with call':>12}{'worst ns':>12}{'bad':>6}{'counts':>7}")
    good = True
    for name in sys.argv[3:] or DEFAULT:
        try:
            good &= compare(name, package, results, cupti)
        except (RuntimeError, subprocess.TimeoutExpired, KeyError, IndexError) as error:
            print(f"{name:<18} {error}", flush=True)
            good = False
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
