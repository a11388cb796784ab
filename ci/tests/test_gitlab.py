"""The template in ci/gitlab: its scripts run with sh, as GitLab's runner runs them."""

import json
import os
import pathlib
import subprocess
import sys
import xml.etree.ElementTree as xml

import pytest
from ci_files import CI, lint_script, read_yaml, tool

JOBS = read_yaml("gitlab/cutape.yml")
JOB = JOBS[".cutape"]
[SCRIPT] = JOB["script"]
# A runner joins both into one script, which ends at the first line that fails.
WHOLE = "\n".join(["set -e", *JOB["before_script"], SCRIPT])


@pytest.fixture
def run(project, package):
    def run(script=SCRIPT, **given):
        assert set(given) <= set(JOB["variables"])
        environment = {
            **os.environ,
            "CI_PROJECT_DIR": str(project),
            **JOB["variables"],
            "PACKAGE": str(package),
            "RECORD_ARGS": "--stacks --driver null",
            **given,
        }
        return subprocess.run(
            ["sh", "-e", "-c", script], env=environment, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False,
        )

    return run


@pytest.mark.parametrize(
    "given, status, words",
    [
        ({"RECORD": "python3 good.py"}, 0, ": no findings"),
        ({"RECORD": "python3 good.py\npython3 bad.py"}, 1, "error[memory-double-free]"),
        ({"RECORD": "python3 good.py; exit 7"}, 7, "exited with status 7"),
        ({"RECORD": "true"}, 2, "nothing was checked"),
        ({"TRACES": "*.cutape"}, 0, "good.cutape: no findings"),
        ({"REPLAY": "*.cutape", "REPLAY_ARGS": "--driver null"}, 0, "no divergence"),
        ({"REPLAY": "missing.cutape"}, 2, "missing.cutape"),
    ],
)
def test_outcomes(run, given, status, words):
    ended = run(**given)
    assert ended.returncode == status, ended.stdout
    assert words in ended.stdout


def test_the_package_must_be_named(run, project):
    ended = run(WHOLE, RECORD="python3 good.py", PACKAGE="")
    assert ended.returncode != 0 and "PACKAGE: name the wheel" in ended.stdout
    assert not (project / ".cutape").exists()


def test_reports_are_where_the_job_names_them(run, project):
    # This one installs the package, too. Making an environment takes seconds.
    ended = run(WHOLE, RECORD="python3 bad.py", REPLAY="good.cutape", REPLAY_ARGS="--driver null")
    assert ended.returncode == 1, ended.stdout
    assert (project / ".cutape/bin/cutape").is_file()
    [folder] = JOB["artifacts"]["paths"]
    assert folder == "$RESULTS"
    pattern = JOB["artifacts"]["reports"]["junit"].replace("$RESULTS", JOB["variables"]["RESULTS"])
    failures = {
        path.name: xml.parse(path).getroot().get("failures") for path in project.glob(pattern)
    }
    assert failures == {"check-run.xml": "1", "replay-good.xml": "0"}
    [sarif] = project.glob("cutape-results/*.sarif")
    assert json.loads(sarif.read_text())["version"] == "2.1.0"


@pytest.mark.parametrize(
    "tests, status, words",
    [
        ("def test_one(): pass", 0, "1 passed"),
        ("def test_one(): import good", 1, "--cutape-play tests/recordings --cutape-play-mode once"),
    ],
)
def test_tests_play(project, tests, status, words):
    job = JOBS[".cutape-play"]
    assert job["extends"] == ".cutape"
    (project / "test_app.py").write_text(tests)
    # The environment that the job has made; pytest is in it.
    python = pathlib.Path(sys.executable).parent
    environment = {
        **os.environ,
        **JOB["variables"],
        **job["variables"],
        "PATH": f"{python}:{os.environ['PATH']}",
        "PYTEST_ARGS": "-p cutape.pytest_plugin -p no:cacheprovider",
    }
    [script] = job["script"]
    ended = subprocess.run(
        ["sh", "-e", "-c", script], env=environment, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False,
    )
    assert ended.returncode == status, ended.stdout
    assert words in ended.stdout
    junit = xml.parse(project / "cutape-results/pytest.xml").getroot()
    assert junit.find("testsuite").get("failures") == str(status)


QUICK = "--driver null --samples 10 --measure-seconds 0.02 --warm-up-seconds 0.01 --clock host"


def test_a_corpus_is_measured_and_compared(project):
    job = JOBS[".cutape-matrix"]
    [script] = job["script"]
    workflow = read_yaml("github/workflow.yml")["jobs"]["matrix"]
    assert script in [step.get("run") for step in workflow["steps"]]
    assert workflow["env"].keys() - job["variables"].keys() == {"RESULTS"}
    [kept] = job["cache"]["paths"]
    assert kept == "$HISTORY"
    # A call that can be repeated.
    freed = "cuda.cuMemFree_v2(pointer)"
    text = (project / "good.py").read_text()
    text = text.replace(freed, f"cuda.cuMemsetD8_v2(pointer, 1, ctypes.c_size_t(64))\n{freed}")
    (project / "set.py").write_text(text)
    subprocess.run(
        ["cutape", "record", "--driver", "null", "-o", "set.cutape", "--", "python3", "set.py"],
        check=True,
    )

    def run(commit, branch, **given):
        environment = {
            **os.environ,
            **JOB["variables"],
            **job["variables"],
            "CORPUS": "set.cutape",
            "DEFAULT_BRANCH": "main",
            "CI_COMMIT_BRANCH": branch,
            "CI_COMMIT_SHORT_SHA": commit,
            "MATRIX_ARGS": QUICK,
            "COMPARE_ARGS": "--host-threshold 900",
            **given,
        }
        ended = subprocess.run(
            ["sh", "-e", "-c", script], env=environment, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False,
        )
        kept = sorted(path.stem[-1] for path in project.glob("cutape-history/*.json"))
        return ended.returncode, ended.stdout, "".join(kept)

    page = project / "cutape-results/compared.html"
    slow = {"CUTAPE_NULL_DELAY": "cuMemsetD8=20ms"}
    for commit, branch, given, status, kept in [
        ("a", "main", {}, 0, "a"),
        ("b", "topic", {}, 0, "a"),
        ("c", "main", slow, 1, "a"),
        ("d", "main", {}, 0, "ad"),
        ("e", "main", {"CORPUS": "missing.cutape"}, 2, "ad"),
    ]:
        page.unlink(missing_ok=True)
        ended, said, found = run(commit, branch, **given)
        assert (ended, found) == (status, kept), said
        assert page.exists() == (commit in "bcd"), said
    assert (project / "cutape-results/history.html").exists()


def test_the_file_fits_the_schema():
    ended = tool(
        "check-jsonschema", "--builtin-schema", "vendor.gitlab-ci", CI / "gitlab/cutape.yml"
    )
    assert ended.returncode == 0, ended.stdout


@pytest.mark.parametrize("job", JOBS)
def test_shellcheck_accepts_the_scripts(job, tmp_path):
    lint_script(tmp_path / "script.sh", *JOBS[job]["script"], "sh")
