"""Each example program ends where its unbroken run ends, and learns something on the way.

The suite cuts each of them in one process, and kills two, once. `make crash-test` (CAMPAIGN=1)
kills all of them, three times, and trains each as long as its own text says.
"""

import os
import re
import signal
import subprocess
import sys
import threading
import types

import numpy as np
import pytest

import trainer
from trainer.testing import prove

from support import examples

pytest.importorskip("sklearn")

CAMPAIGN = bool(os.environ.get("CAMPAIGN"))
KILLS = 3 if CAMPAIGN else 1
KILLED = [p for p in examples.PROGRAMS if CAMPAIGN or p.name in ("dqn", "several_phases")]


class Outputs(trainer.Hook):
    """Keeps an output of each step that this process has done."""

    only_outputs = True

    def __init__(self, output):
        self.output, self.values = output, []

    def after_step(self, ctx):
        self.values.append(float(ctx.outputs[self.output]))

    def get_state(self):
        return {}


def named(program):
    return program.name


@pytest.mark.parametrize("program", examples.PROGRAMS, ids=named)
def test_two_crashes_end_where_the_unbroken_run_ends(program, monkeypatch, caplog):
    for name, value in program.smaller.items():
        monkeypatch.setattr(examples.load(program.name), name, value)
    watches = []

    def make(folder, hooks):
        watches.extend([Outputs(program.falls)] if program.falls else [])
        config = trainer.TrainerConfig(folder, save_every_steps=10, seed=7)
        return program.make(config, [*watches[-1:], *hooks])

    trainer.testing.assert_resumes_exactly(make, steps=program.steps, crashes=program.crashes)
    assert "a resumed run" not in caplog.text  # nothing exact is warned of
    if program.falls:
        unbroken, fifth = np.array(watches[0].values), program.steps // 5
        assert len(unbroken) == program.steps
        assert unbroken[-fifth:].mean() < 0.97 * unbroken[:fifth].mean()


@pytest.mark.parametrize("program", KILLED, ids=named)
def test_kills_end_where_the_unbroken_run_ends(program, cases):
    target = f"{examples.EXAMPLES / program.name}.py:{program.trainer}"
    flags = (*program.flags, "--save_every_steps=15")
    verdict = prove.prove(prove.Request(target, steps=120, kills=KILLS, seed=1, flags=flags))
    assert verdict.exact, "\n".join(verdict.lines)
    cases("kills of examples", KILLS)


