"""A world in which one system call of `apply` fails, or is its last: `native/faults.c` says which calls are meant.

Run as a program it serves such runs to its parent: the command line is imported once, and each run is a fork of that. A line of JSON comes
in for each run, a line of JSON goes out.
"""

from __future__ import annotations

import compileall
import contextlib
import ctypes
import errno
import importlib
import json
import os
import pickle
import pkgutil
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import cudnn_resolve
from tests.apply_world import ROOT
from tests.index_server import IndexServer
from tests.kill_world import PINS, KillWorld

TEN = {**PINS, "filelock": "3.13.1", "sympy": "1.13.1", "networkx": "3.2.1", "jinja2": "3.1.4", "fsspec": "2024.6.1", "mpmath": "1.3.0"}
MODES = {"count": (0, 0), "kill": (1, 0), "EIO": (2, errno.EIO), "ENOSPC": (3, errno.ENOSPC)}
"""What happens at a call: nothing, the end of every process, an error, or a disk that is full from then on."""
_SOURCE = ROOT / "tests" / "native" / "faults.c"
_CHANGING = ("venv", "state", "cache", "tmp", "uv-cache")
"""What a run changes."""
_TRIES = 20


class Outcome(NamedTuple):
    """What became of one run."""

    code: int
    """The exit code; negative for a signal."""
    output: str
    reached: bool
    """True where the call was made, and failed."""
    seen: int
    """Calls up to the end."""
    what: str
    """The call that failed, and the path that it was about."""


class FaultWorld(KillWorld):
    """An environment of its own, ten wheels, and runs of the command line in it with a fault; `close` ends what serves them."""

    def __init__(self, base: Path, installer: str, served: IndexServer) -> None:
        super().__init__(base / "world", installer, served, pins=TEN)
        self.beside = base
        """Folder for what must not be counted."""
        self._server: subprocess.Popen[str] | None = None

    def build(self, *, modules: int = 1) -> None:
        super().build(modules=modules)
        for lent in self.template.glob("lib/python3*/site-packages/pip"):
            compileall.compile_dir(lent, quiet=2, ddir=str(self.site / "pip"))  # or pip compiles itself in each run
        subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", str(self.beside / "faults.so"), str(_SOURCE)], check=True)

    def environ(self) -> dict[str, str]:
        own = {name: str(self.base / folder) for name, folder in (("TMPDIR", "tmp"), ("XDG_CACHE_HOME", "cache"))}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin:/sbin"
        return {**super().environ(), **own, "PATH": path, "PYTHONDONTWRITEBYTECODE": "1"}

    def reset(self) -> None:
        """As it was before anything; caches are cold."""
        mirror(self.template, self.venv)
        for folder in (self.state, self.base / "uv-cache", self.base / "cache", self.base / "tmp"):
            shutil.rmtree(folder, ignore_errors=True)
        (self.base / "tmp").mkdir()

    def keep(self, name: str) -> None:
        """Remember the world as it is now under a name."""
        for part in ("venv", "state"):
            shutil.rmtree(self.beside / name / part, ignore_errors=True)
            getattr(self, part).mkdir(exist_ok=True)
            shutil.copytree(getattr(self, part), self.beside / name / part, symlinks=True)

    def bring_back(self, name: str) -> None:
        """The world as it was remembered; the environment's own folder stays the same one, by which it is known."""
        self.reset()
        mirror(self.beside / name / "venv", self.venv)
        mirror(self.beside / name / "state", self.state)

    def words(self, verb: str) -> list[str]:
        means = [str(self.lock), "--installer", self.installer] if verb == "apply" else [f"--{verb}"]
        return ["apply", "--python", self.python, "-q", "--yes", *means]

    def bring_back_image(self, image: Image) -> None:
        """The world as it was in an image; folders stay the same ones."""
        inner: dict[str, list[str]] = {"": []}
        for path, entry in image.items():
            inner[os.path.dirname(path)].append(path)
            if stat.S_ISDIR(entry.mode):
                inner[path] = []
        for name in _CHANGING:
            if name in image:
                _restore(image, inner, name, self.base)
            else:
                shutil.rmtree(self.base / name, ignore_errors=True)

    def run(self, words: list[str], *, mode: str = "count", at: int = 0, log: Path | None = None, images: Path | None = None) -> Outcome:
        """Run the command line, with the fault of that mode at the call of that number, or with an image of the world at each call."""
        if self._server is None:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "tests.fault_world", str(self.beside), str(self.base)],
                env={**self.environ(), "PYTHONPATH": str(ROOT)},
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        asked = {"words": words, "mode": mode, "at": at, "log": str(log or ""), "images": str(images or "")}
        self._server.stdin.write(json.dumps(asked) + "\n")
        self._server.stdin.flush()
        return Outcome(**json.loads(self._server.stdout.readline()))

    def recover(self) -> tuple[int, str]:
        """What the program in the newest journal's folder does: the way back without us."""
        found = sorted(self.state.glob("cudnn-resolve/environments/*/*/recover.py"))
        done = subprocess.run(["python3", str(found[-1])], capture_output=True, text=True, check=False) if found else None
        return (done.returncode, done.stdout + done.stderr) if done else (0, "")

    def close(self) -> None:
        if self._server is not None and self._server.stdin is not None:
            self._server.communicate()
            self._server = None


