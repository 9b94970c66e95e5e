"""Make an environment from the bundle that this file belongs to; needs no network, and no other program than Python.

usage: sh start [--lock NAME] [--python PYTHON] DIR

Every file of the bundle is verified first. DIR must not exist. It is complete afterwards, or does not exist: the next run replaces what an
interrupted run left. Python 3.6 grammar, standard library only.
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
    """Error message for the user."""


def read_sums() -> "dict[str, str]":
    """SHA-256 of each file of the bundle."""
    try:
        with open(os.path.join(HERE, SUMS), "rb") as stream:
            raw = stream.read(16 << 20)
    except OSError as error:
        raise RefusedError("{}: {}".format(SUMS, error.strerror)) from None
    head, _, rest = raw.partition(b"\n")
    lines = [LINE.fullmatch(line) for line in rest.decode("ascii", "replace").split("\n")[:-1]]
    sums = {line.group(2): line.group(1) for line in lines if line}
    text = "".join("{}  {}\n".format(digest, name) for name, digest in sorted(sums.items())).encode()
    if rest != text or head != (HEAD + hashlib.sha256(text).hexdigest()).encode():
        raise RefusedError("the bundle is damaged: its list {} was modified".format(SUMS))
    return sums


def is_intact(name: str, digest: str) -> bool:
    """True for a plain file with the listed content."""
    path = os.path.join(HERE, name)
    if any(os.path.islink(part) for part in (path, os.path.dirname(path))) or not os.path.isfile(path):
        return False
    made = hashlib.sha256()
    with open(path, "rb") as stream:
        for chunk in iter(lambda: stream.read(1 << 20), b""):
            made.update(chunk)
    return made.hexdigest() == digest


def verify(sums: "dict[str, str]") -> None:
    """Refuse a bundle with damaged files."""
    names = sorted(sums)
    with concurrent.futures.ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as threads:
        intact = list(threads.map(lambda name: is_intact(name, sums[name]), names))
    damaged = [name for name, good in zip(names, intact) if not good]
    if damaged:
        raise RefusedError("the bundle is damaged: {} was modified or is missing".format(", ".join(damaged[:4])))


def interpreters(version: str) -> "list[str]":
    """Candidate interpreters of a minor version; some may be shims without a Python behind them."""
    found = [sys.executable] if "{}.{}".format(*sys.version_info[:2]) == version else []
    name = "python" + version
    folders = [*os.environ.get("PATH", "").split(os.pathsep), "/usr/local/bin", "/usr/bin"]
    return found + [os.path.join(folder, name) for folder in folders if os.access(os.path.join(folder, name), os.X_OK)]


def version_of(python: str) -> str:
    """Minor version of an interpreter; empty if it does not work."""
    program = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-I", "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    except OSError:
        return ""
    return done.stdout.decode("ascii", "replace").strip() if done.returncode == 0 else ""


def choose_lock(sums: "dict[str, str]", wanted: "str | None", python: "str | None") -> "tuple[str, dict[str, Any], str]":
    """Name of the lock to install, its part for this machine, and an interpreter for it."""
    machine = "linux_" + platform.machine()
    reasons = []
    for name in sorted(name for name in sums if name.startswith("pylock.") and name.endswith(".json")):
        lock = name[: -len("json")] + "toml"
        if wanted not in (None, lock):
            continue
        with open(os.path.join(HERE, name), encoding="utf-8") as stream:
            plan = json.load(stream)
        mine = plan["platforms"].get(machine)
        if mine is None:
            reasons.append("{} is for {}, and this machine is {}".format(lock, ", ".join(plan["platforms"]), machine))
            continue
        for path in [python] if python else interpreters(plan["python"]):
            if version_of(path) == plan["python"]:
                return lock, mine, path
        reasons.append("{} needs Python {}".format(lock, plan["python"]) + (", which {} is not".format(python) if python else ""))
    raise RefusedError("; ".join(reasons) or "the bundle has no lock {}".format(wanted or ""))


def check_wheels(plan: "dict[str, Any]", sums: "dict[str, str]", folder: str) -> None:
    """Refuse wheels that are not listed, that would write outside of the environment, or that the disk has no room for."""
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
        raise RefusedError("disk full: {} MiB needed, {} MiB free".format(total >> 20, free >> 20))


def install(plan: "dict[str, Any]", sums: "dict[str, str]", base: str, folder: str) -> None:
    """Make the environment and install the packages into it."""
    run([base, "-I", "-m", "venv", "--without-pip", folder])
    python = os.path.join(folder, "bin", "python")
    pip_wheels = sorted(name for name in sums if re.match(r"wheels/pip-[0-9.]+-py3-none-any\.whl$", name))
    pip = [os.path.join(HERE, pip_wheels[-1], "pip")] if pip_wheels else ["-m", "pip"]
    if not pip_wheels:
        run([python, "-I", "-m", "ensurepip"])
    program = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.run([python, "-I", "-c", program], stdout=subprocess.PIPE, check=True).stdout.decode().strip()
    targets = [(plan["packages"], []), (plan["apart"], ["--target", os.path.join(site, plan["folder"])])]
    for packages, target in targets:
        if packages:
            handle, pins = tempfile.mkstemp(prefix="pins-", suffix=".txt", dir=folder)
            with os.fdopen(handle, "w") as stream:
                for package in packages:
                    hashes = "".join(" --hash=sha256:" + digest for digest in sorted(package["wheels"].values()))
                    stream.write("{}=={}{}\n".format(package["name"], package["version"], hashes))
            words = ["--no-index", "--no-deps", "--require-hashes", "--find-links", os.path.join(HERE, "wheels"), "-r", pins, *target]
            run([python, "-I", "-B", *pip, "install", "--quiet", "--no-input", "--disable-pip-version-check", "--no-cache-dir", *words])
            os.unlink(pins)
    for name, text in plan["files"].items():
        with open(os.path.join(site, os.path.basename(name)), "w", encoding="utf-8") as stream:
            stream.write(text)


def install_debs(debs: "list[dict[str, str]]") -> "list[str]":
    """Install the system packages if this user is root; returns notes, such as the command for root."""
    query = ["dpkg-query", "-W", "-f", "${db:Status-Abbrev}${Version}"]
    has_dpkg = shutil.which("dpkg-query")
    missing = [deb for deb in debs if not has_dpkg or output([*query, deb["name"]]) not in ("ii " + deb["version"], "hi " + deb["version"])]
    if not missing:
        return []
    words = ["apt-get", "install", "-y", "--no-install-recommends", *(os.path.join(HERE, deb["file"]) for deb in debs)]
    if os.geteuid() == 0 and shutil.which("apt-get"):
        if subprocess.run(["env", "DEBIAN_FRONTEND=noninteractive", *words], check=False).returncode:
            raise RefusedError("apt-get install failed; `dpkg --audit` shows what it left")
        if subprocess.run(["apt-mark", "hold", *(deb["name"] for deb in debs)], check=False).returncode:
            return ["the system packages are installed but not held: apt-mark failed"]
        return ["installed system packages: " + ", ".join("{name}={version}".format(**deb) for deb in debs)]
    return ["the environment needs system packages; as root: " + " ".join(words)]


def output(argv: "list[str]") -> str:
    """Output of a program."""
    return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout.decode("utf-8", "replace").strip()


def run(argv: "list[str]") -> None:
    """Run a program without the user's pip configuration; refuse if it fails."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
    environ["PIP_CONFIG_FILE"] = os.devnull
    if subprocess.run(argv, env=environ, start_new_session=True, check=False).returncode:  # no Ctrl-C for pip: it prints a traceback
        raise RefusedError("{} failed".format(" ".join(argv[:5])))


