# SPDX-License-Identifier: Apache-2.0
"""
Every reason of `source_info`, and why an engine is stalled: what each means, in words that an operator can act on.

A source's reasons are a type, so that mypy finds one that is not listed, and below it a table with what each means.
Everything else derives from the tables: the label values, what `check`, the status page and the log report, the English
texts of the dashboards and their colours, and the results of probes that no alert considers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args


SourceName = Literal["log", "metrics", "probe"]

ReasonKind = Literal["ok", "quiet", "misconfigured", "internal", "failure"]
"""
What a reason is about.

quiet: the server has nothing to report, and nothing needs repair. misconfigured: this daemon or the server is
configured wrongly, and an operator has to correct it. internal: something fails inside this daemon. failure: all
others.
"""


class Reason(NamedTuple):
    """What a reason means: `text` in a sentence or two, with what to do; `short` for a table's cell."""

    text: str
    short: str
    kind: ReasonKind = "failure"


LogReason = Literal[
    "ok", "starting", "ended", "idle", "sleeping", "stalled", "silent", "no_statistics_yet", "stats_disabled",
    "api_servers_more_than_one", "not_found", "permission_denied", "not_regular", "symlink_loop", "read_error",
    "hangs", "internal_error", "no_entries", "journalctl_missing", "journal_failed",
]  # fmt: skip

LOG: Mapping[LogReason, Reason] = {
    "ok": Reason(
        "The log is read.",
        short="the log is read",
        kind="ok",
    ),
    "starting": Reason(
        "The server is starting.",
        short="the server is starting",
        kind="quiet",
    ),
    "ended": Reason(
        "The log's last word is a fatal error or the end of the server.",
        short="the log ends with a fatal error or the server's end",
        kind="quiet",
    ),
    "idle": Reason(
        "The engine is idle: vLLM prints no statistics then.",
        short="the engine is idle, vLLM prints nothing then",
        kind="quiet",
    ),
    "sleeping": Reason(
        "The server was put to sleep or paused: vLLM prints no statistics then.",
        short="the server sleeps or is paused, vLLM prints nothing then",
        kind="quiet",
    ),
    "stalled": Reason(
        "The last statistics line had requests and no token, and nothing came after it.",
        short="the last line had requests and no token, then silence",
        kind="quiet",
    ),
    "silent": Reason(
        "It stopped without a line of zeros, so this is no idleness: look whether the server is still there "
        "and writes to this file.",
        short="it stopped without a line of zeros",
    ),
    "no_statistics_yet": Reason(
        "No statistics line yet: vLLM prints one every 10 s while it has work.",
        short="no statistics line yet",
        kind="quiet",
    ),
    "stats_disabled": Reason(
        "Requests are answered, but the log has no statistics: start vLLM without --disable-log-stats and "
        "with VLLM_LOGGING_LEVEL=INFO, or rely on /metrics.",
        short="requests are answered, but statistics are switched off",
        kind="misconfigured",
    ),
    "api_servers_more_than_one": Reason(
        "vLLM prints no statistics with several API servers (from 0.15 the default under data parallelism): "
        "start it with --api-server-count 1, or rely on /metrics.",
        short="several API servers, vLLM prints no statistics then",
        kind="misconfigured",
    ),
    "not_found": Reason(
        "There is no such file yet.",
        short="there is no such file",
    ),
    "permission_denied": Reason(
        "The log may not be read: for a file, add this user to its group or set an ACL; for the journal, add "
        "this user to the group systemd-journal.",
        short="the log may not be read",
        kind="misconfigured",
    ),
    "not_regular": Reason(
        "The path is a folder, a pipe or a device: give the log file itself.",
        short="the path is not a plain file",
        kind="misconfigured",
    ),
    "symlink_loop": Reason(
        "The path is a symbolic link that leads back to itself.",
        short="the path is a link that leads back to itself",
        kind="misconfigured",
    ),
    "read_error": Reason(
        "Reading the file fails: see this daemon's log.",
        short="reading fails, see vllm-watch's log",
    ),
    "hangs": Reason(
        "The file system gives no answer: a network's server is gone, or a disk hangs. Reading goes on when "
        "it answers again.",
        short="the file system gives no answer",
    ),
    "internal_error": Reason(
        "Reading the log fails inside this daemon: its log says how.",
        short="reading fails inside vllm-watch, see its log",
        kind="internal",
    ),
    "no_entries": Reason(
        "The journal has shown no line of this unit: check the unit's name (systemctl list-units --all), and "
        "whether it has printed anything yet.",
        short="the journal has no line of this unit",
    ),
    "journalctl_missing": Reason(
        "The program journalctl is not installed: it comes with systemd.",
        short="journalctl is not installed",
        kind="misconfigured",
    ),
    "journal_failed": Reason(
        "journalctl ended with an error; it is started again: see this daemon's log.",
        short="journalctl ended with an error",
    ),
}

