# SPDX-License-Identifier: Apache-2.0
"""The checkpoint: whatever happens to it, it is whole or it is refused."""

from __future__ import annotations

import errno
import json
import os
import random
import resource
import shutil
import stat
import tempfile

from pathlib import Path

import msgspec
import pytest

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.logs import run_child
from tests.support.samples import sample

import vllm_watch.daemon.sources.checkpoint as module

from vllm_watch.daemon.sources.checkpoint import (
    MAX_SIZE,
    SAVE_INTERVAL,
    CheckpointFile,
    FilePosition,
    JournalPosition,
    Loaded,
    Positions,
    ServerChange,
)
from vllm_watch.daemon.state.facts import EngineFacts, Facts
from vllm_watch.daemon.state.kept_facts import KeptFacts, KeptFlags, KnownUse
from vllm_watch.daemon.state.snapshot import ConfigChange, FlagChange


NOW = 1_795_000_000.0
KILLS = sample(20, whole=100)
PYTHONPATH = os.pathsep.join(filter(None, [str(Path(module.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]))
FILE = FilePosition("/var/log/vllm/vllm.log", 64768, 1311, 123_456, 256, 0xDEADBEEF, 256, 7)
JOURNAL = JournalPosition("vllm.service", "s=6c;i=4f2;b=1e;m=9;t=5;x=a1")
POSITIONS = Positions((FILE,), (JOURNAL,))
OTHERS = Positions((replace(FILE, offset=200_000),), (JOURNAL,))


@pytest.fixture
def path(tmp_path):
    """Where the checkpoint is to stand."""
    return tmp_path / "checkpoint.json"


def document(**changes):
    """Return a good document with some keys changed; `None` takes a key away."""
    good = {"version": 1, "written": NOW, **msgspec.to_builtins(POSITIONS)}
    return {key: value for key, value in {**good, **changes}.items() if value is not None}


def damaged_file(**changes):
    """Return a document whose one file has some fields changed."""
    return json.dumps(document(files=[{**msgspec.to_builtins(FILE), **changes}])).encode()


def loaded(path, now=NOW):
    """Load the checkpoint as the next run would."""
    return CheckpointFile(str(path)).load(now)


def test_writes_are_seconds_apart(path):
    """Changed positions are written every 5 s, and at once when forced."""
    checkpoint = CheckpointFile(str(path))
    checkpoint.save(OTHERS, NOW)

    assert not checkpoint.save(POSITIONS, NOW + SAVE_INTERVAL - 0.1)
    assert checkpoint.save(POSITIONS, NOW + SAVE_INTERVAL)
    assert POSITIONS == loaded(path).positions
    assert checkpoint.save(OTHERS, NOW + SAVE_INTERVAL + 0.1, force=True)
    assert OTHERS == loaded(path).positions


def test_unchanged_positions_are_not_written(path):
    """The same positions leave the file as it is, even when forced."""
    checkpoint = CheckpointFile(str(path))
    checkpoint.save(POSITIONS, NOW)
    before = path.stat()

    assert checkpoint.save(POSITIONS, NOW + 100, force=True)
    assert before == path.stat()


def test_a_file_that_someone_removed_is_written_again(path):
    """Positions that were saved but are not there any more are saved again."""
    checkpoint = CheckpointFile(str(path))
    checkpoint.save(POSITIONS, NOW)
    path.unlink()

    assert checkpoint.save(POSITIONS, NOW + SAVE_INTERVAL)
    assert POSITIONS == loaded(path).positions


def test_only_the_owner_may_read_it(path):
    """The file's mode is 0600 whatever the umask."""
    umask = os.umask(0)
    try:
        CheckpointFile(str(path)).save(POSITIONS, NOW)
    finally:
        os.umask(umask)

    assert 0o600 == stat.S_IMODE(path.stat().st_mode)


def test_t25_a_full_disk_leaves_the_old_checkpoint(path):
    """T25: a write that the system cuts off is counted, and what was saved before stays."""
    checkpoint = CheckpointFile(str(path))
    checkpoint.save(POSITIONS, NOW)
    many = Positions(tuple(replace(FILE, path=f"/log/{number}") for number in range(1000)))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
    try:
        is_saved = checkpoint.save(many, NOW + 10)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert (False, 1, os.strerror(errno.EFBIG)) == (is_saved, checkpoint.failures, checkpoint.last_error)
    assert Loaded(POSITIONS, "ok") == loaded(path)
    assert [path] == list(path.parent.iterdir())
    assert checkpoint.save(many, NOW + 20)
    assert "" == checkpoint.last_error
    assert many == loaded(path).positions


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS])
def test_t25_an_error_when_bytes_are_forced_out_is_counted(path, code, monkeypatch):
    """T25: a disk that fails only at fsync has not saved anything."""
    checkpoint = CheckpointFile(str(path))
    checkpoint.save(POSITIONS, NOW)

    def fail(_descriptor):
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(module.os, "fsync", fail)
        is_saved = checkpoint.save(OTHERS, NOW + 10)

    assert (False, 1, os.strerror(code)) == (is_saved, checkpoint.failures, checkpoint.last_error)
    assert POSITIONS == loaded(path).positions


