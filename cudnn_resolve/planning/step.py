"""The steps of a plan, in the order in which they are taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from cudnn_resolve.facts.model import or_none
from cudnn_resolve.matrix.row import Repository
from cudnn_resolve.planning.model import AptRepository, Step

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cudnn_resolve.locking.model import Environment
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.planning.model import AptAction, PipAction, Plan
    from cudnn_resolve.requirement.machine import Machine


def steps(draft: Plan, machine: Machine, book: Book) -> tuple[Step, ...]:
    """Return the steps of a plan that is otherwise complete: those that need root, then removals, installations, loader settings."""
    python = draft.facts.python.path or "python"
    venv: tuple[Step, ...] = ()
    if draft.facts.python.externally_managed and draft.pip:
        why = "the system manages this environment and pip refuses to change it (PEP 668): use a virtual environment"
        venv = (Step(id="venv", kind="venv", argv=(python, "-m", "venv", ".venv"), why=why),)
        python = ".venv/bin/python"
    return (*_apt(machine, book, draft.apt), *venv, *_pip(python, draft), *_loader(draft.environment))


def with_environment(plan: Plan, base: str, prefix: str, why: str, *, kernel: str | None) -> Plan:
    """Add the steps that make a new environment; `base` is its interpreter's path, or a Python version for uv to fetch."""
    argv = (base, "-m", "venv", prefix) if "/" in base else ("uv", "venv", "--seed", "--python", base, prefix)
    first = Step(id="venv", kind="venv", argv=argv, why=f"a new environment: {why}")
    last: tuple[Step, ...] = ()
    if kernel is not None:
        words = ("-m", "ipykernel", "install", "--user", "--name", kernel)
        last = (Step(id="kernel", kind="kernel", argv=(f"{prefix}/bin/python", *words), why="a Jupyter kernel"),)
    return replace(plan, steps=(first, *plan.steps, *last))


def _apt(machine: Machine, book: Book, packages: Sequence[AptAction]) -> Iterator[Step]:
    packages = [package for package in packages if package.action != "keep"]
    if not packages:
        return
    names = dict.fromkeys(package.repository for package in packages)
    for row in book.rows(Repository):
        if row.name not in names or row.arch != machine.arch or not row.key_file or not row.key:
            continue
        if "cuda-keyring" in machine.apt and row.os == machine.os:  # apt knows it already
            continue
        yield Step(
            id="apt-repository",
            kind="apt-repository",
            argv=None,
            why=f"NVIDIA's repository {row.name}: {row.url}, signed by the key {row.key[-8:]}",
            needs_root=True,
            repository=AptRepository(name=row.name, url=row.url, key_url=f"{row.url}{row.key_file}", fingerprint=row.key),
        )
    yield Step(
        id="apt",
        kind="apt",
        argv=("apt-get", "install", "-y", "--no-install-recommends", *(package.pin for package in packages)),
        why="CUDA libraries of the system, pinned",
        needs_root=True,
    )
    yield Step(
        id="apt-hold",
        kind="apt",
        argv=("apt-mark", "hold", *(package.name for package in packages)),
        why="prevents upgrades: several CUDA versions share these package names",
        needs_root=True,
    )


def _pip(python: str, draft: Plan) -> Iterator[Step]:
    changed = [action for action in draft.pip if action.action in ("install", "upgrade", "downgrade")]
    removed = tuple(action.name for action in draft.pip if action.action == "remove")
    if not (draft.left_open or changed or removed):
        return
    pip = (python, "-m", "pip")
    facts = draft.facts
    if "packages.pip" in facts.sources and facts.python.path == python and "pip" not in (or_none(facts.packages.pip) or {}):
        why = f"this environment has no pip; with uv, use `uv pip install --python {python}` for the commands below"
        yield Step(id="pip-itself", kind="pip-itself", argv=(python, "-m", "ensurepip"), why=why)
    if removed:
        yield Step(id="pip-remove", kind="pip-remove", argv=(*pip, "uninstall", "-y", *removed), why="they own files of other packages")
    groups: dict[tuple[str | None, bool, bool], list[PipAction]] = {}
    for action in changed:
        groups.setdefault((action.index, action.page, action.reinstall), []).append(action)
    for number, ((index, is_page, is_reinstall), actions) in enumerate(groups.items(), start=1):
        source = draft.sources if index is None else ("--find-links" if is_page else "--index-url", index)
        force = ("--force-reinstall",) if is_reinstall else ()
        why = "exact versions without their dependencies, which the plan lists itself"
        if is_reinstall:
            why = "their files must be written again"
        yield Step(
            id=f"pip-{number}",
            kind="pip",
            argv=(*pip, "install", "--no-deps", *force, *source, *(word for action in actions for word in pip_arguments(action))),
            why=why if index is None else f"{why}; from the index that has this variant",
        )
    if draft.left_open:
        yield Step(
            id="pip-unpinned",
            kind="pip-unpinned",
            argv=(*pip, "install", *draft.sources, *draft.left_open),
            why="packages that the matrix does not list; the installer chooses their versions",
        )


def pip_arguments(action: PipAction) -> tuple[str, ...]:
    """Return the arguments that name one package to pip."""
    direct = action.direct
    if direct is None:
        return (action.pin,)
    if direct.folder is not None:
        return ("--editable", direct.folder) if direct.editable else (direct.folder,)
    return (f"{action.name} @ {direct.url}",)


def _loader(environment: tuple[Environment, ...]) -> Iterator[Step]:
    for entry in environment:
        if entry.kind in ("preload", "folder"):
            yield Step(id=entry.kind, kind=entry.kind, argv=None, why=entry.why)
        elif entry.kind == "ldconfig":
            yield Step(id="ldconfig", kind="ldconfig", argv=None, why=entry.why, needs_root=True)