MetricsReason = Literal[
    "ok", "starting", "refused", "timeout", "unreachable", "name_not_resolved", "tls_error", "unauthorized",
    "forbidden", "not_found", "http_error", "redirect", "not_metrics", "stats_disabled", "no_requests_yet", "ray",
    "router", "sglang", "text_generation_inference", "tensorrt_llm", "other_program", "several_servers",
    "too_many_samples", "too_large", "incomplete", "encoded", "internal_error", "token_unreadable",
]  # fmt: skip

METRICS: Mapping[MetricsReason, Reason] = {
    "ok": Reason(
        "The page is read.",
        short="the page is read",
        kind="ok",
    ),
    "starting": Reason(
        "Not looked at yet.",
        short="not looked at yet",
        kind="quiet",
    ),
    "refused": Reason(
        "Nothing listens at this address: the server is down or still starting, or the address is wrong.",
        short="nothing listens at this address",
    ),
    "timeout": Reason(
        "The server took the connection and did not answer in time: it hangs or is overloaded.",
        short="no answer in time, the server hangs or is overloaded",
    ),
    "unreachable": Reason(
        "The network does not lead to this address, or the connection broke.",
        short="the network does not lead there, or broke",
    ),
    "name_not_resolved": Reason(
        "The host's name is not known: check the URL.",
        short="the host's name is not known",
    ),
    "tls_error": Reason(
        "TLS failed: check the certificate, its authority (ca_file) and the URL's scheme.",
        short="TLS failed",
    ),
    "unauthorized": Reason(
        "The server wants a password (401): give bearer_token_file. vLLM itself leaves /metrics open.",
        short="the server wants a password (401)",
        kind="misconfigured",
    ),
    "forbidden": Reason(
        "The server refuses (403): something before vLLM guards /metrics.",
        short="the server refuses (403)",
        kind="misconfigured",
    ),
    "not_found": Reason(
        "There is no such page (404): the URL should end in /metrics of vLLM's own port.",
        short="there is no such page (404)",
        kind="misconfigured",
    ),
    "http_error": Reason(
        "The server answered with an error.",
        short="the server answered with an error",
    ),
    "redirect": Reason(
        "The server redirects, which is not followed: give the final URL.",
        short="the server redirects, give the final URL",
        kind="misconfigured",
    ),
    "not_metrics": Reason(
        "The answer is no Prometheus page: is this vLLM's /metrics?",
        short="the answer is no Prometheus page",
        kind="misconfigured",
    ),
    "stats_disabled": Reason(
        "The page has no vLLM series: start vLLM without --disable-log-stats.",
        short="the page has no vLLM series, statistics are switched off",
        kind="misconfigured",
    ),
    "no_requests_yet": Reason(
        "The page is read and has no series yet: vLLM's Rust front end shows them from its first request on.",
        short="the page is read, it has no series before the first request",
        kind="quiet",
    ),
    "ray": Reason(
        "This is Ray's page (ray_vllm…), where series of ended workers stay and counters stand twice: give "
        "the address of vLLM's own server, or rely on the log.",
        short="Ray's page, give vLLM's own",
        kind="misconfigured",
    ),
    "router": Reason(
        "This is a router's page: it repeats what several engines say. Give each engine's own /metrics.",
        short="a router's page, give each engine's own",
        kind="misconfigured",
    ),
    "sglang": Reason(
        "This is SGLang's page: vllm-watch reads vLLM's only.",
        short="SGLang's page, not vLLM's",
        kind="misconfigured",
    ),
    "text_generation_inference": Reason(
        "This is the page of Text Generation Inference: vllm-watch reads vLLM's only.",
        short="Text Generation Inference's page, not vLLM's",
        kind="misconfigured",
    ),
    "tensorrt_llm": Reason(
        "This is TensorRT-LLM's page: vllm-watch reads vLLM's only.",
        short="TensorRT-LLM's page, not vLLM's",
        kind="misconfigured",
    ),
    "other_program": Reason(
        "This is another program's page: check the port of vLLM's own server.",
        short="another program's page, check the port",
        kind="misconfigured",
    ),
    "several_servers": Reason(
        "Several servers answer in turn at this address, as behind a Kubernetes Service: a start time came "
        "back. Give each one's own address.",
        short="several servers answer in turn, give each one's address",
        kind="misconfigured",
    ),
    "too_many_samples": Reason(
        "The page has over 50000 samples of vLLM's, over 4096 other names or over 1000000 lines: this is no "
        "vLLM server's page.",
        short="over 50000 samples, 4096 other names or 1000000 lines, no vLLM page",
    ),
    "too_large": Reason(
        "The page is over 64 MiB: restart the server, whose label sets (of LoRA adapters) grow for ever.",
        short="over 64 MiB, the server's label sets grow for ever",
    ),
    "incomplete": Reason(
        "The answer broke off, or does not say how long it is.",
        short="the answer broke off",
    ),
    "encoded": Reason(
        "The answer is compressed although that was not asked for: something stands before vLLM.",
        short="the answer is compressed, which was not asked for",
    ),
    "internal_error": Reason(
        "Reading the page fails inside this daemon: its log says how.",
        short="reading fails inside vllm-watch, see its log",
        kind="internal",
    ),
    "token_unreadable": Reason(
        "bearer_token_file cannot be read or is empty.",
        short="bearer_token_file cannot be read",
        kind="misconfigured",
    ),
}

