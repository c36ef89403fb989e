# SPDX-License-Identifier: Apache-2.0
"""
Lines that report a failure.

A failing engine prints a record of many lines: the first ("EngineCore encountered a fatal error.") reports that
the engine is dead, the traceback why. A traceback also quotes what clients sent, so a cause counts only in a
record with such a first line, or in the bare traceback of a server that is already failing.
"""

from __future__ import annotations

import re

from vllm_watch_parsers.events import Event, Failure, FailureKind


# JSON logs may hold the message alone: then the level is not known.
_ERROR_LEVELS = {"ERROR", "CRITICAL", ""}

# Heads of records: the engine is dead.
_ENGINE_DEAD = re.compile(
    r"EngineCore (?:failed to start\.|encountered a fatal error\.|hit an exception: )"
    r"|AsyncLLM output_handler failed\."
    r"|Engine background task failed"
    r"|Engine iteration timed out\."
    r"|Engine core proc(?:ess)? \S{1,64} died unexpectedly"
    r"|\[shutdown\] MPClient: engine core exited unexpectedly"
    r"|(?:AsyncLLMEngine has failed|(?:AsyncLLM|MQLLM)Engine is already dead), terminating server process"
    r"|Mul(?:it|ti)procExecutor got fatal signal from worker processes"
    r"|Got fatal signal from worker processes"
    r"|MQLLMEngine didn't reply within "
)
# V0's engine process logs the exception itself: `RuntimeError('…')` from engine.py.
_V0_ENGINE_DEAD = re.compile(r"[A-Za-z_]{1,60}(?:Error|Exception)\(")
_WORKER_DIED = re.compile(
    r"Worker \S{1,64} pid \d{1,10} died, exit code: "
    r"|Worker proc \S{1,64} died unexpectedly"
    r"|RayWorkerProc rank=\d{1,6} died unexpectedly"
)
# First lines whose tracebacks may have the cause, while nothing has died.
_OTHER_HEADS = re.compile(
    r"WorkerProc (?:hit an exception|failed)|Error executing method |Error in model execution|Exception in worker "
)
MAX_ERROR_NAME = 80
"""A traceback's last line names its exception within this many characters."""

NCCL_STARTS = (b"Cuda failure ", b"HIP failure ")
"""How NCCL's and RCCL's last error starts, a line of its own in the text of torch's exception."""

_NCCL_STARTS = tuple(start.decode() for start in NCCL_STARTS)

SHM_TIMEOUT_START = b"No available "
"""How a line about processes that wait for each other starts, at whatever level: they may be busy, or hang."""

_SHM_TIMEOUT = re.compile(r"No available (?:shared memory broadcast )?block found ?in \d{1,6} seconds?\.")
JIT_STARTS = (b"Triton kernel JIT ", b"TileLang JIT ", b"CuTeDSL JIT ")
WATCHDOG_START = b"[Watchdog]"
_WATCHDOG = WATCHDOG_START.decode()

_JIT = re.compile(r"(?:Triton kernel|TileLang|CuTeDSL) JIT compilation during inference: ")
"""
vLLM's monitor of compilations after the warm-up, a warning: of Triton alone in vllm/triton_utils/jit_monitor.py, of the
others, too, in vllm/utils/jit_monitor.py of 0.32.0. Details of the kernel may follow its name.
"""

_STACK_DUMPS: tuple[tuple[str, str, FailureKind], ...] = (
    ("[Watchdog]Dumped stack to ", " due to ", "stack_dumped"),
    ("[Watchdog]Failed to dump stack trace to ", ": ", "stack_dump_failed"),
)
"""
What vLLM's watchdog prints, if its configuration has a `dump_dir`: vllm/utils/watch_dog.py of 0.33.0. Its files are
called ``VLLM_STACK_DUMP_for_engine_0_PID.log``, or ``worker_0``.
"""

