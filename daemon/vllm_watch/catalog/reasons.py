# SPDX-License-Identifier: Apache-2.0
"""What the reasons of `source_info` mean, in words that an operator can act on."""

from __future__ import annotations

from collections.abc import Mapping

from vllm_watch.state.snapshot import SourceName, StallReason


_LOG = {
    "ok": "The log is read.",
    "starting": "The server is starting.",
    "ended": "The log's last word is a fatal error or the end of the server.",
    "idle": "The engine is idle: vLLM prints no statistics then.",
    "sleeping": "The server was put to sleep or paused: vLLM prints no statistics then.",
    "stalled": "The last statistics line had requests and no token, and nothing came after it.",
    "silent": "It stopped without a line of zeros, so this is no idleness: look whether the server is still there and "
    "writes to this file.",
    "no_statistics_yet": "No statistics line yet: vLLM prints one every 10 s while it has work.",
    "stats_disabled": "Requests are answered, but the log has no statistics: start vLLM without --disable-log-stats "
    "and with VLLM_LOGGING_LEVEL=INFO, or rely on /metrics.",
    "api_servers_more_than_one": "vLLM prints no statistics with several API servers (from 0.15 the default under data "
    "parallelism): start it with --api-server-count 1, or rely on /metrics.",
    "not_found": "There is no such file yet.",
    "permission_denied": "The log may not be read: for a file, add this user to its group or set an ACL; for the "
    "journal, add this user to the group systemd-journal.",
    "not_regular": "The path is a folder, a pipe or a device: give the log file itself.",
    "symlink_loop": "The path is a symbolic link that leads back to itself.",
    "read_error": "Reading the file fails: see this daemon's log.",
    "hangs": "The file system gives no answer: a network's server is gone, or a disk hangs. Reading goes on when it "
    "answers again.",
    "internal_error": "Reading the log fails inside this daemon: its log says how.",
    "no_entries": "The journal has shown no line of this unit: check the unit's name (systemctl list-units --all), and "
    "whether it has printed anything yet.",
    "journalctl_missing": "The program journalctl is not installed: it comes with systemd.",
    "journal_failed": "journalctl ended with an error; it is started again: see this daemon's log.",
}

_METRICS = {
    "ok": "The page is read.",
    "starting": "Not looked at yet.",
    "refused": "Nothing listens at this address: the server is down or still starting, or the address is wrong.",
    "timeout": "The server took the connection and did not answer in time: it hangs or is overloaded.",
    "unreachable": "The network does not lead to this address, or the connection broke.",
    "name_not_resolved": "The host's name is not known: check the URL.",
    "tls_error": "TLS failed: check the certificate, its authority (ca_file) and the URL's scheme.",
    "unauthorized": "The server wants a password (401): give bearer_token_file. vLLM itself leaves /metrics open.",
    "forbidden": "The server refuses (403): something before vLLM guards /metrics.",
    "not_found": "There is no such page (404): the URL should end in /metrics of vLLM's own port.",
    "http_error": "The server answered with an error.",
    "redirect": "The server redirects, which is not followed: give the final URL.",
    "not_metrics": "The answer is no Prometheus page: is this vLLM's /metrics?",
    "stats_disabled": "The page has no vLLM series: start vLLM without --disable-log-stats.",
    "no_requests_yet": "The page is read and has no series yet: vLLM's Rust front end shows them from its first "
    "request on.",
    "ray": "This is Ray's page (ray_vllm…), where series of ended workers stay and counters stand twice: give the "
    "address of vLLM's own server, or rely on the log.",
    "router": "This is a router's page: it repeats what several engines say. Give each engine's own /metrics.",
    "sglang": "This is SGLang's page: vllm-watch reads vLLM's only.",
    "text_generation_inference": "This is the page of Text Generation Inference: vllm-watch reads vLLM's only.",
    "tensorrt_llm": "This is TensorRT-LLM's page: vllm-watch reads vLLM's only.",
    "other_program": "This is another program's page: check the port of vLLM's own server.",
    "several_servers": "Several servers answer in turn at this address, as behind a Kubernetes Service: a start time "
    "came back. Give each one's own address.",
    "too_many_samples": "The page has over 50000 samples of vLLM's, over 4096 other names or over 1000000 lines: this "
    "is no vLLM server's page.",
    "too_large": "The page is over 64 MiB: restart the server, whose label sets (of LoRA adapters) grow for ever.",
    "incomplete": "The answer broke off, or does not say how long it is.",
    "encoded": "The answer is compressed although that was not asked for: something stands before vLLM.",
    "internal_error": "Reading the page fails inside this daemon: its log says how.",
    "token_unreadable": "bearer_token_file cannot be read or is empty.",
}

_PROBE = {
    "ok": "A completion of one token came in time.",
    "starting": "Not probed yet since the server, or this daemon, was started.",
    "sleeping": "The server was put to sleep or paused: it is not asked until it wakes.",
    "overdue": "No probe has ended in its time: probing itself hangs, perhaps on a name that cannot be resolved.",
    "refused": "Nothing listens at this address: the server is down or still starting, or the address is wrong.",
    "timeout": "No token came in time: the engine is wedged or overloaded, even if /health and /metrics answer.",
    "unauthorized": "The server wants a key, or another one (401): give api_key_file.",
    "forbidden": "The server refuses (403): something before vLLM guards it.",
    "not_found": "There are no completions at this address, or no such model (404): check url and model.",
    "bad_request": "The server does not take such a request (400): does the model generate text?",
    "overloaded": "The server turns requests away (429 or 503): its queue is full, or it is not ready.",
    "http_error": "The server answered with an error.",
    "failed": "The server took the request and reported an error instead of a token.",
    "redirect": "The server redirects, which is not followed: give the final url.",
    "not_a_stream": "The answer is no stream of completions: is this vLLM's /v1/completions?",
    "too_large": "The answer is far too long for one token: this is no vLLM server.",
    "incomplete": "The answer broke off before its end.",
    "encoded": "The answer is compressed although that was not asked for: something stands before vLLM.",
    "tls_error": "TLS failed: check the certificate, its authority (ca_file of metrics) and the URL's scheme.",
    "name_not_resolved": "The host's name is not known: check the URL.",
    "unreachable": "The network does not lead to this address, or the connection broke.",
    "key_unreadable": "api_key_file cannot be read or is empty.",
    "model_unknown": "The server lists no model to ask for: give model.",
}

SLEEPING = (
    "Its operator has put it to sleep (/sleep) or paused it (/pause): it takes requests and holds them until /wake_up "
    "or /resume."
)
"""What the state `sleeping` means, in words."""

STALLED: Mapping[StallReason, str] = {
    "batch_stands_still": "Requests run, and no token, no engine step, no KV cache block and no request has moved.",
    "queue_stands_still": "Nothing runs, and requests that wait for capacity are not taken up.",
    "nothing_computed": "Requests come and go, and for minutes nothing has been computed for any of them.",
    "no_first_token": "No request has had a token since the server was started, for longer than compiling should take.",
    "log_fell_silent": "The log's last statistics line had requests and no token, and nothing came after it.",
}
"""Why an engine is called stalled, in words."""

BY_SOURCE: Mapping[SourceName, Mapping[str, str]] = {"log": _LOG, "metrics": _METRICS, "probe": _PROBE}
"""Every reason that there is, and what it means."""


def explain(source: SourceName, reason: str) -> str:
    """Return what a reason means, as a sentence or two."""
    return BY_SOURCE[source].get(reason, reason)