ProbeReason = Literal[
    "ok", "starting", "sleeping", "overdue", "refused", "timeout", "unauthorized", "forbidden", "not_found",
    "bad_request", "overloaded", "http_error", "failed", "redirect", "not_a_stream", "too_large", "incomplete",
    "encoded", "tls_error", "name_not_resolved", "unreachable", "key_unreadable", "model_unknown",
]  # fmt: skip

PROBE: Mapping[ProbeReason, Reason] = {
    "ok": Reason(
        "A completion of one token came in time.",
        short="the token came in time",
        kind="ok",
    ),
    "starting": Reason(
        "Not probed yet since the server, or this daemon, was started.",
        short="not probed yet since the start",
        kind="quiet",
    ),
    "sleeping": Reason(
        "The server was put to sleep or paused: it is not asked until it wakes.",
        short="the server sleeps or is paused, it is not asked",
        kind="quiet",
    ),
    "overdue": Reason(
        "No probe has ended in its time: probing itself hangs, perhaps on a name that cannot be resolved.",
        short="no probe has ended in its time, probing hangs",
        kind="internal",
    ),
    "refused": Reason(
        "Nothing listens at this address: the server is down or still starting, or the address is wrong.",
        short="nothing listens at this address",
    ),
    "timeout": Reason(
        "No token came in time: the engine is wedged or overloaded, even if /health and /metrics answer.",
        short="no token in time, the engine hangs or is overloaded",
    ),
    "unauthorized": Reason(
        "The server wants a key, or another one (401): give api_key_file.",
        short="the server wants a key, or another one (401)",
        kind="misconfigured",
    ),
    "forbidden": Reason(
        "The server refuses (403): something before vLLM guards it.",
        short="the server refuses (403)",
        kind="misconfigured",
    ),
    "not_found": Reason(
        "There are no completions at this address, or no such model (404): check url and model.",
        short="no completions there, or no such model (404)",
        kind="misconfigured",
    ),
    "bad_request": Reason(
        "The server does not take such a request (400): does the model generate text?",
        short="the server does not take such a request (400)",
        kind="misconfigured",
    ),
    "overloaded": Reason(
        "The server turns requests away (429 or 503): its queue is full, or it is not ready.",
        short="turned away (429 or 503)",
    ),
    "http_error": Reason(
        "The server answered with an error.",
        short="the server answered with an error",
    ),
    "failed": Reason(
        "The server took the request and reported an error instead of a token.",
        short="an error came instead of a token",
    ),
    "redirect": Reason(
        "The server redirects, which is not followed: give the final url.",
        short="the server redirects, give the final URL",
        kind="misconfigured",
    ),
    "not_a_stream": Reason(
        "The answer is no stream of completions: is this vLLM's /v1/completions?",
        short="the answer is no stream of completions",
        kind="misconfigured",
    ),
    "too_large": Reason(
        "The answer is far too long for one token: this is no vLLM server.",
        short="the answer is too long for one token",
    ),
    "incomplete": Reason(
        "The answer broke off before its end.",
        short="the answer broke off",
    ),
    "encoded": Reason(
        "The answer is compressed although that was not asked for: something stands before vLLM.",
        short="the answer is compressed, which was not asked for",
    ),
    "tls_error": Reason(
        "TLS failed: check the certificate, its authority (ca_file of metrics) and the URL's scheme.",
        short="TLS failed",
    ),
    "name_not_resolved": Reason(
        "The host's name is not known: check the URL.",
        short="the host's name is not known",
    ),
    "unreachable": Reason(
        "The network does not lead to this address, or the connection broke.",
        short="the network does not lead there, or broke",
    ),
    "key_unreadable": Reason(
        "api_key_file cannot be read or is empty.",
        short="api_key_file cannot be read",
        kind="misconfigured",
    ),
    "model_unknown": Reason(
        "The server lists no model to ask for: give model.",
        short="the server lists no model to ask for",
        kind="misconfigured",
    ),
}

