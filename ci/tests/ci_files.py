"""The files of ci/, and programs that lint them."""

import pathlib
import shutil
import subprocess
import sys

import pytest
import yaml

CI = pathlib.Path(__file__).resolve().parent.parent


def read_yaml(path):
    with open(CI / path, encoding="utf-8") as file:
        return yaml.safe_load(file)


def tool(name, *arguments):
    """Runs a program of this Python's environment."""
    program = pathlib.Path(sys.executable).with_name(name)
    return subprocess.run(
        [program, *map(str, arguments)], capture_output=True, text=True, check=False
    )


def lint_script(path, script, shell):
    """Lints a script with shellcheck, where it is installed."""
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    path.write_text(script)
    ended = subprocess.run(
        ["shellcheck", f"--shell={shell}", path], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout
