"""Requests by signal: stop and say so by the exit status, save and go on, end at once."""

import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest
import tensorflow as tf

import trainer
from trainer.base import clock
from trainer.graph import compiled
from trainer.run import inside

from conftest import HERE, Summing, run_python

TERM, INT, USR1 = signal.SIGTERM, signal.SIGINT, signal.SIGUSR1


class Send(trainer.Hook):
    """Sends signals to this process after a step."""

    def __init__(self, step, *numbers):
        self.step = step
        self.numbers = numbers
        self.ended = 0

    def after_step(self, ctx):
        if ctx.step == self.step:
            for number in self.numbers:
                os.kill(os.getpid(), number)

    def end(self, ctx):
        self.ended += 1

    def get_state(self):
        return {}


class Slow(Summing):
    """Takes its time for each step, and longer for one of them."""

    secs = 0.03

    def train_step(self, batch):
        slept = tf.numpy_function(lambda: time.sleep(self.secs), [], [], stateful=True)
        with tf.control_dependencies([slept]):
            return super().train_step(batch)


@pytest.mark.parametrize(
    ("number", "reason", "code"), [(TERM, "preempted", 75), (INT, "interrupted", 130)]
)
def test_a_stop_signal_saves_and_says_so(make, said, number, reason, code):
    hook = Send(7, number)
    program = make(hooks=[hook], save_every_steps=5, max_steps=10)
    before = signal.getsignal(number)
    assert program.train() == trainer.RunResult(7, reason, code)
    assert signal.getsignal(number) is before
    assert hook.ended == 1
    assert program.checkpoints == [5, 7]
    assert float(program.w) == 28
    assert said().splitlines()[-1] == f"{reason} at step 7; checkpoint 7 stands"
    again = make(save_every_steps=5, max_steps=10)
    assert again.restored_step == 7
    assert again.train().reason == "finished"
    assert float(again.w) == 55
    text = (pathlib.Path(program.model_dir) / "journal.jsonl").read_text()
    assert f'"event": "preemption", "step": 7, "signal": "{number.name}"' in text


def test_a_call_without_end_is_left_after_the_step_under_way(make):
    """Nothing waits for Python here, so one call would run all 10,000 steps (five minutes)."""
    program = make(Slow, save_every_steps=10_000, max_steps=10_000)
    sent = []
    timer = threading.Timer(
        0.5, lambda: (sent.append(time.monotonic()), os.kill(os.getpid(), TERM))
    )
    timer.start()
    result = program.train()
    took = time.monotonic() - sent[0]
    assert result.reason == "preempted"
    assert 0 < result.step < 40
    assert program.checkpoints == [result.step]
    assert took < 2.0  # a step, a save, and whatever else this machine does


def test_sigusr1_saves_and_goes_on(make, said):
    program = make(hooks=[Send(4, USR1)], save_every_steps=100, max_steps=8)
    assert program.train() == trainer.RunResult(8, "finished", 0)
    assert program.checkpoints == [4, 8]


def test_sigusr1_from_outside_does_not_leave_calls_short(make):
    program = make(Slow, save_every_steps=100, max_steps=40)
    timer = threading.Timer(0.4, os.kill, (os.getpid(), USR1))
    timer.start()
    assert program.train().reason == "finished"
    assert len(program.checkpoints) == 2
    assert not inside.of(program).parts.loop._is_interrupted


def test_before_anything_was_trained_there_is_nothing_to_save(make):
    class SendAtOnce(trainer.Hook):
        def begin(self, ctx):
            os.kill(os.getpid(), TERM)

    program = make(hooks=[SendAtOnce()], max_steps=8)
    assert program.train() == trainer.RunResult(0, "preempted", 75)
    assert program.checkpoints == []


def test_a_signal_during_construction_ends_the_process_with_the_same_status(make, folder):
    class Traced(Summing):
        number = TERM

        def build(self):
            os.kill(os.getpid(), self.number)
            super().build()

    with pytest.raises(SystemExit) as caught:
        make(Traced)
    assert caught.value.code == 75
    Traced.number = INT
    with pytest.raises(KeyboardInterrupt):
        make(Traced)
    make(Summing, max_steps=3).train()  # the folder was given back


