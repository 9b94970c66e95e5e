"""Whether a copy of cuDNN has every part of its release: by the matrix, which knows the parts of each, and by the probe beyond it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cudnn_resolve.version import CudnnVersion

if TYPE_CHECKING:
    from cudnn_resolve.facts.model import CudnnCopy
    from cudnn_resolve.matrix.book import Book

_OWN_WORDS = ("incomplete: ", "none of its parts ")
"""How the probe begins what it says of missing parts."""
_OF_OTHERS = re.compile(r"opens \S+(?: and \S+)* when it is used|.{1,400} needs? \S+, which ")
"""How it begins what it says of libraries besides cuDNN's that a copy needs, or opens, and that are not found."""
_PRECOMPILED = "engines_precompiled"


def faults_of(copy: CudnnCopy, book: Book) -> tuple[str, ...]:
    """What is wrong with a copy, in words; empty where it is one whole release."""
    missing = missing_parts(copy, book)
    own = tuple(one for one in copy.problems if not _OF_OTHERS.match(one))
    if missing is None:
        return own or (("parts of it are missing or of another release",) if copy.complete is False else ())
    others = tuple(one for one in own if not one.startswith(_OWN_WORDS))
    if not missing:
        return others
    files = ", ".join(f"libcudnn_{part}.so.{copy.soname}" for part in missing)
    return (f"incomplete: {files} {'is' if len(missing) == 1 else 'are'} not there", *others)


def lacks_of(copy: CudnnCopy) -> tuple[str, ...]:
    """What a copy needs besides its own parts and does not find, in the probe's words."""
    return tuple(one for one in copy.problems if _OF_OTHERS.match(one))


def is_outer_alone(copy: CudnnCopy) -> bool:
    """True for libcudnn in another package than cuDNN's own, without any of its parts: they are to come from elsewhere."""
    return copy.parts == () and copy.owner is not None and not copy.owner.startswith(("nvidia-cudnn", "libcudnn"))


def missing_parts(copy: CudnnCopy, book: Book) -> tuple[str, ...] | None:
    """The parts of its release that a copy lacks; None where the facts do not tell its parts, or the matrix does not know the release."""
    if copy.parts is None or copy.version is None:
        return None
    try:
        release = CudnnVersion(copy.version).parts[:3]
    except ValueError:
        return None
    major = (copy.cuda or "").partition(".")[0]
    known = [one for one in book.cudnn_builds() if one.version.parts[:3] == release and one.parts]
    if len(release) < 3 or not known:
        return None
    build = next((one for one in known if str(one.cuda_major) == major), known[0])
    without = {_PRECOMPILED} if copy.owner and "-jit" in copy.owner else set()
    return tuple(part for part in build.parts if part not in copy.parts and part not in without)
