"""`bundle`: a lock with every file that it names, to install from without a network; and what `apply` does with one."""

from __future__ import annotations

import json
import os.path
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve import execution
from cudnn_resolve.errors import InputError, UsageError
from cudnn_resolve.execution.fetch import Download, check_known, strong, wrong_hash
from cudnn_resolve.execution.model import Reporter
from cudnn_resolve.execution.task import Task
from cudnn_resolve.facts.assume import Assumptions, assume
from cudnn_resolve.facts.cudnn_files import FOLDER
from cudnn_resolve.facts.model import Facts
from cudnn_resolve.host import bundle as disk_bundle
from cudnn_resolve.host import disk, user_folders
from cudnn_resolve.host.bundle import SUMS, WHEELS, bundle_of, is_bundle
from cudnn_resolve.host.files import folder_of, read_bounded
from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.index.address import is_local
from cudnn_resolve.locking.bundled import bundled_lock_name, fitting_wheels, folder_files, installed_packages, map_folder_wheels, map_wheels
from cudnn_resolve.locking.file import file_url, with_absolute_url
from cudnn_resolve.locking.model import Lock, files_of, version_of
from cudnn_resolve.locking.read_pylock import LIMIT_BYTES, read
from cudnn_resolve.locking.select import select
from cudnn_resolve.locking.write_pylock import write
from cudnn_resolve.operations.bundled_debs import FOLDER_NAME, bring_debs, repositories_of
from cudnn_resolve.operations.listener import SILENT, Listener
from cudnn_resolve.operations.machine_facts import card_of, detect_facts, gather_facts
from cudnn_resolve.operations.options import LOCK, LOCK_NAMES, ApplyRequest, BundleRequest, LockRequest, PlanRequest
from cudnn_resolve.operations.package_source import fetching
from cudnn_resolve.operations.plan import PlanResult
from cudnn_resolve.operations.question import gather_book
from cudnn_resolve.operations.results import Result, recast
from cudnn_resolve.planning.preload import folder_actions, preload_files
from cudnn_resolve.report.json import encoded
from cudnn_resolve.requirement.machine import Machine, machine_of
from cudnn_resolve.requirement.source import File

SBOM = "sbom.cdx.json"
_PARALLEL = 6
_START = """#!/bin/sh
# Makes an environment of this bundle without a network: sh start DIR
here=$(cd "$(dirname "$0")" && pwd) || exit 3
for python in python3 python3.13 python3.12 python3.11 python3.10 python3.9 python3.8 python; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 6))' >/dev/null 2>&1; then
        exec "$python" -I "$here/start.py" "$@"
    fi
done
echo "error: no Python from 3.6 on is on PATH" >&2
exit 3
"""
R = TypeVar("R", PlanRequest, ApplyRequest)


class BundledFile(Struct, frozen=True, kw_only=True):
    """One file of a bundle."""

    name: str
    sha256: str
    bytes: int


class BundleDocument(Struct, frozen=True, kw_only=True):
    """`bundle --format json`: the bundle that was made or verified, or why there is none."""

    schema: Literal["cudnn-resolve/bundle/1"] = "cudnn-resolve/bundle/1"
    status: Literal["ok", "unsatisfiable"]
    path: str
    locks: tuple[str, ...] = ()
    files: tuple[BundledFile, ...] = ()
    bytes: int = 0
    notes: tuple[str, ...] = ()


class BundleResult(Struct, Result, frozen=True, kw_only=True):
    """What `bundle` returns: what the bundle holds, or the plan with the conflict."""

    path: str
    files: tuple[BundledFile, ...] = ()
    notes: tuple[str, ...] = ()
    plan: PlanResult | None = None

    @property
    def status(self) -> Literal["ok", "unsatisfiable"]:
        """`unsatisfiable` where there is a conflict."""
        return "ok" if self.plan is None else "unsatisfiable"

    @property
    def locks(self) -> tuple[str, ...]:
        """The locks in it."""
        return tuple(one.name for one in self.files if LOCK_NAMES.fullmatch(one.name))

    def to_json(self) -> dict[str, Any]:
        """The object that `bundle --format json` prints."""
        total = sum(one.bytes for one in self.files)
        return encoded(
            BundleDocument(status=self.status, path=self.path, locks=self.locks, files=self.files, bytes=total, notes=self.notes)
        )


