"""Saves while training goes on: whole, in time, bounded, and their errors heard (K14, K17, K29)."""

import ctypes
import errno
import json
import os
import pathlib
import signal
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

import trainer
from trainer import testing
from trainer.checkpoints import bundle, files, policy, retention, room, store
from trainer.graph import bad_numbers, snapshot
from trainer.journal import journal
from trainer.run import inside, saving
from trainer.state import digest

from conftest import HERE, Summing, run_python
from support import faults


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    """Training does not wait for a save here, as with a large state."""
    monkeypatch.setattr(saving, "_PATIENCE_SECS", 0.0)


class At(trainer.Hook):
    """Calls something after a step."""

    def __init__(self, step, act):
        self.every_steps = 1
        self._step, self._act = step, act

    def after_step(self, ctx):
        if ctx.step == self._step:
            self._act(ctx)

    def get_state(self):
        return {}


def written(ctx):
    """Waits until the save under way has ended, whether anybody has heard of it or not."""
    assert inside.of(ctx.trainer).saver._writer.wait(60)


def hold(program, at):
    """Makes the save number `at` of a program stand still."""
    held = inside.of(program).parts.store.files = faults.Held(at)
    return held


def events(folder, kind):
    return [e for e in journal.read(files.LocalFiles(), folder) if e["event"] == kind]


# K29


def test_a_save_held_back_holds_the_state_of_its_step(make, folder):
    seen = []

    def let_go(ctx):
        seen.append(ctx.trainer.checkpoints)
        held.go.set()

    program = make(hooks=[At(5, written), At(8, let_go)], max_steps=10)
    held = hold(program, at=2)
    program.train()
    assert seen == [[3]]  # the steps went on to 8 while checkpoint 6 was being written
    assert {6, 10} <= set(program.checkpoints)
    manifest, tensors = store.Store(folder).read(6)
    assert manifest.step == int(tensors["trainer/step"]) == 6
    assert float(tensors["w"]) == 21
    assert int(tensors["trainer/data/position"]) == 6
    assert float(tensors["trainer/secs"]) == manifest.trained_secs


def test_killed_before_it_is_durable(make, folder):
    """SIGKILL at 8 while 6 is held back: 3 is the newest, whole, though only one is kept."""
    code = f"""
import os, signal, sys
sys.path.insert(0, {str(HERE)!r})
import trainer
from trainer.run import inside
from support import faults
from conftest import Summing
from trainer.run import saving
saving._PATIENCE_SECS = 0.0
class Kill(trainer.Hook):
    def after_step(self, ctx):
        if ctx.step == 5:
            assert inside.of(ctx.trainer).saver._writer.wait(60)
        if ctx.step == 8:
            assert held.reached.wait(60)
            os.kill(os.getpid(), signal.SIGKILL)
    def get_state(self): return {{}}
config = trainer.TrainerConfig({folder!r}, save_every_steps=3, seed=7, max_to_keep=1)
program = Summing(config, hooks=[Kill()])
held = inside.of(program).parts.store.files = faults.Held(2)
program.train(max_steps=10)
"""
    assert run_python(code, check=False).returncode == -signal.SIGKILL
    program = make(max_to_keep=1, max_steps=10)
    assert (program.restored_step, float(program.w)) == (3, 6)
    program.train()
    assert float(program.w) == 55


def test_small_states_are_waited_for(make, folder, monkeypatch):
    """So that whoever is killed right after a save finds it; but not for ever."""
    monkeypatch.setattr(saving, "_PATIENCE_SECS", 60.0)
    monkeypatch.setattr(saving, "_FAST_SECS", 60.0)
    seen = []
    hooks = [At(step, lambda ctx: seen.append(ctx.trainer.checkpoints)) for step in (4, 7)]
    for number, hook in enumerate(hooks):
        hook.name = f"at{number}"
    make(hooks=hooks, max_steps=10).train()
    assert seen == [[3], [3, 6]]
    assert not events(folder, "skip")


