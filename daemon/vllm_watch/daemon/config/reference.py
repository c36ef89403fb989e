# SPDX-License-Identifier: Apache-2.0
"""`daemon/CONFIGURATION.md`, made from the tables by which the configuration files are read."""

from __future__ import annotations

import sys

from collections.abc import Iterator, Mapping

import msgspec

from vllm_watch.daemon.config.config_file import CONFIGURATION
from vllm_watch.daemon.config.section import Key, Section
from vllm_watch.daemon.config.web import WEB_CONFIGURATION


_INTRODUCTION = """\
# Configuration

Made from the code (`make generate`); a test checks that they agree, and that each example is accepted.

`vllm-watch run --config FILE` reads one YAML file. `vllm-watch check --config FILE` checks it. Unknown keys, duplicate
keys, anchors and tags are errors; each message names file, line and key.

* Durations are written `500ms`, `5s`, `2m`, `1h`, or as a number of seconds.
* A relative path starts in the folder of the file that names it.
* Secrets are never in the file, only the names of files that hold them.
* "required" means that the mapping around the key is rejected without it. "-" means that the key has no default.

SIGHUP reads the file and `servers_dir` again. If anything in them is wrong, the old configuration stays. Servers that
did not change, or only in `capacity`, `links`, `gpus`, `cost_per_hour`, `peak_flops` and the path of `log`, continue
undisturbed. A change of `listen`, `allowed_hosts`, `checkpoint` or the path `web_config_file` needs a restart; one of
`prometheus`, `otlp`, `gpu` or `kubernetes` does not. The web configuration file and the certificates that it names are
read again at SIGHUP, and when one of them changes; if anything in them is wrong, the old ones stay.
"""
_LINKS = """\
## Links to logs and GPUs

The dashboards Server and Fleet and the status page show `links` where they are configured. Nothing is read there: a
link opens when somebody clicks it. Everybody who can read the daemon's series can read the URLs, so a URL with a user
name, a password or a token is rejected.

| placeholder | becomes |
|---|---|
| `{server}` | the server's name |
| `{unit}` | the unit of `log`, where that is a journal |
| `{host}` | the host of `metrics`, where that is a name or an IPv4 address |
| `{from}` and `{to}` | a time in milliseconds since the epoch, both in this order |
| `{from_seconds}` and `{to_seconds}` | a time in seconds since the epoch, both in this order |

In a row of the panel Events the time is from shortly before the last such event to shortly after it; elsewhere it is
the dashboard's time range, and on the status page the last hour.

A URL copied from a browser has its braces as `%7B` and `%7D`, and they stay so; only those of placeholders are braces.
Grafana decodes a link before it opens it: `%5C`, `%23`, `%25`, `%26`, `%2B`, backslashes and control characters would
change and are rejected. A path such as `/explore` starts at the root of Grafana's host; if Grafana has a sub-path, it
begins with that. The status page does not know Grafana's host and leaves such links out.

Loki in Grafana's Explore, by the data source's UID (here `loki`; it is in the address of the data source's settings).
The pane has the UID alone; a query has it with the type where the pane is of several data sources (`-- Mixed --`). The
selector is `` {unit=`vllm.service`} ``:

```yaml
servers:
  - name: qwen
    log: {journal: vllm.service}
    links:
      logs: "https://grafana.example.com/explore?schemaVersion=1&orgId=1&panes=%7B%22a%22:%7B%22datasource%22:%22loki%22,%22queries%22:%5B%7B%22refId%22:%22A%22,%22datasource%22:%7B%22type%22:%22loki%22,%22uid%22:%22loki%22%7D,%22expr%22:%22%7Bunit%3D%60{unit}%60%7D%22%7D%5D,%22range%22:%7B%22from%22:%22{from}%22,%22to%22:%22{to}%22%7D%7D%7D"
```

The journal on the server's own host in Cockpit, for all servers, and the dashboard of dcgm-exporter (12239 on
grafana.com, whose UID is `Oxed_c6Wz`) in the same Grafana:

```yaml
links:
  logs: "https://{host}:9090/system/logs#/?priority=debug&follow=false&service={unit}&since=%40{from_seconds}&until=%40{to_seconds}"
  gpu: "/d/Oxed_c6Wz?var-instance={host}:9400&from={from}&to={to}"
servers:
  - name: qwen
    log: {journal: vllm.service}
    metrics: http://gpu1.example.com:8000/metrics
```

systemd-journal-gatewayd takes no time in a URL; this shows the unit's entries since the host's start:

```yaml
servers:
  - name: qwen
    log: {journal: vllm.service}
    metrics: http://gpu1.example.com:8000/metrics
    links:
      logs: "http://{host}:19531/entries?boot&_SYSTEMD_UNIT={unit}"
```
"""
_PROMETHEUS = """\
## Alerts of a Prometheus

The status page shows the alerts of [vllm-watch's rules](../alerts/README.md) that are pending or firing, each at its
server, and so has the snapshot (`alerts`). The daemon asks `/api/v1/alerts` every 10 seconds, in a thread of its own.
When there is no answer, or none of the rules is loaded there, the page and `vllm-watch check` say why, and no older
list is shown. `vllm-watch top` shows what the daemon knows, and with `--config` it asks itself. vmalert, Thanos' ruler
and Mimir (with its path, such as `/prometheus`) have the same API.

Alerts are matched with servers by the label `server`; if several daemons have servers of the same name, the page shows
those of all of them. Whoever can read the status page can read the alerts' texts and links.
"""
_OTLP = """\
## Pushing over OTLP

Where an OpenTelemetry Collector can reach the daemon, its prometheus receiver reads /metrics: nothing has to be
configured here ([deploy/otel/](../deploy/otel/README.md)). `otlp` is for hosts that nobody can reach. With the extra
`otlp` (`pip install '.[otlp]'` in the sources) the daemon pushes all series to one endpoint, by HTTP and protobuf, in a
thread of its own; what is pushed is what /metrics shows at that moment.

* Counters are cumulative sums without `_total`, which receivers put back; those that a server counts begin with the
  server, all others with the daemon. Labels are attributes, `service.instance.id` is the host's name and the port. What
  is absent on /metrics is absent.
* Nothing is kept for later and nothing is sent twice. While the endpoint is gone there is a gap, which
  `otlp_exports_total{outcome}` counts by its reason; the counters go on after it.
* One export ends within `timeout`. Redirects are not followed, and proxies of the environment are not used.
* `vllm-watch check` sends an export without values, and says why it fails.

```yaml
otlp:
  endpoint: https://otlp.example.com/v1/metrics
  interval: 60s
  headers_file: otlp-headers      # Authorization: Bearer …
servers:
  - {name: qwen, log: /var/log/vllm/vllm.log}
```
"""
_GPUS = """\
## GPUs

With the extra `gpu` (`pip install '.[gpu]'` in the sources) the daemon reads NVIDIA's driver, and exports the GPUs that
a watched server uses. Without it nothing is read and nothing is started. The driver is read by a child process: one
that hangs costs only these series.

Which GPUs a server uses is known from its processes on them. The server is found among this machine's processes by the
port of its `metrics`, by the unit of its `log`, or by the path of its `log`. `gpus` says it instead:

* The daemon runs in a container without the host's process numbers (`--pid=host`, `hostPID: true`).
* The server's processes belong to something else, such as Ray.
* Another exporter reads the GPUs (dcgm-exporter, nvidia_gpu_exporter, AMD's). Then give UUIDs, as `nvidia-smi -L` shows
  them, or `AMD-` and the serial number: `server_gpu_info` is exported from them without the extra and without a driver
  here, so that [recording rules](../alerts/README.md#gpus-that-another-exporter-reads) can join the exporter's series
  with the server.

Numbers are those of `nvidia-smi` and may change when the machine boots; those in `CUDA_VISIBLE_DEVICES` may be in
another order. A GPU that is divided into MIG instances is named by the UUID of the instance.

```yaml
gpu:
  interval: 5s
servers:
  - name: qwen
    metrics: http://127.0.0.1:8000/metrics
    gpus: [GPU-5ac2e1b4-0c7e-4d3a-9f1b-2a3b4c5d6e7f, GPU-6bd3f2c5-1d8f-4e4b-8a2c-3b4c5d6e7f80]
    cost_per_hour: 24.60
```
"""
_PODS = """\
## Pods

With `kubernetes` the daemon lists the pods of one namespace that a label selector matches, every 10 seconds, and
scrapes each as a server: the label `server` is the pod's name. It needs the extra
(`pip install '.[kubernetes]'` in the sources; the image has it), and the right to list pods in that namespace and
nothing else: [deploy/kubernetes](../deploy/kubernetes/README.md) has a Role. Without the key nothing of it is loaded.

| pod | what happens |
|---|---|
| not ready yet | it is not watched: vLLM loads its model. Give the pods a readiness probe |
| ready | it is watched from then on, with `metrics`, `probe`, `slo` and the other keys |
| not ready any more, or restarted in place | it stays watched; its alerts fire |
| told to end | it stays watched until it is gone, or until its grace period is over |
| gone, evicted, finished | it is not watched, and its series end with the next scrape by Prometheus |

`kubernetes_pods` counts them by what becomes of them. A pod's log is not read: that takes the
[sidecar](../deploy/kubernetes/README.md). At most 256 pods are watched; VllmWatchUnwell fires for
more. Pods that are also in `servers`, by name or address, are watched as they are configured there.

While Kubernetes does not answer or denies the list, the pods of the last list stay watched; `kubernetes_info` has the
reason, VllmWatchUnwell fires, and `vllm-watch check` says what is missing.

```yaml
kubernetes:
  selector: app=vllm
  namespace: inference
  port: http
  pod_labels: {role: llm-d.ai/role}
  slo: chat
```
"""
_WEB = """\
## The web configuration file

The file that `web_config_file` names, in the format of Prometheus' exporter-toolkit. Keys of that format that
vllm-watch cannot honour are rejected, never ignored.
"""
_HEAD = "| key | type | default | example | meaning |\n|---|---|---|---|---|"


