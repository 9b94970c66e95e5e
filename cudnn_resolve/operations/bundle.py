"""`bundle`: make, extend and verify a lock with every file that it names; and `apply` from a bundle, without a network."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.errors import InputError, UsageError
from cudnn_resolve.execution.fetch import Download, check_known, strong, wrong_hash
from cudnn_resolve.execution.task import Task
from cudnn_resolve.facts.assume import Assumptions, assume
from cudnn_resolve.facts.cudnn_files import FOLDER
from cudnn_resolve.facts.model import Facts
from cudnn_resolve.host import bundle as disk_bundle
from cudnn_resolve.host import disk, user_folders
from cudnn_resolve.host.bundle import SUMS, WHEELS, BundledFile, has_digest, is_bundle
from cudnn_resolve.host.child import payload_text
from cudnn_resolve.host.files import folder_of
from cudnn_resolve.index.address import is_local
from cudnn_resolve.listener import SILENT, Listener
from cudnn_resolve.locking.bundled import bundled_lock_name, fitting_wheels, folder_files, map_folder_wheels, map_wheels
from cudnn_resolve.locking.locked_file import file_url, with_absolute_url
from cudnn_resolve.locking.model import Lock, files_of, version_of
from cudnn_resolve.locking.select import installed_packages, select
from cudnn_resolve.locking.write_pylock import write
from cudnn_resolve.operations.bundled_debs import FOLDER_NAME, collect_debs, repositories_of
from cudnn_resolve.operations.lock_file import read_lock
from cudnn_resolve.operations.machine_facts import card_of, detect_facts, gather_facts
from cudnn_resolve.operations.options import LOCK, LOCK_NAMES, ApplyRequest, BundleRequest, LockRequest, PlanRequest
from cudnn_resolve.operations.package_source import fetching
from cudnn_resolve.operations.plan import PlanResult
from cudnn_resolve.operations.question import gather_book
from cudnn_resolve.operations.results import Result, recast
from cudnn_resolve.planning.preload import folder_actions, preload_files
from cudnn_resolve.report.encode_json import encoded
from cudnn_resolve.requirement.machine import Machine, machine_of
from cudnn_resolve.requirement.source import File

SBOM = "sbom.cdx.json"
_PARALLEL = 6
_START = """#!/bin/sh
# Creates an environment from this bundle without a network: sh start DIR
here=$(cd "$(dirname "$0")" && pwd) || exit 3
for python in python3 python3.13 python3.12 python3.11 python3.10 python3.9 python3.8 python; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 6))' >/dev/null 2>&1; then
        exec "$python" -I "$here/start.py" "$@"
    fi
