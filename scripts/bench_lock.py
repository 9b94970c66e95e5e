#!/usr/bin/env python3
"""Compare `cudnn-resolve lock` with `uv pip compile` and `pip lock` on the same requirements, in alternating rounds.

usage: bench_lock.py [--rounds N] [--items NAME,…] [--mirror] [--delay MS] [--pip]

Each item runs with an empty cache (cold), with the cache of the previous run (warm), and offline from that cache. Prints medians of wall
time, processor time and peak memory, and the ratio to uv. By default the configured index is used; with `--mirror` a server on loopback,
filled from that index in a first pass, serves the same pages compressed, with ETag, Cache-Control and PEP 658 metadata, and waits
`--delay` milliseconds before each response. Items that uv cannot solve are timed up to its "no". The tables of cudnn-resolve are compiled
beforehand, as after any first use; the line `tables` gives the cost of that first use.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import html
import http.server
import json
import os
import re
import shutil
import statistics
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from environments import find_uv
from measure import Run, measure

FACTS = {
    "platform": {"system": "linux", "arch": "x86_64", "distribution": "ubuntu", "release": "22.04", "glibc": "2.35"},
    "driver": {"version": "610.40.01", "cuda": "13.4"},
    "gpus": [{"name": "NVIDIA L4", "compute_capability": "8.9", "memory_mib": 23034}],
    "packages": {"pip": {}},
}
SCIENCE = [
    "aiohttp",
    "altair",
    "beautifulsoup4",
    "bokeh",
    "boto3",
    "catboost",
    "click",
    "cloudpickle",
    "dask",
    "datasets",
    "distributed",
    "duckdb",
    "einops",
    "evaluate",
    "fastapi",
    "fsspec",
    "gensim",
    "h5py",
    "httpx",
    "hydra-core",
    "imageio",
    "ipykernel",
    "ipywidgets",
    "joblib",
    "jupyterlab",
    "lightgbm",
    "lightning",
    "matplotlib",
    "mlflow",
    "networkx",
    "nltk",
    "numba",
    "numpy",
    "openpyxl",
    "opencv-python-headless",
    "optuna",
    "pandas",
    "pillow",
    "plotly",
    "polars",
    "pyarrow",
    "pydantic",
    "pytest",
    "pyyaml",
    "requests",
    "rich",
    "scikit-image",
    "scikit-learn",
    "scipy",
    "seaborn",
    "sentencepiece",
    "shap",
    "spacy",
    "sqlalchemy",
    "statsmodels",
    "streamlit",
    "sympy",
    "tensorboard",
    "tokenizers",
    "tqdm",
    "transformers",
    "xgboost",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """Requirements for both programs: `ours` names frameworks, `theirs` the same with the extras that install CUDA."""

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    python: str = "3.11"
    more: tuple[str, ...] = ()
    """Further requirements for both."""


def same(*names: str, python: str = "3.11", more: tuple[str, ...] = ()) -> Item:
    """Item with the same requirements for both programs."""
    return Item(ours=names, theirs=names, python=python, more=more)


ITEMS = {
    "tf-2.15.1": Item(ours=("tensorflow==2.15.1",), theirs=("tensorflow[and-cuda]==2.15.1",)),
    "torch-2.6.0": same("torch==2.6.0"),
    "jax-0.4.38": same("jax[cuda12]==0.4.38"),
    "torch+tf": Item(ours=("torch==2.6.0", "tensorflow==2.18.0"), theirs=("torch==2.6.0", "tensorflow[and-cuda]==2.18.0")),
    "tf-2.15": Item(ours=("tensorflow==2.15",), theirs=("tensorflow[and-cuda]==2.15",)),
    "tf-2.15-py312": Item(ours=("tensorflow==2.15",), theirs=("tensorflow==2.15",), python="3.12"),
    "ort+torch": same("onnxruntime-gpu==1.20.2", "torch==2.6.0"),
    "torch+jax": same("torch", "jax[cuda13]"),
    "tf+torch+jax": Item(ours=("tensorflow", "torch", "jax"), theirs=("tensorflow[and-cuda]", "torch", "jax[cuda12]")),
    "science": same("torch", more=tuple(SCIENCE)),
    "old-bounds": same("torch", more=(*SCIENCE, "protobuf<4", "fsspec<2023")),
    "boto-no": same("torch", more=("boto3", "botocore<1.30", "s3fs>=2024.1")),
    "airflow-no": same("tensorflow", more=("apache-airflow==2.7.3", "protobuf<3.20")),
}
"""The last ones need a search that learns from failed attempts; those in `-no` have no solution."""


class Bench:
    """Command lines of all programs for one index and one folder."""

    def __init__(self, scratch: Path, index: str | None) -> None:
        self.scratch = scratch
        self.index = index
        self.uv = find_uv()
        self.own = str(Path(sys.executable).parent / "cudnn-resolve")
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
        self.environment |= {"PIP_CONFIG_FILE": os.devnull, "XDG_CACHE_HOME": str(scratch / "cache"), "HOME": str(scratch), "NO_COLOR": "1"}
        self.environment["UV_PYTHON_DOWNLOADS"] = "never"
        certificate = os.environ.get("PIP_CERT")
        if certificate:
            self.environment["PIP_CERT"] = certificate

    def argv(self, program: str, name: str, mode: str) -> list[str]:
        """Command line of a program for an item."""
        item = ITEMS[name]
        wanted = self.scratch / f"{name}.{program}.in"
        offline = ["--offline"] if mode == "offline" else []
        if program == "ours":
            wanted.write_text("\n".join(item.more), "utf-8")
            facts = self.scratch / f"facts-{item.python}.json"
            facts.write_text(json.dumps({**FACTS, "python": {"version": f"{item.python}.9", "implementation": "cpython"}}), "utf-8")
            index = ["--index-url", self.index] if self.index else []
            more = ["-r", str(wanted)] if item.more else []
            targets = [word for text in item.ours for word in ("-f", text)]
            out = self.scratch / f"{name}.ours.toml"
            out.unlink(missing_ok=True)
            words = ["--no-variant-indexes", "--facts", str(facts), *targets, *more, *index, *offline, "-o", str(out)]
            return [self.own, "lock", "-q", *words]
        wanted.write_text("\n".join((*item.theirs, *item.more)), "utf-8")
        index = ["--default-index", self.index] if self.index else []
        if program == "uv":
            target = ["--python-version", item.python, "--python-platform", "x86_64-manylinux_2_35", "--no-build"]
            output = ["--format", "pylock.toml", "-o", str(self.scratch / f"pylock.{name.replace('.', '-')}.toml")]
            cache = ["--cache-dir", str(self.scratch / "uv")]
            return [str(self.uv), "pip", "compile", "--quiet", "--upgrade", str(wanted), *target, *output, *cache, *index, *offline]
        index = ["--index-url", self.index] if self.index else []
        return [sys.executable, "-m", "pip", "lock", "-q", "-r", str(wanted), "-o", str(self.scratch / "pip.toml"), *index]

    def forget(self, program: str) -> None:
        """Empty the index cache of a program; compiled tables stay."""
        if program == "ours":
            for folder in (self.scratch / "cache" / "cudnn-resolve").glob("*"):
                if not folder.name.startswith("tables"):
                    shutil.rmtree(folder)
        elif program == "uv":
            shutil.rmtree(self.scratch / "uv", ignore_errors=True)
        else:
            shutil.rmtree(self.scratch / "cache" / "pip", ignore_errors=True)


class Mirror:
    """Index on loopback that serves the content of the configured one, with a given delay."""

    def __init__(self, delay_ms: float) -> None:
        self.delay_ms = delay_ms
        self.pages: dict[str, tuple[bytes, str]] = {}
        self._lock = threading.Lock()
        self._upstream = upstream_index()
        mirror = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                mirror.answer(self)

            def do_HEAD(self) -> None:
                """Send any file size; nothing is downloaded."""
                time.sleep(mirror.delay_ms / 1000)
                self.send_response(200)
                self.send_header("Content-Length", "1000000")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - named by the base class
                """Print nothing."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/simple"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        """Send a page or a METADATA file."""
        time.sleep(self.delay_ms / 1000)
        path = urllib.parse.unquote(handler.path)
        found = self.pages.get(path) or self._fill(path)
        body, tag = found
        same_tag = handler.headers.get("If-None-Match") == tag
        handler.send_response(304 if same_tag else 200 if body else 404)
        handler.send_header("ETag", tag)
        handler.send_header("Cache-Control", "max-age=600")
        if body:
            handler.send_header("Content-Type", "text/html" if path.startswith("/simple/") else "binary/octet-stream")
            handler.send_header("Content-Encoding", "gzip")
        handler.send_header("Content-Length", "0" if same_tag else str(len(body)))
        handler.end_headers()
        if not same_tag:
            handler.wfile.write(body)

    def _fill(self, path: str) -> tuple[bytes, str]:
        plain = self._page(path) if path.startswith("/simple/") else self._metadata(path)
        body = gzip.compress(plain, 6) if plain else b""
        found = (body, f'"{hashlib.sha256(body).hexdigest()[:16]}"')
        with self._lock:
            self.pages[path] = found
        return found

    def _page(self, path: str) -> bytes:
        try:
            text = fetch(self._upstream + path.removeprefix("/simple")).decode()
        except OSError:
            return b""

        def link(found: re.Match[str]) -> str:
            address = urllib.parse.urljoin(self._upstream + path.removeprefix("/simple"), html.unescape(found[1]))
            mark = ' data-core-metadata="true"' if ".whl" in address else ""
            return f'<a href="/file/{urllib.parse.quote(address, safe="#=/")}"{mark}'

        return re.sub(r'<a href="([^"]*)"', link, text).encode()

    def _metadata(self, path: str) -> bytes:
        from cudnn_resolve.index.client import IndexClient
        from cudnn_resolve.index.settings import Settings
        from cudnn_resolve.requirement.source import File

        address = path.removeprefix("/file/").removesuffix(".metadata")
        name = address.rpartition("/")[2]
        with IndexClient(Settings()) as source:
            found = source.metadata(name.split("-")[0], File(filename=name, url=address, hashes={}))
        assert found is not None
        stem = name.split("-")
        lines = ["Metadata-Version: 2.1", f"Name: {stem[0]}", f"Version: {stem[1]}"]
        lines += [f"Requires-Python: {found.requires_python}"] if found.requires_python else []
        lines += [f"Provides-Extra: {extra}" for extra in found.extras]
        lines += [f"Requires-Dist: {line}" for line in found.requires]
        return ("\n".join(lines) + "\n").encode()


