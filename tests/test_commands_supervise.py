"""Restarts that make progress, and those that do not."""

import json
import pathlib
import signal
import subprocess
import sys
import textwrap
import time

import pytest

import trainer
from trainer.commands import cli
from trainer.journal import goodput

from conftest import Summing

HERE = pathlib.Path(__file__).parent


@pytest.fixture
def checkpoints(make, tmp_path):
    """A folder with checkpoints 1 to 9, to be taken from by commands that pretend to train."""
    make(model_dir=str(tmp_path / "made"), save_every_steps=1, max_to_keep=None).train(max_steps=9)
    return tmp_path / "made"


@pytest.fixture
def command(checkpoints, folder, tmp_path):
    """Makes a command that does what a script says; `attempt` is its number, from 1."""
    pathlib.Path(folder).mkdir()

    def make_command(script):
        program = tmp_path / "program.py"
        program.write_text(
            textwrap.dedent(
                f"""
                import os, pathlib, shutil, signal, sys, time
                count = pathlib.Path({str(tmp_path / "count")!r})
                attempt = len(count.read_text()) + 1 if count.exists() else 1
                count.write_text("x" * attempt)
                def save(step):
                    made, folder = pathlib.Path({str(checkpoints)!r}), pathlib.Path({folder!r})
                    shutil.copytree(made / f"ckpt-{{step}}", folder / f"ckpt-{{step}}")
                """
            )
            + textwrap.dedent(script)
        )
        return [sys.executable, str(program), f"--model_dir={folder}"]

    return make_command


def supervise(command, *flags):
    return cli.main(["supervise", "--backoff_secs=0", *flags, "--", *command])


def attempts(tmp_path):
    return len((tmp_path / "count").read_text())


def events(folder, event):
    lines = (pathlib.Path(folder) / "journal.jsonl").read_text().splitlines()
    return [entry for entry in map(json.loads, lines) if entry["event"] == event]


def test_preemptions_cost_nothing(command, tmp_path, folder):
    script = "save(attempt); sys.exit(75 if attempt < 6 else 0)"
    assert supervise(command(script), "--max_restarts=0") == 0
    assert attempts(tmp_path) == 6
    ended = events(folder, "ended")
    assert [entry["status"] for entry in ended] == [75] * 5 + [0]
    assert [entry["newest"] for entry in ended] == [1, 2, 3, 4, 5, 6]


def test_failures_have_a_budget(command, tmp_path, said):
    assert supervise(command("save(attempt); sys.exit(3)"), "--max_restarts=2") == 3
    assert attempts(tmp_path) == 3
    assert "given up: --max_restarts=2 are used up" in said()


def test_a_kill_is_a_failure_and_the_status_is_a_shells(command, tmp_path):
    script = "save(attempt); os.kill(os.getpid(), signal.SIGKILL)"
    assert supervise(command(script), "--max_restarts=1") == 128 + signal.SIGKILL
    assert attempts(tmp_path) == 2


@pytest.mark.parametrize("status", [130, 2, 0])
def test_these_are_never_restarted(command, tmp_path, status):
    assert supervise(command(f"sys.exit({status})")) == status
    assert attempts(tmp_path) == 1


@pytest.mark.parametrize("status", [1, 75])
def test_without_progress_it_is_given_up(command, tmp_path, said, status):
    script = f"save(5) if attempt == 1 else None; sys.exit({status})"
    assert supervise(command(script), "--max_restarts=50") == status
    assert attempts(tmp_path) == 4
    assert "given up: 3 restarts in a row have not moved the newest checkpoint (5)" in said()
    assert f"the last one ended after step 5, with status {status}" in said()


def test_progress_starts_the_count_anew(command, tmp_path):
    script = "save(attempt) if attempt % 3 == 0 else None; sys.exit(1 if attempt < 9 else 0)"
    assert supervise(command(script), "--max_restarts=50") == 0
    assert attempts(tmp_path) == 9


