"""`check` and `replay` have what the program `cutape` prints."""

import pytest

import cutape
from conftest import run_json


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
