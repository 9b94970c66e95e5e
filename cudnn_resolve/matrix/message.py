"""Kinds of fields in message patterns: the regular expression of each, and how its text becomes a value."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from cudnn_resolve.matrix.library_name import Library, library_of
from cudnn_resolve.version import CodeTarget, CudaVersion, CudnnVersion, Dotted, DriverVersion

_DOTS = r"\d{1,6}(?:\.\d{1,9}){0,4}"
_SO = r"\.so(?:\.\d{1,4}){0,4}"
_CUDA_STEMS = (
    r"(?:cudart|cublas(?:Lt)?|cufftw?|curand|cusolver(?:Mg)?|cusparse(?:Lt)?|nvrtc(?:-builtins)?|nvJitLink|nvjpeg|npp[a-z]{1,6}|nccl"
    r"|custatevec|cutensornet|cudensitymat|nvToolsExt|nvshmem_?[a-z]{0,20}|cufile(?:_rdma)?|cutensor(?:Mg)?|cudss|nvfatbin|nvvm|nvblas)"
)
_MEASURED = r"\b(?:(?:epoch|step|loss|vs)\b|(?:val|train|iter|max|min|mean|avg|sum|rel|abs|test|eval|rms)\w{0,7}[ _-]{0,2}err)"
"""Start of a numerical error, such as that of a training."""
_CUDA_FAILED = (
    r"(?i:\b(?:cuda|cuInit|cudart|nvcuda|cudaError(?:_t)?|cuda(?:Get|Set|Host|Mem|Malloc|Free|Launch|Stream|Event|Device)\w{0,24}"
    r"|(?:nvidia|gpu) (?:device|driver)(?=.{0,60}\b(?:err|fail)))\b"
    rf"(?:(?!{_MEASURED}).){{0,60}}?\b(?:err(?:or)?|failure|failed|fails|returned|returns)"
    r"(?: with)?(?: err(?:or)?)?(?:[:, ]{0,2}(?:code|status|number))?(?: -> |[ :=(#!]{1,4})"
    r"|(?<!\) )\b(?:cuInit(?:\(0?\))?(?: result)?|CUresult|cuda_?Error(?:_?Code)?)(?: ?-> |[ :=(]{1,3})"
    r"|\bfail\w{0,4} (?:to )?init\w{0,10} (?:the )?cuda(?: \w{2,10})?[ :(,]{1,3}(?:err(?:or)? )?"
    r"|THCudaCheck FAIL .{0,160}error=|== cudaSuccess\)? {0,2}\("
    r"|CudaAPIError: \[)"
)
"""Text before a CUDA error number."""
_CUDA_SAYS = (
    r"(?i:(?:\bcuda\b[ \w]{0,24}\b(?:error|fail(?:ed|ure)?|runtime)\b[ \w]{0,14}"
    r"(?: (?:at|in) [\w./\\-]{1,80}(?::\d{1,6})?(?::[\w ]{1,40})?)?"
    r"|failed to initialize CUDA|Triton Error \[CUDA\]|GPUassert|Gpu API call\)|THCudaCheck FAIL .{0,160}error=\d{1,3} "
    r"|== cudaSuccess\b.{0,24}|\[CUDA\]|\bcuda[A-Z]\w{2,40}(?:\(\))?(?: failed)?|\bCUDA [\w./\\-]{1,80}:\d{1,6}"
    r"|(?:gpuErrchk|cudaSafeCall|checkCuda\w{0,12}|CUDA_(?:CHECK|CALL|SAFE_CALL))\b.{0,60}?"
    r"|DriverError\(CUDA_ERROR_\w{1,40}|panic: cuda|\bCUDA(?:内存|错误|运行)\w{0,10}"
    r"|\b(?:parallel_for|transform|reduce|sort|radix_sort|copy|for_each|scan|unique)(?:_\w{1,20})? failed)"
    r"[\s:,('\"-]{1,4}(?:CUDA: )?)"
)
"""Text before the words of a CUDA error, which are too generic on their own."""
_ABSENT = (
    r"(?:not (?:be )?(?:found|find|load(?:ed)?|open(?:ed)?|locate[d]?|available|installed|detect(?:ed)?|present|exist)"
    r"|can(?:not|'t| not) (?:be )?(?:find|found|load|open|locate|import|detect|access)|couldn't (?:find|load|open|locate)"
    r"|unable to (?:find|load|open|locate|import|access|detect)"
    r"|fail(?:ed|ure|s)? to (?:find|load|open|locate|import|dlopen|initialize|init)|[\"'] {0,2}failed\b"
    r"|missing|no such|unavailable|undefined|(?:dangling|broken) (?:symbolic |sym)?link"
    r"|nicht gefunden|introuvable|no encontrado|не найден|找不到|未找到|無法|见つかりません|見つかりません)"
)
"""Wording that reports something as missing."""


_CANNOT_OPEN = (
    r"(?:cannot open shared object file|Kann die Shared-Object-Datei nicht öffnen|ne peut ouvrir|impossible d.ouvrir"
    r"|no se puede (?:abrir|open)|não é possível abrir|não pode abrir|impossibile aprire|nie można otworzyć|невозможно открыть"
    r"|не удается открыть|не удалось открыть|无法打开|無法開啟|共有オブジェクトファイルを開けません|공유 오브젝트 파일을 열 수 없"
    r"|paylaş.lan nesne dosyas. aç.l|niet openen|kan inte öppna|kan ikke åbne|nelze otevřít|не вдалося відкрити|không thể mở"
    r"|(?i:unable|failed|not able) to open (?:the )?shared object)"
)
"""What glibc's loader says of a library that it cannot open, in the languages of its users, and as translated back."""
_DLL_ABSENT = (
    r"(?:The specified module could not be found|Das angegebene Modul wurde nicht gefunden|Le module spécifié est introuvable"
    r"|No se puede encontrar el módulo|No se encontró el módulo|Não foi possível encontrar o módulo|Impossibile trovare il modulo"
    r"|.. найден указанный модуль|Nie można odnaleźć określonego modułu|Belirtilen modül bulunamad.|指定されたモジュールが見つかりません"
    r"|지정된 모듈을 찾을 수 없습니다|找不到指定的模块|找不到指定的模組|Kan opgegeven module niet vinden|(?:Uvedený|Zadaný) modul"
    r"|Det går inte att hitta den angivna modulen|Det angivne modul|Finner ikke den angitte modulen|A megadott modul|Määritettyä moduulia"
    r"|Nu (?:a fost găsit|se poate găsi) modulul|.. знайдено .{2}значений модуль|Указаният модул|Δεν .{0,40}μονάδας)"
)
"""What Windows says of a DLL that it does not find (error 126)."""
_DLL_FUNCTION = (
    r"(?:The specified procedure could not be found|Die angegebene Prozedur wurde nicht gefunden|La procédure spécifiée est introuvable"
    r"|No se encontró el proceso especificado|No se puede encontrar el procedimiento|Não foi possível encontrar o procedimento"
    r"|Impossibile trovare la procedura|.. найдена указанная процедура|指定されたプロシージャが見つかりません|找不到指定的程序"
    r"|Kan opgegeven procedure niet vinden|Nie można odnaleźć określonej procedury|지정된 프로시저를 찾을 수 없습니다|Belirtilen yordam"
    r"|(?:Uvedená|Zadaná) procedura|Det går inte att hitta den angivna proceduren|A megadott eljárás)"
)
"""What Windows says of a function that a DLL lacks (error 127)."""
_DLL_INIT = (
    r"(?:\(DLL[)-]|\bDLL-[Ii]\w|routine d.initialisation d.une bibliothèque|rutina de inicialización de biblioteca"
    r"|(?i:библиотеки динамической компоновки)|초기화 루틴|biblioteca de vínculo dinâmico|libreria di collegamento dinamico"
    r"|inicjowania biblioteki|動態連結程式庫)"
)
"""What Windows says of a DLL that fails as it starts (error 1114): of its messages only this one has DLL in it, in every language."""


