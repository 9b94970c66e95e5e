#!/usr/bin/env python3
"""Breaks real environments with real wheels, has `cudnn-resolve doctor` look at what they print, and carries its remedy out.

usage: broken_environments.py [--keep FOLDER] [--record FOLDER] [NAME ...]

Each environment is made in a temporary folder from the configured package index, its command is run, and the log goes to `doctor`
together with the facts of that environment. The first finding must be the expected cause, with a line of evidence; then remedies are
carried out in their order until the command no longer prints what the cause is told by. Nothing needs a GPU. `--record` writes each log
with its cause, as the tests read them. Takes minutes, a network and about 15 GB of disk.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
DOCTOR = [sys.executable, "-m", "cudnn_resolve", "doctor"]
UV = [sys.executable, "-m", "uv"]


@dataclass
class Broken:
    """One environment: what is installed, what is run, what it must be found to be, and what cures it."""

    name: str
    cause: str
    run: str
    """Shell command; $PY is the interpreter, $ENV its folder, $SITE its site-packages, $TMP a folder for anything else."""
    python: str = "3.11"
    install: tuple[str, ...] = ()
    """Each a line of arguments for `uv pip install`."""
    prepare: str = ""
    """Shell command after that."""
    cure: str = ""
    """Where the remedy is not one command: what a person does who reads it. Must be backed by the text `cure_says`."""
    cure_says: str = ""
    also: tuple[str, ...] = ()
    """Causes that the facts of the machine may make of it: in a container the driver is missing because no GPU was passed on."""
    gone: bool = True
    """False where the failure cannot go away on a machine without a GPU."""
    env: dict[str, str] = field(default_factory=dict)


CASES = [
    Broken("numpy2-old-pandas", "numpy_abi", '$PY -c "import pandas"', install=("numpy==2.1.3", "--no-deps pandas==2.1.1 pytz python-dateutil tzdata six"), prepare=""),
    Broken("numpy2-old-scipy-torch", "numpy_abi", "$PY -c \"import cv2\"", install=("numpy==2.1.3", "--no-deps opencv-python-headless==4.8.1.78")),
    Broken("numpy-older-than-extension", "numpy_abi", '$PY -c "import pandas"', python="3.8", install=("numpy==1.17.3 setuptools", "--no-deps pandas==2.0.3 pytz python-dateutil tzdata six")),
    Broken("numpy2-old-onnxruntime", "numpy_abi", '$PY -c "import onnxruntime"', install=("numpy==2.1.3", "--no-deps onnxruntime==1.16.3 coloredlogs flatbuffers packaging protobuf sympy humanfriendly mpmath")),
    Broken("protobuf4-tensorflow28", "protobuf_abi", '$PY -c "import tensorflow"', python="3.9", install=("tensorflow-cpu==2.8.0 numpy<2", "protobuf==4.25.5")),
    Broken("protobuf-no-builder", "protobuf_abi", '$PY -c "import google.rpc.status_pb2"', install=("protobuf==3.19.6", "--no-deps googleapis-common-protos==1.70.0")),
    Broken("protobuf-no-runtime-version", "protobuf_abi", '$PY -c "import tensorflow"', install=("tensorflow-cpu==2.20.0", "protobuf==4.25.5")),
    Broken("protobuf-gencode-newer", "protobuf_abi", '$PY -c "import tensorflow"', install=("tensorflow-cpu==2.20.0", "protobuf==5.26.1")),
    Broken("pip-tensorflow-python313", "pip_wheel_unavailable_for_python", "$PY -m pip install --dry-run tensorflow-cpu==2.10.1", python="3.13", cure="$PY310 -m pip install --dry-run --no-deps tensorflow-cpu==2.10.1", cure_says="environment of a Python"),
    Broken("pip-none", "pip_wheel_unavailable_for_python", "$PY -m pip install --dry-run --only-binary :all: jaxlib==0.4.13", python="3.13", cure="$PY310 -m pip install --dry-run --no-deps jaxlib==0.4.13", cure_says="environment of a Python"),
    Broken("pip-cudnn-pin", "pip_pin_unavailable", "$PY -m pip install --dry-run nvidia-cudnn-cu11==8.5.0.99", cure="$PY -m pip install --dry-run --no-deps nvidia-cudnn-cu11", cure_says="pin"),
    Broken("pip-local-version", "pip_pin_unavailable", "$PY -m pip install --dry-run torch==2.4.0+cu118", cure="$PY -m pip install --dry-run --no-deps torch==2.4.0", cure_says="index"),
    Broken("pip-foreign-wheel", "pip_wheel_unavailable_for_python", "$PY -m pip install $TMP/*.whl", prepare="$PY -m pip download -q --no-deps --only-binary :all: --python-version 3.8 -d $TMP msgpack==1.0.8", cure="$PY -m pip install msgpack", cure_says="Python"),
    Broken("pip-requires-python", "pip_wheel_unavailable_for_python", "$PY -m pip install --no-deps $TMP/*.tar.gz", python="3.8", prepare="$PY -m pip download -q --no-deps --no-binary :all: --no-build-isolation --ignore-requires-python -d $TMP six==1.17.0; cd $TMP && mkdir six2 && tar xf six-*.tar.gz -C six2 --strip 1 && rm six-*.tar.gz && sed -i 's/Requires-Python:.*/Requires-Python: >=3.12/' six2/PKG-INFO && sed -i 's/python_requires=.*/python_requires=\">=3.12\",/' six2/setup.py && sed -i 's/python_requires.*=.*/python_requires = >=3.12/' six2/setup.cfg; tar czf six-1.17.0.tar.gz six2 && rm -r six2", cure="$PY -m pip install six", cure_says="Python"),
    Broken("uv-python-tag", "pip_wheel_unavailable_for_python", "$UV pip install --dry-run --only-binary :all: --python $PY torch==2.0.1", python="3.12", cure="$UV pip install --dry-run --no-deps --python $PY310 torch==2.0.1", cure_says="environment of a Python"),
    Broken("uv-stub-pin", "pip_pin_unavailable", "$UV pip install --dry-run --python $PY 'nvidia-cuda-runtime-cu13>=13.0'", cure="$UV pip install --dry-run --python $PY 'nvidia-cuda-runtime>=13.0'", cure_says="pin"),
    Broken("cusolver-without-cublas", "cuda_runtime_missing", '$PY -c "import ctypes; ctypes.CDLL(\'$SITE/nvidia/cusolver/lib/libcusolver.so.11\')"', install=("--no-deps nvidia-cusolver-cu12==11.6.1.9",), env={"LD_LIBRARY_PATH": "$SITE/nvidia/cublas/lib:$SITE/nvidia/cusparse/lib:$SITE/nvidia/nvjitlink/lib:$SITE/nvidia/cuda_runtime/lib"}),
    Broken("cusparse-without-nvjitlink", "cuda_runtime_missing", '$PY -c "import ctypes; ctypes.CDLL(\'$SITE/nvidia/cusparse/lib/libcusparse.so.12\')"', install=("--no-deps nvidia-cusparse-cu12==12.3.1.170",), env={"LD_LIBRARY_PATH": "$SITE/nvidia/nvjitlink/lib"}),
    Broken("nvjitlink-older-first", "nvjitlink_mix", '$PY -c "import ctypes; ctypes.CDLL(\'$SITE/nvidia/cusparse/lib/libcusparse.so.12\')"', install=("--no-deps nvidia-cusparse-cu12==12.5.4.2 nvidia-nvjitlink-cu12==12.6.85", "--target $TMP --no-deps nvidia-nvjitlink-cu12==12.1.105"), env={"LD_LIBRARY_PATH": "$TMP/nvidia/nvjitlink/lib"}),
    Broken("cublas-lt-older-first", "cublas_mismatch", '$PY -c "import ctypes; ctypes.CDLL(\'$SITE/nvidia/cublas/lib/libcublas.so.12\')"', install=("--no-deps nvidia-cublas-cu12==12.9.1.4", "--target $TMP --no-deps nvidia-cublas-cu12==12.0.1.189"), env={"LD_LIBRARY_PATH": "$TMP/nvidia/cublas/lib"}),
    Broken("cudnn-absent", "cudnn_missing", '$PY -c "import ctypes; ctypes.CDLL(\'libcudnn.so.9\')"', cure="$UV pip install -q --python $PY 'nvidia-cudnn-cu12==9.1.0.70' --no-deps; export LD_LIBRARY_PATH=$SITE/nvidia/cudnn/lib", cure_says="wheel of that major"),
    Broken("cudnn-in-wheel-not-on-path", "lib_not_on_path", '$PY -c "import ctypes; ctypes.CDLL(\'libcudnn.so.9\')"', install=("--no-deps nvidia-cudnn-cu12==9.1.0.70",)),
    Broken("cudnn9-when-8-is-wanted", "cudnn_major_mismatch", '$PY -c "import ctypes; ctypes.CDLL(\'libcudnn.so.8\')"', install=("--no-deps nvidia-cudnn-cu12==9.1.0.70",), cure="$UV pip install -q --python $PY 'nvidia-cudnn-cu12==8.9.7.29' --no-deps; export LD_LIBRARY_PATH=$SITE/nvidia/cudnn/lib", cure_says="agree on one major"),
    Broken("cudnn-graph-of-another-release", "cudnn_sublibrary_mix", '$PY -c "import ctypes; d = ctypes.CDLL(\'$SITE/nvidia/cudnn/lib/libcudnn.so.9\'); d.cudnnGetErrorString.restype = ctypes.c_char_p; p = ctypes.c_void_p(); r = d.cudnnCreateTensorDescriptor(ctypes.byref(p)); print(\'cuDNN error:\', d.cudnnGetErrorString(r).decode()) if r else print(\'fine\')" 2>&1', install=("--no-deps nvidia-cudnn-cu12==9.1.0.70", "--target $TMP --no-deps nvidia-cudnn-cu12==9.2.1.18"), prepare="mkdir $TMP/only && cp $TMP/nvidia/cudnn/lib/libcudnn_graph.so.9 $TMP/only/", env={"LD_LIBRARY_PATH": "$TMP/only"}),
    Broken("onnxruntime-gpu-without-cuda", "cuda_runtime_missing", '$PY -c "import ctypes; ctypes.CDLL(\'$SITE/onnxruntime/capi/libonnxruntime_providers_shared.so\', ctypes.RTLD_GLOBAL); ctypes.CDLL(\'$SITE/onnxruntime/capi/libonnxruntime_providers_cuda.so\')"', install=("onnxruntime-gpu==1.20.2",), cure="$UV pip install -q --python $PY nvidia-cublas-cu12 'nvidia-cudnn-cu12==9.*' nvidia-curand-cu12 nvidia-cufft-cu12 nvidia-cuda-runtime-cu12 nvidia-cuda-nvrtc-cu12; export LD_LIBRARY_PATH=$(echo $SITE/nvidia/*/lib | tr ' ' :)", cure_says="CUDA libraries that the build was made for"),
    Broken("onnxruntime-cpu-package", "cpu_only_build", "$PY $TMP/run.py", install=("onnxruntime==1.20.1 onnx==1.17.0",), prepare="printf 'import onnx\\nfrom onnx import helper as h, TensorProto as t\\nm = h.make_model(h.make_graph([h.make_node(\"Relu\", [\"x\"], [\"y\"])], \"g\", [h.make_tensor_value_info(\"x\", t.FLOAT, [1])], [h.make_tensor_value_info(\"y\", t.FLOAT, [1])]), ir_version=8, opset_imports=[h.make_opsetid(\"\", 17)])\\nimport onnxruntime as o\\no.InferenceSession(m.SerializeToString(), providers=[\"CUDAExecutionProvider\", \"CPUExecutionProvider\"])\\n' > $TMP/run.py", cure="$PY -m pip uninstall -qy onnxruntime; $UV pip install -q --python $PY onnxruntime-gpu==1.20.2; unset LD_LIBRARY_PATH", cure_says="build with CUDA"),
    Broken("jax-without-cuda", "cpu_only_build", "$PY -c \"import jax; jax.devices('gpu')\"", install=("jax==0.4.38",), gone=False),
    Broken("libcuda-absent", "driver_not_loaded", "$PY -c \"import ctypes; X,
    Broken("nvml-absent", "driver_not_loaded", '$PY -c "import pynvml; pynvml.nvmlInit()"', install=("nvidia-ml-py",), also=("container_gpu_not_passed", "driver_too_old"), also=("container_gpu_not_passed", "driver_too_old"), gone=False),
    Broken("numba-without-driver", "driver_not_loaded", '$PY -c "from numba import cuda; cuda.current_context()"', install=("numba==0.60.0",), also=("container_gpu_not_passed", "driver_too_old"), gone=False),
    Broken("cupy-without-driver", "driver_not_loaded", '$PY -c "import cupy; cupy.zeros(1)"', install=("cupy-cuda12x==13.3.0", "--no-deps nvidia-cuda-runtime-cu12"), env={"LD_LIBRARY_PATH": "$SITE/nvidia/cuda_runtime/lib"}, also=("container_gpu_not_passed", "driver_too_old"), gone=False),
    Broken("tensorflow-cpu-noise", "harmless", '$PY -c "import tensorflow as tf; print(tf.reduce_sum(tf.ones(3)))"', install=("tensorflow-cpu==2.15.1",), gone=False),
    Broken("torch-without-its-wheels", "cuda_runtime_missing", '$PY -c "import torch"', install=("--no-deps torch==2.2.2", "filelock typing-extensions sympy networkx jinja2 fsspec numpy<2"), cure="$UV pip install -q --python $PY torch==2.2.2", cure_says="CUDA libraries"),
    Broken("torch22-numpy2", "numpy_abi", '$PY -c "import torch; torch.zeros(2).numpy()"', install=("torch==2.2.2", "numpy==2.1.3")),
    Broken("torchvision-of-another-torch", "framework_pkg_mismatch", '$PY -c "import torchvision"', install=("torch==2.2.2 numpy<2 pillow", "--no-deps torchvision==0.16.2"), cure="$UV pip install -q --python $PY --no-deps torchvision==0.17.2", cure_says="pair"),
    Broken("torch-without-driver", "driver_not_loaded", '$PY -c "import torch; torch.zeros(1).cuda()"', install=("torch==2.2.2 numpy<2",), also=("container_gpu_not_passed", "driver_too_old"), gone=False),
    Broken("torch-older-cudnn-first", "ld_path_shadowing", '$PY -c "import torch; print(torch.backends.cudnn.version())"', install=("torch==2.2.2 numpy<2", "--target $TMP/cudnn --no-deps nvidia-cudnn-cu12==8.9.0.131"), prepare="rm $TMP/cudnn/nvidia/cudnn/lib/libcudnn.so.8.x 2>/dev/null; true", env={"LD_LIBRARY_PATH": "$TMP/cudnn/nvidia/cudnn/lib"}),
    Broken("apt-unknown-key", "apt_key", "apt-get $APT update", prepare="@apt-unsigned", cure="apt-get $APT -o Acquire::AllowInsecureRepositories=false -o Dir::Etc::sourcelist=$TMP/trusted.list update", cure_says="key"),
    Broken("apt-unmet-depends", "apt_conflict", "apt-get $APT -s install libcudnn8-dev", prepare="@apt-depends", cure="apt-get $APT -s install libcudnn8", cure_says="version"),
    Broken("apt-version-absent", "apt_conflict", "apt-get $APT -s install libcudnn8=8.0.4.30-1+cuda11.1", prepare="@apt-depends", cure="apt-get $APT -s install libcudnn8", cure_says="version"),
    Broken("dpkg-overwrite", "apt_conflict", "dpkg $DPKG --force-not-root --log=/dev/null -i $TMP/one.deb $TMP/two.deb", prepare="@dpkg-overwrite", cure="dpkg $DPKG --force-not-root --log=/dev/null -i $TMP/one.deb", cure_says="set"),
]

APT_LIBRARY = r"""
repo=$TMP/repo; mkdir -p $repo $TMP/state/lists/partial $TMP/cache/archives/partial; : > $TMP/status
make_deb() { # name version depends file
  d=$TMP/build-$1; rm -rf $d; mkdir -p $d/DEBIAN $d/usr/share/doc/shared
  printf 'Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: nobody <nobody@localhost>\nDescription: a stand-in\n' "$1" "$2" > $d/DEBIAN/control
  [ -z "$3" ] || echo "Depends: $3" >> $d/DEBIAN/control
  [ -z "$4" ] || echo "$1" > $d/usr/share/doc/shared/$4
  dpkg-deb -q --build $d "$5" >/dev/null; }
