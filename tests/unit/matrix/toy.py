"""A small world of tables that keeps every rule, and tables made of texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.parse import compile_table
from cudnn_resolve.matrix.table import PartT, Table, Top
from cudnn_resolve.matrix.toml import decode

HEAD = 'origin = "authored"\nsource.docs = {where = "https://docs.example/page", read = 2026-01-31}\n'
HARVESTED = 'origin = "harvested"\nscript = "scripts/harvest.py"\nread = 2026-01-31\n'

WORLD: Mapping[str, str] = {
    "driver/branch": HEAD
    + """
branch = [
  {name = "R450", number = 450, cuda = "11.0", source = "docs"},
  {name = "R535", number = 535, cuda = "12.2", status = "supported", eol = "2026-06", source = "docs"},
  {name = "R550", number = 550, cuda = "12.4", source = "docs"},
]""",
    "driver/minimum": HEAD
    + """
minimum = [
  {cuda = "11.0.3", driver = "450.51.06", source = "docs"},
  {cuda = "12.2.2", driver = "535.104.05", bundled = "535.104.05", date = 2023-08-30, source = "docs"},
  {cuda = "12.4.0", driver = "550.54.14", source = "docs"},
  {cuda = "12.4.1", driver = "550.54.15", source = "docs"},
]
floor = [
  {cuda_major = 11, first = "450.80.02", source = "docs"},
  {cuda_major = 12, first = "525.60.13", source = "docs"},
]""",
    "driver/forward": HEAD
    + """
[[forward]]
package = "cuda-compat-12-4"
cuda = "12.4"
branch = "R550"
base = 535
classes = ["datacenter"]
status = "compatible"
source = "docs"
""",
    "gpu/architecture": HEAD
    + """
architecture = [
  {capability = "7.5", name = "Turing", cuda_first = "10.0", driver_first = "R410", source = "docs"},
  {capability = "8.0", name = "Ampere", cuda_first = "11.0", cudnn_first = "8.0", source = "docs"},
  {capability = "9.0", name = "Hopper", cuda_first = "11.8", source = "docs"},
]""",
    "gpu/place": HEAD
    + """
place = [
  { name = "g4dn", match = ["g4dn.*"], gpu = "Tesla T4", source = "docs" },
  { name = "p4d", match = ["p4d.*"], gpu = "NVIDIA A100-SXM4-40GB", source = "docs" },
]
""",
    "gpu/peak": HEAD
    + """
peak = [
  {name = "Tesla T4", fp32 = 8.1, fp16 = 65, source = "docs"},
  {name = "NVIDIA A100-SXM4-40GB", fp32 = 19.5, tf32 = 156, fp16 = 312, bf16 = 312, source = "docs"},
]""",
    "gpu/card": HEAD
    + """
card = [
  {name = "Tesla T4", alias = ["T4"], capability = "7.5", class = "datacenter", memory_gib = 16, source = "docs"},
  {name = "NVIDIA A100-SXM4-40GB", alias = ["A100"], capability = "8.0", class = "datacenter", memory_gib = 40, source = "docs"},
  {name = "NVIDIA GeForce RTX 2080 Ti", capability = "7.5", class = "geforce", source = "docs"},
]""",
    "cuda/release": HEAD
    + """
release = [
  {cuda = "12.4.1", line = "12.4", date = 2024-04-03, repositories = ["ubuntu2204"], source = "docs"},
  {cuda = "12.4.0", line = "12.4", source = "docs"},
  {cuda = "12.2.2", line = "12.2", source = "docs"},
  {cuda = "11.0.3", line = "11.0", source = "docs"},
]""",
    "cuda/soname": HEAD
    + """
soname = [
  {library = "cublas", soname = "libcublas.so.11", first = "11.0", last = "11.8", source = "docs"},
  {library = "cublas", soname = "libcublas.so.12", first = "12.0", source = "docs"},
]""",
    "cuda/component": HEAD
    + """
