"""What the page of many machines shows for Slurm, Kubernetes and Ray: its own lines, on a folder that stands for a machine.

The start script of the bundle is imitated: it makes a `python` where it is told to. That the real one does is held by test_bundle.py.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from tests.functional.test_apply_cli import Bench
from tests.program import ROOT

PAGE = (ROOT / "docs/situations/fleet.md").read_text("utf-8")
START = f"""set -eu
echo started
mkdir -p "$1/bin"
printf '#!/bin/sh\\nexec {sys.executable} "$@"\\n' > "$1/bin/new"
chmod +x "$1/bin/new"
mv "$1/bin/new" "$1/bin/python"
"""


def shown(language: str, words: str) -> str:
    """The one sample of the page in a language that has those words."""
    (found,) = (text for text in re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL) if words in text)
    return str(found)


class Node:
    """A machine whose folders lie below another one, with a bundle."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def bundle(self, path: str) -> Path:
        start = self.root / path.strip("/") / "start"
        start.parent.mkdir(parents=True)
        start.write_text(START)
        return start

    def placed(self, text: str) -> str:
        """A text with the paths of the machine where they are here."""
        return re.sub(r"(?<![\w/.])/(?=(?:shared|opt|run|env|bundle|dl-bundle)\b)", f"{self.root}/", text)

    def start(self, words: Sequence[str]) -> subprocess.Popen[str]:
        return subprocess.Popen([self.placed(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self, *words: str) -> tuple[int, str]:
        with self.start(words) as process:
            said = process.communicate()[0]
        return process.returncode, said


@pytest.fixture
def node(tmp_path: Path) -> Node:
    for name in ("run", "opt", "env"):
        (tmp_path / name).mkdir()
    return Node(tmp_path)


def test_the_prolog_of_slurm_makes_the_environment_once_and_fails_where_it_cannot(node: Node) -> None:
    prolog = shown("bash", "prolog.d")
    assert node.run("sh", "-c", prolog)[0] != 0
    node.bundle("shared/dl-bundle")

    jobs = [node.start(["sh", "-c", prolog]) for _ in range(4)]
    said = [job.communicate()[0] for job in jobs]

    assert [job.returncode for job in jobs] == [0] * 4, said
    assert "".join(said) == "started\n"
    assert node.run("sh", "-c", prolog) == (0, "")
    (ray,) = re.findall(r'"py_executable": "(.*?)"', shown("python", "py_executable"))
    assert node.run(ray, "-c", "print('a job')") == (0, "a job\n")


def test_the_image_and_the_init_container_of_kubernetes_hold_what_the_job_runs(node: Node) -> None:
    image = dict(line.split(" ", 1) for line in shown("dockerfile", "FROM").splitlines())
    node.bundle(image["COPY"].split()[1])
    assert node.run("sh", "-c", image["RUN"]) == (0, "started\n")
    assert node.run("sh", "-c", f"{image['ENV']}; command -v python")[1] == f"{node.root}/opt/dl/bin/python\n"

    pod = yaml.safe_load(shown("yaml", "kind: Pod"))["spec"]
    (init,), (train,) = pod["initContainers"], pod["containers"]
    places = {mount["name"]: mount["mountPath"] for mount in init["volumeMounts"]}
    assert places.keys() == {one["name"] for one in pod["volumes"]}
    assert [mount["mountPath"] for mount in train["volumeMounts"]] == [places["env"]]
    node.bundle(places["bundle"])
    assert node.run(*init["command"]) == (0, "started\n")
    assert node.run(train["command"][0], "-c", "print('a job')") == (0, "a job\n")


@pytest.mark.slow
def test_ray_gets_the_packages_of_the_lock_with_their_hashes(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.lock(("demo", "1.0"))
    told = ast.literal_eval(shown("python", '"pip"').split("runtime_env=")[1].strip()[:-1])
    program = tmp_path / "bin/cudnn-resolve"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m cudnn_resolve "$@"\n')
    program.chmod(0o755)
    environ = {**bench.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    command = shown("bash", "--format requirements")

    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    digest = hashlib.sha256(next(bench.wheels.glob("demo-1.0-*.whl")).read_bytes()).hexdigest()
    listed = (tmp_path / told["pip"]["packages"]).read_text()
    assert re.search(rf"^demo\b.*\s[\s\\]*--hash=sha256:{digest}$", listed, re.MULTILINE), listed
