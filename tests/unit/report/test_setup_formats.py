"""Formats that set an environment up without us: each is run, as far as a machine without Docker can."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from msgspec.structs import replace

from cudnn_resolve.errors import InputError
from cudnn_resolve.facts.model import Facts, Platform, Python
from cudnn_resolve.locking.model import Environment, FolderWheel
from cudnn_resolve.planning.model import AptAction, AptRepository, PipAction, Plan, Stack, Step
from cudnn_resolve.report import dockerfile, notebook, result_html, script
from tests.small_wheels import tree, write_wheel

MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    venv.create(tmp_path / "venv", symlinks=True, with_pip=False)
    return tmp_path


@pytest.fixture
def plan(bench: Path) -> Plan:
    """Two small packages and a preload, for the environment of the bench."""
    actions = []
    for name, version in (("nvidia-cudnn-cu12", "9.3.0.75"), ("torch", "2.6.0")):
        file = write_wheel(bench / "wheels", name, version)
        actions.append(PipAction(name=name, version=version, action="install", index=None, because=(), file=file))
    python = str(bench / "venv/bin/python")
    return Plan(
        targets=("torch==2.6.0",),
        facts=Facts(
            platform=Platform(distribution="debian", release="12", arch="x86_64"), python=Python(version=f"{MINOR}.1", path=python)
        ),
        pip=tuple(actions),
        environment=(
            Environment(kind="preload", value="torch", why="it does not look"),
            Environment(
                kind="folder",
                value="tensorflow",
                why="its cuDNN is another",
                wheel=FolderWheel(
                    name="nvidia-cudnn-cu12",
                    version="8.9.7.29",
                    file=write_wheel(bench / "wheels", "nvidia-cudnn-cu12", "8.9.7.29", {"nvidia/cudnn/lib/libcudnn.so.8": "8"}),
                ),
            ),
        ),
        steps=(
            Step(id="pip-1", kind="pip", argv=(python, "-m", "pip", "install"), why="exact"),
            Step(id="preload", kind="preload", argv=None, why="it does not look"),
            Step(id="folder", kind="folder", argv=None, why="its cuDNN is another"),
        ),
    )


def environ(bench: Path) -> dict[str, str]:
    """Pip's packages come from the folder of wheels; the environment has no pip of its own, so this interpreter's is lent to it."""
    import pip

    lent = bench / "lent"
    if not lent.exists():
        lent.mkdir()
        (lent / "pip").symlink_to(Path(pip.__file__).parent)
    keep = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**keep, "PYTHONPATH": str(lent), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(bench / "wheels"), "PIP_CONFIG_FILE": os.devnull}


def bash(text: str, bench: Path, name: str = "setup.sh", **more: str) -> subprocess.CompletedProcess[str]:
    (bench / name).write_text(text)
    return subprocess.run(
        ["bash", name], cwd=bench, env={**environ(bench), **more}, capture_output=True, text=True, check=False, timeout=60
    )


def site(bench: Path) -> Path:
    return next((bench / "venv").glob("lib/python3*/site-packages"))


def assert_second_cudnn(bench: Path) -> None:
    """Assert that the wheel of the folder lies there, for the one who loads it, and that of the others where it belongs."""
    assert (site(bench) / "_cudnn_resolve_libraries/nvidia/cudnn/lib/libcudnn.so.8").read_text() == "8"
    assert (site(bench) / "nvidia_cudnn_cu12-9.3.0.75.dist-info").is_dir()
    source = (site(bench) / "_cudnn_resolve_preload.py").read_text()
    assert "NAMES = ('torch',)\nAPART = ('tensorflow',)" in source
    assert (site(bench) / "_cudnn_resolve_preload.pth").exists()


@pytest.mark.slow
def test_the_script_installs_by_hash_looks_and_can_be_run_twice(plan: Plan, bench: Path) -> None:
    done = bash(script.render(plan), bench)

    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("done: the environment matches the plan\n")
    assert (site(bench) / "torch-2.6.0.dist-info").is_dir()
    assert_second_cudnn(bench)
    assert bash(script.render(plan), bench).returncode == 0
    assert_second_cudnn(bench)


@pytest.mark.slow
def test_the_script_refuses_a_file_that_is_another(plan: Plan, bench: Path) -> None:
    write_wheel(bench / "wheels", "torch", "2.6.0", {"torch/__init__.py": "evil = 1\n"})
    before = tree(site(bench))

    done = bash(script.render(plan), bench)

    assert done.returncode != 0
    assert "hash" in (done.stdout + done.stderr).lower()
    assert tree(site(bench)) == before


@pytest.mark.slow
def test_the_script_knows_when_it_was_changed(plan: Plan, bench: Path) -> None:
    changed = script.render(plan).replace("torch==2.6.0 --hash", "torch==2.6.1 --hash")

    done = bash(changed, bench)

    assert done.returncode == 1
    assert "was modified" in done.stderr
    assert "was modified" not in bash(changed, bench, EDITED="1").stderr


def test_the_script_is_for_one_python(plan: Plan, bench: Path) -> None:
    other = replace(plan, facts=replace(plan.facts, python=replace(plan.facts.python, version="3.6.9")))

    done = bash(script.render(other), bench)

    assert done.returncode == 1
    assert "this plan is for 3.6" in done.stderr


@pytest.mark.slow
def test_the_look_sees_what_is_not_as_planned(plan: Plan, bench: Path) -> None:
    without = replace(plan, pip=(*plan.pip, replace(plan.pip[0], name="absent", action="keep")))

    done = bash(script.render(without), bench)

    assert done.returncode == 1
    assert "absent is not installed, not 9.3.0.75" in done.stderr


def run_cells(plan: Plan, bench: Path, head: str = "") -> subprocess.CompletedProcess[str]:
    """The code cells of the notebook, one after the other, by the environment's interpreter."""
    book = json.loads(notebook.render(plan))
    cells = ["".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == "code"]
    return subprocess.run(
        [bench / "venv/bin/python", "-c", "\n\n".join([head, *cells])],
        cwd=bench,
        env=environ(bench),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.slow
def test_the_notebook_sets_up_and_is_quick_the_second_time(plan: Plan, bench: Path) -> None:
    first = run_cells(plan, bench)

    assert first.returncode == 0, first.stderr + first.stdout
    assert "done: 5 packages changed" in first.stdout
    assert first.stdout.endswith("the environment matches the plan\n")
    assert "nothing to do: the environment already matches the plan" in run_cells(plan, bench).stdout


@pytest.mark.slow
def test_the_cell_holds_nothing_that_the_plan_does_not_need(plan: Plan) -> None:
    values = ("MINOR", "DRIVER", "PACKAGES", "REMOVE", "UNPINNED", "FILES", "SEPARATE", "REPOSITORIES", "APT")
    for chosen in itertools.product((False, True), repeat=len(values)):
        needed = {name for name, is_needed in zip(values, chosen, strict=True) if is_needed}
        source = notebook.program_for(needed)
        compile(source, "cell", "exec")
        assert needed == {name for name in values if re.search(rf"\b{name}\b", source)}
    short = notebook.setup_cell(replace(plan, stack=None, environment=()))
    assert "sudo" not in short
    assert "driver" not in short
    assert "uninstall" not in short


def test_the_notebook_has_the_form_of_one(plan: Plan) -> None:
    book = json.loads(notebook.render(plan))

    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in book["cells"]}) == len(book["cells"]) == 3
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            compile("".join(cell["source"]), cell["id"], "exec")
            assert (cell["outputs"], cell["execution_count"]) == ([], None)