def test_t26_a_folder_that_is_gone_and_comes_back(tmp_path):
    """T26: without its folder the checkpoint fails and counts; with it, it is saved again."""
    folder = tmp_path / "state"
    folder.mkdir()
    checkpoint = CheckpointFile(str(folder / "checkpoint.json"))
    checkpoint.save(POSITIONS, NOW)
    shutil.rmtree(folder)

    assert not checkpoint.save(OTHERS, NOW + 10)
    assert (1, os.strerror(errno.ENOENT)) == (checkpoint.failures, checkpoint.last_error)
    assert "absent" == loaded(folder / "checkpoint.json").reason
    folder.mkdir()
    assert checkpoint.save(OTHERS, NOW + 20)


# Fills a file system of 16 KiB, then saves; says what came of it and what is loaded afterwards.


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_t26_something_else_in_its_place(path, make):
    """T26: a pipe or a folder in the checkpoint's place is refused without waiting."""
    make(path)

    assert Loaded(Positions(), "unreadable") == loaded(path)


T28 = {
    "empty": (b"", "empty"),
    "blank": (b" \n\n", "empty"),
    "cut": (json.dumps(document()).encode()[:-9], "not_json"),
    "nuls": (bytes(512), "not_json"),
    "binary": (bytes(range(128, 256)), "not_json"),
    "deep": (b"[" * 100_000, "not_json"),
    "endless number": (b'{"version": ' + b"9" * 100_000 + b"}", "not_json"),
    "twice": (json.dumps(document()).encode() * 2, "not_json"),
    "list": (b"[]", "wrong_shape"),
    "text": (b'"checkpoint"', "wrong_shape"),
    "no version": (json.dumps(document(version=None)).encode(), "wrong_shape"),
    "foreign": (json.dumps(document(written=None, registry=[])).encode(), "wrong_shape"),
    "unknown key": (json.dumps(document(extra=1)).encode(), "wrong_shape"),
    "unknown key of a file": (damaged_file(extra=1), "wrong_shape"),
    "offset is true": (damaged_file(offset=True), "wrong_shape"),
    "next version": (json.dumps(document(version=2)).encode(), "wrong_version"),
    "version as text": (json.dumps(document(version="1")).encode(), "wrong_version"),
    "negative offset": (damaged_file(offset=-1), "wrong_shape"),
    "huge offset": (damaged_file(offset=2**63), "wrong_shape"),
    "offset NaN": (damaged_file(offset=float("nan")), "wrong_shape"),
    "negative moment": (damaged_file(read_until=-1), "wrong_shape"),
    "head too long": (damaged_file(head_size=257), "wrong_shape"),
    "marker too long": (damaged_file(marker_size=257), "wrong_shape"),
    "marker before the start": (damaged_file(offset=10, marker_size=11), "impossible_values"),
    "no CRC": (damaged_file(marker_crc=2**32), "wrong_shape"),
    "no path": (damaged_file(path=""), "wrong_shape"),
    "half a character in a path": (damaged_file(path="a\ud800"), "wrong_shape"),
    "half a character in a key": (json.dumps({**document(), "\ud800": 1}).encode(), "wrong_shape"),
    "NUL in a path": (damaged_file(path="a\0b"), "wrong_shape"),
    "no cursor": (json.dumps(document(journals=[{"unit": "u", "cursor": ""}])).encode(), "wrong_shape"),
    "no cursor of the kernel": (json.dumps(document(kernel_cursor="a\0b")).encode(), "wrong_shape"),
    "written NaN": (json.dumps(document(written=float("nan"))).encode(), "wrong_shape"),
    "written before 1970": (json.dumps(document(written=-1)).encode(), "wrong_shape"),
    "written in two days": (json.dumps(document(written=NOW + 2 * 86_400)).encode(), "from_the_future"),
    "too large": (b" " * (MAX_SIZE + 1), "too_large"),
}


