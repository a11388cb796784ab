"""Measures steps of trainings with and without recording. Prints a table.

All processes start together and take turns on the GPU, each a few steps at a time, so that a ratio is of
steps that were done within seconds. The exit status is 1 if one fails or computes another loss.
"""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from run import machine

PROGRAM = Path(__file__).resolve().parent / "programs" / "torch_live.py"
ROUNDS = int(os.environ.get("ROUNDS", "20"))
STEPS = {"ordinary": 6, "calls": 40}
# An older package, to be measured beside this one.
BEFORE = Path(os.environ["CUTAPE_BEFORE"]).resolve() if "CUTAPE_BEFORE" in os.environ else None
LIGHT = ["--payloads", "none", "--outputs", "none", "--host-memory", "off"]
PAUSED = ["--no-pack", "--start-paused"]
# The program, what is done, options of `record`; a second unrecorded one shows what the machine does.
ROWS = [
    (program, what, options)
    for program in STEPS
    for what, options in [
        ("unrecorded again", None),
        ("loaded, paused", PAUSED),
        ("paused, by preload", [*PAUSED, "--backend", "preload"]),
        ("paused, no NVTX", [*PAUSED, "--no-nvtx"]),
        ("paused, no driver log", [*PAUSED, "--no-driver-log"]),
        ("calls only", ["--no-pack", *LIGHT]),
        ("with payloads", ["--no-pack"]),
        ("loaded, paused, before", PAUSED),
        ("calls only, before", ["--no-pack", *LIGHT]),
        ("calls only, last 5 s", [*LIGHT, "--keep-last", "5s"]),
        ("with payloads, last 5 s", ["--keep-last", "5s"]),
    ]
]


class Training:
    """A process that does steps when asked."""

    def __init__(self, program, command, messages):
        self.messages, self.steps = messages, STEPS[program]
        self.process = subprocess.Popen(
            [*command, sys.executable, PROGRAM, "turns"],
            env=os.environ | {"SIZE": program}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=messages.open("w"), text=True,
        )

    def turn(self):
        """Milliseconds of a step, and the last loss."""
        print(self.steps, file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.process.args}: ended: {self.messages.read_text()[-500:]}")
        said = json.loads(line)
        # The first steps after others have had the GPU are slower.
        return statistics.median(said["ms"][self.steps // 5 :]), said["loss"]

    def end(self):
        self.process.stdin.close()
        return self.process.wait()


def measure(cutape, results, program, rows):
    """Lines of the table and what is wrong."""
    trainings = {"unrecorded": Training(program, [], results / "messages.txt")}
    for at, (_, what, options) in enumerate(rows):
        trace = results / f"cost.{program}.{at}.cutape"
        trace.unlink(missing_ok=True)
        recorder = BEFORE / "cutape" if what.endswith("before") else cutape
        command = [] if options is None else [recorder, "record", *options, "-o", trace, "--"]
        trainings[what] = Training(program, command, results / f"messages.{at}.txt")
    for training in trainings.values():
        training.turn()
    ratios, base, problems = {what: [] for what in trainings}, [], []
    for turn in range(ROUNDS):
        # Every second round goes backwards.
        order = list(trainings)[:: -1 if turn % 2 else 1]
        got = {what: trainings[what].turn() for what in order}
        base.append(got["unrecorded"][0])
        for what, (milliseconds, loss) in got.items():
            ratios[what].append(milliseconds / base[-1])
            # Where unrecorded processes differ, the program itself computes something else each time.
            is_fixed = got.get("unrecorded again", got["unrecorded"])[1] == got["unrecorded"][1]
            if is_fixed and loss != got["unrecorded"][1] and not problems:
                problems.append(f"{program}, {what}: another loss in round {turn}")
    problems += [f"{program}, {what}: status {status}" for what, one in trainings.items() if (status := one.end())]
    lines = [f"{program}: a step takes {statistics.median(base):.3f} ms unrecorded ({min(base):.3f} to {max(base):.3f})"]
    for what, of in ratios.items():
        of.sort()
        low, high = of[len(of) // 10], of[-1 - len(of) // 10]
        lines.append(f"  {what:26} {statistics.median(of):7.4f}   8 of 10 rounds {low:.4f} to {high:.4f}")
    return lines, problems


def main():
    package, results = (Path(word).resolve() for word in sys.argv[1:3])
    results.mkdir(parents=True, exist_ok=True)
    lines, problems = [f"{ROUNDS} rounds; ratio to an unrecorded step in the same round"], []
    for program in STEPS:
        rows = [row for row in ROWS if row[0] == program and (BEFORE or not row[1].endswith("before"))]
        if wanted := sys.argv[3:]:
            rows = [row for row in rows if any(word in " ".join(row[:2]) for word in wanted)]
        if rows:
            told, wrong = measure(package / "cutape", results, program, rows)
            print("\n".join(told), flush=True)
            lines, problems = lines + told, problems + wrong
    print("\n".join([machine(package / "cutape", results, package / "programs"), *lines, *problems]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
