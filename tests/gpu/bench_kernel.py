"""A kernel that is 20 % slower is a regression in ten of ten runs, an unchanged one in none; results
are compared. Prints a table.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

from run import Ended, machine

SOURCE = Path(__file__).resolve().parent / "bench_kernel.cu"
RUNS = 10
QUICK = ["--samples", "20", "--measure-seconds", "0.5", "--warm-up-seconds", "0.3", "--no-plots"]
ROUNDS, SLOWER, A_LITTLE = 10000, 12000, 10100


def compiled(results, name, *options):
    """Compiles the program or an image of it; raises if that fails."""
    made = results / name
    built = subprocess.run(["nvcc", "-arch=native", *options, "-o", made, SOURCE], capture_output=True, text=True)
    if built.returncode != 0:
        sys.exit(f"bench_kernel: nvcc {' '.join(options)}: {built.stderr.strip()}")
    return made


class Bench:
    def __init__(self, package, results):
        self.cutape, self.results = package / "cutape", results
        self.trace = results / "work.cutape"
        self.lines, self.wrong, self.number = [], [], 0

    def run(self, what, expected, *options):
        """One `cutape bench`; `expected` is its status. Returns its report."""
        self.number += 1
        report = self.results / f"bench-{self.number:02}.json"
        report.unlink(missing_ok=True)
        output = ["--output", self.results / "measurements"]
        ended = Ended([self.cutape, "bench", self.trace, *output, *QUICK, "--report", report, *options])
        (self.results / f"bench-{self.number:02}.txt").write_bytes(ended.out + b"\n--- stderr\n" + ended.err)
        rows = json.loads(report.read_text())["benchmarks"] if report.exists() else []
        times = ", ".join(f"{row['clock']}/{row['name']} {self.shown(row)}" for row in rows)
        good = ended.status == expected
        self.lines.append(f"{'ok' if good else 'WRONG':6}{what:34} status {ended.status}  {ended.seconds:5.1f} s  {times or ended.message()[:160]}")
        if not good:
            self.wrong.append(f"{what}: status {ended.status}, expected {expected}: {ended.message()[:200]}")
        return json.loads(report.read_text()) if report.exists() else {}

    @staticmethod
    def shown(row):
        text = f"{row['time']['point'] / 1000:.2f} us"
        if row["change"]:
            mean = row["change"]["mean"]
            text += f" ({mean['point'] * 100:+.2f} % [{mean['lower'] * 100:+.2f} {mean['upper'] * 100:+.2f}])"
        return text


def main():
    package, results = (Path(word).resolve() for word in sys.argv[1:3])
    results.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    program = compiled(results, "work")
    slow = compiled(results, "slow.cubin", "-cubin", f"-DROUNDS={SLOWER}")
    ptx = compiled(results, "slow.ptx", "-ptx", f"-DROUNDS={SLOWER}")
    fatbin = compiled(results, "a_little.fatbin", "-fatbin", f"-DROUNDS={A_LITTLE}")
    wrong = compiled(results, "wrong.cubin", "-cubin", "-DOFF=1e-3f")
    wider = compiled(results, "wider.cubin", "-cubin", "-DWIDER")
    bench = Bench(package, results)
    bench.trace.unlink(missing_ok=True)
    recorded = Ended([bench.cutape, "record", "-o", bench.trace, "--", program])
    if recorded.status != 0:
        sys.exit(f"bench_kernel: recording: status {recorded.status}: {recorded.message()}")

    gpu = ["--clock", "gpu"]
    work = [*gpu, "--calls", "kernel:work", "--each-kernel"]
    whole = bench.run("all kernels, both clocks", 0, "--each-kernel")
    bench.run("the whole trace", 0)
    bench.run("base", 0, *work, "--save-baseline", "base")
    for run in range(1, RUNS + 1):
        bench.run(f"unchanged, {run} of {RUNS}", 0, *work, "--baseline", "base")
    for run in range(1, RUNS + 1):
        bench.run(f"20 % slower, {run} of {RUNS}", 1, *gpu, "--replace", f"work={slow}", "--baseline", "base")
    bench.run("20 % slower, from PTX", 1, *gpu, "--replace", f"work={ptx}")
    bench.run("1 % slower, from a fatbin", 0, *gpu, "--replace", f"work={fatbin}")
    differs = bench.run("results differ", 1, *gpu, "--replace", f"work={wrong}")
    bench.run("results differ, within 1e-3", 0, *gpu, "--replace", f"work={wrong}", "--tolerance", "f32=1e-3")
    bench.run("other parameters", 2, *gpu, "--replace", f"work={wider}")
    bench.run("memory is not put back", 0, *work, "--no-restore")

    found = differs.get("mismatches", [])
    if len(found) != 1 or found[0]["mismatch"]["differing"] == 0:
        bench.wrong.append(f"results differ: expected one buffer, got {found}")
    restored = [memory["restored_bytes"] for memory in whole.get("memory", [])]
    if sorted(set(restored)) != [0, 4 << 20]:
        bench.wrong.append(f"memory: expected 0 bytes to be put back for `nothing` and 4 MiB for `work`, got {restored}")
    bench.lines += ["", *bench.wrong, f"{bench.number} runs in {time.monotonic() - started:.0f} s, {len(bench.wrong)} problems"]
    text = "\n".join(bench.lines) + "\n"
    (results / "table.txt").write_text(f"{time.strftime('%Y-%m-%d')}\n\n{machine(bench.cutape, results, package / 'programs')}\n{text}")
    print(text)
    return 1 if bench.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
