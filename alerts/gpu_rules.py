# SPDX-License-Identifier: Apache-2.0
"""
Makes a file of recording rules for each exporter of ``gpu_exporters.yml`` (``make generate``, by ``render.py``).

A recorded series has the name and the labels that the daemon would give it, with `instance` and `job` of the daemon
whose server uses the GPU. So what is made for the daemon's own series is as good for these. Where the daemon reads the
GPUs of a server itself nothing is recorded of them: there would be two values of one series.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import yaml

from vllm_watch.daemon.gpu.device import ACTIONS
from vllm_watch_parsers.kernel_messages import BY_CODE, OTHER, XID_CLASSES


WANTED = "gpu:vllm_watch_server_gpu_info:unread"
"""The recorded series of the GPUs that are wanted: those of servers whose daemon does not read them."""
UNCOUNTED = "gpu:vllm_watch_server_gpu_info:uncounted"
"""The recorded series of the GPUs whose Xid errors are wanted: the daemon counts those of the others."""
SHOWN_BY = "gpu:vllm_watch_gpu_info:shown_by"
"""The recorded series of which exporter shows a GPU: one that is gone does not say that its GPUs are."""
INFO_LABELS = ("index", "name", "pci_bus_id", "driver_version", "vendor", "mig")

_HEAD = """\
# SPDX-License-Identifier: Apache-2.0
# Made by `make generate` from gpu_exporters.yml: change that.
# What {name} ({releases}) has of the GPUs of watched
# servers, under the names of vllm-watch's own series.
# Load one of the files of this folder, or none: see "GPUs that another exporter reads" in alerts/README.md.
groups:
  - name: vllm-watch-gpus-of-{file}
    interval: 15s
    rules:
      # The GPUs of servers whose daemon does not read the driver.
      - record: {wanted}
        expr: >-
          max by (gpu, instance, job) (
            vllm_watch_server_gpu_info
            unless on (instance, job, server) vllm_watch_source_up{{source="gpu"}} == 1
          )
"""

_XID_HEAD = """\
      # The GPUs whose errors in the kernel's log the daemon does not count: it does not read the log, or neither the
      # driver nor the log has said which GPU (UUID) is where.
      - record: {wanted}
        expr: >-
          max by (gpu, instance, job) (
            vllm_watch_server_gpu_info
            unless on (instance, job, server) (
              vllm_watch_source_up{{source="gpu"}} == 1 and on (instance, job) vllm_watch_kernel_log_up == 1
            )
          )
          unless on (gpu) (
            vllm_watch_gpu_xid_events_total{{gpu!="",pci_bus_id!=""}}
            and on (instance, job) vllm_watch_kernel_log_up == 1
          )