def test_between_rare_saves_nothing_waits(make, folder, monkeypatch):
    monkeypatch.setattr(saving, "_PATIENCE_SECS", 60.0)
    monkeypatch.setattr(saving, "_FAST_SECS", 0.0)
    program = make(max_steps=14, hooks=[At(8, lambda ctx: held.go.set())])
    held = hold(program, at=2)  # of a save that training waited for, `go` would never come
    program.train()
    assert program.checkpoints[:2] == [3, 6]
    assert [event["step"] for event in events(folder, "save")][:2] == [3, 6]


def test_a_slow_write_is_waited_for_once(make, folder, monkeypatch):
    monkeypatch.setattr(saving, "_PATIENCE_SECS", 0.2)
    program = make(max_steps=30, hooks=[At(20, lambda ctx: held.go.set())])
    held = hold(program, at=1)
    program.train()
    stalls = [event["stall_secs"] for event in events(folder, "save")]
    assert 0.2 <= stalls[0] < 5  # a busy machine adds to it
    assert events(folder, "skip")


def test_a_save_due_while_one_is_written_is_left_out(make, folder, said):
    program = make(hooks=[At(14, lambda ctx: held.go.set())], max_steps=14)
    held = hold(program, at=1)
    program.train()
    assert program.checkpoints == [3, 14]
    assert [(e["step"], e["writing"]) for e in events(folder, "skip")] == [(6, 3)]
    assert said().count("is left out: checkpoint 3 is still being written") == 1
    assert "3 saves were left out" in said()
    assert [e["step"] for e in events(folder, "save")] == [3, 14]


@pytest.mark.parametrize("how", ["raise", "warn"])
def test_an_error_in_the_background_reaches_the_caller(make, said, folder, how):
    failing = faults.Files(at=2, fault=OSError(errno.ENOSPC, "No space left"), persistent=False)
    program = make(on_save_error=how, max_steps=9, hooks=[At(5, written)])
    inside.of(program).parts.store.files = failing
    if how == "warn":
        program.train()
        assert "could not save checkpoint 3" in said()
        assert "1 of " in said()
        assert program.checkpoints[-1] == 9
    else:
        with pytest.raises(trainer.SaveError, match="could not save checkpoint 3 .*No space left"):
            program.train()
        assert program.step in (4, 5)  # at a boundary, not at the end of the run
    assert [event["step"] for event in events(folder, "failure")] == [3]


def test_the_run_returns_when_its_last_save_is_on_the_disk(make, folder):
    program = make(max_steps=3)
    held = hold(program, at=1)
    timer = soon(held.go.set)
    program.train()
    assert store.Store(folder).complete() == [3]
    timer.join()


def test_a_failed_save_on_request_is_in_the_journal(make, folder):
    program = make(max_steps=3)
    program.train()
    inside.of(program).parts.store.files = faults.Files(at=1, fault=OSError(errno.EIO, "bad disk"))
    with pytest.raises(trainer.SaveError, match="bad disk"):
        program.save()
    assert [event["step"] for event in events(folder, "failure")] == [3]


def hold_and_crash(make, held):
    """Trains with a save of 3 that is let go a little after the crash at 4."""

    def crash_later(ctx):
        soon(held.go.set)
        raise testing.SimulatedCrash

    seen = []

    class Crash(At):
        def end(self, ctx):
            seen.append(ctx.saved_step)

    program = make(hooks=[Crash(4, crash_later)], max_steps=8)
    inside.of(program).parts.store.files = held
    with pytest.raises(testing.SimulatedCrash):
        program.train()
    return program, seen


def soon(act):
    """Calls something in another thread, a little later."""
    timer = threading.Timer(0.3, act)
    timer.start()
    return timer


def test_a_crash_waits_for_the_save_in_flight_and_end_knows_it(make, folder):
    _, seen = hold_and_crash(make, faults.Held(1))
    assert store.Store(folder).complete() == [3]
    assert seen == [3]