@pytest.mark.slow
def test_the_notebook_checks_the_driver(plan: Plan, bench: Path) -> None:
    stack = Stack(
        driver_min="535.54.03", driver_because=None, driver_policy="minor", cuda="12.2", cudnn="9.3.0.75", cudnn_soname=9, frameworks=()
    )
    (bench / "version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.57.02  Tue Jul 13 16:14:05 UTC 2021\n")
    head = f"import os; os.environ['NVIDIA_VERSION_FILE'] = {str(bench / 'version')!r}"

    done = run_cells(replace(plan, stack=stack), bench, head)

    assert done.returncode == 1
    assert "the NVIDIA driver is 470.57.02; the plan needs 535.54.03 or newer" in done.stderr
    assert not (site(bench) / "torch-2.6.0.dist-info").exists()
    (bench / "version").write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  535.104.05  Release Build\n")
    assert "done: 5 packages changed" in run_cells(replace(plan, stack=stack), bench, head).stdout


@pytest.mark.slow
def test_the_notebook_asks_for_a_restart_where_a_loaded_package_is_replaced(plan: Plan, bench: Path) -> None:
    assert "RESTART" not in run_cells(plan, bench).stdout
    file = write_wheel(bench / "wheels", "torch", "2.7.0")
    newer = replace(plan, pip=(plan.pip[0], replace(plan.pip[1], version="2.7.0", file=file)))

    on_colab = replace(newer, facts=replace(newer.facts, container="colab"))
    done = run_cells(on_colab, bench, "import torch")

    assert "RESTART the kernel (Runtime > Restart session): it has already loaded torch" in done.stdout
    assert "Runtime > Restart session" in notebook.render(on_colab)
    assert "Colab" not in notebook.render(newer)


