"""A kernel that is 5 % slower is found in 20 of 20 comparisons, an unchanged one and an unchanged corpus
are accused in none. Prints a table. The exit status is 1 if not.
"""

import json
import os
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import run
from run import ROOT, Ended, machine

SOURCE = Path(__file__).resolve().parent / "bench_kernel.cu"
COMPARISONS = 20
SLOWER = 0.05
ITERATIONS = 10000
# A process takes little longer than the driver's start, so that 41 files of 3 processes fit in two minutes.
QUICK = ["--clock", "gpu", "--rounds", "3", "--samples", "10", "--measure-seconds", "0.05", "--warm-up-seconds", "0.02"]
CORPUS_ROUNDS = int(os.environ.get("CORPUS_ROUNDS", "10"))
OPTIONS = os.environ.get("MATRIX_OPTIONS", "").split()


class Matrix:
    def __init__(self, package, results):
        self.cutape, self.results = package / "cutape", results
        self.trace = results / "work.cutape"
        self.lines, self.wrong = [], []

    def say(self, line):
        self.lines.append(line)
        print(line, flush=True)

    def compiled(self, name, *options):
        made = self.results / name
        built = subprocess.run(["nvcc", "-arch=native", *options, "-o", made, SOURCE], capture_output=True, text=True)
        if built.returncode != 0:
            sys.exit(f"matrix: nvcc {' '.join(options)}: {built.stderr.strip()}")
        return made

    def measured(self, name, traces, *options):
        """The file of results of some traces."""
        file = self.results / f"{name}.json"
        file.unlink(missing_ok=True)
        ended = Ended([self.cutape, "matrix", traces, "-o", file, *OPTIONS, *options])
        (self.results / f"{name}.txt").write_bytes(ended.out + b"\n--- stderr\n" + ended.err)
        if not file.exists():
            sys.exit(f"matrix: {name}: status {ended.status}: {ended.message()}")
        if ended.status != 0:
            self.wrong.append(f"{name}: status {ended.status}: see {name}.txt")
        return file

    def compared(self, name, before, after):
        """The exit status of a comparison, and its rows."""
        report = self.results / f"{name}.report.json"
        report.unlink(missing_ok=True)
        ended = Ended([self.cutape, "matrix", "--compare", before, after, "--report", report])
        (self.results / f"{name}.txt").write_bytes(ended.out + b"\n--- stderr\n" + ended.err)
        return ended.status, json.loads(report.read_text())["rows"] if report.exists() else []


def changes(rows):
    """The changes of rows: `+5.00 % [+4.98 +5.02]`."""
    shown = []
    for row in rows:
        change = row["change"]
        interval = "one process" if change is None else f"{change['point'] * 100:+.2f} % [{change['lower'] * 100:+.2f} {change['upper'] * 100:+.2f}]"
        shown.append(f"{row['verdict']} {interval}" + (" flaky" if row["flaky"] else ""))
    return ", ".join(shown)


def kernel(matrix):
    """Comparisons of one kernel: with itself, and with one that does 5 % more."""
    builds = {"work": (), "same.cubin": ("-cubin",), "twice.cubin": ("-cubin", f"-DROUNDS={2 * ITERATIONS}")}
    with ThreadPoolExecutor(3) as workers:
        program, same, twice = workers.map(lambda build: matrix.compiled(build[0], *build[1]), builds.items())
    matrix.trace.unlink(missing_ok=True)
    recorded = Ended([matrix.cutape, "record", "-o", matrix.trace, "--", program])
    if recorded.status != 0:
        sys.exit(f"matrix: recording: status {recorded.status}: {recorded.message()}")
    measure = lambda name, image: matrix.measured(name, matrix.trace, *QUICK, "--replace", f"work={image}")
    # How many more iterations take 5 % more time.
    before = measure("unchanged-00", same)
    _, rows = matrix.compared("calibration", before, measure("twice", twice))
    per_iteration = rows[0]["change"]["point"] / ITERATIONS
    iterations = round(ITERATIONS + SLOWER / per_iteration)
    matrix.say(f"twice the iterations: {changes(rows)}; {iterations} iterations for 5 %")
    slow = matrix.compiled("slower.cubin", "-cubin", f"-DROUNDS={iterations}")
    found = accused = 0
    for number in range(1, COMPARISONS + 1):
        slower = measure(f"slower-{number:02}", slow)
        status, rows = matrix.compared(f"compare-slower-{number:02}", before, slower)
        found += status == 1 and rows[0]["verdict"] == "slower"
        line = f"{number:3}  5 % slower: status {status}  {changes(rows):42}"
        unchanged = measure(f"unchanged-{number:02}", same)
        status, rows = matrix.compared(f"compare-unchanged-{number:02}", before, unchanged)
        accused += status != 0
        matrix.say(f"{line}  unchanged: status {status}  {changes(rows)}")
        before = unchanged
    matrix.say(f"5 % slower: found {found} of {COMPARISONS}; unchanged: accused {accused} of {COMPARISONS}")
    if found != COMPARISONS or accused:
        matrix.wrong.append("a slower kernel was not found, or an unchanged one accused")


def chosen(results, rounds, number):
    """The results of some rounds only, as a file."""
    part = json.loads(results.read_text())
    for trace in part["traces"]:
        trace["processes"] = [process for process in trace["processes"] if process["round"] in rounds]
        for benchmark in trace["benchmarks"]:
            benchmark["rounds"] = [one for one in benchmark["rounds"] if one["round"] in rounds]
    file = results.with_name(f"{results.stem}-{number}.json")
    file.write_text(json.dumps(part))
    return file


def corpus(matrix, folder):
    """A corpus is measured once, and half of its processes compared with the other half, for 20 ways to
    divide them."""
    if not any(folder.glob("*.cutape")):
        return matrix.say(f"corpus: skipped: {folder} has no traces")
    quick = [word if word != "3" else str(CORPUS_ROUNDS) for word in QUICK]
    results = matrix.measured("corpus", folder, *quick, "--each-kernel")
    numbers = range(1, CORPUS_ROUNDS + 1)
    accused = count = 0
    verdicts, dice = {}, random.Random(18)
    for _ in range(COMPARISONS):
        some = sorted(dice.sample(numbers, CORPUS_ROUNDS // 2))
        others = [number for number in numbers if number not in some]
        name = "-".join(map(str, some))
        before, after = chosen(results, some, f"{name}-before"), chosen(results, others, f"{name}-after")
        status, rows = matrix.compared(f"compare-corpus-{name}", before, after)
        count += 1
        accused += status != 0
        for row in rows:
            verdicts[row["verdict"]] = verdicts.get(row["verdict"], 0) + 1
        for row in rows:
            if row["verdict"] in ("slower", "faster"):
                matrix.say(f"     corpus {name}: {row['trace']} {row['name']}: {changes([row])}")
    matrix.say(f"corpus ({len(rows)} benchmarks): accused {accused} of {count}; verdicts: {verdicts}")
    if accused:
        matrix.wrong.append("an unchanged corpus was accused")


def main():
    package, results = (Path(word).resolve() for word in sys.argv[1:3])
    folder = Path(sys.argv[3]).resolve() if sys.argv[3:] else ROOT / "traces" / "perf"
    results.mkdir(parents=True, exist_ok=True)
    matrix = Matrix(package, results)
    started = time.monotonic()
    if os.environ.get("KERNEL") != "0":
        kernel(matrix)
        matrix.say(f"{time.monotonic() - started:.0f} s")
    if CORPUS_ROUNDS:
        corpus(matrix, folder)
    end = [*matrix.wrong, f"{time.monotonic() - started:.0f} s, {len(matrix.wrong)} problems"]
    print("\n".join(end))
    text = "\n".join([*matrix.lines, "", *end]) + "\n"
    (results / "table.txt").write_text(f"{time.strftime('%Y-%m-%d')}\n\n{machine(matrix.cutape, results, package / 'programs')}\n{text}")
    return 1 if matrix.wrong else 0


# All rounds of a corpus are one process.
run.TIMEOUT = 600
if __name__ == "__main__":
    sys.exit(main())