BY_SOURCE: Mapping[SourceName, Mapping[str, Reason]] = {
    "log": dict(LOG.items()),
    "metrics": dict(METRICS.items()),
    "probe": dict(PROBE.items()),
}
"""All reasons, by source."""

NOT_JUDGED: tuple[ProbeReason, ...] = tuple(
    code for code, reason in PROBE.items() if reason.kind in {"quiet", "misconfigured", "internal"}
)
"""A probe's reasons that do not show what users get: it was not made, or its own configuration is wrong."""

StallReason = Literal[
    "batch_stands_still", "queue_stands_still", "nothing_computed", "no_first_token", "log_fell_silent",
]  # fmt: skip
STALL_REASONS: tuple[StallReason, ...] = get_args(StallReason)

STALLED: Mapping[StallReason, str] = {
    "batch_stands_still": "Requests run, and no token, no engine step, no KV cache block and no request has moved.",
    "queue_stands_still": "Nothing runs, and requests that wait for capacity are not taken up.",
    "nothing_computed": "Requests come and go, and for minutes nothing has been computed for any of them.",
    "no_first_token": "No request has had a token since the server was started, for longer than compiling should take.",
    "log_fell_silent": "The log's last statistics line had requests and no token, and nothing came after it.",
}
"""Why an engine is called stalled."""

CheckpointReason = Literal[
    "ok", "absent", "unreadable", "too_large", "empty", "not_json", "wrong_shape", "wrong_version", "impossible_values",
    "from_the_future",
]  # fmt: skip
"""Whether the checkpoint was used at the start, or why not."""


def explain(source: SourceName, reason: str) -> str:
    """Return what a reason means, as a sentence or two."""
    return BY_SOURCE[source][reason].text