def test_synchronous_saves_on_request(make, folder):
    seen = []
    hook = At(4, lambda ctx: seen.append(ctx.trainer.checkpoints))
    make(hooks=[hook], max_steps=5, async_save=False).train()
    assert seen == [[3]]


def test_after_save_is_told_each_checkpoint_once_it_is_durable(make, folder):
    told = []

    class Told(trainer.Hook):
        def after_save(self, ctx):
            assert ctx.saved_step in store.Store(folder).complete()
            told.append(ctx.saved_step)

    program = make(hooks=[Told()], max_steps=10)
    held = hold(program, at=2)
    soon(held.go.set)
    program.train()
    assert told == [e["step"] for e in events(folder, "save")]
    assert told[0] == 3
    assert told[-1] == 10


def test_a_poisoned_variable_is_found_in_the_background(make, folder):
    class Poisoned(Summing):
        def build(self):
            super().build()
            self.best = tf.Variable(np.inf)
            self.more = tf.Variable(tf.zeros([3]))

        def train_step(self, x):
            self.more.assign(tf.where(x > 4, np.nan, 0.0) * tf.ones([3]))
            self.best.assign(tf.minimum(self.best, x))
            return super().train_step(x)

    program = make(Poisoned, max_steps=100, save_every_steps=3, hooks=[At(1, lambda ctx: None)])
    program.train(max_steps=3)
    with pytest.raises(trainer.NonFiniteError, match=r"'more' of step \d+ .* 3 stands"):
        program.train()
    assert names_of(folder) == ["ckpt-3"]
    with pytest.raises(trainer.SaveError, match=r"variables are not finite after step \d+"):
        program.save()


def names_of(folder):
    return sorted(name for name in os.listdir(folder) if name.startswith("ckpt"))


def test_a_newer_trainer_waits_for_the_save_of_the_older(make, folder):
    """A save that the older one has begun is whole before it is locked out; none comes later."""
    older = make(hooks=[At(4, lambda ctx: soon(held.go.set))], max_steps=10)
    held = hold(older, at=1)
    inside.of(older).saver.wait = lambda: None  # as after a second Ctrl-C while it waited
    inside.of(older).saver.newest = lambda: None
    older.register_hook(At(5, _interrupt))
    with pytest.raises(KeyboardInterrupt):
        older.train()
    newer = make(max_steps=5, max_to_keep=1)
    assert newer.restored_step == 3
    newer.train()
    time.sleep(0.2)
    assert store.Store(folder).complete() == [5]
    with pytest.raises(trainer.ModelDirInUseError, match="a newer trainer of this process"):
        inside.of(older).parts.store.save(9, {}, lambda sizes: None)


def _interrupt(ctx):
    raise KeyboardInterrupt


def test_a_stop_that_is_asked_for_when_the_last_save_ends(make, said):
    class Stop(trainer.Hook):
        def after_save(self, ctx):
            ctx.request_stop("enough")

    program = make(hooks=[Stop(), At(8, lambda ctx: soon(held.go.set))], max_steps=8)
    held = hold(program, at=1)
    assert program.train() == trainer.RunResult(8, "stopped")
    assert said().count("asked to stop (enough)") == 1
    assert make(max_steps=8).train().reason == "already_finished"


def test_a_stop_asked_for_in_a_finished_run_changes_nothing(make, folder):
    class Stop(trainer.Hook):
        def begin(self, ctx):
            ctx.request_stop("at once")

    make(max_steps=3).train()
    before = os.stat(f"{folder}/ckpt-3/manifest.json").st_mtime_ns
    assert make(hooks=[Stop()], max_steps=3).train().reason == "already_finished"
    assert os.stat(f"{folder}/ckpt-3/manifest.json").st_mtime_ns == before


