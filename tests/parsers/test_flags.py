# SPDX-License-Identifier: Apache-2.0
"""Flags that matter to a server's speed: found in what it prints of itself, and no secret among them."""

from __future__ import annotations

import pytest

from vllm_watch_parsers.flags import DRAFT_SCHEDULE, cache_flags, given_flags, least_drafted, printed_flags


PRINTED = {
    "all arguments, to 0.8.5": (
        (
            "Namespace(host=None, api_key='sk-1', dtype='auto', kv_cache_dtype='fp8', gpu_memory_utilization=0.9, "
            "enforce_eager=False, speculative_model='[ngram]', quantization=None)"
        ),
        {
            "kv-cache-dtype": "fp8",
            "gpu-memory-utilization": "0.9",
            "enforce-eager": "False",
            "speculative-model": "[ngram]",
        },
    ),
    "arguments that were given, 0.9.0 and later": (
        (
            "{'model': 'm', 'api_key': '***', 'max_num_seqs': 24, "
            "'speculative_config': {'method': 'mtp', 'num_speculative_tokens': 4}}"
        ),
        {
            "max-num-seqs": "24",
            "speculative-config.method": "mtp",
            "speculative-config.num_speculative_tokens": "4",
        },
    ),
    "a limit of running requests below the batch's size, and drafts that get shorter, 0.32": (
        (
            "{'max_num_seqs': 256, 'max_num_active_seqs': 64, 'speculative_config': {'method': 'eagle3', "
            "'num_speculative_tokens': 5, 'num_speculative_tokens_per_batch_size': [[1, 64, 5], [65, 256, 0]]}}"
        ),
        {
            "max-num-active-seqs": "64",
            "max-num-seqs": "256",
            "speculative-config.method": "eagle3",
            "speculative-config.num_speculative_tokens": "5",
            "speculative-config.num_speculative_tokens_per_batch_size": "1-64:5/65-256:0",
        },
    ),
    "a configuration as JSON, 0.7 to 0.10": (
        """compilation_config={"level":3,"custom_ops":["none"],"splitting_ops":["vllm.x"]}, enforce_eager=False""",
        {"compilation-config.level": "3", "enforce-eager": "False"},
    ),
    "a connector, whose id is random": (
        (
            "{'kv_transfer_config': KVTransferConfig(kv_connector='NixlConnector', engine_id='9f', kv_role='kv_both'), "
            "'attention_config': AttentionConfig(backend=<AttentionBackendEnum.FLASHINFER: 'a.b'>), 'spec_tokens': 2}"
        ),
        {
            "attention-backend": "FLASHINFER",
            "kv-transfer-config.kv_connector": "NixlConnector",
            "kv-transfer-config.kv_role": "kv_both",
            "speculative-config.num_speculative_tokens": "2",
        },
    ),
    "the engine's configuration": (
        (
            "model='m', speculative_config=SpeculativeConfig(method='eagle', model='d', num_spec_tokens=3), "
            "dtype=torch.bfloat16, max_seq_len=2048, device_config=cuda, chunked_prefill_enabled=True, "
            "compilation_config={'mode': <CompilationMode.VLLM_COMPILE: 3>, 'cudagraph_mode': <CUDAGraphMode.FULL: 2>}"
        ),
        {
            "speculative-config.method": "eagle",
            "speculative-config.model": "d",
            "speculative-config.num_speculative_tokens": "3",
            "dtype": "bfloat16",
            "max-model-len": "2048",
            "device": "cuda",
            "enable-chunked-prefill": "True",
            "compilation-config.mode": "VLLM_COMPILE",
            "compilation-config.cudagraph_mode": "FULL",
        },
    ),
}


@pytest.mark.parametrize(("text", "flags"), PRINTED.values(), ids=PRINTED)
def test_flags_are_found_in_every_form(text, flags):
    """Each form gives the flags by their names on the command line, without what is not set."""
    assert dict(printed_flags(text)) == flags


SCHEDULES = [("[[1,64,3],[65,128,1]]", 1), ("[[1, 4, 5]]", 5), ("[(1, 4, 0)]", 0), ("[]", None), ("9", None)]


@pytest.mark.parametrize(("schedule", "least"), SCHEDULES)
def test_a_schedule_of_drafts_has_a_least_length(schedule, least):
    """The command line has it as JSON; one that is none is no flag."""
    name = DRAFT_SCHEDULE.partition(".")[2]
    flags = given_flags([("speculative-config", f'{{"num_speculative_tokens": 5, "{name}": {schedule}}}')])

    assert least_drafted(dict(flags).get(DRAFT_SCHEDULE, "")) == least


@pytest.mark.parametrize("value", ["a b", "x\n", "\x1b[2J", "{1}", "y" * 200, "sk 1"])
def test_a_value_is_one_plain_word(value):
    """What is no plain word, or too long, is no flag's value."""
    assert printed_flags(f"{{'dtype': {value!r}}}") == ()


@pytest.mark.parametrize(
    "name", ["api_key", "hf_token", "chat_template", "ssl_keyfile", "otlp_traces_endpoint", "model"]
)
def test_what_no_list_names_is_not_taken(name):
    """Secrets, paths and names are no flags."""
    assert printed_flags(f"{{'{name}': 'value'}}") == ()


def test_labels_of_the_cache_are_flags():
    """/metrics has some of the flags, also where there is no log."""
    labels = {"block_size": "16", "cache_dtype": "auto", "enable_prefix_caching": "False", "num_gpu_blocks": "7"}

    assert dict(cache_flags(labels)) == {"block-size": "16", "enable-prefix-caching": "False"}