_STALLED = "feed timeout"
"""Why it wrote, once a stall; each stop is another reason (``SIGTERM``, ``shutdown``), and says nothing of a stall."""

_MAX_PATH = 255

_REQUEST_ERROR = re.compile(r"Request \S{1,256} failed with an internal error during generation$")

_CAUSES: tuple[tuple[re.Pattern[str], FailureKind], ...] = (
    (
        re.compile(
            # torch's allocators, and `cudaGetErrorString` by torch, by Triton (which writes "Messsage") and by NCCL.
            r"(?:RuntimeError|(?:torch\.)?AcceleratorError|[a-z_.]{0,40}OutOfMemoryError)(?:: |\(['\"])(?:"
            r"(?:(?:CUDA|HIP|XPU|NPU) (?:(?:driver )?error: )?"
            r"|Triton Error \[(?:CUDA|HIP)\]: (?: Code: \d{1,4}, Mes{2,3}age: )?)out of memory\b"
            r"|(?:CUDA|HIP|cuDNN) error: [A-Z]{2,10}_STATUS_ALLOC_FAILED\b"
            r"|Allocation on device |out of memory occurred when warming up )"
            r"|(?:Cuda|HIP) failure (?:\d{1,4} )?'out of memory'"
        ),
        "out_of_memory",
    ),
    (re.compile(r"[A-Za-z_.]{0,60}Error(?:: |\(['\"])NCCL error\b"), "nccl_error"),
    (
        re.compile(
            r"(?:ValueError(?:: |\(['\"]))(?:No available memory for the cache blocks\."
            r"|The model's max seq len \(\d"
            r"|To serve at least one request with the models?'s max seq len \(\d"
            r"|Cannot auto-fit max_model_len: )"
        ),
        "kv_cache_too_small",
    ),
    (
        re.compile(r"ValueError(?:: |\(['\"])Free memory on device (?:\S{1,16} )?\([\d.]{1,12}/[\d.]{1,12} GiB\)"),
        "gpu_memory_too_small",
    ),
    (re.compile(r"TimeoutError(?:: |\(['\"])RPC call to \w{1,80} timed out\."), "execution_timeout"),
)
_GPU_ERROR = re.compile(
    r"[A-Za-z_.]{0,60}Error(?:: |\(['\"])(?:(?:CUDA|HIP)(?: driver)? error|Triton Error \[CUDA\]): "
)
# What `cudaGetErrorString` returns. The first three are errors of the hardware, the others usually of a program.
_GPU_CAUSES: tuple[tuple[re.Pattern[str], FailureKind], ...] = (
    (re.compile(r"uncorrectable ECC error encountered"), "gpu_ecc"),
    (re.compile(r"uncorrectable NVLink error detected during the execution"), "gpu_nvlink"),
    (
        re.compile(
            r"unknown error|no CUDA-capable device is detected"
            r"|(?:all CUDA-capable devices are|CUDA-capable device\(s\) is/are) busy or unavailable"
        ),
        "gpu_lost",
    ),
    (
        re.compile(
            r"an illegal memory access was encountered|misaligned address|invalid program counter"
            r"|operation not supported on global/shared address space"
        ),
        "cuda_illegal_access",
    ),
    (
        re.compile(
            r"unspecified launch failure|device-side assert triggered|an illegal instruction was encountered"
            r"|the launch timed out and was terminated"
        ),
        "cuda_launch_failure",
    ),
)
# Months have one digit or two, and older releases print no time.
_NCCL_WATCHDOG = re.compile(
    r"\[rank\d{1,6}\]:\[[EF](?:\d{3,4} [\d:.]{8,20})? ProcessGroupNCCL\.cpp:\d{1,6}\] (?:\[[^\]]{1,80}\] ){0,3}"
    r"(?:Watchdog caught collective operation timeout: "
    r"|(?:Process group|NCCL) watchdog thread terminated with exception: (?P<gpu>CUDA error: ))"
)