done
echo "error: no Python 3.6 or newer is on PATH" >&2
exit 3
"""
R = TypeVar("R", PlanRequest, ApplyRequest)


class BundleDocument(Struct, frozen=True, kw_only=True):
    """`bundle --format json`: the bundle that was made or verified, or its status without one."""

    schema: Literal["cudnn-resolve/bundle/1"] = "cudnn-resolve/bundle/1"
    status: Literal["ok", "unsatisfiable"]
    path: str
    locks: tuple[str, ...] = ()
    files: tuple[BundledFile, ...] = ()
    bytes: int = 0
    notes: tuple[str, ...] = ()


class BundleResult(Struct, Result, frozen=True, kw_only=True):
    """Result of `bundle`: the contents of the bundle, or the plan with the conflict."""

    path: str
    files: tuple[BundledFile, ...] = ()
    notes: tuple[str, ...] = ()
    plan: PlanResult | None = None

    @property
    def status(self) -> Literal["ok", "unsatisfiable"]:
        """`unsatisfiable` for a conflict."""
        return "ok" if self.plan is None else "unsatisfiable"

    @property
    def locks(self) -> tuple[str, ...]:
        """Names of the locks in the bundle."""
        return tuple(file.name for file in self.files if LOCK_NAMES.fullmatch(file.name))

    def to_json(self) -> dict[str, Any]:
        """JSON object printed by `bundle --format json`."""
        total = sum(file.bytes for file in self.files)
        return encoded(
            BundleDocument(status=self.status, path=self.path, locks=self.locks, files=self.files, bytes=total, notes=self.notes)
        )


def bundle(request: BundleRequest, listener: Listener) -> BundleResult:
    """Make, extend or verify a bundle."""
    path = request.output or ""
    if request.check:
        with _unpacked(path, listener, disk_bundle.verify) as folder:
            return _result(path, folder, _check_locks(folder))
    _refuse_existing(path, add=request.add)
    lock, plan = _lock(request, listener)
    if lock is None:
        return BundleResult(path=path, plan=plan)
    if not path.endswith(".tar"):
        disk.make_folder(path)
        return _fill(lock, request, path, listener, path)
    from cudnn_resolve.host.bundle_tar import locked_tar, pack, unpack

    path = disk.real(path)

    def tell(what: str) -> None:
        listener.note(f"note: {what}")

    with disk_bundle.temporary_folder(path.rpartition("/")[0] or "/") as folder, locked_tar(path, tell) as old:
        if old is not None:
            _refuse_existing(path, add=request.add)
            unpack(path, folder)
        result = _fill(lock, request, folder, listener, request.output or "")
        pack(folder, path, old)
        return result


def _refuse_existing(path: str, *, add: bool) -> None:
    """Reject a path that holds something else, or a bundle without `--add`; raises UsageError or InputError."""
    if is_bundle(path):
        if not add:
            raise UsageError(f"{path} already is a bundle", code="bundle-exists", hint="--add extends it")
        return
    if add and disk.kind(path) is None:
        raise InputError(f"there is no bundle {path}", code="input-missing", hint="leave --add out to make it")
    foreign = [name for name in disk.names_in(path) if not (name == WHEELS or name.startswith(".") or FOLDER_NAME.fullmatch(name))]
    if disk.kind(path) is not None and (foreign or not disk.is_folder(path)):
        raise UsageError(f"{path} exists and is not a bundle", code="bundle-exists", hint="name a new folder, or FILE.tar")


def _lock(request: BundleRequest, listener: Listener) -> tuple[Lock | None, PlanResult | None]:
    """The lock to bundle, or the plan with the conflict."""
    from cudnn_resolve.operations.lock import make_lock

    path = request.lock if request.names_targets or request.lock else LOCK if disk.is_regular(LOCK) else None
    if path is not None:
        return _with_absolute_paths(read_lock(path), folder_of(path)), None
    result = make_lock(recast(LockRequest, request, output="-", check=False), listener)
    for text in result.warnings:
        listener.note(f"warning: {text}")
    lock = _with_absolute_paths(result.lock, folder_of(".", is_folder=True)) if result.lock is not None else None
    return lock, result.plan


def _with_absolute_paths(lock: Lock, folder: str) -> Lock:
    """Make the paths in a lock absolute, since it will move to another folder."""
    lock = map_folder_wheels(lock, lambda file: with_absolute_url(file, disk.real(folder)))
    return map_wheels(lock, lambda file: {**file, "path": disk.real(f"{folder}/{file['path']}")} if "path" in file else file)


def outline(request: BundleRequest, folder: str) -> None:
    """Make a bundle without its wheels, which are downloaded elsewhere; it lists them with the hashes in the lock."""
    lock, _ = _lock(request, SILENT)
    assert lock is not None, "a lock is named"
    disk.make_folder(folder)
    _fill(lock, request, folder, SILENT, folder, whole=False)


def _locked_sums(files: Iterable[File]) -> dict[str, str]:
    """SHA-256 of each file, from the lock; UsageError for a file without."""
    sums = {file.filename: file.hashes.get("sha256", "") for file in files}
    for name, digest in sums.items():
        if not digest:
            raise UsageError(f"the lock has no SHA-256 of {name}", code="hash-missing", hint="leave --fetch host out")
    return sums


def _fill(lock: Lock, request: BundleRequest, folder: str, listener: Listener, shown: str, *, whole: bool = True) -> BundleResult:
    """Collect every file in the folder, add the lock and the start scripts, and list them all.

    Messages name the bundle `shown`. Without `whole` the wheels are only listed.
    """
    machines = _machines(lock, request)
    taken = {name: installed_packages(lock, machine) for name, machine in machines.items()}
    wheels = {**fitting_wheels(taken.values(), machines.values()), **folder_files(lock, machines)}
    repositories = repositories_of(lock, machines, gather_book(request))
    addresses = [file.url for file in wheels.values()]
    addresses += [repository.key_url for rows in repositories.values() for repository in rows]
    with fetching(request, Facts(), addresses) as download:
        sums = _collect(list(wheels.values()), folder, download, listener) if whole else _locked_sums(wheels.values())
        debs, deb_sums, notes = collect_debs(lock, repositories, folder, None if request.offline else download, listener)
    if lacking := sorted(wheels.keys() - sums.keys()):
        hint = "make a separate bundle"
        raise UsageError(f"{shown} already holds a different file named {lacking[0]}", code="bundle-name", hint=hint)
    kept_packages = {name for packages in taken.values() for name in packages}
    bundled = _with_bundled_files(lock, kept_packages, sums)
    text, plan = write(bundled), _start_plan(bundled, machines, sums, debs)
    more = {"start.py": payload_text("execution/payload_start.py"), "start": _START}
    if request.sbom:
        from cudnn_resolve.report.sbom import render

        rows = [deb for platform_debs in debs.values() for deb in platform_debs]
        more[SBOM] = render(bundled, {deb["file"]: (deb["name"], deb["version"], deb_sums[deb["file"]]) for deb in rows})

    def texts(old: Mapping[str, str]) -> dict[str, str]:
        name = bundled_lock_name(bundled, machines, {name for name in old if LOCK_NAMES.fullmatch(name)})
        return {name: text, name.replace(".toml", ".json"): plan, **more}

    notes += _with_pip(folder, sums)
    disk.sync_file_systems((folder,))
    listed = {**deb_sums, **{f"{WHEELS}/{file}": digest for file, digest in sums.items()}}
    disk_bundle.add_to_list(folder, listed, texts)
    return _result(shown, folder, notes) if whole else BundleResult(path=shown)


def _with_bundled_files(lock: Lock, packages: Collection[str], sums: Mapping[str, str]) -> Lock:
    """Let a lock name the files in the bundle; other packages and files are left out."""

    def wheel(file: Mapping[str, Any]) -> dict[str, Any] | None:
        name = str(file["name"])
        if name not in sums:
            return None
        hashes = {**file["hashes"], "sha256": sums[name]}
        entry = {"name": name, "path": f"{WHEELS}/{name}", "size": file.get("size"), "hashes": hashes}
        return {key: value for key, value in entry.items() if value is not None}

    def folder_wheel(file: File) -> File:
        return replace(file, url=f"{WHEELS}/{file.filename}", hashes={**file.hashes, "sha256": sums[file.filename]})

    return map_folder_wheels(map_wheels(lock, wheel, packages), folder_wheel)


def _machines(lock: Lock, request: BundleRequest) -> dict[str, Machine]:
    """The machines of the lock by platform; for a lock of another tool the requested platforms, else this machine."""
    book = gather_book(request)
    tool = lock.tool
    if tool is not None:
        names, python = [stack.platform for stack in tool.stacks], tool.python
        unknown = [platform for platform in request.platforms if platform not in names]
        if unknown and request.lock is not None:
            raise UsageError(f"{request.lock} is not for {unknown[0]}", code="usage-platform", hint=f"it is for {', '.join(names)}")
    else:
        facts = detect_facts(request) if not (request.platforms and request.python_version) else Facts()
        names = list(request.platforms) or [f"linux_{facts.platform.arch}"]
        python = request.python_version or facts.python.version or ""
    stated = {name: Assumptions(platform=name, python_version=python.removesuffix("t")) for name in names}
    return {name: machine_of(assume(Facts(), assumptions, card_of(book)), book) for name, assumptions in stated.items()}


def _collect(files: Sequence[File], folder: str, download: Download, listener: Listener) -> dict[str, str]:
    """Collect files in the folder and verify them; SHA-256 by file name, without names that other files have already."""
    listener.begin(f"collecting {len(files)} files for the bundle", sum(file.size or 0 for file in files) or None)
    threads = ThreadPoolExecutor(_PARALLEL)
    try:
        listed = disk_bundle.read_sums(folder)
        futures = {file.filename: threads.submit(_collect_file, file, folder, listed, download, listener) for file in files}
        return {name: digest for name, future in futures.items() if (digest := future.result()) is not None}
    finally:
        threads.shutdown(wait=True, cancel_futures=True)
        listener.end()


def _collect_file(file: File, folder: str, listed: Mapping[str, str], download: Download, listener: Listener) -> str | None:
    """Fetch one file unless it is there, and return its SHA-256; None if a different file has its name."""
    expected = strong(file.hashes)
    assert expected is not None, "see `check_known`"
    path = f"{folder}/{WHEELS}/{disk_bundle.wheel_name(file.filename)}"
    if has_digest(path, *expected):
        listener.advance(file.size or 0)
    elif (other := listed.get(f"{WHEELS}/{file.filename}")) is not None and has_digest(path, "sha256", other):
        return None
    else:
        disk.make_folder(f"{folder}/{WHEELS}")
        with disk_bundle.staging_folder(f"{folder}/{WHEELS}") as temporary:
            fetched = download(file, temporary, listener.advance)
            if not has_digest(fetched, *expected):
                raise wrong_hash(file.filename, *expected, disk.digest(fetched, expected[0]))
            disk.move(fetched, path)
    return expected[1] if expected[0] == "sha256" else disk.digest(path, "sha256")


def _start_plan(lock: Lock, machines: Mapping[str, Machine], sums: Mapping[str, str], debs: Mapping[str, list[dict[str, str]]]) -> str:
    """Plan that `start.py` reads instead of the lock: the packages for each platform, and the files of the preload."""
    platforms = {}
    for name, machine in machines.items():
        stack = lock.stack(name)
        packages = []
        for package in installed_packages(lock, machine).values():
            files = fitting_wheels([{package.name: package}], [machine])
            packages.append(_entry(package.name, version_of(package), files, sums))
        wheels_apart = folder_actions(stack.environment) if stack else ()
        notes = []
        if stack and stack.apt and name not in debs:
            notes.append(f"required system packages: {', '.join(package.name for package in stack.apt)}")
        platforms[name] = {
            "packages": packages,
            "apart": [_entry(action.name, action.version, [action.file.filename] if action.file else (), sums) for action in wheels_apart],
            "folder": FOLDER,
            "files": preload_files(stack.environment) if stack else {},
            "debs": debs.get(name, []),
            "notes": notes,
        }
    python = next(iter(machines.values())).python or (0, 0)
    return json.dumps({"python": f"{python[0]}.{python[1]}", "platforms": platforms}, indent=1) + "\n"


def _entry(name: str, version: str | None, files: Iterable[str], sums: Mapping[str, str]) -> dict[str, Any]:
    """Entry of a package for `start.py`."""
    return {"name": name, "version": version, "wheels": {file: sums[file] for file in files}}


def _with_pip(folder: str, sums: dict[str, str]) -> Iterator[str]:
    """Add the pip wheel that comes with Python, which `start.py` runs; yields a note if there is none."""
    wheel = disk_bundle.own_pip()
    if wheel is None:
        yield "no pip wheel was found for the start script: it uses the machine's own pip, 20.3 or newer"
        return
    name, content = wheel
    sums[name] = disk_bundle.place(folder, f"{WHEELS}/{name}", content)


def _check_locks(folder: str) -> list[str]:
    """Check the locks of a bundle against its list of files; returns notes on unlisted files, raises InputError for a mismatch."""
    sums = disk_bundle.read_sums(folder)
    for name in sums:
        if LOCK_NAMES.fullmatch(name):
            _check_lock(folder, name, sums)
    return [f"{name} is not part of the bundle, and is ignored" for name in disk_bundle.unlisted(folder, sums)]


def _check_lock(folder: str, name: str, sums: Mapping[str, str]) -> None:
    """Reject a lock with files that the bundle does not hold, or with other hashes; raises InputError."""
    lock = read_lock(f"{folder}/{name}")
    named = [(file.path, file.url, file.hashes) for package in lock.packages for file in files_of(package)]
    settings = [setting for stack in lock.stacks for setting in stack.environment]
    apart = [setting.wheel.file for setting in settings if setting.wheel is not None and setting.wheel.file is not None]
    named += [(None if "://" in file.url else file.url, file.url, file.hashes) for file in apart]
    for path, url, hashes in named:
        if path is None or hashes.get("sha256") != sums.get(path):
            raise disk_bundle.damaged(folder, f"{name} names {path or url}, which the bundle does not hold with that hash")


def _result(path: str, folder: str, notes: Iterable[str]) -> BundleResult:
    return BundleResult(path=path, files=disk_bundle.files_of(folder, disk_bundle.read_sums(folder)), notes=tuple(notes))


# ---- what `apply` does with one


@contextmanager
def _unpacked(path: str, listener: Listener, verify: Callable[..., None]) -> Iterator[str]:
    """The folder of a bundle, with every file verified; a tar file is unpacked for as long as the context lasts."""
    if not is_bundle(path):
        hint = f"a bundle is a folder with {SUMS}, or its tar file; `cudnn-resolve bundle -o` makes one"
        raise InputError(f"{path} is not a bundle", code="input-missing" if disk.kind(path) is None else "bundle-invalid", hint=hint)
    if disk.is_folder(path):
        files = disk_bundle.files_of(path, disk_bundle.read_sums(path))
        listener.begin(f"verifying {len(files)} files of {path}", sum(file.bytes for file in files))
        try:
            verify(path, files, listener.advance)
        finally:
            listener.end()
        yield path
        return
    from cudnn_resolve.host.bundle_tar import unpack

    with disk_bundle.temporary_folder(user_folders.private_folder(f"{user_folders.state_folder()}/bundles")) as folder:
        listener.begin(f"unpacking and verifying {path}", disk.size_of(path))
        try:
            unpack(path, folder, listener.advance)
        finally:
            listener.end()
        yield folder


@contextmanager
def opened(request: R, path: str, name: str | None, listener: Listener) -> Iterator[R]:
    """Replace the lock of a request by that in a bundle, `name` or the one that fits; the request then needs no network.

    The bundle is verified.
    """
    with _unpacked(path, listener, disk_bundle.verify_touched) as folder:
        _check_locks(folder)
        yield replace(request, lock=f"{folder}/{name or _fitting(folder, path, request)}", offline=True)


def _fitting(folder: str, path: str, request: PlanRequest | ApplyRequest) -> str:
    """The lock of a bundle for this machine; UsageError if there is not exactly one."""
    names = sorted(name for name in disk_bundle.read_sums(folder) if LOCK_NAMES.fullmatch(name))
    if len(names) > 1:
        book = gather_book(request)
        machine = machine_of(gather_facts(request, book), book)
        locks = {name: read_lock(f"{folder}/{name}") for name in names}
        fitting = [name for name, lock in locks.items() if not select(lock, machine).differences]
        if not fitting and request.env is not None:  # the new environment may have another Python
            machine = replace(machine, python=None, python_full=None)
            fitting = [name for name, lock in locks.items() if not select(lock, machine).differences]
        names = fitting or names
    if len(names) == 1:
        return names[0]
    hint = f"name one of them: {', '.join(f'{path}/{name}' for name in names)}" if names else "`bundle --add` adds one"
    raise UsageError(f"{path} has {len(names)} locks for this machine", code="bundle-lock", hint=hint)


def supplied(task: Task, folder: str, download: Download, listener: Listener, *, trusted: bool) -> Task:
    """Let a task use the files in a bundle folder; missing ones are downloaded into it.

    If this user cannot write there, missing files come from where the plan says.
    """
    disk.make_folder(folder)
    packages = (*task.install, *task.folder_wheels)
    check_known(packages, task.unpinned, trusted=trusted)
    files = [action.file for action in packages if action.file is not None and strong(action.file.hashes)]
    files = [file for file in files if not is_local(file.url)]
    if disk.writable(folder):
        sums = _collect(files, folder, download, listener)
        disk_bundle.add_to_list(folder, {f"{WHEELS}/{name}": digest for name, digest in sums.items()})
        names = set(sums)
    else:
        paths = {file.filename: f"{folder}/{WHEELS}/{disk_bundle.wheel_name(file.filename)}" for file in files}
        names = {file.filename for file in files if has_digest(paths[file.filename], *(strong(file.hashes) or ("", "")))}
    install, apart = (tuple(_from_folder(folder, action, names) for action in actions) for actions in (task.install, task.folder_wheels))
    return replace(task, install=install, folder_wheels=apart)


def _from_folder(folder: str, action: Any, names: Collection[str]) -> Any:
    """Let an action use its file in the folder, if that is one of the names."""
    if action.file is None or action.file.filename not in names:
        return action
    return replace(action, file=replace(action.file, url=file_url(disk.real(f"{folder}/{WHEELS}/{action.file.filename}"))))