def test_the_last_state_is_saved_though_an_earlier_save_failed(make, folder):
    class Once(faults.Held):
        def sync(self, path):
            if self._bundles == 1:
                raise OSError(errno.ENOSPC, "No space left on device")
            self._files.sync(path)

    program = make(hooks=[At(8, lambda ctx: soon(held.go.set))], max_steps=8, on_save_error="raise")
    held = inside.of(program).parts.store.files = Once(1)
    with pytest.raises(trainer.SaveError, match="could not save checkpoint 3"):
        program.train()
    assert store.Store(folder).complete() == [8]
    program.train(max_steps=9)  # and it is said once
    assert store.Store(folder).complete() == [8, 9]


def test_an_unexpected_error_of_the_writer_does_not_hide_the_runs_own(make, said):
    class Broken(faults.Held):
        def write_bundle(self, *arguments):
            assert self.go.wait(60)
            raise MemoryError("no memory for the bundle")

    program, _ = hold_and_crash(make, Broken(1))
    assert "no memory for the bundle" in said()
    program.close()
    assert make().restored_step is None


# A snapshot is never torn


class Large(Summing):
    """Every kind of change that TensorFlow makes in place, on a megabyte each."""

    jit = False

    def build(self):
        super().build()
        self.dense = tf.Variable(tf.zeros([512, 512]))
        self.rows = tf.Variable(tf.zeros([512, 512]))
        self.wide = tf.Variable(tf.zeros([512, 512]))
        self.half = tf.Variable(tf.zeros([512, 512], tf.bfloat16))
        self.many = [tf.Variable(tf.zeros([64, 64])) for _ in range(40)]
        self.optimizer = tf.keras.optimizers.Adam(0.1)
        self.optimizer.build([self.wide])

    def train_step(self, x):
        self.dense.assign_add(tf.ones_like(self.dense))
        every_row = tf.IndexedSlices(tf.ones([512, 512]), tf.range(512))
        self.rows.scatter_add(every_row)
        self.half.assign_add(tf.ones_like(self.half))
        for variable in self.many:
            variable.assign_sub(tf.ones_like(variable))
        self.optimizer.apply_gradients([(tf.fill([512, 512], x), self.wide)])
        return super().train_step(x)


class Compiled(Large):
    """The same, fused by XLA, which reuses buffers as it likes."""


def digests(tensors):
    return {name: digest._digest(value) for name, value in tensors.items()}


class Late(trainer.Hook):
    """Has each save written when four more steps have changed every variable."""

    every_steps = 4

    def __init__(self):
        self.files = faults.Files()
        self._go = threading.Event()
        write = self.files._files.write_bundle

        def write_late(*arguments):
            self._go.wait(1.0)  # the last one of a run has no steps after it
            write(*arguments)

        self.files._files.write_bundle = write_late

    def after_step(self, ctx):
        if ctx.step % 8 and ctx.step > 8:
            self._go.set()
            assert inside.of(ctx.trainer).saver._writer.wait(60)
            self._go.clear()

    def get_state(self):
        return {}


@pytest.mark.parametrize("program_class", [Large, Compiled])
@pytest.mark.parametrize("shared", [True, False])
def test_a_snapshot_is_never_torn(make, folder, monkeypatch, program_class, shared):
    """Steps go on while a save is written; what it holds must be the state of its step."""
    if not shared:
        monkeypatch.setattr(snapshot, "shares_safely", lambda variable: False)
    expected = {}

    class Remember(trainer.Hook):
        def after_step(self, ctx):
            variables = inside.of(ctx.trainer).parts.content.variables.entries
            expected[ctx.step] = digests({n: e.variable.numpy() for n, e in variables.items()})

        def get_state(self):
            return {}

    hooks = [Remember()]
    settings = {"jit_compile": program_class is Compiled, "save_every_steps": 8}
    with make(program_class, hooks, max_steps=40, **settings) as program:
        program.train()
    late = Late()
    with make(program_class, [late], model_dir=folder + "2", max_to_keep=None, **settings) as again:
        inside.of(again).parts.store.files = late.files
        again.train(max_steps=40)
        assert again.checkpoints == [8, 16, 24, 32, 40]
    for step in again.checkpoints:
        tensors = store.Store(folder + "2").read(step)[1]
        assert digests({name: tensors[name] for name in expected[step]}) == expected[step]


