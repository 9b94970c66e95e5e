"""The link check on environments that are written down here: what is whole is passed over in silence, what is broken is told."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from cudnn_resolve.evidence.elf import Elf
from cudnn_resolve.evidence.link_check import BrokenLink, PackagedLibrary, Site, broken_links, explain
from cudnn_resolve.matrix.evidence import opened_names, wheel_with
from tests.program import shipped

ROOT = "/env/lib/python3.11/site-packages"
SYSTEM = {
    "libc.so.6": Elf(arch="x86_64", bits=64, soname="libc.so.6", provided=frozenset({"GLIBC_2.17", "GLIBC_2.28"})),
    "libcudart.so.13": Elf(arch="x86_64", bits=64, soname="libcudart.so.13"),
    "libstdc++.so.6": Elf(arch="x86_64", bits=64, soname="libstdc++.so.6", provided=frozenset({"GLIBCXX_3.4.29"})),
}
TORCH = {
    "torch/lib/libtorch_cuda.so": Elf(
        arch="x86_64", bits=64, needed=("libc10.so", "libcudart.so.12", "libcudnn.so.9"), rpath="$ORIGIN:$ORIGIN/../../nvidia/cudnn/lib"
    ),
    "torch/lib/libc10.so": Elf(arch="x86_64", bits=64, soname="libc10.so", needed=("libc.so.6",)),
    "torch/_C.cpython-311-x86_64-linux-gnu.so": Elf(arch="x86_64", bits=64, needed=("libtorch_cuda.so",), rpath="$ORIGIN/lib"),
}
CUDART = {"nvidia/cuda_runtime/lib/libcudart.so.12": Elf(arch="x86_64", bits=64, soname="libcudart.so.12")}
CUDNN = {"nvidia/cudnn/lib/libcudnn.so.9": Elf(arch="x86_64", bits=64, soname="libcudnn.so.9")}
DECLARED = {
    "torch": frozenset({"nvidia-cuda-runtime-cu12", "nvidia-cudnn-cu12", "sympy"}),
    "torchvision": frozenset({"torch"}),
    "tensorflow": frozenset({"nvidia-cudnn-cu12", "nvidia-cublas-cu12", "numpy"}),
}
STACK = {"torch": TORCH, "nvidia-cuda-runtime-cu12": CUDART, "nvidia-cudnn-cu12": CUDNN}


def site(packages: Mapping[str, Mapping[str, Elf]], opens: Mapping[str, tuple[str, ...]] | None = None) -> Site:
    libraries = [
        PackagedLibrary(package=name, path=f"{ROOT}/{path}", elf=elf) for name, files in packages.items() for path, elf in files.items()
    ]
    return Site(
        libraries=tuple(libraries),
        packages={name: ("1.0", DECLARED.get(name, frozenset())) for name in packages},
        find=lambda name: (f"/lib/{name}",) if name in SYSTEM else (),
        look=lambda path: SYSTEM.get(path.removeprefix("/lib/")),
        opens=opens or {},
    )


def extension(*needed: str, wanted: tuple[tuple[str, str], ...] = ()) -> Elf:
    return Elf(arch="x86_64", bits=64, needed=needed, wanted=wanted)


def broken(packages: Mapping[str, Mapping[str, Elf]]) -> list[tuple[str, str]]:
    return [(one.package, one.name) for one in broken_links(site(packages)) if one.severity == "error"]


def test_a_whole_stack_is_passed_over_in_silence() -> None:
    vision = {"torchvision/_C.so": extension("libtorch_cuda.so", "libc10.so", "libcudart.so.12", "libc.so.6", "libcuda.so.1")}

    assert broken_links(site({**STACK, "torchvision": vision})) == ()


def test_a_library_that_nobody_brings_is_told_with_those_who_need_it() -> None:
    without = {name: files for name, files in STACK.items() if name != "nvidia-cudnn-cu12"}

    here = site({**without, "torchvision": {"torchvision/_C.so": extension("libtorch_cuda.so")}})
    (found,) = broken_links(here)

    assert (found.package, found.name, found.users, found.severity) == ("torch", "libcudnn.so.9", ("torchvision",), "error")
    assert explain(here, found, shipped())[0] == (
        "torch: libtorch_cuda.so needs libcudnn.so.9 (torchvision needs it), which no package provides: nvidia-cudnn-cu12 has it"
    )


def test_a_companion_of_another_cuda() -> None:
    other = {"nvidia/cu13/lib/libcudart.so.13": Elf(arch="x86_64", bits=64, soname="libcudart.so.13")}
    vision = {"torchvision/_C.so": extension("libc10.so", "libcudart.so.13")}

    # the system's CUDA 13 is of no use to what runs in a process with torch's CUDA 12
    assert broken({**STACK, "torchvision": vision}) == [("torchvision", "libcudart.so.13")]
    assert broken({"alone": {"alone/_C.so": extension("libcudart.so.13")}}) == []
    # another framework's CUDA 13 in the same environment is not what torch has loaded
    assert broken({**STACK, "torchvision": vision, "nvidia-cuda-runtime": other}) == [("torchvision", "libcudart.so.13")]


def test_wheels_that_are_preloaded_for_a_package_without_a_search_path() -> None:
    providers = {"onnxruntime/capi/libonnxruntime_providers_cuda.so": extension("libcudnn.so.9", "libcudart.so.12")}

    assert broken({"onnxruntime-gpu": providers, "nvidia-cudnn-cu12": CUDNN, "nvidia-cuda-runtime-cu12": CUDART}) == []
    assert broken({"onnxruntime-gpu": providers, "nvidia-cudnn-cu12": CUDNN}) == [("onnxruntime-gpu", "libcudart.so.12")]


@pytest.mark.parametrize(
    ("package", "path", "needed"),
    [
        ("onnxruntime-gpu", "onnxruntime/capi/libonnxruntime_providers_tensorrt.so", "libnvinfer.so.10"),
        ("nvidia-nvshmem-cu12", "nvidia/nvshmem/lib/nvshmem_bootstrap_mpi.so.3", "libmpi.so.40"),
        ("torch", "torch/lib/libtorch_cuda.so", "libnvidia-ml.so.1"),
        ("triton", "triton/_C/libtriton.so", "libamdhip64.so.6"),
        ("cupy-cuda12x", "cupy_backends/cuda/libs/nccl.cpython-311-x86_64-linux-gnu.so", "libnccl.so.2"),
        ("tool", "tool/tests/check.so", "libcudart.so.11.0"),
    ],
)
def test_what_is_done_without_is_no_fault(package: str, path: str, needed: str) -> None:
    assert broken_links(site({package: {path: extension(needed)}})) == ()


def test_one_of_several_files_for_as_many_versions_is_enough() -> None:
    both = {
        f"bitsandbytes/libbitsandbytes_cuda{cuda}.so": extension(f"libcudart.so.{cudart}")
        for cuda, cudart in (("102", "10.2"), ("118", "11.0"), ("124", "12"))
    }

    assert broken({"bitsandbytes": both, "nvidia-cuda-runtime-cu12": CUDART}) == []
    assert broken({"bitsandbytes": both}) == [("bitsandbytes", "libcudart.so.12")]
    more = {**both, "bitsandbytes/libbitsandbytes_cuda124.so": extension("libcudart.so.12", "libc.so.6")}
    assert broken({"bitsandbytes": more, "nvidia-cuda-runtime-cu12": CUDART}) == [], "the newer one may need more"
    parts = {"sight/_1.so": extension("libcudart.so.12"), "sight/_2.so": extension("libcudart.so.12", "libcublas.so.12")}
    assert broken({"sight": parts, "nvidia-cuda-runtime-cu12": CUDART}) == [("sight", "libcublas.so.12")], "no alternatives"


def test_a_library_of_the_system_is_a_warning_and_a_plugin_is_none() -> None:
    gl = {"cv2/cv2.abi3.so": extension("libGL.so.1"), "cv2/qt/plugins/libqxcb.so": extension("libxcb.so.1")}

    (found,) = broken_links(site({"opencv-python": gl}))

    assert (found.name, found.severity) == ("libGL.so.1", "warning")


def test_symbol_versions_that_the_system_lacks() -> None:
    old = extension("libc.so.6", wanted=(("libc.so.6", "GLIBC_2.28"),))
    new = extension("libc.so.6", "libstdc++.so.6", wanted=(("libc.so.6", "GLIBC_2.28"), ("libstdc++.so.6", "GLIBCXX_3.4.32")))

    assert broken({"tool": {"tool/fast.so": old}}) == []
    here = site({"tool": {"tool/fast.so": new}})
    (found,) = broken_links(here)
    assert (found.name, found.version, found.found) == ("libstdc++.so.6", "GLIBCXX_3.4.32", "/lib/libstdc++.so.6")
    assert "is too old" in explain(here, found, shipped())[0]


def test_libraries_that_are_opened_by_name() -> None:
    book = shipped()
    packages = {
        "tensorflow": ("2.15.1", DECLARED["tensorflow"]),
        "nvidia-cublas-cu12": ("12.2.5.6", frozenset[str]()),
        "nvidia-cudnn-cu12": ("9.3.0.75", frozenset[str]()),
    }

    assert opened_names(book, packages) == {"tensorflow": ("libcudnn.so.8",)}
    del packages["nvidia-cudnn-cu12"], packages["nvidia-cublas-cu12"]
    assert opened_names(book, packages) == {}  # TensorFlow without a GPU
    found = broken_links(site({"tensorflow": {}, "nvidia-cudnn-cu12": CUDNN}, {"tensorflow": ("libcudnn.so.8",)}))
    assert found == (BrokenLink(package="tensorflow", path="", name="libcudnn.so.8", others=("libcudnn.so.9 of nvidia-cudnn-cu12",)),)


def test_loops_of_needs_end() -> None:
    ring = {f"ring/lib{one}.so": Elf(arch="x86_64", bits=64, needed=(f"lib{(one + 1) % 50}.so",), runpath="$ORIGIN") for one in range(50)}

    assert broken_links(site({"ring": ring})) == ()


def test_the_package_that_has_a_library_is_of_the_cuda_that_is_needed_beside_it() -> None:
    book = shipped()

    assert wheel_with(book, "libcusolver.so.11", needed=("libcublas.so.11", "libcusolver.so.11")) == "nvidia-cusolver-cu11"
    assert wheel_with(book, "libcusolver.so.11", needed=("libcublas.so.12",)) == "nvidia-cusolver-cu12"
    assert wheel_with(book, "libcudnn.so.8", needed=("libcublas.so.11",)) == "nvidia-cudnn-cu11"
    assert wheel_with(book, "libcudnn.so.8") is None
    assert wheel_with(book, "libGL.so.1") is None


def test_an_nvjitlink_that_is_older_than_what_links_with_it() -> None:
    def here(has: str) -> Site:
        jit = {"nvidia/nvjitlink/lib/libnvJitLink.so.12": Elf(arch="x86_64", bits=64, soname="libnvJitLink.so.12", jit=frozenset({has}))}
        wants = Elf(arch="x86_64", bits=64, needed=("libnvJitLink.so.12",), jit=frozenset({"__nvJitLinkComplete_12_4"}))
        return site({"sparse": {"sparse/_C.so": wants}, "nvidia-nvjitlink-cu12": jit})

    assert broken_links(here("__nvJitLinkComplete_12_4")) == ()
    (found,) = broken_links(here("__nvJitLinkComplete_12_1"))
    assert (found.name, found.version) == ("libnvJitLink.so.12", "__nvJitLinkComplete_12_4")
    assert explain(here("__nvJitLinkComplete_12_1"), found, shipped())[0].endswith(
        "is too old for that: a newer nvidia-nvjitlink-cu12 has it"
    )


def test_a_library_that_ld_library_path_names_comes_before_a_runpath() -> None:
    """The library of the wheel has all that is needed; the loader takes the older one of a CUDA beside it, but for an RPATH."""
    old, new = (frozenset({f"__nvJitLinkComplete_12_{minor}"}) for minor in (1, 4))

    def here(**path: str) -> Site:
        jit = Elf(arch="x86_64", bits=64, soname="libnvJitLink.so.12", jit=new)
        wants = Elf(arch="x86_64", bits=64, needed=("libnvJitLink.so.12",), jit=new, **path)  # type: ignore[arg-type]
        files = {"sparse": {"sparse/_C.so": wants}, "nvidia-nvjitlink-cu12": {"nvidia/nvjitlink/lib/libnvJitLink.so.12": jit}}
        found = {"/cuda/lib64/libnvJitLink.so.12": Elf(arch="x86_64", bits=64, soname="libnvJitLink.so.12", jit=old)}
        return replace(site(files), ahead=("/cuda/lib64",), look=found.get)

    beside = "$ORIGIN/../nvidia/nvjitlink/lib"
    (link,) = broken_links(here(runpath=beside))
    assert (link.severity, link.found) == ("warning", "/cuda/lib64/libnvJitLink.so.12")
    assert explain(here(runpath=beside), link, shipped())[0].endswith("LD_LIBRARY_PATH comes before the library's own search path")
    assert broken_links(here(rpath=beside)) == ()


def test_what_a_linked_package_declares_besides_is_not_missed() -> None:
    book = shipped()
    declares = frozenset({"nvidia-cuda-nvrtc-cu12", "nvidia-cudnn-cu12", "nvidia-cublas-cu12", "nvidia-cuda-runtime-cu12"})
    packages = {"onnxruntime-gpu": ("1.22.0", declares), "nvidia-cuda-runtime-cu12": ("12.9.79", frozenset[str]())}
    assert "libnvrtc.so.12" not in opened_names(book, packages)["onnxruntime-gpu"]

    linked = {"onnxruntime/capi/libonnxruntime_providers_cuda.so": extension("libcudart.so.12")}
    assert (
        broken_links(site({"onnxruntime-gpu": linked, "nvidia-cuda-runtime-cu12": CUDART}, {"onnxruntime-gpu": ("libcudnn.so.9",)})) == ()
    )
