"""Records programs that print what a buffer holds, and asks `debug` and `inspect` the same.

The exit status is 1 if an answer differs from what the program printed.
"""

import json
import math
import os
import re
import struct
import sys
import time
from pathlib import Path

from run import Ended

PROGRAMS = Path(__file__).resolve().parent / "programs"
IS_NULL = os.environ.get("DRIVER") == "null"
DRIVER = ["--driver", "null"] if IS_NULL else []
# Rounds.
ROUNDS = {"driver": int(os.environ.get("ROUNDS", "20000")), "torch": 200}
# Steps back whose time is measured.
STEPS = 5


class Round:
    """What a program printed of a round."""

    def __init__(self, words):
        self.number, self.address, self.count = int(words[0]), int(words[1], 16), int(words[2])
        numbers = [float(word) for word in words[3:]]
        self.values, self.statistics = numbers[:4], numbers[4:]


class Program:
    """A recorded program, and the lines of the table."""

    def __init__(self, cutape, name, results):
        self.cutape, self.name, self.results = cutape, name, results
        self.trace = results / f"debug_{name}.cutape"
        self.lines = []

    def record(self):
        """Why the program did not run; None if it did."""
        rounds = str(ROUNDS[self.name])
        command = {
            "driver": [self.results / "debugged", rounds],
            "torch": [sys.executable, PROGRAMS / "debugged.py", rounds],
        }[self.name]
        self.trace.unlink(missing_ok=True)
        record = [self.cutape, "record", *DRIVER, "-o", self.trace, "--", *command]
        ended = Ended(record, text=True)
        if ended.status != 0:
            return (ended.err.strip().splitlines() or ["failed"])[-1]
        lines = [line.split() for line in ended.out.splitlines()]
        self.rounds = [Round(words[1:]) for words in lines if words[:1] == ["ROUND"]]
        self.writes = [(words[1], int(words[2])) for words in lines if words[:1] == ["WRITES"]]
        return None

    def say(self, what, is_right, text):
        self.lines.append((what, is_right, text))

    def debug(self, lines, *options):
        """The answer to each line, and the seconds of all."""
        script = self.results / f"debug_{self.name}.script"
        script.write_text("\n".join(lines))
        began = time.monotonic()
        ended = Ended([self.cutape, "debug", *DRIVER, *options, self.trace, "-x", script], text=True)
        answers = ended.out.split("(cutape) ")[1:]
        answers = [answer.split("\n", 1)[1] for answer in answers]
        if ended.status != 0:
            answers.append(ended.err.strip())
        return answers + [ended.err.strip()] * (len(lines) - len(answers)), time.monotonic() - began

    def calls(self, numbers):
        """The calls of a set."""
        dump = [self.cutape, "dump", self.trace, "--format", "json", "--calls", numbers]
        lines = [json.loads(line) for line in Ended(dump, text=True).out.splitlines()]
        return [line["call"] for line in lines if "call" in line]


def single(number):
    """A number as 32 bits hold it."""
    return struct.unpack("f", struct.pack("f", number))[0]


def shown(answer):
    """The numbers in the lines of `print`."""
    lines = re.findall(r"^  \+\d+: (.*)$", answer, re.M)
    return [single(float(word)) for line in lines for word in line.split()]


