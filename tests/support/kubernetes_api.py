# SPDX-License-Identifier: Apache-2.0
"""
A stand-in for the Kubernetes API that has pods, with the JSON of v1.PodList and v1.Status.

It lists in pages, matches label selectors, checks the token, and denies, expires, fails or hangs as told.
"""

from __future__ import annotations

import json
import re
import threading

from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

import yaml

from tests.support.http_servers import HandlerServer
from tests.support.waiting import SECONDS


TOKEN = "the-token-of-a-service-account"
ACCOUNT = "system:serviceaccount:vllm:vllm-watch"
STARTED = "2026-11-22T10:00:00Z"


def pod(name, ip="10.0.0.1", *, ready=True, uid=None, phase="Running", restarts=0, labels=None, **more):
    """
    Return a pod as the API writes it, without the hundred fields that nothing reads here.

    `restarts` are those of the container with vLLM; `more` may have `ends`, the deletionTimestamp, `ready_since`, the
    last change of readiness, and `port`.
    """
    ready_since = more.get("ready_since", "2026-11-22T10:03:00Z" if ready else STARTED)
    condition = {"type": "Ready", "status": str(ready), "lastProbeTime": None, "lastTransitionTime": ready_since}
    metadata = {
        "name": name,
        "generateName": f"{name}-",
        "namespace": "vllm",
        "uid": uid or f"uid-of-{name}",
        "resourceVersion": "4711",
        "creationTimestamp": "2026-11-22T09:59:58Z",
        "labels": {"app": "vllm", "pod-template-hash": "6d4cf56db6", **(labels or {})},
        **({"deletionTimestamp": more["ends"], "deletionGracePeriodSeconds": 30} if "ends" in more else {}),
    }
    container = {
        "name": "vllm",
        "image": "vllm/vllm-openai:v0.14.0",
        "ports": [{"name": "http", "containerPort": more.get("port", 8000), "protocol": "TCP"}],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    status = {
        "name": "vllm",
        "ready": ready,
        "restartCount": restarts,
        "state": {"running": {"startedAt": STARTED}},
        "image": "docker.io/vllm/vllm-openai:v0.14.0",
        "imageID": "docker.io/vllm/vllm-openai@sha256:00",
    }
    return {
        "metadata": metadata,
        "spec": {"nodeName": "gpu-1", "containers": [container], "restartPolicy": "Always"},
        "status": {
            "phase": phase,
            "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": STARTED}, condition],
            "hostIP": "192.0.2.1",
            **({"podIP": ip, "podIPs": [{"ip": ip}]} if ip else {}),
            "startTime": STARTED,
            "containerStatuses": [status],
        },
    }


def status(code, reason, message):
    """Return a v1.Status, which is what a refusal looks like."""
    kind = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return {**kind, "message": message, "reason": reason, "code": code}


FORBIDDEN = status(
    403, "Forbidden", f'pods is forbidden: User "{ACCOUNT}" cannot list resource "pods" in the namespace "vllm"'
)
UNAUTHORIZED = status(401, "Unauthorized", "Unauthorized")
EXPIRED = status(410, "Expired", "The provided continue parameter is too old to display a consistent list result.")
UNWELL = status(500, "InternalError", "Internal error occurred: etcdserver: request timed out")
BUSY = status(429, "TooManyRequests", "The server has received too many requests and has asked us to try again later.")


class KubernetesApi(HandlerServer):
    """
    The stand-in on loopback; what it has and how it fails is changed while it runs.

    `pods` are those of the namespace ``vllm``. `fault` is a `status` that every request gets, raw bytes that are no
    JSON, or ``"hang"``. `expires_at` is the page from which on a list is too old. `requests` are the paths asked.
    """

    def __init__(self, pods=(), token=TOKEN, tls=None):
        self.pods = list(pods)
        self.token = token
        self.fault = None
        self.expires_at = None
        self.requests = []
        self.over = threading.Event()
        super().__init__(_handler(self), tls)

    def __exit__(self, *error):
        self.over.set()
        super().__exit__(*error)

    def kubeconfig(self, folder, token=None):
        """Write a kubeconfig for it and return its path."""
        path = folder / "kubeconfig"
        named = {
            "clusters": [{"name": "c", "cluster": {"server": self.origin}}],
            "users": [{"name": "u", "user": {"token": token or TOKEN}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "vllm"}}],
        }
        path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "current-context": "x", **named}))
        return path

    def answer(self, path, query, authorization):
        """Return the code and the document of an answer."""
        if authorization != f"Bearer {self.token}":
            return 401, UNAUTHORIZED
        if isinstance(self.fault, dict):
            return self.fault["code"], self.fault
        if path != "/api/v1/namespaces/vllm/pods":
            return 404, status(404, "NotFound", "the server could not find the requested resource")
        first = int(query.get("continue", "0"))
        if self.expires_at is not None and first >= self.expires_at:
            return 410, EXPIRED
        limit = int(query.get("limit", "1000000"))
        found = [each for each in self.pods if matches(query.get("labelSelector", ""), each["metadata"]["labels"])]
        more = {"continue": str(first + limit)} if first + limit < len(found) else {}
        items = found[first : first + limit]
        return 200, {
            "kind": "PodList",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": "4711", **more},
            "items": items,
        }


def matches(selector, labels):
    """Whether a selector of the kinds used here takes these labels."""
    for requirement in filter(None, re.split(r",(?![^(]*\))", selector)):
        if found := re.fullmatch(r"\s*(\S+?)\s+(in|notin)\s*\((.*)\)\s*", requirement):
            values = {each.strip() for each in found[3].split(",")}
            good = (labels.get(found[1]) in values) == (found[2] == "in")
        elif found := re.fullmatch(r"\s*([^=!\s]+)\s*(!=|==?)\s*(\S*)\s*", requirement):
            good = (labels.get(found[1]) == found[3]) != (found[2] == "!=")
        else:
            good = (requirement.strip().lstrip("!") in labels) != requirement.strip().startswith("!")
        if not good:
            return False
    return True


def _handler(api):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            url = urlsplit(self.path)
            api.requests.append(self.path)
            if api.fault == "hang":
                api.over.wait(SECONDS)
                return
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            code, document = api.answer(url.path, query, self.headers["Authorization"])
            body = api.fault if isinstance(api.fault, bytes) else json.dumps(document).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    return Handler
