# SPDX-License-Identifier: Apache-2.0
"""Pages of other programs, some of which bear vLLM's names: named, and never read as an engine."""

from __future__ import annotations

import pytest

from tests.support.pages import page

from vllm_watch_parsers.front_ends import FOREIGN_PROGRAMS
from vllm_watch_parsers.scrape import MetricsReading, Unreadable, read_metrics


ROUTER = (
    'vllm:num_requests_running{server="http://10.0.0.1:8000"} 3\n'
    'vllm:num_requests_waiting{server="http://10.0.0.1:8000"} 1\n'
    'vllm:gpu_cache_usage_perc{server="http://10.0.0.1:8000"} 0.5\n'
)
PAGES = {
    "ray": 'ray_node_cpu_count{ip="10.0.0.1"} 64\nray_object_store_memory{Location="MMAP"} 0\n',
    "router": ROUTER + 'vllm:current_qps{server="http://10.0.0.1:8000"} 2.5\n',
    "llm_d": 'inference_pool_ready_pods{name="p"} 3\ninference_objective_request_total{model_name="m"} 9\n',
    "dynamo": 'dynamo_frontend_requests_total{model="m"} 5\n',
    "litellm": 'litellm_deployment_total_requests{api_provider="hosted_vllm"} 5\nlitellm_in_flight_requests 1\n',
    "sglang": 'sglang:num_running_reqs{model_name="m",tp_rank="0"} 2\nsglang:token_usage{model_name="m"} 0.1\n',
    "text_generation_inference": "tgi_batch_current_size 1\ntgi_queue_size 2\n",
    "tensorrt_llm": "trtllm_num_requests_running 1\n",
    "triton": 'nv_inference_request_success{model="m",version="1"} 5\nnv_gpu_utilization{gpu_uuid="x"} 0.5\n',
    "llama_cpp": "llamacpp:requests_processing 1\n",
    "ollama": 'ollama_requests_total{model="m"} 1\n',
    "lmcache": "lmcache_mp_l1_read_chunks_total 7\n",
    "other_program": "node_load1 1\n",
}


@pytest.mark.parametrize("kind", FOREIGN_PROGRAMS)
@pytest.mark.parametrize("more", ["", "python_info 1\nprocess_start_time_seconds 5\nhttp_requests_total 1\n"])
def test_a_page_is_named_by_what_it_is(kind, more):
    """Each kind has its reason, also where the usual series of a Python process stand beside its own."""
    assert read_metrics((more + PAGES[kind]).encode()) == Unreadable(kind)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("vllm_router_requests_total", "router"),
        ("sgl_router_requests_total", "router"),
        ("inference_extension_scheduler_attempts_total", "llm_d"),
        ("ray_sglang_num_running_reqs", "sglang"),
        ("lmcache:num_hit_tokens_total", "lmcache"),
        ("vllm_watch_build_info", "other_program"),
    ],
)
def test_other_names_of_a_kind(name, kind):
    """Other routers, SGLang through Ray and vllm-watch itself are told as well."""
    assert read_metrics(f"{name} 1\n".encode()) == Unreadable(kind)


def test_a_router_is_told_by_its_labels_alone():
    """VLLM's names with the address of an engine and no model's name are a router's."""
    assert read_metrics(ROUTER.encode()) == Unreadable("router")


def test_an_engine_that_others_share_a_page_with_is_an_engine():
    """A page with vLLM's own series is read, whatever stands beside them."""
    body = page(running=2) + "lmcache:num_hits 1\nray_vllm_x 1\nsglang:x 1\n"

    assert isinstance(read_metrics(body.encode()), MetricsReading)


def test_an_engine_whose_series_bear_a_server_label_is_an_engine():
    """A label `server` that somebody adds to vLLM's own series, which have a model's name, makes no router of it."""
    body = 'vllm:num_requests_running{engine="0",model_name="m",server="x"} 1\n'

    assert isinstance(read_metrics(body.encode()), MetricsReading)


@pytest.mark.parametrize(
    "body",
    [
        "# EOF\n",
        'http_requests_total{method="GET",handler="/v1/models",status="2xx"} 1\n# EOF\n',
        "http_request_duration_highr_seconds_count 1\nhttp_requests_total 1\n# EOF\n",
    ],
)
def test_the_rust_front_end_before_its_first_request(body):
    """A page of OpenMetrics with nothing but HTTP on it is that of a server that nobody has asked yet."""
    reading = read_metrics(body.encode())

    assert isinstance(reading, MetricsReading)
    assert (reading.reason, dict(reading.engines)) == ("no_requests_yet", {})


@pytest.mark.parametrize(
    "body",
    [
        'http_requests_total{method="POST",handler="/v1/completions",status="2xx"} 7\n# EOF\n',
        "http_requests_total 1\n",
        "process_start_time_seconds 5\n# EOF\n",
        "python_info 1\n# EOF\n",
    ],
)
def test_a_server_without_statistics_is_not_before_its_first_request(body):
    """Where completions were answered, or a Python process shows itself, the missing statistics are switched off."""
    assert read_metrics(body.encode()) == Unreadable("stats_disabled")