def check_values(program, options, name):
    """The first numbers of three rounds, forward and back."""
    rounds = [program.rounds[at] for at in (0, len(program.rounds) // 2, -1)]
    lines, expected = [], []
    for one in rounds + rounds[-2::-1]:
        call = program.calls(f"range:look[{one.number}]")[0]
        lines += [f"call {call}", f"print {one.address:#x}+16 f32"]
        expected.append([single(number) for number in one.values])
    answers, seconds = program.debug(lines, *options)
    found = [shown(answer) for answer in answers[1::2]]
    text = f"{len(found)} times 4 numbers, {seconds:.1f} s"
    program.say(name, found == expected, text if found == expected else f"{found} {answers}")


def check_watchpoints(program):
    """What writes a number after the first round, forward and back."""
    first = program.rounds[0]
    look, end = (program.calls(f"range:look[{number}]")[0] for number in (0, 1))
    for name, offset in program.writes:
        if IS_NULL and name == "write":
            program.say(f"watch {name}", True, "not tried: the null driver runs no kernels")
            continue
        watch = f"watch {first.address + offset:#x}+4 f32"
        writers = program.calls(f"range:{name}[1]")
        for way, lines, at in [
            ("forward", [f"call {look}", watch, "continue"], 1),
            ("back", [f"call {end}", watch, "reverse-continue"], 0),
        ]:
            answer = program.debug(lines)[0][2]
            found = re.search(r"written by call (\d+) .*\n#(\d+) ", answer)
            call, stop = (int(number) for number in found.groups()) if found else (None, None)
            is_right = call in writers and stop == call + at
            text = f"call {call} of {writers}" if is_right else answer
            program.say(f"watch {name}, {way}", is_right, text)


def check_statistics(program):
    """All numbers of the last round."""
    last = program.rounds[-1]
    call = program.calls(f"range:look[{last.number}]")[0]
    bytes_ = f"{last.address:#x}+{4 * last.count}"
    inspect = [program.cutape, "inspect", *DRIVER, program.trace, bytes_, "--at", str(call)]
    ended = Ended([*inspect, "--type", "f32", "--report", "-"], text=True)
    if ended.status != 0:
        return program.say("inspect", False, ended.err.strip())
    moment = json.loads(ended.out)["moments"][0]
    statistics = moment["statistics"]
    least, most = (statistics[name]["value"] for name in ("min", "max"))
    found = [least, most, statistics["mean"], statistics["standard_deviation"] ** 2]
    is_right = all(math.isclose(*pair, rel_tol=1e-6) for pair in zip(found, last.statistics))
    is_right &= [single(number) for number in moment["values"][:4]] == [
        single(number) for number in last.values
    ]
    text = "min {:.9g}, max {:.9g}, mean {:.9g}, variance {:.9g}".format(*found)
    program.say("inspect", is_right, text if is_right else f"{text}, not {last.statistics}")


def measure_steps(program):
    """Steps back near the end: the same answers with and without checkpoints, and the time of each."""
    last = program.rounds[-1]
    call = program.calls(f"range:look[{last.number}]")[0]
    look = f"print {last.address:#x}+16 f32"
    begin = [f"call {call}", look]
    without = program.debug(begin, "--checkpoints", "0")
    answers, seconds = [], []
    for options in (["--checkpoints", "0"], []):
        first = program.debug([*begin, "reverse-next", look], *options)
        all_ = program.debug([*begin, *["reverse-next", look] * (STEPS + 1)], *options)
        answers.append(all_[0])
        seconds.append((first[1] - without[1], (all_[1] - first[1]) / STEPS))
    text = "first {:.2f} s, others {:.2f} s"
    names = ("without checkpoints", "with checkpoints")
    for name, times in zip(names, seconds):
        program.say(f"reverse-next {name}", answers[0] == answers[1], text.format(*times))


def main():
    package, results = (Path(word).resolve() for word in sys.argv[1:3])
    table, is_right = [], True
    for name in sys.argv[3:] or ROUNDS:
        program = Program(package / "cutape", name, results)
        why = program.record()
        if why:
            table.append((name, "record", "skipped", why))
            continue
        check_values(program, [], "values")
        check_values(program, ["--eager-checkpoints"], "values, many checkpoints")
        check_watchpoints(program)
        check_statistics(program)
        measure_steps(program)
        for what, was_right, text in program.lines:
            is_right &= was_right
            table.append((name, what, "ok" if was_right else "WRONG", text))
    for row in [("program", "what", "", "found"), *table]:
        print("{:8} {:34} {:8} {}".format(*row))
    return 0 if is_right else 1


sys.exit(main())