class FieldKind(Struct, frozen=True, kw_only=True):
    """Kind of field: its regular expression, and the function that parses a match (ValueError if it is not a value)."""

    pattern: str
    take: Callable[[str], Any] = str


def _cudnn(text: str) -> CudnnVersion:
    """Parse `8.9.4`, `8904`, `90100` or `(8, 9, 4)`."""
    plain = re.sub(r"[(),\s]+", " ", text).split()
    if len(plain) > 1:
        return CudnnVersion(".".join(plain))
    encoded = CudnnVersion.from_encoded(int(text)) if text.isdigit() else None
    return encoded or CudnnVersion(text)


def _cuda(text: str) -> CudaVersion:
    encoded = CudaVersion.from_encoded(int(text)) if text.isdigit() and len(text) > 3 else None
    return encoded or CudaVersion(text)


def _targets(text: str) -> tuple[CodeTarget, ...]:
    found = re.findall(r"(?:sm|compute)_\d{2,3}[af]?|\d{1,2}\.\d|(?<![\d.])\d{2,3}(?![\d.])", text)
    if not found:
        raise ValueError(text)
    return tuple(CodeTarget.parse(f"sm_{one}" if one.isdigit() else one) for one in found)


def _supported(text: str) -> tuple[CodeTarget, ...]:
    """GPU code as PyTorch 2.10 and newer list it: `- 9.0 which supports hardware CC >=9.0,<10.0`."""
    return tuple(CodeTarget.parse(one) for one in re.findall(r"- (\d{1,2}\.\d) which", text))


