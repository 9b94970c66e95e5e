"""Packages that are built for one PyTorch: the release, the index and the command that belong to the installed one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from cudnn_resolve.diagnosis.log_stack import texts
from cudnn_resolve.diagnosis.model import of_symptom, values_of
from cudnn_resolve.diagnosis.specifier import within
from cudnn_resolve.matrix.evidence import evidence_of
from cudnn_resolve.matrix.row import Index

if TYPE_CHECKING:
    from cudnn_resolve.diagnosis.model import Match
    from cudnn_resolve.diagnosis.remedy_stack import KnownStack
    from cudnn_resolve.matrix.book import Book

_COMPANIONS = ("torchvision", "torchaudio")
_PYG = ("torch-scatter", "torch-sparse", "torch-cluster", "torch-spline-conv")
_PYG_PAGE = "https://data.pyg.org/whl/torch-{}.html"
_AUDIO = "'torchaudio!=2.11.0'"
"""Without the only release that requires no PyTorch, so that pip would take it for every one."""
_OTHER = ("xformers-other-torch", "torchvision-other-vendor")
"""Symptoms that state the version of the installed PyTorch."""


def torch_version(matches: Iterable[Match], stack: KnownStack) -> str | None:
    """Version of the installed PyTorch in the messages, else the known one."""
    found = next(values_of(of_symptom(matches, *_OTHER), "found"), None)
    return str(found) if found is not None else stack.torch


def release_for(name: str, torch: str, book: Book, relation: str = "==") -> str | None:
    """The newest release of a package that requires exactly that PyTorch, with the option for its index, as arguments of pip."""
    wanted = re.compile(rf"torch{relation}{re.escape(torch.partition('+')[0])}(?:\.0)?(?![\d.])")
    made = [
        release.version
        for release in book.releases(name)
        if not release.yanked and any(wanted.match(line) for lines in (release.requires or {}).values() for line in lines)
    ]
    index = _index(torch, name, book) if made and not _is_of_default(name, made[-1], torch, book) else None
    return f"{name}=={made[-1]}" + (f" --index-url {index}" if index else "") if made else None


def _is_of_default(name: str, version: str, torch: str, book: Book) -> bool:
    """True if the default index is to be used for a package: its wheel there is for PyTorch's CUDA."""
    found = evidence_of(book, name, version, "x86_64")
    return found is not None and found.cuda is not None and f"cu{found.cuda.line.replace('.', '')}" == torch.partition("+")[2]


def _index(version: str, package: str, book: Book) -> str | None:
    """URL of the index with builds for the CUDA of a version, `2.6.0+cu124`."""
    release, _, variant = version.partition("+")
    if package == "xformers" and within("<2.1", release):  # those before 0.0.22.post4 are only on the default index
        return None
    row = next((row for row in book.rows(Index) if row.id == f"pytorch-{variant}" and package in row.serves), None)
    return row.url if row is not None and row.kind == "simple" else None


def is_of_pair(matches: Sequence[Match]) -> bool:
    """True if the messages are of torchvision or torchaudio, whose releases belong to one of PyTorch each."""
    named = any(re.search(r"torchvision|torchaudio", match.text) for match in matches)
    return named and all(match.symptom.framework in (None, "torch") for match in matches)