def test_no_step_is_run_because_the_graph_was_not_ready(make, monkeypatch):
    """A signal that comes while TensorFlow prepares a call is honoured before that call."""
    prepare, prepared = compiled.Loop.prepare, []

    def signalled(loop, iterator):
        prepare(loop, iterator)
        if not prepared:
            os.kill(os.getpid(), TERM)
        prepared.append(loop)

    monkeypatch.setattr(compiled.Loop, "prepare", signalled)
    program = make(max_steps=12, save_every_steps=4)
    assert program.train() == trainer.RunResult(0, "preempted", 75)
    assert program.train() == trainer.RunResult(12, "finished", 0)
    assert float(program.w) == 78


def test_a_save_that_does_not_fit_into_the_grace_is_not_begun(make, said, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(clock, "now", lambda: now[0])
    program = make(hooks=[Send(7, TERM)], save_every_steps=5, grace_secs=3, max_steps=10)
    inside.of(program).saver._write_secs = 4.0  # as if a save took so long
    monkeypatch.setattr(type(inside.of(program).saver), "expected_secs", 4.0)
    assert program.train() == trainer.RunResult(7, "preempted", 75)
    assert program.checkpoints == [5]
    assert (
        "not saved at step 7: the save before took 4 s, and of grace_secs=3 3 s are left" in said()
    )
    assert said().splitlines()[-1] == "preempted at step 7; checkpoint 5 stands"


def test_a_save_that_fails_at_the_end_is_an_error(make, monkeypatch):
    program = make(hooks=[Send(7, TERM)], save_every_steps=5, max_steps=10)

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    class Break(trainer.Hook):
        def after_step(self, ctx):
            if ctx.step == 6:
                monkeypatch.setattr("trainer.checkpoints.commit.write", fail)
                monkeypatch.setattr("trainer.checkpoints.store.pause", lambda secs: None)

    program.register_hook(Break())
    with pytest.raises(trainer.SaveError, match="No space left"):
        program.train()
    assert program.checkpoints == [5]


def test_the_programs_own_handler_is_called_too_and_given_back(make):
    heard = []

    def own(number, frame):
        heard.append(number)

    before = signal.signal(TERM, own)
    try:
        assert make(hooks=[Send(2, TERM)], max_steps=8).train().reason == "preempted"
        assert heard == [TERM]
        assert signal.getsignal(TERM) is own
    finally:
        signal.signal(TERM, before)


def test_an_ignored_signal_stays_ignored(make):
    before = signal.signal(INT, signal.SIG_IGN)
    try:
        assert make(hooks=[Send(2, INT)], max_steps=4).train().reason == "finished"
    finally:
        signal.signal(INT, before)


def test_outside_the_main_thread_none_is_installed(make, said):
    program = make(max_steps=4)
    results = []
    thread = threading.Thread(target=lambda: results.append(program.train()))
    thread.start()
    thread.join()
    assert results == [trainer.RunResult(4, "finished", 0)]
    assert said().count("not in the main thread: signals") == 1


def test_another_wake_up_descriptor_hears_too(make):
    listening, writing = os.pipe()
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing)
    try:
        make(hooks=[Send(2, TERM)], max_steps=8).train()
        assert os.read(listening, 8) == bytes([TERM])
        assert signal.set_wakeup_fd(writing) == writing
    finally:
        signal.set_wakeup_fd(before)
        os.close(listening)
        os.close(writing)


PROGRAM = """
import sys, time
sys.path.insert(0, {tests!r})
import tensorflow as tf, trainer
from test_run_signals import Slow
Slow.secs = {secs}
class Tell(trainer.Hook):
    def after_step(self, ctx):
        print(ctx.step, flush=True)
trainer.app.run(Slow, hooks=[Tell()], save_every_steps=5, max_steps=1000)
"""


