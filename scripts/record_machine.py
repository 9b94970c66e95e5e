#!/usr/bin/env python3
"""Record the answers of this machine to `detect` in tests/machines/NAME, for replay in tests.

usage: record_machine.py NAME [--python PATH] [--about TEXT] [--replace OLD=NEW]... [--hide PATH]... [--into FOLDER]

The folder gets answers.json (every question with its answer), facts.json (the result of detect) and about.json. Private data is removed:
the home directory becomes /home/user, UUIDs are numbered, and only relevant packages stay in the lists of apt and of the linker cache.
`--replace` changes any other text, `--hide` leaves out a path and everything below it. Review the folder before you share it: if there is
a cuDNN or a framework, it contains parts of their libraries.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import re
import struct
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from cudnn_resolve.facts.codec import encode
from cudnn_resolve.facts.ldconfig import CacheEntry, parse_cache
from cudnn_resolve.facts.model import Facts
from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.host.protocol import Host
from cudnn_resolve.probe.probe import detect
from tests.recorded_host import RecordedHost, RecordingHost, write_recording

ROOT = Path(__file__).resolve().parents[1]
UUID = re.compile(r"(GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
KEPT_PACKAGES = re.compile(
    r"(?:lib)?(?:cuda|cudnn|cublas|cufft|curand|cusolver|cusparse|nccl|nvinfer|nvidia|tensorrt|npp)|libc6$|zlib1g$|gcc$|bash$"
)
KEPT_LIBRARIES = re.compile(r"lib(?:cu[bdfprst]|nv|nccl|npp|tensorrt|z\.so|c\.so|m\.so|dl\.so|pthread|rt\.so|stdc\+\+|gcc_s)")
VERSION_LINE = re.compile(r"#define\s+CUD\w*_(?:VERSION|MAJOR|MINOR|PATCHLEVEL)\b")
KEPT_LINES = {
    "/proc/self/status": re.compile(r"Uid:"),
    "/proc/cpuinfo": re.compile(r"flags|Features"),
    "/etc/os-release": re.compile(r"(?:VERSION_)?ID="),
    "/usr/lib/os-release": re.compile(r"(?:VERSION_)?ID="),
}
KEPT_FIELDS = ("Package: ", "Status: ", "Architecture: ", "Version: ")
X86_64, AARCH64, I686 = 0x0303, 0x0A03, 0x0003


def shortened_status(text: str) -> str:
    """Return the relevant stanzas of dpkg's status, with the fields that are read."""
    kept = []
    for stanza in text.split("\n\n"):
        lines = [line for line in stanza.splitlines() if line.startswith(KEPT_FIELDS)]
        if lines and KEPT_PACKAGES.match(lines[0].removeprefix("Package: ")):
            kept.append("\n".join(lines))
    return "\n\n".join(kept) + "\n"


def shortened_cache(raw: bytes) -> bytes:
    """Return a linker cache with the relevant entries."""
    return packed_cache([entry for entry in parse_cache(raw) or () if KEPT_LIBRARIES.match(entry.name)])


def packed_cache(entries: list[CacheEntry]) -> bytes:
    """Return a linker cache of these entries in the current format of ldconfig; see facts/ldconfig.py for the layout."""
    flags = {"x86_64": X86_64, "aarch64": AARCH64, "i686": I686}
    start = 48 + 24 * len(entries)
    table, texts = b"", b""
    for entry in entries:
        name_at = start + len(texts)
        texts += entry.name.encode() + b"\0"
        path_at = start + len(texts)
        texts += entry.path.encode() + b"\0"
        table += struct.pack("<iIIIQ", flags.get(entry.arch or "", 0x7F03), name_at, path_at, 0, 0)
    return b"glibc-ld.so.cache1.1" + struct.pack("<II", len(entries), len(texts)) + b"\0" * 20 + table + texts


