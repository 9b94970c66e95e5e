"""Copies of cuDNN and what frameworks would load, with real libraries: compiled stand-ins, and (network) NVIDIA's own wheels."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cudnn_resolve.facts.model import CudnnCopy, Facts, InstalledFramework, Unknown
from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.probe.probe import detect
from tests.functional.interpreters import interpreters, make_environment, site_packages
from tests.native.cudnn import ALONE, HANGS, HANGS_EARLY, RPATH, RUNPATH, SEGFAULTS, build_cudnn, build_part
from tests.native.template import compile_library

pytestmark = pytest.mark.slow

THIS = f"{sys.version_info[0]}.{sys.version_info[1]}"
SECONDS = 2.0


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children that hang are given up early."""
    monkeypatch.setattr("cudnn_resolve.probe.cudnn.TIMEOUT_SECONDS", SECONDS)


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    make_environment(THIS, tmp_path / "venv")
    return tmp_path / "venv"


def install(site: Path, name: str, version: str, *requires: str, files: Path | None = None) -> None:
    """The metadata of a wheel, with a RECORD of the libraries in a directory."""
    metadata = site / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir(parents=True)
    lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {one}" for one in requires)]
    (metadata / "METADATA").write_text("\n".join(lines) + "\n", "utf-8")
    libraries = sorted(files.glob("lib*")) if files else []
    (metadata / "RECORD").write_text("".join(f"{one.relative_to(site)},sha256=x,{one.stat().st_size}\n" for one in libraries), "utf-8")


def install_cudnn(venv: Path, name: str, version: str, cuda: int, search: str = RUNPATH) -> Path:
    """A stand-in of NVIDIA's wheel."""
    site = site_packages(venv)
    lib = build_cudnn(site / "nvidia/cudnn/lib", version.rpartition(".")[0], cuda=cuda, search=search)
    install(site, name, version, files=lib)
    return lib


def look(venv: Path, *library_path: Path, **environ: str) -> Facts:
    """The facts of a virtual environment, as a program with this LD_LIBRARY_PATH would have them."""
    paths = {"LD_LIBRARY_PATH": ":".join(map(str, library_path))} if library_path else {}
    return detect(LinuxHost(environ={**os.environ, **paths, **environ}), str(venv))


def copies(facts: Facts, root: Path) -> dict[str, CudnnCopy]:
    """The copies below a directory by their path from there."""
    assert not isinstance(facts.cudnn, Unknown)
    below = [copy for copy in facts.cudnn if copy.path and copy.path.startswith(f"{root}/")]
    return {str(Path(copy.path or "").relative_to(root)): copy for copy in below}


def brief(copy: CudnnCopy) -> tuple[object, ...]:
    return copy.version, copy.soname, copy.cuda, copy.source, copy.owner, copy.complete


def framework(facts: Facts) -> InstalledFramework:
    assert not isinstance(facts.frameworks, Unknown)
    (only,) = facts.frameworks
    return only


@pytest.mark.parametrize("version", sorted(interpreters()))
def test_every_python_can_ask(version: str, tmp_path: Path) -> None:
    make_environment(version, tmp_path / "venv")
    install_cudnn(tmp_path / "venv", "nvidia-cudnn-cu11", "8.9.6.50", 11080)
    other = build_cudnn(tmp_path / "opt/cudnn-9.1/lib", "9.1.0")

    found = copies(look(tmp_path / "venv", other), tmp_path)

    wheel = str((site_packages(tmp_path / "venv") / "nvidia/cudnn/lib").relative_to(tmp_path))
    assert list(found) == ["opt/cudnn-9.1/lib", wheel]
    assert brief(found["opt/cudnn-9.1/lib"]) == ("9.1.0", 9, "12.4", "other", None, True)
    assert brief(found[wheel]) == ("8.9.6.50", 8, "11.8", "pip", "nvidia-cudnn-cu11", True)


