"""What makes a resumed run differ is named in the pipeline too (K03, K08)."""

import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import trainer
from trainer.data import cache_files, inexact, saveable
from trainer.testing import prove

from conftest import Summing, run_python
from support import programs

D = tf.data.Dataset
RANGE = D.range(8)


def work(x):
    return x + 1


def with_options(dataset, **given):
    options = tf.data.Options()
    for name, value in given.items():
        setattr(options, name, value)
    return dataset.with_options(options)


def numbers():
    return D.from_generator(lambda: iter([1, 2]), output_signature=tf.TensorSpec((), tf.int64))


def make_range(x):
    return D.range(x)


UNORDERED = {
    "map": lambda: RANGE.map(work, num_parallel_calls=2, deterministic=False).batch(2),
    "interleave": lambda: RANGE.interleave(make_range, num_parallel_calls=2, deterministic=False),
    "the lower interleave": lambda: RANGE.interleave(
        make_range, num_parallel_calls=2, deterministic=False
    ).interleave(make_range, num_parallel_calls=2, deterministic=True),
    "batch": lambda: RANGE.batch(2, num_parallel_calls=2, deterministic=False),
    "options": lambda: with_options(RANGE.map(work, num_parallel_calls=2), deterministic=False),
    "old options": lambda: with_options(
        RANGE.interleave(make_range, num_parallel_calls=2), experimental_deterministic=False
    ),
    "nested": lambda: RANGE.flat_map(
        lambda x: D.range(x).map(work, num_parallel_calls=2, deterministic=False)
    ),
    "nested twice": lambda: RANGE.interleave(
        lambda x: D.range(x).flat_map(
            lambda y: D.range(y).interleave(make_range, num_parallel_calls=2, deterministic=False)
        )
    ),
    "sloppy": lambda: RANGE.apply(
        tf.data.experimental.parallel_interleave(make_range, cycle_length=2, sloppy=True)
    ),
    "a branch": lambda: D.zip((RANGE, RANGE.map(work, num_parallel_calls=2, deterministic=False))),
    "replayed": lambda: numbers().map(work, num_parallel_calls=2, deterministic=False),
    "replayed interleave": lambda: numbers().interleave(
        make_range, num_parallel_calls=2, deterministic=False
    ),
}


@pytest.mark.parametrize("name", UNORDERED)
def test_stages_without_order_are_named(name):
    found = inexact.findings(UNORDERED[name]()).certain
    assert len(found) == 1
    assert "the order in which threads finish" in found[0]
    assert "deterministic=False)" in found[0] or "options.deterministic = False" in found[0]


ORDERED = {
    "parallel": lambda: RANGE.map(work, num_parallel_calls=2).batch(2, num_parallel_calls=2),
    "interleave": lambda: RANGE.interleave(make_range, num_parallel_calls=2),
    "options": lambda: with_options(RANGE.map(work, num_parallel_calls=2), deterministic=True),
    "nothing parallel": lambda: with_options(RANGE.map(work).batch(2), deterministic=False),
    "the stage decides": lambda: with_options(
        RANGE.map(work, num_parallel_calls=2, deterministic=True), deterministic=False
    ),
    "files": lambda: D.list_files(__file__).interleave(
        tf.data.TextLineDataset, num_parallel_calls=2
    ),
    "many readers": lambda: tf.data.TFRecordDataset([__file__, __file__], num_parallel_reads=2),
    "generator": numbers,
    "stateless": lambda: RANGE.map(
        lambda x: tf.random.stateless_uniform([], [x, x]), num_parallel_calls=2
    ),
    "drawn one by one": lambda: RANGE.map(lambda x: tf.random.uniform([])),
    "checked": lambda: RANGE.map(lambda x: (tf.print(x), tf.debugging.assert_equal(x, x), x)[2]),
}


@pytest.mark.parametrize("name", ORDERED)
def test_what_is_exact_is_not_named(name):
    assert inexact.findings(ORDERED[name]()) == inexact.Findings()