@pytest.mark.parametrize(("data", "reason"), T28.values(), ids=T28)
def test_t28_a_corrupt_checkpoint_is_refused(path, data, reason):
    """T28: what is no checkpoint of ours holds nothing, and the reason says why."""
    path.write_bytes(data)

    assert Loaded(Positions(), reason) == loaded(path)


def test_t29_a_stale_temporary_file_is_replaced(path):
    """T29: what a killed process left beside the checkpoint is neither read nor in the way."""
    Path(f"{path}.tmp").write_bytes(b"half a check")

    assert "absent" == loaded(path).reason
    assert CheckpointFile(str(path)).save(POSITIONS, NOW)
    assert [path] == list(path.parent.iterdir())


def test_t29_a_planted_symlink_is_not_followed(path):
    """T29: a link in the temporary file's place does not lead the write elsewhere."""
    victim = path.parent / "victim"
    victim.write_bytes(b"mine")
    Path(f"{path}.tmp").symlink_to(victim)

    assert CheckpointFile(str(path)).save(POSITIONS, NOW)
    assert b"mine" == victim.read_bytes()
    assert not path.is_symlink()
    assert POSITIONS == loaded(path).positions


# Lets processes save without end, kills each, and says how far the last one came.
KILLED = """
    import os, random, signal, time
    from vllm_watch.daemon.sources.checkpoint import CheckpointFile, FilePosition, Positions
    path, now, kills, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    chance = random.Random(seed)
    before = 0
    for _ in range(kills):
        has_begun, begun = os.pipe()
        child = os.fork()
        if child == 0:
            checkpoint, offset = CheckpointFile(path), before
            while True:
                offset += 1
                files = tuple(FilePosition(f"/log/{n}", 1, n, offset, 0, 0, 0, 0) for n in range(50))
                checkpoint.save(Positions(files), now, force=True)
                os.write(begun, b"x")
        os.read(has_begun, 1)
        time.sleep(chance.uniform(0, 0.02))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(has_begun)
        os.close(begun)
        found = CheckpointFile(path).load(now)
        assert "ok" == found.reason, seed
        (offset,) = {file.offset for file in found.positions.files}
        assert offset > before, seed
        before = offset
    print(before)
"""


@pytest.mark.slow
def test_t27_a_kill_leaves_a_whole_checkpoint(path):
    """T27: killed at any moment of its writes, a process leaves a checkpoint that loads."""
    assert int(run_child(KILLED, path, NOW, KILLS, random.randrange(2**32))) >= KILLS


