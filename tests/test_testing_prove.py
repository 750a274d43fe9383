"""`prove`: of whole programs, with kills everywhere, and a verdict that names what differs.

The suite runs few proofs, since each is several processes; CAMPAIGN=1 runs the others.
"""

import json
import os
import sys

import numpy as np
import pytest

import trainer
from trainer import app
from trainer.base import probe
from trainer.commands import cli
from trainer.testing import prove, prove_plan, prove_words
from trainer.testing.prove_lives import Told

CAMPAIGN = pytest.mark.skipif(
    not os.environ.get("CAMPAIGN"), reason="a proof more; CAMPAIGN=1 runs it"
)

PROGRAM = """
import sys, time
import numpy as np
import tensorflow as tf
import trainer
from absl import flags

KIND = flags.DEFINE_string("kind", "exact", "Which program.")
X = np.random.RandomState(0).rand(64, 8).astype("float32")

class Line(trainer.Trainer):
    def build(self):
        start = time.time_ns() % 1000003 if KIND.value == "chance" else 1.0
        self.w = tf.Variable(tf.fill([8, 1], tf.cast(start, tf.float32)))

    def train_dataset(self):
        return trainer.data.Indexed(X, batch_size=8, seed=3)

    def train_step(self, x):
        self.w.assign_sub(0.01 * tf.transpose(x) @ (x @ self.w))
        return {"loss": tf.reduce_mean((x @ self.w) ** 2)}

    def eval_dataset(self):
        return tf.data.Dataset.from_tensor_slices(X).batch(8)

    def eval_step(self, x):
        return {"mean": tf.reduce_mean(x @ self.w)}

class Judge(trainer.Hook):
    every_steps = 10
    def after_step(self, ctx):
        ctx.trainer.evaluate()

class StopAfterCalls(trainer.Hook):
    every_steps = 5
    calls = 0
    def after_step(self, ctx):
        self.calls += 1
        if self.calls == 6:
            ctx.request_stop("six calls")

class Twice(trainer.Hook):
    every_steps = 7
    def __init__(self):
        self.factor = 1.0
    def after_step(self, ctx):
        self.factor += 1.0
        ctx.trainer.w.assign(ctx.trainer.w * self.factor)

HOOKS = {"exact": Judge, "chance": Judge, "stop": StopAfterCalls, "factor": Twice}

if __name__ == "__main__":
    trainer.app.run(Line, hooks=lambda: [HOOKS[KIND.value]()], save_every_steps=10)
"""

OWN_LOOP = """
import os, sys
import trainer
from absl import flags
flags.FLAGS(["x"])
from program import Line

for name in ("one", "two"):
    config = trainer.TrainerConfig(f"/nowhere/{name}", max_steps=1000, seed=5)
    with Line(config) as line:
        assert not line.model_dir.startswith("/nowhere"), line.model_dir
        line.train(max_steps=15)
        while line.step < config.max_steps:
            line.train(steps=10)
        print(line.evaluate())
sys.exit(4)
"""