ROCR_STARTS = (b"Memory access fault by GPU node-", b"HW Exception by GPU node-")
"""How the lines of AMD's runtime (ROCr) start, with which it ends the process; it prints them without vLLM's prefix."""

_ROCR_AGENT = r"GPU node-\d{1,6} \(Agent handle: 0x[0-9a-f]{1,16}\)"
_ROCR_CAUSES: tuple[tuple[re.Pattern[str], FailureKind], ...] = (
    (
        re.compile(rf"Memory access fault by {_ROCR_AGENT} on address (?:0x[0-9a-f]{{1,16}}|\(nil\))\. Reason: "),
        "cuda_illegal_access",
    ),
    (re.compile(rf"HW Exception by {_ROCR_AGENT} reason ?:"), "cuda_launch_failure"),
)


def parse_failure(level: str, site: str, message: str) -> tuple[Event, ...]:
    """Parse the first line of a record: a failure, or its cause."""
    if _SHM_TIMEOUT.match(message):
        return (Failure("shm_timeout"),)
    if _JIT.match(message):
        return (Failure("kernel_compiled"),)
    if message.startswith(_WATCHDOG):
        return _parse_stack_dump(message)
    if level not in _ERROR_LEVELS:
        is_dead = level == "WARNING" and message.startswith("[shutdown] MPClient: engine core exited unexpectedly")
        return (Failure("engine_dead"),) if is_dead else ()
    if _REQUEST_ERROR.match(message):
        return (Failure("request_error"),)
    if _WORKER_DIED.match(message):
        return (Failure("worker_died"),)
    if _ENGINE_DEAD.match(message):
        return (Failure("engine_dead"),)
    if site == "engine.py" and _V0_ENGINE_DEAD.match(message):
        return (Failure("engine_dead"), *parse_cause(message))
    return ()


def _parse_stack_dump(message: str) -> tuple[Event, ...]:
    for start, end, kind in _STACK_DUMPS:
        if message.startswith(start):
            path, _, why = message.removeprefix(start).partition(end)
            if kind == "stack_dumped" and why != _STALLED:
                return ()
            return (Failure(kind, path=path if path.isprintable() and 0 < len(path) <= _MAX_PATH else None),)
    return ()


def heads_failure(level: str, site: str, message: str) -> bool:
    """Return whether the lines that continue this record may have the cause of a failure."""
    if level not in _ERROR_LEVELS:
        return False
    is_v0_exception = site == "engine.py" and _V0_ENGINE_DEAD.match(message) is not None
    return is_v0_exception or any(head.match(message) for head in (_ENGINE_DEAD, _WORKER_DIED, _OTHER_HEADS))


def parse_cause(message: str) -> tuple[Event, ...]:
    """Parse the last line of a traceback: the cause of a failure."""
    if "Error" not in message[:MAX_ERROR_NAME] and not message.startswith(_NCCL_STARTS):
        return ()
    for pattern, kind in _CAUSES:
        if pattern.match(message):
            return (Failure(kind),)
    error = _GPU_ERROR.match(message)
    return () if error is None else _parse_gpu_cause(message[error.end() :])


def _parse_gpu_cause(text: str) -> tuple[Event, ...]:
    """Parse what follows ``CUDA error: ``."""
    for pattern, kind in _GPU_CAUSES:
        if pattern.match(text):
            return (Failure(kind),)
    return ()


def parse_rocr(message: str) -> tuple[Event, ...]:
    """Parse a line of AMD's runtime on an error after which it ends the process."""
    return tuple(Failure(kind) for pattern, kind in _ROCR_CAUSES if pattern.match(message))


def parse_nccl_watchdog(message: str) -> tuple[Event, ...]:
    """Parse PyTorch's own line on a hung collective or a GPU's error, which C++ prints without vLLM's prefix."""
    found = _NCCL_WATCHDOG.match(message)
    if found is None:
        return ()
    return _parse_gpu_cause(message[found.end() :]) if found["gpu"] else (Failure("nccl_error"),)
