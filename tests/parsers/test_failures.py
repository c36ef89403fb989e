# SPDX-License-Identifier: Apache-2.0
"""Lines that say that something broke, in the words of each era, and text that only resembles them."""

from __future__ import annotations

import json

import pytest

from tests.parsers.lines import TIME, events, events_of, json_record, old_record, record

from vllm_watch.daemon.reading.log_reader import LogReader
from vllm_watch.daemon.reading.times import ArrivalTimes
from vllm_watch_parsers.events import FAILURE_KINDS, Failure
from vllm_watch_parsers.line import parse_line


HEADS = [
    ("engine_dead", "EngineCore encountered a fatal error.", "core.py", "ERROR"),
    ("engine_dead", "EngineCore failed to start.", "core.py", "ERROR"),
    ("engine_dead", "EngineCore hit an exception: Traceback (most recent call last):", "core.py", "ERROR"),
    ("engine_dead", "AsyncLLM output_handler failed.", "async_llm.py", "ERROR"),
    ("engine_dead", "Engine background task failed", "async_llm_engine.py", "ERROR"),
    ("engine_dead", "Engine iteration timed out. This should never happen!", "async_llm_engine.py", "ERROR"),
    ("engine_dead", "AsyncLLMEngine has failed, terminating server process", "launcher.py", "CRITICAL"),
    ("engine_dead", "AsyncLLMEngine is already dead, terminating server process", "launcher.py", "CRITICAL"),
    ("engine_dead", "MQLLMEngine is already dead, terminating server process", "launcher.py", "CRITICAL"),
    (
        "engine_dead",
        "Got fatal signal from worker processes, shutting down. See stack trace above for root cause issue.",
        "core_client.py",
        "CRITICAL",
    ),
    (
        "engine_dead",
        "MulitprocExecutor got fatal signal from worker processes, shutting down. See stack trace above.",
        "multiproc_executor.py",
        "CRITICAL",
    ),
    (
        "engine_dead",
        "Engine core proc EngineCore_DP0 died unexpectedly, shutting down client.",
        "core_client.py",
        "ERROR",
    ),
    (
        "engine_dead",
        "[shutdown] MPClient: engine core exited unexpectedly; starting cleanup",
        "core_client.py",
        "WARNING",
    ),
    ("engine_dead", "MQLLMEngine didn't reply within 10000ms", "client.py", "ERROR"),
    ("engine_dead", "RuntimeError('CUDA error: operation not permitted')", "engine.py", "ERROR"),
    ("worker_died", "Worker VllmWorkerProcess pid 38664 died, exit code: -9", "multiproc_worker_utils.py", "ERROR"),
    (
        "worker_died",
        "Worker proc VllmWorker-1 died unexpectedly, shutting down executor.",
        "multiproc_executor.py",
        "ERROR",
    ),
    (
        "worker_died",
        "Worker proc VllmWorker-1 died unexpectedly (exit code: -9), shutting down executor.",
        "multiproc_executor.py",
        "ERROR",
    ),
    ("worker_died", "RayWorkerProc rank=3 died unexpectedly, shutting down executor.", "ray_executor.py", "ERROR"),
    (
        "request_error",
        "Request chatcmpl-99df06ae failed with an internal error during generation",
        "async_llm.py",
        "ERROR",
    ),
    ("shm_timeout", "No available block found in 60 second. ", "shm_broadcast.py", "WARNING"),
    ("shm_timeout", "No available block found in 60 second. ", "shm_broadcast.py", "DEBUG"),
    ("shm_timeout", "No available shared memory broadcast block found in 60 second.", "shm_broadcast.py", "DEBUG"),
    ("shm_timeout", "No available shared memory broadcast block foundin 60 second.", "shm_broadcast.py", "DEBUG"),
    (
        "shm_timeout",
        (
            "No available shared memory broadcast block found in 60 seconds. This typically happens when some "
            "processes are hanging or doing some time-consuming work (e.g. compilation)"
        ),
        "shm_broadcast.py",
        "INFO",
    ),
    (
        "shm_timeout",
        (
            "No available shared memory broadcast block found in 120 seconds. This typically happens when some "
            "processes are hanging or doing some time-consuming work (e.g. compilation, weight/kv cache quantization)."
        ),
        "shm_broadcast.py",
        "INFO",
    ),
]


