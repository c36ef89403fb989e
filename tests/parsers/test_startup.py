# SPDX-License-Identifier: Apache-2.0
"""Lines of a server's start and end, in the words of each era; and secrets among them, which no event holds."""

from __future__ import annotations

import pytest

from tests.parsers.lines import TIME, events, events_of, json_record, old_record, record

from vllm_watch.daemon.state.facts import Facts
from vllm_watch_parsers.events import Lifecycle, Notice, SleepOrPause, StartupDetail, StartupFact
from vllm_watch_parsers.line import is_irrelevant, parse_line
from vllm_watch_parsers.startup import parse_startup


STARTING = Lifecycle("starting")

MESSAGES = {
    "0.5.0 to 0.14.1": ("vLLM API server version 0.5.0.post1", (STARTING, StartupFact(version="0.5.0.post1"))),
    "nightly": (
        "vLLM API server version 0.11.1rc2.dev3+gabc123.d20251121",
        (STARTING, StartupFact(version="0.11.1rc2.dev3+gabc123.d20251121")),
    ),
    "0.15.1 and later without the logo": (
        "vLLM server version 0.20.2, serving model Qwen/Qwen3-8B",
        (STARTING, StartupFact(version="0.20.2", model="Qwen/Qwen3-8B")),
    ),
    "0.5.0 to 0.7.0": (
        (
            "Initializing an LLM engine (v0.5.5) with config: model='/models/q', speculative_config=None, "
            "tokenizer='/models/q', tensor_parallel_size=2, max_seq_len=4096, served_model_name=q3, x=(a=1, b=2)"
        ),
        (
            StartupFact(
                version="0.5.5",
                engine_generation="V0",
                model="/models/q",
                served_model_name="q3",
                max_model_len=4096,
                tensor_parallel_size=2,
                flags=(("max-model-len", "4096"), ("tensor-parallel-size", "2")),
                flags_of="engine",
            ),
        ),
    ),
    "0.7.1 and later": (
        (
            "Initializing a V1 LLM engine (v0.33.0) with config: model='Qwen/Qwen3-8B', "
            "speculative_config=SpeculativeConfig(method='mtp', model='max_seq_len=1', num_spec_tokens=3), "
            "max_seq_len=32768, tensor_parallel_size=1, data_parallel_size=4, served_model_name=Qwen/Qwen3-8B"
        ),
        (
            StartupFact(
                version="0.33.0",
                engine_generation="V1",
                model="Qwen/Qwen3-8B",
                served_model_name="Qwen/Qwen3-8B",
                max_model_len=32768,
                tensor_parallel_size=1,
                data_parallel_size=4,
                num_speculative_tokens=3,
                flags=(
                    ("data-parallel-size", "4"),
                    ("max-model-len", "32768"),
                    ("speculative-config.method", "mtp"),
                    ("speculative-config.num_speculative_tokens", "3"),
                    ("tensor-parallel-size", "1"),
                ),
                flags_of="engine",
            ),
        ),
    ),
    "0.5.0 to 0.8.5 arguments": (
        (
            "args: Namespace(host=None, api_key='sk-1', model='Qwen/Qwen3-8B', "
            "chat_template=\"{{ 'max_num_seqs=1' }}\", "
            "max_model_len=None, max_num_seqs=256, tensor_parallel_size=1, block_size=16, disable_log_stats=True)"
        ),
        (
            StartupFact(
                model="Qwen/Qwen3-8B",
                max_num_seqs=256,
                tensor_parallel_size=1,
                block_size=16,
                log_stats_disabled=True,
                flags=(("block-size", "16"), ("max-num-seqs", "256"), ("tensor-parallel-size", "1")),
                flags_of="arguments",
            ),
        ),
    ),
    "0.9.0 and later arguments": (
        (
            "non-default args: {'model_tag': 'Qwen/Qwen3-8B', 'api_key': ['sk-1'], 'model': 'Qwen/Qwen3-8B', "
            "'served_model_name': ['q3', 'q'], 'max_model_len': 8192, 'max_num_seqs': 64, 'api_server_count': 2, "
            "'data_parallel_size': 2, 'speculative_config': {'method': 'ngram', 'num_speculative_tokens': 5}, "
            "'override': {'max_model_len': 1}}"
        ),
        (
            StartupFact(
                model="Qwen/Qwen3-8B",
                served_model_name="q3",
                max_model_len=8192,
                max_num_seqs=64,
                api_server_count=2,
                data_parallel_size=2,
                num_speculative_tokens=5,
                flags=(
                    ("api-server-count", "2"),
                    ("data-parallel-size", "2"),
                    ("max-model-len", "8192"),
                    ("max-num-seqs", "64"),
                    ("speculative-config.method", "ngram"),
                    ("speculative-config.num_speculative_tokens", "5"),
                ),
                flags_of="arguments",
            ),
        ),
    ),
    "0.9.2 and later": ("Using max model len 32768", (StartupFact(max_model_len=32768),)),
    "GPU of a configured kernel": (
        (
            "Using configuration from /opt/vllm/fused_moe/configs/E=64,N=640,device_name=NVIDIA_H100_80GB_HBM3.json "
            "for MoE layer."
        ),
        (StartupFact(gpu="NVIDIA H100 80GB HBM3"),),
    ),
    "GPU of a kernel that nobody configured": (
        (
            "Using default W8A8 Block FP8 kernel config. Performance might be sub-optimal! Config file not found at "
            "/opt/configs/N=1536,K=7168,device_name=NVIDIA_L40S,dtype=fp8_w8a8,block_shape=[128,128].json"
        ),
        (StartupFact(gpu="NVIDIA L40S"),),
    ),
    "all releases": ("Starting to load model Qwen/Qwen3-8B...", (StartupFact(model="Qwen/Qwen3-8B"),)),
    "weights, 0.8.0 and later": ("Loading weights took 27.20 seconds", (StartupFact(weights_load_seconds=27.2),)),
    "model, 0.5.0 to 0.7.3": ("Loading model weights took 15.4926 GB", (StartupFact(model_load_gib=15.4926),)),
    "model, 0.8.0 to 0.8.2": (
        "Model loading took 14.9888 GB and 3.123456 seconds",
        (StartupFact(model_load_gib=14.9888, model_load_seconds=3.123456),),
    ),
    "model, 0.8.3 to 0.11.0": (
        "Model loading took 14.9888 GiB and 3.123456 seconds",
        (StartupFact(model_load_gib=14.9888, model_load_seconds=3.123456),),
    ),
    "model, 0.11.1 and later": (
        "Model loading took 15.0 GiB memory and 3.123456 seconds",
        (StartupFact(model_load_gib=15.0, model_load_seconds=3.123456),),
    ),
    "memory, 0.9.1 to 0.13.0": ("Available KV cache memory: 27.16 GiB", (StartupFact(kv_cache_memory_gib=27.16),)),
    "memory, 0.14.0 and later": ("Available KV cache memory: 30.5 GiB", (StartupFact(kv_cache_memory_gib=30.5),)),
    "blocks, V0 to 0.6.6": ("# GPU blocks: 30413, # CPU blocks: 2340", (StartupFact(num_gpu_blocks=30413),)),
    "blocks, V0 0.7.0 to 0.7.2": ("# CUDA blocks: 30413, # CPU blocks: 2340", (StartupFact(num_gpu_blocks=30413),)),
    "blocks, V0 0.7.3 and later": ("# cuda blocks: 30413, # CPU blocks: 2340", (StartupFact(num_gpu_blocks=30413),)),
    "blocks, V1 to 0.7.3": ("# GPU blocks: 53014", (StartupFact(num_gpu_blocks=53014),)),
    "concurrency, V0": (
        "Maximum concurrency for 32768 tokens per request: 6.23x",
        (StartupFact(max_model_len=32768, max_concurrency=6.23),),
    ),
    "concurrency, V1 0.8.0 to 0.27.1": (
        "Maximum concurrency for 32,768 tokens per request: 1,006.23x",
        (StartupFact(max_model_len=32768, max_concurrency=1006.23),),
    ),
    "size, 0.8.0 to 0.27.1": ("GPU KV cache size: 1,234,560 tokens", (StartupFact(kv_cache_tokens=1234560),)),
    "size, 0.28.0 and later": (
        "GPU KV cache size: 188,064 tokens, Maximum concurrency for 32,768 tokens per request: 5.74x",
        (StartupFact(kv_cache_tokens=188064, max_model_len=32768, max_concurrency=5.74),),
    ),
    "size, 0.32.0 and later": (
        "GPU + host KV cache size: 188,064 tokens, Maximum concurrency for 32,768 tokens per request: 5.74x",
        (StartupFact(kv_cache_tokens=188064, max_model_len=32768, max_concurrency=5.74),),
    ),
    "size, XPU": ("XPU KV cache size: 188,064 tokens", (StartupFact(kv_cache_tokens=188064),)),
    "blocks, 0.9.0": (
        "vllm cache_config_info with initialization after num_gpu_blocks is: 43637",
        (StartupFact(num_gpu_blocks=43637),),
    ),
    "blocks, 0.9.1 and later": (
        "Engine 000: vllm cache_config_info with initialization after num_gpu_blocks is: 43637",
        (StartupFact(num_gpu_blocks=43637),),
    ),
    "blocks, aggregated": (
        "2 Engines: vllm cache_config_info with initialization after num_gpu_blocks is: 87274",
        (StartupFact(num_gpu_blocks=87274),),
    ),
    "auto-fit, 0.32 and later": (
        "Auto-fit max_model_len: reduced from 131072 to 40960 to fit in available KV cache memory (12.3 GiB)",
        (StartupFact(max_model_len=40960),),
    ),
    "init, 0.6.5 to 0.19.1": (
        "init engine (profile, create kv cache, warmup model) took 28.44 seconds",
        (StartupFact(engine_init_seconds=28.44),),
    ),
    "init, 0.20.0 and later": (
        (
            "init engine (profile, create kv cache, warmup model) took 33.66 s "
            "(compilation: 10.10 s — language_model: 6.73 s, encoder: 3.37 s)"
        ),
        (StartupFact(engine_init_seconds=33.66, compile_seconds=10.10),),
    ),
    "several API servers": (
        "AsyncLLM created with api_server_count more than 1; disabling stats logging to avoid incomplete stats.",
        (Notice("api_servers_more_than_one"),),
    ),
    "gRPC, 0.14 and later": ("Server is ready to accept requests", (Lifecycle("ready"),)),
    "Rust": (
        'OpenAI server is ready to accept requests bind_address="0.0.0.0:8000" scheme="http" model="m"',
        (Lifecycle("ready"),),
    ),
    "stop, 0.5.5 to 0.6.1": ("Gracefully stopping http server", (Lifecycle("shutting_down"),)),
    "stop, 0.6.2 to 0.22.1": ("Shutting down FastAPI HTTP server.", (Lifecycle("shutting_down"),)),
    "stop, 0.23.0 and later": ("[shutdown] API server: shutdown triggered", (Lifecycle("shutting_down"),)),
}


