# SPDX-License-Identifier: Apache-2.0
"""
Every reason of `source_info`, and why an engine is stalled: what each means, in words that an operator can act on.

A source's reasons are a type, so that mypy finds one that is not listed, and below it a table with what each means.
Everything else derives from the tables: the label values, what `check`, the status page and the log report, the English
texts of the dashboards and their colours, and the results of probes that no alert considers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple, get_args


SourceName = Literal["log", "metrics", "probe", "gpu"]

SOURCE_NAMES: Mapping[SourceName, str] = {"log": "log", "metrics": "/metrics", "probe": "probe", "gpu": "GPUs"}
"""What people call the sources."""

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
    "ok", "starting", "ended", "idle", "sleeping", "stalled", "silent", "no_statistics_yet", "not_vllm",
    "stats_disabled", "api_servers_more_than_one", "not_found", "permission_denied", "not_regular", "symlink_loop",
    "read_error", "hangs", "internal_error", "no_entries", "journalctl_missing", "journal_failed",
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
        "The log ends with a fatal error or the end of the server.",
        short="the log ends with a fatal error or the server's end",
        kind="quiet",
    ),
    "idle": Reason(
        "The engine is idle; vLLM prints no statistics then.",
        short="the engine is idle, vLLM prints nothing then",
        kind="quiet",
    ),
    "sleeping": Reason(
        "The server was put to sleep or paused; vLLM prints no statistics then.",
        short="the server sleeps or is paused, vLLM prints nothing then",
        kind="quiet",
    ),
    "stalled": Reason(
        "The last statistics line had requests and no tokens, and nothing followed it.",
        short="the last line had requests and no tokens, then silence",
        kind="quiet",
    ),
    "silent": Reason(
        "Statistics stopped without a line of zeros, so the engine is not idle. Check that the server is "
        "still there and writes to this file.",
        short="statistics stopped without a line of zeros",
    ),
    "no_statistics_yet": Reason(
        "No statistics line yet; vLLM prints one every 10 s while it has work.",
        short="no statistics line yet",
        kind="quiet",
    ),
    "not_vllm": Reason(
        "None of the log's lines has the form of vLLM's: check that this is the server's log.",
        short="none of its lines is vLLM's",
        kind="misconfigured",
    ),
    "stats_disabled": Reason(
        "Requests are answered, but the log has no statistics. Start vLLM without --disable-log-stats and "
        "with VLLM_LOGGING_LEVEL=INFO, or use /metrics.",
        short="requests are answered, but statistics are switched off",
        kind="misconfigured",
    ),
    "api_servers_more_than_one": Reason(
        "vLLM prints no statistics with several API servers (the default under data parallelism from 0.15 "
        "on). Start it with --api-server-count 1, or use /metrics.",
        short="several API servers, vLLM prints no statistics then",
        kind="misconfigured",
    ),
    "not_found": Reason(
        "The file does not exist yet.",
        short="the file does not exist",
    ),
    "permission_denied": Reason(
        "No permission to read the log. For a file, add this user to its group or set an ACL; for the "
        "journal, add this user to the group systemd-journal.",
        short="no permission to read the log",
        kind="misconfigured",
    ),
    "not_regular": Reason(
        "The path is a directory, a pipe or a device. Give the path of the log file itself.",
        short="the path is not a plain file",
        kind="misconfigured",
    ),
    "symlink_loop": Reason(
        "The path is a symbolic link that points back to itself.",
        short="the path is a link that points back to itself",
        kind="misconfigured",
    ),
    "read_error": Reason(
        "Reading the file fails; see this daemon's log.",
        short="reading fails, see vllm-watch's log",
    ),
    "hangs": Reason(
        "The file system does not respond: a network server is down, or a disk hangs. Reading continues when "
        "it responds again.",
        short="the file system does not respond",
    ),
    "internal_error": Reason(
        "Reading the log fails inside this daemon; see its log.",
        short="reading fails inside vllm-watch, see its log",
        kind="internal",
    ),
    "no_entries": Reason(
        "The journal has no entry of this unit yet. Check the unit's name (systemctl list-units --all), and "
        "whether it has printed anything.",
        short="the journal has no entry of this unit",
    ),
    "journalctl_missing": Reason(
        "The program journalctl is not installed; it is part of systemd.",
        short="journalctl is not installed",
        kind="misconfigured",
    ),
    "journal_failed": Reason(
        "journalctl ended with an error and is started again; see this daemon's log.",
        short="journalctl ended with an error",
    ),
}

MetricsReason = Literal[
    "ok", "starting", "refused", "timeout", "unreachable", "name_not_resolved", "tls_error", "unauthorized",
    "forbidden", "not_found", "http_error", "redirect", "not_metrics", "stats_disabled", "no_requests_yet", "ray",
    "ray_idle", "ray_engines_mixed", "router", "llm_d", "dynamo", "litellm", "sglang", "text_generation_inference",
    "tensorrt_llm", "triton", "llama_cpp", "ollama", "lmcache", "other_program", "several_servers", "too_many_samples",
    "too_large", "incomplete", "encoded", "internal_error", "token_unreadable",
]  # fmt: skip

METRICS: Mapping[MetricsReason, Reason] = {
    "ok": Reason(
        "/metrics is read.",
        short="/metrics is read",
        kind="ok",
    ),
    "starting": Reason(
        "Not scraped yet.",
        short="not scraped yet",
        kind="quiet",
    ),
    "refused": Reason(
        "Nothing listens at this address: the server is down or still starting, the address is wrong, or a "
        "NetworkPolicy rejects it.",
        short="nothing listens at this address",
    ),
    "timeout": Reason(
        "The server did not answer in time: it hangs or is overloaded, or a firewall or a NetworkPolicy drops the "
        "connection.",
        short="no answer in time: a hang, overload, or a firewall",
    ),
    "unreachable": Reason(
        "The address cannot be reached over the network, or the connection broke.",
        short="the address cannot be reached, or the connection broke",
    ),
    "name_not_resolved": Reason(
        "The host name cannot be resolved; check the URL.",
        short="the host name cannot be resolved",
    ),
    "tls_error": Reason(
        "TLS failed; check the certificate, its certificate authority (ca_file) and the URL's scheme.",
        short="TLS failed",
    ),
    "unauthorized": Reason(
        "The server requires a password (401); set bearer_token_file. vLLM itself does not protect /metrics.",
        short="the server requires a password (401)",
        kind="misconfigured",
    ),
    "forbidden": Reason(
        "The server denies access (403); something in front of vLLM protects /metrics.",
        short="the server denies access (403)",
        kind="misconfigured",
    ),
    "not_found": Reason(
        "There is no such path (404); the URL should end in /metrics, on vLLM's own port.",
        short="there is no such path (404)",
        kind="misconfigured",
    ),
    "http_error": Reason(
        "The server answered with an error.",
        short="the server answered with an error",
    ),
    "redirect": Reason(
        "The server redirects, which is not followed; give the final URL.",
        short="the server redirects, give the final URL",
        kind="misconfigured",
    ),
    "not_metrics": Reason(
        "The answer is not in Prometheus' format; check that this is vLLM's /metrics.",
        short="the answer is not in Prometheus' format",
        kind="misconfigured",
    ),
    "stats_disabled": Reason(
        "/metrics has no vLLM series. Start vLLM without --disable-log-stats.",
        short="no vLLM series, statistics are switched off",
        kind="misconfigured",
    ),
    "no_requests_yet": Reason(
        "/metrics has no series yet; vLLM's Rust front end exports them from its first request on.",
        short="no series before the first request",
        kind="quiet",
    ),
    "ray": Reason(
        "This is the /metrics of Ray's agent, and no vLLM engine of its node has reported to it. Set "
        "log_engine_metrics in Ray Serve's LLMConfig, or give the agent of the engine's node.",
        short="Ray's agent, without vLLM's series",
        kind="misconfigured",
    ),
    "ray_idle": Reason(
        "Ray's agent is read, and has series of several vLLM workers of which none has computed for some 20 s. Which "
        "of them still runs shows once it computes again; a log or a probe shows it always.",
        short="Ray's agent, no vLLM worker computes",
        kind="quiet",
    ),
    "ray_engines_mixed": Reason(
        "Ray's agent has the series of several engines under one label, as vLLM up to 0.20 reports them. "
        "Update vLLM to 0.24 or newer, or use the log.",
        short="Ray, which mixes the engines of vLLM up to 0.20",
        kind="misconfigured",
    ),
    "router": Reason(
        "This is a router's /metrics, which repeats the values of several engines. Give each engine's own /metrics.",
        short="a router's /metrics, give each engine's own",
        kind="misconfigured",
    ),
    "llm_d": Reason(
        "This is the /metrics of llm-d's or the inference gateway's endpoint picker, which routes "
        "requests. Give each engine's own /metrics.",
        short="llm-d's endpoint picker, give each engine's own /metrics",
        kind="misconfigured",
    ),
    "dynamo": Reason(
        "This is the /metrics of Dynamo's frontend, which routes requests. Give the system port of each "
        "worker that runs vLLM.",
        short="Dynamo's frontend, give each vLLM worker's /metrics",
        kind="misconfigured",
    ),
    "litellm": Reason(
        "This is the /metrics of LiteLLM's proxy, which routes requests. Give the /metrics of each vLLM "
        "server behind it.",
        short="LiteLLM's proxy, give each engine's own /metrics",
        kind="misconfigured",
    ),
    "sglang": Reason(
        "This is SGLang's /metrics; vllm-watch reads only vLLM's. Take this server out of the configuration.",
        short="SGLang's /metrics, not vLLM's",
        kind="misconfigured",
    ),
    "text_generation_inference": Reason(
        "This is the /metrics of Text Generation Inference; vllm-watch reads only vLLM's. Take this "
        "server out of the configuration.",
        short="Text Generation Inference's /metrics, not vLLM's",
        kind="misconfigured",
    ),
    "tensorrt_llm": Reason(
        "This is TensorRT-LLM's /metrics; vllm-watch reads only vLLM's. Take this server out of the configuration.",
        short="TensorRT-LLM's /metrics, not vLLM's",
        kind="misconfigured",
    ),
    "triton": Reason(
        "This is the /metrics of Triton Inference Server, without series of vLLM's. If the model runs in its vLLM "
        "backend, switch on that backend's metrics; else take this server out of the configuration.",
        short="Triton's /metrics, without vLLM's series",
        kind="misconfigured",
    ),
    "llama_cpp": Reason(
        "This is llama.cpp's /metrics; vllm-watch reads only vLLM's. Take this server out of the configuration.",
        short="llama.cpp's /metrics, not vLLM's",
        kind="misconfigured",
    ),
    "ollama": Reason(
        "This is the /metrics of an exporter for Ollama; vllm-watch reads only vLLM's. Take this server "
        "out of the configuration.",
        short="Ollama's /metrics, not vLLM's",
        kind="misconfigured",
    ),
    "lmcache": Reason(
        "This is the /metrics of LMCache, the cache beside vLLM. Give the port of vLLM's own server.",
        short="LMCache's /metrics, give vLLM's own port",
        kind="misconfigured",
    ),
    "other_program": Reason(
        "This is the /metrics of another program, such as vllm-watch itself; check the port of vLLM's own server.",
        short="another program's /metrics, check the port",
        kind="misconfigured",
    ),
    "several_servers": Reason(
        "Several servers answer in turn at this address, as behind a Kubernetes Service, or the page has "
        "the series of several, as that of Ray's agent on a node with several replicas. Give the address "
        "of each server, or use each one's log.",
        short="several servers at one address, give each one's",
        kind="misconfigured",
    ),
    "too_many_samples": Reason(
        "/metrics has over 50000 samples of vLLM's, over 4096 other names or over 1000000 lines; this is not "
        "a vLLM server, or a Ray agent that still has dozens of ended ones, until Ray is started again there.",
        short="over 50000 samples, 4096 other names or 1000000 lines, not a vLLM server",
    ),
    "too_large": Reason(
        "/metrics is over 64 MiB. Restart the server; its label sets (of LoRA adapters) grow until then.",
        short="over 64 MiB, the server's label sets grow until a restart",
    ),
    "incomplete": Reason(
        "The answer was cut off, or does not state its length.",
        short="the answer was cut off",
    ),
    "encoded": Reason(
        "The answer is compressed although that was not requested; something is in front of vLLM.",
        short="the answer is compressed, which was not requested",
    ),
    "internal_error": Reason(
        "Reading /metrics fails inside this daemon; see its log.",
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
        "A completion of one token arrived in time.",
        short="the token arrived in time",
        kind="ok",
    ),
    "starting": Reason(
        "Not probed yet since the server or this daemon started.",
        short="not probed yet since the start",
        kind="quiet",
    ),
    "sleeping": Reason(
        "The server was put to sleep or paused; it is not probed until it wakes.",
        short="the server sleeps or is paused, it is not probed",
        kind="quiet",
    ),
    "overdue": Reason(
        "No probe has ended in time: the probe itself hangs, perhaps while resolving a name.",
        short="no probe has ended in time, probing hangs",
        kind="internal",
    ),
    "refused": Reason(
        "Nothing listens at this address: the server is down or still starting, the address is wrong, or a "
        "NetworkPolicy rejects it.",
        short="nothing listens at this address",
    ),
    "timeout": Reason(
        "No token arrived in time: the engine hangs or is overloaded, even if /health and /metrics answer.",
        short="no token in time, the engine hangs or is overloaded",
    ),
    "unauthorized": Reason(
        "The server requires a key, or another one (401); set api_key_file.",
        short="the server requires a key, or another one (401)",
        kind="misconfigured",
    ),
    "forbidden": Reason(
        "The server denies access (403); something in front of vLLM protects it.",
        short="the server denies access (403)",
        kind="misconfigured",
    ),
    "not_found": Reason(
        "There are no completions at this address, or no such model (404); check url and model.",
        short="no completions there, or no such model (404)",
        kind="misconfigured",
    ),
    "bad_request": Reason(
        "The server does not accept such a request (400); check that the model generates text.",
        short="the server does not accept such a request (400)",
        kind="misconfigured",
    ),
    "overloaded": Reason(
        "The server turns requests away (429 or 503): its queue is full, or it is not ready.",
        short="rejected (429 or 503)",
    ),
    "http_error": Reason(
        "The server answered with an error.",
        short="the server answered with an error",
    ),
    "failed": Reason(
        "The server accepted the request and reported an error instead of a token.",
        short="an error instead of a token",
    ),
    "redirect": Reason(
        "The server redirects, which is not followed; give the final url.",
        short="the server redirects, give the final URL",
        kind="misconfigured",
    ),
    "not_a_stream": Reason(
        "The answer is not a stream of completions; check that this is vLLM's /v1/completions.",
        short="the answer is not a stream of completions",
        kind="misconfigured",
    ),
    "too_large": Reason(
        "The answer is far too long for one token; this is not a vLLM server.",
        short="the answer is too long for one token",
    ),
    "incomplete": Reason(
        "The answer was cut off before its end.",
        short="the answer was cut off",
    ),
    "encoded": Reason(
        "The answer is compressed although that was not requested; something is in front of vLLM.",
        short="the answer is compressed, which was not requested",
    ),
    "tls_error": Reason(
        "TLS failed; check the certificate, its certificate authority (ca_file of metrics) and the URL's scheme.",
        short="TLS failed",
    ),
    "name_not_resolved": Reason(
        "The host name cannot be resolved; check the URL.",
        short="the host name cannot be resolved",
    ),
    "unreachable": Reason(
        "The address cannot be reached over the network, or the connection broke.",
        short="the address cannot be reached, or the connection broke",
    ),
    "key_unreadable": Reason(
        "api_key_file cannot be read or is empty.",
        short="api_key_file cannot be read",
        kind="misconfigured",
    ),
    "model_unknown": Reason(
        "The server lists no model; set model.",
        short="the server lists no model",
        kind="misconfigured",
    ),
}

GpuReason = Literal[
    "ok", "starting", "no_module", "no_library", "no_driver", "driver_mismatch", "no_permission", "no_gpus",
    "unassigned", "call_hangs", "access_lost", "reader_ended", "internal_error",
]  # fmt: skip

GPU: Mapping[GpuReason, Reason] = {
    "ok": Reason(
        "The driver's library is read.",
        short="the GPUs are read",
        kind="ok",
    ),
    "starting": Reason(
        "The GPUs have not been read yet.",
        short="not read yet",
        kind="quiet",
    ),
    "no_module": Reason(
        "The GPUs cannot be read without the extra `gpu`: in the sources, pip install '.[gpu]'.",
        short="the extra gpu is not installed",
        kind="misconfigured",
    ),
    "no_library": Reason(
        "The driver's library libnvidia-ml.so.1 is not found. On a machine without an NVIDIA GPU set `gpu: off`; in a "
        "container, give it the GPUs with NVIDIA_DRIVER_CAPABILITIES=utility.",
        short="the driver's library is not found",
        kind="quiet",
    ),
    "no_driver": Reason(
        "The NVIDIA driver is not loaded, or its devices are hidden from this process. Compare with nvidia-smi, and "
        "see PrivateDevices and DeviceAllow of the unit.",
        short="the driver is not loaded",
        kind="quiet",
    ),
    "driver_mismatch": Reason(
        "The driver's library and the loaded driver have different versions: the driver was updated without a reboot. "
        "The next start of vLLM fails.",
        short="driver and library differ, reboot",
    ),
    "no_permission": Reason(
        "No permission to open the GPUs' devices. Add this user to their group (often video or render), and see "
        "DeviceAllow of the unit.",
        short="no permission to read the GPUs",
        kind="misconfigured",
    ),
    "no_gpus": Reason(
        "The driver shows no GPU, or none of this server's.",
        short="the driver shows none of its GPUs",
    ),
    "unassigned": Reason(
        "The driver shows no process of this server, so its GPUs are not known: name them with `gpus`.",
        short="which GPUs it uses is not known",
        kind="quiet",
    ),
    "call_hangs": Reason(
        "A call of the driver does not return. nvidia-smi hangs as well then; look for Xid messages in the kernel's "
        "log. Often only a reboot helps.",
        short="the driver does not answer",
    ),
    "access_lost": Reason(
        "The driver could be read or is needed, and returns errors or is not loaded: compare with nvidia-smi. In a "
        "container, `systemctl daemon-reload` on the host may have taken the devices away: start the container again.",
        short="the driver is gone or returns errors",
    ),
    "reader_ended": Reason(
        "The process that reads the driver ended; it is started again. See this daemon's log.",
        short="the process that reads the GPUs ended",
    ),
    "internal_error": Reason(
        "Reading the GPUs fails inside vllm-watch; see this daemon's log.",
        short="internal error, see vllm-watch's log",
        kind="internal",
    ),
}

KernelLogReason = Literal[
    "ok", "starting", "no_entries", "journalctl_missing", "journal_failed", "permission_denied", "not_found",
    "read_error", "internal_error",
]  # fmt: skip

KERNEL_LOG: Mapping[KernelLogReason, Reason] = {
    "ok": Reason(
        "The kernel's log is read.",
        short="the kernel's log is read",
        kind="ok",
    ),
    "starting": Reason(
        "The kernel's log has not been read yet.",
        short="not read yet",
        kind="quiet",
    ),
    "no_entries": Reason(
        "The journal has no message of the kernel since the machine booted. In a container mount /var/log/journal, or "
        "set `kernel_log: /dev/kmsg`.",
        short="the journal has no message of the kernel",
        kind="misconfigured",
    ),
    "journalctl_missing": Reason(
        "journalctl is not found. Install it, or set `kernel_log: /dev/kmsg`.",
        short="journalctl is not found",
        kind="misconfigured",
    ),
    "journal_failed": Reason(
        "journalctl ended with an error; it is started again. Compare with `journalctl -k`.",
        short="journalctl ended with an error",
    ),
    "permission_denied": Reason(
        "No permission to read the kernel's log. For the journal add this user to the group systemd-journal or adm; "
        "/dev/kmsg needs the capability CAP_SYSLOG.",
        short="no permission to read the kernel's log",
        kind="misconfigured",
    ),
    "not_found": Reason(
        "The file of the kernel's log is not found. In a container, give it the device /dev/kmsg.",
        short="/dev/kmsg is not found",
        kind="misconfigured",
    ),
    "read_error": Reason(
        "Reading /dev/kmsg failed; it is tried again.",
        short="/dev/kmsg cannot be read",
    ),
    "internal_error": Reason(
        "Reading the kernel's log fails inside vllm-watch; see this daemon's log.",
        short="internal error, see vllm-watch's log",
        kind="internal",
    ),
}
"""Why the kernel's log, which has the Xid errors, is or is not read."""