def in_a_map(function, **how):
    return lambda: RANGE.map(function, **how)


def mutable():
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, 0)
    return RANGE.map(table.lookup)


def other_iterator():
    other = iter(D.range(99))
    return RANGE.map(lambda x: x + next(other))


def own_generator():
    generator = tf.random.Generator.from_seed(1)
    return RANGE.map(lambda x: generator.uniform([]), num_parallel_calls=2)


OPERATIONS = {
    "Timestamp": in_a_map(lambda x: tf.timestamp()),
    "NonDeterministicInts": in_a_map(
        lambda x: tf.raw_ops.NonDeterministicInts(shape=[2], dtype=tf.int32)
    ),
    "LookupTableFindV2": mutable,
    "ReadFile": in_a_map(lambda x: tf.io.read_file(__file__)),
    "IteratorGetNext": other_iterator,
    "RandomUniform": in_a_map(lambda x: tf.random.uniform([]), num_parallel_calls=2),
    "RngReadAndSkip": own_generator,
}


@pytest.mark.parametrize("op", OPERATIONS)
def test_operations_in_a_map_are_named(op):
    (found,) = inexact.findings(OPERATIONS[op]()).certain
    assert re.match(rf"map(\(lookup\))?: {op} \(", found)
    assert "test_data_inexact.py:" in found


def test_an_operation_in_a_branch_of_a_nested_pipeline_is_named():
    def late(x):
        return tf.cond(x > 1, tf.timestamp, lambda: tf.constant(0.0, tf.float64))

    (found,) = inexact.findings(RANGE.flat_map(lambda x: D.range(x).map(late))).certain
    assert "flat_map: Timestamp (" in found


POSSIBLE = {
    "PyFuncStateless": lambda: RANGE.map(
        lambda x: tf.numpy_function(lambda y: y, [x], tf.int64, stateful=False)
    ),
    "EagerPyFunc": lambda: RANGE.map(lambda x: tf.py_function(lambda y: y, [x], tf.int64)),
    "ReadFile": lambda: D.from_tensor_slices([__file__]).map(tf.io.read_file),
}


@pytest.mark.parametrize("op", POSSIBLE)
def test_what_may_be_exact_is_noted(op):
    found = inexact.findings(POSSIBLE[op]())
    assert not found.certain
    assert len(found.possible) == 1
    assert op in found.possible[0]


def warnings(caplog):
    return [r.getMessage() for r in caplog.records if "will differ" in r.getMessage()]


class Unordered(Summing):
    def train_dataset(self):
        return super().train_dataset().map(work, num_parallel_calls=2, deterministic=False)


def test_construction_names_it_once(make, caplog):
    make(Unordered)
    (line,) = warnings(caplog)
    assert line.startswith(
        "train_dataset(): a resumed run will differ because of map(work, deterministic=False): "
    )


class Late(Summing):
    def train_dataset(self):
        def late(batch, seed):
            return batch + 0 * tf.cast(tf.timestamp(), tf.float32)

        return trainer.data.Indexed(np.arange(9, dtype=np.float32), batch_size=1, map_fn=late)

    def train_step(self, x):
        return super().train_step(x[0])


def test_map_fn_of_indexed(make, caplog):
    make(Late)
    (line,) = warnings(caplog)
    assert "because of Indexed: Timestamp (" in line
    assert "test_data_inexact.py:" in line


PROGRAMS = [
    value
    for value in vars(programs).values()
    if isinstance(value, type)
    and issubclass(value, trainer.Trainer)
    and value.__module__ == programs.__name__
]


@pytest.mark.parametrize("cls", PROGRAMS, ids=lambda cls: cls.__name__)
def test_no_program_that_resumes_exactly_is_warned(make, caplog, cls):
    make(cls)
    assert warnings(caplog) == []