@pytest.mark.usefixtures("quick")
def test_one_that_hangs_and_one_that_crashes_cost_nobody_else_the_answer(venv: Path, tmp_path: Path) -> None:
    places = {
        "hangs": build_cudnn(tmp_path / "hangs", "9.2.0", how=HANGS),
        "early": build_cudnn(tmp_path / "early", "9.3.0", how=HANGS_EARLY),
        "segfaults": build_cudnn(tmp_path / "segfaults", "9.4.0", how=SEGFAULTS),
        "works": build_cudnn(tmp_path / "works", "9.5.1"),
    }

    facts = look(venv, *places.values())

    found = copies(facts, tmp_path)
    assert [found[name].version for name in places] == [None, None, None, "9.5.1"]
    assert "libcudnn.so.9 hangs when it is asked for its version" in found["hangs"].problems
    assert "libcudnn.so.9 hangs while it is loaded" in found["early"].problems
    assert "libcudnn.so.9 ends the process (SIGSEGV) when it is asked for its version" in found["segfaults"].problems
    assert {problem.what for problem in facts.problems} >= {f"cuDNN in {tmp_path}/{name}" for name in ("hangs", "early", "segfaults")}


def test_a_copy_answers_with_its_own_parts_whatever_comes_first_elsewhere(venv: Path, tmp_path: Path) -> None:
    wheel = install_cudnn(venv, "nvidia-cudnn-cu12", "9.1.0.70", 12040)
    other = build_cudnn(tmp_path / "other", "9.2.1")

    found = copies(look(venv, other), tmp_path)

    assert found[str(wheel.relative_to(tmp_path))].version == "9.1.0.70"
    assert found["other"].version == "9.2.1"


def test_a_part_of_another_release(venv: Path, tmp_path: Path) -> None:
    lib = build_cudnn(tmp_path / "lib", "9.1.0", without=("ops",))
    build_part(lib, "ops", "9.0.0")

    copy = copies(look(venv, lib), tmp_path)["lib"]

    assert (copy.version, copy.complete) == ("9.1.0", False)
    assert any("libcudnn rejects libcudnn_ops.so.9" in problem for problem in copy.problems)


def test_a_part_that_is_missing_ends_the_process(venv: Path, tmp_path: Path) -> None:
    lib = build_cudnn(tmp_path / "lib", "8.9.7", cuda=12020, without=("cnn_train",))

    copy = copies(look(venv, lib), tmp_path)["lib"]

    assert (copy.version, copy.complete) == ("8.9.7", False)
    assert "incomplete: libcudnn_cnn_train.so.8 is not there" in copy.problems
    words = "ends the process (SIGABRT) when its part cnn_train is asked: Unable to load any of {libcudnn_cnn_train.so.8.9.7}"
    assert f"libcudnn.so.8 {words}" in copy.problems


def test_a_cudnn_8_that_ends_the_process_without_a_driver_is_whole(venv: Path, tmp_path: Path) -> None:
    lib = tmp_path / "lib"
    compile_library("standin_stale.c", lib / "libcudnn.so.8", "libcudnn.so.8", RUNPATH, "-DEARLY")
    compile_library("standin_stale.c", lib / "libcudnn_cnn_infer.so.8", "libcudnn_cnn_infer.so.8", "-DPART")
    for name in ("adv_infer", "adv_train", "cnn_train", "ops_infer", "ops_train"):
        build_part(lib, name, "8.6.0.163")

    copy = copies(look(venv, lib), tmp_path)["lib"]

    assert (copy.version, copy.complete) == ("8.6.0", True)
    assert not copy.problems


def test_cudnn_7(venv: Path, tmp_path: Path) -> None:
    lib = build_cudnn(tmp_path / "opt/cudnn-7.6/lib64", "7.6.5", cuda=10020, how=ALONE)

    assert brief(copies(look(venv, CUDNN_PATH=str(lib.parent)), tmp_path)["opt/cudnn-7.6/lib64"])[:3] == ("7.6.5", 7, "10.2")


def test_wheels_for_two_cuda_majors_over_each_other(venv: Path, tmp_path: Path) -> None:
    install_cudnn(venv, "nvidia-cudnn-cu12", "9.1.0.70", 12040)
    wheel = install_cudnn(venv, "nvidia-cudnn-cu13", "9.19.0.56", 13010)

    facts = look(venv)

    assert brief(copies(facts, tmp_path)[str(wheel.relative_to(tmp_path))])[:5] == ("9.19.0.56", 9, "13.1", "pip", "nvidia-cudnn-cu13")
    assert "nvidia-cudnn-cu12 9.1.0.70 and nvidia-cudnn-cu13 9.19.0.56" in {problem.what for problem in facts.problems}


# --- what would be loaded, and what then really is ---