def test_pauses_grow(command, said):
    script = "sys.exit(1)"
    assert cli.main(["supervise", "--backoff_secs=0.05", "--", *command(script)]) == 1
    assert [line.rsplit(" in ", 1)[1] for line in said().splitlines() if "starting" in line] == [
        "0.05 s",
        "0.1 s",
        "0.2 s",
    ]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["supervise", "--model_dir=x"], "supervise needs a command after --"),
        (["supervise", "--", "true"], "the command has no --model_dir; name the folder"),
        (["supervise", "--model_dir=x", "--", "trian.py"], "there is no program 'trian.py'"),
        (["supervise", "--backoff_secs=-1", "--model_dir=x", "--", "true"], "must be at least 0"),
    ],
)
def test_bad_usage(arguments, text, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    assert text in capsys.readouterr().err


def start(command, *flags):
    return subprocess.Popen(
        [sys.executable, "-m", "trainer", "supervise", *flags, "--", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_for(path):
    until = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < until, f"{path} did not appear"
        time.sleep(0.02)


WAITS = """
def stop(number, frame):
    time.sleep(0.5)  # saves
    save(7)
    sys.exit(75 if number == signal.SIGTERM else 130)
signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, stop)
(count.parent / "pid").write_text(str(os.getpid()))
time.sleep(60)
"""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_a_stop_signal_is_passed_on_and_its_save_waited_for(
    command, tmp_path, folder, number, status
):
    process = start(command(WAITS))
    wait_for(tmp_path / "pid")
    time.sleep(0.1)
    process.send_signal(number)
    said, _ = process.communicate(timeout=20)
    assert process.returncode == status, said
    assert (pathlib.Path(folder) / "ckpt-7").exists()
    assert attempts(tmp_path) == 1


def test_a_supervisor_that_is_killed_leaves_no_orphan(command, tmp_path, folder):
    process = start(command(WAITS))
    wait_for(tmp_path / "pid")
    time.sleep(0.1)
    child = int((tmp_path / "pid").read_text())
    process.kill()
    process.communicate(timeout=20)
    until = time.monotonic() + 20
    while pathlib.Path(f"/proc/{child}").exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert not pathlib.Path(f"/proc/{child}").exists()
    assert (pathlib.Path(folder) / "ckpt-7").exists()  # it had its chance to save


def test_a_real_run_is_brought_to_its_end(folder, tmp_path, capsys):
    """Killed twice and preempted once, at steps of its own choice; then where the time went."""
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            f"""
            import os, signal, sys
            sys.path.insert(0, {str(HERE)!r})
            import trainer
            from conftest import Summing

            class Dies(trainer.Hook):
                def after_step(self, ctx):
                    places = {{13: signal.SIGKILL, 27: signal.SIGTERM, 35: signal.SIGKILL}}
                    done = {str(tmp_path / "done-")!r} + str(ctx.step)
                    if ctx.step in places and not os.path.exists(done):
                        open(done, "w").close()
                        os.kill(os.getpid(), places[ctx.step])

                def get_state(self):
                    return {{}}

            trainer.app.run(Summing, hooks=[Dies()], save_every_steps=5, max_steps=40)
            """
        )
    )
    command = [sys.executable, str(program), f"--model_dir={folder}"]
    assert supervise(command, "--max_restarts=2") == 0
    ended = events(folder, "ended")
    assert [entry["status"] for entry in ended] == [-signal.SIGKILL, 75, -signal.SIGKILL, 0]
    assert [entry["newest"] for entry in ended] == [10, 27, 30, 40]
    capsys.readouterr()
    assert cli.main(["report", folder, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["attempts"] == 4
    assert report["interruptions"] == 2
    assert sum(report["secs"].values()) == pytest.approx(report["wall_secs"], rel=0.01)
    assert report["secs"]["starting"] > report["secs"]["stepping"]
    assert cli.main(["report", folder]) == 0
    text = capsys.readouterr().out
    assert "over 4 attempts, 2 interruptions, about" in text
    assert float(Summing(trainer.TrainerConfig(folder)).w) == 820


def test_where_the_time_goes_by_hand():
    """Two attempts of 100 s and 60 s: figures that can be checked in the head."""
    journal = [
        {"time": 1018, "event": "start", "process_secs": 18},
        {"time": 1020, "event": "train", "step": 0},
        {"time": 1050, "event": "save", "step": 300, "stall_secs": 1, "write_secs": 2},
        {"time": 1080, "event": "save", "step": 600, "stall_secs": 1, "write_secs": 2},
        {"time": 1100, "event": "ended", "number": 1, "status": -9, "newest": 600},
        {"time": 1105, "event": "attempt", "number": 2, "command": []},
        {"time": 1116, "event": "start", "process_secs": 10},
        {"time": 1116, "event": "restore", "step": 600, "steps_lost": 0, "secs": 4},
        {"time": 1116, "event": "train", "step": 600},
        {"time": 1160, "event": "save", "step": 1000, "stall_secs": 2, "write_secs": 2},
        {"time": 1165, "event": "stop", "step": 1000, "reason": "finished"},
        {"time": 1166, "event": "ended", "number": 2, "status": 0, "newest": 1000},
    ]
    found = goodput.report(journal)
    assert found["wall_secs"] == 166
    assert found["secs"] == {
        "stepping": (58 - 2) + (50 - 2),
        "saving": 2 + 2,
        "restoring": 4,
        "starting": 20 + 7,
        "lost": 22,
        "idle": 5,
    }
    assert found["goodput"] == pytest.approx(104 / 166)
    assert found["interruptions"] == 1
    assert found["steps_lost"] == [round(22 * 600 / 58)]
    assert goodput.failures(journal) == (1, 80 + 50)


def test_attempts_that_never_came_to_train():
    """Killed while it started: all of it is time to start. Only looked at: no failure."""
    journal = [
        {"time": 1000, "event": "attempt", "number": 1, "command": []},
        {"time": 1003, "event": "ended", "number": 1, "status": -9, "newest": None},
        {"time": 1003, "event": "attempt", "number": 2, "command": []},
        {"time": 1005, "event": "start", "process_secs": 2},
        {"time": 1006, "event": "train", "step": 0},
        {"time": 1016, "event": "ended", "number": 2, "status": -9, "newest": None},
        {"time": 1020, "event": "start", "process_secs": 1},
    ]
    found = goodput.report(journal)
    assert found["secs"] == {
        "stepping": 0,
        "saving": 0,
        "restoring": 0,
        "starting": 3 + 3 + 1,
        "lost": 10,
        "idle": 3,
    }
    assert (found["attempts"], found["steps_lost"]) == (3, [0, 0, 0])
    assert goodput.failures(journal) == (1, 10)


def test_what_a_run_that_is_on_has_not_saved_is_no_loss(make, folder, capsys):
    program = make(max_steps=9, save_every_steps=100)

    class Report(trainer.Hook):
        every_steps = 6

        def after_step(self, ctx):
            cli.main(["report", folder, "--json"])

    program.register_hook(Report())
    program.train()
    found = json.loads(capsys.readouterr().out)
    assert (found["interruptions"], found["secs"]["lost"]) == (0, 0)
    program.close()
    text = (pathlib.Path(folder) / "journal.jsonl").read_text()
    (pathlib.Path(folder) / "journal.jsonl").write_text(text[: text.index("train") + 60])
    assert cli.main(["report", folder, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["interruptions"] == 1


def test_a_clock_that_jumps_and_lines_that_somebody_spoilt():
    journal = [
        {"time": 1000, "event": "start", "process_secs": 5},
        {"time": 400, "event": "restore", "step": 3, "secs": 20},
        {"time": 410, "event": "train"},
        {"event": "save", "step": "x", "stall_secs": None},
        {"time": 1100, "event": "stop"},
        {"time": 50, "event": "start", "process_secs": "long"},
    ]
    found = goodput.report(journal)
    assert found["wall_secs"] == 105
    assert sum(found["secs"].values()) == 105
    assert min(found["secs"].values()) >= 0
    assert goodput.failures(journal) == (1, 100)


def test_failures_are_those_of_runs_that_trained():
    def run(*events):
        return [{"time": 0, "event": "start"}, *({"time": 5, **event} for event in events)]

    train, looked = {"event": "train", "step": 0}, run()
    killed, raised = run(train), run(train, {"event": "stop", "reason": "error"})
    ended = run(train, {"event": "stop", "reason": "finished"})
    assert goodput.failures([*killed, *looked])[0] == 1
    assert goodput.failures([*ended, *looked])[0] == 0
    assert goodput.failures([*raised, *killed, *looked, *ended, *looked])[0] == 2
    assert goodput.failures([]) == (0, 0)


def test_an_empty_journal_is_a_finding(make, folder, capsys):
    make(max_steps=3).train()
    (pathlib.Path(folder) / "journal.jsonl").unlink()
    assert cli.main(["report", folder]) == 1
    assert "no start in the journal of" in capsys.readouterr().out
