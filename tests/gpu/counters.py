"""Compares counters of kernels with what their source says, and prints what measuring them costs.

The kernels are those of counters.cu; then the ten that take the most time of a PyTorch training, if
PyTorch is installed. The exit status is 1 if a number is off by more than its tolerance.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROUNDS, THREADS = 4096, 1056 * 256
# Operations: four chains of fused multiply-adds a thread; of half precision, pairs; products of
# 16 x 16 x 16 a warp.
FLOPS = {
    "fma32": ("fp32", ROUNDS * 4 * 2 * THREADS),
    "fma64": ("fp64", ROUNDS * 4 * 2 * THREADS),
    "fma16": ("fp16", ROUNDS * 4 * 4 * THREADS),
    "tensor": ("tensor", ROUNDS * 16**3 * 2 * THREADS // 32),
}
# The L2 cache keeps some of what is written.
COPIED, COPY_TOLERANCE, TOLERANCE = 2 << 30, 0.05, 0.01


def run(words, log):
    started = time.monotonic()
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=300)
    log.write_text(" ".join(map(str, words)) + "\n" + done.stdout[-20000:] + "\n--- stderr\n" + done.stderr[-20000:])
    if done.returncode:
        sys.exit(f"counters: {' '.join(map(str, words[:3]))}: exit status {done.returncode}: {done.stderr.strip()[-600:]}")
    return done.stdout, time.monotonic() - started


def profiled(cutape, trace, log, *options):
    """The counters, and a line about their cost."""
    file = trace.with_suffix(f".{log.stem}.json")
    _, seconds = run([cutape, "profile", trace, *options, "--format", "json", "-o", file], log)
    counters = json.loads(file.read_text())["counters"]
    cost = f"{len(counters['kernels'])} kernels, {counters['passes']} passes, ncu {counters['wall_ns'] / 1e9:.1f} s, without {counters['plain_ns'] / 1e9:.1f} s, the command {seconds:.1f} s"
    return counters, cost, file


def row(kernel):
    share = lambda value: "-" if value is None else f"{value * 100:.1f} %"
    roofline = kernel.get("roofline") or {}
    stalls = ", ".join(f"{stall['reason']} {share(stall['share'])}" for stall in kernel["stalls"][:2])
    return (
        f"  call {kernel['call']:<7}{kernel['name'][:40]:<41}{(kernel['duration_ns'] or 0) / 1000:>9.1f} us  DRAM {share(kernel['dram_share']):>7}"
        f"  SM {share(kernel['sm_share']):>7}  L2 {share(kernel['l2_hit_rate']):>7}  warps {share(kernel['occupancy']):>7}"
        f"  {roofline.get('precision')} {roofline.get('flops_per_second', 0) / 1e12:.2f} TFLOP/s of {(roofline.get('peak_flops_per_second') or 0) / 1e12:.1f}"
        f"  {roofline.get('bound')} {share(roofline.get('roof_share'))}  passes {kernel['passes']}  {stalls}"
    )


def main():
    package, results = (Path(word).resolve() for word in sys.argv[1:3])
    results.mkdir(parents=True, exist_ok=True)
    cutape, wrong = package / "cutape", []

    def expect(what, found, expected, tolerance):
        good = found is not None and abs(found - expected) <= tolerance * expected
        print(f"{'ok' if good else 'WRONG':6}{what:32} {found if found is None else f'{found:.6g}'}, expected {expected:.6g}")
        if not good:
            wrong.append(what)

    program, trace = results / "counters", results / "counters.cutape"
    run(["nvcc", "-O2", "-arch=native", "-o", program, HERE / "counters.cu"], results / "nvcc.txt")
    run([cutape, "record", "--overwrite", "-o", trace, "--", program], results / "record.txt")
    counters, cost, file = profiled(cutape, trace, results / "known.txt", "--counters")
    print(f"known kernels: ncu {counters['version']}, {cost}; left out: {counters.get('left_out')}")
    kernels = {kernel["name"].split("(")[0]: kernel for kernel in counters["kernels"]}
    expect("kernels", len(counters["kernels"]), 5, 0)
    for kernel in counters["kernels"]:
        print(row(kernel))
    copy = kernels.get("copy", {}).get("roofline") or {}
    expect("bytes of the copy", copy.get("bytes"), COPIED, COPY_TOLERANCE)
    for name, (precision, flops) in FLOPS.items():
        roofline = kernels.get(name, {}).get("roofline") or {}
        expect(f"operations of {name}", roofline.get("flops"), flops, TOLERANCE)
        if roofline.get("precision") != precision:
            wrong.append(f"precision of {name}: {roofline.get('precision')}")
    first = min(kernel["call"] for kernel in counters["kernels"])
    alone, cost, _ = profiled(cutape, trace, results / "one.txt", f"--counters={first}")
    print(f"one call: {cost}")
    expect("kernels of one call", len(alone["kernels"]), 1, 0)
    graph, cost, _ = profiled(cutape, trace, results / "graph.txt", "--counters=cuGraphLaunch*")
    print(f"a graph: {cost}")
    names = sorted(kernel["name"].split("(")[0] for kernel in graph["kernels"])
    if names != ["fma32", "tensor"]:
        wrong.append(f"kernels of the graph: {names}")
    text, _ = run([cutape, "profile", trace, "--counters"], results / "text.txt")
    print("\n".join(line for line in text.splitlines() if line.startswith("counters of")))
    run([cutape, "report", trace, "--overwrite", "--profile", file, "-o", results / "counters.html"], results / "report.txt")
    run([cutape, "export", trace, "--overwrite", "--format", "jsonl", "--profile", file, "-o", results / "counters.jsonl"], results / "export.txt")
    rows = [json.loads(line) for line in (results / "counters.jsonl").read_text().splitlines()]
    expect("rows of gpu_counters", sum(line.get("table") == "gpu_counters" for line in rows), 5, 0)

    if subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode == 0:
        trace = results / "training.cutape"
        command = [cutape, "record", "--overwrite", "-o", trace, "--", sys.executable, HERE / "programs" / "torch_training.py"]
        run(command, results / "record_training.txt")
        counters, cost, _ = profiled(cutape, trace, results / "training.txt", "--counters")
        print(f"PyTorch training: {cost}; left out: {counters.get('left_out')}")
        for kernel in counters["kernels"]:
            print(row(kernel))
        expect("kernels of the training", len(counters["kernels"]), 10, 0)
    print(f"{len(wrong)} problems", *wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
