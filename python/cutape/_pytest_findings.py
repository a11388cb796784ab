"""Which findings are in a recording of tests, and which test each belongs to."""

import json
import os

from _pytest._code.code import ReprFileLocation, TerminalRepr

from cutape import _program
from cutape.pytest_plugin import words

LEVELS = ["advice", "warning", "error", "never"]
MOST_LISTED = 20


class Checked:
    """What `cutape check` says about the processes of a run."""

    def __init__(self, config, tests):
        self.config = config
        self.tests = tests
        self.processes = 0
        self.counts = {}
        # What makes a test fail, by its id; and what belongs to no test.
        self.of_test = {}
        self.outside = []
        # What is below the level that fails a test: the test and the finding.
        self.minor = []

    def check(self, trace):
        option = self.config.getoption
        options = ["--format", "json", "--fail-on", "never", "--allow-incomplete"]
        for name in ("suppress", "baseline"):
            if option(f"cutape_{name}"):
                options += [f"--{name}", option(f"cutape_{name}")]
        options += words(self.config, "cutape_check_args")
        ended = _program.run("check", *options, trace)
        if ended.returncode != 0:
            self.outside.append(f"The recording was not checked.\n{ended.stderr.strip()}")
            return
        self.processes += 1
        least = LEVELS.index(option("cutape_fail_on"))
        report = json.loads(ended.stdout)
        if "ended_early" in report:
            why = report["ended_early"]
            self.outside.append(f"The recording ended early, later calls are not checked: {why}")
        for finding in report["findings"]:
            severity = finding["severity"]
            self.counts[severity] = self.counts.get(severity, 0) + 1
            test = self.test_of(finding, trace)
            self.add_lines(finding, test)
            if LEVELS.index(severity) < least:
                self.minor.append((test, finding))
            elif test is None:
                self.outside.append(finding)
            else:
                self.of_test.setdefault(test, []).append(finding)

    def test_of(self, finding, trace):
        """The test that made the call; for what is missing at the end, the one that created it."""
        if finding["call"] is not None:
            ranges = finding["call"]["ranges"]
        else:
            ranges = [name for one in finding["objects"] for name in one["created_ranges"]]
        for name in ranges:
            if name in self.tests:
                return name
        return self.test_that_started(trace)

    def test_that_started(self, trace):
        """The test during which a process made its first call, if the process has no tests."""
        facts = info(trace)
        if facts is None or any(one["range"].split("/")[0] in self.tests for one in facts["ranges"]):
            return None
        started = facts["started_unix_ns"]
        running = [
            nodeid
            for nodeid, test in self.tests.items()
            if test.begin <= started and (test.end is None or started <= test.end)
        ]
        # With pytest-xdist, several tests run at a time.
        return running[0] if len(running) == 1 else None

    def add_lines(self, finding, test):
        """Adds to the text where the test makes the call, and which tests created objects."""
        lines = []
        frame = test and self.frame_of_test(finding, test)
        if frame:
            finding["frame"] = frame
            lines.append(f"called from {frame['file']}:{frame['line']} in {frame['function']}")
        for one in finding["objects"]:
            for name in one["created_ranges"]:
                if name in self.tests and name != test:
                    lines.append(f"{name} created {one['label']}")
        text = finding["text"].rstrip()
        finding["text"] = "\n".join([text, *(f"  = test: {line}" for line in dict.fromkeys(lines))])

    def frame_of_test(self, finding, test):
        """The innermost frame of the call in the test's file, with the path from the root."""
        path = self.tests[test].location[0]
        call = finding["call"]
        for frame in call["frames"] if call else ():
            if frame["file"] == os.path.join(self.config.rootpath, path):
                return {**frame, "file": path}
        return None

    def summary(self):
        """Lines for the end of the run."""
        if not self.processes:
            return ["no test called the CUDA driver: nothing was checked"]
        counts = []
        for level in reversed(LEVELS):
            count = self.counts.get(level, 0)
            if count:
                counts.append(f"{count} {level}{'s' if count > 1 and level != 'advice' else ''}")
        found = ", ".join(counts) or "no findings"
        processes = f"{self.processes} process{'es' if self.processes > 1 else ''}"
        lines = [f"checked the driver calls of {processes}: {found}"]
        for test, finding in self.minor[:MOST_LISTED]:
            lines.append(f"{headline(finding)} ({test or 'outside of tests'})")
        if len(self.minor) > MOST_LISTED:
            lines.append(f"and {len(self.minor) - MOST_LISTED} more that fail no test")
        return lines


def calls_in_flight(traces):
    """Sentences about the calls that had not returned when a process ended."""
    calls = [call for trace in traces for call in (info(trace) or {}).get("in_flight", [])]
    return [f"Call {call['call']} had not returned: {call['text']}" for call in calls]


def info(trace):
    """What `cutape info` says about a recording."""
    ended = _program.run("info", "--format", "json", trace)
    return json.loads(ended.stdout) if ended.returncode == 0 else None


def headline(finding):
    """A finding in a line."""
    if isinstance(finding, str):
        return finding.splitlines()[0]
    call = finding["call"]
    place = f" at {call['place']}" if call else ""
    return f"{finding['severity']}[{finding['rule']}]: {finding['title']}{place}"


class FindingsRepr(TerminalRepr):
    """Findings, and sentences, as pytest shows what went wrong."""

    def __init__(self, findings):
        self.findings = findings
        message = headline(findings[0])
        if len(findings) > 1:
            message += f" (and {len(findings) - 1} more)"
        path, line = place_of(findings)
        self.reprcrash = ReprFileLocation(path, line, message)

    def toterminal(self, tw):
        for finding in self.findings:
            text = finding if isinstance(finding, str) else finding["text"]
            for line in text.rstrip().splitlines():
                tw.line(line, red=line.startswith(("error[", "warning[")))
            tw.line("")


def place_of(findings):
    """The source and line of the first finding, as far as known."""
    for finding in findings:
        if not isinstance(finding, dict):
            continue
        if "frame" in finding:
            return finding["frame"]["file"], finding["frame"]["line"]
        for frame in finding["call"]["frames"] if finding["call"] else ():
            if frame["is_own"] and frame["file"]:
                return frame["file"], frame["line"]
    return "cutape", 0