numbers = st.integers(0, 2**32 - 1)
sizes = st.integers(0, 256)
names = st.text(min_size=1).filter(lambda text: "\0" not in text)
moments = st.floats(0, 2**53)
files = st.builds(
    FilePosition, names, numbers, numbers, st.integers(256, 2**63 - 1), sizes, numbers, sizes, numbers, moments
)
journals = st.builds(JournalPosition, names, names)
flag_texts = st.builds(str.__add__, st.sampled_from("aZ0/["), st.text("AZaz09._/:@+[]-", max_size=20))
server_names = st.text("az", min_size=1, max_size=20)
flag_changes = st.builds(FlagChange, flag_texts, st.none() | flag_texts, st.none() | flag_texts)
changes = st.builds(
    ServerChange,
    server_names,
    st.builds(ConfigChange, st.none() | moments, st.lists(flag_changes, max_size=3).map(tuple)),
)
known_uses = st.builds(
    KnownUse,
    server_names,
    st.tuples(numbers, numbers),
    st.frozensets(
        st.builds(str.__add__, st.sampled_from(["GPU-", "MIG-"]), st.text("09af/-", min_size=1, max_size=40)),
        max_size=3,
    ),
)
numbers_of_facts = st.none() | st.integers(0, 10**15)
some_flags = st.dictionaries(flag_texts, flag_texts, max_size=3)
known_facts = st.builds(
    KeptFacts,
    server_names,
    st.none() | names,
    st.none() | moments,
    st.none()
    | st.builds(
        Facts,
        version=st.none() | flag_texts,
        max_num_seqs=numbers_of_facts,
        engines=st.dictionaries(flag_texts, st.builds(EngineFacts, kv_cache_tokens=numbers_of_facts), max_size=2),
        _ranked=st.sets(flag_texts, max_size=2),
    ),
    st.builds(KeptFlags, some_flags, st.dictionaries(st.sampled_from(["lines", "arguments"]), some_flags)),
)
positions_of_any_kind = st.builds(
    Positions,
    st.lists(files, max_size=5).map(tuple),
    st.lists(journals, max_size=5).map(tuple),
    st.lists(changes, max_size=3).map(tuple),
    st.none() | names,
    st.lists(known_uses, max_size=3).map(tuple),
    st.lists(known_facts, max_size=3).map(tuple),
)


@pytest.mark.parametrize(
    ("reason", "key", "value"),
    [
        ("impossible_values", "changes", ["s", [-1, []]]),
        ("impossible_values", "changes", ["s", [None, [["dtype", "a b", None]]]]),
        ("impossible_values", "changes", ["s", [None, [["", None, None]]]]),
        ("impossible_values", "changes", ["s", [None, [["dtype", None, None]] * 400]]),
        ("impossible_values", "gpus", ["s", [-1, 1], []]),
        ("impossible_values", "gpus", ["s", [1, 1], ["0"]]),
        ("impossible_values", "gpus", ["s", [1, 1], ["GPU-a\n"]]),
        *[
            ("wrong_shape", "facts", {"server": "s", **facts})
            for facts in (
                {"process_start": float("nan")},
                {"facts": {"max_num_seqs": -4}},
                {"facts": {"version": "<b>"}},
                {"facts": {"engines": {"0": {"kv_cache_tokens": 1e300}}}},
                {"flags": {"places": {"arguments": {"dtype": "a b"}}}},
                {"flags": {"places": {"arguments": {f"flag-{n}": "1" for n in range(200)}}}},
                {"flags": {"places": {"elsewhere": {}}}},
                {"secret": "sk-1"},
            )
        ],
    ],
)
def test_what_cannot_be_is_rejected(path, reason, key, value):
    """T28: what becomes a label is spelt like a flag or a UUID, and sizes are sizes, whoever has written the file."""
    path.write_text(json.dumps(document(**{key: [value]})))

    assert Loaded(Positions(), reason) == loaded(path)


def test_a_gpu_whose_name_could_not_be_loaded_is_not_saved(path):
    """What a driver calls it must not cost the positions of the logs."""
    known = [KnownUse("a", (1, 2), frozenset({"GPU-1"})), KnownUse("b", (3, 4), frozenset({"a GPU"}))]
    assert CheckpointFile(str(path)).save(Positions(gpus=tuple(known)), NOW)

    assert Loaded(Positions(gpus=(known[0],)), "ok") == loaded(path)


@given(positions_of_any_kind)
def test_any_positions_come_back(positions):
    """Whatever positions are saved, the same are loaded."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "checkpoint.json")

        assert CheckpointFile(path).save(positions, NOW)
        assert Loaded(positions, "ok") == loaded(path)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*document(), *FILE.__struct_fields__]), inner, max_size=4)
    ),
)


@given(
    st.binary()
    | values.map(json.dumps).map(str.encode)
    | values.map(lambda v: json.dumps(document(files=[v])).encode())
)
def test_t28_any_bytes_are_loaded_or_refused(data):
    """T28: no content whatever makes loading raise."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "checkpoint.json")
        path.write_bytes(data)

        found = loaded(path)

    assert found.reason == "ok" or found.positions == Positions()