@pytest.mark.parametrize(("message", "said"), MESSAGES.values(), ids=MESSAGES)
def test_start_up_lines_of_every_era(message, said):
    """Each line gives its fact, whole line by whole line, through the quick check and without it."""
    assert parse_startup(message) == said
    assert not is_irrelevant(f"INFO 11-21 02:35:10 [x.py:1] {message}".encode())
    assert events(record(message, "some.py", "DEBUG")) == said
    assert events(old_record(message, "some.py")) == said
    assert events(json_record(message, name="vllm.some")) == said
    assert events(json_record(message, name=None)) == said


@pytest.mark.parametrize(
    "message",
    [
        "Multiplying the GPU KV cache size by the dcp_world_size 2.",
        "Multiplying the GPU KV cache size by the cp_world_size 4 (pcp_world_size 2 * dcp_world_size 2).",
        "Overriding num_gpu_blocks=100 with num_gpu_blocks_override=50",
        "Encoder graph capturing finished in 12 secs, took 0.65 GiB (3 graphs)",
        "torch.compile and initial profiling/warmup run together took 36.67 s in total",
        "Using FLASH_ATTN_TILE MoE backend",
        "Using triton Mamba SSU backend.",
        "Using FlashInfer MLA prefill backend.",
        "Using Flash Attention backend on V1 engine. Not.",
        "Chunked prefill is enabled with max_num_batched_tokens=many.",
        "Starting vLLM API server 0 on http://0.0.0.0:8000",
        "GPU KV cache size: many tokens",
        "GPU KV cache size: 188,064 tokens and more",
        "vLLM API server version latest",
        "vLLM API server version 0.20.2 and more",
        "the vLLM API server version 0.20.2",
        "Using max model len -1",
        "vLLM API server version ٣.٤",
        "Using max model len 32768.",
        "# GPU blocks: x",
        "[shutdown] EngineCore: trigger received signal=SIGTERM",
        "Shutting down FastAPI HTTP server. Not.",
        "args: Namespace(host=None)",
        "args: ",
        "non-default args: {}",
        "Starting to load model {'a': 1}...",
        "Starting to load model <script>...",
    ],
)
def test_lines_that_only_resemble_them_say_nothing(message):
    """Other lines of the start, torn ones and longer ones give nothing."""
    assert parse_startup(message) == ()


