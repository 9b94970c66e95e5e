"""Who computed a convolution, by names out of profilers and compiled programs, where cuDNN's own log is silent.

The names of kernels are those that profiles of real runs show, from a Maxwell card to a Hopper one; the programs are XLA's, in the forms
that it wrote over the years.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cudnn_resolve.record import replace
from cudnn_resolve.validation import payload_log, payload_witness
from cudnn_resolve.validation.bench import cases_for
from cudnn_resolve.validation.case import CLASSES, Case
from cudnn_resolve.validation.model import Check
from cudnn_resolve.validation.reference import expected
from cudnn_resolve.validation.usage import MUST_USE, judge_usage, read_names
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
)
SILENT = (
    "aten::conv2d",
    "aten::convolution",
    "aten::cudnn_is_acceptable",
    "xla_gpu_enable_cudnn_frontend",
    "libcudnn.so.9",
    "cudnn_version",
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


def test_every_name_that_tells_is_told_by_a_payload() -> None:
    names = [*CUDNN_KERNELS, *OTHERS]
    assert set(payload_witness.answer("x", names)["names"]) == {name[:160] for name in names}


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
    assert payload_witness.hlo_names(f"HloModule jit_everything\n\nENTRY %main {{\n  {program}\n}}\n") == names


def test_a_program_recorded_from_jax_on_a_cpu_computes_without_cudnn() -> None:
    names = payload_witness.hlo_names((HLO / "jax-cpu-conv2d.hlo").read_text("utf-8"))

    found = read_names("the compiled HLO", names)
    assert (found.cudnn, found.other) == ((), ("convolution",))


def used(*cases: Case, logged: bool = False, calls: dict[str, int] | None = None, **names: list[str]) -> Check:
    """The verdict where the log says that, and a witness of the class (`conv2d_strided`) these names."""
    rows: list[tuple[str, object]] = []
    for case in cases:
        right = {name: list(one.values) for name, one in expected(case).items()}
        rows.append(("case", {"id": case.id, "seconds": 0.1, "cudnn": calls or {}, "logged": logged, **right}))
    for name, told in names.items():
        case = next(case for case in cases if case.name == name.replace("_", "-"))
        rows.append(("witness", [case.id, {"how": "torch.profiler", "names": told}]))
    return judge_usage("torch/cudnn-used", "torch", [(cases, telling(*rows))], 0)


def test_a_witness_counts_where_the_log_is_silent_and_for_all_cases_of_a_class() -> None:
    half = replace(TWO, type="float16")

    check = used(TWO, half, conv2d=["aten::conv2d", "aten::cudnn_convolution"])

    assert check.status == "passed"
    assert check.observed == "in 2 of 2 cases (torch.profiler shows aten::cudnn_convolution)"


def test_a_fallback_is_told_with_what_computed_instead() -> None:
    check = used(TWO, STRIDED, conv2d=["aten::cudnn_convolution"], conv2d_strided=["aten::_slow_conv2d_forward", "ampere_sgemm_32x32_nn"])

    assert check.status == "warning"
    assert check.observed == f"computed without cuDNN: {STRIDED.id}"
    assert check.detail.endswith("something else gave them: aten::_slow_conv2d_forward, ampere_sgemm_32x32_nn (torch.profiler)")


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
    (name,) = payload_log.CALL.findall(LOGS[release])

    assert payload_log.WORK.match(name.decode())
    assert not payload_log.WORK.match("cudnnCreateTensorDescriptor")
