# SPDX-License-Identifier: Apache-2.0
"""What is read out of sources, which are written here in vLLM's manner: families, statistics, messages."""

from __future__ import annotations

from textwrap import dedent

import pytest

from tests.drift.families import extract_families, ray_facts, registered_names
from tests.drift.messages import extract_messages
from tests.drift.modules import Project
from tests.drift.source_tree import DriftError


LOGGERS = "vllm/v1/metrics/loggers.py"
HEAD = """
from prometheus_client import Counter, Gauge, Histogram

class PrometheusStatLogger:
    _gauge_cls = Gauge
    _counter_cls = Counter
    _histogram_cls = Histogram

    def __init__(self, config):
        labelnames = ["model_name", "engine"]
"""


def project(**files):
    """Return a project of files, by the last part of their paths."""
    return Project(
        {LOGGERS if name == "loggers" else f"vllm/v1/{name}.py": dedent(each) for name, each in files.items()}
    )


def families_of(body, **files):
    """Return the families that a logger's constructor makes, without the engine and the place."""
    indented = "".join(f"        {line}\n" for line in dedent(body).strip().splitlines())
    found = extract_families(project(loggers=HEAD + indented, **files))
    return {family.name: family for family in found}


def test_a_family_has_its_name_type_labels_and_buckets():
    """All that a constructor says is read, with the line where it stands."""
    (family,) = families_of("""
        self._histogram_cls(
            name="vllm:queue_seconds", documentation="Time " "waited.", buckets=[0.5, 1, 2.5],
            labelnames=labelnames + ["reason"])
    """).values()

    assert (family.name, family.type, family.engine) == ("vllm:queue_seconds", "histogram", "V1")
    assert family.labels == ("model_name", "engine", "reason")
    assert (family.buckets, family.is_hidden) == ((0.5, 1, 2.5), False)
    assert family.place == f"{LOGGERS}:11"


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("Counter('vllm:direct', 'Help.', ['a'])", {"vllm:direct"}),
        ("name = 'vllm:named'\nself._gauge_cls(name=name, documentation='')", {"vllm:named"}),
        ("prefix = 'vllm:kv'\nself._gauge_cls(name=f'{prefix}_used', documentation='')", {"vllm:kv_used"}),
        ("prefix = 'vllm:kv'\nself._gauge_cls(name=prefix + '_used', documentation='')", {"vllm:kv_used"}),
        (
            "for name, text in (('vllm:a', 'A.'), ('vllm:b', '')): self._counter_cls(name=name, documentation=text)",
            {"vllm:a", "vllm:b"},
        ),
        (
            (
                "if config.is_diffusion:\n    specs = ['vllm:steps']\nelse:\n    specs = ['vllm:drafts']\n"
                "made = [self._counter_cls(name=name, documentation='') for name in specs]"
            ),
            {"vllm:steps", "vllm:drafts"},
        ),
        (
            "for way in ('load', 'store'):\n    self._counter_cls(name=f'vllm:kv_{way}_bytes', documentation='')",
            {"vllm:kv_load_bytes", "vllm:kv_store_bytes"},
        ),
        ("self._gauge_cls(name=config.name, documentation='')", {"{config.name}"}),
        ("self._gauge_cls(name=f'vllm:{config.name}', documentation='')", {"vllm:{config.name}"}),
        ("from collections import Counter as C\nC(name='vllm:no', documentation='')", set()),
        ("logger.info('vllm:no %s', documentation='')", set()),
    ],
)
def test_names_are_found_however_they_are_made(body, names):
    """Literals, variables, f-strings, sums and loops are followed; what the sources do not say stays visible."""
    assert set(families_of(body)) == names


def test_a_name_and_labels_are_followed_through_imports_classes_and_calls():
    """A constant of another module, a class's attribute and what a caller passes have their values."""
    found = families_of(
        "self.transfers = Transfers(config, labelnames)\nself.more = self._other_cls(config, labels=labelnames)",
        transfers="""
            from prometheus_client import Counter
            from vllm.v1.names import PREFIX, Names
            class Transfers:
                def __init__(self, config, labelnames):
                    Counter(name=Names.BYTES, documentation="", labelnames=labelnames)
                    Counter(name=f"{PREFIX}:time", documentation="", labelnames=labelnames + ["way"])
        """,
        names="""
            PREFIX = "vllm"
            class Names:
                BYTES = "vllm:bytes"
        """,
    )

    assert {name: family.labels for name, family in found.items()} == {
        "vllm:bytes": ("model_name", "engine"),
        "vllm:time": ("model_name", "engine", "way"),
    }


