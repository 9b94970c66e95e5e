"""The setup cells of docs/notebooks.md, each executed by a real kernel in an imitation of its place, with the configured index.

A place has the Python and the packages that were recorded there: those that a kernel and this program need are installed in the recorded
versions, the others are there by name. It has no GPU, and pip finds this checkout's wheel under the program's name. Every cell is executed
but the one that takes Colab's own JAX, which is there by name alone; the wheels of CUDA, gigabytes of them, are fetched once for all.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import check_wheel
import pytest

from tests.functional.interpreters import interpreter, uv
from tests.functional.test_apply_kernel import DRIVER
from tests.functional.test_setup_cells import CELLS, asked
from tests.program import ROOT

pytestmark = pytest.mark.network
IMPORTS = {"tensorflow": "tensorflow", "torch": "torch", "jax": "jax"}
EXECUTED = [one for one in CELLS if "restart=True" not in one[1]]
_ALL = json.loads((ROOT / "tests/images/colab-2026-07-14.json").read_text("utf-8"))["packages"]["pip"]
_RECORDED = {name: version for name, version in _ALL.items() if re.fullmatch(r"[\w.+!]+", version)}
_NEEDED = ("ipykernel", "requests", "packaging", "platformdirs", "rich", "urllib3")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The wheel of this checkout, and what drives a kernel."""
    base = tmp_path_factory.mktemp("shared")
    check_wheel.build(ROOT, base / "wheels", "wheel")
    uv("venv", "-q", "--python", sys.executable, str(base / "driver"))
    uv("pip", "install", "-q", "--python", str(base / "driver"), "nbclient", "nbformat", "ipykernel")
    yield base
    shutil.rmtree(base)


class Place:
    """A Jupyter server's home, with the kernel of its image."""

    def __init__(self, base: Path, shared: Path, words: str) -> None:
        self.base, self.shared = base, shared
        self.image = base / "image"
        stated = re.search(r"python_version=(\S+)", words)
        uv("venv", "-q", "--seed", "--python", interpreter(stated[1] if stated else "3.12"), str(self.image))
        is_colab = "colab" in words
        limits = base / "recorded.txt"
        limits.write_text(
            "".join(f"{name}=={version}\n" for name, version in _RECORDED.items() if is_colab and re.fullmatch(r"[\d.]+", version))
        )
        uv("pip", "install", "-q", "--python", str(self.image), "-c", str(limits), *_NEEDED)
        site = next(self.image.glob("lib/python3*/site-packages"))
        if is_colab:
            self._name_the_others(site)
            (site / "google/colab").mkdir(parents=True)
            (site / "google/colab/__init__.py").touch()
            (site / "google/colab/drive.py").write_text("import os\n\n\ndef mount(path):\n    os.makedirs(path, exist_ok=True)\n")
        if "a2-highgpu" in words:  # conda's: what it installed has a record of it
            (self.image / "conda-meta").mkdir()
            for name, version in (("python", "3.12.1"), ("jupyterlab", "4.2.0")):
                found = {"name": name, "version": version, "build": "0", "channel": "conda-forge", "files": []}
                (self.image / f"conda-meta/{name}-{version}-0.json").write_text(json.dumps(found))
        kernels = base / "jupyter/kernels/python3"
        kernels.mkdir(parents=True)
        argv = [str(self.image / "bin/python"), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        (kernels / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "Python 3", "language": "python"}))

    @staticmethod
    def _name_the_others(site: Path) -> None:
        here = {re.sub("[-_.]+", "-", path.name.partition("-")[0]).lower() for path in site.glob("*.dist-info")}
        for name, version in _RECORDED.items():
            if re.sub("[-_.]+", "-", name).lower() not in here and name not in ("tomli-w", "msgspec", "pyelftools", "uv"):
                folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
                folder.mkdir()
                (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
                (folder / "RECORD").write_text(f"{folder.name}/METADATA,,\n{folder.name}/RECORD,,\n")

    def run(self, *cells: str) -> list[str]:
        """What the cells of a notebook show."""
        path = [str(self.image / "bin"), *(one for one in os.environ["PATH"].split(":") if str(Path(sys.executable).parent) != one)]
        own = {name: str(self.base / name) for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "IPYTHONDIR", "JUPYTER_DATA_DIR", "HOME")}
        (self.base / "HOME").mkdir(exist_ok=True)
        more = {"PATH": ":".join(path), "JUPYTER_PATH": str(self.base / "jupyter"), "PIP_FIND_LINKS": str(self.shared / "wheels")}
        environ = {**os.environ, **own, **more, "PYTHONPATH": ""}
        if (self.image / "conda-meta").exists():
            environ |= {"CONDA_PREFIX": str(self.image), "CONDA_DEFAULT_ENV": "base"}
        driver = DRIVER.replace("timeout=120", "timeout=1500, startup_timeout=600")
        argv = [str(self.shared / "driver/bin/python"), "-c", driver]
        done = subprocess.run(argv, input=json.dumps(cells), cwd=self.base, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        found: list[str] = json.loads(done.stdout)
        return found


@pytest.mark.parametrize(("words", "cell"), EXECUTED, ids=[f"{number} {words}" for number, (words, _) in enumerate(EXECUTED)])
def test_a_setup_cell_does_what_it_says(words: str, cell: str, tmp_path: Path, shared: Path) -> None:
    place = Place(tmp_path, shared, words)
    for folder in ("/kaggle/working", "/home/sagemaker-user", "/content/drive"):
        cell = cell.replace(folder, str(tmp_path / folder[1:]))
    targets, options = asked(cell)
    names = [IMPORTS[re.split("[=<>]", one)[0]] for one in targets]
    look = f"import {', '.join(names)}, sys\nprint(sys.version_info[:2], {', '.join(f'{one}.__version__' for one in names)})"
    if "env" in options:
        python = tmp_path / options["env"] / "bin/python"
        seen = f"import subprocess\nprint(subprocess.run([{str(python)!r}, '-c', {look!r}], capture_output=True, text=True).stdout)"
    else:
        seen = look

    first, again, shown = place.run(cell, cell, seen)

    assert "done: the environment matches the plan" in first or ("env" not in options and "nothing to do" in first), first
    assert "nothing to do: the environment already matches the plan" in again, again
    for one in targets:
        assert one.partition("==")[2] in shown, shown
    if "kernel" in options:
        spec = json.loads((tmp_path / f"JUPYTER_DATA_DIR/kernels/{options['kernel']}/kernel.json").read_text("utf-8"))
        assert spec["argv"][0] == str(python)
    if "bundle_dir" in options:
        assert list(Path(options["bundle_dir"]).glob("wheels/tensorflow-2.15*.whl"))
    shutil.rmtree(tmp_path / options["env"] if "env" in options else place.image)
