"""Draws the loss of an unbroken run above that of the same run, killed three times.

    python docs/figures/broken_and_unbroken.py

Owns the figure of the front page. Promises that both runs are real: each start is a process of its
own, each kill a SIGKILL, and nothing is drawn unless both end in the same state. Refuses to smooth.
Needs matplotlib (the extra `docs`) and scikit-learn.
"""

import json
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parent.parent.parent
FIGURE = ROOT / "docs" / "assets" / "broken-and-unbroken.png"
STEPS, SAVES, KILLS = 400, 50, (90, 188, 335)


def program():
    """Returns the README's program as a module."""
    text = re.search(
        r'```python title="digits.py"\n(.*?)```', (ROOT / "README.md").read_text(), re.S
    )
    names = {"__name__": "digits"}
    exec(compile(text[1], "README.md", "exec"), names)
    return names["Digits"]


def train(folder, losses, kill_at):
    """Trains in this process, writes the loss of each step to a file, and is killed if asked."""
    import trainer

    class Write(trainer.Hook):
        def __init__(self):
            pathlib.Path(losses).write_text("")

        def after_step(self, ctx):
            with open(losses, "a") as file:
                print(json.dumps([ctx.step, float(ctx.outputs["loss"])]), file=file)

        def get_state(self):
            return {}

    hooks = [Write()] + ([trainer.testing.KillAt(kill_at)] if kill_at else [])
    config = trainer.TrainerConfig(folder, max_steps=STEPS, save_every_steps=SAVES, seed=7)
    with program()(config, hooks=hooks) as made:
        made.train()
        print(trainer.testing.state_digest(made))


def lives(folder, kills):
    """Returns what each process saw, steps and losses, and the digest of the state at the end."""
    seen = []
    for number, kill_at in enumerate([*kills, 0]):
        losses = f"{folder}-{number}.jsonl"
        command = [sys.executable, __file__, folder, losses, str(kill_at)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != (-signal.SIGKILL if kill_at else 0):
            sys.exit(f"process {number} ended with {done.returncode}\n{done.stderr}")
        seen.append([json.loads(line) for line in pathlib.Path(losses).read_text().splitlines()])
    return seen, done.stdout.split()[-1]


def draw(unbroken, broken):
    """Writes the figure."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    pyplot.rcParams.update({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = pyplot.subplots(2, 1, figsize=(9, 4.6), sharex=True, sharey=True, dpi=130)
    colours = ["#546e7a", "#00897b", "#6d4c9f", "#c2571a"]
    axes[0].plot(*zip(*unbroken, strict=True), color=colours[0], lw=1.3)
    axes[0].set_title("unbroken", loc="left", fontsize=11)
    axes[1].set_title("killed three times, and started again", loc="left", fontsize=11)
    for number, life in enumerate(broken):
        again = [point for point in life if point[0] <= (KILLS[number - 1] if number else 0)]
        label = f"process {number + 1}"
        axes[1].plot(*zip(*life, strict=True), color=colours[number], lw=1.3, label=label)
        if again:  # what was lost and done again lies on the line of the process before
            axes[1].axvspan(again[0][0] - 1, again[-1][0], color=colours[number], alpha=0.15, lw=0)
    for kill, life in zip(KILLS, broken, strict=False):
        axes[1].plot(kill, life[-1][1], "x", color="#b71c1c", ms=9, mew=2.2)
    axes[1].plot([], [], "x", color="#b71c1c", ms=8, mew=2, label="SIGKILL")
    for axis in axes:
        axis.set_ylabel("loss")
        axis.plot(*unbroken[-1], "o", color="black", ms=5)
        axis.annotate(
            f"{unbroken[-1][1]:.7f}", unbroken[-1], (0, 9), textcoords="offset points", ha="right"
        )
    place = {"loc": "lower right", "bbox_to_anchor": (1, 0.97), "ncols": 5}
    axes[1].legend(frameon=False, fontsize=9, columnspacing=1.2, handlelength=1.2, **place)
    axes[1].set_xlabel("step (shaded: done twice, since the last save was at a multiple of 50)")
    figure.tight_layout()
    figure.savefig(FIGURE, metadata={"Software": None})


def main():
    """Trains both and draws."""
    with tempfile.TemporaryDirectory() as scratch:
        (unbroken,), one = lives(f"{scratch}/unbroken", ())
        broken, two = lives(f"{scratch}/broken", KILLS)
    if one != two or [life[-1][0] for life in broken] != [*KILLS, STEPS]:
        sys.exit("the two runs did not end alike; nothing is drawn")
    draw(unbroken, broken)
    print(f"{FIGURE}: both ended in {one[:16]}…")


if __name__ == "__main__":
    if len(sys.argv) == 4:
        train(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    else:
        main()