@pytest.mark.parametrize(("kind", "message", "site", "level"), HEADS)
def test_the_first_line_of_a_failure_says_what_it_is(kind, message, site, level):
    """Each era's words are one failure, with and without brackets and as JSON."""
    name = f"vllm.{site.removesuffix('.py')}"

    assert events(record(message, site, level)) == (Failure(kind),)
    assert events(old_record(message, site, level)) == (Failure(kind),)
    assert events(json_record(message, name=name, levelname=level)) == (Failure(kind),)


@pytest.mark.parametrize(("kind", "message", "site", "level"), [head for head in HEADS if head[2] != "engine.py"])
def test_json_with_the_message_alone_says_it_too(kind, message, site, level):  # noqa: ARG001  # Neither is printed.
    """The JSON set-up that vLLM's documentation shows prints no level and no file."""
    assert events(json.dumps({"message": message}).encode()) == (Failure(kind),)


CAUSES = [
    (
        "out_of_memory",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.62 GiB. GPU 0 has a total capacity",
    ),
    ("out_of_memory", "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.83 GiB."),
    ("out_of_memory", "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.62 GiB."),
    ("out_of_memory", "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 2.62 GiB."),
    ("out_of_memory", "RuntimeError: CUDA error: out of memory"),
    ("out_of_memory", "torch.AcceleratorError: CUDA error: out of memory"),
    (
        "out_of_memory",
        "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try",
    ),
    (
        "out_of_memory",
        "RuntimeError: CUDA out of memory occurred when warming up pooler (task='embed') with 256 dummy requests.",
    ),
    ("nccl_error", "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)"),
    ("nccl_error", "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/NCCLUtils.hpp:275, unhandled"),
    (
        "kv_cache_too_small",
        (
            "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
            "initializing the engine."
        ),
    ),
    (
        "kv_cache_too_small",
        (
            "ValueError: The model's max seq len (131072) is larger than the maximum number of tokens that can be "
            "stored in KV cache (65536). Try increasing"
        ),
    ),
    (
        "kv_cache_too_small",
        (
            "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GB KV cache is "
            "needed, which is larger than the available KV cache memory (9.00 GB)."
        ),
    ),
    (
        "kv_cache_too_small",
        "ValueError: To serve at least one request with the model's max seq len (131072), (16.00 GiB KV cache is",
    ),
    ("kv_cache_too_small", "ValueError: Cannot auto-fit max_model_len: not even one block fits"),
    (
        "gpu_memory_too_small",
        (
            "ValueError: Free memory on device (10.5/79.1 GiB) on startup is less than desired GPU memory utilization "
            "(0.9, 71.19 GiB). Decrease"
        ),
    ),
    ("gpu_memory_too_small", "ValueError: Free memory on device cuda:0 (10.5/79.1 GiB) on startup is less than"),
    ("execution_timeout", "TimeoutError: RPC call to execute_model timed out."),
    ("gpu_ecc", "RuntimeError: CUDA error: uncorrectable ECC error encountered"),
    ("gpu_ecc", "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered"),
    ("gpu_nvlink", "torch.AcceleratorError: CUDA error: uncorrectable NVLink error detected during the execution"),
    ("gpu_lost", "RuntimeError: CUDA error: unknown error"),
    ("gpu_lost", "torch.AcceleratorError: CUDA error: no CUDA-capable device is detected"),
    ("gpu_lost", "RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable"),
    ("gpu_lost", "torch.AcceleratorError: CUDA error: CUDA-capable device(s) is/are busy or unavailable"),
    ("cuda_illegal_access", "RuntimeError: CUDA error: an illegal memory access was encountered"),
    ("cuda_illegal_access", "torch.AcceleratorError: HIP error: an illegal memory access was encountered"),
    ("cuda_illegal_access", "RuntimeError: Triton Error [CUDA]: an illegal memory access was encountered"),
    ("cuda_illegal_access", "torch.AcceleratorError: CUDA error: misaligned address"),
    ("cuda_launch_failure", "RuntimeError: CUDA error: unspecified launch failure"),
    ("cuda_launch_failure", "torch.AcceleratorError: CUDA error: device-side assert triggered"),
    ("cuda_launch_failure", "RuntimeError: CUDA error: the launch timed out and was terminated"),
    ("cuda_launch_failure", "RuntimeError: CUDA error: an illegal instruction was encountered"),
]