@pytest.mark.skipif(not CAMPAIGN, reason="takes minutes; CAMPAIGN=1 runs it")
@pytest.mark.parametrize("program", examples.PROGRAMS, ids=named)
def test_a_whole_run_comes_to_a_sensible_end(program, tmp_path):
    path = examples.EXAMPLES / f"{program.name}.py"
    assert f"{program.name}.py --model_dir=" in path.read_text()
    assert f"--max_steps={program.whole}\n" in path.read_text()
    result = subprocess.run(
        [sys.executable, path, "--model_dir=run", f"--max_steps={program.whole}", "--seed=1"],
        cwd=tmp_path,
        env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    pattern, least, most = program.ends
    found = re.findall(pattern, result.stdout + result.stderr)
    assert found, result.stdout + result.stderr
    assert least <= float(found[-1]) <= most


def test_the_gan_draws_the_same_noise_each_time(tmp_path):
    module = examples.load("gan")
    program = types.SimpleNamespace(generator=module.make_generator(), model_dir=str(tmp_path))
    for step in (200, 400):
        module.DrawSamples().after_step(types.SimpleNamespace(trainer=program, step=step))
    first, second = (tmp_path / f"samples-000{step}.png" for step in (200, 400))
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes()[:4] == b"\x89PNG"


def test_the_best_model_is_exported_and_found_again(tmp_path, capsys):
    module = examples.load("best_model")
    (tmp_path / "export.new").mkdir()  # of a process that was killed while it exported
    (keep,) = hooks = [module.KeepBest(every_steps=10)]
    config = trainer.TrainerConfig(str(tmp_path), seed=7, save_every_steps=1000)
    with module.BestModel(config, hooks=hooks) as program:
        program.train(max_steps=50)
        best = [value.copy() for value in program.best.get_weights()]
        program.train(max_steps=55)  # the model goes on, and the best one stays
        for kept, now in zip(best, program.best.get_weights(), strict=True):
            np.testing.assert_array_equal(kept, now)
    held_out = {name: rows[module.TRAINING :] for name, rows in module.load_digits().items()}
    for found in module.classify(str(tmp_path / "export"), held_out["image"]):
        assert np.mean(found == held_out["label"]) == pytest.approx(keep.accuracy, abs=1e-6)
    assert sorted(os.listdir(tmp_path / "export")) == ["model.keras", "saved_model"]
    assert (
        f"best held-out accuracy {keep.accuracy:.4f}, of step {keep.step}"
        in capsys.readouterr().out
    )


def test_a_phase_leaves_alone_what_it_does_not_train(tmp_path):
    module = examples.load("several_phases")
    config = trainer.TrainerConfig(str(tmp_path), seed=7, save_every_steps=1000)
    with module.SeveralPhases(config, pretrain_steps=5, head_steps=5) as program:

        def after(steps):
            program.train(max_steps=steps)
            return {
                name: getattr(program, name).get_weights()
                for name in ("encoder", "decoder", "head")
            }

        begun, pretrained, headed, tuned = (after(steps) for steps in (1, 5, 10, 12))
    changed = [
        {name for name in before if not np.array_equal(before[name][0], then[name][0])}
        for before, then in ((begun, pretrained), (pretrained, headed), (headed, tuned))
    ]
    assert changed == [{"encoder", "decoder"}, {"head"}, {"encoder", "head"}]


def folders(tmp_path):
    return {rate: str(tmp_path / f"rate-{rate:g}") for rate in (0.001, 0.01)}


def test_a_sweep_in_one_process_goes_on_where_it_was_stopped(tmp_path, monkeypatch, said):
    module = examples.load("sweep")
    config = trainer.TrainerConfig(str(tmp_path), max_steps=20, seed=7)
    with monkeypatch.context() as patch:
        patch.setattr(module, "Report", lambda: trainer.testing.SignalAt(7))
        assert module.in_this_process(config, folders(tmp_path)) == 75
    assert not os.path.exists(folders(tmp_path)[0.01])
    assert module.in_this_process(config, folders(tmp_path)) == 0
    assert "resumed at step 7" in said()
    assert all(os.path.exists(f"{folder}/result.json") for folder in folders(tmp_path).values())


@pytest.fixture
def as_if_started_with(monkeypatch):
    """Has the sweep start a line of Python instead of itself; gives handlers of signals back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield lambda line: monkeypatch.setattr(sys, "argv", ["-c", line])
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(("statuses", "expected"), [((0, 0), 0), ((0, 75), 75), ((1, 0), 1)])
def test_a_sweep_in_processes_ends_with_what_they_say(
    statuses, expected, tmp_path, as_if_started_with
):
    line = (
        f"import sys; sys.exit(dict(zip(['--rate=0.001', '--rate=0.01'], {statuses}))[sys.argv[1]])"
    )
    as_if_started_with(line)
    assert examples.load("sweep").in_processes(folders(tmp_path), 2) == expected


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_a_sweep_in_processes_passes_a_stop_signal_on(number, status, tmp_path, as_if_started_with):
    """The first member is told once, and the second one is not begun."""
    up = tmp_path / "up"
    as_if_started_with(
        "import pathlib, signal, sys, time\n"
        f"up = pathlib.Path({str(up)!r} + sys.argv[1])\n"
        "def stop(number, _):\n"
        "    up.with_name('told').open('a').write('x')\n"
        "    time.sleep(0.3)\n"
        f"    sys.exit({status})\n"
        f"signal.signal({int(number)}, stop)\n"
        "up.touch()\n"
        "time.sleep(60)"
    )

    def stop():
        while not list(tmp_path.iterdir()):
            threading.Event().wait(0.02)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=stop)
    thread.start()
    assert examples.load("sweep").in_processes(folders(tmp_path), 1) == status
    thread.join()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["told", "up--rate=0.001"]
    assert (tmp_path / "told").read_text() == "x"
