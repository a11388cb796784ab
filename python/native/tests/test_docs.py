"""The examples of docs/python.md run."""

import re
import shutil
import subprocess
import sys

from conftest import ROOT

PAGE = (ROOT / "docs/python.md").read_text()
BLOCKS = re.findall(r"(<!-- example: [a-z ]+ -->\n)?```python\n(.*?)```", PAGE, re.DOTALL)


def example(name):
    (block,) = [code for mark, code in BLOCKS if mark == f"<!-- example: {name} -->\n"]
    return block


def test_blocks_run_in_order(corpus, tmp_path):
    shutil.copy(corpus["graph"], tmp_path / "app.cutape")
    blocks = [code for mark, code in BLOCKS if not mark]
    assert len(blocks) > 4
    (tmp_path / "blocks.py").write_text("\n".join(blocks))
    done = subprocess.run(
        [sys.executable, "blocks.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    for words in ['<cutape.Trace "app.cutape"', "memory#1", "<cutape.Table launches", "kernel_source"]:
        assert words in done.stdout


def test_slowest_kernels(corpus, tmp_path):
    script = tmp_path / "slowest.py"
    script.write_text(example("slowest kernels"))
    for name, kernel in [("graph", "vector_add"), ("threads", "mark")]:
        done = subprocess.run(
            [sys.executable, script, corpus[name]], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert "total_ms" in done.stdout and kernel in done.stdout
        assert re.search(r"device: at most \d+\.\d MiB, at \d+\.\d{3} s", done.stdout), done.stdout


def test_a_block(record_script):
    prepared = (ROOT / "xtask/src/dist/train.py").read_text().partition("check(cuda.cuMemcpyDtoH")[0]
    program = prepared + """
def prepare():
    check(cuda.cuMemcpyHtoD_v2(memory, sent, size))

def train_step():
    check(cuda.cuMemcpyDtoH_v2(received, memory, size))

"""
    done, whole = record_script(program + example("block"), before="")
    assert done.returncode == 0, done.stderr
    assert "Empty DataFrame" in done.stdout
    assert whole.with_name("step.cutape").is_file()
