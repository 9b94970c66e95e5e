"""Exchanges a whole environment of this machine for the one that a bundle makes, and back: all of it, or nothing.

The controller of a fleet sends this text with a job into a Python of the machine, which needs nothing else. What was there is moved aside,
into a folder beside it, and stays there until the next exchange; a journal in that folder says what is to be put back. Python 3.6 grammar,
standard library only.
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

OWN = ".cudnn-resolve.json"
"""In an environment that was made here: which packages it was made of."""
UNFINISHED = ".cudnn-resolve-unfinished"
"""In one that `start.py` is making."""
TOOLS = {"pip", "setuptools", "wheel"}
_INFO = re.compile(r"(.+)-([^-]+)\.(?:dist|egg)-info")


class RefusedError(Exception):
    """What is said to the user in the place of a result."""


class Place:
    """An environment, what was moved aside for it, and the journal of both."""

    def __init__(self, path: str) -> None:
        self.path = path = os.path.abspath(path)
        self.aside = os.path.join(os.path.dirname(path), ".{}.cudnn-resolve".format(os.path.basename(path)))
        self.previous = os.path.join(self.aside, "previous")
        self.older = os.path.join(self.aside, "older")
        self.journal = os.path.join(self.aside, "journal.json")
        self.held = ()  # type: tuple[int, ...]

    @contextlib.contextmanager
    def alone(self) -> "Iterator[None]":
        """Hold off every other exchange of this environment."""
        os.makedirs(self.aside, mode=0o755, exist_ok=True)
        found = os.lstat(self.aside)
        owners = (0, os.geteuid(), os.stat(os.path.dirname(self.aside)).st_uid)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in owners:  # others may write where it lies, as in /tmp
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
                os.rmdir(self.aside)  # where nothing is in it
            os.close(handle)

    def discard(self, path: str) -> None:
        """Take a folder or a link out of the way; `sweep` removes it."""
        if os.path.lexists(path):
            os.rename(path, os.path.join(self.aside, "gone-{}".format(int(time.time() * 1e6))))

    def sweep(self) -> None:
        """Remove what was discarded; files in use on a network disk may resist, and are in nobody's way."""
        for name in names_in(self.aside):
            path = os.path.join(self.aside, name)
            if name.startswith("gone-") and os.path.islink(path):
                os.unlink(path)
            elif name.startswith("gone-"):
                shutil.rmtree(path, ignore_errors=True)

    def read(self) -> "dict[str, Any]":
        """The journal; empty where there is none."""
        return read_object(self.journal)

    def write(self, content: "dict[str, Any] | None") -> None:
        """Write the journal at once, through to the disk; None removes it."""
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
    """The packages of an environment, by their normalized names."""
    found = {}
    for where, name in ((one, name) for one in libraries(path) for name in names_in(one)):
        told = _INFO.fullmatch(name)
        if told and os.path.isdir(os.path.join(where, name)):
            found[normalized(told.group(1))] = told.group(2)
    return found


def libraries(path: str) -> "list[str]":
    """The folders of packages of an environment."""
    below = os.path.join(path, "lib")
    return [os.path.join(below, one, "site-packages") for one in names_in(below) if one.startswith("python3.")]


def names_in(path: str) -> "list[str]":
    """Names in a folder; none where it cannot be read."""
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []


def normalized(name: str) -> str:
    """A name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def own(path: str) -> "dict[str, Any]":
    """What an environment that was made here says of itself."""
    return read_object(os.path.join(path, OWN))


def read_object(path: str) -> "dict[str, Any]":
    """The JSON object in a file; empty where there is none."""
    try:
        with open(path, encoding="utf-8") as stream:
            found = json.load(stream)
        return found if isinstance(found, dict) else {}
    except (OSError, ValueError):
        return {}


def look(place: Place, job: "dict[str, Any]") -> "dict[str, Any]":
    """What would change, without changing anything."""
    machine = "linux_" + platform.machine()
    plan = job["plan"]["platforms"].get(machine)
    if plan is None:
        raise RefusedError("the lock is for {}, and this is {}".format(", ".join(sorted(job["plan"]["platforms"])), machine))
    before = installed(place.path)
    after = {normalized(one["name"]): one["version"] for one in plan["packages"]}
    same = all(before.get(name) == version for name, version in after.items())
    pythons = {"python" + job["plan"]["python"]}
    same = same and {os.path.basename(os.path.dirname(one)) for one in libraries(place.path)} == pythons
    if (plan["apart"] or plan["files"]) and own(place.path).get("plan") != plan:
        same = False
    extra = sorted(name for name in before if name not in after and name not in TOOLS)
    open_ = place.read().get("state", "done") != "done"
    return {"changed": not same or open_, "before": before, "after": after, "extra": extra, "cut_off": open_, "plan": plan}


def put(place: Place, job: "dict[str, Any]") -> "dict[str, Any]":
    """Make the environment of the bundle in the place of what is there."""
    with place.alone():
        said = recover(place)
        seen = look(place, job)
        if not seen["changed"]:
            return {"changed": False, "said": said, "before": seen["before"], "after": seen["after"]}
        made = own(place.path)
        foreign = [name for name in seen["extra"] if name not in made.get("packages", ())]
        if foreign and not job.get("replace"):
            raise RefusedError(
                "{} holds packages that the lock does not: {}; --replace moves it aside all the same".format(place.path, few(foreign))
            )
        is_there = os.path.lexists(place.path)
        if is_there and not os.path.isfile(os.path.join(place.path, "pyvenv.cfg")) and names_in(place.path) != []:
            raise RefusedError("{} is there and is no virtual environment".format(place.path))
        if os.path.ismount(place.path):
            raise RefusedError("{} is a mount point: name a folder below it".format(place.path))
        before = place.read()
        said += used(place.path)
        place.discard(place.older)
        if os.path.lexists(place.previous):
            os.rename(place.previous, place.older)
        run = "{}-{}".format(int(time.time() * 1e6), os.getpid())
        place.write({"state": "begun", "had": is_there, "before": before, "run": run})
        try:
            if is_there:
                os.rename(place.path, place.previous)
            if job.get("fetch"):
                fetch(job, seen["plan"], place)
            start(job, place)
            with open(os.path.join(place.path, OWN), "w", encoding="utf-8") as stream:
                json.dump({"plan": seen["plan"], "packages": sorted(seen["after"])}, stream)
            os.sync()
        except BaseException:
            back(place)
            raise
    return {"changed": True, "said": said, "run": run, "before": seen["before"], "after": installed(place.path)}


def used(path: str) -> "list[str]":
    """A word about programs that have libraries of the environment open; those of other users are seen by root only."""
    found = []
    for name in names_in("/proc") if os.path.isdir(path) else ():
        if name.isdigit():
            with contextlib.suppress(OSError), open("/proc/{}/maps".format(name), errors="surrogateescape") as lines:
                if any(os.path.realpath(path) + "/" in line for line in lines):
                    found.append(name)
    return ["in use by process {}: start it again".format(", ".join(found[:5]))] if found else []


def call(place: Place, words: "list[str]") -> "tuple[int, list[str]]":
    """How a program ended, and the lines of its errors.

    It ends with this one, with its children: none may write on where something else is put back. Where this one is killed, the program
    holds off other runs until it is done.
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
            told = child.communicate()[1].decode("utf-8", "replace")
        finally:
            with contextlib.suppress(OSError):
                os.killpg(child.pid, signal.SIGKILL)
    return child.returncode, [one.strip() for one in told.splitlines() if one.strip()]