def traceback_of(cause, head="EngineCore encountered a fatal error.", site="core.py", level="ERROR", prefix=""):
    """Return a failing engine's record: its head, a traceback, and the cause as the last line."""
    start = f"{prefix}(EngineCore pid=9) {level} {TIME} [{site}:700] "
    body = [head, "Traceback (most recent call last):", '  File "/a/core.py", line 1, in run', "    run()", cause]
    return "\r\n".join(start + line for line in body).encode()


@pytest.mark.parametrize(("kind", "cause"), CAUSES)
def test_the_last_line_of_a_traceback_says_why(kind, cause):
    """A failing engine's record gives the failure of its head and the failure of its cause."""
    assert events_of(traceback_of(cause)) == [Failure("engine_dead"), Failure(kind)]


@pytest.mark.parametrize(("kind", "cause"), CAUSES)
@pytest.mark.parametrize(
    "head", ["WorkerProc hit an exception.", "WorkerProc failed to start.", "Error executing method 'x'."]
)
def test_a_worker_s_traceback_says_why_without_saying_that_the_engine_is_dead(head, kind, cause):
    """Workers print a traceback of their own."""
    assert events_of(traceback_of(cause, head, "multiproc_executor.py")) == [Failure(kind)]


@pytest.mark.parametrize(("kind", "cause"), CAUSES)
def test_a_bare_traceback_is_marked_as_bare(kind, cause):
    """A dying process prints its traceback outside any record: the reader of lines judges whether to believe it."""
    for line in (cause, f"(EngineCore pid=9) {cause}"):
        parsed = parse_line(line.encode())

        assert parsed.events == (Failure(kind),)
        assert parsed.is_bare


@pytest.mark.parametrize(("kind", "cause"), CAUSES)
def test_a_json_record_holds_the_whole_traceback(kind, cause):
    """With JSON logs the traceback is in the record, under a key of its own."""
    line = json_record(
        "EngineCore encountered a fatal error.",
        name="vllm.v1.engine.core",
        levelname="ERROR",
        exc_info=f"Traceback (most recent call last):\n  File\n{cause}",
    )

    assert events(line) == (Failure("engine_dead"), Failure(kind))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("out_of_memory", "OutOfMemoryError('CUDA out of memory. Tried to allocate 2.62 GiB.')"),
        ("nccl_error", "RuntimeError('NCCL error: unhandled system error')"),
        ("execution_timeout", "TimeoutError('RPC call to execute_model timed out.')"),
        ("cuda_illegal_access", "RuntimeError('CUDA error: an illegal memory access was encountered')"),
        ("kv_cache_too_small", 'ValueError("The model\'s max seq len (131072) is larger than the maximum")'),
    ],
)
def test_v0_s_engine_process_says_both_in_one_line(kind, message):
    """V0's engine process logs the exception itself, which is head and cause."""
    assert events(old_record(message, "engine.py", "ERROR")) == (Failure("engine_dead"), Failure(kind))
    assert events(old_record(message, "serving_chat.py", "ERROR")) == ()


def test_the_cause_of_a_prefixed_record_is_read_too():
    """An operator's prefix stands on every line of a record, and every line reports it."""
    lines = traceback_of(CAUSES[0][1], prefix="vllm-0 ").split(b"\n")
    open_record, found = None, []
    for line in lines:
        parsed = parse_line(line, open_record)
        open_record = parsed.record
        found += [(event.kind, parsed.prefix) for event in parsed.events]

    assert found == [("engine_dead", "vllm-0 "), ("out_of_memory", "vllm-0 ")]