def test_a_table_of_metadata_is_one_of_families():
    """Entries of a dict and assignments to one are families with the engine's labels and their own."""
    found = families_of(
        "pass",
        offload="""
            class Names:
                LOADS = "vllm:kv_loads"
            def definitions() -> dict[str, OffloadingMetricMetadata]:
                table = {Names.LOADS: OffloadingCounterMetadata(documentation="Loads.")}
                table["vllm:kv_sizes"] = OffloadingHistogramMetadata(
                    documentation="", labelnames=("tier",), buckets=(1, 2))
                return table
        """,
    )

    assert {name: (each.type, each.labels, each.buckets) for name, each in found.items()} == {
        "vllm:kv_loads": ("counter", ("model_name", "engine"), ()),
        "vllm:kv_sizes": ("histogram", ("model_name", "engine", "tier"), (1, 2)),
    }


@pytest.mark.parametrize(
    ("buckets", "expected"),
    [
        ("[1, 2][1:]", (2,)),
        ("[2 ** (10 + i) for i in range(1, 4)]", (2048, 4096, 8192)),
        ("fixed('small')", (1, 2)),
        ("fixed('large')", (8, 9)),
        ("fixed(config.size)", (8, 9)),
        ("up_to(config.max_model_len)", "up_to(config.max_model_len)"),
        ("config.sizes", "config.sizes"),
    ],
)
def test_buckets_are_numbers_or_the_expression_that_makes_them(buckets, expected):
    """Slices, ranges and functions with branches have numbers; what depends on the server is told as it stands."""
    found = families_of(
        f"from vllm.v1.buckets import fixed, up_to\n"
        f"self._histogram_cls(name='vllm:h', documentation='', buckets={buckets})",
        buckets="""
            TABLE = {"large": (8, 9)}
            def fixed(kind):
                if kind == "small":
                    return [1, 2]
                return list(TABLE["large"])
            def up_to(most):
                found = []
                while True:
                    found.append(most)
                return found
        """,
    )

    assert found["vllm:h"].buckets == (expected if buckets != "fixed(config.size)" else (1, 2))


def test_a_hidden_family_is_told_from_others():
    """A family inside `if show_hidden_metrics` is there only for who asks for it."""
    found = families_of("""
        if self.show_hidden_metrics:
            self._gauge_cls(name="vllm:old", documentation="")
        self._gauge_cls(name="vllm:new", documentation="")
    """)

    assert {name: family.is_hidden for name, family in found.items()} == {"vllm:old": True, "vllm:new": False}


RAY = """
    from prometheus_client import Gauge
    class RayMetric:
        def labels(self, labels):
            labels.append("ReplicaId")
            self.name = re.sub(r"[^a-z]", "_", self.name)
    class RayGaugeWrapper(RayMetric):
        def __init__(self, name, documentation=""):
            self.metric = ray_metrics.Gauge(name=name, description=documentation, labelnames=[])
    class RayLogger(StatLogger):
        _gauge_cls = RayGaugeWrapper
"""


def test_wrappers_of_ray_are_no_families():
    """A class that hands a name on to Ray makes the same families as the one that it stands for."""
    assert set(families_of("self._gauge_cls(name='vllm:running', documentation='')", ray_metrics=RAY)) == {
        "vllm:running"
    }


def test_the_way_to_ray_is_told():
    """Which classes stand in for others is read, with the labels that they add and the characters that they replace."""
    assert ray_facts(project(ray_metrics=RAY)) == (
        "RayLogger: _gauge_cls is RayGaugeWrapper",
        "in names [^a-z] becomes _",
        "label: ReplicaId",
    )


