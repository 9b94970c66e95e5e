"""Wheels for Windows in place of a plan, which is for Linux only: pip's arguments, and the remedies that install them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cudnn_resolve.diagnosis.fitting_build import fitting
from cudnn_resolve.diagnosis.log_stack import cuda_of_driver, driver_of, python_line, texts
from cudnn_resolve.diagnosis.model import Case, Remedy
from cudnn_resolve.version import Dotted

if TYPE_CHECKING:
    from cudnn_resolve.matrix.row import Build

_SOME_CUDA = "cuNNN"
"""Written for the suffix of a build that the log does not show."""
_BESIDE_TORCH = {"torchvision": (), "torchaudio": ("torchaudio", "comfy", "whisperx", "pyannote", "was trained with torch")}
"""Companions of PyTorch, and the words in a log that show that they are used; without words they usually are."""


def wheels_for_windows(
    framework: str, plan: str, values: Mapping[str, str], case: Case, majors: Collection[int], *, machine_code: bool
) -> tuple[Build, str] | None:
    """Newest or requested build of a framework for the CUDA `majors`, and pip's arguments for it, if its index is not the default one."""
    cudnn = int(values["major"]) if values.get("major", "").isdigit() else None
    builds = [one for one in fitting(framework, case, machine_code=machine_code, cudnn=cudnn) if not _is_for_linux_alone(one)]
    builds = [build for build in builds if build.cuda and build.cuda.major in majors] or builds
    wanted = re.search(r"-f \W?[\w.-]+(?:==|>=)([\w.]+)", plan)
    version = wanted[1] if wanted else builds[0].version if builds else ""
    every = [build for build in builds if build.index != "default"]
    # pip chooses the release if nothing is known, except for an older GPU, since it keeps a newer release.
    is_known = any((python_line(case), driver_of(case), cuda_of_driver(case), majors))
    is_open = not is_known and (machine_code or not case.context.capabilities)
    if is_free := framework == "torch" and not wanted and cudnn is None and is_open:
        # Older drivers and GPUs are served by the CUDA before the newest one.
        newest = max((build.cuda.major for build in builds if build.cuda), default=0)
        older = [build for build in every if build.cuda and build.cuda.major < newest] or every
        served_by = {one.version for one in every if older and one.index == older[0].index}
        rows = (one for one in case.book.framework(framework).builds if older and one.index == older[0].index)
        # With an index of their own, pip chooses one of them by its Python.
        is_free = all(one.version in served_by and case.book.index(one.index).kind == "simple" for one in rows)
        version, every = (older[0].version, older) if is_free and older else (version, every)
    build = next((build for build in every if build.version == version), None)
    if build is None:
        return None
    index = case.book.index(build.index)
    if "/linux/" in index.url:  # a page of wheels for that system only
        return None
    option = "-f" if index.kind == "find-links" else "--index-url"
    # Companions are built for one release of PyTorch.
    shown = " ".join(texts(case)).casefold()
    named = [name for name, words in _BESIDE_TORCH.items() if not words or any(word in shown for word in words)]
    beside = "".join(f" {name}" for name in named) if framework == "torch" else ""
    pin = "" if is_free else f"=={build.wheel_version or build.version}"
    return build, f"{build.package}{pin}{beside} {option} {index.url}"


def _is_for_linux_alone(build: Build) -> bool:
    """True for PyTorch 1.11 and newer with CUDA 10.2, which has no wheels for Windows (pytorch/pytorch#65648)."""
    is_of_cuda_10 = build.cuda is not None and build.cuda.major == 10
    return build.package == "torch" and is_of_cuda_10 and Dotted(build.version).parts[:2] >= (1, 11)


def of_same_build(wheels: str, torch: str | None) -> str:
    """Arguments of pip for the CUDA, or none, of the installed PyTorch, which stays if another release is installed."""
    suffix = (torch or "").partition("+")[2]
    return re.sub(r"\bcu\d{3}\b", suffix if re.fullmatch(r"cu\d{3}|cpu", suffix) else _SOME_CUDA, wheels)


def on_windows(plan: Remedy, python: str, wheels: str, lines: list[tuple[int, int]]) -> Iterator[Remedy]:
    """The remedy with pip instead of a plan. `lines`: the Pythons of these wheels if the version of the current one is unknown.

    Another Python would refuse them, so an environment with a suitable one is proposed too.
    """
    if _SOME_CUDA in wheels:
        plain = re.sub(rf"\+{_SOME_CUDA}| --index-url \S+", "", wheels)
        asked = f"see the installed build: what its version has after the + (cu121, cpu) replaces {_SOME_CUDA} in the next command"
        asked += f"; with nothing there, it is PyPI's: pip install -U {plain}"
        yield Remedy(text=asked, command=f"{python} -m pip show torch")
    # Both packages have the same files; pip passes over one that is not installed.
    first = f"{python} -m pip uninstall -y paddlepaddle && " if wheels.startswith("paddlepaddle-gpu") else ""
    done = replace(plan, command=f"{first}{python} -m pip install -U {wheels}")
    if not lines or "python_embeded" in python:  # which belongs to a program: a bare environment has none of its packages
        yield done
        return
    least, new, most = (f"{line[0]}.{line[1]}" for line in (lines[0], lines[len(lines) // 2], lines[-1]))
    command = f"uv venv --seed --python {new} .venv-{new} && .venv-{new}\\Scripts\\python -m pip install {wheels}"
    yield replace(done, text=f"{plan.text}; its wheels are for Python {least} to {most}")
    yield replace(plan, text=f"or, if `{python} --version` prints none of these, create an environment with one", command=command)