@pytest.fixture
def program(tmp_path):
    """The program's command with flags: program(*flags)."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return lambda *flags: [sys.executable, str(path), *flags]


def test_a_whole_program_that_is_exact(program, proves_exact, cases):
    lines = proves_exact(command=program("--max_steps=7"), steps=60, kills=2, seed=1)
    assert [line.split(":")[0] for line in lines[1:3]] == ["kill 1", "kill 2"]
    assert "unbroken run: 60 steps (finished), status 0" in lines[0]
    assert lines[-1].startswith("exact: ")
    assert lines[-1].endswith("names equal after 2 kills, and the same end")
    cases("kills in a proof", 2)


def test_a_hook_that_forgets_is_found_and_named(program, capsys):
    status = cli.main(["prove", "--steps=60", "--kills=1", "--json", "--", *program("--kind=stop")])
    said = json.loads(capsys.readouterr().out)
    assert (status, said["exact"], said["verdict"]) == (1, False, "not exact")
    assert said["differs"]["name"] == "the step of the end"
    assert said["differs"]["expected"] == "30 (stopped)"
    assert said["suspects"][0] == (
        "hook StopAfterCalls keeps no state (it has no get_state), and its calls changed during "
        "the run"
    )
    assert "a second unbroken run ended as the first did" in said["report"]


def test_a_program_of_chance_is_not_deterministic(program):
    request = prove.Request("", 20, 0, 0, command=program("--kind=chance"))
    verdict = prove.prove(request)
    assert (verdict.exact, verdict.word) == (False, "not deterministic")
    assert verdict.differs.name == "w"
    assert verdict.differs.expected.startswith("float32[8, 1] [0, 0] = ")
    assert (verdict.differs.step, verdict.differs.output[:6]) == (1, "'loss'")
    assert "two unbroken runs differ already" in "\n".join(verdict.lines)


@CAMPAIGN
@pytest.mark.parametrize("seed", [0, 1])
def test_kills_everywhere(program, seed, cases):
    request = prove.Request("", 80, 9, seed, command=program())
    verdict = prove.prove(request)
    report = "\n".join(verdict.lines)
    assert verdict.exact, report
    for place in (
        "in the construction: ",
        "in the first save: of step 10",
        "in a hook from step",
        "Judge.after_step at step",
        "in an evaluation from step",
        "in a save from step",
        "in the recovery: of step",
        "armed at step",
    ):
        assert place in report
    cases("kills in a proof", 9)


@CAMPAIGN
def test_a_changed_state_is_shown_with_its_values(program):
    verdict = prove.prove(prove.Request("", 60, 2, 0, command=program("--kind=factor")))
    report = "\n".join(verdict.lines)
    assert verdict.word == "not exact", report
    assert "w differs first: unbroken float32[8, 1] [0, 0] = " in report
    assert "the first step whose outputs differ is " in report
    assert "suspect 1: hook Twice keeps no state (it has no get_state), and its factor" in report


@CAMPAIGN
def test_a_program_with_two_trainers_and_loops_of_its_own(program, tmp_path, proves_exact):
    program()
    path = tmp_path / "own_loop.py"
    path.write_text(OWN_LOOP)
    lines = proves_exact(command=[sys.executable, path], steps=40, kills=5)
    report = "\n".join(lines)
    assert "unbroken run one: 40 steps (finished), status 4" in report
    assert "unbroken run two: 40 steps (finished), status 4" in report
    assert not os.path.exists("/nowhere")


@CAMPAIGN
def test_a_class_alone_says_what_it_leaves_out(program, capsys):
    path = program()[1]
    assert cli.main(["prove", f"{path}:Line", "--steps=40", "--kills=1", "--", "--kind=stop"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("left out: the hooks of the program, the defaults that it gives app")
    assert f"`prove ... -- python {path}`" in first


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("", "the unbroken run trained nothing: the command ended without a train()"),
        ("raise SystemExit(3)", "the unbroken run ended with status 3"),
    ],
)
def test_a_command_that_does_not_train(code, text):
    verdict = prove.prove(prove.Request("", 5, 1, 0, command=[sys.executable, "-c", code]))
    assert (verdict.exact, verdict.word) == (False, "not proved")
    assert text in verdict.lines[-1]


def test_a_kill_that_did_not_happen_fails_the_proof():
    plan = prove_plan.Plan(0, 7)
    assert plan.early()[0].words == "in the construction"
    verdict = prove.prove(prove.Request("", 5, 7, 0, command=[sys.executable, "-c", "pass"]))
    assert verdict.word == "not proved"
    assert (
        "not proved: kill 1, in the construction, did not happen: the process"
        in (verdict.lines[-1])
    )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["prove", "--steps=3"], "prove needs a command after --"),
        (["prove", "--steps=3", "--", "no-such-program"], "there is no program 'no-such-program'"),
    ],
)
def test_bad_usage(arguments, text, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    assert text in capsys.readouterr().err


def test_the_fixture_takes_one_of_two(proves_exact):
    with pytest.raises(ValueError, match="give a target or a command"):
        proves_exact("a.py:B", command=["python", "a.py"], steps=3)


# Where it kills.


REPORTS = {"one": {"step": 40, "secs": 0.001}, "two": {"step": 20, "secs": 0.001}}
PLACES = [
    {"run": run, "place": place, "step": step}
    for run, step in (("one", 30), ("two", 10))
    for place in (probe.HOOK, probe.EVALUATION)
]


def plan(seed, kills, places=PLACES):
    made = prove_plan.Plan(seed, kills)
    return [*made.early(), *made.late(REPORTS, places)]


def test_the_seed_decides_where_it_kills():
    assert plan(3, 12) == plan(3, 12)
    assert plan(3, 12) != plan(4, 12)
    places = {planned.kill.place for planned in plan(3, 7)}
    assert places == {
        probe.STEP, probe.HOOK, probe.EVALUATION, probe.SAVE, probe.CONSTRUCTION, probe.RECOVERY
    }  # fmt: skip


@pytest.mark.parametrize("kills", [0, 1, 2, 7, 30])
def test_there_are_as_many_kills_as_asked_for_in_the_order_of_the_run(kills):
    planned = plan(1, kills)
    assert len(planned) == kills
    stepped = [p.kill for p in planned if p.kill.step]
    assert stepped == sorted(stepped, key=lambda kill: (kill.run != "one", kill.step))
    assert all(1 <= kill.step <= REPORTS[kill.run]["step"] for kill in stepped)
    assert probe.STEP in {kill.place for kill in stepped} or not kills


def test_no_kill_is_planned_in_hooks_that_a_program_has_not():
    places = {planned.kill.place for planned in plan(3, 20, places=[])}
    assert not places & {probe.HOOK, probe.EVALUATION}


# What it says.


def told(tmp_path, name, *, step=5, reason="finished", status=0, **values):
    folder = tmp_path / name
    folder.mkdir()
    values = {key.replace("__", "/"): np.asarray(value) for key, value in values.items()}
    np.savez(folder / "run.npz", **values)
    digests = {key: value.tobytes().hex() for key, value in values.items()}
    report = {
        "step": step,
        "reason": reason,
        "digests": digests,
        "warnings": [],
        "possible": [],
        "forgotten": {},
    }
    return Told(status, {"run": report}, str(folder), "")


@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        (
            {"w": np.float32([[1, 2], [3, 4]])},
            {"w": np.float32([[1, 2], [3.5, 4]])},
            ("w", "float32[2, 2] [1, 0] = 3.0", "float32[2, 2] [1, 0] = 3.5"),
        ),
        ({"w": np.float32(0.0)}, {"w": np.float32(-0.0)}, ("w", "float32 = 0.0", "float32 = -0.0")),
        (
            {"w": 1.0, "trainer__history__loss": 3.0},
            {"w": 2.0, "trainer__history__loss": 4.0},
            ("w", "float64 = 1.0", "float64 = 2.0"),
        ),
        ({"w": np.zeros(3)}, {"w": np.zeros(4)}, ("w", "float64[3]", "float64[4]")),
        ({"w": 1.0, "v": 2.0}, {"w": 1.0}, ("v", "float64", "absent")),
        (
            {"h": "x" * 100 + '{"n": 1}'},
            {"h": "x" * 100 + '{"n": 2}'},
            ("h", "…" + "x" * 14 + '{"n": 1}', "…" + "x" * 14 + '{"n": 2}'),
        ),
        (
            {"w": 1.0, "step": 6},
            {"w": 2.0},
            ("the step of the end", "6 (finished)", "5 (finished)"),
        ),
        (
            {"w": 1.0},
            {"w": 1.0, "reason": "stopped"},
            ("the reason of the end", "5 (finished)", "5 (stopped)"),
        ),
        ({"w": 1.0}, {"w": 1.0, "status": 75}, ("the exit status", "0", "75")),
    ],
)
def test_the_first_difference_is_shown_with_both_values(tmp_path, one, two, expected):
    found = prove_words.difference(told(tmp_path, "one", **one), told(tmp_path, "two", **two))
    assert (found.name, found.expected, found.seen) == expected


def test_no_difference(tmp_path):
    one = told(tmp_path, "one", w=np.float64(np.nan))
    two = told(tmp_path, "two", w=np.float64(np.nan), reason="already_finished")
    assert prove_words.difference(one, two) is None


def test_what_construction_warned_of_comes_first_among_the_suspects(tmp_path):
    one = told(tmp_path, "one")
    one.runs["run"].update(warnings=["a stage without a seed"], forgotten={"Mine": ["n"]})
    first, second = prove_words.suspects(one)
    assert first == "construction warned: a stage without a seed"
    assert second.startswith("hook Mine keeps no state")


# What it puts in place of a program's settings.


@pytest.fixture
def watched(tmp_path, monkeypatch):
    """Makes this process one of a proof of 50 steps; returns its folder."""
    job = probe.Job(str(tmp_path / "proof"), 50, 11)
    probe.write(job, str(tmp_path / "job"))
    monkeypatch.setenv(probe.VARIABLE, str(tmp_path / "job"))
    monkeypatch.setattr(probe, "_names", {})
    monkeypatch.setattr(probe, "_idle", {})
    probe.job.cache_clear()
    probe._killer.cache_clear()
    yield job.folder
    monkeypatch.undo()
    probe.job.cache_clear()
    probe._killer.cache_clear()


def test_the_settings_of_a_run_that_is_watched(watched):
    config = trainer.TrainerConfig("runs/digits", max_steps=10**6, save_every_steps=1000)
    assert (config.model_dir, config.max_steps) == (f"{watched}/digits", 50)
    assert (config.save_every_steps, config.seed) == (5, 11)
    again = trainer.TrainerConfig(config.model_dir, seed=3, save_every_steps=7)
    assert (again.model_dir, again.seed, again.save_every_steps) == (config.model_dir, 3, 7)
    assert trainer.TrainerConfig(f"{config.model_dir}/a").model_dir == f"{watched}/digits/a"
    assert trainer.TrainerConfig("other/digits").model_dir == f"{watched}/digits-2"
    with pytest.raises(ValueError, match="save_every_steps must be"):
        trainer.TrainerConfig("run", save_every_steps=-1)


def test_the_flags_of_a_run_that_is_watched(watched):
    values = app.flags.FlagValues()
    app.define_flags(values)
    app.parse(["program", "--max_steps=9"], values)
    assert (values["model_dir"].value, values["max_steps"].value) == (f"{watched}/run", 50)
    assert app.config_from_flags(values) == trainer.TrainerConfig(f"{watched}/run")


def test_where_a_run_that_is_watched_ends(watched):
    assert [probe.goal("run", 0, wanted) for wanted in (None, 7, 50, 90)] == [50, 7, 50, 50]
    assert [probe.goal("run", 50, 90) for _ in range(2)] == [50, 50]
    with pytest.raises(RuntimeError, match=r"again and again at step 50.*--steps=50"):
        probe.goal("run", 50, 90)


def test_nothing_is_put_in_place_where_no_proof_is_on():
    assert probe.job() is None
    assert probe.settings({"model_dir": "run", "save_every_steps": None, "seed": None}) == {}
    assert probe.goal("run", 50, 90) == 90
    assert probe.boundary("run", 3, 9) == 9
