"""Tests of the GitHub action and the GitLab template, on the null driver.

No runner of either service can be had here: they fetch programs and images from their services. The
tests run the `run:` and `script:` texts with the shells and variables that the services document,
and check the files against the services' published schemas.
"""

import shutil
import subprocess

import pytest

MISUSE = """
import ctypes

cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
pointer = ctypes.c_uint64()
cuda.cuInit(0)
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
cuda.cuCtxSetCurrent(context)
cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(64))
cuda.cuMemFree_v2(pointer)
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with two programs, a correct one and one that frees twice; and a recording."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "good.py").write_text(MISUSE)
    (folder / "bad.py").write_text(MISUSE + "cuda.cuMemFree_v2(pointer)\n")
    subprocess.run(
        ["cutape", "record", "--driver", "null", "-o", "good.cutape", "--", "python3", "good.py"],
        cwd=folder, check=True,
    )
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def package(tmp_path):
    """What pip installs in place of cutape's wheel: a package with the program of this build."""
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "cutape"\nversion = "0"\n'
    )
    program = shutil.which("cutape")
    (folder / "backend.py").write_text(
        "import zipfile\n"
        "def build_wheel(folder, *_):\n"
        "    name = 'cutape-0-py3-none-any.whl'\n"
        "    info = 'cutape-0.dist-info/'\n"
        "    with zipfile.ZipFile(f'{folder}/{name}', 'w') as wheel:\n"
        "        script = zipfile.ZipInfo('cutape-0.data/scripts/cutape')\n"
        "        script.external_attr = 0o755 << 16\n"
        f"        wheel.writestr(script, '#!/bin/sh\\nexec {program} \"$@\"\\n')\n"
        "        wheel.writestr(info + 'METADATA', 'Metadata-Version: 2.1\\nName: cutape\\n'\n"
        "                       'Version: 0\\n')\n"
        "        wheel.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\\nGenerator: test\\n'\n"
        "                       'Root-Is-Purelib: true\\nTag: py3-none-any\\n')\n"
        "        wheel.writestr(info + 'RECORD', '')\n"
        "    return name\n"
    )
    return folder
