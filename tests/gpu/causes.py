"""Replays programs whose divergence, error or hang has a known cause; checks what the replay names.

The first line of a program says what is expected: the verdict of each divergence, the kernel that
`--sync-each` names as the cause, the kernel that is pending in a hang, or the kernel of which
compute-sanitizer reports an access. A second line, `differs`, says which kernel's launch is the first
that differs between replays, or `none`; the trace has no digests. The exit status is 1 if something
else is said.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from run import AT_ONCE, Ended, machine

PROGRAMS = Path(__file__).resolve().parent / "programs" / "causes"
REPEATS = int(os.environ.get("REPEATS", "1"))


class Case:
    """A recorded program, and its judge by what is expected."""

    def __init__(self, source, cutape, results):
        self.name, self.results = source.stem, results
        lines = [line.removeprefix("// ").split(": ") for line in source.read_text().splitlines()[:2]]
        self.kind, self.expected = lines[0]
        if lines[1][0] == "differs":
            self.expected += f", differs {lines[1][1]}"
        self.cutape, self.trace = cutape, results / f"{source.stem}.cutape"
        binary = results / source.stem
        subprocess.run(["nvcc", "-arch=native", "-o", binary, source], check=True)
        self.bare = Ended([binary])
        self.recorded = Ended([cutape, "record", "-o", self.trace, "--", binary])

    def replay(self, number, *options):
        """The report of a replay; None if there is none."""
        report = self.results / f"{self.name}.{number}.json"
        ended = Ended([self.cutape, "replay", "--report", report, *options, self.trace])
        if not report.exists():
            return None, ended
        said = json.loads(report.read_text())
        if number:
            report.unlink()
        return said, ended

    def judged(self, number):
        """What a replay says, in the words of the expectation; and its output."""
        if self.kind == "verdict":
            report, ended = self.replay(number, "--repeat", "3", "--fill", "0xa5")
            differences = (report or {}).get("divergences", []) + (report or {}).get("host_changed", [])
            said = sorted({difference["verdict"] for difference in differences})
            if ", differs " in self.expected:
                said.append(f" differs {first_differing(report)}")
        elif self.kind == "cause":
            report, ended = self.replay(number, "--sync-each")
            said = [((report or {}).get("error_cause") or {}).get("kernel")]
        elif self.kind == "pending":
            report, ended = self.replay(number, "--watchdog", "3")
            calls = [call for stream in (report or {}).get("pending", []) for call in stream["calls"]]
            said = [next((call["kernel"] for call in calls if call["kernel"]), None)]
        else:
            ended = Ended(["compute-sanitizer", "--target-processes", "all", self.cutape, "replay", "--placement", "natural", self.trace])
            lines = ended.out.decode(errors="replace").splitlines()
            at = lines.index(next((line for line in lines if "Invalid __global__ write" in line), lines[-1]))
            said = lines[at + 1 : at + 2]
        # Names of kernels are mangled in reports.
        kernel = self.expected.split()[-1]
        said = [self.expected if self.expected in str(word) else shortened(str(word), kernel) for word in said]
        text = ended.out.decode(errors="replace") + ended.message()
        return ",".join(str(word) for word in said), text


def shortened(word, kernel):
    """A word with a mangled name in it, with the kernel's name instead."""
    return " ".join(kernel if kernel in part else part for part in word.split(" "))


def first_differing(report):
    """The kernel of the first launch that differs between replays; what is wrong if it is not known where."""
    outputs = (report or {}).get("launch_outputs") or {}
    if outputs.get("problem"):
        return outputs["problem"]
    first = outputs.get("first_differing")
    if not first:
        return "none" if outputs.get("launches") else "nothing digested"
    return first["kernel"] if first["ranges"] else f"{first['kernel']} without ranges"


def main():
    package, results = (Path(word).resolve() for word in sys.argv[1:3])
    results.mkdir(parents=True, exist_ok=True)
    cutape = package / "cutape"
    sources = sorted(PROGRAMS.glob("*.cu"))
    if sys.argv[3:]:
        sources = [source for source in sources if any(word in source.stem for word in sys.argv[3:])]
    lines, wrong, texts = [f"{'program':16}  {'expected':48}  {'said':48}  {'times':>7}"], [], []
    print(lines[0])
    for source in sources:
        case = Case(source, cutape, results)
        if case.bare.status != case.recorded.status or case.bare.out != case.recorded.out:
            wrong.append(f"{case.name}: bare {case.bare.status}, recorded {case.recorded.status}: {case.recorded.message()[-150:]}")
        if case.kind == "sanitizer" and not shutil.which("compute-sanitizer"):
            lines.append(f"{case.name:16}  skipped: compute-sanitizer is not installed")
            print(lines[-1])
            continue
        # A hang lasts as long as the watchdog; the sanitizer is slow.
        times = REPEATS if case.kind in ("verdict", "cause") else 1
        with ThreadPoolExecutor(AT_ONCE) as workers:
            judged = list(workers.map(case.judged, range(times)))
        right = sum(said == case.expected for said, _ in judged)
        others = sorted({said for said, _ in judged if said != case.expected})
        said = " | ".join(others) if others else case.expected
        lines.append(f"{case.name:16}  {case.kind + ': ' + case.expected:48}  {said:48}  {f'{right}/{times}':>7}")
        print(lines[-1], flush=True)
        texts.append(f"== {case.name}\n{judged[0][1]}\n")
        if others:
            wrong.append(f"{case.name}: said {said}")
    lines += ["", *wrong, f"{len(sources)} programs, {len(wrong)} problems"]
    print("\n".join(lines[len(sources) + 1:]))
    (results / "outputs.txt").write_text("\n".join(texts))
    (results / "table.txt").write_text(f"{time.strftime('%Y-%m-%d')}\n\n{machine(cutape, results, package / 'programs')}\n" + "\n".join(lines) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
