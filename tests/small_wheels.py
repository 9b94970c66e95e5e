"""Small real wheels, made in a test: with modules, scripts and data, and with whatever is wrong that a test wants."""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

from cudnn_resolve.requirement.source import File


def wheel_bytes(
    name: str, version: str, files: Mapping[str, str | bytes], *, scripts: tuple[str, ...] = (), raw: Mapping[str, bytes] | None = None
) -> bytes:
    """A wheel with those files (`raw`: left out of RECORD) and console scripts that call the package's `main`."""
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    members: dict[str, bytes] = {path: text.encode() if isinstance(text, str) else text for path, text in files.items()}
    members[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()
    members[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    if scripts:
        module = name.replace("-", "_")
        members[f"{info}/entry_points.txt"] = ("[console_scripts]\n" + "".join(f"{one} = {module}:main\n" for one in scripts)).encode()
    rows = []
    for path, content in members.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(content)}")
    members[f"{info}/RECORD"] = ("\n".join([*rows, f"{info}/RECORD,,"]) + "\n").encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in {**members, **(raw or {})}.items():
            archive.writestr(zipfile.ZipInfo(path, (2024, 1, 1, 0, 0, 0)), content)
    return out.getvalue()


def write_wheel(
    folder: Path,
    name: str,
    version: str,
    files: Mapping[str, str | bytes] | None = None,
    *,
    scripts: tuple[str, ...] = (),
    raw: Mapping[str, bytes] | None = None,
) -> File:
    """A wheel in a folder, as a plan names it: by its address and hash."""
    module = name.replace("-", "_")
    content = wheel_bytes(
        name,
        version,
        files or {f"{module}/__init__.py": f"VERSION = {version!r}\ndef main():\n    print(VERSION)\n"},
        scripts=scripts,
        raw=raw,
    )
    path = folder / f"{module}-{version}-py3-none-any.whl"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return file_of(path)


def file_of(path: Path) -> File:
    """The value that names a wheel on this disk."""
    content = path.read_bytes()
    return File(filename=path.name, url=path.as_uri(), hashes={"sha256": hashlib.sha256(content).hexdigest()}, size=len(content))


def tree(root: Path, *, compiled: bool = True) -> dict[str, str]:
    """Every file below a folder with the sum of its content; links with where they lead."""
    out = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            out[name] = f"-> {path.readlink()}"
        elif path.is_file() and (compiled or path.suffix != ".pyc"):
            out[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        elif path.is_dir() and not any(path.iterdir()):
            out[f"{name}/"] = "empty"
    return out