def start(folder, secs):
    code = PROGRAM.format(tests=str(pathlib.Path(__file__).parent), secs=secs)
    command = [sys.executable, "-c", code, f"--model_dir={folder}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in process.stdout:
        if int(line) >= 7:
            return process
    raise AssertionError(process.stderr.read())


@pytest.mark.parametrize(("number", "code"), [(TERM, 75), (INT, 130)])
def test_a_process_ends_with_the_status(folder, number, code):
    process = start(folder, 0.01)
    process.send_signal(number)
    steps, said = process.communicate(timeout=30)
    assert process.returncode == code
    last = int(steps.split()[-1]) if steps.split() else 7
    assert said.splitlines()[-1].endswith(f"at step {last}; checkpoint {last} stands")


def test_a_second_signal_ends_a_process_at_once(folder):
    process = start(folder, 1.0)
    time.sleep(0.3)  # now it is in the next step
    process.send_signal(TERM)
    time.sleep(0.3)
    begun = time.monotonic()
    process.send_signal(TERM)
    _, said = process.communicate(timeout=30)
    assert time.monotonic() - begun < 0.5  # the step under way takes a second
    assert process.returncode == 128 + TERM
    assert "a second stop signal (SIGTERM): ended at once" in said
    config = trainer.TrainerConfig(folder, seed=1)
    assert Summing(config).restored_step == 5


def test_two_deliveries_of_one_request_are_one(folder):
    """As `timeout` does it: to the process, and to its group."""
    process = start(folder, 0.2)
    process.send_signal(TERM)
    process.send_signal(TERM)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 75, said


def test_a_budget_counts_over_all_resumes(make, said, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(clock, "now", lambda: now[0])

    class Second(trainer.Hook):
        def before_step(self, ctx):
            now[0] += 1.0

        def after_step(self, ctx):
            pass

    settings = {"save_every_steps": 10, "max_secs": 60, "max_steps": 1000}
    with pytest.raises(trainer.testing.SimulatedCrash):
        make(hooks=[Second(), trainer.testing.CrashAt(35)], **settings).train()
    program = make(hooks=[Second()], **settings)
    assert program.restored_step == 30
    assert program.train() == trainer.RunResult(60, "time_budget", 0)
    assert program.checkpoints[-1] == 60
    assert "time budget reached: 60 of max_secs=60 s" in said()
    again = make(hooks=[Second()], **settings)
    assert again.train() == trainer.RunResult(60, "time_budget", 0)
    assert again.checkpoints[-1] == 60


def test_a_budget_leaves_time_for_the_last_save(make, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(clock, "now", lambda: now[0])

    class Second(trainer.Hook):
        def before_step(self, ctx):
            now[0] += 1.0

    program = make(hooks=[Second()], save_every_steps=None, max_secs=60, max_steps=1000)
    monkeypatch.setattr(type(inside.of(program).saver), "expected_secs", 5.0)
    assert program.train() == trainer.RunResult(55, "time_budget", 0)


def test_a_budget_of_each_process(make, said, monkeypatch):
    """60 s from the construction on, of which the first 10 are gone when training begins."""
    now = [0.0]
    monkeypatch.setattr(clock, "now", lambda: now[0])

    class Second(trainer.Hook):
        def before_step(self, ctx):
            now[0] += 1.0

    settings = {"save_every_steps": 100, "max_process_secs": 60, "max_steps": 80}
    program = make(hooks=[Second()], **settings)
    now[0] += 10.0
    assert program.train() == trainer.RunResult(50, "preempted", 75)
    assert program.checkpoints == [50]
    assert "the time of this process (max_process_secs) is used up" in said()
    assert program.train() == trainer.RunResult(50, "preempted", 75)
    again = make(hooks=[Second()], **settings)
    assert again.train() == trainer.RunResult(80, "finished", 0)
    assert float(again.w) == 80 * 81 / 2


def test_a_budget_is_an_end_by_itself(make):
    result = make(Slow, save_every_steps=None, max_secs=0.5).train()
    assert result.reason == "time_budget"
    assert 5 <= result.step <= 40


def test_a_forked_child_has_its_signals_to_itself(make):
    class Fork(trainer.Hook):
        status = None

        def after_step(self, ctx):
            if ctx.step == 4:
                child = os.fork()
                if child == 0:
                    time.sleep(20)
                    os._exit(0)
                time.sleep(0.2)
                os.kill(child, TERM)
                self.status = os.waitpid(child, 0)[1]

    hook = Fork()
    assert make(hooks=[hook], max_steps=10).train() == trainer.RunResult(10, "finished", 0)
    assert os.WTERMSIG(hook.status) == TERM


def test_a_forked_child_may_leave_the_run(make):
    """Its way out goes through the watch, whose handlers it has given back already."""

    class Fork(trainer.Hook):
        status = None

        def after_step(self, ctx):
            if ctx.step == 4:
                child = os.fork()
                if child == 0:
                    raise ChildProcessError
                self.status = os.waitpid(child, 0)[1]

    hook, parent = Fork(), os.getpid()
    try:
        make(hooks=[hook], max_steps=5, save_every_steps=100).train()
    except BaseException as error:
        if os.getpid() != parent:
            os._exit(7 if isinstance(error, ChildProcessError) else 8)
        raise
    assert os.waitstatus_to_exitcode(hook.status) == 7


@pytest.mark.parametrize("method", ["after_step", "after_save", "end"])
def test_what_came_too_late_for_one_run_stops_the_next(make, method):
    class SendLate(trainer.Hook):
        sent = False

        def send(self, ctx):
            if ctx.step == 10 and not self.sent:
                self.sent = True
                os.kill(os.getpid(), TERM)

    setattr(SendLate, method, SendLate.send)
    program = make(hooks=[SendLate()], save_every_steps=100)
    assert program.train(max_steps=10).reason == "finished"
    assert program.train(max_steps=20) == trainer.RunResult(10, "preempted", 75)
    assert program.train(max_steps=20) == trainer.RunResult(20, "finished", 0)


def test_a_run_in_a_thread_does_not_take_the_signals_from_the_main_one(make, tmp_path):
    other = make(Slow, save_every_steps=1000, max_steps=100, model_dir=str(tmp_path / "other"))
    program = make(Slow, save_every_steps=1000, max_steps=1000)
    thread = threading.Thread(target=other.train)
    thread.start()
    time.sleep(0.3)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), TERM))
    timer.start()
    result = program.train()
    thread.join()
    assert result.reason == "preempted"
    assert program.checkpoints == [result.step]