@pytest.mark.parametrize(
    "line",
    [
        (
            "[rank0]:[E1121 04:47:39.123456789 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation "
            "timeout: WorkNCCL(SeqNum=81743, OpType=ALLREDUCE)"
        ),
        (
            "[rank3]:[E1121 04:47:39.123456 ProcessGroupNCCL.cpp:1] [PG ID 2 PG GUID 3 Rank 3] [Rank 3] Watchdog "
            "caught collective operation timeout: WorkNCCL("
        ),
    ],
)
def test_the_nccl_watchdog_is_read_without_a_prefix(line):
    """PyTorch's C++ code prints past vLLM's formatter, and past its process prefix."""
    assert events(line.encode()) == (Failure("nccl_error"),)


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        (
            "cuda_illegal_access",
            (
                "[rank0]:[E219 12:14:43.351647859 ProcessGroupNCCL.cpp:1595] [PG ID 2 PG GUID 3 Rank 0] Process group "
                "watchdog thread terminated with exception: CUDA error: an illegal memory access was encountered"
            ),
        ),
        (
            "cuda_illegal_access",
            (
                "[rank1]:[E ProcessGroupNCCL.cpp:1414] [PG 2 Rank 1] Process group watchdog thread terminated with "
                "exception: CUDA error: an illegal memory access was encountered"
            ),
        ),
        (
            "cuda_launch_failure",
            (
                "[rank1]:[E1103 23:14:03.342459398 ProcessGroupNCCL.cpp:2068] [PG ID 4 PG GUID 0(default_pg) Rank 1] "
                "Process group watchdog thread terminated with exception: CUDA error: unspecified launch failure"
            ),
        ),
        (
            "gpu_ecc",
            (
                "[rank0]:[E1121 04:47:39.123 ProcessGroupNCCL.cpp:1405] [PG 3 Rank 4] NCCL watchdog thread "
                "terminated with exception: CUDA error: uncorrectable ECC error encountered"
            ),
        ),
        (
            "nccl_error",
            (
                "[rank0]:[E409 05:10:01.930967482 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective "
                "operation timeout: WorkNCCL(SeqNum=81743, OpType=ALLREDUCE)"
            ),
        ),
    ],
)
def test_the_nccl_watchdog_says_why_a_gpu_failed(kind, line):
    """The watchdog's thread prints the GPU's error before any traceback; early months have one digit."""
    assert events(line.encode()) == (Failure(kind),)


AGENT = "GPU node-5 (Agent handle: 0x460e3a50)"


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        (
            "cuda_illegal_access",
            f"Memory access fault by {AGENT} on address 0x7ec4dfe0e000. Reason: Write access to a read-only page.",
        ),
        ("cuda_illegal_access", f"Memory access fault by {AGENT} on address (nil). Reason: Unknown."),
        ("cuda_launch_failure", f"HW Exception by {AGENT} reason :GPU Hang"),
    ],
)
def test_amd_s_runtime_says_why_a_gpu_failed(kind, line):
    """It prints past vLLM's formatter and ends the process; a line that only begins like it is none of its."""
    assert events(line.encode()) == (Failure(kind),)
    assert events(line.replace("0x460e3a50", "me").encode()) == ()


def test_a_crash_of_several_ranks_counts_once():
    """The watchdog's lines, the workers' tracebacks and the engine's are one failure of each kind."""
    cause = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"
    watchdog = (
        "[rank{0}]:[E1121 04:47:39.1234 ProcessGroupNCCL.cpp:2068] [PG ID 2 PG GUID 3 Rank {0}] Process group watchdog "
        "thread terminated with exception: CUDA error: an illegal memory access was encountered"
    )
    worker = traceback_of(cause, "WorkerProc hit an exception.", "multiproc_executor.py")
    lines = [watchdog.format(0).encode(), watchdog.format(1).encode(), *(2 * worker.split(b"\n"))]
    lines += [*traceback_of(cause).split(b"\n"), cause.encode(), f"(EngineCore pid=9) {cause}".encode()]
    found = LogReader().read(lines, ArrivalTimes(1000.0)).events

    assert [Failure("cuda_illegal_access"), Failure("engine_dead")] == [event for _, event in found]