def shortened(answers: dict[str, Any]) -> dict[str, Any]:
    """Return the recording without content that no fact depends on."""
    for path, text in answers["texts"].items():
        if path.endswith("/dpkg/status") and text:
            answers["texts"][path] = shortened_status(text)
        elif path.endswith(".h") and text:
            answers["texts"][path] = lines_of(text, VERSION_LINE)
        elif path in KEPT_LINES and text:
            answers["texts"][path] = lines_of(text, KEPT_LINES[path])
    for question, content in answers["bytes"].items():
        if question.startswith("/etc/ld.so.cache:") and content:
            answers["bytes"][question] = base64.b64encode(shortened_cache(base64.b64decode(content))).decode("ascii")
    return answers


def lines_of(text: str, kept: re.Pattern[str]) -> str:
    """Return the matching lines without duplicates."""
    return "\n".join(dict.fromkeys(line for line in text.splitlines() if kept.match(line))) + "\n"


def without(answers: dict[str, Any], hidden: list[str]) -> dict[str, Any]:
    """Return the recording as if the hidden paths did not exist."""
    for path in hidden:
        parent, _, name = path.rstrip("/").rpartition("/")
        names = answers["directories"].get(parent or "/", [])
        answers["directories"][parent or "/"] = [entry for entry in names if entry != name]
        for kind in ("texts", "bytes", "directories", "stats", "realpaths"):
            answers[kind] = {key: value for key, value in answers[kind].items() if not f"{key}/".startswith(f"{path.rstrip('/')}/")}
    return answers


def redacted(text: str, replacements: list[tuple[str, str]]) -> str:
    """Return the text of a recording with replacements made and every UUID numbered."""
    for old, new in replacements:
        text = text.replace(json.dumps(old)[1:-1], json.dumps(new)[1:-1])
    numbers: dict[str, str] = {}

    def numbered(found: re.Match[str]) -> str:
        return numbers.setdefault(found[0].lower(), f"{found[1].upper()}-00000000-0000-0000-0000-{len(numbers):012x}")

    return UUID.sub(numbered, text)


def record(host: Host, python: str | None, replacements: list[tuple[str, str]], hidden: list[str] | None = None) -> tuple[str, Facts]:
    """Record a machine, and return the recording and the facts of its replay."""
    recording = RecordingHost(host)
    detect(recording, python)
    kept = without(shortened(json.loads(recording.answers())), hidden or [])
    shorter = json.dumps(kept, indent=1, sort_keys=True) + "\n"
    text = redacted(shorter, replacements)
    return text, detect(RecordedHost(json.loads(text)), renamed(python, replacements))


def renamed(python: str | None, replacements: list[tuple[str, str]]) -> str | None:
    """Return the path of the interpreter as it is in the recording."""
    for old, new in replacements:
        python = None if python is None else python.replace(old, new)
    return python


def python_of(folder: Path) -> str | None:
    """Return the interpreter of a recording; None for the default."""
    python: str | None = json.loads((folder / "about.json").read_text("utf-8"))["python"]
    return python


def main() -> None:
    """Record this machine."""
    parser = argparse.ArgumentParser(description="Record what this machine answers to detect, for replay in tests.")
    parser.add_argument("name")
    parser.add_argument("--python")
    parser.add_argument("--about", default="")
    parser.add_argument("--replace", action="append", default=[], metavar="OLD=NEW")
    parser.add_argument("--hide", action="append", default=[], metavar="PATH")
    parser.add_argument("--into", type=Path, default=ROOT / "tests/machines")
    options = parser.parse_args()
    replacements = [tuple(pair.split("=", 1)) for pair in options.replace]
    replacements.append((os.path.expanduser("~"), "/home/user"))
    folder = options.into / options.name
    text, facts = record(LinuxHost(), options.python, replacements, options.hide)
    write_recording(str(folder), text)
    (folder / "facts.json").write_text(json.dumps(encode(facts), indent=1) + "\n", "utf-8")
    about = {"about": options.about, "python": renamed(options.python, replacements)}
    (folder / "about.json").write_text(json.dumps(about, indent=1) + "\n", "utf-8")
    print(f"recorded {folder}")


if __name__ == "__main__":
    main()