class Entry(NamedTuple):
    """What lies at a path."""

    mode: int
    time: int
    content: bytes | str
    """Bytes of a file, target of a link, empty for a folder."""


Image = dict[str, Entry]
"""Path below the world to what lay there; a folder comes before what is in it."""


class Images:
    """Copies of the world in memory; what did not change in between is held once."""

    def __init__(self, base: Path) -> None:
        self.all: list[Image] = []
        self._base = len(str(base)) + 1
        self._roots = [str(base / name) for name in _CHANGING]
        self._last: dict[str, tuple[tuple[int, ...], str, Entry]] = {}

    def take(self, _number: int = 0) -> None:
        """One more; a call of another thread that was under way already may change something meanwhile."""
        for _ in range(_TRIES):
            found: dict[str, tuple[tuple[int, ...], str, Entry]] = {}
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                for root in self._roots:
                    if os.path.lexists(root):
                        self._look(root, os.lstat(root), found)
                break
        self._last = found
        self.all.append({name: entry for _, name, entry in found.values()})

    def _look(self, path: str, now: os.stat_result, found: dict[str, tuple[tuple[int, ...], str, Entry]]) -> None:
        facts = (now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns, now.st_mode)
        before = self._last.get(path)
        if before is not None and before[0] == facts:
            found[path] = before
        else:
            content = os.readlink(path) if stat.S_ISLNK(now.st_mode) else Path(path).read_bytes() if stat.S_ISREG(now.st_mode) else ""
            found[path] = (facts, before[1] if before else path[self._base :], Entry(now.st_mode, now.st_mtime_ns, content))
        if stat.S_ISDIR(now.st_mode):
            with os.scandir(path) as entries:
                for one in entries:
                    self._look(one.path, one.stat(follow_symlinks=False), found)


def _restore(image: Image, inner: dict[str, list[str]], path: str, base: Path) -> None:
    entry, place = image[path], base / path
    now = os.lstat(place) if os.path.lexists(place) else None
    if now is not None and stat.S_IFMT(now.st_mode) != stat.S_IFMT(entry.mode):
        shutil.rmtree(place) if stat.S_ISDIR(now.st_mode) else place.unlink()
        now = None
    if stat.S_ISLNK(entry.mode):
        if now is None or os.readlink(place) != entry.content:
            place.unlink(missing_ok=True)
            os.symlink(entry.content, place)
        return
    if stat.S_ISREG(entry.mode):
        assert isinstance(entry.content, bytes)
        same = now is not None and (now.st_size, now.st_mtime_ns, now.st_mode) == (len(entry.content), entry.time, entry.mode)
        if same and place.read_bytes() == entry.content:
            return
        place.unlink(missing_ok=True)
        place.write_bytes(entry.content)
    else:
        place.mkdir(exist_ok=True)
        wanted = {os.path.basename(one) for one in inner[path]}
        for other in [one for one in os.scandir(place) if one.name not in wanted]:
            shutil.rmtree(other.path) if other.is_dir(follow_symlinks=False) else os.unlink(other.path)
        for one in inner[path]:
            _restore(image, inner, one, base)
    os.chmod(place, stat.S_IMODE(entry.mode))
    os.utime(place, ns=(entry.time, entry.time))


