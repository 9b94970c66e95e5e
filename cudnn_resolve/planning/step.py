"""The order in which a plan is carried out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from cudnn_resolve.facts.model import or_none
from cudnn_resolve.planning.model import AptRepository, Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudnn_resolve.locking.model import Environment
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.planning.model import AptAction, PipAction, Plan
    from cudnn_resolve.requirement.machine import Machine


def steps(draft: Plan, machine: Machine, book: Book) -> tuple[Step, ...]:
    """The steps of a plan that is complete but for them: those that need root first, then removals, installs, the loader."""
    python = draft.facts.python.path or "python"
    first: tuple[Step, ...] = ()
    if draft.facts.python.externally_managed and draft.pip:
        why = "the system manages its own environment and pip refuses to change it (PEP 668): a new one beside it"
        first = (Step(id="venv", kind="venv", argv=(python, "-m", "venv", ".venv"), why=why),)
        python = ".venv/bin/python"
    return (*_apt(machine, book, draft.apt), *first, *_pip(python, draft), *_loader(draft.environment))


def with_environment(plan: Plan, base: str, prefix: str, why: str, *, kernel: str | None) -> Plan:
    """The plan for a new environment, with the steps that make it; `base` is its interpreter, or the version of one that uv fetches."""
    argv = (base, "-m", "venv", prefix) if "/" in base else ("uv", "venv", "--seed", "--python", base, prefix)
    first = Step(id="venv", kind="venv", argv=argv, why=f"a new environment: {why}")
    last: tuple[Step, ...] = ()
    if kernel is not None:
        words = ("-m", "ipykernel", "install", "--user", "--name", kernel)
        last = (Step(id="kernel", kind="kernel", argv=(f"{prefix}/bin/python", *words), why="a kernel of Jupyter"),)
    return replace(plan, steps=(first, *plan.steps, *last))


def _apt(machine: Machine, book: Book, apt: tuple[AptAction, ...]) -> Iterator[Step]:
    wanted = [one for one in apt if one.action != "keep"]
    if not wanted:
        return
    names_of = dict.fromkeys(one.repository for one in wanted)
    for repository in (row for row in book.repositories() if row.name in names_of and row.arch == machine.arch):
        if "cuda-keyring" in machine.apt and repository.os == machine.os:
            continue
        if not repository.key_file or not repository.key:
            continue
        yield Step(
            id="apt-repository",
            kind="apt-repository",
            argv=None,
            why=f"NVIDIA's repository {repository.name}: {repository.url}, signed by the key {repository.key[-8:]}",
            needs_root=True,
            repository=AptRepository(
                name=repository.name, url=repository.url, key_url=f"{repository.url}{repository.key_file}", fingerprint=repository.key
            ),
        )
    names = tuple(f"{one.name}={one.version}" for one in wanted)
    yield Step(
        id="apt",
        kind="apt",
        argv=("apt-get", "install", "-y", "--no-install-recommends", *names),
        why="CUDA libraries of the system, pinned",
        needs_root=True,
    )
    yield Step(
        id="apt-hold",
        kind="apt",
        argv=("apt-mark", "hold", *(one.name for one in wanted)),
        why="an upgrade would replace them: these package names are shared by several CUDA versions",
        needs_root=True,
    )


def _pip(python: str, draft: Plan) -> Iterator[Step]:
    pip, unpinned = draft.pip, draft.left_open
    changed = [one for one in pip if one.action in ("install", "upgrade", "downgrade")]
    if not (unpinned or changed or any(one.action == "remove" for one in pip)):
        return
    pip_command = (python, "-m", "pip")
    removed = tuple(one.name for one in pip if one.action == "remove")
    facts = draft.facts
    if "packages.pip" in facts.sources and facts.python.path == python and "pip" not in (or_none(facts.packages.pip) or {}):
        why = f"this environment has no pip; where there is uv, `uv pip install --python {python}` does what the lines below do"
        yield Step(id="pip-itself", kind="pip-itself", argv=(python, "-m", "ensurepip"), why=why)
    if removed:
        yield Step(
            id="pip-remove", kind="pip-remove", argv=(*pip_command, "uninstall", "-y", *removed), why="they own files of other packages"
        )
    groups = dict.fromkeys((one.index, one.page, one.reinstall) for one in changed)
    for number, (index, page, again) in enumerate(groups):
        pins = tuple(word for one in changed if (one.index, one.page, one.reinstall) == (index, page, again) for word in wanted(one))
        source = draft.sources if index is None else ("--find-links" if page else "--index-url", index)
        why = "exact versions, without their own dependencies: the plan holds them"
        if again:
            why = "their files went with the packages that were removed"
        yield Step(
            id=f"pip-{number + 1}",
            kind="pip",
            argv=(*pip_command, "install", "--no-deps", *(("--force-reinstall",) if again else ()), *source, *pins),
            why=why if index is None else f"{why}; from the index that has this variant",
        )
    if unpinned:
        yield Step(
            id="pip-unpinned",
            kind="pip-unpinned",
            argv=(*pip_command, "install", *draft.sources, *unpinned),
            why="packages that the matrix does not list; their versions are left to the installer",
        )


def wanted(action: PipAction) -> tuple[str, ...]:
    """The words that ask pip for one package."""
    direct = action.direct
    if direct is None:
        return (action.pin,)
    if direct.folder is not None:
        return ("--editable", direct.folder) if direct.editable else (direct.folder,)
    return (f"{action.name} @ {direct.url}",)


def _loader(environment: tuple[Environment, ...]) -> Iterator[Step]:
    for one in environment:
        if one.kind in ("preload", "folder"):
            yield Step(id=one.kind, kind=one.kind, argv=None, why=one.why)
        elif one.kind == "ldconfig":
            yield Step(id="ldconfig", kind="ldconfig", argv=None, why=one.why, needs_root=True)