KubernetesReason = Literal[
    "ok", "starting", "extra_missing", "no_credentials", "unauthorized", "forbidden", "bad_request", "not_found",
    "too_many", "expired", "api_error", "refused", "timeout", "unreachable", "name_not_resolved", "tls_error",
    "too_large", "no_kubernetes", "internal_error",
]  # fmt: skip

KUBERNETES: Mapping[KubernetesReason, Reason] = {
    "ok": Reason(
        "The pods are listed.",
        short="the pods are listed",
        kind="ok",
    ),
    "starting": Reason(
        "The pods have not been listed yet.",
        short="not listed yet",
        kind="quiet",
    ),
    "extra_missing": Reason(
        "The library that asks Kubernetes is not installed: in the sources, pip install '.[kubernetes]'.",
        short="the extra kubernetes is not installed",
        kind="misconfigured",
    ),
    "no_credentials": Reason(
        "There is no service account's token here, and no usable kubeconfig. In a pod set "
        "`automountServiceAccountToken: true`; elsewhere set `kubeconfig`.",
        short="no service account's token and no kubeconfig",
        kind="misconfigured",
    ),
    "unauthorized": Reason(
        "Kubernetes does not accept the token or the client certificate (401).",
        short="the token is not accepted (401)",
        kind="misconfigured",
    ),
    "forbidden": Reason(
        "Kubernetes denies listing the pods (403). The service account needs a Role in that namespace with the verb "
        "list on pods, and a RoleBinding: see deploy/kubernetes/components/discover-pods.",
        short="no right to list the pods (403)",
        kind="misconfigured",
    ),
    "bad_request": Reason(
        "Kubernetes rejects the request (400 or 422): check `selector` and `namespace`.",
        short="selector or namespace is rejected",
        kind="misconfigured",
    ),
    "not_found": Reason(
        "There is no Kubernetes API at that address (404).",
        short="no Kubernetes API there (404)",
        kind="misconfigured",
    ),
    "too_many": Reason(
        "The selector matches more than 1,000 pods. Narrow it.",
        short="the selector matches more than 1,000 pods",
        kind="misconfigured",
    ),
    "expired": Reason(
        "The list became too old while it was read (410); it is read again from its beginning.",
        short="the list became too old (410)",
    ),
    "api_error": Reason(
        "Kubernetes answers with an error, or asks to wait (429).",
        short="Kubernetes answers with an error",
    ),
    "refused": Reason(
        "Nothing listens at the address of the Kubernetes API.",
        short="connection refused",
    ),
    "timeout": Reason(
        "The Kubernetes API gives no whole answer in time. A NetworkPolicy may drop the connection.",
        short="no answer in time",
    ),
    "unreachable": Reason(
        "The Kubernetes API cannot be reached, or the connection broke.",
        short="cannot be reached",
    ),
    "name_not_resolved": Reason(
        "The host name of the Kubernetes API cannot be resolved.",
        short="the host name cannot be resolved",
    ),
    "tls_error": Reason(
        "TLS with the Kubernetes API failed: check its certificate and the certificate authority.",
        short="TLS failed",
        kind="misconfigured",
    ),
    "too_large": Reason(
        "An answer of the Kubernetes API is over 32 MiB.",
        short="the answer is too large",
    ),
    "no_kubernetes": Reason(
        "What answers is no Kubernetes API: its answer cannot be read.",
        short="the answer cannot be read",
        kind="misconfigured",
    ),
    "internal_error": Reason(
        "Listing the pods fails inside vllm-watch; see this daemon's log.",
        short="internal error, see vllm-watch's log",
        kind="internal",
    ),
}
"""Why the pods are or are not listed."""