DETAILS = {
    "0.5.5 and later": (
        "Chunked prefill is enabled with max_num_batched_tokens=2048.",
        {"enable-chunked-prefill": "True", "max-num-batched-tokens": "2048"},
    ),
    "V0, 0.6 and 0.7": ("Using Flash Attention backend.", {"attention-backend": "FLASH_ATTN"}),
    "V0 without FlashAttention": ("Using XFormers backend.", {"attention-backend": "XFORMERS"}),
    "V1, 0.7.3 to 0.9.2": ("Using Flash Attention backend on V1 engine.", {"attention-backend": "FLASH_ATTN"}),
    "an MLA model": ("Using Triton MLA backend on V1 engine.", {"attention-backend": "TRITON_MLA"}),
    "0.11.2 and later, chosen": (
        "Using AttentionBackendEnum.FLASHINFER backend.",
        {"attention-backend": "FLASHINFER"},
    ),
    "0.14.1 and later": (
        "Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN', 'FLASHINFER'].",
        {"attention-backend": "FLASH_ATTN"},
    ),
    "ROCm": (
        "Using ROCM_AITER_FA backend out of potential backends: ['ROCM_AITER_FA'].",
        {"attention-backend": "ROCM_AITER_FA"},
    ),
    "a KV cache of fewer bits": (
        "Using fp8_e4m3 data type to store kv cache. It reduces the GPU memory footprint and boosts the performance.",
        {"kv-cache-dtype": "fp8_e4m3"},
    ),
    "a hybrid model": (
        "Setting attention block size to 528 tokens to ensure that attention page size is >= mamba page size.",
        {"block-size": "528"},
    ),
    "drafts, 0.13 and later": (
        "max_num_scheduled_tokens is set to 2048 based on the speculative decoding settings. This may lead to worse.",
        {"max-num-scheduled-tokens": "2048"},
    ),
}


