"""Every kind of program resumes exactly: invariants 1, 3 and 9."""

import random

import pytest

import trainer
from trainer.base import digests as digests_module

from conftest import run_process
from support import programs

NAMES = list(programs.PROGRAMS)


@pytest.mark.parametrize("name", NAMES)
def test_two_crashes_end_where_the_unbroken_run_ends(name):
    """A crash at a random step, and a second one during the resumed run."""
    places = sorted(random.Random(name).sample(range(2, 14), 2))

    def make(folder, hooks):
        config = trainer.TrainerConfig(folder, save_every_steps=3, seed=7, steps_per_call=4)
        return programs.PROGRAMS[name](config, hooks=hooks)

    trainer.testing.assert_resumes_exactly(make, steps=15, crashes=places)


@pytest.mark.parametrize("name", NAMES)
def test_calls_and_hooks_do_not_change_results(name, tmp_path):
    """Results depend neither on where compiled calls end nor on which hooks watch."""

    class Watch(trainer.Hook):
        def get_state(self):
            return {}

        def before_step(self, ctx):
            pass

        def after_step(self, ctx):
            float(ctx.outputs["loss"])

    digests = []
    for number, (per_call, hooks) in enumerate([(1, []), (7, []), (None, [Watch()])]):
        config = trainer.TrainerConfig(
            str(tmp_path / str(number)), seed=7, save_every_steps=100, steps_per_call=per_call
        )
        with programs.PROGRAMS[name](config, hooks=hooks) as program:
            program.train(max_steps=12)
            digests.append(trainer.testing.state_digests(program))
    for digest in digests[1:]:
        assert digests_module.first_difference(digests[0], digest) is None


@pytest.mark.parametrize("name", ["Unbuilt", "LossScale", "Generated"])
def test_killed_processes_end_where_the_unbroken_one_ends(name, tmp_path):
    """In new processes nothing of the old one is left: no slots, no iterator, no numbering."""
    folder = str(tmp_path / "cut")
    run_process(name, folder, kill_at=8, max_steps=15)
    run_process(name, folder, kill_at=11, max_steps=15)
    cut = run_process(name, folder, max_steps=15)
    unbroken = run_process(name, str(tmp_path / "unbroken"), max_steps=15)
    assert cut["restored"] == 9
    assert digests_module.first_difference(unbroken["digests"], cut["digests"]) is None
