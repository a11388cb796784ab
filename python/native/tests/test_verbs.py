"""`check` and `replay` have what the program `cutape` prints."""

import inspect
import os
import re
import subprocess
import sys

import pytest

import cutape
from conftest import run, run_json


def test_findings_are_those_of_check(path):
    findings = cutape.check(path, all=True)
    found = run_json("check", "--all", "--format", "json", path)
    assert findings.omitted == found["omitted"]
    assert len(findings) == len(found["findings"])
    for own, expected in zip(findings, found["findings"]):
        assert (own.rule, own.class_) == (expected["rule"], expected["class"])
        assert own.message == expected["message"] and own.rule in str(own)
        assert (own.call is None) == (expected["call"] is None)
        if own.call is not None:
            assert own.call.call == expected["call"]["call"]
            assert own.call.ranges == expected["call"]["ranges"]
        assert own.text == expected["text"]
        for history, object in zip(own.objects, expected["objects"]):
            assert vars(history) == object


def test_options_of_check(corpus, tmp_path):
    trace = cutape.open(corpus["link-cubin-after-destroy"])
    (finding,) = trace.check()
    assert finding.severity == "error" and finding.rule == "link-cubin-after-destroy"
    suppressions = tmp_path / "suppressions"
    suppressions.write_text(f"{finding.rule}\n")
    findings = trace.check(suppress=suppressions)
    assert findings == [] and findings.omitted["suppressed"] == 1
    with pytest.raises(cutape.CommandError, match="suppressions.missing") as raised:
        trace.check(suppress=tmp_path / "suppressions.missing")
    assert raised.value.status == 2 and "\n" not in str(raised.value)


def test_keywords_are_the_options_of_the_command(corpus):
    """Types and defaults, from what `cutape` itself says about them."""
    functions = [(cutape.check, "check"), (cutape.replay, "replay"), (cutape.record, "trim")]
    for function, verb in functions:
        words = run(verb, "--help")
        parameters = inspect.signature(function).parameters
        keywords = [name for name, one in parameters.items() if one.kind is one.KEYWORD_ONLY]
        assert len(keywords) >= 8
        for name in keywords:
            option = re.escape("--" + name.replace("_", "-"))
            assert re.search(rf"^ +(-\w, )?{option}\b", words, re.MULTILINE), name
            assert f"{name}: " in function.__doc__
    assert len(inspect.signature(cutape.replay).parameters) >= 25
    path = corpus["graph"]
    for use, error, words in [
        (lambda: cutape.replay(path, keep_goin=True), TypeError, "keep_goin"),
        (lambda: cutape.check(path, confidence="none"), ValueError, "choose one of certain"),
        (lambda: cutape.replay(path, timing="spam"), ValueError, "choose one of calls, span"),
        (lambda: cutape.open(path).replay(driver="null", unti=3), TypeError, "unti"),
        (lambda: cutape.check(path, most_repeats=0), cutape.CommandError, "0 is not in 1.."),
    ]:
        with pytest.raises(error, match=words):
            use()


def test_every_kind_of_option(corpus, tmp_path):
    trace = cutape.open(corpus["graph"])
    options = {"driver": "null", "force": True}
    assert trace.replay(**options, until=5).calls_replayed <= 5
    assert trace.replay(**options, timing=True)["timing"]
    span = trace.replay(**options, timing="span")
    assert span["span"] and not span["timing"]
    backs = [call for call in trace.calls("cuMemcpyDtoH_v2")][:2]
    files = [tmp_path / f"{call.index}.bin" for call in backs]
    save = [f"call {call.index} dstHost={file}" for call, file in zip(backs, files)]
    trace.replay(**options, save=save, keep_going=True)
    for call, file in zip(backs, files):
        assert file.stat().st_size == call.arguments["ByteCount"]
    with pytest.raises(cutape.CommandError, match="--overwrite"):
        trace.replay(**options, save=save[0])
    trace.replay(**options, save=save[0], overwrite=True, junit=tmp_path / "junit.xml")
    assert (tmp_path / "junit.xml").is_file()
    report = trace.replay(**options, allow=["nondeterministic", "consequence"], repeat=2)
    assert report.agrees


def test_exceptions_have_their_public_names():
    for name in ("Error", "NotATrace", "DamagedTrace", "CommandError", "NotRecording"):
        kind = getattr(cutape, name)
        assert (kind.__module__, kind.__qualname__) == ("cutape", name)


def test_messages_do_not_depend_on_the_locale(tmp_path):
    script = """
import cutape, sys
try:
    cutape.check(sys.argv[1])
except cutape.CommandError as error:
    print(ascii(error.message))
"""
    ascii_only = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    said = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "gr\u00fcn.cutape")],
        env={**os.environ, **ascii_only}, capture_output=True, text=True, check=True,
    )
    assert "gr\\xfcn.cutape" in said.stdout


def test_options_of_the_project_apply(corpus, tmp_path, monkeypatch):
    path = corpus["link-cubin-after-destroy"].absolute()
    monkeypatch.chdir(tmp_path)
    assert len(cutape.check(path)) == 1
    (tmp_path / "cutape.toml").write_text("[check]\nrules = \"memory-*\"\n")
    assert cutape.check(path) == []
    assert len(cutape.check(path, rules="link-*")) == 1


def test_replay(corpus, monkeypatch):
    trace = cutape.open(corpus["graph"])
    report = trace.replay(driver="null", force=True)
    assert report.agrees and report.divergences == [] and report["divergence_count"] == 0
    assert 0 < report.calls_replayed <= report.calls == len(list(trace))
    monkeypatch.setenv("CUTAPE_NULL_FAIL", "cuGraphLaunch@1=999")
    report = cutape.replay(trace, driver="null", force=True)
    assert not report.agrees and report.divergence_count >= 1
    divergence = report.divergences[0]
    assert divergence.function.startswith("cuGraphLaunch") and divergence.received in str(divergence)
    assert "graph" in trace.calls(start=divergence.call).__next__().function.lower()


def test_replay_refuses(tmp_path, corpus):
    with pytest.raises(cutape.CommandError, match="libcuda.so.1: No such file") as raised:
        cutape.replay(corpus["graph"], driver=tmp_path / "libcuda.so.1")
    assert raised.value.status == 2
    with pytest.raises(cutape.CommandError) as raised:
        cutape.check(tmp_path / "missing.cutape")
    assert "missing.cutape" in str(raised.value) and raised.value.status == 2
    # A name that begins like an option.
    with pytest.raises(cutape.CommandError, match="-all.cutape"):
        cutape.check("--all.cutape")
