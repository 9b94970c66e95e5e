from __future__ import annotations

from collections.abc import Mapping

import pytest

from cudnn_resolve.facts.model import Problem, Python, Toolkit
from cudnn_resolve.host.protocol import CommandResult
from cudnn_resolve.probe.python import Distribution, TargetEnvironment
from cudnn_resolve.probe.toolkit import Toolkits, find_compiler, find_toolkits
from tests.fake_host import FakeHost

SITE = "/venv/lib/python3.11/site-packages"


def target(*distributions: tuple[str, str]) -> TargetEnvironment:
    found = tuple(
        Distribution(name=name, version=version, location=SITE, metadata=f"{SITE}/{name}-{version}.dist-info")
        for name, version in distributions
    )
    return TargetEnvironment(
        python=Python(version="3.11.4"),
        how="",
        prefix="/venv",
        system="linux",
        arch="x86_64",
        glibc="2.35",
        site_packages=(SITE,),
        distributions=found,
        ld_library_path=(),
        problems=(),
    )


def find(host: FakeHost, apt: Mapping[str, str] | None = None, *distributions: tuple[str, str]) -> Toolkits:
    return find_toolkits(host, target(*distributions), apt or {}, find_compiler(host))


def release(version: str) -> str:
    return '{"cuda": {"name": "CUDA SDK", "version": "' + version + '"}}'


def test_a_toolkit_counts_once_however_many_links_lead_to_it() -> None:
    host = FakeHost(
        {"/usr/local/cuda-12.4/version.json": release("12.4.1")},
        links={"/usr/local/cuda": "/usr/local/cuda-12", "/usr/local/cuda-12": "/usr/local/cuda-12.4"},
        environ={"CUDA_HOME": "/usr/local/cuda/"},
    )

    found = find(host, {"cuda-cudart-12-4": "12.4.127-1"})

    assert found.toolkits == (Toolkit(version="12.4.1", path="/usr/local/cuda-12.4", source="apt"),)
    assert found.directories == ("/usr/local/cuda-12.4",)
    assert found.how == "/usr/local/cuda-12.4 (also /usr/local/cuda, /usr/local/cuda-12, CUDA_HOME)"


@pytest.mark.parametrize(
    ("files", "version"),
    [
        ({"version.json": release("12.4.1"), "version.txt": "CUDA Version 11.0.1"}, "12.4.1"),
        ({"version.json": "{", "version.txt": "CUDA Version 10.1.243"}, "10.1"),
        ({"include/cuda_runtime_api.h": "#define CUDART_VERSION  12060\n"}, "12.6"),
        ({"include/cuda_runtime_api.h": "", "include/cuda.h": "#define CUDA_VERSION 9020\n"}, "9.2"),
        ({"lib64/libcudart.so.12": ""}, "12.8"),
        ({"lib/libcudart.so.12": ""}, "12.8"),
    ],
)
def test_the_version_comes_from_the_surest_file(files: dict[str, str], version: str) -> None:
    host = FakeHost({f"/usr/local/cuda-12.8/{name}": text for name, text in files.items()})

    assert [one.version for one in find(host).toolkits] == [version]


def test_the_compiler_is_asked_where_no_file_tells() -> None:
    nvcc = "/opt/cuda/bin/nvcc"
    host = FakeHost(
        executables=[nvcc],
        programs=lambda argv: CommandResult(returncode=0, stdout="release 11.8, V11.8.89") if argv == (nvcc, "--version") else None,
    )

    assert find(host).toolkits == (Toolkit(version="11.8", path="/opt/cuda", source="other"),)


def test_directories_that_hold_no_toolkit_are_passed_over() -> None:
    host = FakeHost({"/usr/local/cuda-12.4/compat/libcuda.so.1": "", "/usr/local/cudnn/lib/libcudnn.so.9": "", "/usr/local/cuda": "a file"})

    assert find(host).toolkits == ()


@pytest.mark.parametrize(
    ("files", "apt", "source"),
    [
        ({}, {"cuda-toolkit-12-4": "12.4.1-1"}, "apt"),
        ({}, {"cuda-toolkit-12-5": "12.5.1-1"}, "other"),
        ({"bin/cuda-uninstaller": ""}, {}, "runfile"),
        ({"bin/uninstall_cuda_10.0.pl": ""}, {}, "runfile"),
        ({"conda-meta/history": ""}, {}, "conda"),
    ],
)
def test_who_put_it_there(files: dict[str, str], apt: dict[str, str], source: str) -> None:
    files = {"version.json": release("12.4.1"), **files}
    host = FakeHost({f"/usr/local/cuda-12.4/{name}": text for name, text in files.items()})

    assert find(host, apt).toolkits[0].source == source


def test_the_toolkit_of_the_distribution_is_in_usr() -> None:
    host = FakeHost(
        executables=["/usr/bin/nvcc"],
        programs=lambda argv: CommandResult(returncode=0, stdout="release 11.5, V11.5.119") if argv[1:] == ("--version",) else None,
    )

    assert find(host, {"nvidia-cuda-toolkit": "11.5.1-1ubuntu1"}).toolkits == (Toolkit(version="11.5", path="/usr", source="apt"),)