def install_torch(venv: Path, tag: str) -> Path:
    """Something with the libraries of torch: a module that needs libtorch_cuda, which needs libcudnn."""
    site = site_packages(venv)
    lib = site / "torch/lib"
    lib.mkdir(parents=True)
    (site / "torch/version.py").write_text("__version__ = '2.6.0+cu124'\ncuda = '12.4'\nhip = None\n", "utf-8")
    cudnn = build_cudnn(venv / "to-link-with", "9.1.0") / "libcudnn.so.9"
    options = (f"-Wl,{tag},-rpath,$ORIGIN/../../nvidia/cudnn/lib:$ORIGIN", "-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined")
    cuda = compile_library("template.c", lib / "libtorch_cuda.so", "libtorch_cuda.so", *options, str(cudnn))
    compile_library("template.c", site / "torch/_C.so", None, "-Wl,--no-as-needed", f"-Wl,{tag},-rpath,$ORIGIN/lib", str(cuda))
    install(site, "torch", "2.6.0+cu124", "nvidia-cudnn-cu12==9.1.0.70")
    return site / "torch/_C.so"


def mapped(venv: Path, module: Path, library_path: Path) -> list[str]:
    """Libraries of cuDNN that a process really holds after it opened the module and asked for the version."""
    code = (
        f"import ctypes; ctypes.CDLL({str(module)!r}); ctypes.CDLL('libcudnn.so.9').cudnnGetVersion();"
        "print(*sorted({line.split()[-1] for line in open('/proc/self/maps') if 'libcudnn' in line}), sep='\\n')"
    )
    env = {"LD_LIBRARY_PATH": str(library_path)}
    done = subprocess.run([venv / "bin/python", "-I", "-c", code], capture_output=True, text=True, check=True, env=env)
    return [line for line in done.stdout.splitlines() if line.startswith("/")]


@pytest.mark.parametrize("tag", ["--disable-new-dtags", "--enable-new-dtags"])
@pytest.mark.parametrize("search", [RPATH, RUNPATH])
def test_the_prediction_is_what_happens(tag: str, search: str, venv: Path, tmp_path: Path) -> None:
    wheel = install_cudnn(venv, "nvidia-cudnn-cu12", "9.1.0.70", 12040, search)
    module = install_torch(venv, tag)
    other = build_cudnn(tmp_path / "other", "9.2.1", search=search)

    facts = look(venv, other)

    would = framework(facts).would_load
    real = mapped(venv, module, other)
    rpath = tag == "--disable-new-dtags"
    assert would is not None
    assert would.path in real
    assert (would.version, would.path) == (("9.1.0.70", f"{wheel}/libcudnn.so.9") if rpath else ("9.2.1", f"{other}/libcudnn.so.9"))
    split = any("two releases of cuDNN in one process" in problem.why and "graph.so.9 has" not in problem.why for problem in facts.problems)
    assert split == (len({os.path.dirname(path) for path in real}) > 1) == (rpath and search == RUNPATH)


@pytest.mark.parametrize("version", sorted(interpreters()))
def test_every_python_can_ask_what_jax_was_built_with(version: str, tmp_path: Path) -> None:
    make_environment(version, tmp_path / "venv")
    give_jax(tmp_path / "venv", "def cudnn_build_version(): return 90800\ndef cuda_runtime_build_version(): return 12090\n")

    found = framework(look(tmp_path / "venv"))

    assert (found.name, found.cuda_built, found.cudnn_built) == ("jax", "12.9", "9.8.0")


def test_a_module_that_crashes_leaves_the_word_to_the_metadata(venv: Path) -> None:
    give_jax(venv, "import os\nos.abort()\n")

    found = framework(look(venv))

    assert (found.name, found.cuda_built, found.cudnn_built) == ("jax", "12", "9.1")


def give_jax(venv: Path, versions: str) -> None:
    """JAX with its plugin, whose module of versions is this source."""
    site = site_packages(venv)
    for name in ("jax", "jaxlib"):
        install(site, name, "0.4.38")
    install(site, "jax-cuda12-plugin", "0.4.38", "nvidia-cudnn-cu12>=9.1,<10.0; extra == 'with_cuda'")
    (site / "jax_cuda12_plugin").mkdir()
    (site / "jax_cuda12_plugin/_versions.py").write_text(versions, "utf-8")


# --- NVIDIA's own wheels ---