[[component]]
library = "cublas"
cuda_major = 12
package = "nvidia-cublas-cu12"
abi = "minor"
slot = "nvidia-cublas:12"
lib_dir = "nvidia/cublas/lib"
source = "docs"
[[component]]
library = "cudnn"
cuda_major = 12
package = "nvidia-cudnn-cu12"
abi = "minor"
slot = "nvidia/cudnn"
lib_dir = "nvidia/cudnn/lib"
source = "docs"
""",
    "cuda/wheel": HEAD
    + """
wheel = [
  {package = "nvidia-cublas-cu12", version = "12.4.5.8", cuda = "12.4.1", source = "docs"},
]""",
    "cudnn/release": HEAD
    + """
[[build]]
version = "9.1.0.70"
cuda_major = 12
cuda_built = "12.4"
cuda_first = "12.0"
soname = 9
capability = ["7.5", "8.0", "9.0"]
driver = "525.60.13"
parts = ["graph", "ops"]
wheel = "nvidia-cudnn-cu12"
apt = {package = "libcudnn9-cuda-12", version = "9.1.0.70-1"}
source = "docs"
[[build]]
version = "8.9.7.29"
cuda_major = 12
cuda_first = "12.0"
soname = 8
capability = ["7.5"]
source = "docs"
""",
    "advisory": HEAD
    + """
[[advisory]]
id = "bad-one"
package = "nvidia-cudnn-cu12"
versions = "==9.1.0.70"
action = "avoid"
capability = ["9.0"]
beside = ["alpha"]
summary = "it breaks"
remedy = "take another"
source = "docs"
""",
    "trap": HEAD
    + """
[[trap]]
id = "old-alpha"
framework = "alpha"
versions = "<2"
kind = "runtime"
summary = "it warns"
action = "warn"
source = "docs"
""",
    "package/slot": HEAD + 'slot = [{slot = "alpha", packages = ["alpha", "alpha-gpu"], source = "docs"}]',
    "package/removed": HEAD + 'removed = [{name = "alpha.old", release = "alpha<2", instead = "alpha.new", source = "docs"}]',
    "apt/repository": HEAD
    + """
[[repository]]
os = "ubuntu22.04"
name = "ubuntu2204"
arch = "x86_64"
url = "https://repo.example/ubuntu2204/x86_64/"
cuda_first = "11.7"
source = "docs"
""",
    "apt/package": HEAD
    + """
[[package]]
library = "libraries"
name = "cuda-libraries-{major}-{minor}"
version = "{release}-1"
line_first = "10.0"
source = "docs"
""",
    "index": HEAD
    + 'index = [{id = "alpha-cu118", url = "https://index.example/cu118", kind = "simple", serves = ["alpha"], source = "docs"}]',
    "framework/alpha": HEAD
    + """
[framework]
name = "alpha"
title = "Alpha"
aliases = ["al"]
packages = ["alpha", "alpha-gpu"]
companions = ["alpha-vision"]
source = "docs"
[[build]]
version = ["1.0", "2.0"]
variant = "cu124"
arch = ["x86_64"]
cuda = "12.4"
cudnn = "9.1"
delivery = "wheel"
finds = "rpath"
extra = "cuda"
loads = ["cublas", "cudnn"]
capability = ["sm_75", "sm_80", "compute_80"]
[[build]]
version = "2.0"
variant = "cu118"
local = "cu118"
index = "alpha-cu118"
pythons = ["cp311"]
cuda = "11.0"
delivery = "bundled"
capability_first = "7.5"
requires = ["numpy"]
requires_like = "default"
[[build]]
version = "2.0"
variant = "cpu"
arch = ["aarch64"]
[[bound]]
versions = "<2"
requirement = "numpy<2"
reason = "built against NumPy 1"
source = "docs"
[[release]]
package = "alpha"
version = "3.0"
local = "cu118"
index = "alpha-cu118"
requires = ["numpy"]
source = "docs"
""",
    "framework/beta": HEAD
    + """
[framework]
name = "beta"
title = "Beta"
packages = ["beta"]
source = "docs"
[[build]]
version = "0.1"
variant = "cpu"
""",
    "wheel/alpha": HARVESTED
    + """