def bundle(request: BundleRequest, listener: Listener = SILENT, reporter: Reporter | None = None) -> BundleResult:
    """Make a bundle, extend it, or verify it."""
    reporter = reporter or Reporter()
    path = request.output or ""
    if request.check:
        with _unpacked(path, reporter, disk_bundle.verify) as folder:
            return _result(path, folder, _faults(folder))
    _refuse_other(path, add=request.add)
    lock, plan = _lock(request, listener)
    if lock is None:
        return BundleResult(path=path, plan=plan)
    if not path.endswith(".tar"):
        disk.make_folder(path)
        return _filled(lock, request, path, reporter, path)
    path = disk.real(path)
    from cudnn_resolve.host.bundle_tar import locked_tar, pack, unpack

    def tell(what: str) -> None:
        listener.note(f"note: {what}")

    with disk_bundle.temporary_folder(path.rpartition("/")[0] or "/") as folder, locked_tar(path, tell) as there:
        if there is not None:
            _refuse_other(path, add=request.add)
            unpack(path, folder)
        done = _filled(lock, request, folder, reporter, request.output or "")
        pack(folder, path, there)
        return done


def _refuse_other(path: str, *, add: bool) -> None:
    """Reject a place that holds something else, or a bundle that was not to be extended; raises UsageError."""
    if is_bundle(path):
        if not add:
            raise UsageError(f"{path} is a bundle already", code="bundle-exists", hint="--add extends it")
        return
    if add and disk.kind(path) is None:
        raise InputError(f"there is no bundle {path}", code="input-missing", hint="leave --add out: it is made")
    strange = [name for name in disk.names_in(path) if not (name == WHEELS or name.startswith(".") or FOLDER_NAME.fullmatch(name))]
    if disk.kind(path) is not None and (strange or not disk.is_folder(path)):
        raise UsageError(f"{path} is there and is no bundle", code="bundle-exists", hint="name a new folder, or FILE.tar")


def _lock(request: BundleRequest, listener: Listener) -> tuple[Lock | None, PlanResult | None]:
    """The lock that the bundle is of, or the plan that says why there is none."""
    from cudnn_resolve.operations.lock import make_lock

    path = request.lock if request.names_targets or request.lock else LOCK if disk.is_regular(LOCK) else None
    if path is None:
        made = make_lock(recast(LockRequest, request, output="-", check=False), listener)
        for text in made.warnings:
            listener.note(f"warning: {text}")
        return (_placed(made.lock, folder_of(".", is_folder=True)) if made.lock is not None else None), made.plan
    return _placed(read(read_bounded(path, LIMIT_BYTES, "lock"), path), folder_of(path)), None


def _placed(lock: Lock, folder: str) -> Lock:
    """The lock with every path in it seen from the root: it is about to lie elsewhere."""
    lock = map_folder_wheels(lock, lambda file: with_absolute_url(file, disk.real(folder)))
    return map_wheels(lock, lambda file: {**file, "path": disk.real(f"{folder}/{file['path']}")} if "path" in file else file)


def outline(request: BundleRequest, folder: str) -> None:
    """Make a bundle without its wheels, which are fetched elsewhere: listed by the sums that the lock has."""
    lock, _ = _lock(request, SILENT)
    assert lock is not None, "a lock is named"
    disk.make_folder(folder)
    _filled(lock, request, folder, Reporter(), folder, whole=False)


def _locked_sums(files: Iterable[File]) -> dict[str, str]:
    """The SHA-256 of each file, as the lock has it; UsageError for one without."""
    sums = {one.filename: one.hashes.get("sha256", "") for one in files}
    for name, digest in sums.items():
        if not digest:
            raise UsageError(f"the lock has no SHA-256 of {name}", code="hash-missing", hint="leave --fetch host out")
    return sums