def instructions(text: str) -> list[tuple[str, str, str]]:
    """Word, argument and here-document of each instruction of a Dockerfile; an assertion where it is none."""
    out = []
    lines = iter(text.splitlines())
    for line in lines:
        if not line or line.startswith("#"):
            continue
        whole = line
        while whole.endswith("\\"):
            whole = whole[:-1] + next(lines)
        word, _, rest = whole.partition(" ")
        assert word in ("FROM", "SHELL", "ENV", "LABEL", "COPY", "RUN"), line
        document = ""
        mark = re.search(r"<<'(\w+)'", rest)
        if mark:
            for inside in lines:
                if inside == mark[1]:
                    break
                document += inside + "\n"
        out.append((word, rest, document))
    return out


@pytest.mark.slow
def test_the_dockerfile_does_what_the_plan_does(plan: Plan, bench: Path) -> None:
    found = instructions(dockerfile.render(plan))

    assert found[0] == ("FROM", f"python:{MINOR}-slim-bookworm", "")
    bin_folder = bench / "bin"
    bin_folder.mkdir()
    (bin_folder / "python3").symlink_to(bench / "venv/bin/python")
    root = bench / "image"
    env = {**environ(bench), "PATH": f"{bench / 'venv/bin'}:/usr/bin:/bin"}
    for word, rest, document in found:
        if word == "COPY":
            target = root / rest.split()[-1].lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(document)
        elif word == "RUN":
            command = rest.replace("/usr/local/share", f"{root}/usr/local/share")
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", command], env=env, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr + done.stdout
    assert (site(bench) / "torch-2.6.0.dist-info").is_dir()
    assert (site(bench) / "_cudnn_resolve_preload.pth").read_text() == "import _cudnn_resolve_preload\n"
    assert_second_cudnn(bench)


def test_the_dockerfile_puts_libraries_below_frameworks(plan: Plan) -> None:
    text = dockerfile.render(plan)

    assert 0 < text.index("nvidia-cudnn-cu12==") < text.index("torch==2.6.0 --hash")
    assert text.count("--require-hashes") == 3


def with_apt(plan: Plan, release: str) -> Plan:
    apt = AptAction(name="libcudnn8", version="8.9.7.29-1+cuda12.2", repository="ubuntu2204", action="install", because=())
    steps = (
        Step(
            id="apt-repository",
            kind="apt-repository",
            argv=None,
            why="x",
            needs_root=True,
            repository=AptRepository(
                name="ubuntu2204", url="https://repo.example/", key_url="https://repo.example/key.pub", fingerprint="A" * 40
            ),
        ),
        Step(
            id="apt",
            kind="apt",
            argv=("apt-get", "install", "-y", "--no-install-recommends", "libcudnn8=8.9.7.29-1+cuda12.2"),
            why="x",
            needs_root=True,
        ),
        Step(id="apt-hold", kind="apt", argv=("apt-mark", "hold", "libcudnn8"), why="x", needs_root=True),
        *plan.steps,
    )
    facts = replace(
        plan.facts, platform=replace(plan.facts.platform, distribution="ubuntu", release=release), python=Python(version="3.10.12")
    )
    return replace(plan, apt=(apt,), steps=steps, facts=facts)


def of(plan: Plan, distribution: str, release: str, python: str, glibc: str | None = None) -> Plan:
    platform = Platform(distribution=distribution, release=release, arch="x86_64", glibc=glibc)
    return replace(plan, facts=replace(plan.facts, platform=platform, python=Python(version=python)))