@pytest.mark.parametrize(("message", "flags"), DETAILS.values(), ids=DETAILS)
def test_lines_about_one_flag(message, flags):
    """What vLLM made of a flag is read under the flag's name, also behind the prefilter, with the engine's rank."""
    line = record(message, "x.py", process="(EngineCore_DP3 pid=7) ")

    assert (StartupDetail(engine="3", flags=tuple(sorted(flags.items()))),) == events(line)
    assert not is_irrelevant(line)


@pytest.mark.parametrize("message", ["torch.compile takes 36.67 s in total", "torch.compile took 36.67 s in total"])
def test_how_long_was_compiled(message):
    """0.6.5 to 0.17.1 print it in one form, later releases in another."""
    assert (StartupDetail(compile_seconds=36.67),) == parse_startup(message)
    assert (Notice("value_out_of_range", "compile_seconds"),) == parse_startup(message.replace("36", "9" * 20))


def test_the_memory_of_a_cpu_s_kv_cache():
    """A CPU has a line of its own for the memory that a GPU's line calls available."""
    said = parse_startup("Explicitly set (1.5/7.71) GiB for KV cache on node 0.")

    assert (StartupFact(kv_cache_memory_gib=1.5),) == said
    assert (StartupFact(kv_cache_memory_gib=2),) == parse_startup(
        "Auto set (2/7.7) GiB for KV cache on node 0, with 3 GiB"
    )


