"""CUDA and cuDNN that an installed framework was built with, parsed from its files and metadata."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

from cudnn_resolve.version import CudaVersion, CudnnVersion, parsed

LONGEST_MODULE = 1 << 18
"""Characters of a generated module of constants; real ones have a few hundred."""

_REQUIREMENT = r"nvidia[-_.]cudnn[-_.]cu(\d{2})\d?\s*\(?([^;)]*)"
_CLAUSE = r"(==|>=|~=)\s*(\d{1,3}(?:\.\d{1,4}){0,3})"
_JAX_LOCAL = r"cuda(\d{2})(\d)?(?:\.cudnn(\d)(\d)?(\d)?)?"
_LOAD_CUDNN = r"""_load\(\s*["']cudnn["']\s*,\s*\[\s*["'](libcudnn\.so\.\d{1,2})["']"""
_RUNTIME = r"lib(?:cudart|cublas|cublasLt|nvrtc)\.so\.(\d{1,2})(?:\.(\d{1,2}))?"
_DIGITS = r"cu(?:da)?(\d{1,2})(\d|x)"


class Required(Struct, frozen=True, kw_only=True):
    """Requirement of a wheel on cuDNN."""

    version: CudnnVersion
    exact: bool
    """True for `==`, False for a lower bound."""
    cuda: int
    """CUDA major in the name of the required wheel."""


class CupyWheel(Struct, frozen=True, kw_only=True):
    """Libraries of a cupy wheel; None = not stated."""

    cuda: str | None = None
    """As written, `12.x`."""
    cudnn: str | None = None
    """`8.8.1`."""
    files: tuple[str, ...] = ()
    """Names of cuDNN's libraries that cupy opens itself; empty if it opens none."""


def parse_constants(text: str) -> Mapping[str, object]:
    """Constants that a module assigns, without running it; computed values are skipped.

    `OrderedDict([...])`, as in TensorFlow's build_info.py, is read as a dictionary. Sample lines:
    `cuda: Optional[str] = '12.4'` and `build_info = collections.OrderedDict([('cuda_version', '12.2')])`.
    """
    import ast
    import warnings

    if len(text) > LONGEST_MODULE:
        return {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    found: dict[str, object] = {}
    for node in module.body:
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets, value = [node.target], node.value
        else:
            continue
        is_mapping = isinstance(value, ast.Call) and len(value.args) == 1 and not value.keywords
        try:
            constant = dict(ast.literal_eval(value.args[0])) if is_mapping and isinstance(value, ast.Call) else ast.literal_eval(value)
        except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
            continue
        found |= {target.id: constant for target in targets if isinstance(target, ast.Name)}
    return found


def text_of(constants: Mapping[str, object], name: str) -> str | None:
    """A constant that is a non-empty text, else None; Paddle writes 'False' for what a build lacks."""
    value = constants.get(name)
    return value if isinstance(value, str) and value and value != "False" else None


def local_label(version: str) -> str | None:
    """`cu124` for `2.6.0+cu124`, None for a version without a local part."""
    return version.partition("+")[2] or None


def cuda_of_label(label: str | None) -> str | None:
    """CUDA version of a label such as `cu118`, `cu92`, `cuda12x` or `cuda112`: 11.8, 9.2, 12, 11.2; None for anything else."""
    found = re.fullmatch(_DIGITS, label or "")
    if found is None:
        return None
    return found[1] if found[2] == "x" else f"{found[1]}.{found[2]}"


def label_of_cuda(cuda: str | None) -> str | None:
    """`cu118` for CUDA 11.8; None if there is none or only the major is known."""
    version = parsed(CudaVersion, cuda)
    return f"cu{version.major}{version.minor}" if version is not None and len(version.parts) > 1 else None


def jaxlib_label(label: str) -> tuple[str, str | None] | None:
    """CUDA and cuDNN of jaxlib's local version: ("12", "8.9") for `cuda12.cudnn89`, ("11.1", None) for `cuda111`; None for other labels."""
    found = re.fullmatch(_JAX_LOCAL, label)
    if found is None:
        return None
    cuda = f"{found[1]}.{found[2]}" if found[2] else found[1]
    return cuda, ".".join(part for part in found.groups()[2:] if part) or None


def required_cudnn(requires: Iterable[str]) -> Required | None:
    """Requirement on cuDNN in `Requires-Dist` lines, `nvidia-cudnn-cu12==9.1.0.70; …`; None without one, or with only an upper bound."""
    for line in requires:
        named = re.match(_REQUIREMENT, line)
        clauses = dict(re.findall(_CLAUSE, named[2])) if named else {}
        if named and clauses:
            exact = "==" in clauses
            version = clauses.get("==") or clauses.get(">=") or clauses["~="]
            return Required(version=CudnnVersion(version), exact=exact, cuda=int(named[1]))
    return None


def cudnn_preloaded_by_jax(text: str) -> str | None:
    """Library of cuDNN that a JAX plugin opens first, from NVIDIA's wheel, `libcudnn.so.9`; None if it opens none.

    Sample line of its `__init__.py`: `_load("cudnn", ["libcudnn.so.9"])`.
    """
    found = re.search(_LOAD_CUDNN, text)
    return found[1] if found else None


def runtime_of_needs(needed: Iterable[str]) -> str | None:
    """CUDA that a library is linked against, by the sonames that it needs; None if they do not tell.

    `libcudart.so.10.2` has the minor version; `libcudart.so.11.0` is the name in all of CUDA 11, and from 12 on it has the major only.
    """
    for name in sorted(needed, key=lambda soname: not soname.startswith("libcudart")):
        found = re.fullmatch(_RUNTIME, name)
        if found is not None:
            return f"{found[1]}.{found[2]}" if found[2] and int(found[1]) < 11 else found[1]
    return None


def cudnn_of_needs(needed: Iterable[str]) -> str | None:
    """Major of the cuDNN that a library is linked against, `9` for `libcudnn.so.9`; None if it is not."""
    numbers = (name.removeprefix("libcudnn.so.") for name in needed if name.startswith("libcudnn.so."))
    return next((number for number in numbers if number.isdigit()), None)


def parse_cupy_wheel(text: str) -> CupyWheel:
    """Content of cupy's `_wheel.json`; empty if it cannot be read.

    Sample: `{"cuda": "12.x", "packaging": "pip", "cudnn": {"version": "8.8.1", "filenames": ["libcudnn.so.8.8.1"]}}`.
    """
    import json

    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return CupyWheel()
    content = content if isinstance(content, dict) else {}
    cudnn = content.get("cudnn")
    cudnn = cudnn if isinstance(cudnn, dict) else {}
    cuda, version, names = content.get("cuda"), cudnn.get("version"), cudnn.get("filenames")
    listed = names if isinstance(names, list) and content.get("packaging") == "pip" else []
    return CupyWheel(
        cuda=cuda if isinstance(cuda, str) else None,
        cudnn=version if isinstance(version, str) else None,
        files=tuple(name for name in listed if isinstance(name, str)),
    )


def known_version(text: str | None) -> str | None:
    """A version made of numbers, unchanged; None for anything else."""
    version = parsed(CudaVersion, text)
    return version.text if version else None