@pytest.mark.parametrize(
    ("distribution", "release", "python", "base"),
    [
        ("debian", "12", "3.11", "python:3.11-slim-bookworm"),
        ("debian", "13", "3.12", "python:3.12-slim-trixie"),
        ("debian", "11", "3.9", "python:3.9-slim-bullseye"),
        ("ubuntu", "22.04", "3.10", "ubuntu:22.04"),
        ("ubuntu", "24.04", "3.12", "ubuntu:24.04"),
        ("ubuntu", "22.04", "3.12", "python:3.12-slim-bookworm"),
        ("fedora", "42", "3.13", "python:3.13-slim-trixie"),
    ],
)
def test_the_base_fits_the_system_that_is_asked_for(plan: Plan, distribution: str, release: str, python: str, base: str) -> None:
    text = dockerfile.render(of(plan, distribution, release, python, "2.41" if distribution == "fedora" else None))

    assert instructions(text)[0][1] == base
    assert ("has no Python" in text) == (
        (distribution not in base and not base.startswith("python")) or (distribution != "debian" and "slim" in base)
    )


def test_a_release_whose_packages_have_moved_away_is_no_base(plan: Plan) -> None:
    assert instructions(dockerfile.render(of(plan, "debian", "10", "3.7", None)))[0][1] == "python:3.7-slim-bookworm"


@pytest.mark.parametrize(
    ("policy", "cuda", "least"),
    [("minor", "12.4", "12.0"), ("strict", "12.4", "12.4"), ("minor", "10.1", "10.1"), ("minor", "11.8", "11.0")],
)
def test_the_image_names_what_its_host_must_have(plan: Plan, policy: str, cuda: str, least: str) -> None:
    stack = Stack(
        driver_min="525.60.13", driver_because=None, driver_policy=policy, cuda=cuda, cudnn="9.3.0.75", cudnn_soname=9, frameworks=()
    )
    found = instructions(dockerfile.render(replace(plan, stack=stack)))

    environment = next(rest for word, rest, _ in found if word == "ENV" and "REQUIRE" in rest)
    assert environment.split() == [f'NVIDIA_REQUIRE_CUDA="cuda>={least}"', 'NVIDIA_REQUIRE_DRIVER="driver>=525"']
    assert ("LABEL", 'com.nvidia.driver.minimum="525.60.13"', "") in found


HADOLINT = shutil.which("hadolint", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))


@pytest.mark.slow
@pytest.mark.skipif(HADOLINT is None, reason="hadolint is not installed (the extra `dev` brings it)")
@pytest.mark.parametrize("base", [("debian", "12", "3.11"), ("ubuntu", "22.04", "3.10")])
def test_a_linter_finds_nothing(plan: Plan, tmp_path: Path, base: tuple[str, str, str]) -> None:
    ready = of(plan, *base) if base[0] == "debian" else with_apt(plan, "22.04")
    (tmp_path / "Dockerfile").write_text(dockerfile.render(ready))

    assert HADOLINT is not None
    done = subprocess.run([HADOLINT, "Dockerfile"], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert (done.stdout, done.returncode) == ("", 0)


def test_packages_of_the_system_take_the_base_of_their_release(plan: Plan) -> None:
    found = instructions(dockerfile.render(with_apt(plan, "22.04")))

    assert found[0][1] == "ubuntu:22.04"
    line = next(rest for word, rest, _ in found if word == "RUN" and "libcudnn8=" in rest)
    assert line.index("gpg --batch --dearmor") < line.index("apt-get update") < line.index("apt-get install") < line.index("apt-mark hold")


def test_without_packages_of_the_system_apt_brings_python_and_no_more(plan: Plan) -> None:
    found = instructions(dockerfile.render(of(plan, "ubuntu", "22.04", "3.10")))

    assert found[0][1] == "ubuntu:22.04"
    assert [rest for word, rest, _ in found if word == "RUN" and "apt-get update" in rest and "apt-get install" not in rest] == []


def test_a_python_that_the_release_has_not_is_refused(plan: Plan) -> None:
    with pytest.raises(InputError, match=r"the plan is for Python 3\.10"):
        dockerfile.render(with_apt(plan, "24.04"))


def test_the_html_escapes_what_it_shows() -> None:
    shown = result_html.render(
        {
            "status": "reverted",
            "error": {"message": "<script>alert(1)</script>", "hint": "&"},
            "left": ["<b>"],
            "plan": {"pip": [{"name": "<i>", "version": "1", "action": "install", "installed": None}]},
        }
    )

    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert "&lt;i&gt;" in shown