def document() -> str:
    """Return the whole document."""
    parts = [_INTRODUCTION, "## The file\n", _table(CONFIGURATION), *_sections(CONFIGURATION, ""), _LINKS, _PROMETHEUS]
    parts += [_OTLP, _GPUS, _PODS, _WEB, _table(WEB_CONFIGURATION), *_sections(WEB_CONFIGURATION, "")]
    return "\n".join(parts)


def _sections(section: Section, path: str) -> Iterator[str]:
    """Yield heading and table of each mapping below a section, outer ones first."""
    for name, key in section.keys.items():
        if key.section is not None:
            below = f"{path}{name}{'[]' if key.expects.startswith('list') else ''}"
            yield f"## `{below}`\n"
            yield _table(key.section)
            yield from _sections(key.section, f"{below}.")


def _table(section: Section) -> str:
    fields = {field.name: field for field in msgspec.structs.fields(section.of)}
    rows = [_row(name, key, fields[name]) for name, key in section.keys.items() if key.example]
    return "\n".join([_HEAD, *rows]) + "\n"


def _row(name: str, key: Key, field: msgspec.structs.FieldInfo) -> str:
    return f"| `{name}` | {key.expects} | {_default(field)} | `{key.example}` | {key.meaning} |"


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    default = field.default
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, float):
        return f"`{default:g}s`"
    if not default or isinstance(default, Mapping | msgspec.Struct):
        return "-"
    return f"`{default}`"


if __name__ == "__main__":
    sys.stdout.write(document())