def fetch(url: str) -> bytes:
    """Body of the page at a URL."""
    if not url.startswith("https://"):
        raise SystemExit(f"bench: cannot mirror the index {url}: it is not served by https")
    with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310 - checked above
        return bytes(answer.read())


def upstream_index() -> str:
    """Index that pip is configured for here."""
    from cudnn_resolve.index.read_settings import Options, read_settings

    return read_settings(Options(), os.environ, prefix=sys.prefix).indexes[0].url.rstrip("/")


def measure_items(bench: Bench, options: argparse.Namespace) -> None:
    """Measure every item, mode and program, and print a line for each."""
    programs = ["ours", *(["uv"] if bench.uv else []), *(["pip"] if options.pip else [])]
    print(f"{'item':<14}{'mode':<9}{'program':<8}{'wall ms':>9}{'min':>8}{'max':>8}{'cpu ms':>8}{'MiB':>7}{'x uv':>7}  exit")
    for name in options.items.split(",") if options.items else ITEMS:
        runs: dict[tuple[str, str], list[Run]] = {}
        if bench.index:
            for program in programs:
                measure(bench.argv(program, name, "cold"), bench.environment)  # fills the mirror
        for _ in range(options.rounds):
            for mode in ("cold", "warm", "offline"):
                for program in programs:
                    if program == "pip" and mode == "offline":
                        continue
                    if mode == "cold":
                        bench.forget(program)
                    runs.setdefault((mode, program), []).append(measure(bench.argv(program, name, mode), bench.environment))
        for (mode, program), some in runs.items():
            wall = sorted(run.wall_ms for run in some)
            median = statistics.median(wall)
            peer = statistics.median(run.wall_ms for run in runs[mode, "uv"]) if (mode, "uv") in runs else None
            ratio = f"{median / peer:.2f}" if peer else "-"
            processor, peak = statistics.median(run.processor_ms for run in some), max(run.peak_mib for run in some)
            codes = "/".join(sorted({str(run.code) for run in some}))
            times = f"{median:>9.0f}{wall[0]:>8.0f}{wall[-1]:>8.0f}{processor:>8.0f}"
            print(f"{name:<14}{mode:<9}{program:<8}{times}{peak:>7.0f}{ratio:>7}  {codes}", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="runs of each command (5)")
    parser.add_argument("--items", help=f"comma-separated, from {', '.join(ITEMS)} (all)")
    parser.add_argument("--mirror", action="store_true", help="use a server on loopback with the content of the index and PEP 658")
    parser.add_argument("--delay", type=float, default=0.0, metavar="MS", help="milliseconds before each response of the mirror (0)")
    parser.add_argument(
        "--pip", action="store_true", help="also measure `pip lock`, which downloads whole wheels from an index without PEP 658"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cudnn-resolve-bench-") as folder:
        mirror = Mirror(options.delay) if options.mirror else None
        bench = Bench(Path(folder), mirror.url if mirror else None)
        tables = [bench.own, "plan", "-q", "--offline", "--python-version", "3.11", "-f", "torch"]
        first, second = measure(tables, bench.environment), measure(tables, bench.environment)
        where = f"a mirror on loopback, {options.delay:g} ms before each response" if mirror else "the configured index"
        print(f"{options.rounds} rounds, {os.cpu_count()} cores, Python {sys.version.split()[0]}, {where}")
        print(f"tables: a first use takes {first.wall_ms - second.wall_ms:.0f} ms more than a second one\n")
        measure_items(bench, options)


if __name__ == "__main__":
    main()