@pytest.mark.parametrize("process", ["", "(APIServer pid=7) "])
@pytest.mark.parametrize(
    ("message", "phase"),
    [
        ("Application startup complete.", "ready"),
        ("Shutting down", "shutting_down"),
        ("Application shutdown complete.", "stopped"),
        ("Finished server process [6626]", "stopped"),
    ],
)
def test_uvicorn_says_when_the_server_is_ready_and_when_it_ends(process, message, phase):
    """Uvicorn's own lines are read bare, with a process before them, and as JSON."""
    assert events(f"{process}INFO:     {message}".encode()) == (Lifecycle(phase),)
    assert events(f"{process}INFO:     {message}\r".encode()) == (Lifecycle(phase),)
    assert events(json_record(message, name="uvicorn.error")) == (Lifecycle(phase),)


@pytest.mark.parametrize(
    "line",
    [
        "INFO:     Started server process [6626]",
        "INFO:     Waiting for application startup.",
        "INFO:     Application startup complete. Not.",
        "INFO:     Uvicorn running on http://0.0.0.0:8000 (Press CTRL+C to quit)",
        "INFO: Application startup complete.",
        "Application startup complete.",
        "WARNING:  Application startup complete.",
        "ERROR:    Application startup failed. Exiting.",
        "INFO:     Shutting down the world",
        "INFO:     Finished server process [all]",
    ],
)
def test_other_lines_of_uvicorn_say_nothing(line):
    """Only the four whole sentences count, and only from uvicorn."""
    assert events(line.encode()) == ()


def test_the_rank_of_the_process_goes_with_what_it_says():
    """Facts carry the data-parallel rank of the process that prints them, phases that of the API server."""
    size = record("GPU KV cache size: 188,064 tokens", "kv_cache_utils.py", process="(EngineCore_DP1 pid=9) ")

    assert events(size) == (StartupFact(engine="1", kv_cache_tokens=188064),)
    assert events(b"(ApiServer_1 pid=7) INFO:     Application startup complete.") == (Lifecycle("ready", "1"),)


LOGO = (
    "",
    "       █     █     █▄   ▄█",
    " ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.33.0",
    "  █▄█▀ █     █     █     █  model   Qwen/Qwen3-8B",
    "   ▀▀  ▀▀▀▀▀ ▀▀▀▀▀ ▀     ▀",
    "",
)


def logo(first="", colour="", process="(APIServer pid=7) "):
    """Return the record of 0.15 and later that holds the logo."""
    head = f"{process}INFO {TIME} [startup.py:38] "
    return "\r\n".join(f"{head}{colour}{line}" for line in (first, *LOGO[1:])).encode()


@pytest.mark.parametrize("colour", ["", "\x1b[1;36m"])
def test_the_logo_says_version_and_model(colour):
    """The logo is one record of six lines; two of them are facts, and the first of these is the start."""
    assert events_of(logo(colour=colour)) == [
        STARTING,
        StartupFact(version="0.33.0"),
        StartupFact(model="Qwen/Qwen3-8B"),
    ]


def test_the_logo_says_the_same_where_its_carriage_returns_were_removed():
    """What collects logs may remove them: then each line of the logo is a record of its own, and still the start."""
    assert events_of(logo().replace(b"\r", b"")) == events_of(logo())


def test_the_logo_s_lines_are_no_facts_in_another_record():
    """In a record that begins with text, which may be a client's, a line of the logo is no fact."""
    assert events_of(logo(first="Received request x")) == []


ARGUMENTS = [
    "args: Namespace(api_key='sk-secret', ssl_keyfile_password='sk-secret', model='m', hf_token='sk-secret')",
    "non-default args: {'api_key': ['sk-secret', 'sk-secret2'], 'hf_token': 'sk-secret', 'model': 'm'}",
    "non-default args: {'model': 'm', 'api_key': 'sk-secret",
    "non-default args: {'model': ['m'], 'x': {'api_key': 'sk-secret'}, 'served_model_name': [\"m\", 'sk-secret']}",
    "Initializing a V1 LLM engine (v0.20.2) with config: model='m', env={'HF_TOKEN': 'sk-secret'}, served_model_name=m",
]


