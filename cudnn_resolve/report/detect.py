"""Render facts as one screen of text, short enough for a bug report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from cudnn_resolve.facts.contradiction import conflicts, covers, is_wrong
from cudnn_resolve.facts.model import CudnnCopy, Driver, Facts, Gpu, InstalledFramework, Loader, Problem, Toolkit, Unknown, or_none
from cudnn_resolve.report.text import UNBROKEN, Page, clean, table, wrap

_LABEL_WIDTH = 12
"""Columns of the labels on the left, after the mark."""
_MOST_LETTERS = 170
"""Length of a problem's text, unless verbose."""
_MOST_ROWS, _MOST_WRONG_ROWS = 6, 8
"""Rows of a section to show unless verbose: any rows, and wrong ones if there are more."""
_NAMES = {"ubuntu": "Ubuntu", "debian": "Debian", "rhel": "RHEL", "rocky": "Rocky Linux", "amzn": "Amazon Linux", "fedora": "Fedora"}
_CONTAINERS = {"docker": "in a container", "colab": "Google Colab", "kaggle": "Kaggle", "wsl": "WSL"}
_IMPLEMENTATIONS = {"cpython": "CPython", "pypy": "PyPy"}
_ROOT = {True: "root", False: "no root", None: ""}
T = TypeVar("T")


class _Row(NamedTuple):
    """One entry of a section."""

    text: str
    """One line, or several separated by newlines."""
    wrong: bool = False


def show_facts(page: Page, facts: Facts, *, verbose: bool = False) -> None:
    """Show the facts in about 40 lines, with conflicts marked by `!`.

    `verbose` shows every row of every section, and the source of each fact.
    """
    sections = [
        ("System", _system(facts)),
        ("Python", _python(facts)),
        ("Driver", _known(facts.driver, _driver)),
        ("GPU", _known(facts.gpus, _gpus)),
        ("CUDA", _known(facts.cuda_toolkits, _toolkits, "no toolkit")),
        ("cuDNN", _known(facts.cudnn, _cudnn)),
        ("Frameworks", _known(facts.frameworks, _frameworks)),
        ("Loader", _known(facts.loader, _loader)),
        ("Problems", _problems(facts, UNBROKEN if verbose else _MOST_LETTERS)),
    ]
    if verbose:
        sections.append(("Sources", [_Row(f"{clean(fact)}: {clean(source)}") for fact, source in facts.sources.items()]))
    for label, rows in sections:
        _show_section(page, label, rows if verbose else _most_important(rows))


def _show_section(page: Page, label: str, rows: Sequence[_Row]) -> None:
    style = page.style
    for row in rows:
        mark = style("!", "bold", "red") if row.wrong else " "
        for line in row.text.split("\n"):
            for text in wrap(line, width=page.width - _LABEL_WIDTH - 2, rest="  "):
                shown = style(text, "yellow") if row.wrong else text
                page.lines.append(f"{mark} {style(label.ljust(_LABEL_WIDTH), 'bold')}{shown}".rstrip())
                label, mark = "", " "


def _most_important(rows: Sequence[_Row]) -> Sequence[_Row]:
    """Shorten a long section, keeping wrong rows before others, and count the rest."""
    if len(rows) <= _MOST_ROWS:
        return rows
    spare = max(_MOST_ROWS - sum(row.wrong for row in rows), 0)
    shown = []
    for row in rows:
        if row.wrong or spare > 0:
            shown.append(row)
            spare -= not row.wrong
    shown = shown[:_MOST_WRONG_ROWS]
    return [*shown, _Row(f"and {len(rows) - len(shown)} more (-v shows them)")]


def _known(value: T | Unknown | None, rows: Callable[[T], list[_Row]], none: str = "none") -> list[_Row]:
    """The rows of a section, or one row that says that the value is unknown or absent."""
    known = or_none(value)
    return rows(known) if known else [_Row("unknown" if isinstance(value, Unknown) else none)]


def _join(parts: Iterable[str | None]) -> str:
    return clean(", ".join(part for part in parts if part))


def _system(facts: Facts) -> list[_Row]:
    platform = facts.platform
    name = _NAMES.get(platform.distribution or "", platform.distribution) or platform.system or "unknown"
    container = facts.container if isinstance(facts.container, str) else None
    text = _join(
        [
            f"{name} {platform.release or ''}".strip(),
            platform.arch,
            platform.glibc and f"glibc {platform.glibc}",
            _CONTAINERS.get(container or "", container),
            _ROOT[facts.root],
        ]
    )
    return [_Row(text), *([_Row(clean(facts.note))] if facts.note else [])]