def _arch_list(text: str) -> tuple[CodeTarget, ...]:
    """GPU code as PyTorch's builds name it: `7.0` is machine code, and `7.0+PTX` also holds PTX."""
    targets = _targets(text)
    ptx = (CodeTarget.parse(f"compute_{one.replace('.', '')}") for one in re.findall(r"(\d{1,2}\.\d)\+PTX", text))
    return (*targets, *ptx)


def _library(text: str) -> Library:
    found = library_of(text)
    if found is None:
        raise ValueError(text)
    return found


KINDS: dict[str, FieldKind] = {
    "version": FieldKind(pattern=_DOTS, take=Dotted),
    "cudnn": FieldKind(pattern=r"(?:\d{4,6}\b|\d{1,2}(?:\.\d{1,3}){1,3}|\(\d{1,2}, ?\d{1,3}, ?\d{1,3}\))", take=_cudnn),
    "cuda": FieldKind(pattern=r"(?:\d{4,5}\b|\d{1,2}(?:\.\d{1,3}){1,2})", take=_cuda),
    "cudaline": FieldKind(pattern=r"\d{1,2}\.\d", take=_cuda),
    "driver": FieldKind(pattern=r"\d{3,4}(?:\.\d{1,3}){1,2}", take=DriverVersion),
    "sm": FieldKind(pattern=r"(?:sm_\d{2,3}[af]?|\d{1,2}\.\d)", take=CodeTarget.parse),
    "sms": FieldKind(pattern=r"(?:'?(?:sm|compute)_\d{2,3}[af]?[', ]{0,3}){1,40}", take=_targets),
    "ccs": FieldKind(pattern=r"(?:- \d{1,2}\.\d which supports hardware CC [^-]{1,60}){1,24}", take=_supported),
    "archs": FieldKind(
        pattern=r"(?:(?:(?:sm|compute)_\d{2,3}[af]?|\d{1,2}\.\d|\d{2,3}(?![\d.]))(?:\+PTX)?[ ,;]{0,2}){1,20}", take=_arch_list
    ),
    "lib": FieldKind(pattern=rf"(?:[\w+.-]{{1,60}}{_SO}|[\w+.-]{{1,60}}\.dll)", take=_library),
    "cudnnlib": FieldKind(pattern=rf"(?:libcudnn(?:_[a-z_]{{1,40}})?{_SO}|cudnn(?:_[a-z_]{{1,40}})?64(?:_\d{{1,2}})?\.dll)", take=_library),
    "cudalib": FieldKind(pattern=rf"(?:lib{_CUDA_STEMS}{_SO}|{_CUDA_STEMS}(?:64|32)(?:_\d{{1,3}}){{1,2}}\.dll)", take=_library),
    "ptxlib": FieldKind(pattern=rf"(?:libnvidia-(?!ml)[a-z][a-z0-9-]{{2,30}}{_SO}|libnvcuvid{_SO}|libnvoptix{_SO})", take=_library),
    "driverlib": FieldKind(pattern=rf"(?:libcuda{_SO}|libnvidia-ml{_SO}|nvcuda\.dll|nvml\.dll)", take=_library),
    "trtlib": FieldKind(pattern=r"(?:lib)?nv(?:infer|onnxparser|parsers)[\w]{0,30}(?:\.so(?:\.\d{1,3}){0,3}|\.dll)", take=_library),
    "cuptilib": FieldKind(pattern=rf"libcupti{_SO}", take=_library),
    "cublasltlib": FieldKind(pattern=rf"libcublasLt{_SO}", take=_library),
    "cudnnsymbol": FieldKind(pattern=r"(?:cudnn[A-Z]\w{1,60}|_ZN\w{0,6}5cudnn\w{1,120})"),
    "jitsymbol": FieldKind(pattern=r"_{0,2}nvJitLink\w{1,60}"),
    "cudaname": FieldKind(pattern=r"(?:cuBLAS|cuFFT|cuRAND|CUPTI|CUDA|NCCL|nvJitLink)"),
    "cudapath": FieldKind(pattern=r"(?:(?!/nvidia/(?!hpc_sdk/)|site-packages)[^\s'\"]){0,240}libnvJitLink[^\s'\"]{0,30}"),
    "tick": FieldKind(pattern=r"[`']"),
    "mangled": FieldKind(pattern=r"\w{1,400}"),
    "torchsymbol": FieldKind(
        pattern=(
            r"(?:_Z(?:T[ISVC])?N[KRO]{0,2}(?:2at|3c10|5torch|St\w{1,20}torch)\w{1,200}|\w{0,20}(?:caffe2|THCState|PyThread_tss)\w{0,60}"
            r"|(?:aoti_torch|torch_(?:library|dispatcher|call|get|new|delete|exception|list|set|string|dtype))_\w{1,80}|THPVariable\w{1,60})"
        ),
    ),
    "numpyversion": FieldKind(pattern=r"\d{1,2}(?:\.(?:\d{1,3}|x)){1,2}"),
    "nvidiarequirement": FieldKind(
        pattern=r"(?:nvidia-[\w.-]{1,60}|tensorrt[\w.-]{0,40})(?:\[[\w,.-]{1,60}\])?(?:[=<>!~]{1,3}[^\s();=<>!~][^\s();]{0,60})?",
    ),
    "condaspec": FieldKind(pattern=r"[\w.-]{1,60}(?:[ =<>*][^\s,]{1,40}){0,2}"),
    "wheelfile": FieldKind(pattern=r"(?:[\w.+-]|%2[Bb]){1,200}\.whl", take=lambda text: re.sub("%2[Bb]", "+", text)),
    "keyid": FieldKind(pattern=r"[0-9A-Fa-f]{8,40}"),
    "debname": FieldKind(pattern=r"[a-z0-9][a-z0-9.+-]{1,80}(?::\w{1,10})?"),
    "gpudebname": FieldKind(pattern=r"(?:lib)?(?:cuda|cudnn|nvidia|nccl|nvinfer|tensorrt|cublas)[a-z0-9.+-]{0,60}"),
    "debversion": FieldKind(pattern=r"[0-9][\w.+~:-]{0,60}"),
    "decimal": FieldKind(pattern=r"\d{1,2}\.\d", take=CodeTarget.parse),
    "pair": FieldKind(pattern=r"\d{1,2}, \d", take=lambda text: CodeTarget.parse(text.replace(", ", "."))),
    "cudnndotted": FieldKind(pattern=r"\d{1,2}(?:\.\d{1,3}){1,3}", take=CudnnVersion),
    "pep": FieldKind(pattern=r"\d{1,4}(?:\.\d{1,6}){1,3}(?:[.\w+-]{0,30})"),
    "versionlist": FieldKind(pattern=r"\d[\w., +-]{0,9000}"),
    "glibctag": FieldKind(pattern=r"2_\d{1,2}", take=lambda text: Dotted(text.replace("_", "."))),
    "tags": FieldKind(pattern=r"`?(?:cp\d{2,3}t?[`, ]{0,4}){1,30}"),
    "specifier": FieldKind(pattern=r"[<>=!~][\w.,<>=!~* ]{0,80}"),
    "path": FieldKind(pattern=r"[^\s'\"`,;:()<>|]{0,300}"),
    "winpath": FieldKind(pattern=r"(?:[A-Za-z]:)?[\\/][^'\"`,;:<>|\n]{0,300}"),
    "word": FieldKind(pattern=r"[\w.+-]{1,80}"),
    "package": FieldKind(pattern=r"[A-Za-z0-9][\w.-]{0,79}"),
    "requirement": FieldKind(pattern=r"[A-Za-z0-9][\w.-]{0,79}(?:\[[\w,.-]{1,60}\])?(?:[=<>!~]{1,3}[^\s();=<>!~][^\s();]{0,60})?"),
    "localrequirement": FieldKind(pattern=r"[A-Za-z0-9][\w.-]{0,79}==[\w.]{1,20}\+(?:cu|cuda)\d{2,3}(?:\.cudnn\d{1,3})?"),
    "number": FieldKind(pattern=r"\d{1,18}", take=int),
    "absent": FieldKind(pattern=_ABSENT),
    "cannotopen": FieldKind(pattern=_CANNOT_OPEN),
    "dllabsent": FieldKind(pattern=_DLL_ABSENT),
    "dllfunction": FieldKind(pattern=_DLL_FUNCTION),
    "dllinit": FieldKind(pattern=_DLL_INIT),
    "wanted": FieldKind(pattern=r"\b(?:no(?: valid| usable| compatible| supported| system| working)?|(?:re)?install(?: the| a)?)"),
    "goeson": FieldKind(
        pattern=r"(?i:\b(?:falling back|falls back|fell back|will be used|used instead)\b"
        r"|[;,.:(-] {0,2}(?:so |now )?(?:using|trying|running|switching|continuing)\b)",
    ),
    "oldversion": FieldKind(
        pattern=r"(?:version.{0,30}(?:mismatch|not supported|unsupported|incompatible)|too old\b|outdated|out of date"
        r"|or (?:newer|higher|later)\b)",
    ),
    "wrongversion": FieldKind(
        pattern=r"\b(?:unsupported|incompatible|mismatched|outdated|update (?:your|the)|upgrade (?:your|the)|(?:requires?|needs?) a newer)",
    ),
    "drivername": FieldKind(
        pattern=r"(?<![A-Za-z])(?:libcuda\b|nvcuda|lib?nvml|nvml|libnvidia-ml|nvidia[- ]smi"
        r"|nvidia (?:gpu |graphics |display )?driver|cuda driver|nvidia gpu|cuda(?:-capable|-enabled)? (?:gpu|device)|gpu device)",
    ),
    "cudaword": FieldKind(
        pattern=r"(?<![A-Za-z\[])(?:lib)?(?:cudart|cublas|cufft|curand|cusolver|cusparse|nvrtc|nvjitlink|nvvm|nccl|cupti|nvtoolsext|nvjpeg"
        r"|nvshmem|cudadevrt|cufile|cutensor|nvinfer|nvonnxparser|tensorrt|libnpp[a-z]{1,6}|nvcc(?! (?:fatal|error|warning)\b)"
        r"|cuda[_ -](?:runtime|toolkit|home|path|libraries|library|compiler)|cuda\.h|cuda_runtime\.h)\w{0,40}",
    ),
    "cudafailed": FieldKind(pattern=_CUDA_FAILED),
    "codeend": FieldKind(
        pattern=r"""(?=\s{0,4}(?:$|[,;:)\]"'-]|\[cu[A-Zd](?!aGraphicsGL)|\.(?!\d)| at \S"""
        r"""| in (?:call|file|line|function|\S{0,80}\.\w)| ?vs\b| ptr:))"""
    ),
    "cudasays": FieldKind(pattern=_CUDA_SAYS),
    "hex": FieldKind(pattern=r"(?:0x)?[0-9a-f]{1,6}", take=lambda text: int(text, 16)),
    "name": FieldKind(pattern=r"[\w][\w .()/+-]{0,60}?"),
    "text": FieldKind(pattern=r".{0,400}?"),
}
KINDS["gpulib"] = FieldKind(
    pattern=f"(?:{'|'.join(KINDS[f'{name}lib'].pattern for name in ('cuda', 'cupti', 'driver', 'ptx', 'trt'))})", take=_library
)
LONGEST_PATTERN = 6000
"""Most characters of a regular expression with its fields expanded."""
_MACRO = re.compile(r"\{([a-z_]\w{0,30}):([a-z]{1,24})\}")