LOOP = """
import os, signal, sys, time
sys.path.insert(0, {tests!r})
import trainer
from conftest import Summing

class Sleep(trainer.Hook):
    def after_step(self, ctx):
        time.sleep(0.02)

def config(number):
    return trainer.TrainerConfig(f"{{sys.argv[1]}}/{{number}}", max_steps=60, save_every_steps=10)

with Summing(config(0), hooks=[Sleep(), trainer.testing.SignalAt(20, {signal})]) as program:
    print(program.train().reason, program.train(steps=30).reason, program.step)
for number in (1, 2):
    with Summing(config(number), hooks=[Sleep()]) as program:
        result = program.train()
        print(result.reason, result.step)
sys.exit(result.exit_code)
"""


@pytest.mark.parametrize(
    ("number", "reason", "code"), [(TERM, "preempted", 75), (signal.SIGHUP, "preempted", 75)]
)
def test_a_stopped_process_trains_no_more(tmp_path, number, reason, code):
    """The runs after it return at once: once each of them trained on to its end, with status 0."""
    program = LOOP.format(tests=str(HERE), signal=int(number))
    result = run_python(program, tmp_path, check=False)
    assert result.stdout.split() == [reason, reason, "20", reason, "0", reason, "0"], result.stderr
    assert result.returncode == code


def test_the_signals_that_stop_a_run_can_be_chosen(make):
    number = signal.SIGUSR2
    program = make(hooks=[Send(7, number)], stop_signals=("USR2",), max_steps=10)
    assert program.config.stop_signals == ("SIGUSR2",)
    assert program.train() == trainer.RunResult(7, "preempted", 75)
    hup = make(hooks=[Send(8, signal.SIGHUP)], max_steps=10)
    assert hup.train() == trainer.RunResult(8, "preempted", 75)


@pytest.mark.parametrize("wrong", ["SIGKILL", "SIGUSR1", "TERMINATE"])
def test_a_signal_that_cannot_stop_a_run(folder, wrong):
    with pytest.raises(ValueError, match=f"stop_signals must name signals such .* got '{wrong}'"):
        trainer.TrainerConfig(folder, stop_signals=(wrong,))


def test_an_ignored_hangup_stays_ignored(make):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        program = make(hooks=[Send(7, signal.SIGHUP)], max_steps=10)
        assert program.train() == trainer.RunResult(10, "finished", 0)
    finally:
        signal.signal(signal.SIGHUP, before)