"""
# A count that was not there 30 s before is new, if the exporter was scraped then. One that is another now has grown, or
# the exporter has started again and counts anew. Whichever daemon's it is: they come and go.
_XID_GREW = """\
timestamp(
  vllm_watch_gpu_xid_events_total{{gpu!="",pci_bus_id=""}}
  and on (gpu, xid) (
    max by (gpu, xid) (vllm_watch_gpu_xid_events_total{{gpu!="",pci_bus_id=""}})
    != max by (gpu, xid) (vllm_watch_gpu_xid_events_total{{gpu!="",pci_bus_id=""}} offset 30s)
  )
  or (
    vllm_watch_gpu_xid_events_total{{gpu!="",pci_bus_id=""}}
    unless on (gpu, xid) vllm_watch_gpu_xid_events_total{{gpu!="",pci_bus_id=""}} offset 30s
    and on (gpu) {wanted} offset 30s
    and on (gpu) {shown}
  )
)
or vllm_watch_gpu_xid_last_timestamp_seconds{{gpu!="",pci_bus_id=""}} and on (gpu) {wanted}"""


class Value(msgspec.Struct, forbid_unknown_fields=True):
    """A quantity as an exporter has it; ``gpu_exporters.yml`` says what each field is, here as in the other classes."""

    names: list[str]
    unit: str = ""
    kept: str = ""
    added: list[str] = []
    beside: str = ""
    matchers: str = ""
    of_several: str = "max"


class Label(msgspec.Struct, forbid_unknown_fields=True):
    """A label that is made with `label_replace`."""

    name: str
    value: str
    source: str = ""
    pattern: str = ""


class Identity(msgspec.Struct, forbid_unknown_fields=True):
    """Samples that say which GPUs there are, all divided (MIG) or none."""

    selector: str
    mig: str


class Xids(msgspec.Struct, forbid_unknown_fields=True):
    """Xid errors as an exporter has them."""

    events: str
    last: str = ""
    shown: list[str] = []


class Exporter(msgspec.Struct, forbid_unknown_fields=True):
    """An exporter; the keys of `readings` are a series and its labels, with spaces between."""

    name: str
    file: str
    releases: str
    prefixes: list[str]
    keys: list[Label]
    labels: list[Label]
    identities: list[Identity]
    readings: dict[str, list[Value]]
    matchers: str = ""
    xids: Xids | None = None


def rendered_gpu_rules() -> dict[str, str]:
    """Return each file's text by its name."""
    text = Path(__file__).with_name("gpu_exporters.yml").read_text(encoding="utf-8")
    exporters = msgspec.convert(yaml.safe_load(text), list[Exporter])
    return {f"{exporter.file}.yml": _file(exporter) for exporter in exporters}


def _file(exporter: Exporter) -> str:
    head = _HEAD.format(name=exporter.name, releases=exporter.releases, file=exporter.file, wanted=WANTED)
    identity = (_shown_by(exporter), _rule("gpu_info", _info(exporter)))
    xids = "" if exporter.xids is None else _xids(exporter, exporter.xids)
    return head + "".join([*identity, *_readings(exporter)]) + xids


def _readings(exporter: Exporter) -> Iterator[str]:
    for key, values in exporter.readings.items():
        series, *pairs = key.split()
        labels = dict(pair.split("=") for pair in pairs)
        if series == "gpu_recovery_action":  # A state set, of NVIDIA's numbers.
            for number, action in ACTIONS.items():
                yield _reading(exporter, series, values, {"action": action}, f"== bool {number}")
            yield _reading(exporter, series, values, {"action": "other"}, f"> bool {max(ACTIONS)}")
        else:
            yield _reading(exporter, series, values, labels)


def _reading(
    exporter: Exporter, series: str, values: Sequence[Value], labels: Mapping[str, str], compared: str = ""
) -> str:
    found = "\nor\n".join(_value(exporter, value, compared or value.unit) for value in values)
    joined = f"(\n{_indented(found)}\n)\n* on (gpu) group_right () {WANTED}"
    return _rule(series, joined, ", ".join(f"{name}: {value}" for name, value in labels.items()))


def _value(exporter: Exporter, value: Value, unit: str) -> str:
    """Return the value of each GPU, in its base unit, by the label `gpu` alone."""
    names = [value.names, *([name] for name in value.added)]
    parts = [_by_gpu(exporter, each, value) for each in names]
    whole = parts[0] if len(parts) == 1 else "(" + "\n+ ".join(parts) + ")"
    beside = f"\nand {_by_gpu(exporter, [value.beside], value)}" if value.beside else ""
    return " ".join(filter(None, (whole, unit))) + beside


def _by_gpu(exporter: Exporter, quantities: Sequence[str], value: Value) -> str:
    names = [prefix + name for name in quantities for prefix in exporter.prefixes]
    matchers = f"{exporter.matchers}{value.matchers}".removeprefix(", ")
    if len(names) > 1:
        any_name = f'__name__=~"{"|".join(names)}"'
        selector = f"{{{any_name}, {matchers}}}" if matchers else f"{{{any_name}}}"
    else:
        selector = f"{names[0]}{{{matchers}}}" if matchers else names[0]
    samples = " ".join(filter(None, (selector, value.kept)))
    return f"{value.of_several} by (gpu) (\n{_indented(_labelled(samples, exporter.keys))}\n)"