index() { cd $repo; : > Packages; for f in *.deb; do [ -e "$f" ] || continue; dpkg-deb -f $f >> Packages; printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' $f $(stat -c %s $f) $(sha256sum $f | cut -d' ' -f1) >> Packages; done
  printf 'Origin: test\nDate: %s\nSHA256:\n %s %s Packages\n' "$(LC_ALL=C date -Ru)" $(sha256sum Packages | cut -d' ' -f1) $(stat -c %s Packages) > Release; }
"""
APT = {
    "@apt-unsigned": APT_LIBRARY
    + r"""
make_deb libcudnn8 8.9.7.29-1+cuda12.2 "" "" $repo/one.deb; index
export GNUPGHOME=$TMP/gnupg; mkdir -m 700 $GNUPGHOME
gpg -q --batch --passphrase '' --quick-gen-key 'test <test@localhost>' rsa2048 sign never
gpg -q --batch --yes --clearsign -o $repo/InRelease $repo/Release; gpg -q --export > $TMP/good.gpg
mkdir -m 700 $TMP/other; GNUPGHOME=$TMP/other gpg -q --batch --passphrase '' --quick-gen-key 'other <other@localhost>' rsa2048 sign never; GNUPGHOME=$TMP/other gpg -q --export > $TMP/wrong.gpg
chmod a+rX -R $TMP/repo $TMP/*.gpg
echo "deb [signed-by=$TMP/wrong.gpg] file:$repo ./" > $TMP/sources.list; echo "deb [signed-by=$TMP/good.gpg] file:$repo ./" > $TMP/trusted.list""",
    "@apt-depends": APT_LIBRARY
    + r"""
make_deb libcudnn8 8.9.7.29-1+cuda12.2 "" "" $repo/one.deb
make_deb libcudnn8-dev 8.9.2.26-1+cuda12.1 "libcudnn8 (= 8.9.2.26-1+cuda12.1)" "" $repo/two.deb; index; chmod a+rX -R $TMP/repo
echo "deb [trusted=yes] file:$repo ./" > $TMP/sources.list; apt-get $APT -q update >/dev/null""",
    "@dpkg-overwrite": APT_LIBRARY
    + r"""
mkdir -p $TMP/root/var/lib/dpkg/info $TMP/root/var/lib/dpkg/updates; : > $TMP/root/var/lib/dpkg/status
make_deb libnvidia-compute-535 535.161.07-1 "" clash $TMP/one.deb; make_deb libnvidia-compute-550 550.54.14-1 "" clash $TMP/two.deb""",
}


def environment(case: Broken, folder: Path) -> dict[str, str]:
    """The variables of a case's commands."""
    env, tmp = folder / "env", folder / "tmp"
    apt = f"-o Dir::State={tmp}/state -o Dir::State::status={tmp}/status -o Dir::Cache={tmp}/cache -o Dir::Etc::sourcelist={tmp}/sources.list"
    own = {
        "PY": str(env / "bin/python"),
        "ENV": str(env),
        "SITE": str(env / f"lib/python{case.python}/site-packages"),
        "TMP": str(tmp),
        "UV": shlex.join(UV),
        "APT": f"{apt} -o Dir::Etc::sourceparts=/dev/null -o Dir::Etc::trusted=/dev/null -o Dir::Etc::trustedparts=/dev/null -o APT::Sandbox::User=root",
        "DPKG": f"--root={tmp}/root",
        "PATH": f"{env}/bin:{os.environ['PATH']}",
        "HOME": str(folder),
        "LC_ALL": "C.UTF-8",
    }
    kept = {name: os.environ[name] for name in os.environ if name.startswith(("PIP_", "UV_", "SSL_", "HTTP", "http", "NO_PROXY"))}
    config = {"PIP_CONFIG_FILE": p for p in (os.environ.get("PIP_CONFIG_FILE"), os.path.expanduser("~/.config/pip/pip.conf"), "/etc/pip.conf") if p and os.path.exists(p)}
    own = {**kept, **config, **own, "UV_PYTHON_DOWNLOADS": "never", "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR", str(Path.home() / ".cache/uv"))}
    for name, value in case.env.items():
        own[name] = value.replace("$SITE", own["SITE"]).replace("$TMP", own["TMP"])
    return own


def python_of(version: str) -> str:
    """An interpreter of that version."""
    for place in sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python")):
        return str(place)
    found = subprocess.run([*UV, "python", "find", "--no-project", version], capture_output=True, text=True, check=False)
    return found.stdout.strip() or version


def shell(command: str, env: dict[str, str]) -> tuple[int, str]:
    """Exit status and what was printed."""
    done = subprocess.run(["bash", "-c", command], env=env, capture_output=True, check=False, timeout=900)
    return done.returncode, (done.stdout + done.stderr).decode("utf-8", "replace")


def levelled(text: str, env: dict[str, str]) -> str:
    """A log without the places of this machine."""
    for name in ("SITE", "ENV", "TMP", "HOME"):
        text = text.replace(os.path.realpath(env[name]), f"/work/{name.lower()}").replace(env[name], f"/work/{name.lower()}")
    text = re.sub(r"/[^\s\"':]*?/(python3\.\d+)/", r"/usr/lib/\1/", text) if "/.pyenv/" in text or "/.local/share/uv" in text else text
    text = re.sub(r"https?://[^\s/]+", "https://index.example", text)
    text = re.sub(r"\[notice\].*\n?", "", text)
    return text[-20_000:]


def doctor(log: str, env: dict[str, str]) -> list[dict[str, object]]:
    """The findings."""
    words = [*DOCTOR, "-", "--format", "json", "--python", env["PY"]]
    clean = {**os.environ, "PYTHONPATH": str(HERE)}
    clean.update({name: env[name] for name in ("LD_LIBRARY_PATH",) if name in env})
    done = subprocess.run(words, input=log, env=clean, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"doctor: exit {done.returncode}: {done.stderr[-400:]}")
    return json.loads(done.stdout)["findings"]


def cured(case: Broken, env: dict[str, str], finding: dict[str, object]) -> str | None:
    """How the failure went away; None where it did not."""
    remedies = finding["remedy"]
    if case.cure:
        if not any(case.cure_says in f"{one['text']} {one['command']}" for one in remedies):
            return None
        if "--dry-run" in case.cure or case.run.startswith(("apt-get", "dpkg", "$PY -m pip install")):
            return "by hand" if shell(case.cure, env)[0] == 0 else None
        log = shell(f"{case.cure}; {case.run}", env)[1]
        return "by hand" if not told(case.cause, log, env) else None
    done: list[str] = []
    for _ in range(5):  # one library after the other
        step = _step(case, env, finding, done)
        if step is None:
            return None
        command, log, left = step
        done.append(command)
        if not left:
            return "; ".join(done)
        finding = next(one for one in doctor(log, env) if one["severity"] != "info")
    return None


def _step(case: Broken, env: dict[str, str], finding: dict[str, object], done: list[str]) -> tuple[str, str, bool] | None:
    """The first remedy after which the failure is gone or another one: its command, what is printed then, whether anything is left."""
    before = finding["summary"]
    for one in finding["remedy"]:
        command = one["command"]
        if not command or command.startswith(("cudnn-resolve", "sudo")) or command in done:
            continue  # what `apply` does is tested where it is
        words = command.replace("python -m pip", "$PY -m pip") if command.startswith("python ") else command
        log = shell("; ".join([*done, words, case.run]), env)[1]
        left = told(case.cause, log, env)
        if not left or doctor(log, env)[0]["summary"] != before:
            return words, log, left
    return None


def told(cause: str, log: str, env: dict[str, str]) -> bool:
    """True where the log tells of the cause."""
    words = [*DOCTOR, "-", "--format", "json", "--no-facts"]
    done = subprocess.run(words, input=log, env={**os.environ, "PYTHONPATH": str(HERE)}, capture_output=True, text=True, check=False, timeout=300)
    causes = {one["cause"] for one in json.loads(done.stdout)["findings"] if one["severity"] != "info"}
    family = {"cudnn_missing", "lib_not_on_path", "cudnn_major_mismatch"}
    return bool(causes & (family if cause in family else {cause}))


def work(case: Broken, folder: Path, record: Path | None) -> str:
    """A line that says how it went; it begins with `ok` where all is well."""
    env = environment(case, folder)
    (folder / "tmp").mkdir(parents=True)
    env["PY310"] = python_of("3.10")
    made = subprocess.run([*UV, "venv", "-q", "--seed", "--python", python_of(case.python), env["ENV"]], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"no environment: {made.stderr[-200:]}"
    for line in case.install:
        place = "" if "--target" in line else f"--python {env['PY']} "
        code, log = shell(f"$UV pip install -q {place}{quoted(line)}", env)
        if code:
            return f"cannot be set up: {line}: {log[-300:]}"
    if case.prepare:
        code, log = shell(APT.get(case.prepare, case.prepare), env)
        if code:
            return f"cannot be prepared: {log[-300:]}"
    _, log = shell(case.run, env)
    if record is not None:
        (record / f"{case.name}.log").write_text(f"cause: {case.cause}\n{levelled(log, env)}", "utf-8")
    findings = doctor(log, env)
    loud = [one for one in findings if one["severity"] != "info"]
    if case.cause == "harmless":
        return "ok quiet" if not loud else f"said {loud[0]['cause']}"
    if not findings or findings[0]["cause"] not in (case.cause, *case.also):
        return f"said {findings[0]['cause'] if findings else 'nothing'} instead of {case.cause}: {log[-300:]!r}"
    if not any(one["line"] for one in findings[0]["evidence"]):
        return "without a line of evidence"
    if not findings[0]["remedy"]:
        return "without a remedy"
    if not case.gone:
        return "ok (its remedy needs a GPU or a driver)"
    how = cured(case, env, findings[0])
    return f"ok, cured: {how}" if how else f"not cured by {[one['command'] for one in findings[0]['remedy']]}"


def quoted(line: str) -> str:
    """A line of requirements for a shell; variables stay."""
    return " ".join(f'"{word}"' for word in line.split())


def main() -> int:
    """The number of environments that went wrong, 1 at most."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--record", type=Path, help="write the logs there")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    bad = 0
    for case in CASES:
        if args.names and case.name not in args.names:
            continue
        folder = Path(tempfile.mkdtemp(prefix="broken-"))
        try:
            told_ = work(case, folder, args.record)
        except (OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
            told_ = f"{type(error).__name__}: {error}"
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        bad += not told_.startswith("ok")
        print(f"{case.name}: {told_}", flush=True)
    print(f"{bad} wrong")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