def test_a_variable_that_leads_nowhere_is_named() -> None:
    found = find(FakeHost(environ={"CUDA_HOME": "/opt/gone"}))

    assert found.problems == (Problem(what="CUDA_HOME", why="is /opt/gone, which has no CUDA toolkit"),)


def test_a_compiler_on_path_leads_to_its_toolkit() -> None:
    host = FakeHost(
        {"/sw/cuda/12.2/version.json": release("12.2.2")},
        executables=["/sw/cuda/12.2/bin/nvcc"],
        links={"/usr/bin/nvcc": "/sw/cuda/12.2/bin/nvcc"},
        environ={"PATH": "/usr/bin"},
    )

    found = find(host)

    assert found.toolkits == (Toolkit(version="12.2.2", path="/sw/cuda/12.2"),)
    assert found.how == "/sw/cuda/12.2 (also nvcc on PATH)"
    assert host.asked == []


def test_a_wrapper_is_asked_for_the_compiler_behind_it() -> None:
    told = "#$ _HERE_=/usr/local/cuda/bin\n#$ gcc -D__CUDACC_VER_MAJOR__=13 -D__CUDACC_VER_MINOR__=0\n"
    host = FakeHost(
        {"/usr/local/bin/nvcc": "#!/bin/sh\nexec /usr/local/cuda/bin/nvcc\n"},
        executables=["/usr/local/bin/nvcc", "/usr/local/cuda-13.0/bin/nvcc"],
        links={"/usr/local/cuda": "/usr/local/cuda-13.0"},
        environ={"PATH": "/usr/local/bin"},
        programs=lambda argv: CommandResult(returncode=0, stderr=told) if "--dryrun" in argv else None,
    )

    found = find(host)

    assert found.toolkits == (Toolkit(version="13.0", path="/usr/local/cuda-13.0"),)


def test_a_broken_compiler_is_no_toolkit() -> None:
    host = FakeHost({"/bin/nvcc": "#!/bin/sh\n"}, executables=["/bin/nvcc"], environ={"PATH": "/bin"})

    assert find(host).toolkits == ()


def test_apt_parts_without_a_directory_count() -> None:
    apt = {"cuda-cudart-12-2": "12.2.140-1", "cuda-libraries-12-2": "12.2.2-1", "cuda-cudart-11-8": "11.8.89-1", "cuda-keyring": "1.1-1"}

    found = find(FakeHost(), apt)

    assert found.toolkits == (Toolkit(version="11.8", source="apt"), Toolkit(version="12.2.2", source="apt"))
    assert found.how == "apt packages"


@pytest.mark.parametrize(
    ("files", "version"),
    [
        (("cuda-cudart-12.4.127-h1_0.json", "cuda-version-12.4-h2_3.json"), "12.4"),
        (("cuda-cudart-12.4.127-h1_0.json", "cuda-toolkit-12.4.1-0.json"), "12.4.1"),
        (("cudatoolkit-11.8.0-h3_13.json",), "11.8.0"),
    ],
)
def test_the_runtime_of_a_conda_environment_counts(files: tuple[str, ...], version: str) -> None:
    host = FakeHost({f"/venv/conda-meta/{name}": "{}" for name in files})

    assert find(host).toolkits == (Toolkit(version=version, path="/venv", source="conda"),)


def test_a_conda_environment_with_headers_counts_once() -> None:
    files = {"conda-meta/cuda-toolkit-12.4.1-0.json": "{}", "include/cuda_runtime_api.h": "#define CUDART_VERSION 12040\n"}
    host = FakeHost({f"/venv/{name}": text for name, text in files.items()}, environ={"CUDA_HOME": "/venv"})

    assert find(host).toolkits == (Toolkit(version="12.4", path="/venv", source="conda"),)


def test_runtime_wheels_count() -> None:
    host = FakeHost({f"{SITE}/nvidia/cuda_runtime/lib/libcudart.so.12": "", f"{SITE}/nvidia/cu13/lib/libcudart.so.13": ""})
    wheels = (("nvidia-cuda-runtime-cu12", "12.4.127"), ("nvidia-cuda-runtime", "13.0.96"), ("cuda-toolkit", "13.0.2"), ("numpy", "2.0"))

    found = find(host, {}, *wheels)

    assert found.toolkits == (
        Toolkit(version="12.4", path=f"{SITE}/nvidia/cuda_runtime", source="pip"),
        Toolkit(version="13.0.2", path=f"{SITE}/nvidia/cu13", source="pip"),
    )


def test_a_package_that_only_keeps_the_name_is_no_toolkit() -> None:
    assert find(FakeHost(), {}, ("nvidia-cuda-runtime-cu13", "0.0.1")).toolkits == ()


def test_a_wheel_with_an_impossible_version_is_still_there() -> None:
    found = find(FakeHost(), {}, ("nvidia-cuda-runtime-cu12", "unknown"))

    assert found.toolkits == (Toolkit(source="pip"),)
