"""What holds for every test: it sees nothing of this machine, and it reaches nobody but this machine.

A test marked `network` keeps the package index that the developer has configured; everything else is taken from it, too. One marked `gpu`
keeps what leads to the driver and the libraries of this machine.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cudnn_resolve.host import tables
from tests.functional.interpreters import interpreters
from tests.program import opened

if TYPE_CHECKING:
    from tests.index_server import IndexServer

# A machine with a card may have pytest and nothing else: the tests marked gpu need no more.
with suppress(ImportError):
    from hypothesis import HealthCheck, settings

    from tests.examples import THOROUGH

    # Nothing is judged by a clock, which on a busy machine says little.
    UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    SAME = settings(UNTIMED, derandomize=True, database=None) if os.environ.get("CI") else UNTIMED
    settings.register_profile("quick", SAME, max_examples=10)
    settings.register_profile("thorough", SAME, max_examples=THOROUGH)
    settings.load_profile("quick")  # --hypothesis-profile=thorough comes after this

INDEX_PREFIXES = ("PIP_", "UV_")
"""What tells pip and uv where packages come from."""
MACHINE_PREFIXES = (
    "COLAB_",
    "CONDA_",
    "CUDA_",
    "CUDNN_",
    "KAGGLE_",
    "LC_",
    "LD_",
    "NV_",
    "NVIDIA_",
    "PYENV_",
    "PYTHON",
    "VIRTUAL_ENV",
    "WSL_",
    "XDG_",
)
"""What tells a program about the machine, its libraries or its user."""
DEAD_PROXY = "http://127.0.0.1:9"
"""The discard port: a child that wants to leave the machine gets a refusal at once."""
LOOPBACK = ("localhost", "127.", "::1")


class SocketForbiddenError(RuntimeError):
    """A test that is not marked `network` reached out."""


class _Gate:
    """Whether sockets may leave this machine just now; an audit hook cannot be taken away again, so it asks here."""

    open = True


def _is_local(address: object) -> bool:
    """True for a Unix socket, for a loopback address and for no host at all."""
    host = address[0] if isinstance(address, tuple) and address else address
    if isinstance(host, bytes):
        host = host.decode("ascii", "replace")
    return not isinstance(host, str) or not host or host.startswith(("/", "\0", *LOOPBACK))


_ADDRESSES = {"socket.connect": 1, "socket.sendto": 1, "socket.sendmsg": 1, "socket.getaddrinfo": 0, "socket.gethostbyname": 0}
"""Audited events that are about an address, and which of their arguments that is."""


def _guard(event: str, arguments: tuple[object, ...], gate: type[_Gate] = _Gate, places: Mapping[str, int] = _ADDRESSES) -> None:
    """Refuse what leaves the machine: called by the interpreter for each audited event, even when this module is gone."""
    place = places.get(event)
    if place is None or gate.open:
        return
    address = arguments[place]
    if not _is_local(address):
        raise SocketForbiddenError(f"{event} to {address!r} in a test that is not marked `network`")


sys.addaudithook(_guard)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One worker for each processor: another one would collect the tests and make the fixtures of a session once more."""
    return len(os.sched_getaffinity(0))


def pytest_configure(config: pytest.Config) -> None:
    """Look for interpreters once, not in each worker."""
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        os.environ["TESTED_INTERPRETERS"] = json.dumps(interpreters())


def pytest_collection_finish(session: pytest.Session) -> None:
    """What was collected lives until the end: the garbage collector need not look at it again and again."""
    del session
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option that writes tests/golden/ anew instead of comparing with it."""
    parser.addoption("--update-golden", action="store_true", help="write the expected texts of tests/golden/ anew; look at the difference")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """A function that holds a text against the file of that name in tests/golden/."""

    def compare(name: str, text: str) -> None:
        path = Path(__file__).parent / "golden" / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, "utf-8")
        assert text == path.read_text("utf-8"), f"tests/golden/{name} differs; --update-golden writes it anew"

    return compare


@pytest.fixture
def index() -> Iterator[IndexServer]:
    """A package index on the loopback interface, empty at first."""
    from tests.index_server import IndexServer

    with IndexServer() as server:
        yield server


@pytest.fixture(scope="session")
def compiled_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copies of the shipped tables for all tests of all workers: a copy counts only for the very bytes of its table."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "tables"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


@pytest.fixture(scope="session", autouse=True)
def fetched(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One cache of uv for all tests marked `network`: gigabytes are fetched and unpacked once, and then linked."""
    if not any(one.get_closest_marker("network") for one in request.session.items):
        yield
        return
    folder = tmp_path_factory.mktemp("uv")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UV_CACHE_DIR", str(folder))
        yield
    shutil.rmtree(folder)


class Homes:
    """Homes for tests; one that a test left as it was serves the next one, since making it takes longer than most tests."""

    def __init__(self, factory: pytest.TempPathFactory, tables: Path) -> None:
        self._factory = factory
        self._tables = tables
        self._free: Path | None = None

    def take(self) -> Path:
        """A home that holds nothing but a cache with the copies of tables."""
        home, self._free = self._free, None
        if home is None:
            home = self._factory.mktemp("home")
            (home / ".cache/cudnn-resolve").mkdir(parents=True)
            (home / ".cache/cudnn-resolve/tables-v2").symlink_to(self._tables)
        return home

    def give_back(self, home: Path) -> None:
        """Keep the home for the next test, or remove it where anything was written."""
        as_it_was = ((".", ".cache"), (".cache", "cudnn-resolve"), (".cache/cudnn-resolve", "tables-v2"))
        with suppress(OSError):
            if home.stat().st_mode & 0o777 == 0o700 and all(os.listdir(home / folder) == [name] for folder, name in as_it_was):
                self._free = home
                return
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory, compiled_tables: Path) -> Homes:
    """The homes of this worker."""
    return Homes(tmp_path_factory, compiled_tables)


@pytest.fixture(autouse=True)
def isolation(request: pytest.FixtureRequest, homes: Homes, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home of its own for each test, which it gives; no settings of this machine's user, libraries or GPUs; sockets shut.

    Only the shipped tables are common to all: else each test would read them again.
    """
    network = request.node.get_closest_marker("network") is not None
    home = homes.take()
    # A test on a GPU is about this machine: its driver may be found by nothing but LD_LIBRARY_PATH.
    machine = () if request.node.get_closest_marker("gpu") else MACHINE_PREFIXES
    dropped = machine if network else (*machine, *INDEX_PREFIXES)
    for name in list(os.environ):
        if name.startswith(dropped):
            monkeypatch.delenv(name)
    for name, folder in (("CACHE", ".cache"), ("STATE", ".local/state"), ("DATA", ".local/share")):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(home / folder))
    for name, value in (("COLUMNS", "100"), ("LC_ALL", "C.UTF-8"), ("LANG", "C.UTF-8"), ("NO_COLOR", "1"), ("TERM", "dumb"), ("TZ", "UTC")):
        monkeypatch.setenv(name, value)
    if not network:
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_DISABLE_PIP_VERSION_CHECK", "1")
        monkeypatch.setenv("UV_NO_CONFIG", "1")
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, DEAD_PROXY)
            monkeypatch.setenv(name.lower(), DEAD_PROXY)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.setenv(name, "localhost,127.0.0.1,::1")
    monkeypatch.setattr(tables, "open_book", opened)
    monkeypatch.setattr(_Gate, "open", network)
    yield home
    _Gate.open = True
    homes.give_back(home)
