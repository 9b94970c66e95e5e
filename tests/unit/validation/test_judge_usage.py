"""Who computed a convolution, by names out of profilers and compiled programs, where cuDNN's own log is silent.

The names of kernels are those that profiles of real runs show, from a Maxwell card to a Hopper one; the programs are XLA's, in the forms
that it wrote over the years.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from msgspec.structs import replace

from cudnn_resolve.validation import payload, payload_framework, payload_jax, payload_onnxruntime
from cudnn_resolve.validation.answers import ChildReport
from cudnn_resolve.validation.case import CLASSES, Case
from cudnn_resolve.validation.children import cases_for, watched
from cudnn_resolve.validation.judge_usage import MUST_USE, judge_usage, read_names
from cudnn_resolve.validation.model import Check
from cudnn_resolve.validation.reference import expected
from tests.unit.validation.recordings import telling

TWO, DEPTHWISE, STRIDED = CLASSES[1], CLASSES[4], CLASSES[5]

CUDNN_KERNELS = (
    "maxwell_scudnn_winograd_128x128_ldg1_ldg4_mobile_relu_tile148t_nt_v0",
    "maxwell_scudnn_128x32_stridedB_splitK_interior_nn_v0",
    "volta_scudnn_128x64_relu_interior_nn_v1",
    "turing_fp16_s1688cudnn_fp16_128x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1",
    "void cudnn::winograd::generateWinogradTilesKernel<1, float, float>(cudnn::winograd::GenerateWinogradTilesParams<float, float>)",
    "void cudnn::engines_precompiled::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>",
    "void cudnn::cnn::conv2d_grouped_direct_kernel<false, true, false, true, 0, 0, int, float, float>",
    "cudnn_infer_ampere_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1",
    "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4_warpsize2x2x1_g1_tensor16x8x8",
    "sm90_xmma_wgrad_implicit_gemm_indexed_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize64x64x64",
    "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_64x64_16x10_nhwc_align4>",
    "void cutlass_cudnn::Kernel<cutlass_tensorop_s1688wgrad_optimized_tf32_64x128_16x6>",
    "void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, true, false, true>",
    "void fft2d_r2c_32x32<float, false, 1u, true>(float2*, float const*, int, cudnn::reduced_divisor, bool, int2, int, int)",
    "void dgrad_engine<float, 128, 6, 7, 3, 3, 5, true>",
    "void RNN_blockPersist_fp_LSTM_HMMA<__half, __half, float, 1, 128>",
    "aten::cudnn_convolution",
    "aten::cudnn_convolution_transpose",
    "aten::_cudnn_rnn",
    "__cudnn$convForward",
    "__cudnn$fusion",
    "CUDAExecutionProvider:Conv",
    "CUDAExecutionProvider:ConvTranspose",
    "CUDAExecutionProvider:FusedConv",
    "CUDAExecutionProvider:NhwcConv",
    "CUDAExecutionProvider:NhwcFusedConv",
    "void im2col4d_kernel<float, int>(im2col4d_params, cudnnConvolutionStruct, cudnnTensor4dStruct, float const*, float*, int)",
    "void precomputed_convolve_sgemm<float, 1024, 5, 5, 4, 3, 3, 1, false>(int, int, int, float const*, int, float*)",
    "void cutlass_cudnn_infer::Kernel<cutlass_80_simt_sgemm_128x128_8x4_nn_align1>",
    "cutlass_80_tensorop_s1688fprop_optimized_tf32_128x64_16x5_nhwc_align4",
    "void xmma_cudnn_train::gemm::kernel<xmma_cudnn_train::implicit_gemm::wgrad_indexed::Kernel_traits>",
    "volta_gcgemm_32x32_nt",
    "void fft2d_c2r_32x32<float, false, false, 1u, false, false>(float*, float2 const*, int, int)",
    "_ZN5cudnn3cnn15conv2d_grouped_direct_kernelE",
    "_ZN13cutlass_cudnn6KernelI52cutlass_tensorop_s1688fprop_optimized_tf32_64x64",
    "cudnn_generated_fort_native_conv_sm90_engine_0",
    "maxwell_int8x4_icudnn_int8x4_128x128_relu_small_nn_v1",
)
OTHERS = (
    "aten::slow_conv2d_forward",
    "aten::_slow_conv2d_forward",
    "aten::thnn_conv2d",
    "aten::mkldnn_convolution",
    "aten::_conv_depthwise2d",
    "void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3, float, int>",
    "void at::native::im2col_kernel<float>(long, float const*, long, long)",
    "ampere_sgemm_128x64_nn",
    "nvjet_hsh_128x64_64x6_2x1_v_bz_NNT",
    "triton_convolution2d_0",
    "convolution",
    "CPUExecutionProvider:Conv",
    "CPUExecutionProvider:FusedConv",
    "ROCMExecutionProvider:Conv",
    "aten::miopen_convolution",
    "volta_cgemm_32x32_nt",
)
SILENT = (
    "aten::conv2d",
    "aten::convolution",
    "aten::cudnn_is_acceptable",
    "xla_gpu_enable_cudnn_frontend",
    "libcudnn.so.9",
    "cudnn_version",
    "__cudnn$fmhaSoftmax",
    "__cudnn$norm",
)
"""Names that say nothing of who did it."""


@pytest.mark.parametrize("name", CUDNN_KERNELS)
def test_what_is_cudnn(name: str) -> None:
    assert read_names("x", [name]).cudnn == (name,)


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_something_else(name: str) -> None:
    found = read_names("x", [name])
    assert (found.cudnn, found.other) == ((), (name,))


@pytest.mark.parametrize("name", SILENT)
def test_what_says_nothing(name: str) -> None:
    found = read_names("x", [name])
    assert (found.cudnn, found.other) == ((), ())


@pytest.mark.parametrize(
    ("crowd", "name"),
    [
        ("Conv2DBackpropInput_{}", "sm80_xmma_fprop_implicit_gemm_x"),
        ("Conv2DBackpropInput_{}", "void at::native::im2col_kernel"),
        ("grad_{}", "void cudnn::ops::nchwToNhwc<float>"),
        ("cudnn::{}", "void at::native::im2col_kernel"),
        ("cudnn::{}", "ampere_sgemm_128x64_nn"),
        ("aten::slow_conv_{}", "sm80_xmma_fprop_implicit_gemm_x"),
    ],
)
def test_a_crowd_of_names_hides_none_that_tells(crowd: str, name: str) -> None:
    names = [crowd.format(number) for number in range(100)] + ["zz_grad"] * 3

    told = payload_framework.evidence("x", [*names, name])

    assert name in told["names"]
    assert len(told["names"]) == 60
    assert told["cut"] == len({*names, name}) - 60
    assert payload_framework.evidence("x", names[:60])["cut"] == 0


def test_names_that_were_left_out_are_told() -> None:
    right = {name: list(one.values) for name, one in expected(TWO).items()}

    def detail(*names: str) -> str:
        witness = ("witness", [TWO.id, {"how": "the profiler", "names": names, "cut": 40}])
        return judge_usage("x", "torch", [((TWO,), telling(("case", {"id": TWO.id, "cudnn": {}, **right}), witness))], 0).detail

    assert detail("thnn_conv2d").endswith("thnn_conv2d (the profiler; 40 names were left out)")
    assert detail().endswith("the profiler shows no conclusive name, and 40 more were left out")


def test_what_may_help_cudnn_is_not_held_against_it() -> None:
    helped = read_names("x", ["aten::cudnn_convolution", "ampere_sgemm_128x64_nn", "__triton_gemm"])
    partly = read_names("x", ["aten::cudnn_convolution", "aten::slow_conv2d_backward", "ampere_sgemm_128x64_nn"])

    assert (helped.cudnn, helped.other) == (("aten::cudnn_convolution",), ())
    assert (partly.cudnn, partly.other) == (("aten::cudnn_convolution",), ("aten::slow_conv2d_backward",))


def test_every_name_that_tells_is_told_by_a_payload() -> None:
    for names in (CUDNN_KERNELS, OTHERS):
        assert set(payload_framework.evidence("x", names)["names"]) == {name[:160] for name in names}


HLO = Path(__file__).resolve().parents[2] / "validation"


OF_2020 = """
%custom-call.1 = (f16[128,64,112,112]{1,3,2,0}, u8[0]{0}) custom-call(%p0, %p1), window={size=7x7 stride=2x2 pad=3_3x3_3},
  dim_labels=bf01_01oi->bf01, custom_call_target="__cudnn$convForward", backend_config="{conv_result_scale:1}"