@pytest.mark.parametrize("message", ARGUMENTS)
def test_secrets_among_the_arguments_are_in_no_event(message):
    """Releases before 0.29 print API keys: an event holds the model's name and numbers, never a secret."""
    for line in (
        record(message, "utils.py"),
        old_record(message, "api_server.py"),
        json_record(message, name="a.utils"),
    ):
        said = events(line)

        assert said[0].model == "m"
        assert "sk-" not in repr(said)


@pytest.mark.parametrize("name", ["a b", "a\nb", "{a}", "<a>", "a" * 257, "", "a=b", "é"])
def test_a_model_s_name_is_spelt_like_one(name):
    """What becomes a label holds no blanks, brackets or line breaks, and has an end."""
    said = events(record(f"args: Namespace(model={name!r}, max_num_seqs=1)", "utils.py"))

    assert said == (StartupFact(max_num_seqs=1, flags=(("max-num-seqs", "1"),), flags_of="arguments"),)


MAIN_MODEL = [
    "non-default args: {'model': 'main', 'max_num_seqs': 64}",
    "Using max model len 32768",
]
DRAFT_MODEL = ["Using max model len 2048"]
ENGINE = [
    "Initializing a V1 LLM engine (v0.20.2) with config: model='main', max_seq_len=16384, tensor_parallel_size=1",
    "Starting to load model main...",
    "Starting to load model draft...",
    "Maximum concurrency for 16,384 tokens per request: 5.74x",
]


def learned(messages):
    """Return the facts that a server's lines add up to."""
    facts = Facts()
    for message in messages:
        for event in parse_startup(message):
            facts.learn(event)
    return facts


@pytest.mark.parametrize(
    ("messages", "length"),
    [
        (MAIN_MODEL, 32768),
        (MAIN_MODEL + DRAFT_MODEL, 32768),
        (MAIN_MODEL + DRAFT_MODEL + ENGINE, 16384),
        (MAIN_MODEL + ENGINE + DRAFT_MODEL, 16384),
        (DRAFT_MODEL + MAIN_MODEL + ENGINE, 16384),
        (ENGINE[3:] + DRAFT_MODEL, 16384),
    ],
)
def test_a_draft_model_s_limit_does_not_win(messages, length):
    """A draft model prints the same lines as the main one; the engine's own word is final."""
    assert learned(messages).max_model_len == length


def test_a_draft_model_s_name_does_not_win():
    """The model that is loaded first, or named in the arguments, is the server's."""
    assert learned(MAIN_MODEL + ENGINE).model == "main"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("It took 0.000540 seconds to fall asleep.", SleepOrPause("asleep")),
        ("It took 0.003701 seconds to wake up.", SleepOrPause("awake")),
        ("It took 0.003701 seconds to wake up tags {'weights', 'kv_cache'}.", SleepOrPause("awake")),
        ("It took 0.001391 seconds to wake up tags ['weights'].", SleepOrPause("awake", ("weights",))),
        (
            "It took 0.001391 seconds to wake up tags ['kv_cache', 'weights'].",
            SleepOrPause("awake", ("kv_cache", "weights")),
        ),
        ("setting pause state to PAUSED_NEW", SleepOrPause("paused")),
        ("setting pause state to PAUSED_ALL", SleepOrPause("paused")),
        ("setting pause state to UNPAUSED", SleepOrPause("resumed")),
    ],
)
def test_sleep_and_pause_are_read(message, expected):
    """Each line on sleeping, waking, pausing and resuming says what it says, and is not dismissed."""
    prefixed = f"(EngineCore pid=7) INFO 11-21 23:05:03 [core.py:2756] {message}".encode()

    assert (expected,) == parse_line(prefixed).events


@pytest.mark.parametrize("message", ["setting pause state to PAUSED_NEW now", "It took 5 s to fall asleep."])
def test_what_only_resembles_a_pause_is_not_read(message):
    """A line that goes on, or is worded otherwise, says nothing of sleep."""
    assert () == parse_line(f"INFO 11-21 23:05:03 [core.py:2756] {message}".encode()).events
