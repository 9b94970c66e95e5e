"""What the preload of an environment opens before a framework asks for it."""

from __future__ import annotations

import pytest

from cudnn_resolve.facts.cudnn_files import FOLDER
from cudnn_resolve.planning.preload import MODULE, preload_pth, preload_source
from tests.elf_writer import write_elf
from tests.library_tree import SITE, WHEEL, Files, Found, cudnn_files, distribution, loaded, look, machine, tells, wheel, whys

SHIM = "libcudnn-74a4c495.so.9.1.0"
CAPI = f"{SITE}/onnxruntime/capi"
CASES: dict[str, tuple[str, str, Files]] = {
    "ctranslate2": (
        "ctranslate2",
        "4.6.0",
        {
            f"{SITE}/ctranslate2/_ext.cpython-311-x86_64-linux-gnu.so": write_elf(needed=(SHIM,), rpath="$ORIGIN/../ctranslate2.libs"),
            f"{SITE}/ctranslate2.libs/{SHIM}": write_elf(SHIM, rpath="$ORIGIN"),
        },
    ),
    "onnxruntime": (
        "onnxruntime-gpu",
        "1.20.2",
        {
            f"{CAPI}/onnxruntime_pybind11_state.cpython-311-x86_64-linux-gnu.so": write_elf(runpath="$ORIGIN"),
            f"{CAPI}/libonnxruntime_providers_shared.so": write_elf("libonnxruntime_providers_shared.so"),
            f"{CAPI}/libonnxruntime_providers_cuda.so": write_elf(needed=("libcublas.so.12", "libcudnn.so.9")),
        },
    ),
}
# libcublas needs libcublasLt and is opened by its path: each is there when the other asks.
CUBLAS: Files = {
    f"{SITE}/nvidia/cublas/lib/libcublas.so.12": write_elf("libcublas.so.12", needed=("libcublasLt.so.12",)),
    f"{SITE}/nvidia/cublas/lib/libcublasLt.so.12": write_elf("libcublasLt.so.12"),
}


def preload(*names: str, link: bool = True) -> Files:
    files: Files = {f"{SITE}/{MODULE}.py": preload_source(names)}
    return {**files, f"{SITE}/{MODULE}.pth": preload_pth()} if link else files


@pytest.mark.parametrize("name", sorted(CASES))
def test_what_the_preload_opens_serves_the_framework(name: str) -> None:
    package, version, files = CASES[name]
    nvidia, cudnn = wheel("9.3.0", "75")
    said = {f"{WHEEL}/libcudnn.so.9": tells(90300)}
    own = distribution(package, version)
    there = {**files, **cudnn, **CUBLAS}

    found = look(machine({**there, **preload("torch", name)}, said), own, nvidia)
    because = f"the preload of this environment ({SITE}/{MODULE}.py) opens it before {package} is imported"
    assert loaded(found) == ("9.3.0.75", f"{WHEEL}/libcudnn.so.9", because)
    assert whys(found) == []
    for other in (preload("torch"), preload(name, link=False), {f"{SITE}/{MODULE}.py": "NAMES = (", f"{SITE}/{MODULE}.pth": ""}, {}):
        assert whys(look(machine({**there, **other}, said), own, nvidia)), "nothing opens them for it"


def test_what_lies_in_the_folder_serves_the_framework_that_it_is_for() -> None:
    package, version, files = CASES["onnxruntime"]
    nvidia, cudnn = wheel("9.3.0", "75")
    place = f"{SITE}/{FOLDER}/nvidia/cudnn/lib"
    old = {f"{CAPI}/libonnxruntime_providers_cuda.so": write_elf(needed=("libcublas.so.12", "libcudnn.so.8"))}
    said = {f"{WHEEL}/libcudnn.so.9": tells(90300), f"{place}/libcudnn.so.8": tells(8907)}
    there = {**files, **old, **cudnn, **cudnn_files(place, "8.9.7"), **CUBLAS, f"{SITE}/{MODULE}.pth": preload_pth()}

    def seen(source: str) -> Found:
        return look(machine({**there, f"{SITE}/{MODULE}.py": source}, said), distribution(package, version), nvidia)

    found = seen(preload_source((), ("onnxruntime",)))
    assert loaded(found)[:2] == ("8.9.7", f"{place}/libcudnn.so.8")
    assert whys(found) == []
    assert whys(seen(preload_source(("onnxruntime",)))), "the other cuDNN is none for it"


def test_what_a_framework_opens_by_itself_is_not_ascribed_to_the_preload() -> None:
    home = "/home/u/.cupy/cuda_lib/12.x/cudnn/8.8.1/lib"
    wheel_json = '{"cuda": "12.x", "packaging": "pip", "cudnn": {"version": "8.8.1", "filenames": ["libcudnn.so.8.8.1"]}}'
    files: Files = {
        f"{SITE}/cupy/.data/_wheel.json": wheel_json,
        f"{SITE}/cupy_backends/cuda/libs/cudnn.cpython-311-x86_64-linux-gnu.so": write_elf(needed=("libcudnn.so.8",)),
        f"{home}/libcudnn.so.8.8.1": write_elf("libcudnn.so.8"),
        **preload("cupy"),
    }
    found = look(machine(files, environ={"HOME": "/home/u"}), distribution("cupy-cuda12x", "13.6.0"))
    assert loaded(found)[1:] == (
        f"{home}/libcudnn.so.8.8.1",
        "cupy-cuda12x's own code opens it by path before its libraries request it",
    )