BY_SOURCE: Mapping[SourceName, Mapping[str, Reason]] = {
    "log": dict(LOG.items()),
    "metrics": dict(METRICS.items()),
    "probe": dict(PROBE.items()),
    "gpu": dict(GPU.items()),
}
"""All reasons, by source."""

NOT_JUDGED: tuple[ProbeReason, ...] = tuple(
    code for code, reason in PROBE.items() if reason.kind in {"quiet", "misconfigured", "internal"}
)
"""A probe's reasons that do not show what users get: it was not made, or its own configuration is wrong."""

GPU_FAILURES: tuple[GpuReason, ...] = tuple(code for code, reason in GPU.items() if reason.kind == "failure")
"""Reasons for which GPUs that could be read are not; the others are of machines and installations without them."""

StallReason = Literal[
    "batch_stands_still", "queue_stands_still", "nothing_computed", "no_first_token", "log_fell_silent",
]  # fmt: skip
STALL_REASONS: tuple[StallReason, ...] = get_args(StallReason)

STALLED: Mapping[StallReason, str] = {
    "batch_stands_still": "Requests are running, and no token, engine step, KV cache block or request has moved.",
    "queue_stands_still": "Nothing is running, and requests that wait for capacity are not scheduled.",
    "nothing_computed": "Requests arrive and finish, and for minutes nothing has been computed for any of them.",
    "no_first_token": "No request has received a token since the server started, for longer than compilation "
    "should take.",
    "log_fell_silent": "The log's last statistics line had requests and no tokens, and nothing followed it.",
}
"""Why an engine is called stalled."""

