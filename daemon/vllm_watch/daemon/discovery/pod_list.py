# SPDX-License-Identifier: Apache-2.0
"""
Lists the pods of a namespace: the only module that needs the extra `kubernetes`.

lightkube finds the API server, the token and the authority, and reads a kubeconfig.
The list is read whole each time, in pages. A watch would hear of a change at once, but has to be told apart from one
that has silently ended, needs one more right, and has to list again after each interruption: for servers that take
minutes to start, ten seconds are soon enough.
"""

from __future__ import annotations

import http.client
import os
import socket
import ssl

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import httpx2
import msgspec
import yaml

from lightkube import Client
from lightkube.config.kubeconfig import SERVICE_ACCOUNT, KubeConfig, SingleConfig
from lightkube.core.client import LabelValue as Selected
from lightkube.core.exceptions import ApiError, ConfigError
from lightkube.models.core_v1 import PodStatus
from lightkube.resources.core_v1 import Pod as ApiPod

from vllm_watch.daemon.catalog.reasons import KubernetesReason
from vllm_watch.daemon.config.model import KubernetesConfig
from vllm_watch.daemon.discovery.pods import Pod, PodContainer, PodPort, PodsError
from vllm_watch.daemon.support.errors import reason_by_cause


TIMEOUT = 8.0
"""Seconds for each wait on the way."""

PAGE = 100
MAX_LISTED = 1000
"""Pods of one list: more are refused, for a selector so wide is a mistake."""

MAX_LABEL = 63
"""Characters of a pod's label: Kubernetes takes no more, and lightkube checks neither length nor type."""

_BY_STATUS: dict[int, KubernetesReason] = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    410: "expired",
    422: "bad_request",
}
_UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, msgspec.MsgspecError)
"""What lightkube raises for an answer that is not Kubernetes'."""

_UNUSABLE = (*_UNREADABLE, ConfigError, OSError, yaml.YAMLError)
"""What lightkube raises for a kubeconfig or a token that cannot be used."""

_CAUSES: tuple[tuple[tuple[type[BaseException], ...], KubernetesReason], ...] = (
    ((socket.gaierror, UnicodeError), "name_not_resolved"),
    ((ssl.SSLError,), "tls_error"),
    ((ConnectionRefusedError,), "refused"),
    ((TimeoutError, httpx2.TimeoutException), "timeout"),
    ((httpx2.RemoteProtocolError, httpx2.DecodingError, http.client.HTTPException), "no_kubernetes"),
    ((OSError, httpx2.TransportError), "unreachable"),
)
"""The first row that has an exception's cause decides."""


class PodLister:
    """
    Lists the pods that a configuration selects; one list at a time.

    Args:
        config: Which pods.
        service_account: Where Kubernetes puts a pod's token.

    Raises:
        PodsError: There are no credentials; and of each method: the pods cannot be listed.
    """

    def __init__(self, config: KubernetesConfig, service_account: str = SERVICE_ACCOUNT) -> None:
        try:
            cluster = _cluster(config.kubeconfig, service_account)
            self._client = Client(cluster, timeout=httpx2.Timeout(TIMEOUT), trust_env=False)
        except _UNUSABLE as error:
            raise PodsError("no_credentials", str(error)) from error
        self._selector = config.selector
        self.namespace = config.namespace or cluster.namespace
        """The namespace whose pods are listed."""

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def pods(self) -> tuple[Pod, ...]:
        """Return the pods that the selector matches."""
        # lightkube builds a selector of pairs; a name that only has to exist is written as it is.
        labels: dict[str, Selected] = {self._selector: None}
        found = []
        with _reasons():
            for each in self._client.list(ApiPod, namespace=self.namespace, chunk_size=PAGE, labels=labels):
                found.append(_pod(each))
                if len(found) > MAX_LISTED:
                    raise PodsError("too_many")
        return tuple(found)


def _cluster(kubeconfig: str | None, service_account: str) -> SingleConfig:
    if kubeconfig is not None:
        found = KubeConfig.from_file(kubeconfig).get()
    elif "KUBERNETES_SERVICE_HOST" in os.environ:
        found = KubeConfig.from_service_account(service_account).get()
    else:
        found = None
    if found is None:
        raise PodsError("no_credentials")
    return found


@contextmanager
def _reasons() -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        raise PodsError("no_credentials", str(error)) from error
    except ApiError as error:
        code = error.status.code or 0
        raise PodsError(_BY_STATUS.get(code, "api_error"), error.status.message or "") from error
    except httpx2.HTTPStatusError as error:
        raise PodsError(_BY_STATUS.get(error.response.status_code, "api_error")) from error
    except (httpx2.HTTPError, OSError) as error:
        raise PodsError(reason_by_cause(error, _CAUSES) or "unreachable", str(error)) from error
    except _UNREADABLE as error:
        raise PodsError("no_kubernetes", type(error).__name__) from error


def _pod(pod: ApiPod) -> Pod:
    meta, status = pod.metadata, pod.status or PodStatus()
    if meta is None or meta.name is None or meta.uid is None:
        raise ValueError("a pod without a name")
    ready = next((each for each in status.conditions or () if each.type == "Ready"), None)
    return Pod(
        uid=meta.uid,
        name=meta.name,
        labels={name: str(value)[:MAX_LABEL] for name, value in (meta.labels or {}).items()},
        phase=status.phase or "",
        ip=status.podIP or "",
        containers=tuple(_containers(pod, status)),
        is_ready=ready is not None and ready.status == "True",
        started_at=_seconds(status.startTime),
        readiness_changed_at=None if ready is None else _seconds(ready.lastTransitionTime),
        ends_at=_seconds(meta.deletionTimestamp),
    )


def _containers(pod: ApiPod, status: PodStatus) -> Iterator[PodContainer]:
    """Yield the pod's containers, then those that run beside them."""
    if pod.spec is None:
        return
    restarts = {
        each.name: each.restartCount
        for each in [*(status.containerStatuses or ()), *(status.initContainerStatuses or ())]
    }
    for each in [*pod.spec.containers, *(pod.spec.initContainers or ())]:
        ports = tuple(PodPort(port.name or "", port.containerPort) for port in each.ports or ())
        yield PodContainer(ports, restarts.get(each.name, 0))


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
