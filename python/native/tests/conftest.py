"""What the tests share: the corpus, and the program `cutape` of the package."""

import json
import pathlib
import subprocess
import sys

import pytest

import cutape

ROOT = pathlib.Path(__file__).parents[3]
CORPUS = sorted(ROOT.glob("traces/*/*.cutape"))


def run(*words):
    """What `cutape` prints; fails on the statuses 2 and 3."""
    done = subprocess.run([cutape.program(), *words], capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def run_json(*words):
    return json.loads(run(*words))


@pytest.fixture(params=CORPUS, ids=lambda path: path.stem)
def path(request):
    """Each trace of the corpus."""
    return request.param


@pytest.fixture(scope="session")
def corpus():
    """The traces by name."""
    return {path.stem: path for path in CORPUS}


@pytest.fixture
def record_script(tmp_path):
    """Records a Python script on the null driver; its output, and the path of the trace."""

    def record(script, is_recorded=True, before="import cutape\n"):
        file = tmp_path / "script.py"
        file.write_text(before + script)
        words = [sys.executable, str(file)]
        if is_recorded:
            options = ["record", "--driver", "null", "-o", "whole.cutape", "--"]
            words = [cutape.program(), *options, *words]
        done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, timeout=60)
        return done, tmp_path / "whole.cutape"

    return record