def _filled(lock: Lock, request: BundleRequest, folder: str, reporter: Reporter, shown: str, *, whole: bool = True) -> BundleResult:
    """Bring every file into the folder, then what is made of them, then list them all."""
    machines = _machines(lock, request)
    taken = {name: installed_packages(lock, machine) for name, machine in machines.items()}
    wheels = {**fitting_wheels(taken.values(), machines.values()), **folder_files(lock, machines)}
    repositories = repositories_of(lock, machines, gather_book(request))
    addresses = [one.url for one in wheels.values()] + [one.key_url for wanted in repositories.values() for one in wanted]
    with fetching(request, Facts(), addresses) as download:
        sums = _bring(list(wheels.values()), folder, download, reporter) if whole else _locked_sums(wheels.values())
        debs, signed, notes = bring_debs(lock, repositories, folder, None if request.offline else download, reporter)
    if lacking := sorted(wheels.keys() - sums.keys()):
        hint = "make a bundle of its own"
        raise UsageError(f"{shown} holds another file with the name {lacking[0]}", code="bundle-name", hint=hint)
    keep = {name for packages in taken.values() for name in packages}

    def here(file: Mapping[str, Any]) -> dict[str, Any] | None:
        name = str(file["name"])
        found = {"name": name, "path": f"{WHEELS}/{name}", "size": file.get("size"), "hashes": {**file["hashes"], "sha256": sums.get(name)}}
        return {key: value for key, value in found.items() if value is not None} if name in sums else None

    def apart(file: File) -> File:
        return replace(file, url=f"{WHEELS}/{file.filename}", hashes={**file.hashes, "sha256": sums[file.filename]})

    moved = map_folder_wheels(map_wheels(lock, here, keep), apart)
    text, plan = write(moved), _start_plan(moved, machines, sums, debs)
    more = _programs()
    if request.sbom:
        from cudnn_resolve.report.sbom import render

        more[SBOM] = render(
            moved, {one["file"]: (one["name"], one["version"], signed[one["file"]]) for some in debs.values() for one in some}
        )

    def texts(old: Mapping[str, str]) -> dict[str, str]:
        name = bundled_lock_name(moved, machines, {one for one in old if LOCK_NAMES.fullmatch(one)})
        return {name: text, name.replace(".toml", ".json"): plan, **more}

    notes += _with_pip(folder, sums)
    disk.sync_file_systems((folder,))
    listed = {**signed, **{f"{WHEELS}/{file}": digest for file, digest in sums.items()}}
    disk_bundle.add_to_list(folder, listed, texts)
    return _result(shown, folder, notes) if whole else BundleResult(path=shown)


def _machines(lock: Lock, request: BundleRequest) -> dict[str, Machine]:
    """The machines that the lock is for, by their platforms; of another tool's lock those that are asked for, else this one."""
    book = gather_book(request)
    tool = lock.tool
    if tool is not None:
        names, python = [one.platform for one in tool.stacks], tool.python
        unknown = [one for one in request.platforms if one not in names]
        if unknown and request.lock is not None:
            raise UsageError(f"{request.lock} is not for {unknown[0]}", code="usage-platform", hint=f"it is for {', '.join(names)}")
    else:
        facts = detect_facts(request) if not (request.platforms and request.python_version) else Facts()
        names = list(request.platforms) or [f"linux_{facts.platform.arch}"]
        python = request.python_version or facts.python.version or ""
    stated = {name: Assumptions(platform=name, python_version=python.removesuffix("t")) for name in names}
    return {name: machine_of(assume(Facts(), one, card_of(book)), book) for name, one in stated.items()}


def _bring(files: Sequence[File], folder: str, download: Download, reporter: Reporter) -> dict[str, str]:
    """The SHA-256 of each file that is in the folder and verified then, by its name."""
    reporter.begin(f"bringing {len(files)} files into the bundle", sum(one.size or 0 for one in files) or None)
    threads = ThreadPoolExecutor(_PARALLEL)
    try:
        listed = disk_bundle.read_sums(folder)
        asked = {one.filename: threads.submit(_brought, one, folder, listed, download, reporter) for one in files}
        return {name: found for name, future in asked.items() if (found := future.result()) is not None}
    finally:
        threads.shutdown(wait=True, cancel_futures=True)
        reporter.end()


def _brought(file: File, folder: str, listed: Mapping[str, str], download: Download, reporter: Reporter) -> str | None:
    """Bring one file into its place, unless it is there; the SHA-256 of what is there then, None for a file of others with its name."""
    known = strong(file.hashes)
    assert known is not None, "see `check_known`"
    path = f"{folder}/{WHEELS}/{disk_bundle.wheel_name(file.filename)}"
    if _is(path, known):
        reporter.advance(file.size or 0)
    elif (other := listed.get(f"{WHEELS}/{file.filename}")) is not None and _is(path, ("sha256", other)):
        return None
    else:
        disk.make_folder(f"{folder}/{WHEELS}")
        with disk_bundle.staging_folder(f"{folder}/{WHEELS}") as passing:
            found = download(file, passing, reporter.advance)
            if not _is(found, known):
                raise wrong_hash(file.filename, *known, disk.digest(found, known[0]))
            disk.move(found, path)
    return known[1] if known[0] == "sha256" else disk.digest(path, "sha256")


