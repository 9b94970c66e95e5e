"""Exchange a whole environment of this machine for the one that a bundle makes, and back: completely or not at all.

A fleet's controller sends this program with a job to a Python of the machine, which needs nothing else. The old environment is moved into a
folder next to it and stays there until the next exchange; a journal in that folder says what to put back. Python 3.6 grammar, standard
library only.
"""

import contextlib
import fcntl
import json
import os
import platform
import re
import shutil
import signal
import stat
import subprocess
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

MANIFEST = ".cudnn-resolve.json"
"""File in an environment made by an exchange: its plan and packages."""
UNFINISHED = ".cudnn-resolve-unfinished"
"""File in an environment that `start.py` is making."""
TOOLS = {"pip", "setuptools", "wheel"}
_INFO = re.compile(r"(.+)-([^-]+)\.(?:dist|egg)-info")


class RefusedError(Exception):
    """Error message for the user."""


class Place:
    """An environment, those that were moved aside for it, and the journal of the exchange."""

    def __init__(self, path: str) -> None:
        self.path = path = os.path.abspath(path)
        self.aside = os.path.join(os.path.dirname(path), ".{}.cudnn-resolve".format(os.path.basename(path)))
        self.previous = os.path.join(self.aside, "previous")
        self.older = os.path.join(self.aside, "older")
        self.journal = os.path.join(self.aside, "journal.json")
        self.held = ()  # type: tuple[int, ...]

    @contextlib.contextmanager
    def alone(self) -> "Iterator[None]":
        """Lock out every other exchange of this environment."""
        os.makedirs(self.aside, mode=0o755, exist_ok=True)
        found = os.lstat(self.aside)
        owners = (0, os.geteuid(), os.stat(os.path.dirname(self.aside)).st_uid)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in owners:  # others may write to its parent, such as /tmp
            raise RefusedError("{} belongs to another user".format(self.aside))
        handle = os.open(self.aside, os.O_RDONLY | os.O_DIRECTORY)
        busy = "{}: another run is changing it".format(self.path)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise RefusedError(busy) from None
        try:
            if not os.fstat(handle).st_nlink:  # another run has just removed it
                raise RefusedError(busy)
            self.held = (handle,)
            yield
        finally:
            self.held = ()
            with contextlib.suppress(OSError):
                os.rmdir(self.aside)  # if it is empty
            os.close(handle)

    def discard(self, path: str) -> None:
        """Move a folder or link out of the way; `sweep` removes it."""
        if os.path.lexists(path):
            os.rename(path, os.path.join(self.aside, "gone-{}".format(int(time.time() * 1e6))))

    def sweep(self) -> None:
        """Remove what was discarded; files in use on a network disk may resist, which does no harm."""
        for name in names_in(self.aside):
            path = os.path.join(self.aside, name)
            if name.startswith("gone-") and os.path.islink(path):
                os.unlink(path)
            elif name.startswith("gone-"):
                shutil.rmtree(path, ignore_errors=True)

    def read(self) -> "dict[str, Any]":
        """Return the journal; empty if there is none."""
        return read_object(self.journal)

    def write(self, content: "dict[str, Any] | None") -> None:
        """Replace the journal atomically and sync it to the disk; None removes it."""
        if content is None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.journal)
        else:
            with open(self.journal + ".new", "w", encoding="utf-8") as stream:
                json.dump(content, stream)
                stream.flush()
                os.fsync(stream.fileno())
            os.rename(self.journal + ".new", self.journal)
        handle = os.open(self.aside, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(handle)
        os.close(handle)


def installed(path: str) -> "dict[str, str]":
    """Packages of an environment and their versions, by normalized name."""
    found = {}
    for folder in package_folders(path):
        for name in names_in(folder):
            info = _INFO.fullmatch(name)
            if info and os.path.isdir(os.path.join(folder, name)):
                found[normalized(info.group(1))] = info.group(2)
    return found


def package_folders(path: str) -> "list[str]":
    """Folders of packages of an environment."""
    below = os.path.join(path, "lib")
    return [os.path.join(below, name, "site-packages") for name in names_in(below) if name.startswith("python3.")]


def names_in(path: str) -> "list[str]":
    """Sorted names in a folder; empty if it cannot be read."""
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []


def normalized(name: str) -> str:
    """Name of a package as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def manifest_of(path: str) -> "dict[str, Any]":
    """Manifest of an environment made by an exchange; empty for any other."""
    return read_object(os.path.join(path, MANIFEST))


def read_object(path: str) -> "dict[str, Any]":
    """JSON object in a file; empty if there is none."""
    try:
        with open(path, encoding="utf-8") as stream:
            found = json.load(stream)
        return found if isinstance(found, dict) else {}
    except (OSError, ValueError):
        return {}


def look(place: Place, job: "dict[str, Any]") -> "dict[str, Any]":
    """Report what an exchange would change."""
    machine = "linux_" + platform.machine()
    plan = job["plan"]["platforms"].get(machine)
    if plan is None:
        platforms = ", ".join(sorted(job["plan"]["platforms"]))
        raise RefusedError("the lock is for {}, and this machine is {}".format(platforms, machine))
    before = installed(place.path)
    after = {normalized(package["name"]): package["version"] for package in plan["packages"]}
    same = all(before.get(name) == version for name, version in after.items())
    pythons = {os.path.basename(os.path.dirname(folder)) for folder in package_folders(place.path)}
    same = same and pythons == {"python" + job["plan"]["python"]}
    if (plan["apart"] or plan["files"]) and manifest_of(place.path).get("plan") != plan:
        same = False
    extra = sorted(name for name in before if name not in after and name not in TOOLS)
    is_open = place.read().get("state", "done") != "done"
    return {"changed": not same or is_open, "before": before, "after": after, "extra": extra, "cut_off": is_open, "plan": plan}


def put(place: Place, job: "dict[str, Any]") -> "dict[str, Any]":
    """Replace the environment with that of the bundle."""
    with place.alone():
        notes = recover(place)
        seen = look(place, job)
        if not seen["changed"]:
            return {"changed": False, "said": notes, "before": seen["before"], "after": seen["after"]}
        exists = os.path.lexists(place.path)
        refuse_foreign(place, seen["extra"], job)
        before = place.read()
        notes += in_use(place.path)
        place.discard(place.older)
        if os.path.lexists(place.previous):
            os.rename(place.previous, place.older)
        run = "{}-{}".format(int(time.time() * 1e6), os.getpid())
        place.write({"state": "begun", "had": exists, "before": before, "run": run})
        try:
            if exists:
                os.rename(place.path, place.previous)
            if job.get("fetch"):
                fetch(job, seen["plan"], place)
            start(job, place)
            with open(os.path.join(place.path, MANIFEST), "w", encoding="utf-8") as stream:
                json.dump({"plan": seen["plan"], "packages": sorted(seen["after"])}, stream)
            os.sync()
        except BaseException:
            back(place)
            raise
    return {"changed": True, "said": notes, "run": run, "before": seen["before"], "after": installed(place.path)}


def refuse_foreign(place: Place, extra: "list[str]", job: "dict[str, Any]") -> None:
    """Refuse to replace what was not made by an exchange: packages outside of the lock, another folder, a mount point."""
    made = manifest_of(place.path).get("packages", ())
    foreign = [name for name in extra if name not in made]
    if foreign and not job.get("replace"):
        raise RefusedError(
            "{} has packages that the lock does not have: {}; --replace moves it aside anyway".format(place.path, few(foreign))
        )
    is_venv = os.path.isfile(os.path.join(place.path, "pyvenv.cfg"))
    if os.path.lexists(place.path) and not is_venv and names_in(place.path) != []:
        raise RefusedError("{} exists and is not a virtual environment".format(place.path))
    if os.path.ismount(place.path):
        raise RefusedError("{} is a mount point: name a folder below it".format(place.path))


def in_use(path: str) -> "list[str]":
    """Note about processes that have mapped files of the environment; only root sees those of other users."""
    found = []
    for name in names_in("/proc") if os.path.isdir(path) else ():
        if name.isdigit():
            with contextlib.suppress(OSError), open("/proc/{}/maps".format(name), errors="surrogateescape") as lines:
                if any(os.path.realpath(path) + "/" in line for line in lines):
                    found.append(name)
    return ["in use by process {}: restart it".format(", ".join(found[:5]))] if found else []


def call(place: Place, words: "list[str]") -> "tuple[int, list[str]]":
    """Run a program; returns its exit code and the lines of its standard error.

    It and its children end with this process, because none may write where the old environment is put back. If this process is killed, the
    program keeps the lock, and so other runs out, until it ends.
    """
    with subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        pass_fds=place.held,
    ) as child:
        try:
            text = child.communicate()[1].decode("utf-8", "replace")
        finally:
            with contextlib.suppress(OSError):
                os.killpg(child.pid, signal.SIGKILL)
    return child.returncode, [line.strip() for line in text.splitlines() if line.strip()]


def fetch(job: "dict[str, Any]", plan: "dict[str, Any]", place: Place) -> None:
    """Fetch the wheels with this machine's pip and index; the start script verifies them."""
    minor = job["plan"]["python"]
    python = job.get("python") or (sys.executable if minor == "{}.{}".format(*sys.version_info[:2]) else shutil.which("python" + minor))
    if not python:
        raise RefusedError("the lock needs Python {}, which is not on PATH".format(minor))
    wheels = os.path.join(job["bundle"], "wheels")
    pins = os.path.join(job["bundle"], "pins.txt")
    with open(pins, "w", encoding="utf-8") as stream:
        for package in plan["packages"] + plan["apart"]:
            stream.write("{}=={}".format(package["name"], package["version"]))
            stream.write("".join(" --hash=sha256:" + digest for digest in sorted(package["wheels"].values())) + "\n")
    words = [python, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
    code, lines = call(place, [*words, "--require-hashes", "-d", wheels, "-r", pins])
    if code:
        raise RefusedError("the host's pip: " + (lines or ["failed"])[-1])


def start(job: "dict[str, Any]", place: Place) -> None:
    """Run the start script of the bundle."""
    words = [
        sys.executable,
        "-I",
        os.path.join(job["bundle"], "start.py"),
        *(["--python", job["python"]] if job.get("python") else []),
        place.path,
    ]
    code, lines = call(place, words)
    if code:
        errors = [line[len("error: ") :] for line in lines if line.startswith("error: ")] or lines[-1:]
        raise RefusedError("; ".join(errors) or "the start script of the bundle failed with exit code {}".format(code))


def back(place: Place) -> bool:
    """Put back the environment before the last exchange; an interrupted run may have taken any of the steps already."""
    journal = place.read()
    if not journal:
        return False
    if journal["state"] != "older":
        place.write(dict(journal, state="back"))
    if journal["state"] != "older" and (not journal["had"] or os.path.lexists(place.previous)):
        if is_ours(place.path):
            place.discard(place.path)
        elif os.path.lexists(place.path):  # made by others, so not ours to remove
            os.rename(place.path, os.path.join(place.aside, "unknown-{}".format(int(time.time()))))
        if journal["had"]:
            os.rename(place.previous, place.path)
    place.write(dict(journal, state="older"))
    if os.path.lexists(place.older):
        os.rename(place.older, place.previous)
    place.write(journal.get("before") or None)
    place.sweep()
    return True


def is_ours(path: str) -> bool:
    """True for an environment that an exchange made or was making."""
    marks = (os.path.join(path, name) for name in (MANIFEST, UNFINISHED))
    return os.path.isdir(path) and not os.path.islink(path) and any(map(os.path.isfile, marks))


def recover(place: Place) -> "list[str]":
    """Put back what an interrupted run left; returns a note about it."""
    state = place.read().get("state", "done")
    if state == "done":
        if os.path.lexists(place.previous):  # interrupted in the last step of an exchange that was kept
            place.discard(place.older)
        elif os.path.lexists(place.older):  # interrupted in the first step of one that had not begun
            os.rename(place.older, place.previous)
        place.sweep()
        return []
    back(place)
    return ["{}: an earlier run was interrupted; the environment before it was put back".format(place.path)]


def settle(place: Place, job: "dict[str, Any]") -> "dict[str, Any]":
    """Keep the new environment, or put back the old one."""
    with place.alone():
        journal = place.read()
        if journal.get("run") != job["run"]:
            raise RefusedError("{}: another run has changed it since".format(place.path))
        if journal.get("state") == "begun" and job["keep"]:
            place.write(dict(journal, state="done", before=None))
            place.discard(place.older)
            place.sweep()
            return {"changed": True}
        return {"changed": back(place) if journal.get("state") == "begun" else False}


def undo(place: Place, job: "dict[str, Any]") -> "dict[str, Any]":
    """Put back the environment before the last exchange."""
    if not place.read():
        return {"changed": False, "before": installed(place.path), "after": installed(place.path)}
    if job.get("check"):
        before = refuse_loss(place, job)
        return {"changed": True, "before": before, "after": installed(place.previous) if place.read().get("had") else {}}
    with place.alone():  # checks again: another run may have changed it in between
        before = refuse_loss(place, job)
        return {"changed": back(place), "before": before, "after": installed(place.path)}


def refuse_loss(place: Place, job: "dict[str, Any]") -> "dict[str, str]":
    """Return the installed packages; refuse an undo that would lose what was installed since."""
    packages = installed(place.path)
    plan = manifest_of(place.path).get("plan")
    if job.get("replace") or place.read().get("state") != "done" or not isinstance(plan, dict):
        return packages
    planned = {normalized(package["name"]): package["version"] for package in (*plan.get("apart", ()), *plan.get("packages", ()))}
    since = [
        "{} {}".format(name, version) for name, version in sorted(packages.items()) if name not in TOOLS and version != planned.get(name)
    ]
    if since:
        raise RefusedError("{}: an undo loses what was installed since: {}; --replace undoes it anyway".format(place.path, few(since)))
    return packages


def few(names: "list[str]") -> str:
    """First few names, and the number of the others."""
    return ", ".join(names[:5]) + (" and {} more".format(len(names) - 5) if len(names) > 5 else "")


def room(place: Place, job: "dict[str, Any]") -> "dict[str, Any]":
    """Refuse a bundle that does not fit on the disk."""
    free = shutil.disk_usage(place.path).free
    if job["needed"] > free:
        raise RefusedError("{}: disk full: {} MiB needed, {} MiB free".format(place.path, job["needed"] >> 20, free >> 20))
    return {}


def stop(number: int, _: object) -> None:
    """Handle signals like Ctrl-C."""
    raise KeyboardInterrupt(number)


def main(job: "dict[str, Any]") -> "dict[str, Any]":
    """Carry out a job and return its result."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    place = Place(os.path.expanduser(job["path"]))
    work = {"look": look, "put": put, "settle": settle, "undo": undo, "room": room}[job["do"]]
    try:
        return work(place, job)
    except RefusedError as error:
        return {"error": str(error)}
    except OSError as error:
        return {"error": "{}: {}".format(error.filename or place.path, error.strerror or error)}
    except KeyboardInterrupt:
        return {"error": "interrupted"}
