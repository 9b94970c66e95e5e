"""Bundles on the Ansible controller: the files of each lock are downloaded once for all hosts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256

from msgspec.structs import replace

from cudnn_resolve.errors import WorldError
from cudnn_resolve.facts.model import Facts
from cudnn_resolve.host import disk, user_folders
from cudnn_resolve.host.bundle import is_bundle
from cudnn_resolve.host.environment_mutex import hold
from cudnn_resolve.listener import SILENT, Listener
from cudnn_resolve.locking.read_pylock import read
from cudnn_resolve.operations.lock import make_lock
from cudnn_resolve.operations.lock_file import lock_text
from cudnn_resolve.operations.options import BundleRequest, FleetRequest, LockRequest, Options
from cudnn_resolve.operations.results import recast

_WAIT_SECONDS = 3600.0
"""How long to wait for another process that downloads the same files."""
_INDEX_OPTIONS = ("index_url", "extra_index_url", "find_links", "offline")
_DEFAULTS = Options()


def bundle_of(lock: str, facts: Facts, listener: Listener = SILENT, *, whole: bool = True, options: Options = _DEFAULTS) -> str:
    """Path of the bundle for a lock, made on first use; `lock` may itself be the folder of a bundle.

    A lock of another tool names no machines: its bundle is for machines like that of the facts. If not `whole`, the bundle lacks the
    wheels, which the hosts download. The indexes are those of `options`.
    """
    if is_bundle(lock) and disk.is_folder(lock):
        return lock
    text = lock_text(lock)
    python = facts.python.minor
    arch = facts.platform.arch or "x86_64"
    is_ours = read(text, lock).tool is not None
    machine = "" if is_ours else python + arch
    name = sha256(f"{disk.real(lock)}\n{machine}{'' if whole else ' outline'}\n{text}".encode()).hexdigest()[:16]
    folder = f"{_folder()}/{name}"
    disk.make_folder(folder)
    handle = hold(folder, wait_seconds=_WAIT_SECONDS)
    if handle is None:
        raise WorldError("another process is downloading the files of that lock", code="bundle-locked", context=lock)
    try:
        if not is_bundle(f"{folder}/bundle"):
            from cudnn_resolve.operations.bundle import bundle, outline

            request = BundleRequest() if is_ours else BundleRequest(platforms=(f"linux_{arch}",), python_version=python or None)
            indexes = {option: getattr(options, option) for option in _INDEX_OPTIONS}
            request = replace(request, lock=lock, output=f"{folder}/bundle", **indexes)
            if whole:
                bundle(request, listener)
            else:
                outline(request, f"{folder}/bundle")
    finally:
        handle.release()
    return f"{folder}/bundle"


def lock_request(request: FleetRequest, facts: Facts, path: str) -> LockRequest:
    """Request to lock for a host with these facts."""
    return recast(LockRequest, request, given=facts, output=path, facts=None, python=None, env=None)


def lock_for(request: LockRequest) -> str:
    """Path of a new lock for a host; WorldError if there is no resolution."""
    result = make_lock(request)
    if result.lock is None:
        conflict = result.plan.conflict if result.plan is not None else None
        why = conflict.message if conflict is not None else "no set of versions fits"
        raise WorldError(f"{', '.join((*request.framework, *request.packages))}: {why}", code="unsatisfiable")
    path = f"{_folder()}/{sha256(result.text.encode()).hexdigest()[:16]}.toml"
    disk.write_whole(path, result.text.encode())
    return path


def _folder() -> str:
    """Folder of the bundles and locks."""
    return user_folders.private_folder(f"{user_folders.state_folder()}/fleet")


@contextmanager
def in_use() -> Iterator[None]:
    """Keep `clean` from removing the folder; several processes may use it at the same time."""
    handle = hold(_folder(), wait_seconds=_WAIT_SECONDS, shared=True)
    try:
        yield
    finally:
        if handle is not None:
            handle.release()