def _info(exporter: Exporter) -> str:
    """Return one sample of each GPU, even if an exporter is scraped twice, or shows each of a GPU's parts."""
    labels = ", ".join(INFO_LABELS)
    found = "\nor on (gpu)\n".join(_identity(exporter, each) for each in exporter.identities)
    return f"{WANTED}\n* on (gpu) group_left ({labels}) (\n{_indented(found)}\n)"


def _shown_by(exporter: Exporter) -> str:
    """Return the rule of which exporter shows a GPU, by the address that it is scraped at."""
    labels = [Label("exporter", "$1", "instance", "(.+)"), *exporter.keys]
    found = "\nor\n".join(_labelled(each.selector, labels) for each in exporter.identities)
    shown = f"group by (gpu, exporter) (\n{_indented(found)}\n)\nand on (gpu) {WANTED}"
    return f"      - record: {SHOWN_BY}\n        expr: |-\n{_indented(shown, 10)}\n"


def _identity(exporter: Exporter, identity: Identity) -> str:
    # The index is made of a label `gpu` before that gets its own value.
    labels = [*exporter.labels, Label("mig", identity.mig), *exporter.keys]
    labelled = _labelled(identity.selector, labels)
    return f"topk by (gpu) (1, group by (gpu, {', '.join(INFO_LABELS)}) (\n{_indented(labelled)}\n))"


def _xids(exporter: Exporter, xids: Xids) -> str:
    """
    Return the rules of Xid errors: how many there were, and when the last was.

    A GPU has several, and may be wanted by several daemons: each is recorded for one of these.
    """
    wanted = f"\n* on (gpu) group_left (instance, job) topk by (gpu) (1, {UNCOUNTED})"
    # The samples of a GPU that is shared are those of each pod: they are one.
    once = f"max by (gpu, code, xid, class) (\n{_indented(_classified(exporter, xids.events))}\n)"
    events = f"sum by (gpu, xid, class) ({once}){wanted}"
    if xids.last:
        last = f"max by (gpu, xid, class) (\n{_indented(_classified(exporter, xids.last))}\n){wanted}"
    else:
        shown = _by_gpu(exporter, xids.shown, Value(xids.shown, kept="offset 30s"))
        last = _XID_GREW.format(shown=_indented(shown, 4).lstrip(), wanted=UNCOUNTED)
    rules = (_rule("gpu_xid_events_total", events), _rule("gpu_xid_last_timestamp_seconds", last))
    return _XID_HEAD.format(wanted=UNCOUNTED) + "".join(rules)


def _classified(exporter: Exporter, name: str) -> str:
    """Return Xid errors with their class; codes that are not in the table are one, as they are for the daemon."""
    unknown = BY_CODE[OTHER].group
    labels = [Label("code", "$1", "xid", "(.+)"), Label("class", unknown)]
    for group in XID_CLASSES:
        numbers = [code for code, each in BY_CODE.items() if each.group == group and code.isdecimal()]
        if numbers:
            labels.append(Label("class", group, "xid", "|".join(numbers)))
    labels.append(Label("xid", OTHER, "class", unknown))
    selector = f"{name}{{{exporter.matchers}}}" if exporter.matchers else name
    return _labelled(selector, [*labels, *exporter.keys])


def _labelled(samples: str, labels: Sequence[Label]) -> str:
    """Return samples with more labels; what makes a label is written below the samples, the first one first."""
    made = (f'  "{label.name}", "{label.value}", "{label.source}", "{label.pattern}")' for label in labels)
    return "label_replace(" * len(labels) + f"\n  {samples},\n" + ",\n".join(made)


def _rule(series: str, expression: str, labels: str = "") -> str:
    text = f"      - record: vllm_watch_{series}\n        expr: |-\n{_indented(expression, 10)}\n"
    return text + (f"        labels: {{{labels}}}\n" if labels else "")


def _indented(text: str, spaces: int = 2) -> str:
    return "\n".join(" " * spaces + line for line in text.split("\n"))
