#!/usr/bin/env python3
"""Build the wheel and the sdist from this checkout and print what is wrong with them; exit 1 if anything is.

usage: check_wheel.py [FOLDER]      keep the built files in FOLDER

The environment must have `build` and `hatchling` (scripts/install provides them): nothing is downloaded.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import zipfile
from functools import lru_cache
from pathlib import Path

from cudnn_resolve.cli.manual import manual

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "cudnn_resolve"
TABLES = f"{PACKAGE}/_matrices"
SDIST_PARTS = (
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    ".ci/run",
    "scripts/test",
    "tests/conftest.py",
    "hatch_build.py",
)
"""Files needed to build and test from an unpacked sdist, besides the package and the tables."""


def build(checkout: Path, folder: Path, *kinds: str) -> list[Path]:
    """Build the checkout with hatchling and return one file for each kind (`wheel`, `sdist`), in that order."""
    made = []
    for kind in kinds:
        argv = [sys.executable, "-m", "build", "--no-isolation", f"--{kind}", "--outdir", str(folder), str(checkout)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"cannot build the {kind}:\n{done.stdout}{done.stderr}")
        pattern = "*.whl" if kind == "wheel" else "*.tar.gz"
        made.append(max(folder.glob(pattern), key=lambda path: path.stat().st_mtime_ns))
    return made


def wheel_content(wheel: Path) -> dict[str, bytes]:
    """Return the name and content of every file in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


def sdist_content(sdist: Path) -> dict[str, bytes]:
    """Return the name, without the top folder, and content of every file in the sdist."""
    content = {}
    with tarfile.open(sdist) as archive:
        for member in archive.getmembers():
            file = archive.extractfile(member)
            if file is not None:
                content[member.name.partition("/")[2]] = file.read()
    return content


def files(checkout: Path, folder: str) -> dict[str, bytes]:
    """Return the relative path and content of every file in a folder of the checkout, except caches."""
    base = checkout / folder
    return {
        path.relative_to(base).as_posix(): path.read_bytes()
        for path in sorted(base.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


@lru_cache(maxsize=1)
def copies(checkout: Path) -> dict[str, bytes]:
    """Return the name and content of the compiled copy of every table."""
    from cudnn_resolve.host.tablecache import SHIPPED, Copies
    from cudnn_resolve.host.tables import DirectoryTables

    with tempfile.TemporaryDirectory() as folder:
        DirectoryTables(checkout / "matrices", label="matrices").compile(Copies(folder))
        return {f"{SHIPPED}/{path.name}": path.read_bytes() for path in Path(folder).iterdir()}


def differences(what: str, wanted: dict[str, bytes], found: dict[str, bytes]) -> list[str]:
    """Return a line for each missing, unexpected or different file."""
    lines = [f"{what}: {name} is missing" for name in sorted(wanted.keys() - found.keys())]
    lines += [f"{what}: {name} is unexpected" for name in sorted(found.keys() - wanted.keys())]
    lines += [f"{what}: {name} differs from the checkout" for name in sorted(wanted.keys() & found.keys()) if wanted[name] != found[name]]
    return lines


def wheel_faults(checkout: Path, wheel: Path) -> list[str]:
    """Return faults of the wheel: it must have the package, the tables, their compiled copies, licence and metadata, and nothing else."""
    found = wheel_content(wheel)
    info = next((name.partition("/")[0] for name in found if name.endswith(".dist-info/METADATA")), None)
    if info is None:
        return ["wheel: no METADATA"]
    about = {name.removeprefix(f"{info}/"): content for name, content in found.items() if name.startswith(f"{info}/")}
    wanted = {f"{PACKAGE}/{name}": content for name, content in files(checkout, PACKAGE).items()}
    wanted |= {f"{TABLES}/{name}": content for name, content in files(checkout, "matrices").items()}
    wanted |= {f"{PACKAGE}/{name}": content for name, content in copies(checkout).items()}
    wanted |= {f"{info.removesuffix('.dist-info')}.data/data/share/man/man1/cudnn-resolve.1": manual().encode()}
    faults = differences("wheel", wanted, {name: content for name, content in found.items() if not name.startswith(f"{info}/")})
    if about.get("licenses/LICENSE") != (checkout / "LICENSE").read_bytes():
        faults.append("wheel: the licence is missing")
    if b"cudnn-resolve = cudnn_resolve.__main__:main" not in about.get("entry_points.txt", b""):
        faults.append("wheel: there is no command cudnn-resolve")
    for line in ("Name: cudnn-resolve", "License-Expression: Apache-2.0", "Requires-Python: >=3.10"):
        if line not in about["METADATA"].decode().splitlines():
            faults.append(f"wheel: the metadata lacks {line!r}")
    if not any(name.endswith(".toml") for name in files(checkout, "matrices")):
        faults.append("checkout: matrices/ has no tables")
    return faults


def sdist_faults(checkout: Path, sdist: Path) -> list[str]:
    """Return faults of the sdist, which must have the package, the tables, and everything needed to build and test."""
    found = sdist_content(sdist)
    faults = [f"sdist: {name} is missing" for name in SDIST_PARTS if name not in found]
    for folder in (PACKAGE, "matrices"):
        inside = {name.removeprefix(f"{folder}/"): content for name, content in found.items() if name.startswith(f"{folder}/")}
        faults += differences(f"sdist: {folder}", files(checkout, folder), inside)
    return faults


def main(argv: list[str]) -> int:
    """Return 0 if nothing is wrong."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(argv[0]) if argv else Path(scratch)
        wheel, sdist = build(ROOT, folder, "wheel", "sdist")
        faults = wheel_faults(ROOT, wheel) + sdist_faults(ROOT, sdist)
        size_kib = wheel.stat().st_size // 1024
    print("\n".join(faults) or f"{wheel.name} ({size_kib} KiB) and {sdist.name} are as they should be")
    return bool(faults)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