WHEELS = ("nvidia-cudnn-cu11==8.9.6.50", "nvidia-cudnn-cu12==9.1.0.70", "nvidia-cudnn-cu12==9.28.0.42", "nvidia-cudnn-cu13==9.19.0.56")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """NVIDIA's wheels, downloaded once for this machine, unpacked for this run: each requirement to a directory like site-packages."""
    store = Path(tempfile.gettempdir()) / "cudnn-resolve-test-wheels"
    unpacked = {}
    for wanted in WHEELS:
        name, _, version = wanted.partition("==")
        begin = f"{name.replace('-', '_')}-{version}-"
        if not any(path.name.startswith(begin) for path in store.glob("*.whl")):
            argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-cache-dir", "--no-deps", "--dest", str(store), wanted]
            subprocess.run(argv, check=True, timeout=900)
        unpacked[wanted] = tmp_path_factory.mktemp("wheel")
        with zipfile.ZipFile(next(path for path in store.glob("*.whl") if path.name.startswith(begin))) as archive:
            archive.extractall(unpacked[wanted])
    yield unpacked
    for directory in unpacked.values():
        shutil.rmtree(directory)


def give(venv: Path, wheel: Path) -> Path:
    """Puts the files of a wheel into an environment, over those that are there, as pip does; no byte is copied."""
    site = site_packages(venv)
    for path in sorted(wheel.rglob("*")):
        target = site / path.relative_to(wheel)
        if path.is_dir():
            target.mkdir(exist_ok=True)
        else:
            target.unlink(missing_ok=True)
            os.link(path, target)
    return site / "nvidia/cudnn/lib"


@pytest.mark.network
@pytest.mark.parametrize(
    ("version", "wanted", "expected"),
    [
        (min(interpreters(), key=lambda one: int(one[2:])), WHEELS[0], ("8.9.6.50", 8, "11.8", "pip", "nvidia-cudnn-cu11", True)),
        (THIS, WHEELS[1], ("9.1.0.70", 9, "12.4", "pip", "nvidia-cudnn-cu12", True)),
        (max(interpreters(), key=lambda one: int(one[2:])), WHEELS[3], ("9.19.0.56", 9, "13.1", "pip", "nvidia-cudnn-cu13", True)),
    ],
)
def test_real_wheels_beside_a_newer_one_on_ld_library_path(
    version: str, wanted: str, expected: tuple[object, ...], wheels: dict[str, Path], tmp_path: Path
) -> None:
    make_environment(version, tmp_path / "venv")
    lib = give(tmp_path / "venv", wheels[wanted])
    other = tmp_path / "opt/cudnn-9.28"
    other.mkdir(parents=True)
    (other / "lib").symlink_to(wheels[WHEELS[2]] / "nvidia/cudnn/lib")

    facts = look(tmp_path / "venv", other / "lib")

    assert not isinstance(facts.cudnn, Unknown)
    first, *rest = [copy for copy in facts.cudnn if copy.path and copy.path.startswith(tempfile.gettempdir())]
    assert brief(first) == ("9.28.0", 9, "12.9", "other", None, True)
    assert [(copy.path, *brief(copy)) for copy in rest] == [(str(lib), *expected)]


@pytest.mark.network
def test_real_wheels_of_two_cuda_majors_over_each_other(wheels: dict[str, Path], venv: Path, tmp_path: Path) -> None:
    give(venv, wheels[WHEELS[1]])
    lib = give(venv, wheels[WHEELS[3]])

    facts = look(venv)

    copy = copies(facts, tmp_path)[str(lib.relative_to(tmp_path))]
    assert brief(copy)[:5] == ("9.19.0.56", 9, "13.1", "pip", "nvidia-cudnn-cu13")
    assert "nvidia-cudnn-cu12 9.1.0.70 and nvidia-cudnn-cu13 9.19.0.56" in {problem.what for problem in facts.problems}


@pytest.mark.network
def test_a_real_wheel_with_one_part_of_another(wheels: dict[str, Path], venv: Path, tmp_path: Path) -> None:
    lib = give(venv, wheels[WHEELS[1]])
    (lib / "libcudnn_graph.so.9").unlink()
    os.link(wheels[WHEELS[2]] / "nvidia/cudnn/lib/libcudnn_graph.so.9", lib / "libcudnn_graph.so.9")

    copy = copies(look(venv), tmp_path)[str(lib.relative_to(tmp_path))]

    assert copy.complete is False
    assert "not the files of nvidia-cudnn-cu12 9.1.0.70: libcudnn_graph.so.9" in copy.problems