def test_a_snapshot_shares_what_it_may(monkeypatch):
    variables = [tf.Variable(tf.zeros([1000])), tf.Variable("text"), tf.Variable([1, 2])]

    def address(tensor):
        return np.asarray(memoryview(tensor)).ctypes.data

    first, second = (snapshot.Reader(variables)() for _ in range(2))
    assert address(first[0]) == address(second[0])
    assert not snapshot.shares_safely(variables[1])  # a kind that could not be tried
    assert first[1].numpy() == b"text"
    monkeypatch.setattr(snapshot, "shares_safely", lambda variable: False)
    copy = snapshot.Reader(variables)()
    assert address(copy[0]) != address(first[0])


def test_a_variable_that_changes_under_a_reference_is_found_out(monkeypatch):
    def in_place(variable):
        def write():
            value = np.asarray(memoryview(snapshot._read(variable, True)))
            ctypes.memset(value.ctypes.data, 1, value.nbytes)

        return [write]

    snapshot._tried.cache_clear()
    monkeypatch.setattr(snapshot, "changes", in_place)
    assert not snapshot.shares_safely(tf.Variable([1.0]))
    snapshot._tried.cache_clear()
    monkeypatch.undo()
    assert snapshot.shares_safely(tf.Variable([1.0]))


def test_what_is_not_finite():
    values = {
        "bfloat16": tf.constant([1, np.nan], tf.bfloat16),
        "good": tf.constant([1.0, 1e38]),
        "last": tf.tensor_scatter_nd_update(tf.zeros([700_000]), [[699_999]], [np.inf]),
        "complex": tf.constant(np.array([1, complex(0, np.inf)])),
        "whole": tf.constant([1, 2]),
        "none": tf.zeros([0]),
        "scalar": tf.constant(np.nan),
    }
    assert bad_numbers.non_finite(values) == ["bfloat16", "last", "complex", "scalar"]


# A large bundle


def test_a_large_bundle_is_two_files_that_tensorflow_reads(tmp_path, monkeypatch):
    monkeypatch.setattr(bundle, "LARGE_BYTES", 1000)
    tensors = {f"v{n}": tf.range(n * 100) for n in range(1, 8)} | {"text": tf.constant("x")}
    bundle.write(str(tmp_path / "state"), tensors, streams=2)
    assert sorted(os.listdir(tmp_path)) == [
        "state.data-00000-of-00002",
        "state.data-00001-of-00002",
        "state.index",
    ]
    sizes = [os.path.getsize(tmp_path / f"state.data-0000{n}-of-00002") for n in range(2)]
    assert max(sizes) < 1.3 * min(sizes)
    reader = tf.train.load_checkpoint(str(tmp_path / "state"))
    for name, tensor in tensors.items():
        assert np.array_equal(reader.get_tensor(name), tensor.numpy())


def test_a_flush_that_fails_fails_the_bundle(tmp_path, monkeypatch):
    """The kernel tells of a failed write-back once: the sync after it would pass."""
    monkeypatch.setattr(bundle, "LARGE_BYTES", 1000)
    monkeypatch.setattr(bundle, "_FLUSH_EVERY_SECS", 0.0)

    def fail(descriptor):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    tensors = {f"v{n}": tf.random.uniform([2_000_000]) for n in range(4)}
    with pytest.raises(OSError, match="Input/output error"):
        bundle.write(str(tmp_path / "state"), tensors, streams=2)