STATISTICS = """
class LoggingStatLogger:
    @property
    def log_prefix(self):
        return "Engine {:03d}: ".format(self.engine_index)

    def log(self):
        log_fn = logger.debug if self.is_idle else logger.info
        parts = ["Running: %d reqs", "Waiting: %d reqs"]
        if self.deferred:
            parts.append("Deferred: %d reqs")
        parts.extend(["GPU KV cache usage: %.1f%%"])
        log_fn(self.log_prefix + ", ".join(parts), *args)

class AggregatedLogger(LoggingStatLogger):
    @property
    def log_prefix(self):
        return "{} Engines Aggregated: ".format(self.number)
"""


def formats_of(**files):
    """Return the formats of a project's messages by level."""
    return {(each.level, each.format) for each in extract_messages(project(**files))}


def test_a_line_that_is_joined_from_parts_shows_which_are_optional():
    """Parts that are appended in a condition stand in brackets, in their order, and each prefix makes a line."""
    parts = "Running: %d reqs, Waiting: %d reqs⟦, Deferred: %d reqs⟧, GPU KV cache usage: %.1f%%"

    assert formats_of(loggers=STATISTICS) == {
        ("INFO", "Engine {:03d}: " + parts),
        ("INFO", "{} Engines Aggregated: " + parts),
    }


def test_messages_have_their_levels_and_exceptions_their_names():
    """What is logged once is logged; a text in a variable, in both branches, and a raised one are found."""
    assert formats_of(
        core="""
            def start(self):
                message = "took %.2f s"
                if self.verbose:
                    message = "took %.2f s in all"
                logger.info_once(message, seconds)
                logger.exception("It %s.", what)
                raise ValueError(f"No room for {size:.1f} GiB")
        """
    ) == {
        ("INFO", "took %.2f s"),
        ("INFO", "took %.2f s in all"),
        ("ERROR", "It %s."),
        ("RAISED", "ValueError: No room for {:.1f} GiB"),
    }


def test_the_line_of_a_connector_is_made_of_its_statistics_keys():
    """For each class whose `reduce` returns a dict there is a line with the keys of it."""
    found = formats_of(
        metrics="""
            class KVConnectorLogging:
                def log(self, log_fn):
                    log_fn("KV Transfer metrics: %s", ", ".join(items))
        """,
        nixl="""
            class NixlStats(KVConnectorStats):
                def reduce(self):
                    counts = {"Num failed": self.failed}
                    counts[f"{self.operation}_bytes"] = 1
                    return {"Num transfers": 0, **counts}
        """,
    )

    assert ("INFO", "KV Transfer metrics: Num failed={}, {self.operation}_bytes={}, Num transfers={}") in found


@pytest.mark.parametrize(
    "source",
    [
        "logger.info(" + " + ".join(["'a'"] * 800) + ")",
        "a = b\nb = a\nlogger.info(a + b)",
        "def f(x):\n    return g(x)\ndef g(x):\n    return f(x)\nlogger.info(f(1))",
        "class A(B):\n    x = x\nclass B(A):\n    y = A.x\n    def f(self):\n        logger.info(self.y)",
        "x = [x for x in x]\nlogger.info(x[0])",
    ],
    ids=["long", "names", "functions", "classes", "comprehension"],
)
def test_sources_in_circles_and_of_any_length_are_read(source):
    """What refers to itself, or is hundreds of times as long as usual, ends as something that is not known."""
    assert extract_messages(project(core=source + "\nlogger.info('after')"))[-1].format == "after"


def test_a_file_in_a_newer_syntax_is_named():
    """A file that this Python cannot parse is told with its line, for nobody knows what is in it."""
    with pytest.raises(DriftError, match=r"^vllm/v1/core\.py line 2 is in no syntax that Python 3\.\d+\.\d+ knows"):
        extract_messages(project(core="logger.info('one')\nlazy import this\n"))


def test_names_of_the_rust_front_end_are_those_that_it_registers():
    """The text of calls that register a family has its name; tests of the sources have none."""
    metrics = 'registry.register(\n    "vllm:num_requests_running",\n    "Help",\n    running.clone(),\n);\n'
    tests = '#[cfg(test)]\nmod tests {\n  registry.register("vllm:made_up", "x", y);\n}\n'

    assert registered_names({"rust/src/metrics/src/lib.rs": metrics + tests}) == ("vllm:num_requests_running",)
