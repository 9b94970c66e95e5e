"""Makes an environment of the bundle that this file lies in: no network, no other program than Python is needed.

usage: sh start [--lock NAME] [--python PYTHON] DIR

Every file of the bundle is verified before anything is made. DIR must not be there yet; it is there whole afterwards, or not at all: what
was stopped in the middle is made anew by the next run. Python 3.6 grammar, standard library only.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
SUMS = "SHA256SUMS"
HEAD = "# cudnn-resolve bundle 1: sha256 of the lines below "
LINE = re.compile(r"([0-9a-f]{64})  ((?:[A-Za-z0-9][A-Za-z0-9_-]{0,30}/)?[A-Za-z0-9][A-Za-z0-9._+!~%-]{0,230})")
MARK = ".cudnn-resolve-unfinished"


class RefusedError(Exception):
    """What is said to the user in the place of a result."""


def listed() -> "dict[str, str]":
    """The digest of each file of the bundle."""
    try:
        with open(os.path.join(HERE, SUMS), "rb") as stream:
            raw = stream.read(16 << 20)
    except OSError as error:
        raise RefusedError("{}: {}".format(SUMS, error.strerror)) from None
    head, _, rest = raw.partition(b"\n")
    found = [LINE.fullmatch(line) for line in rest.decode("ascii", "replace").split("\n")[:-1]]
    sums = {one.group(2): one.group(1) for one in found if one}
    text = "".join("{}  {}\n".format(digest, name) for name, digest in sorted(sums.items())).encode()
    if rest != text or head != (HEAD + hashlib.sha256(text).hexdigest()).encode():
        raise RefusedError("the bundle is damaged: its list {} is not as it was written".format(SUMS))
    return sums


def is_right(name: str, digest: str) -> bool:
    """True for a plain file with the listed content."""
    path = os.path.join(HERE, name)
    if any(os.path.islink(one) for one in (path, os.path.dirname(path))) or not os.path.isfile(path):
        return False
    made = hashlib.sha256()
    with open(path, "rb") as stream:
        for piece in iter(lambda: stream.read(1 << 20), b""):
            made.update(piece)
    return made.hexdigest() == digest


def verify(sums: "dict[str, str]") -> None:
    """Raise what is wrong with the files."""
    names = sorted(sums)
    with concurrent.futures.ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as threads:
        right = list(threads.map(lambda name: is_right(name, sums[name]), names))
    wrong = [name for name, good in zip(names, right) if not good]
    if wrong:
        raise RefusedError("the bundle is damaged: {} is not as written".format(", ".join(wrong[:4])))


def interpreters(version: str) -> "list[str]":
    """The Pythons of that minor that are here, which may be shims without one behind them."""
    found = [sys.executable] if "{}.{}".format(*sys.version_info[:2]) == version else []
    name = "python" + version
    folders = [*os.environ.get("PATH", "").split(os.pathsep), "/usr/local/bin", "/usr/bin"]
    return found + [os.path.join(one, name) for one in folders if os.access(os.path.join(one, name), os.X_OK)]


def version_of(python: str) -> str:
    """The minor version of an interpreter; empty for one that does not work."""
    ask = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-I", "-c", ask], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    except OSError:
        return ""
    return done.stdout.decode("ascii", "replace").strip() if done.returncode == 0 else ""


def choose(sums: "dict[str, str]", wanted: "str | None", python: "str | None") -> "tuple[str, dict[str, Any], str]":
    """The name of a lock, what of it is for this machine, and the interpreter for it."""
    machine = "linux_" + platform.machine()
    why = []
    for name in sorted(one for one in sums if one.startswith("pylock.") and one.endswith(".json")):
        lock = name[: -len("json")] + "toml"
        if wanted not in (None, lock):
            continue
        with open(os.path.join(HERE, name), encoding="utf-8") as stream:
            plan = json.load(stream)
        mine = plan["platforms"].get(machine)
        if mine is None:
            why.append("{} is for {}, and this is {}".format(lock, ", ".join(plan["platforms"]), machine))
            continue
        for path in [python] if python else interpreters(plan["python"]):
            if version_of(path) == plan["python"]:
                return lock, mine, path
        why.append("{} needs Python {}".format(lock, plan["python"]) + (", which {} is not".format(python) if python else ""))
    raise RefusedError("; ".join(why) or "the bundle has no lock {}".format(wanted or ""))


def check_wheels(plan: "dict[str, Any]", sums: "dict[str, str]", folder: str) -> None:
    """Refuse wheels that the list does not hold, that would lie outside of the environment, or for which there is no room."""
    total = 0
    for package in plan["packages"] + plan["apart"]:
        for file, digest in package["wheels"].items():
            if sums.get("wheels/" + file) != digest:
                raise RefusedError("the bundle is damaged: {} is not the file that the lock names".format(file))
        with zipfile.ZipFile(os.path.join(HERE, "wheels", min(package["wheels"]))) as wheel:
            for member in wheel.infolist():
                name = member.filename
                if name.startswith("/") or "\\" in name or ".." in name.split("/") or (member.external_attr >> 28) == 0o12:
                    raise RefusedError("{} would write outside of the environment: {}".format(package["name"], name[:80]))
                total += member.file_size
    free = shutil.disk_usage(os.path.dirname(folder)).free
    if total > free:
        raise RefusedError("{} MiB are needed and {} MiB are free".format(total >> 20, free >> 20))


def install(plan: "dict[str, Any]", sums: "dict[str, str]", python: str, folder: str) -> None:
    """Make the environment."""
    run([python, "-I", "-m", "venv", "--without-pip", folder])
    own = os.path.join(folder, "bin", "python")
    pip = sorted(one for one in sums if re.match(r"wheels/pip-[0-9.]+-py3-none-any\.whl$", one))
    words = [os.path.join(HERE, pip[-1], "pip")] if pip else ["-m", "pip"]
    if not pip:
        run([own, "-I", "-m", "ensurepip"])
    asked = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.run([own, "-I", "-c", asked], stdout=subprocess.PIPE, check=True).stdout.decode().strip()
    for packages, where in ((plan["packages"], []), (plan["apart"], ["--target", os.path.join(site, plan["folder"])])):
        if packages:
            handle, pins = tempfile.mkstemp(prefix="pins-", suffix=".txt", dir=folder)
            with os.fdopen(handle, "w") as stream:
                for package in packages:
                    hashes = "".join(" --hash=sha256:" + digest for digest in sorted(package["wheels"].values()))
                    stream.write("{}=={}{}\n".format(package["name"], package["version"], hashes))
            more = ["--no-index", "--no-deps", "--require-hashes", "--find-links", os.path.join(HERE, "wheels"), "-r", pins, *where]
            run([own, "-I", "-B", *words, "install", "--quiet", "--no-input", "--disable-pip-version-check", "--no-cache-dir", *more])
            os.unlink(pins)
    for name, text in plan["files"].items():
        with open(os.path.join(site, os.path.basename(name)), "w", encoding="utf-8") as stream:
            stream.write(text)


def install_debs(debs: "list[dict[str, str]]") -> "list[str]":
    """Install the packages of the system, which only root can; what is to be done otherwise."""
    ask = ["dpkg-query", "-W", "-f", "${db:Status-Abbrev}${Version}"]
    there = shutil.which("dpkg-query")
    missing = [one for one in debs if not there or output([*ask, one["name"]]) not in ("ii " + one["version"], "hi " + one["version"])]
    if not missing:
        return []
    words = ["apt-get", "install", "-y", "--no-install-recommends", *(os.path.join(HERE, one["file"]) for one in debs)]
    if os.geteuid() == 0 and shutil.which("apt-get"):
        if subprocess.run(["env", "DEBIAN_FRONTEND=noninteractive", *words], check=False).returncode:
            raise RefusedError("apt-get install failed; `dpkg --audit` tells what it left")
        if subprocess.run(["apt-mark", "hold", *(one["name"] for one in debs)], check=False).returncode:
            return ["packages of the system are installed, but not held: apt-mark failed"]
        return ["packages of the system: " + ", ".join("{name}={version}".format(**one) for one in debs)]
    return ["packages of the system that it needs; as root: " + " ".join(words)]


def output(argv: "list[str]") -> str:
    """What a program says."""
    return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout.decode("utf-8", "replace").strip()


def run(argv: "list[str]") -> None:
    """Run a program that finds nothing of the user's configuration of pip."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
    environ["PIP_CONFIG_FILE"] = os.devnull
    if subprocess.run(argv, env=environ, start_new_session=True, check=False).returncode:  # Ctrl-C is ours: pip would show where it was
        raise RefusedError("{} failed".format(" ".join(argv[:5])))