def _is(path: str, known: tuple[str, str]) -> bool:
    return disk.kind(path) == "file" and disk.digest(path, known[0]) == known[1]


def _start_plan(lock: Lock, machines: Mapping[str, Machine], sums: Mapping[str, str], debs: Mapping[str, list[dict[str, str]]]) -> str:
    """What `start.py` reads in the place of the lock: for each platform the packages, and the files of the preload."""
    platforms = {}
    for name, machine in machines.items():
        stack = lock.stack(name)
        packages = []
        for package in installed_packages(lock, machine).values():
            files = fitting_wheels([{package.name: package}], [machine])
            packages.append(_entry(package.name, version_of(package), files, sums))
        apart = folder_actions(stack.environment) if stack else ()
        platforms[name] = {
            "packages": packages,
            "apart": [_entry(one.name, one.version, [one.file.filename] if one.file else (), sums) for one in apart],
            "folder": FOLDER,
            "files": preload_files(stack.environment) if stack else {},
            "debs": debs.get(name, []),
            "notes": [f"packages of the system that it needs: {', '.join(one.name for one in stack.apt)}"]
            if stack and stack.apt and name not in debs
            else [],
        }
    python = next(iter(machines.values())).python or (0, 0)
    return json.dumps({"python": f"{python[0]}.{python[1]}", "platforms": platforms}, indent=1) + "\n"


def _entry(name: str, version: str | None, files: Iterable[str], sums: Mapping[str, str]) -> dict[str, Any]:
    """A package as `start.py` reads it."""
    return {"name": name, "version": version, "wheels": {file: sums[file] for file in files}}


def _programs() -> dict[str, str]:
    """The start script, which Python runs, and the one that finds a Python for it."""
    host = LinuxHost()
    source = host.read_text(os.path.join(os.path.dirname(execution.__file__), "payload_start.py")) or ""
    return {"start.py": source, "start": _START}


def _with_pip(folder: str, sums: dict[str, str]) -> Iterator[str]:
    """Add the pip that comes with Python, which `start.py` runs out of its wheel; what is said where there is none."""
    found = disk_bundle.own_pip()
    if found is None:
        yield "no wheel of pip was found for the start script: it uses the one of the machine, from pip 20.3 on"
        return
    name, content = found
    sums[name] = disk_bundle.place(folder, f"{WHEELS}/{name}", content)


def _faults(folder: str) -> list[str]:
    """Notes on a bundle whose files are as listed; InputError where a lock does not agree with the list."""
    sums = disk_bundle.read_sums(folder)
    for name in sums:
        if LOCK_NAMES.fullmatch(name):
            _refuse_lies(folder, name, sums)
    return [f"{name} is no part of the bundle: nothing reads it" for name in disk_bundle.unlisted(folder, sums)]


def _refuse_lies(folder: str, name: str, sums: Mapping[str, str]) -> None:
    """Reject a lock that names files which the bundle does not hold as the lock says; raises InputError."""
    lock = read(read_bounded(f"{folder}/{name}", LIMIT_BYTES, "lock"), f"{folder}/{name}")
    named = [(file.path, file.url, file.hashes) for package in lock.packages for file in files_of(package)]
    apart = [
        step.wheel.file for stack in lock.stacks for step in stack.environment if step.wheel is not None and step.wheel.file is not None
    ]
    named += [(None if "://" in file.url else file.url, file.url, file.hashes) for file in apart]
    for path, url, hashes in named:
        if path is None or hashes.get("sha256") != sums.get(path):
            raise disk_bundle.damaged(folder, f"{name} names {path or url}, which the bundle does not hold so")


def _result(path: str, folder: str, notes: Iterable[str]) -> BundleResult:
    sums = disk_bundle.read_sums(folder)
    files = tuple(BundledFile(name=one.name, sha256=one.sha256, bytes=one.size) for one in disk_bundle.files_of(folder, sums))
    return BundleResult(path=path, files=files, notes=tuple(notes))


