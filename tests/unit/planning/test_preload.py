"""The preload file, really run in a child interpreter with small libraries made by the C compiler."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cudnn_resolve.errors import InputError
from cudnn_resolve.facts.cudnn_files import FOLDER
from cudnn_resolve.planning.preload import MODULE, preload_pth, preload_source

C = "int {name}_answer(void) {{ return {value}; }}\n"


@pytest.mark.parametrize("frameworks", [("tensorflow",), ("ctranslate2", "onnxruntime"), ()])
def test_the_source_is_python_36(frameworks: tuple[str, ...]) -> None:
    tree = ast.parse(preload_source(frameworks), feature_version=(3, 6))

    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert imported == {"sys", "ctypes", "os"}
    assert "LD_LIBRARY_PATH" not in preload_source(frameworks)


def test_the_names_are_those_of_modules() -> None:
    source = preload_source(("paddlepaddle", "tensorflow"))

    assert "NAMES = ('paddle', 'tensorflow')\n" in source
    assert "NAMES = ('jax',)\n" in preload_source(("jax",))


@pytest.mark.parametrize(
    "name",
    ['"""+str(__import__("os").system("id"))+"""', 'torch"', "torch\\", "t'),('", "torch\nimport os", "{tuple!r}", "--torch", "törch", ""],
)
def test_what_is_no_name_becomes_no_program(name: str) -> None:
    with pytest.raises(InputError, match="is not a valid framework name"):
        preload_source(("torch", name))


def site(tmp_path: Path, *frameworks: str) -> Path:
    (tmp_path / f"{MODULE}.py").write_text(preload_source(frameworks), "utf-8")
    (tmp_path / f"{MODULE}.pth").write_text(preload_pth(), "utf-8")
    return tmp_path


def child(site_packages: Path, code: str) -> str:
    """What the code prints in a fresh interpreter whose site-packages hold the preload."""
    start = f"import site; site.addsitedir({str(site_packages)!r})\n"
    done = subprocess.run([sys.executable, "-S", "-c", start + code], capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout.strip()


def library(folder: Path, name: str, value: int, *needed: Path, major: int = 9) -> Path:
    """A shared library that needs others without saying where they are."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler to make libraries with")
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / f"{name}.c"
    source.write_text(C.format(name=name.replace(".", "_"), value=value), "utf-8")
    target = folder / f"lib{name}.so.{major}"
    argv = [
        compiler,
        "-shared",
        "-fPIC",
        "-Wl,--no-as-needed",
        f"-Wl,-soname,{target.name}",
        "-o",
        str(target),
        str(source),
        *map(str, needed),
    ]
    subprocess.run(argv, check=True, timeout=60)
    source.unlink()
    return target


@pytest.mark.slow
def test_libraries_are_loaded_when_the_framework_is_imported(tmp_path: Path) -> None:
    folder = site(tmp_path, "tensorflow")
    cublas = library(folder / "nvidia/cublas/lib", "cublas", 1)
    library(folder / "nvidia/cudnn/lib", "cudnn", 7, cublas)
    (folder / "tensorflow.py").write_text("import ctypes\nVALUE = ctypes.CDLL('libcudnn.so.9').cudnn_answer()\n", "utf-8")

    maps = "open('/proc/self/maps').read().count('libcudnn.so.9') > 0"
    assert child(folder, f"print({maps})\nimport json, tensorflow\nprint(tensorflow.VALUE, {maps})").split() == ["False", "7", "True"]


def test_a_framework_gets_the_cudnn_of_the_folder_and_the_others_theirs(tmp_path: Path) -> None:
    (tmp_path / f"{MODULE}.py").write_text(preload_source(("torch",), ("tensorflow",)), "utf-8")
    (tmp_path / f"{MODULE}.pth").write_text(preload_pth(), "utf-8")
    cublas = library(tmp_path / "nvidia/cublas/lib", "cublas", 1)
    library(tmp_path / "nvidia/cudnn/lib", "cudnn", 9)
    # It finds libcublas only because that is loaded before: the folder has none.
    library(tmp_path / FOLDER / "nvidia/cudnn/lib", "cudnn", 8, cublas, major=8)
    for name, number in (("torch", 9), ("tensorflow", 8)):
        code = f"import ctypes\nVALUE = ctypes.CDLL('libcudnn.so.{number}').cudnn_answer()\n"
        (tmp_path / f"{name}.py").write_text(code, "utf-8")

    for order in ("torch, tensorflow", "tensorflow, torch"):
        assert child(tmp_path, f"import {order}; print(torch.VALUE, tensorflow.VALUE)") == "9 8"
    assert child(tmp_path, "import tensorflow; print('/nvidia/cudnn/lib/libcudnn.so.9' in open('/proc/self/maps').read())") == "False"


def test_a_library_that_cannot_be_loaded_is_passed_over(tmp_path: Path) -> None:
    folder = site(tmp_path, "torch")
    library(folder / "nvidia/cublas/lib", "cublas", 1)
    (folder / "nvidia/cudnn/lib").mkdir(parents=True)
    (folder / "nvidia/cudnn/lib/libcudnn.so.9").write_bytes(b"no library")
    (folder / "torch.py").write_text("import ctypes\nVALUE = ctypes.CDLL('libcublas.so.9').cublas_answer()\n", "utf-8")

    assert child(folder, "import torch; print(torch.VALUE)") == "1"


def test_without_wheels_nothing_happens(tmp_path: Path) -> None:
    folder = site(tmp_path, "jax")
    (folder / "jax.py").write_text("", "utf-8")

    assert child(folder, "import jax, sys; print([type(one).__module__ for one in sys.meta_path].count('_cudnn_resolve_preload'))") == "0"


def test_the_finder_waits_for_its_framework_and_leaves(tmp_path: Path) -> None:
    folder = site(tmp_path, "jax")
    (folder / "jax.py").write_text("", "utf-8")
    count = "sum(type(one).__module__ == '_cudnn_resolve_preload' for one in sys.meta_path)"

    assert child(folder, f"import sys, json; print({count}); import jax; print({count})").split() == ["1", "0"]


def test_start_up_costs_no_ctypes(tmp_path: Path) -> None:
    assert child(site(tmp_path, "jax"), "import sys; print('ctypes' in sys.modules)") == "False"