def fetch(job: "dict[str, Any]", plan: "dict[str, Any]", place: Place) -> None:
    """Fetch the wheels with the pip and the index of this machine; the start script verifies them."""
    minor = job["plan"]["python"]
    python = job.get("python") or (sys.executable if minor == "{}.{}".format(*sys.version_info[:2]) else shutil.which("python" + minor))
    if not python:
        raise RefusedError("the lock needs Python {}, which is not on PATH".format(minor))
    wheels = os.path.join(job["bundle"], "wheels")
    pins = os.path.join(job["bundle"], "pins.txt")
    with open(pins, "w", encoding="utf-8") as stream:
        for one in plan["packages"] + plan["apart"]:
            stream.write("{}=={}".format(one["name"], one["version"]))
            stream.write("".join(" --hash=sha256:" + digest for digest in sorted(one["wheels"].values())) + "\n")
    words = [python, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
    code, lines = call(place, [*words, "--require-hashes", "-d", wheels, "-r", pins])
    if code:
        raise RefusedError("pip of the host: " + (lines or ["failed"])[-1])


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
        told = [one[len("error: ") :] for one in lines if one.startswith("error: ")] or lines[-1:]
        raise RefusedError("; ".join(told) or "the start script of the bundle ended with {}".format(code))


def back(place: Place) -> bool:
    """Put back what was there before the last exchange; every step may have been done by a run that was cut off."""
    journal = place.read()
    if not journal:
        return False
    if journal["state"] != "older":
        place.write(dict(journal, state="back"))
    if journal["state"] != "older" and (not journal["had"] or os.path.lexists(place.previous)):
        if is_ours(place.path):
            place.discard(place.path)
        elif os.path.lexists(place.path):  # nobody knows what it is: it is not removed
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
    """True for an environment that was made here, or is half made."""
    return os.path.isdir(path) and not os.path.islink(path) and any(os.path.isfile(os.path.join(path, one)) for one in (OWN, UNFINISHED))


def recover(place: Place) -> "list[str]":
    """Put back what a run that was cut off has left."""
    state = place.read().get("state", "done")
    if state == "done":
        if os.path.lexists(place.previous):  # the last step of an exchange that was kept
            place.discard(place.older)
        elif os.path.lexists(place.older):  # the first step of one that had not begun
            os.rename(place.older, place.previous)
        place.sweep()
        return []
    back(place)
    return ["{}: put back what a run that was cut off had left".format(place.path)]


def settle(place: Place, job: "dict[str, Any]") -> "dict[str, Any]":
    """Keep what was made, or put back what was there."""
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
    """Put back what was there before the last exchange."""
    if not place.read():
        return {"changed": False, "before": installed(place.path), "after": installed(place.path)}
    if job.get("check"):
        before = refuse_loss(place, job)
        return {"changed": True, "before": before, "after": installed(place.previous) if place.read().get("had") else {}}
    with place.alone():  # what is judged is what is put back, whoever was here before
        before = refuse_loss(place, job)
        return {"changed": back(place), "before": before, "after": installed(place.path)}


def refuse_loss(place: Place, job: "dict[str, Any]") -> "dict[str, str]":
    """The packages of an environment; refuse to undo what somebody has worked on since: it would be lost."""
    there = installed(place.path)
    plan = own(place.path).get("plan")
    if job.get("replace") or place.read().get("state") != "done" or not isinstance(plan, dict):
        return there
    meant = {normalized(one["name"]): one["version"] for one in (*plan.get("apart", ()), *plan.get("packages", ()))}
    since = ["{} {}".format(name, there[name]) for name in sorted(there) if name not in TOOLS and there[name] != meant.get(name)]
    if since:
        raise RefusedError("{}: installed since, and lost by an undo: {}; --replace undoes it all the same".format(place.path, few(since)))
    return there


def few(names: "list[str]") -> str:
    """The first of the names, and how many more there are."""
    return ", ".join(names[:5]) + (" and {} more".format(len(names) - 5) if len(names) > 5 else "")


def room(place: Place, job: "dict[str, Any]") -> "dict[str, Any]":
    """Refuse a bundle for which there is no room where it is about to be carried to."""
    free = shutil.disk_usage(place.path).free
    if job["needed"] > free:
        raise RefusedError("{}: {} MiB are needed and {} MiB are free".format(place.path, job["needed"] >> 20, free >> 20))
    return {}


def stop(number: int, _: object) -> None:
    """Leave as for Ctrl-C."""
    raise KeyboardInterrupt(number)


def main(job: "dict[str, Any]") -> "dict[str, Any]":
    """What became of the job."""
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
