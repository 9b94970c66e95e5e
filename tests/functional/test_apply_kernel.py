"""`apply` in a cell of a real Jupyter kernel, whose server starts it anew when it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.functional.interpreters import uv
from tests.native.build import c_compiler
from tests.small_wheels import write_wheel

pytestmark = pytest.mark.network
ROOT = Path(__file__).resolve().parents[2]
DRIVER = """
import asyncio, json, sys
import nbformat
from jupyter_client.ioloop import AsyncIOLoopKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import DeadKernelError

async def main(sources):
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    manager = AsyncIOLoopKernelManager(kernel_name="python3", autorestart=True)
    client = NotebookClient(book, km=manager, timeout=120, allow_errors=True)
    restarted = asyncio.Event()
    async with client.async_setup_kernel():
        manager.add_restart_callback(restarted.set)
        for number, cell in enumerate(book.cells):
            if cell.source == "the server starts it anew":
                await asyncio.wait_for(restarted.wait(), 180)
                await client.kc.wait_for_ready(timeout=180)
                continue
            try:
                await client.async_execute_cell(cell, number)
            except DeadKernelError:
                cell.outputs.append({"text": "the kernel died"})
    return ["".join(one.get("text") or one.get("data", {}).get("text/html", "") for one in cell.outputs) for cell in book.cells]

print(json.dumps(asyncio.run(main(json.load(sys.stdin)))))
"""


def make_kernel(python: str, place: Path) -> Path:
    """An environment with a kernel and with what this program needs."""
    uv("venv", "-q", "--seed", "--python", python, place)
    uv("pip", "install", "-q", "--python", place / "bin/python", "-r", ROOT / "pyproject.toml", "ipykernel", "nbclient", "nbformat")
    return place


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_kernel(sys.executable, tmp_path_factory.mktemp("kernel") / "venv")


@pytest.fixture
def project(kernel: Path, tmp_path: Path) -> Path:
    """A folder with a lock of another torch than the one that is installed; both open a library when they are imported."""
    source, library = tmp_path / "empty.c", tmp_path / "libtorch.so"
    source.write_text("int nothing;\n")
    subprocess.run([c_compiler(), "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    opens = "import ctypes, os\nctypes.CDLL(os.path.join(os.path.dirname(__file__), 'lib', 'libtorch.so'))\n"
    made = {
        version: write_wheel(
            tmp_path / version,
            "torch",
            version,
            {"torch/__init__.py": f"__version__ = {version!r}\n{opens}", "torch/lib/libtorch.so": library.read_bytes()},
        )
        for version in ("2.5.0", "2.6.0")
    }
    (tmp_path / "pylock.toml").write_text(
        'lock-version = "1.0"\ncreated-by = "a test"\n[[packages]]\nname = "torch"\nversion = "2.6.0"\n'
        f'wheels = [{{name = "{made["2.6.0"].filename}", path = "2.6.0/{made["2.6.0"].filename}", '
        f'hashes = {{sha256 = "{made["2.6.0"].hashes["sha256"]}"}}}}]\n'
        f'[tool.cudnn-resolve]\nschema = 1\ntargets = ["torch"]\npython = "{sys.version_info[0]}.{sys.version_info[1]}"\n'
        f'platforms = ["linux_{os.uname().machine}"]\nframeworks = [{{name = "torch", version = "2.6.0", variant = "cu124"}}]\n'
    )
    old = str(tmp_path / "2.5.0" / made["2.5.0"].filename)
    subprocess.run([str(kernel / "bin/python"), "-m", "pip", "install", "-q", "--force-reinstall", "--no-deps", old], check=True)
    return tmp_path


@pytest.mark.parametrize(
    "cell",
    ["import cudnn_resolve\ncudnn_resolve.apply(lock='pylock.toml', restart=True)", "!cudnn-resolve-here apply pylock.toml --restart -q"],
    ids=["python", "shell"],
)
def test_a_kernel_is_restarted_when_told_to_and_the_cell_is_a_no_op_then(kernel: Path, project: Path, cell: str) -> None:
    import_torch = "import torch; print(torch.__version__)"
    program = project / "bin" / "cudnn-resolve-here"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{kernel}/bin/python" -m cudnn_resolve "$@"\n')
    program.chmod(0o755)
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(project / "state"), "IPYTHONDIR": str(project / "ipython")}
    environ["PATH"] = f"{program.parent}:{kernel}/bin:{os.environ['PATH']}"

    done = subprocess.run(
        [str(kernel / "bin/python"), "-c", DRIVER],
        input=json.dumps([import_torch, cell, "the server starts it anew", cell, import_torch]),
        cwd=project,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    assert done.returncode == 0, done.stderr
    first, applied, _, again, last = json.loads(done.stdout)
    assert (first, last) == ("2.5.0\n", "2.6.0\n")
    assert "done: the environment matches the plan" in applied
    assert "this kernel has already imported torch" in applied
    assert "nothing to do: the environment already matches the plan" in again


EXECUTE = """
import json, sys
import nbformat
from nbclient import NotebookClient

book = nbformat.read("plan.ipynb", 4)
nbformat.validate(book)
for _ in range(2):
    NotebookClient(book, timeout=120, kernel_name="python3").execute()
    print(json.dumps([one["text"] for cell in book.cells if cell.cell_type == "code" for one in cell.outputs]))
"""


def test_the_notebook_of_a_plan_is_executed(kernel: Path, project: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "IPYTHONDIR": str(project / "ipython"), "PATH": f"{kernel}/bin:{os.environ['PATH']}"}
    python = str(kernel / "bin/python")
    words = [python, "-m", "cudnn_resolve", "plan", "pylock.toml", "--python", python, "--format", "notebook", "-o", "plan.ipynb"]
    subprocess.run(words, cwd=project, env=environ, check=True, capture_output=True)
    environ = {name: value for name, value in environ.items() if not name.startswith(("PIP_", "PYTHONPATH"))}
    environ |= {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(project / "2.6.0")}

    done = subprocess.run([python, "-c", EXECUTE], cwd=project, env=environ, capture_output=True, text=True, check=False, timeout=300)

    assert done.returncode == 0, done.stderr
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    assert first == ["done: 1 package changed\n", "the environment matches the plan\n"]
    assert second == ["nothing to do: the environment already matches the plan\n", "the environment matches the plan\n"]


def test_cells_run_in_another_environment_and_doctor_judges_the_last_error(kernel: Path, tmp_path: Path) -> None:
    uv("venv", "-q", "--python", sys.executable, tmp_path / "other")
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "IPYTHONDIR": str(tmp_path / "ipython"), "PATH": f"{kernel}/bin:{os.environ['PATH']}"}
    cells = [
        "%load_ext cudnn_resolve",
        "%%cudnn_run other\nimport sys\nprint(sys.prefix)",
        "raise ImportError('libcudnn.so.8: cannot open shared object file: No such file or directory')",
        "%cudnn doctor --no-color",
    ]
    argv = [str(kernel / "bin/python"), "-c", DRIVER]
    done = subprocess.run(
        argv, input=json.dumps(cells), cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=300
    )

    assert done.returncode == 0, done.stderr
    _, prefix, _, judged = json.loads(done.stdout)
    assert prefix == f"{tmp_path}/other\n"
    assert "libcudnn.so.8" in judged