# ---- what `apply` does with one


@contextmanager
def _unpacked(path: str, reporter: Reporter, verify: Callable[..., None]) -> Iterator[str]:
    """The folder of a bundle, every file of it verified; of a tar file it is there for as long as this lasts."""
    if not is_bundle(path):
        hint = f"a bundle is a folder with {SUMS}, or a tar file of one; `cudnn-resolve bundle -o` makes one"
        raise InputError(f"{path} is no bundle", code="input-missing" if disk.kind(path) is None else "bundle-invalid", hint=hint)
    if disk.is_folder(path):
        files = disk_bundle.files_of(path, disk_bundle.read_sums(path))
        reporter.begin(f"verifying {len(files)} files of {path}", sum(one.size for one in files))
        try:
            verify(path, files, reporter.advance)
        finally:
            reporter.end()
        yield path
        return
    from cudnn_resolve.host.bundle_tar import unpack

    with disk_bundle.temporary_folder(user_folders.private_folder(f"{user_folders.state_folder()}/bundles")) as folder:
        reporter.begin(f"unpacking and verifying {path}", disk.size_of(path))
        try:
            unpack(path, folder, reporter.advance)
        finally:
            reporter.end()
        yield folder


@contextmanager
def opened(request: R, reporter: Reporter | None = None) -> Iterator[R]:
    """The request with the lock of a bundle in the place of the bundle, which is whole; nothing of it then needs a network."""
    found = bundle_of(request.lock)
    assert found is not None, "see `api`"
    path, name = found
    with _unpacked(path, reporter or Reporter(), disk_bundle.verify_touched) as folder:
        _faults(folder)
        yield replace(request, lock=f"{folder}/{name or _fitting(folder, path, request)}", offline=True)


def _fitting(folder: str, path: str, request: PlanRequest | ApplyRequest) -> str:
    """The lock of a bundle that is for this machine; UsageError where that is not one."""
    names = sorted(one for one in disk_bundle.read_sums(folder) if LOCK_NAMES.fullmatch(one))
    if len(names) > 1:
        book = gather_book(request)
        machine = machine_of(gather_facts(request, book), book)
        locks = {one: read(read_bounded(f"{folder}/{one}", LIMIT_BYTES, "lock"), one) for one in names}
        fitting = [one for one, lock in locks.items() if not select(lock, machine).differences]
        if not fitting and request.env is not None:  # which may have another Python
            machine = replace(machine, python=None, python_full=None)
            fitting = [one for one, lock in locks.items() if not select(lock, machine).differences]
        names = fitting or names
    if len(names) == 1:
        return names[0]
    hint = f"name one of them: {', '.join(f'{path}/{one}' for one in names)}" if names else "`bundle --add` adds one"
    raise UsageError(f"{path} has {len(names)} locks for this machine", code="bundle-lock", hint=hint)


def supplied(task: Task, folder: str, download: Download, reporter: Reporter, *, trusted: bool) -> Task:
    """The task with files of a bundle's folder in the place of those elsewhere: what it lacks is fetched into it, and listed there.

    Where this user may not write there, what it lacks comes from where the plan says.
    """
    disk.make_folder(folder)
    packages = (*task.install, *task.folder_wheels)
    check_known(packages, task.unpinned, trusted=trusted)
    wanted = [one.file for one in packages if one.file is not None and strong(one.file.hashes) and not is_local(one.file.url)]
    if not disk.writable(folder):
        wanted = [one for one in wanted if _is(f"{folder}/{WHEELS}/{disk_bundle.wheel_name(one.filename)}", strong(one.hashes) or ("", ""))]
        sums = {one.filename: "" for one in wanted}
    else:
        sums = _bring(wanted, folder, download, reporter)
        disk_bundle.add_to_list(folder, {f"{WHEELS}/{name}": digest for name, digest in sums.items()})
    install, apart = (tuple(_from(folder, one, sums) for one in some) for some in (task.install, task.folder_wheels))
    return replace(task, install=install, folder_wheels=apart)


def _from(folder: str, one: Any, names: Mapping[str, str]) -> Any:
    """The action with its file in the folder, where it is one of those names."""
    if one.file is None or one.file.filename not in names:
        return one
    return replace(one, file=replace(one.file, url=file_url(disk.real(f"{folder}/{WHEELS}/{one.file.filename}"))))
