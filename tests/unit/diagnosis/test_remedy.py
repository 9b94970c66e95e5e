"""Remedies are commands for this machine: the release, the Python, the package and the directory are those of the log and of the facts."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cudnn_resolve.diagnosis.diagnose import diagnose
from cudnn_resolve.diagnosis.match import Reader
from cudnn_resolve.diagnosis.plan_remedy import tried_plan
from cudnn_resolve.facts.codec import from_mapping
from cudnn_resolve.matrix.row import Repository
from cudnn_resolve.requirement.model import Request
from tests.written_logs import book, judged

PYTHON = {"version": "3.13.1", "path": "/v/bin/python", "prefix": "/v"}
SITE = "/v/lib/python3.13/site-packages"


def commands(log: str, wishes: Request | None = None, **facts: Any) -> list[str]:
    """The commands of the first finding."""
    tree = {"platform": {"system": "linux", "arch": "x86_64"}, "python": PYTHON, **facts}
    found = diagnose(Reader(book().symptoms()).read([log.encode()]), from_mapping(tree, "test"), book(), wishes).findings[0]
    return [one.command for one in found.remedy if one.command]


def index_of(framework: str, version: str, variant: str) -> str:
    """The address of the index that has a build."""
    rows = (one for one in book().framework(framework).builds if (one.version, one.variant) == (version, variant))
    return book().index(next(rows).index).url


def offered(requirement: str, versions: str) -> str:
    return f"ERROR: Could not find a version that satisfies the requirement {requirement} (from versions: {versions})\n"


@pytest.mark.parametrize(
    ("log", "command"),
    [
        (offered("nvidia-cudnn-cu12==8.9.4.99", "8.9.2.26, 8.9.4.25, 8.9.5.29, 9.0.0.312"), "pip install nvidia-cudnn-cu12==8.9.4.25"),
        (offered("nvidia-cublas-cu12==12.1.0.1", "11.9.9, 12.0.1.189, 12.1.0.26, 12.1.3.1"), "pip install nvidia-cublas-cu12==12.1.0.26"),
        (offered("tensorflow==2.9.1", "2.20.0rc0, 2.20.0, 2.21.0"), "pip install tensorflow==2.20.0"),
        (offered("tensorflow==2.9.1", "2.20.0, 2.21.0"), "uv venv --seed --python 3.10 .venv-3.10 && .venv-3.10/bin/python -m pip install"),
        (offered("torch==2.4.0+cu118", "2.3.1, 2.4.0, 2.4.1"), f"--extra-index-url {index_of('torch', '2.4.0', 'cu118')}"),
        (offered("torch==2.4.0+cu118", "2.3.1, 2.4.0, 2.4.1"), "pip install torch==2.4.0"),
        (
            "Because only nvidia-cuda-runtime-cu13<=0.0.1 is available and you require nvidia-cuda-runtime-cu13>=13.0, we can\n",
            "'nvidia-cuda-runtime>=13.0'",
        ),
        (
            "ERROR: msgpack-1.0.8-cp38-cp38-manylinux2014_x86_64.whl is not a supported wheel on this platform.\n",
            "pip install msgpack==1.0.8",
        ),
        ("ERROR: Package 'six' requires a different Python: 3.8.18 not in '>=3.12'\n", "uv venv --seed --python 3.12"),
        ("ERROR: Package 'six' requires a different Python: 3.8.18 not in '>=3.12'\n", "/v/bin/python -m pip install six"),
        (
            (
                "hint: You require CPython 3.12 (`cp312`), but we only found wheels for `torch` (v2.0.1) with the following "
                "Python ABI tags: `cp38`, `cp311`\n"
            ),
            "--python 3.11",
        ),
        ("AttributeError: module 'numpy' has no attribute 'bool'.\n", "'numpy<1.24'"),
        ("AttributeError: `np.float_` was removed in the NumPy 2.0 release. Use `np.float64` instead.\n", "'numpy<2'"),
        (
            " libcudnn8-dev : Depends: libcudnn8 (= 8.9.2.26-1+cuda12.1) but it is not going to be installed\n",
            "libcudnn8=8.9.2.26-1+cuda12.1 libcudnn8-dev=8.9.2.26-1+cuda12.1",
        ),
        ("E: Version '8.0.4.30-1+cuda11.1' for 'libcudnn8' was not found\n", "apt-get install 'libcudnn8=8.*+cuda11.*'"),
        ("E: Version '8.0.4.30-1+cuda11.1' for 'libcudnn8' was not found\n", "apt-get install 'libcudnn8=8.*'"),
        ("E: Version '8.0.4.30-1' for 'libcudnn8' was not found\n", "apt-get install 'libcudnn8=8.*'"),
        (
            (
                "dpkg: error processing archive /a/two.deb (--unpack):\n"
                " trying to overwrite '/x', which is also in package libnvidia-compute-535 535.1\n"
            ),
            "dpkg --remove --force-depends libnvidia-compute-535 && sudo dpkg -i /a/two.deb",
        ),
        ("/c/host_config.h:9:2: error: #error -- unsupported GNU version! gcc versions later than 9 are not supported!\n", "-ccbin g++-9"),
        (
            "$ ls /opt/cuda/lib64/libcufft.so.11\n/opt/cuda/lib64/libcufft.so.11\n./a: libcufft.so.11: cannot open shared object file\n",
            "LD_LIBRARY_PATH=/opt/cuda/lib64",
        ),
        ("RuntimeError: Not compiled with GPU support (ROIAlign_forward at a/R.h:73)\n", "FORCE_CUDA=1 /v/bin/python -m pip install"),
    ],
)
def test_what_could_not_be_had_has_a_command_with_its_values(log: str, command: str) -> None:
    assert any(command in one for one in commands(log)), commands(log)


def test_a_repository_whose_key_is_missing_can_be_left_out() -> None:
    log = "W: GPG error: https://example.org/compute/cuda/repos/a.b ./ InRelease: NO_PUBKEY 18B3A0735508F2F5\n"
    off = commands(log, root=True)[0]
    assert off.startswith("find /etc/apt -name '*.list' -exec sed -i ")
    assert r"https://example\.org/compute/cuda/repos/a\.b" in off
    assert off.endswith("apt-get update")
    nvidia = next(one.url for one in book().rows(Repository) if one.keyring and "/ubuntu2004/x86_64" in one.url).rstrip("/")
    keyring = commands(f"W: GPG error: {nvidia}  InRelease: NO_PUBKEY A4B469963BF863CC\n")[0]
    assert f"{nvidia}/cuda-keyring_1.1-1_all.deb" in keyring
    assert "sudo dpkg -i" in keyring


@pytest.mark.parametrize("host", ["mirror.example", "developer.download.nvidia.com.mirror.example", "nvidia.github.io.mirror.example"])
@pytest.mark.parametrize(
    "folder", ["compute/cuda/repos/ubuntu2004/x86_64", "compute/cuda/repos/wsl-ubuntu/x86_64", "libnvidia-container/stable"]
)
def test_no_key_is_fetched_from_a_host_that_only_the_log_names(host: str, folder: str) -> None:
    proposed = commands(f"W: GPG error: https://{host}/{folder}  InRelease: NO_PUBKEY A4B469963BF863CC\n")
    assert proposed
    assert not [command for command in proposed if "mirror.example" in command and ("wget" in command or "curl" in command)]


def test_of_the_loaders_path_only_what_is_in_the_way_is_taken_out() -> None:
    log = "RuntimeError: cuDNN error: CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH\n"
    mixed = ["/opt/intel/lib", "/usr/local/cuda-11.8/lib64", "/usr/local/nvidia/lib64", "/data/cudnn/lib"]
    assert commands(log, loader={"ld_library_path": mixed})[0] == "export LD_LIBRARY_PATH=/opt/intel/lib:/usr/local/nvidia/lib64"
    assert commands(log, loader={"ld_library_path": ["/usr/local/cuda/lib64"]})[0] == "unset LD_LIBRARY_PATH"
    assert commands(log)[0] == "unset LD_LIBRARY_PATH"


def test_a_library_on_disk_is_put_on_the_path_and_one_that_is_not_is_installed() -> None:
    log = "OSError: libcudnn.so.9: cannot open shared object file: No such file or directory\n"
    copy = {"version": "9.1.0.70", "soname": 9, "path": "/opt/my cudnn/lib", "source": "other", "complete": True}
    assert commands(log, cudnn=[copy])[0] == "export LD_LIBRARY_PATH='/opt/my cudnn/lib'${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    other = commands(log, cudnn=[copy | {"version": "8.9.2.26", "soname": 8}], packages={"pip": {"nvidia-cublas-cu12": "12.4.5.8"}})
    assert any("--target $HOME/.local/lib/cudnn9 --no-deps 'nvidia-cudnn-cu12==9.*' && export" in one for one in other)
    beside = {"pip": {"nvidia-cublas-cu11": "11.11.3.6"}}
    assert any("'nvidia-cudnn-cu11==9.*' && export LD_LIBRARY_PATH=" in one for one in commands(log, cudnn=[], packages=beside))


def test_cuda_libraries_of_wheels_are_found_where_the_loader_does_not_look() -> None:
    log = "OSError: libcublasLt.so.12: cannot open shared object file: No such file or directory\n"
    tree = {"platform": {"system": "linux"}, "python": PYTHON, "packages": {"pip": {"nvidia-cublas-cu12": "12.4.5.8"}}}
    found = diagnose(Reader(book().symptoms()).read([log.encode()]), from_mapping(tree, "test"), book()).findings[0]
    assert found.cause == "lib_not_on_path"
    assert f"{SITE}/nvidia/cublas/lib" in found.summary
    lacking = {
        "pip": {"nvidia-cusolver-cu12": "11.6.1.9"},
        "requires": {"nvidia-cusolver-cu12": ["nvidia-cublas-cu12", "nvidia-nvjitlink-cu12"]},
    }
    both = "/v/bin/python -m pip install nvidia-cublas-cu12 nvidia-nvjitlink-cu12 && export LD_LIBRARY_PATH="
    assert any(one.startswith(both) for one in commands(log, packages=lacking))


def test_plans_are_for_the_environment_that_was_named() -> None:
    log = "RuntimeError: jaxlib version 0.4.36 is newer than and incompatible with jax version 0.4.30. Please update your jax.\n"
    wishes = Request(targets=(), context=(("--facts", "f.json"), ("--python", "/v/bin/python"), ("--offline", "")))
    assert commands(log, wishes)[0] == "cudnn-resolve apply -f jax --python /v/bin/python --offline"


def test_what_finds_the_framework_is_no_step_beside_what_mends_it() -> None:
    log = "OSError: libcublas.so.12: cannot open shared object file: No such file or directory\n"
    found = commands(log)
    assert "nvidia-cublas-cu12" in found[0]
    assert "cudnn-resolve doctor LOG" not in found


def overwriting(package: str) -> str:
    return (
        "dpkg: error processing archive /var/cache/apt/archives/libnvidia-common-550_550.54.15_all.deb (--unpack):\n"
        f" trying to overwrite '/usr/lib/x', which is also in package {package} 1.2-3\n"
    )


@pytest.mark.parametrize("package", ["libc6:amd64", "python3-minimal", "libnvme1", "libcups2", "dpkg", "libnuma1", "systemd"])
def test_no_command_removes_pins_or_downgrades_a_package_of_another_owner(package: str) -> None:
    logs = (
        overwriting(package),
        f" x-dev : Depends: {package} (= 2.35-0ubuntu3.1) but 2.35-0ubuntu3.8 is to be installed\n",
        f" libcudnn8-dev : Depends: {package} (= 2.35-0ubuntu3.1) but 2.35-0ubuntu3.8 is to be installed\n",
    )
    for log in logs:
        assert not any(word in one for one in commands(log) for word in ("--remove", "--allow-downgrades", "apt-get install"))


@pytest.mark.parametrize(
    "package",
    [*("libnvidia-common-550", "nvidia-kernel-common-470:amd64", "cuda-toolkit-12-4", "libcudnn9-cuda-12", "libcublas-12-4", "libnccl2")],
)
def test_a_package_of_the_driver_or_of_cuda_is_removed_by_name(package: str) -> None:
    assert any(f"dpkg --remove --force-depends {package} && " in one for one in commands(overwriting(package)))


@pytest.mark.parametrize("relation", ["=", ">=", "<=", "<<", ">>"])
def test_only_an_exact_dependency_is_pinned(relation: str) -> None:
    log = f" cuda-drivers-550 : Depends: nvidia-driver-550 ({relation} 550.54.15) but it is not going to be installed\n"
    assert any("nvidia-driver-550=550.54.15" in one for one in commands(log)) is (relation == "=")


def test_every_unmet_dependency_is_asked_for_at_once() -> None:
    log = "".join(
        f" libcudnn8-{part} : Depends: libcudnn8{other} (= 8.9.2.26-1+cuda12.1) but 8.9.7.29-1+cuda12.2 is to be installed\n"
        for part, other in (("dev", ""), ("samples", "-dev"))
    )
    found = next(one for one in commands(log) if "--allow-downgrades" in one)
    assert {"libcudnn8=8.9.2.26-1+cuda12.1", "libcudnn8-dev=8.9.2.26-1+cuda12.1"} <= set(found.split())


@pytest.mark.parametrize(
    "log",
    [
        "ImportError: libcusparse.so.12: undefined symbol: __nvJitLinkAddData_12_1, version libnvJitLink.so.12\n",
        "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED; libcublasLt.so.12: undefined symbol: cublasLtMatmul\n",
        "Error 804: forward compatibility was attempted on non supported HW\n",
        "Failed to initialize NVML: Driver/library version mismatch\n",
        "RuntimeError: cuDNN error: CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH\n",
    ],
)
@pytest.mark.parametrize("container", ["colab", None])
def test_the_directory_of_the_driver_stays_on_the_loaders_path(log: str, container: str | None) -> None:
    where: dict[str, Any] = {"container": {"kind": container}} if container else {}
    for own in ("/usr/lib64-nvidia", "/usr/lib/nvidia-550", "/usr/local/nvidia/lib64", "/usr/lib/wsl/lib"):
        found = commands(log, loader={"ld_library_path": [own]}, **where)
        assert not any("unset LD_" in one or "export LD_LIBRARY_PATH=/opt" in one for one in found)
        found = commands(log, loader={"ld_library_path": [own, "/opt/cuda-11/lib64"]})
        assert not any(one.startswith("unset LD_") for one in found)
    assert not any(one.startswith("unset LD_") for one in commands(log, loader={"ld_library_path": []}))
    assert not any(one.startswith("unset LD_") for one in commands(log, loader={"ld_library_path": ["/opt/intel/lib"]}))
    if container == "colab":
        found = commands(log, container={"kind": "colab"})
        assert not any(word in one for one in found for word in ("unset LD_", "reboot", "rmmod"))


def test_a_repository_of_the_distribution_is_never_left_out() -> None:
    for url in ("http://archive.ubuntu.example/ubuntu", "http://deb.example.org/debian", "https://example.org/nvidia-lovers/apt"):
        log = f"W: GPG error: {url} jammy InRelease: signatures couldn't be verified: NO_PUBKEY 18B3A0735508F2F5\n"
        assert not any("/etc/apt" in one for one in commands(log))


def test_an_extension_is_built_again_only_under_the_name_and_in_the_version_that_it_has() -> None:
    log = "ImportError: {}.so: undefined symbol: _ZN3c104cuda9SetDeviceEi\n"
    found = commands(log.format("/v/apex"), packages={"pip": {"apex": "0.1", "torch": "2.4.0"}})
    assert not any("apex" in one for one in found)
    found = commands(log.format("/v/flash_attn_2_cuda"), packages={"pip": {"flash-attn": "2.6.3", "torch": "2.4.0"}})
    again = next(one for one in found if "flash-attn" in one and "pip install" in one)
    assert again.endswith("--no-build-isolation --no-binary flash-attn flash-attn==2.6.3")
    assert not any("pip install" in one for one in commands(log.format("/v/flash_attn_2_cuda")))


REQUIRES = [
    "nvidia-cublas-cu12; python_full_version ~= 'abc'",
    "Nvidia_CuSolver-cu12 ; platform_system == 'Linux'",
    "nvidia-x; nonsense",
    "][",
]


def test_what_packages_declare_is_judged_for_the_machine_of_the_facts() -> None:
    log = "OSError: libcusolver.so.11: cannot open shared object file: No such file or directory\n"
    packages = {"pip": {"torch": "2.4.0"}, "requires": {"torch": [*REQUIRES, "nvidia-nccl-cu12; sys_platform == 'win32'"]}}
    assert any("-m pip install nvidia-cusolver-cu12 && " in one for one in commands(log, packages=packages))


def test_only_what_carries_the_missing_library_is_called_declared() -> None:
    log = "OSError: libcublas.so.12: cannot open shared object file: No such file or directory\n"
    packages = {"pip": {"torch": "2.4.0"}, "requires": {"torch": ["nvidia-cudnn-cu13"]}}
    assert not any("nvidia-cudnn-cu13" in one for one in commands(log, packages=packages))


def summaries(log: str, **facts: Any) -> list[tuple[str, str]]:
    tree = {"platform": {"system": "linux", "arch": "x86_64"}, "python": PYTHON, **facts}
    found = diagnose(Reader(book().symptoms()).read([log.encode()]), from_mapping(tree, "test"), book()).findings
    return [(one.cause, one.summary) for one in found]


def test_a_driver_that_changed_under_the_kernel_explains_what_cuda_says_of_compatibility() -> None:
    log = "Failed to initialize NVML: Driver/library version mismatch\nRuntimeError: Error 804: forward compatibility was attempted\n"
    assert summaries(log)[0][0] == "driver_library_mismatch"
    assert summaries(log.splitlines()[1])[0][0] == "forward_compat_hw"


@pytest.mark.parametrize(
    "log",
    [
        "AttributeError: module 'keras.api.layers' has no attribute 'my_typo'\n",
        "AttributeError: module 'tensorflow.math' has no attribute 'my_typo'\n",
        "ImportError: cannot import name 'Model' from 'keras' (/home/u/project/keras.py)\n",
        "ModuleNotFoundError: No module named 'keras.models'; 'keras' is not a package\n",
    ],
)
def test_a_mistake_of_the_program_is_no_mismatch_of_releases(log: str) -> None:
    assert "framework_pkg_mismatch" not in [cause for cause, _ in summaries(log)]


@pytest.mark.parametrize(("plugin", "wheel"), [("jax-cuda13-plugin", "nvidia-cuda-nvcc "), ("jax-cuda12-plugin", "nvidia-cuda-nvcc-cu12")])
def test_the_compiler_wheel_is_of_the_cuda_of_the_plugin(plugin: str, wheel: str) -> None:
    log = "RuntimeError: libdevice not found at ./libdevice.10.bc\n"
    found = commands(log, packages={"pip": {plugin: "0.8.0"}})
    assert any(wheel in f"{one} " for one in found), found


def test_files_that_were_removed_are_not_said_to_be_in_their_directory() -> None:
    log = "OSError: libcublasLt.so.12: cannot open shared object file: No such file or directory\n"
    gone = [{"what": "packages.pip.nvidia-cublas-cu12", "why": "removed: nvidia/cublas/lib/libcublasLt.so.12"}]
    found = summaries(log, packages={"pip": {"nvidia-cublas-cu12": "12.4.5.8"}}, problems=gone)
    assert not any("it is in" in text for _, text in found)


def test_without_a_notebook_none_is_spoken_of_as_known() -> None:
    log = "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU\n"
    assert not any("this hosted notebook" in text for _, text in summaries(log))


@pytest.mark.parametrize(
    ("log", "there", "never"),
    [
        (offered("jax[cuda12]==0.4.99", "0.4.34, 0.4.35"), "'jax[cuda12]==0.4.35'", "install jax=="),
        (offered("torch==2.1.0+cu121", "2.2.0, 2.2.1"), "", "torch==2.2.0"),
        (offered("tensorflow>=1.14,<2.0", "2.20.0, 2.21.0"), "'tensorflow>=1.14,<2.0'", "'tensorflow>=1.14'"),
        ("Because only torch<=2.0 is available and you require torch>=2.4,<2.5, we can conclude that x\n", "", "torch==2.4"),
    ],
)
def test_extras_builds_and_every_limit_are_kept(log: str, there: str, never: str) -> None:
    found = commands(log)
    assert any(there in one for one in found), found
    assert not any(never in one for one in found), found


@pytest.mark.parametrize(
    "line",
    [
        "Compile with USE_CUDA=1 to enable GPU usage",
        "NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x26:0x56:1463)",
        "CUDA_ERROR_ECC_UNCORRECTABLE",
        "RuntimeError: cudaErrorECCUncorrectable",
        "CUDA_ERROR_DEVICE_UNAVAILABLE",
        "cudaErrorJitCompilerNotFound",
        "AssertionError: torch isn't compiled with CUDA support",
        "TypeError: __init__() got an unexpected keyword argument 'create_key'",
    ],
)
def test_what_a_pattern_has_is_let_through_by_an_anchor(line: str) -> None:
    found = diagnose(Reader(book().symptoms()).read([f"{line}\n".encode()]), None, book()).findings
    assert found, line
    assert found[0].cause != "harmless", line


@pytest.mark.parametrize(("tag", "another"), [("win_amd64", False), ("manylinux2014_aarch64", False), ("manylinux2014_x86_64", True)])
def test_another_python_is_no_remedy_for_a_wheel_of_another_system(tag: str, *, another: bool) -> None:
    found = commands(f"ERROR: msgpack-1.0.8-cp38-cp38-{tag}.whl is not a supported wheel on this platform.\n")
    assert any("--python 3.8" in one for one in found) is another


def test_another_build_of_the_same_release_comes_before_another_release() -> None:
    log, pip = "AssertionError: Torch not compiled with CUDA enabled\n", {"pip": {"torch": "2.6.0+cpu"}}
    here: dict[str, Any] = {"driver": {"version": "580.82.07"}, "packages": pip}
    t4, rtx = ({"name": name, "compute_capability": code} for name, code in (("Tesla T4", "7.5"), ("NVIDIA GeForce RTX 5090", "12.0")))

    assert commands(log, gpus=[t4], **here)[0] == "cudnn-resolve apply -f torch==2.6.0"
    assert commands(log, gpus=[rtx], **here)[0] == "cudnn-resolve apply -f torch", "which has no code for that card"


NVIDIA_REPO = "https://developer.example/compute/cuda/repos/ubuntu2204/x86_64"
OTHER_REPO = "https://deb.example/ubuntu"
NO_KEY = f"W: GPG error: {NVIDIA_REPO}  InRelease: The following signatures couldn't be verified because NO_PUBKEY A4B469963BF863CC\n"


def test_a_repository_goes_out_of_sight_of_apt_in_either_form_of_its_list(tmp_path: Path) -> None:
    """The command is carried out on lists of both forms: one line each, and paragraphs (deb822), of which no other one is touched."""
    [command] = [
        one for one in commands(NO_KEY, platform={"system": "linux", "distribution": "ubuntu", "release": "22.04"}) if "find" in one
    ]
    folder = tmp_path / "sources.list.d"
    folder.mkdir()
    files = {
        "cuda.list": f"deb [signed-by=/usr/share/keyrings/x.gpg] {NVIDIA_REPO} /\n",
        "other.list": f"deb {OTHER_REPO} jammy main\n",
        "cuda.sources": f"Types: deb\nURIs: {NVIDIA_REPO}\nSuites: /\nSigned-By: /usr/share/keyrings/x.gpg\n",
        "ubuntu.sources": f"Types: deb\nURIs: {OTHER_REPO}\nSuites: jammy\nComponents: main\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")
    edits = command.partition(" && sudo apt-get update")[0]
    assert edits != command
    subprocess.run(["sh", "-c", edits.replace("sudo ", "").replace("/etc/apt", str(tmp_path))], check=True)
    left = {path.name: path.read_text("utf-8") for path in folder.iterdir()}
    switched = {"cuda.list": f"# {files['cuda.list']}", "cuda.sources.disabled": files["cuda.sources"]}
    assert left == {name: files[name] for name in ("other.list", "ubuntu.sources")} | switched


CNN_8 = "OSError: libcudnn_cnn_infer.so.8: cannot open shared object file: No such file or directory\n"


@pytest.mark.parametrize(
    "said",
    [
        "torch              1.13.1+cu117",
        "nvidia-cublas-cu11       11.10.3.66",
        "jaxlib 0.4.20+cuda11.cudnn86",
        "| NVIDIA-SMI 470.57.02    Driver Version: 470.57.02    CUDA Version: 11.4     |",
    ],
)
def test_a_wheel_of_cudnn_is_of_the_cuda_that_the_log_shows(said: str) -> None:
    told = " ".join(commands(f"{said}\n{CNN_8}"))
    assert "nvidia-cudnn-cu11==8.*" in told or "torch==1.13.1" in told
    assert "-cu12" not in told


def test_where_nothing_shows_the_cuda_no_wheel_is_chosen() -> None:
    assert not [one for one in commands(CNN_8) if "nvidia-cudnn-cu" in one]
    found = diagnose(Reader(book().symptoms()).read([CNN_8.encode()]), None, book()).findings[0]
    assert any("nvidia-cudnn-cu11 or nvidia-cudnn-cu12" in one.text for one in found.remedy)


@pytest.mark.parametrize(
    ("log", "wanted", "not_wanted"),
    [
        ("hashcat (v6.2.6) starting\ncuModuleLoad() 209\nCUDA_ERROR_NO_BINARY_FOR_GPU\n", "compile it for", "FRAMEWORK"),
        ("import theano\nERROR: cuDNN Version is too old. Update to v5, was 3007.\n", "this program loads", "FRAMEWORK"),
        ("ImportError: libcudnn.so.6: cannot open shared object file\n", "NVIDIA's archive", "cudnn-cu"),
        (
            '  File "/e/lib/python3.7/site-packages/numba/cuda/libs.py", line 47, in open_lib\nOSError: library nvvm not found\n',
            "conda install cudatoolkit",
            "numba-cuda",
        ),
        (
            "packages have unmet dependencies:\n libnvidia-compute-535 : Depends: libc6 (>= 2.34) but 2.31-13 is to be installed\n",
            "another distribution release",
            "apt-mark",
        ),
        ("Error: libnvdla_compiler.so: cannot open shared object file: No such file or directory\n", "--runtime nvidia", "--gpus all"),
        ("RuntimeError: Cannot find a working triton installation.\n", "pip install triton", "cudnn-resolve apply"),
        (
            "Error: libnvrtc.so.12: cannot open shared object file\nError: libnvrtc.so: cannot open shared object file\n",
            "nvidia-cuda-nvrtc-cu12",
            "nvidia-cuda-nvrtc-cu11",
        ),
    ],
)
def test_a_remedy_concerns_the_program_and_the_system_of_the_log(log: str, wanted: str, not_wanted: str) -> None:
    said = json.dumps([[one.text, one.command] for one in judged(log).findings[0].remedy])
    assert wanted in said
    assert not_wanted not in said


def test_what_contradicts_what_among_many_frameworks_is_left_to_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cudnn_resolve.planning.make_plan.make_plan", lambda *_, **__: pytest.fail("explained"))
    facts = from_mapping({"platform": {"system": "linux", "arch": "x86_64"}, "python": PYTHON}, "test")
    command = "cudnn-resolve apply -f torch==2.9.0 -f tensorflow==2.4.0 -f jax==0.6.0"
    assert [one.command for one in tried_plan("raise them", command, facts, book())] == [command.replace("apply", "plan")]


def test_an_extension_of_another_torch_is_installed_again() -> None:
    log = "ImportError: /v/flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so: undefined symbol: _ZN3c104cuda9SetDeviceEa\n"
    assert "reinstall the extension" in judged(log).findings[0].remedy[0].text


def test_packages_of_the_users_own_directory_name_no_interpreter() -> None:
    log = (
        '  File "/home/u/.local/lib/python3.9/site-packages/torch/__init__.py", line 81, in <module>\n'
        "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory\n"
    )
    assert not any("/.local/bin" in (one.command or "") for one in judged(log).findings[0].remedy)


@pytest.mark.parametrize(
    ("log", "there", "absent"),
    [
        (
            "Container ID: x://a7\nnvidia-container-cli: initialization error: nvml error: driver/library version mismatch: unknown\n",
            "reboot the host",
            "LD_LIBRARY_PATH",
        ),
        (
            "Cannot load libnvidia-encode.so.1\nThe minimum required Nvidia driver for nvenc is 550.54.14 or newer\n",
            "libnvidia-encode-BRANCH",
            "apply",
        ),
        (
            (
                "The following packages have unmet dependencies:\n nvidia-dkms-510 : Depends: nvidia-kernel-common-510 (>= 510.73.05) "
                "but 510.47.03-0ubuntu1 is to be installed\n"
            ),
            "apt-cache policy nvidia-dkms-510 nvidia-kernel-common-510",
            "--fix-broken",
        ),
        (
            (
                "The following packages have unmet dependencies:\n nvidia-dkms-510 : Depends: nvidia-kernel-common-510 (>= 510.73.05) "
                "but 510.47.03-0ubuntu1 is installed\n"
            ),
            "--fix-broken",
            "wheels",
        ),
        ("time=1 level=WARN msg=x ollama: your nvidia driver is too old or missing\n", "driver of the host", "FRAMEWORK"),
        (
            "thread 'main' panicked at 'Torch(\"Could not run 'aten::empty_strided' with arguments from the 'CUDA' backend.\n",
            "libtorch",
            "apply",
        ),
    ],
)
def test_a_remedy_is_of_what_the_log_is_about(log: str, there: str, absent: str) -> None:
    said = " ".join(f"{one.text} {one.command or ''}" for one in judged(log).findings[0].remedy)
    assert there in said
    assert absent not in said