def mirror(source: Path, target: Path) -> None:
    """Make one folder as the other, changing no more than differs."""
    target.mkdir(exist_ok=True)
    wanted = {one.name: one for one in os.scandir(source)}
    for one in os.scandir(target):
        same = wanted.get(one.name)
        if same is None or same.is_dir(follow_symlinks=False) != one.is_dir(follow_symlinks=False) or same.is_symlink() != one.is_symlink():
            shutil.rmtree(one.path) if one.is_dir(follow_symlinks=False) else os.unlink(one.path)
    for name, one in wanted.items():
        place = target / name
        if one.is_dir(follow_symlinks=False):
            mirror(Path(one.path), place)
        elif one.is_symlink():
            if not place.is_symlink() or place.readlink() != Path(one.path).readlink():
                place.unlink(missing_ok=True)
                place.symlink_to(Path(one.path).readlink())
        elif not place.exists() or _facts(place.stat()) != _facts(one.stat()) or place.read_bytes() != Path(one.path).read_bytes():
            place.unlink(missing_ok=True)
            shutil.copy2(one.path, place)
    shutil.copystat(source, target)


def _facts(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_size, found.st_mtime_ns, found.st_mode


class Trial:
    """A command of which one call fails, and what is looked at afterwards.

    With `images` the world is copied before each call of one run. A kill leaves nothing else than that, so that the command need not run
    again for each kill.
    """

    def __init__(self, world: FaultWorld, during: str, *, images: bool = False) -> None:
        self.world = world
        self.during = during
        self.points: list[Point] = []
        self.images: list[Image] = []
        world.reset()
        self.former = world.former()
        log = world.beside / "points.txt"
        done = world.run(world.words("apply"), log=log)
        self.planned = world.planned()
        if done.code or self.planned == self.former:
            raise RuntimeError(f"there is nothing to fail: {done}")
        if during == "resume":
            changed = [one.number for one in read_points(log) if one.place == "environment"]
            for _ in range(9):  # threads make some calls more or less in each run, so that this one may come too late
                world.reset()
                world.run(world.words("apply"), mode="kill", at=changed[len(changed) // 2])
                if world.former() != self.former and world.planned() != self.planned:
                    break
        world.keep("begin")
        self.begin = world.former()
        if during == "apply":
            world.reset()
            world.keep("begin")
        if during != "apply" or images:
            world.bring_back("begin")
            kept = world.beside / "images"
            done = world.run(world.words(during), log=log, images=kept if images else None)
            if done.code:
                raise RuntimeError(f"{during} fails without a fault: {done}")
            self.images = pickle.loads(kept.read_bytes()) if images else []  # noqa: S301 - our own
        self.points = read_points(log)
        assert not images or len(self.images) == len(self.points)

    def strike(self, mode: str, at: int, then: str) -> tuple[Outcome, str]:
        """Fail at a call, then give the next command: what became of the first, and what is wrong, empty where nothing is."""
        first = self._fail(mode, at)
        if not first.reached:
            return first, ""
        wrong = self._judge(first, mode)
        if then == "recover.py":
            code, said = self.world.recover()
            if code or "Traceback" in said or self._state() == "between":
                wrong += f"; recover.py: {code} {said!r}, {self._state()}"
            then = "undo"
        second = self.world.run(self.world.words(then))
        wanted = "planned" if then == "apply" else "former"
        if second.code or _is_bug(second.output) or self._state() != wanted:
            wrong += f"; then {then}: {second.code}, {second.output!r}, {self._state()}, {self._differences(wanted)}"
        return first, wrong.strip("; ")

    def _fail(self, mode: str, at: int) -> Outcome:
        if mode == "kill" and self.images:
            self.world.bring_back_image(self.images[at - 1])
            point = self.points[at - 1]
            return Outcome(-signal.SIGKILL, "", True, at, f"{point.name} {point.path}")
        self.world.bring_back("begin")
        return self.world.run(self.world.words(self.during), mode=mode, at=at)

    def _judge(self, first: Outcome, mode: str) -> str:
        if _is_bug(first.output):
            return f"a traceback: {first.output!r}"
        if mode == "kill":
            return ""
        state = self._state()
        back = ("former", "planned" if self.during == "undo" else "untouched")
        wanted = {0: ("former",) if self.during == "undo" else ("planned",), 3: back, 4: back}
        if first.code not in (0, 3, 4, 5) or state not in wanted.get(first.code, (state,)):
            return f"exit code {first.code}, and it is {state}: {first.output!r}"
        return "" if first.output.strip() else "it said nothing"

    def _state(self) -> str:
        found = self.world.former()
        if found == self.former:
            return "former"
        if self.world.planned() == self.planned:
            return "planned"
        return "untouched" if found == self.begin else "between"

    def _differences(self, wanted: str) -> list[str]:
        found, right = (self.world.planned(), self.planned) if wanted == "planned" else (self.world.former(), self.former)
        return [one for one in sorted({*found, *right}) if found.get(one) != right.get(one)][:8]


class Point(NamedTuple):
    """One call that can fail."""

    number: int
    room: bool
    """True where it needs room on the disk."""
    name: str
    path: str
    place: str
    """`environment`, `journal`, `staging` or `cache`."""


def read_points(log: Path) -> list[Point]:
    out = []
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        number, room, name, path = line.split(" ", 3)
        out.append(Point(int(number), room == "R", name, path, place_of(path)))
    return out


def place_of(path: str) -> str:
    inner = path.partition("/world/")[2]
    if inner.startswith("venv"):
        return "environment"
    if inner.startswith("state"):
        return "staging" if "/staging" in inner or "/wheels" in inner else "journal"
    return "cache"


def _is_bug(output: str) -> bool:
    return "Traceback" in output or "internal error" in output


class _Told(ctypes.Structure):
    _fields_ = (("seen", ctypes.c_long), ("reached", ctypes.c_int), ("status", ctypes.c_int), ("what", ctypes.c_char * 4096))


_PAUSE = ctypes.CFUNCTYPE(None, ctypes.c_long)


def _serve(library: ctypes.CDLL, beside: Path, below: str, asked: dict[str, Any]) -> Outcome:
    from cudnn_resolve.cli.main import main

    output = beside / "output.txt"
    child = os.fork()
    if child == 0:
        code = 99
        try:
            os.setsid()
            handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for one in (1, 2):
                os.dup2(handle, one)
            os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
            if library.fault_child() == 0:
                code = main(asked["words"])
                sys.stdout.flush()
                sys.stderr.flush()
        finally:
            os._exit(code)
    told = _Told()
    mode, number = MODES[asked["mode"]]
    images = Images(Path(below))
    pause = _PAUSE(images.take) if asked["images"] else _PAUSE()
    at = ctypes.c_long(asked["at"])
    library.fault_trace(child, os.fsencode(below), at, mode, number, os.fsencode(asked["log"]), pause, ctypes.byref(told))
    if asked["images"]:
        Path(asked["images"]).write_bytes(pickle.dumps(images.all))
    said = output.read_text(encoding="utf-8", errors="replace")
    return Outcome(os.waitstatus_to_exitcode(told.status), said, bool(told.reached), told.seen, told.what.decode("utf-8", "replace"))


def serve(words: list[str]) -> None:
    """Serve runs until the parent has no more."""
    own = [one.name for one in pkgutil.walk_packages(cudnn_resolve.__path__, "cudnn_resolve.")]
    for name in ("elftools.elf.elffile", "packaging.pylock", "platformdirs.unix", "requests.adapters", *own):
        if "payload" not in name and "__main__" not in name:
            importlib.import_module(name)  # so that no run has to
    beside = Path(words[0])
    library = ctypes.CDLL(str(beside / "faults.so"))
    for line in sys.stdin:
        sys.stdout.write(json.dumps(_serve(library, beside, words[1], json.loads(line))._asdict()) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    from tests import fault_world

    fault_world.serve(sys.argv[1:])  # by its own name: what it pickles is read elsewhere
