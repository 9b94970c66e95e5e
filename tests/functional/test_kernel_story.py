"""The first user's cell: TensorFlow 2.15 in a kernel whose Python is too new for it, by a real kernel and the configured index."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.functional.interpreters import interpreter
from tests.functional.test_apply_kernel import DRIVER, ROOT, make_kernel
from tests.small_wheels import write_wheel

pytestmark = pytest.mark.network
EXECUTE = """
import json, sys
import nbformat
from nbclient import NotebookClient

name, sources = json.load(sys.stdin)
book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
NotebookClient(book, timeout=1500, kernel_name=name).execute()
print(json.dumps(["".join(one.get("text", "") for one in cell.outputs if one.get("name") == "stdout") for cell in book.cells]))
"""


class Jupyter:
    """A Jupyter server's environment, and a folder in which its notebooks run."""

    def __init__(self, python: str, base: Path) -> None:
        self.base = base
        self.venv = make_kernel(python, base / "server")

    @property
    def environ(self) -> dict[str, str]:
        own = {name: str(self.base / name) for name in ("XDG_STATE_HOME", "IPYTHONDIR", "JUPYTER_DATA_DIR")}
        return {**os.environ, **own, "PYTHONPATH": str(ROOT), "PATH": f"{self.venv}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def run(self, kernel: str, *cells: str) -> list[str]:
        """What the cells of a notebook print."""
        environ = {name: text for name, text in self.environ.items() if kernel == "python3" or name != "PYTHONPATH"}
        done = subprocess.run(
            [str(self.venv / "bin/python"), "-c", EXECUTE],
            input=json.dumps([kernel, cells]),
            cwd=self.base,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        found: list[str] = json.loads(done.stdout)
        return found


def test_a_cell_gives_a_python_that_can_and_a_kernel_that_imports_it(tmp_path: Path) -> None:
    jupyter = Jupyter(interpreter("3.12"), tmp_path)
    cell = 'import cudnn_resolve\nprint(cudnn_resolve.apply("tensorflow==2.15", env="tf215", kernel="tf215").status)'

    first, second = jupyter.run("python3", cell, cell)
    seen = jupyter.run("tf215", "import sys, tensorflow\nprint(sys.version_info[:2], tensorflow.__version__)")

    assert first.endswith("done\n"), first
    assert second.endswith("nothing\n"), second
    assert seen == ["(3, 11) 2.15.0\n"]
    shutil.rmtree(tmp_path / "tf215")


def test_a_loaded_numpy_that_is_replaced_is_restarted_for_once(tmp_path: Path) -> None:
    jupyter = Jupyter(sys.executable, tmp_path)
    files = {version: write_wheel(tmp_path / version, "numpy", version) for version in ("1.26.4", "2.0.0")}
    new = files["2.0.0"]
    (tmp_path / "pylock.toml").write_text(
        'lock-version = "1.0"\ncreated-by = "a test"\n[[packages]]\nname = "numpy"\nversion = "2.0.0"\n'
        f'wheels = [{{name = "{new.filename}", path = "2.0.0/{new.filename}", hashes = {{sha256 = "{new.hashes["sha256"]}"}}}}]\n'
    )
    old = str(tmp_path / "1.26.4" / files["1.26.4"].filename)
    subprocess.run([str(jupyter.venv / "bin/python"), "-m", "pip", "install", "-q", "--no-deps", old], check=True)
    look = "import numpy; print(numpy.VERSION)"
    cell = "import cudnn_resolve\ncudnn_resolve.apply(lock='pylock.toml', restart=True, reinstall_package=PACKAGES)"
    cells = ["PACKAGES = []", look, cell, "the server starts it anew", "PACKAGES = []", look, cell, look]
    again = ["PACKAGES = ['numpy']", look, cell, "the server starts it anew", "PACKAGES = ['numpy']", look, cell, look]

    def run(cells: list[str]) -> list[str]:
        argv = [str(jupyter.venv / "bin/python"), "-c", DRIVER]
        words = json.dumps(cells)
        done = subprocess.run(
            argv, input=words, cwd=tmp_path, env=jupyter.environ, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, done.stderr[-3000:]
        found: list[str] = json.loads(done.stdout)
        return found

    _, before, applied, _, _, after, nothing, last = run(cells)
    assert (before, after, last) == ("1.26.4\n", "2.0.0\n", "2.0.0\n")
    assert "restarting the runtime: this kernel has already imported numpy" in applied
    assert "nothing to do" in nothing
    # what asks for a change each time is restarted for once: the second run of "Run all" comes to its end
    _, _, applied, _, _, _, second, last = run(again)
    assert "restarting the runtime" in applied
    assert "already restarted for this command" in second
    assert last == "2.0.0\n"