def test_checkpoints_of_two_files(make, folder, monkeypatch):
    monkeypatch.setattr(bundle, "LARGE_BYTES", 1000)
    make(Large, max_steps=7, max_to_keep=1).train()
    assert len(os.listdir(f"{folder}/ckpt-7")) == 4
    second = f"{folder}/ckpt-7/state.data-00001-of-00002"
    make(Large, max_steps=9, max_to_keep=2).train()
    with open(second, "r+b") as file:
        file.truncate(100)
    with pytest.raises(trainer.DamagedCheckpointError, match="00001-of-00002 has 100 bytes"):
        store.Store(folder).read(7)
    os.unlink(second)
    with pytest.raises(trainer.DamagedCheckpointError, match="00001-of-00002 is missing"):
        store.Store(folder).read(7)
    assert make(Large).restored_step == 9


# When to save


def test_automatic_interval_follows_the_cost():
    chosen = policy.Policy(every_steps=None, every_secs=None, overhead=0.01, now=100.0)
    assert not chosen.is_due(1, 109.9)
    assert chosen.is_due(2, 110.0)
    chosen.begun(110.0)
    chosen.cost(0.1, 0.5)  # trains again at 110.1, and 50 s from there
    assert not chosen.is_due(3, 160.0)
    assert chosen.is_due(4, 160.2)


def test_a_slow_disk_does_not_put_off_saves_for_hours():
    chosen = policy.Policy(every_steps=None, every_secs=None, overhead=0.01, now=0.0)
    chosen.begun(10.0)
    chosen.cost(0.0, 60.0)  # written in the background for a minute
    assert not chosen.is_due(1, 609.9)
    assert chosen.is_due(1, 610.0)
    chosen.begun(610.0)
    chosen.cost(60.0, 60.0)  # training waited for it: 1 % is 6,000 s
    assert not chosen.is_due(1, 6669.0)
    assert chosen.is_due(1, 6670.0)


def test_young_and_daly():
    """C = 0.5 s, a failure every hour: sqrt(2 * 0.5 * 3600) = 60 s."""
    chosen = policy.Policy(
        every_steps=None, every_secs=None, overhead=0.01, failures=2, trained_secs=7190, now=0.0
    )
    chosen.begun(10.0)
    chosen.cost(0.0, 0.5)
    assert not chosen.is_due(1, 69.9)
    assert chosen.is_due(1, 70.0)


def test_what_fails_often_saves_often_and_less_so_once_it_holds():
    """C = 0.04 s: 1 % is 4 s; a failure every 20 s asks for 1.26 s, every 2,000 s for 12.6 s."""
    chosen = policy.Policy(
        every_steps=None,
        every_secs=None,
        overhead=0.01,
        cost_secs=0.04,
        failures=3,
        trained_secs=60.0,
        now=0.0,
    )
    assert not chosen.is_due(1, 1.26)
    assert chosen.is_due(1, 1.27)
    chosen.begun(5940.0)
    chosen.cost(0.04, 0.04)
    assert not chosen.is_due(2, 5952.6)
    assert chosen.is_due(2, 5952.7)


def test_however_often_it_fails_saves_take_a_tenth_of_the_time():
    chosen = policy.Policy(
        every_steps=None, every_secs=None, overhead=0.01, failures=9, trained_secs=0.9, now=0.0
    )
    assert not chosen.is_due(1, 0.99)
    assert chosen.is_due(1, 1.0)
    chosen.begun(1.0)
    chosen.cost(90.0, 90.0)
    assert not chosen.is_due(2, 990.9)
    assert chosen.is_due(2, 991.0)


def test_fixed_intervals():
    timed = policy.Policy(every_steps=None, every_secs=30, overhead=0.01, now=0.0)
    assert not timed.is_due(1, 29.9)
    assert timed.is_due(1, 30.0)
    timed.begun(30.0)
    timed.cost(5.0, 5.0)
    assert not timed.is_due(2, 64.9)
    assert timed.is_due(2, 65.0)
    both = policy.Policy(every_steps=10, every_secs=30, overhead=0.01, now=0.0)
    assert both.is_due(10, 1.0)
    assert both.is_due(11, 30.0)
    assert not both.is_due(11, 1.0)
    stepped = policy.Policy(every_steps=10, every_secs=None, overhead=0.01, now=0.0)
    assert not stepped.is_due(11, 1e6)