def fields_of(pattern: str) -> dict[str, str]:
    """Return the fields of a pattern and their kinds; ValueError for an unknown kind."""
    found: dict[str, str] = dict(_MACRO.findall(pattern))
    for kind in found.values():
        if kind not in KINDS:
            raise ValueError(f"{kind!r} is not a kind of field")
    return found


def expand(pattern: str) -> str:
    """Return the regular expression of a pattern in the tables: `{found:cudnn}` becomes a named group of that kind."""
    seen: set[str] = set()

    def group(found: re.Match[str]) -> str:
        name, kind = found[1], found[2]
        if name in seen:
            return f"(?P={name})"
        seen.add(name)
        return f"(?P<{name}>{KINDS[kind].pattern})"

    return _MACRO.sub(group, pattern)


def check_pattern(pattern: str) -> None:
    """Raise ValueError or re.error for an invalid pattern, or one that a hostile line could make slow."""
    fields_of(pattern)
    whole = expand(pattern)
    if len(whole) > LONGEST_PATTERN:
        raise ValueError(f"is longer than {LONGEST_PATTERN} characters with its fields expanded")
    re.compile(whole)
    bare = re.sub(r"\\.", "", _MACRO.sub("", pattern))
    bare = re.sub(r"\[[^\]]*\]", "c", bare)
    if re.search(r"[*+](?!\+)", re.sub(r"\(\?[P:=!<]", "(", bare)):
        raise ValueError("has a repeat without an upper bound; write {0,80}")
    if re.search(r"\}\)[*+{]", bare):
        raise ValueError("repeats a repeat")