def _python(facts: Facts) -> list[_Row]:
    python = facts.python
    words = [_IMPLEMENTATIONS.get(python.implementation or "", python.implementation) or "Python", python.version or "of unknown version"]
    text = _join(
        [
            " ".join(words),
            "without the GIL" if python.free_threaded else None,
            "externally managed" if python.externally_managed else None,
            python.path,
        ]
    )
    counts = [
        f"{len(names)} {kind} packages"
        for kind, names in (("pip", facts.packages.pip), ("apt", facts.packages.apt))
        if not isinstance(names, Unknown)
    ]
    return [_Row(text), *([_Row(", ".join(counts))] if counts else [])]


def _driver(driver: Driver) -> list[_Row]:
    mixed = bool(driver.version and driver.kernel_module and driver.version != driver.kernel_module)
    text = _join(
        [
            driver.version or "of unknown version",
            driver.cuda and f"supports CUDA up to {driver.cuda}",
            f"kernel module {driver.kernel_module}" if mixed else None,
        ]
    )
    return [_Row(text, mixed)]


def _gpus(gpus: Sequence[Gpu]) -> list[_Row]:
    kinds = Counter((_gpu(gpu), gpu.hidden) for gpu in gpus)
    return [_Row(f"{count} x {text}" if count > 1 else text, hidden) for (text, hidden), count in kinds.items()]


def _gpu(gpu: Gpu) -> str:
    return _join(
        [
            gpu.name or "GPU",
            gpu.compute_capability and f"compute capability {gpu.compute_capability}",
            f"{gpu.memory_mib / 1024:.1f} GiB" if gpu.memory_mib else None,
            "hidden" if gpu.hidden else None,
        ]
    )


def _toolkits(toolkits: Sequence[Toolkit]) -> list[_Row]:
    return [_Row(line) for line in table([(one.version or "?", one.source, clean(one.path or "")) for one in toolkits], indent="")]


def _cudnn(copies: Sequence[CudnnCopy]) -> list[_Row]:
    lines = table([_copy(copy) for copy in copies], indent="")
    return [_Row(line, copy.complete is False or bool(copy.problems)) for line, copy in zip(lines, copies, strict=True)]


def _copy(copy: CudnnCopy) -> tuple[str, ...]:
    version = copy.version or ("?" if copy.soname is None else f"{copy.soname}.?")
    state = "incomplete" if copy.complete is False else "problems" if copy.problems else ""
    return version, f"CUDA {copy.cuda}" if copy.cuda else "", copy.source, state, clean(copy.path or copy.owner or "")


def _frameworks(frameworks: Sequence[InstalledFramework]) -> list[_Row]:
    lines = table([_framework(row) for row in frameworks], indent="")
    return [_Row(line + _would_load(row), is_wrong(row)) for line, row in zip(lines, frameworks, strict=True)]


def _framework(row: InstalledFramework) -> tuple[str, ...]:
    return (
        clean(f"{row.name} {row.version}"),
        f"built with CUDA {row.cuda_built}" if row.cuda_built else clean(row.variant or ""),
        f"cuDNN {row.cudnn_built}" if row.cudnn_built else "",
    )


def _would_load(row: InstalledFramework) -> str:
    """A second line for a framework: the libcudnn it would load, its path, and the loader rule that finds it."""
    load = row.would_load
    if load is None:
        return ""
    found = f"loads {load.version or 'cuDNN'} {load.path or ''}".rstrip() if load.version or load.path else "finds no cuDNN"
    return "\n  " + clean(f"{found} ({load.because})" if load.because else found)


def _loader(loader: Loader) -> list[_Row]:
    count = len(loader.ldconfig)
    cached = f"{count or 'no'} CUDA {'library' if count == 1 else 'libraries'} in the linker cache"
    name = "LD_LIBRARY_PATH"
    rows = [_Row(clean(f"{'' if index else name + '=':<16}{path}")) for index, path in enumerate(loader.ld_library_path)]
    return [*(rows or [_Row(f"{name} is not set")]), _Row(cached)]


def _problems(facts: Facts, most: int) -> list[_Row]:
    """Conflicts, marked as wrong, then facts that could not be determined; each in at most `most` letters."""
    found = conflicts(facts)
    wrong = [problem for problem in facts.problems if any(covers(problem, conflict) for conflict in found)]
    wrong.extend(conflict for conflict in found if not any(covers(problem, conflict) for problem in wrong))
    rows = [_Row(_problem_text(problem, most), True) for problem in wrong]
    rows.extend(_Row(_problem_text(problem, most)) for problem in facts.problems if problem not in wrong)
    return rows or [_Row("none")]


def _problem_text(problem: Problem, most: int) -> str:
    text = f"{problem.what}: {problem.why}"
    return clean(text if len(text) <= most else f"{text[:most].rpartition(' ')[0] or text[:most]} (-v shows all of it)")