def stop(number: int, _: object) -> None:
    """Leave as for Ctrl-C."""
    raise KeyboardInterrupt(number)


def make(args: "argparse.Namespace") -> str:
    """Make the environment whole, or not at all; how it is used."""
    folder = os.path.abspath(args.folder)
    mark = os.path.join(folder, MARK)
    if os.path.lexists(folder) and not os.path.isfile(mark):
        raise RefusedError("{} is there already: name a folder that is not".format(folder))
    sums = listed()
    verify(sums)
    lock, plan, python = choose(sums, args.lock, args.python)
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    check_wheels(plan, sums, folder)
    for one in plan["debs"]:
        if one["file"] not in sums or not one["file"].endswith(".deb"):
            raise RefusedError("the bundle is damaged: {} is not listed".format(one["file"][:80]))
    shutil.rmtree(folder, ignore_errors=True)
    signal.signal(signal.SIGTERM, stop)
    try:
        os.mkdir(folder)
        with open(mark, "w"):
            pass
        install(plan, sums, python, folder)
        more = install_debs(plan["debs"])
        os.unlink(mark)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    said = ["{}: {} packages of {}, Python {}".format(folder, len(plan["packages"]), lock, version_of(python))]
    said += ["use it: {}/bin/python".format(folder), *plan["notes"], *more]
    return "\n".join(said)


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description="Make an environment of this bundle, without a network.")
    parser.add_argument("folder", metavar="DIR", help="the new environment")
    parser.add_argument("--lock", metavar="NAME", help="which lock, where the bundle has several: pylock.toml")
    parser.add_argument("--python", metavar="PYTHON", help="the interpreter that it is made of")
    try:
        print(make(parser.parse_args()))
    except RefusedError as error:
        print("error: {}\nno environment was made".format(error), file=sys.stderr)
        return 3
    except (OSError, ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        print("error: {}: {}\nno environment was made".format(type(error).__name__, error), file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        print("interrupted: no environment was made", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