@pytest.mark.parametrize(
    ("message", "site", "level"),
    [
        ("EngineCore encountered a fatal error.", "core.py", "INFO"),
        ("EngineCore encountered a fatal error.", "core.py", "WARNING"),
        ("EngineCore encountered an issue.", "core.py", "ERROR"),
        ("Prompt: EngineCore encountered a fatal error.", "core.py", "ERROR"),
        ("EngineCore encountered a fatal error.", "request_logger.py", "ERROR"),
        ("RuntimeError('CUDA error')", "serving_chat.py", "ERROR"),
        ("torch.OutOfMemoryError: CUDA out of memory.", "serving_chat.py", "ERROR"),
        ("torch.OutOfMemoryError: CUDA out of memory.", "core.py", "ERROR"),
        ("Failed to load NCCL library from libnccl.so.2.", "pynccl.py", "ERROR"),
        ("Killing local vLLM worker processes", "multiproc_worker_utils.py", "INFO"),
        ("Error in chat completion stream generator.", "serving_chat.py", "ERROR"),
        ("Request x failed (engine dead).", "async_llm.py", "INFO"),
        ("Request x y failed with an internal error during generation", "async_llm.py", "ERROR"),
        ("Request x failed with an internal error during generation?", "async_llm.py", "ERROR"),
        ("No available memory for the cache blocks.", "worker.py", "INFO"),
        ("No available block found in the shop.", "shm_broadcast.py", "WARNING"),
        ("Unexpected: grammar rejected tokens [1, 2] for request x. Terminating request.", "scheduler.py", "ERROR"),
        ("Dumping input data for V1 LLM engine (v0.20.2) with config: CUDA out of memory", "dump_input.py", "ERROR"),
    ],
)
def test_other_lines_are_no_failures(message, site, level):
    """Another level, another place in the line, or another file make it something else."""
    assert events(record(message, site, level)) == ()


@pytest.mark.parametrize(
    "line",
    [
        "OutOfMemoryError",
        "ValueError: CUDA out of memory.",
        "KeyError: 'CUDA error: out of memory'",
        "MyError: the client said torch.OutOfMemoryError: CUDA out of memory.",
        "    raise torch.OutOfMemoryError('CUDA out of memory.')",
        "TimeoutError: RPC call to",
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above).",
        "[rank0]: Traceback (most recent call last):",
        "RuntimeError: CUDA error: operation not permitted when stream is capturing",
        "ValueError: the prompt says: CUDA error: unknown error",
        (
            "[rank0]:[E1121 04:47:39.1 ProcessGroupNCCL.cpp:1] [Rank 0] Process group watchdog thread terminated with "
            "exception: CUDA error: operation not permitted"
        ),
        "[rank0]:[W1121 04:47:39.123456789 ProcessGroupNCCL.cpp:632] Watchdog caught collective operation timeout: x",
    ],
)
def test_other_bare_lines_are_no_failures(line):
    """A cause is one only at the start of the line, in the words that the library uses."""
    assert events(line.encode()) == ()


@pytest.mark.parametrize("head", ["Error in chat completion stream generator.", "Received request x"])
def test_a_traceback_of_one_request_is_no_failure_of_the_engine(head):
    """A request's own traceback may quote anything; only a failing engine's says why it fails."""
    assert events_of(traceback_of(CAUSES[0][1], head, "serving_chat.py")) == []


def test_a_failure_carries_the_rank_of_its_process():
    """Under data parallelism the process name says which engine broke."""
    line = record("EngineCore encountered a fatal error.", "core.py", "ERROR", "(EngineCore_DP3 pid=9) ")

    assert events(line) == (Failure("engine_dead", "3"),)


def test_every_kind_of_failure_is_found_by_some_line():
    """There is no kind of failure that nothing gives."""
    assert {kind for kind, *_ in (*HEADS, *CAUSES)} == set(FAILURE_KINDS)
