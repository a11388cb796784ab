"""`@pytest.mark.cutape_replay("trace.cutape")`: a recording as a test."""

import json
import os
import tempfile

import pytest

from cutape import _program
from cutape.pytest_plugin import REPORTS, words


def replay_traces(item):
    """Replays the traces of a test's markers, the one nearest to the function last."""
    reports = item.stash.setdefault(REPORTS, [])
    markers = list(item.iter_markers("cutape_replay"))
    for marker in reversed(markers):
        reports.append(replay(item, marker))


def replay(item, marker):
    trace, options = arguments_of(item, marker)
    with tempfile.TemporaryDirectory(prefix="cutape-replay-") as folder:
        report = os.path.join(folder, "report.json")
        common = words(item.config, "cutape_replay_args")
        ended = _program.run("replay", *common, *options, "--report", report, trace)
        if ended.returncode != 0:
            what = ended.stdout if ended.returncode == 1 else ended.stderr
            pytest.fail(what.strip() or f"cutape replay: status {ended.returncode}", pytrace=False)
        item.add_report_section("call", "cutape replay", ended.stdout + ended.stderr)
        with open(report, encoding="utf-8") as file:
            return json.load(file)


def arguments_of(item, marker):
    """The path of the trace, which is relative to the test's file, and the options."""
    unknown = set(marker.kwargs) - {"args"}
    if len(marker.args) != 1 or unknown:
        pytest.fail(
            "cutape_replay takes one trace, and options as args=[...]: "
            '@pytest.mark.cutape_replay("step.cutape", args=["--repeat", "3"])',
            pytrace=False,
        )
    options = marker.kwargs.get("args", ())
    if isinstance(options, str):
        options = options.split()
    trace = os.path.join(os.path.dirname(str(item.path)), os.fspath(marker.args[0]))
    return trace, options