def test_what_the_journal_tells_is_used_at_the_next_start(make, folder):
    """Two runs of 10 s that were killed, and a save that took 0.2 s: sqrt(2 * 0.2 * 10) = 2 s."""
    make(max_steps=3).train()
    lines = [
        {"time": 0, "event": "start"},
        {"time": 0, "event": "train", "step": 0},
        {"time": 10, "event": "save", "step": 1, "stall_secs": 0.2, "write_secs": 0.2},
        {"time": 10, "event": "start"},
        {"time": 10, "event": "train", "step": 1},
        {"time": 20, "event": "ended", "number": 2, "status": -9, "newest": 1},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (pathlib.Path(folder) / "journal.jsonl").write_text(text)
    chosen = inside.of(make(save_every_steps=None)).saver._policy
    assert chosen._automatic_secs == pytest.approx(2.0, rel=0.01)


def test_a_first_save_comes_early_for_a_small_state(make):
    """10 ms for the files, at 1 %."""
    chosen = inside.of(make(save_every_steps=None)).saver._policy
    assert chosen._automatic_secs == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize(("worth", "times"), [(0.1, 1), (None, 0)])
def test_an_interval_shorter_than_a_save_is_said_once(make, said, monkeypatch, worth, times):
    """And only where it has cost something: in a short run it does not matter."""

    class Slow(faults.Files):
        def write_bundle(self, *arguments):
            time.sleep(0.05)
            self._files.write_bundle(*arguments)

    if worth is not None:
        monkeypatch.setattr(saving, "_WORTH_SAYING_SECS", worth)
    program = make(max_steps=18, async_save=False)
    inside.of(program).parts.store.files = Slow()
    program.train()
    assert said().count("a longer interval would be faster") == times


# K17: before it is too late; K07: the best one


@pytest.mark.parametrize(
    ("free", "there", "keep", "warned"),
    [(2e9, 1, 5, True), (6e9, 1, 5, False), (0.9e9, 5, 5, True), (1.1e9, 5, 5, False)],
)
def test_little_room_is_said_in_time(said, free, there, keep, warned):
    class Volume(files.LocalFiles):
        def free(self, path):
            return int(free)

    watch = room.Room("/runs/a", keep)
    for _ in range(2):
        watch.check(Volume(), 10**9, there)
    assert said().count("free some space or lower max_to_keep before saves fail") == warned
    if warned:
        assert f"{int(free):,} bytes are free" in said()
        assert "checkpoint(s) of 1,000,000,000 bytes are to come" in said()


def test_the_run_warns_of_little_room(make, said, monkeypatch):
    monkeypatch.setattr(files.LocalFiles, "free", lambda self, path: 3000)
    make(max_steps=6, max_to_keep=5).train()
    assert "3,000 bytes are free, and 5 more checkpoint(s) of" in said()


def test_newest_and_best(make, folder):
    program = make(max_steps=3, max_to_keep=1)
    program.train()
    kept = store.Store(folder)
    kept.mark_best(3)
    program.train(max_steps=9)
    assert program.checkpoints == [3, 9]
    assert (kept.best(), make(max_to_keep=1).restored_step) == (3, 9)
    kept.mark_best(9)
    assert kept.best() == 9
    make(max_to_keep=1).train(max_steps=10)
    assert kept.complete() == [9, 10]


def test_a_pin_stays_when_the_step_is_saved_again(make, folder):
    program = make(max_steps=3)
    program.train()
    store.Store(folder).pin(3, on=True)
    program.save()
    assert store.Store(folder).is_pinned(3)


def test_retention_alone():
    class Found:
        def __init__(self, step):
            self.step, self.trained_secs = step, 0.0

    found = [Found(step) for step in (1, 2, 3, 4)]
    assert retention.unneeded(found, 2, None, {1}) == [2]
    assert retention.unneeded(found, None, None, set()) == []