def stop(number: int, _: object) -> None:
    """Handle SIGTERM like Ctrl-C."""
    raise KeyboardInterrupt(number)


def make(args: "argparse.Namespace") -> str:
    """Make the environment, and return how to use it; on failure remove it."""
    folder = os.path.abspath(args.folder)
    mark = os.path.join(folder, MARK)
    if os.path.lexists(folder) and not os.path.isfile(mark):
        raise RefusedError("{} exists already: name a new folder".format(folder))
    sums = read_sums()
    verify(sums)
    lock, plan, python = choose_lock(sums, args.lock, args.python)
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    check_wheels(plan, sums, folder)
    for deb in plan["debs"]:
        if deb["file"] not in sums or not deb["file"].endswith(".deb"):
            raise RefusedError("the bundle is damaged: {} is not listed".format(deb["file"][:80]))
    shutil.rmtree(folder, ignore_errors=True)
    signal.signal(signal.SIGTERM, stop)
    try:
        os.mkdir(folder)
        with open(mark, "w"):
            pass
        install(plan, sums, python, folder)
        notes = install_debs(plan["debs"])
        os.unlink(mark)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    lines = ["{}: {} packages of {}, Python {}".format(folder, len(plan["packages"]), lock, version_of(python))]
    lines += ["use it: {}/bin/python".format(folder), *plan["notes"], *notes]
    return "\n".join(lines)


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(description="Make an environment from this bundle, without a network.")
    parser.add_argument("folder", metavar="DIR", help="folder of the new environment")
    parser.add_argument("--lock", metavar="NAME", help="lock to install if the bundle has several, such as pylock.toml")
    parser.add_argument("--python", metavar="PYTHON", help="interpreter to make the environment with")
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