def test_a_proof_names_it_even_when_it_is_lucky(tmp_path):
    program = tmp_path / "lucky.py"
    program.write_text(
        "import tensorflow as tf\n"
        "import trainer\n\n\n"
        "class Lucky(trainer.Trainer):\n"
        "    def build(self):\n"
        "        self.w = tf.Variable(0.0)\n\n"
        "    def train_dataset(self):\n"
        "        same = tf.data.Dataset.range(100).map(\n"
        "            lambda x: 1.0, num_parallel_calls=2, deterministic=False\n"
        "        )\n"
        "        return same\n\n"
        "    def train_step(self, x):\n"
        "        self.w.assign_add(x)\n"
        "        return {'w': self.w}\n"
    )
    verdict = prove.prove(
        prove.Request(target=f"{program}:Lucky", steps=6, kills=1, seed=1, flags=())
    )
    text = "\n".join(verdict.lines)
    assert not verdict.exact, text
    assert "hidden state: train_dataset(): map(deterministic=False)" in text
    assert "NOT proved: the digests are equal" in text


# cache(filename)


CACHING = """
import os, signal, sys
import tensorflow as tf
import trainer

class Caching(trainer.Trainer):
    def build(self):
        self.w = tf.Variable(0.0)

    def train_dataset(self):
        numbers = tf.data.Dataset.range(30).map(lambda x: tf.cast(x, tf.float32))
        return numbers.shuffle(30, reshuffle_each_iteration=False).cache(sys.argv[2])

    def train_step(self, x):
        self.w.assign(0.9 * self.w + x)
        return {"w": self.w}

class Kill(trainer.Hook):
    def after_step(self, ctx):
        if ctx.step == int(sys.argv[3]):
            os.kill(os.getpid(), signal.SIGKILL)

config = trainer.TrainerConfig(sys.argv[1], seed=1, save_every_steps=5, async_save=False)
with Caching(config, hooks=[Kill()]) as program:
    program.train(max_steps=50)
    print(float(program.w))
os._exit(0)
"""


def test_a_run_killed_while_it_fills_a_cache_goes_on(tmp_path):
    whole = run_python(CACHING, tmp_path / "whole", tmp_path / "a", 99)
    assert "cannot go on in the middle of it" in whole.stderr
    cut = [tmp_path / "cut", tmp_path / "b"]
    killed = run_python(CACHING, *cut, 12, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert (tmp_path / "b_0.lockfile").exists()
    again = run_python(CACHING, *cut, 23, check=False)
    assert again.returncode == -signal.SIGKILL, again.stderr
    assert "a process that is gone left it half written" in again.stderr
    killed = run_python(CACHING, *cut, 41, check=False)  # the cache is complete by then
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    last = run_python(CACHING, *cut, 99)
    assert last.stdout == whole.stdout
    assert "resumed at step 40" in last.stderr


def test_the_lock_of_another_program_stays(tmp_path, caplog):
    lock = tmp_path / "c_0.lockfile"
    lock.write_text("Created at: 1")
    cache_files.free(RANGE.cache(str(tmp_path / "c")))
    assert lock.exists()
    assert "made by another program or one that was killed" in caplog.text
    code = (
        "import fcntl, os, sys; file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT);"
        "fcntl.flock(file, fcntl.LOCK_EX); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "c.owner")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout.readline() == b"held\n"
        cache_files.free(RANGE.cache(str(tmp_path / "c")))
        assert lock.exists()
        other.stdin.close()
    cache_files.free(RANGE.cache(str(tmp_path / "c")))
    assert not lock.exists()


def test_caches_in_files_are_found_and_replayed(tmp_path):
    name = os.fspath(tmp_path / "c")
    assert cache_files.named(RANGE.cache()) == []
    assert saveable.judge(RANGE.cache()).reason is None
    for dataset in (RANGE.cache(name).batch(2), RANGE.flat_map(lambda x: D.range(x).cache(name))):
        assert cache_files.named(dataset) == [name]
        assert name in saveable.judge(dataset).reason
    varied = RANGE.flat_map(lambda x: D.range(x).cache(name + tf.strings.as_string(x)))
    assert cache_files.named(varied) == [cache_files.UNKNOWN]
    assert saveable.judge(varied).reason is not None