"""
OF_2025 = """
%cudnn-conv.1 = (f32[1,32,32,8]{3,2,1,0}, u8[0]{0}) custom-call(%bitcast.3, %t), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_o01i->b01f,
  custom_call_target="__cudnn$convForward", metadata={source_line=4}, backend_config={"operation_queue_id":"0","cudnn_conv_backend_config":
  {"activation_mode":"kNone","algorithm":{"algo_id":"28","math_type":"DEFAULT_MATH"}}}
%cudnn-conv-bw-filter.1 = (f32[3,3,1,8]{2,1,0,3}, u8[0]{0}) custom-call(%a, %b), custom_call_target="__cudnn$convBackwardFilter"
"""
FUSED = 'ROOT _ = f32[3,32] fusion(p0, p1), kind=kCustom, calls=f, backend_config={"fusion_backend_config": {kind: "__cudnn$fusion"}}'
TRITON = '%fusion.2 = f32[8,8]{1,0} fusion(%p0), kind=kCustom, backend_config={"fusion_backend_config":{"kind":"__triton_gemm"}}'
PLAIN = "%convolution.1 = f32[2,4,7,4]{3,2,1,0} convolution(%p0.1, %p1.2), window={size=3x2 pad=1_1x0_0}, dim_labels=bf01_oi01->bf01"


@pytest.mark.parametrize(
    ("program", "names"),
    [
        (OF_2020, ["__cudnn$convForward"]),
        (OF_2025, ["__cudnn$convBackwardFilter", "__cudnn$convForward"]),
        (FUSED, ["__cudnn$fusion"]),
        (TRITON, ["__triton_gemm"]),
        (PLAIN, ["convolution"]),
        ("%dot.3 = f32[5,7]{1,0} dot(%p0, %p1), lhs_contracting_dims={1}", []),
    ],
)
def test_calls_in_a_compiled_program(program: str, names: list[str]) -> None:
    assert payload_jax.hlo_names(f"HloModule jit_everything\n\nENTRY %main {{\n  {program}\n}}\n") == names


def test_a_program_recorded_from_jax_on_a_cpu_computes_without_cudnn() -> None:
    names = payload_jax.hlo_names((HLO / "jax-cpu-conv2d.hlo").read_text("utf-8"))

    found = read_names("the compiled HLO", names)
    assert (found.cudnn, found.other) == ((), ("convolution",))


def used(*cases: Case, logged: bool = False, calls: dict[str, int] | None = None, **names: list[str]) -> Check:
    """The verdict where the log says that, and a witness of the class (`conv2d_strided`) these names."""
    rows: list[tuple[str, object]] = []
    for case in cases:
        right = {name: list(one.values) for name, one in expected(case).items()}
        rows.append(("case", {"id": case.id, "seconds": 0.1, "cudnn": calls or {}, "logged": logged, **right}))
    for name, told in names.items():
        class_, _, type_ = name.partition("__")
        case = next(case for case in cases if case.name == class_.replace("_", "-") and type_ in ("", case.type))
        rows.append(("witness", [case.id, {"how": "torch.profiler", "names": told}]))
    return judge_usage("torch/cudnn-used", "torch", [(cases, telling(*rows))], 0)


def test_a_witness_counts_where_the_log_is_silent_and_for_all_cases_of_a_class_and_type() -> None:
    turned = replace(TWO, layout="nhwc")

    check = used(TWO, turned, conv2d=["aten::conv2d", "aten::cudnn_convolution"])

    assert check.status == "passed"
    assert check.observed == "in 2 of 2 cases (torch.profiler shows aten::cudnn_convolution)"


def test_what_was_seen_of_one_type_says_nothing_of_another() -> None:
    narrow = replace(TWO, type="bfloat16")

    check = used(TWO, narrow, conv2d=["aten::cudnn_convolution"])
    seen = used(TWO, narrow, conv2d=["aten::cudnn_convolution"], conv2d__bfloat16=["aten::slow_conv2d_forward"])

    assert (check.status, check.observed) == ("warning", f"not known what computed: {narrow.id}")
    assert "something else" not in check.detail
    assert (seen.status, seen.observed) == ("warning", f"computed without cuDNN: {narrow.id}")


def test_a_gradient_by_something_else_is_told() -> None:
    check = used(TWO, conv2d=["__cudnn$convForward", "convolution"])
    logged = used(TWO, logged=True, calls={"cudnnConvolutionForward": 1}, conv2d=["__cudnn$convForward", "convolution"])

    for one in (check, logged):
        assert (one.status, one.observed) == ("warning", f"computed partly without cuDNN: {TWO.id}")
        assert one.detail == "the numbers are correct, but something else computed part of them: convolution (torch.profiler)"


def test_a_case_is_judged_by_its_own_witness_first() -> None:
    def run(case: Case, name: str) -> tuple[tuple[Case], ChildReport]:
        right = {name: list(one.values) for name, one in expected(case).items()}
        rows = ("case", {"id": case.id, "cudnn": {}, **right}), ("witness", [case.id, {"how": "torch.profiler", "names": [name]}])
        return (case,), telling(*rows)

    turned = replace(TWO, layout="nhwc")
    runs = [run(TWO, "aten::slow_conv2d_forward"), run(turned, "aten::cudnn_convolution")]

    assert judge_usage("x", "torch", runs, 0).observed == f"computed without cuDNN: {TWO.id}"


def test_a_witness_that_saw_nothing_accuses_nobody() -> None:
    right = {name: list(one.values) for name, one in expected(TWO).items()}
    other = {name: list(one.values) for name, one in expected(STRIDED).items()}
    broken = ("witness", [STRIDED.id, {"how": "", "names": [], "why": "RuntimeError: profiler broke"}])
    told = telling(
        ("case", {"id": TWO.id, "cudnn": {"cudnnBackendExecute": 1}, **right}), ("case", {"id": STRIDED.id, "cudnn": {}, **other}), broken
    )

    check = judge_usage("x", "torch", [((TWO, STRIDED), told)], 0)

    assert (check.status, check.observed) == ("warning", f"not known what computed: {STRIDED.id}")
    assert check.detail == "the numbers are correct, but nothing shows what computed them: RuntimeError: profiler broke"


def test_witnesses_behind_one_that_ended_the_process_have_its_reason() -> None:
    rows = [("case", {"id": case.id, "cudnn": {}, **{n: list(v.values) for n, v in expected(case).items()}}) for case in (TWO, STRIDED)]
    seen = ("witness", [TWO.id, {"how": "torch.profiler", "names": ["aten::cudnn_convolution"]}])
    told = replace(telling(*rows, seen, ("step", f"watch {STRIDED.id}"), end=False), failure="crashed (SIGSEGV)")

    check = judge_usage("x", "torch", [((TWO, STRIDED, DEPTHWISE), told)], 0)

    assert check.observed == f"not known what computed: {STRIDED.id}"
    assert check.detail.endswith("the process ended while being watched: crashed (SIGSEGV)")


def test_a_log_that_is_on_and_silent_says_that_cudnn_did_nothing() -> None:
    check = used(TWO, logged=True)

    assert (check.status, check.observed) == ("warning", f"computed without cuDNN: {TWO.id}")
    assert check.detail.endswith("something else computed them: cuDNN's log was on and shows no call")


def test_each_class_is_watched_in_each_type() -> None:
    cases = (TWO, replace(TWO, layout="nhwc"), replace(TWO, type="float16"), DEPTHWISE)

    assert watched(cases) == [TWO.id, replace(TWO, type="float16").id]


def test_a_fallback_is_told_with_what_computed_instead() -> None:
    check = used(TWO, STRIDED, conv2d=["aten::cudnn_convolution"], conv2d_strided=["aten::_slow_conv2d_forward", "ampere_sgemm_32x32_nn"])

    assert check.status == "warning"
    assert check.observed == f"computed without cuDNN: {STRIDED.id}"
    assert check.detail.endswith("something else computed them: aten::_slow_conv2d_forward, ampere_sgemm_32x32_nn (torch.profiler)")


def test_a_fallback_beside_a_log_of_other_work_is_told() -> None:
    assert used(TWO, logged=True, conv2d=["aten::thnn_conv2d"]).status == "warning"
    assert used(TWO, logged=True, conv2d=["sm80_xmma_fprop_implicit_gemm_x"]).status == "passed"
    assert used(TWO, logged=True, calls={"cudnnBackendExecute": 1}).status == "passed"


def test_classes_with_kernels_of_their_own_may_go_without() -> None:
    check = used(TWO, DEPTHWISE, conv2d=["aten::cudnn_convolution"])

    assert (check.status, check.observed) == (
        "passed",
        f"in 1 of 2 cases (torch.profiler shows aten::cudnn_convolution); others without it: {DEPTHWISE.id}",
    )


@pytest.mark.parametrize(
    "row", [None, 1, [], [1, {}], ["x"], [TWO.id, None], [TWO.id, {"names": 3}], [TWO.id, {"names": [1, None], "why": 3}]]
)
def test_no_witness_upsets_the_judge(row: object) -> None:
    right = {name: list(one.values) for name, one in expected(TWO).items()}
    told = telling(("case", {"id": TWO.id, "cudnn": {}, **right}), ("witness", row))

    assert judge_usage("x", "torch", [((TWO,), told)], 0).observed == "cuDNN wrote no log"


def test_every_class_that_must_be_cudnns_is_given_to_every_framework() -> None:
    assert {case.name for module in ("torch", "ctranslate2") for case in cases_for(module)} >= MUST_USE


LOGS = {
    "cuDNN 9.1.0": b"\nI! CuDNN (v90100 70) function cudnnBackendExecute() called:\ni! Time: 2026-11-21T18:18:26.034202\n",
    "cuDNN 8.9.7": b"\nI! CuDNN (v8907) function cudnnConvolutionForward() called:\ni! Time: 2026-11-21T18:18:56.436455\n",
}


@pytest.mark.parametrize("release", LOGS)
def test_calls_are_read_from_logs_of_every_generation(release: str) -> None:
    """In the form in which those releases really wrote them, with the calls exchanged."""
    (name,) = payload.CALL.findall(LOGS[release])

    assert payload.WORK.match(name.decode())
    assert not payload.WORK.match("cudnnCreateTensorDescriptor")


@pytest.mark.parametrize("fails", [True, False])
def test_a_profile_lies_where_nobody_else_can_have_laid_anything(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:  # noqa: FBT001
    seen: list[Path] = []

    def compute(_case: object) -> None:
        path = Path(bench.profile)
        seen.append(path.parent)
        assert path.parent.stat().st_mode & 0o077 == 0
        assert not path.exists()
        if fails:
            raise RuntimeError("no")
        path.write_text('[{"args": {"provider": "CUDAExecutionProvider", "op_name": "Conv"}}]', "utf-8")

    bench = payload_onnxruntime.Framework.__new__(payload_onnxruntime.Framework)
    monkeypatch.setattr(bench, "compute", compute, raising=False)

    for _ in range(2):
        with pytest.raises(RuntimeError) if fails else nullcontext():
            assert bench.witness({})["names"] == ["CUDAExecutionProvider:Conv"]

    assert len(set(seen)) == 2
    assert not any(folder.exists() for folder in seen)