package = "alpha"
[[metadata]]
id = 1
requires = ["numpy>=1.20", "nvidia-cudnn-cu12==9.1.0.70; extra == 'cuda'"]
extras = ["cuda"]
[[metadata]]
id = 2
requires = []
[[release]]
version = "1.0"
tags = ["cp310-cp310-manylinux_2_17_x86_64", "cp311-cp311-manylinux_2_17_x86_64"]
requires_python = ">=3.10"
metadata = 1
[[release]]
version = "2.0"
date = 2024-05-05
yanked = true
tags = ["cp311-cp311-manylinux_2_17_aarch64.manylinux_2_28_x86_64", "py3-none-any"]
metadata = {x86_64 = 1, aarch64 = 2}
""",
    "measured/alpha": HARVESTED
    + """
package = "alpha"
build = [{version = ["2.0"], arch = ["x86_64"], cuda = "12.4", cudnn = "9.1.0.70", code = ["sm_75", "sm_80", "sm_90a", "compute_80"]}]""",
    "wheel/alpha-gpu": HARVESTED + 'package = "alpha-gpu"\nrelease = [{version = "1.0", tags = ["sdist"]}]',
    "wheel/alpha-vision": HARVESTED
    + """
package = "alpha-vision"
lines = ["alpha==2.0", "alpha>=1"]
metadata = [{id = 1, requires = ["alpha==1.0"]}, {id = 2, requires = [0]}, {id = 3, requires = [1]}]
files = [{id = 1, tags = ["py3-none-any"]}]
release = [
  {version = "0.1", files = 1, metadata = 1},
  {version = "0.2", files = 1, metadata = 2},
  {version = "0.2.1", tags = ["py3-none-any"], metadata = 2},
  {version = "0.3", tags = ["py3-none-any"], metadata = 3},
]""",
    "wheel/beta": HARVESTED
    + 'package = "beta"\nmetadata = [{id = 1}]\nrelease = [{version = "0.1", tags = ["py3-none-any"], metadata = 1}]',
    "wheel/nvidia-cublas-cu12": HARVESTED
    + 'package = "nvidia-cublas-cu12"\nmetadata = [{id = 1}]\nrelease = [{version = "12.4.5.8", tags = ["py3-none-any"], metadata = 1}]',
    "wheel/nvidia-cudnn-cu12": HARVESTED
    + 'package = "nvidia-cudnn-cu12"\nmetadata = [{id = 1}]\nrelease = [{version = "9.1.0.70", tags = ["py3-none-any"], metadata = 1}]',
}


class TextTables:
    """Tables made of TOML texts; `loaded` lists what was asked for, in order."""

    def __init__(self, texts: Mapping[str, str], *, label: str = "toy", overlay: bool = False) -> None:
        self._texts, self._label, self._overlay = dict(texts), label, overlay
        self.loaded: list[str] = []
        self.remark = ""

    def names(self) -> Sequence[str]:
        return tuple(self._texts)

    def path(self, name: str) -> str:
        return f"{self._label}/{name}.toml"

    def part(self, name: str, part: type[PartT]) -> PartT | None:
        """Only the head, and whole tables."""
        top: Any = Top(framework=self._compile(name).framework)
        return top if part is Top else None

    def load(self, name: str) -> Table:
        self.loaded.append(name)
        return self._compile(name)

    def version(self) -> str:
        return "2026-01-31.toy"

    def _compile(self, name: str) -> Table:
        compiled, faults = compile_table(name, decode(self._texts[name]), file=self.path(name), overlay=self._overlay)
        assert not faults, "\n".join(map(str, faults))
        return compiled


def book(*overlays: Mapping[str, str], **changed: str) -> Book:
    """The toy world, with some tables changed (`cuda__release` for cuda/release), under overlays."""
    texts = dict(WORLD)
    for name, text in changed.items():
        texts[name.replace("__", "/").replace("_", "-")] = text
    upper = (TextTables(texts_, label=f"over{number}", overlay=True) for number, texts_ in enumerate(overlays, 1))
    return Book(TextTables(texts), *upper)


def edited(name: str, old: str, new: str) -> Book:
    """The toy world with one passage of one table replaced."""
    assert WORLD[name].count(old) >= 1, f"{name} does not hold {old!r}"
    return Book(TextTables({**WORLD, name: WORLD[name].replace(old, new, 1)}))
