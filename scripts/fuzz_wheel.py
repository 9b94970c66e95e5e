"""Wheels for the fuzzer: corrupt archives, and libraries with corrupt headers, tables, sections and GPU code."""

from __future__ import annotations

import io
import warnings
import zipfile
from pathlib import Path

import msgspec
from fuzz_chance import Chance

from tests.elf_writer import CUBIN, PTX, container, entry, with_section, write_elf

REAL = next(Path(msgspec.__file__).parent.glob("_core.*so")).read_bytes()
NAMES = ("libcudart.so.12", "libcudnn.so.9", "libtorch_cuda.so", "libc10.so", "libc.so.6", "libloop.so.1", "libnvJitLink.so.12")
METADATA = "Metadata-Version: 2.1\nName: sight\nVersion: 1.0\nRequires-Dist: torch==2.9.1\n"
TEXTS = {
    "sight/version.py": "__version__ = '0.26.0+cu130'\ncuda = '13.0'\n",
    "sight/_extension/utils.py": "if ta_version != t_version:\n    raise RuntimeError\n",
    "sight-1.0.dist-info/METADATA": METADATA,
    "sight-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp311-cp311-linux_x86_64\n",
    "sight-1.0.dist-info/entry_points.txt": "[console_scripts]\nsee = sight:main\n",
    "sight-1.0.dist-info/RECORD": "sight/_C.so,,\n",
}


def damaged(chance: Chance, content: bytes, *, at_end: bool = False) -> bytes:
    """Return the bytes with false numbers, or parts cut, repeated or zeroed; mostly near the start, or `at_end`."""
    made = bytearray(content)
    for _ in range(chance.choice((0, 1, 1, 2, 4, 8))):
        near = min(len(made), chance.choice((64, 400, 4000, len(made))))
        at = chance.randrange(near + 1)
        at = len(made) - at if at_end or chance.random() < 0.3 else at
        size = chance.choice((1, 2, 4, 8))
        how = chance.random()
        if how < 0.75:
            lies = (0, 1, 2, at, len(made), len(made) - at, 0xFFFF, 1 << 31, (1 << 32) - 1, 1 << 62, (1 << 64) - 1, chance.getrandbits(64))
            made[at : at + size] = (chance.choice(lies) & ((1 << 8 * size) - 1)).to_bytes(size, "little")
        elif how < 0.85:
            del made[at : at + chance.choice((1, 8, 64, 4096, len(made)))]
        elif how < 0.95:
            made[at:at] = made[at : at + chance.choice((8, 64, 4096))] * chance.choice((1, 3, 50))
        else:
            made[at : at + 64] = bytes(64)
    return bytes(made)


def _text(chance: Chance) -> str:
    """Return a text that fits into a string table."""
    return chance.text().encode("utf-8", "replace").decode().replace("\0", "")


def library(chance: Chance) -> bytes:
    """Return a library: a real one, one with only a dynamic section, or one with GPU code, damaged or intact."""
    kind = chance.random()
    if kind < 0.3:
        made = REAL
    elif kind < 0.55:
        needed = chance.choices((*NAMES, _text(chance)), k=chance.choice((0, 1, 3, 300)))
        search = chance.choice((None, "$ORIGIN", "$ORIGIN/../nvidia/cudnn/lib:/opt/lib", _text(chance)))
        made = write_elf(
            chance.choice((None, *NAMES)),
            needed,
            runpath=search,
            bits=chance.choice((32, 64, 64)),
            order=chance.choice(("<", "<", ">")),
            machine=chance.choice((62, 183, 4711)),
        )
    elif kind < 0.65:
        texts = b"\0".join(chance.choice(NAMES).encode() for _ in range(chance.choice((1, 9, 5000))))
        made = with_section(b".rodata", 0, len(texts) + 1, texts + b"\0")
    else:
        code = [
            container(
                *(
                    entry(chance.choice((CUBIN, PTX)), chance.choice((35, 75, 90, 120)), payload=bytes(chance.choice((0, 40, 4000))))
                    for _ in range(chance.choice((0, 1, 5)))
                )
            )
            for _ in range(chance.choice((1, 3, 2000)))
        ]
        content = damaged(chance, b"".join(code))
        size = chance.choice((len(content), len(content), 1 << 62, 0))
        made = with_section(chance.choice((b".nv_fatbin", b"__nv_relfatbin")), 0, size, content)
    return damaged(chance, made) if chance.random() < 0.8 else made


def wheel(chance: Chance) -> bytes:
    """Return a wheel with such libraries and text files, damaged or intact."""
    made = io.BytesIO()
    names = ("sight/_C.so", "sight/libloop.so.1", "sight.libs/libcudart.so.12", "sight-1.0.data/purelib/x.so", "../../x.so", _text(chance))
    warnings.filterwarnings("ignore", message="Duplicate name")  # intended in some of them
    with zipfile.ZipFile(made, "w", chance.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED, zipfile.ZIP_LZMA))) as archive:
        for name in chance.choices(names, k=chance.choice((0, 1, 2, 4))):
            archive.writestr(zipfile.ZipInfo(name), library(chance))
        for name, text in TEXTS.items():
            if chance.random() < 0.95:
                archive.writestr(name, (chance.mangled(text) if chance.random() < 0.2 else text).encode("utf-8", "surrogatepass"))
    content = made.getvalue()
    return damaged(chance, content, at_end=chance.random() < 0.8) if chance.random() < 0.6 else content