CheckpointReason = Literal[
    "ok", "absent", "unreadable", "too_large", "empty", "not_json", "wrong_shape", "wrong_version", "impossible_values",
    "from_the_future",
]  # fmt: skip
"""Whether the checkpoint was used at the start, or why not."""


def needs_attention(source: str, reason: str, *, is_up: bool, is_stopped: bool = False) -> bool:
    """
    Whether somebody has to look at a source.

    A driver need not be there: a machine may have other GPUs or none, or a server may use none. Where a server
    was stopped in order nothing listens.
    """
    if is_stopped and reason == "refused":
        return False
    known = BY_SOURCE["gpu"].get(reason) if source == "gpu" else None
    return not is_up and (known is None or known.kind != "quiet")


def explain(source: SourceName, reason: str, *, is_stopped: bool = False) -> str:
    """Return what a reason means, as a sentence or two; a server `is_stopped` that was stopped in order."""
    if is_stopped and reason == "refused":
        return "Nothing listens at this address: the server was stopped in order."
    return BY_SOURCE[source][reason].text


Standing = Literal["ok", "not ok", "FAILED", "not read"]
"""
How a source is, in a word.

not ok: it is read, and what it says is a failure. not read: it cannot be read, and need not be.
"""

WRONG: frozenset[Standing] = frozenset({"not ok", "FAILED"})


def standing(source: str, reason: str, *, is_up: bool, is_stopped: bool = False) -> Standing:
    """Return how a source is, by its reason."""
    if needs_attention(source, reason, is_up=is_up, is_stopped=is_stopped):
        return "FAILED"
    if not is_up:
        return "not read"
    of_failures = {code for name, reasons in BY_SOURCE.items() if name == source for code in _failures(reasons)}
    return "not ok" if reason in of_failures else "ok"


def _failures(reasons: Mapping[str, Reason]) -> Iterator[str]:
    return (code for code, reason in reasons.items() if reason.kind == "failure")
