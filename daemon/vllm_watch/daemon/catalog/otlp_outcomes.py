# SPDX-License-Identifier: Apache-2.0
"""How an export over OTLP can end: the values of the label `outcome`, with what each means and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal


OtlpOutcome = Literal[
    "ok", "partial", "not_installed", "headers_unreadable", "refused", "timeout", "unreachable", "name_not_resolved",
    "tls_error", "no_http", "unauthorized", "forbidden", "not_found", "redirect", "overloaded", "rejected",
    "server_error", "missed", "internal_error",
]  # fmt: skip

OTLP_OUTCOMES: Mapping[OtlpOutcome, str] = {
    "ok": "the endpoint has accepted everything",
    "partial": "the endpoint has rejected some of the values; what it says of them is in vllm-watch's log",
    "not_installed": "the extra otlp is not installed: in the sources, pip install '.[otlp]'",
    "headers_unreadable": "headers_file cannot be read, or has a line that is no header",
    "refused": "nothing listens at this address",
    "timeout": "no whole answer came in time",
    "unreachable": "the address cannot be reached, or the connection broke",
    "name_not_resolved": "the host name cannot be resolved",
    "tls_error": "TLS failed; check the certificate, its certificate authority and the URL's scheme",
    "no_http": "what answers there is not HTTP; OTLP over gRPC has another port",
    "unauthorized": "the endpoint requires a key, or another one (401); set headers_file",
    "forbidden": "the endpoint denies access (403)",
    "not_found": "there is no such path (404, 405); most receivers want /v1/metrics",
    "redirect": "the endpoint redirects, which is not followed; give the final URL",
    "overloaded": "the endpoint is overloaded (429, 503)",
    "rejected": "the endpoint rejects the request",
    "server_error": "the endpoint answered with an error of its own",
    "missed": "the export before it took longer than the interval, or the endpoint has asked to wait (Retry-After)",
    "internal_error": "the export failed inside vllm-watch; see its log",
}