def pair_command(torch: str | None, stack: KnownStack) -> str | None:
    """Command that reinstalls torchvision and torchaudio for the installed PyTorch; None if the log does not show enough."""
    if torch is not None and not re.fullmatch(r"[0-2](?:\.\d+)+(?:\.dev\d{8})?(?:\+(?:cu\d{2,3}|cpu|rocm\d(?:\.\d){1,2}|xpu))?", torch):
        return None  # a vendor's build has companions of its own, which no index has
    case, python = stack.case, stack.python
    base = case.book.index("pytorch-cpu").url.rpartition("/")[0]
    index = _index(torch, "torch", case.book) if torch is not None else None
    if torch is not None and (other := re.search(r"\+(rocm.+|xpu)", torch)):
        index = f"{base}/{other[1]}"  # for other hardware, so that the tables do not list it
    text = " ".join(texts(case))
    named = [name for name in _COMPANIONS if name in text]
    others = " ".join(named or _COMPANIONS)
    pip = f"{python} -m pip install --force-reinstall {others}"  # nothing is removed before its successor is found
    if torch is not None and (index is not None or "+" not in torch):
        if named and (known := _companions(torch, named, case.book)):
            return f"{python} -m pip install --force-reinstall --no-deps {' '.join(known)}" + (f" --index-url {index}" if index else "")
        if index is not None and (known := _companions(torch, _COMPANIONS, case.book)):
            # The suffix alone makes pip replace another build, and nothing else, such as NumPy by a newer one.
            suffix = torch.partition("+")[2]
            every = " ".join(shlex.quote(f"{release}+{suffix}") for release in (f"torch=={torch.partition('+')[0]}", *known))
            return f"{python} -m pip install {every} --index-url {index}"
        return f"{pip} {shlex.quote(f'torch=={torch}')}" + (f" --index-url {index}" if index else "")
    if stack.is_windows:
        return None
    # A release from the default index may have no suffix.
    shown = f'*["--index-url {base}/" + cuda for cuda in v.split("+")[1:] if cuda[:2] in ("cu", "cp", "ro", "xp")]'
    # A Jetson's PyTorch is on no index under its version, or there without CUDA. If it is that, or cannot be imported, pip refuses the
    # option instead of installing another one.
    vendor = 'assert "+cu" in v or platform.machine() != "aarch64", "install what comes with this Arm build of PyTorch"'
    is_of_stable_abi = "_torchaudio.abi3." in text
    package = '"torchaudio==" + v.split("+")[0]' if is_of_stable_abi else '"torch==" + v'
    read = f"import platform, torch; v = torch.__version__; {vendor}; print({package}, {shown})"
    there = f"$({python} -c '{read}' || echo --no-torch)"
    if is_of_stable_abi:  # of a release that is newer than the PyTorch, which stays
        return f"{python} -m pip install --force-reinstall --no-deps {there}"
    return f"{pip} {there}".replace("torchaudio", _AUDIO, 1)


def extension_values(name: str, torch: str | None, stack: KnownStack) -> dict[str, str]:
    """Fields for packages that are built for one PyTorch: the extension, its release or wheels, and the companions."""
    release = release_for(name, torch, stack.book) if name and torch is not None else None
    found = {"extension_release": release} | _pyg_values(name, torch, stack)
    if name and found.keys() == {"extension_release"}:
        found["torchtext_pairs" if name == "torchtext" and release is None else "extension_told"] = shlex.quote(name)
    asked = next(values_of(stack.case.matches, "mm_range", str), None)
    found["mm_install"] = _mm_command(asked, stack.python) if asked is not None else None
    found["torch_pair"] = pair_command(torch, stack)
    return {field: value for field, value in found.items() if value is not None}


def _mm_command(asked: str, python: str) -> str:
    """Command for a package of OpenMMLab in a range; MMCV 1 with operators is another package."""
    if not re.match(r"mmcv\b.*<=?1\.", asked):
        return f"{python} -m mim install {shlex.quote(asked)}"
    full = shlex.quote(asked.replace("mmcv", "mmcv-full"))
    return f"{python} -m pip uninstall -y mmcv mmcv-full && {python} -m mim install {full}"


def _pyg_values(name: str, torch: str | None, stack: KnownStack) -> dict[str, str]:
    """Command for PyTorch Geometric's libraries that fit the installed PyTorch, or, if that is unknown on Windows, their names."""
    if name not in _PYG:
        return {}
    text = " ".join(texts(stack.case)).replace("_", "-")
    named = [each for each in _PYG if each in text or each == name]
    # torch-sparse calls the operators of torch-scatter.
    packages = " ".join(dict.fromkeys((*(["torch-scatter"] if "torch-sparse" in named else []), *named)))
    release = torch if torch is not None and re.fullmatch(r"\d\.\d{1,2}\.\d\+(?:cu\d{2,3}|cpu)", torch) else None
    if release is None and (stack.is_windows or torch is not None):
        return {"pyg_open": packages}
    suffix = '"cu" + c.replace(".", "") if c else "cpu"'
    shown = f'import torch; c = torch.version.cuda; print(torch.__version__.split("+")[0] + "+" + ({suffix}))'
    page = _PYG_PAGE.format(release or f"$({stack.python} -c '{shown}')")
    return {"pyg": f"{stack.python} -m pip install --force-reinstall --no-deps --no-index {packages} -f {page}"}


def _companions(torch: str, names: Iterable[str], book: Book) -> list[str]:
    """The releases of companions that belong to a PyTorch, as requirements; empty if one is not known."""
    found = [release_for(name, torch, book) or release_for(name, torch, book, ">=") for name in names]
    return [release.partition(" ")[0] for release in found if release is not None] if all(found) else []
