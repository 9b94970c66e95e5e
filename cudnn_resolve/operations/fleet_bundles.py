"""The files of a lock on the controller: fetched once, however many hosts they are carried to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256

from msgspec.structs import replace

from cudnn_resolve.errors import WorldError
from cudnn_resolve.facts.model import Facts
from cudnn_resolve.host import disk, user_folders
from cudnn_resolve.host.bundle import is_bundle
from cudnn_resolve.host.environment_lock import hold
from cudnn_resolve.host.files import read_bounded
from cudnn_resolve.locking.read_pylock import LIMIT_BYTES, read
from cudnn_resolve.operations.listener import SILENT, Listener
from cudnn_resolve.operations.lock import make_lock
from cudnn_resolve.operations.options import BundleRequest, FleetRequest, LockRequest, Options
from cudnn_resolve.operations.results import recast

_WAIT_SECONDS = 3600.0
"""For another process that fetches the same files."""
_INDEXES = ("index_url", "extra_index_url", "find_links", "offline")
_PLAIN = Options()


def bundle_of(lock: str, facts: Facts, listener: Listener = SILENT, *, whole: bool = True, asked: Options = _PLAIN) -> str:
    """The bundle of a lock, which is made where it is not there yet; `lock` may be the folder of a bundle itself.

    A lock of another tool does not say which machines it is for: it is for those like the one with these facts. One that is not `whole`
    lacks the wheels, which hosts fetch. The indexes are those of `asked`.
    """
    if is_bundle(lock) and disk.is_folder(lock):
        return lock
    text = read_bounded(lock, LIMIT_BYTES, "lock")
    python = ".".join((facts.python.version or "").split(".")[:2])
    arch = facts.platform.arch or "x86_64"
    own = read(text, lock).tool is not None
    name = sha256(f"{disk.real(lock)}\n{'' if own else python + arch}{'' if whole else ' outline'}\n{text}".encode()).hexdigest()[:16]
    folder = f"{_folder()}/{name}"
    disk.make_folder(folder)
    held = hold(folder, wait_seconds=_WAIT_SECONDS)
    if held is None:
        raise WorldError("another process is fetching the files of that lock", code="bundle-locked", context=lock)
    try:
        if not is_bundle(f"{folder}/bundle"):
            from cudnn_resolve.operations.bundle import bundle, outline

            stated = BundleRequest() if own else BundleRequest(platforms=(f"linux_{arch}",), python_version=python or None)
            stated = replace(stated, lock=lock, output=f"{folder}/bundle", **{name: getattr(asked, name) for name in _INDEXES})
            if whole:
                bundle(stated, listener)
            else:
                outline(stated, f"{folder}/bundle")
    finally:
        held.release()
    return f"{folder}/bundle"


def lock_request(request: FleetRequest, facts: Facts, path: str) -> LockRequest:
    """What `lock` is asked for a host with these facts."""
    return recast(LockRequest, request, given=facts, output=path, facts=None, python=None, env=None)


def lock_for(asked: LockRequest) -> str:
    """The path of a lock with what is resolved for a host; WorldError where nothing fits it."""
    made = make_lock(asked)
    if made.lock is None:
        why = made.plan.conflict.message if made.plan is not None and made.plan.conflict is not None else "no set of versions fits"
        raise WorldError(f"{', '.join((*asked.framework, *asked.packages))}: {why}", code="unsatisfiable")
    path = f"{_folder()}/{sha256(made.text.encode()).hexdigest()[:16]}.toml"
    disk.write_whole(path, made.text.encode())
    return path


def _folder() -> str:
    """Where bundles and locks of fleets lie."""
    return user_folders.private_folder(f"{user_folders.state_folder()}/fleet")


@contextmanager
def in_use() -> Iterator[None]:
    """Keep `clean` away from them; several may need them at the same time."""
    held = hold(_folder(), wait_seconds=_WAIT_SECONDS, shared=True)
    try:
        yield
    finally:
        if held is not None:
            held.release()
