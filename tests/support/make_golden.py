"""Writes the golden checkpoints: run once for each released format, then never again for it.

python -m support.make_golden, in tests/
"""

import pathlib
import shutil

import trainer

from support import programs

FOLDER = pathlib.Path(__file__).parent.parent / "golden"

if __name__ == "__main__":
    for name in ("Adam", "Functional", "Sonnet", "LossScale", "OldKeras"):
        shutil.rmtree(FOLDER / name, ignore_errors=True)
        config = trainer.TrainerConfig(FOLDER / name, save_every_steps=4, seed=7)
        with programs.PROGRAMS[name](config) as program:
            program.train(max_steps=4)
            names = sorted(program.state())
        (FOLDER / f"{name}.names").write_text("".join(f"{line}\n" for line in names))
        (FOLDER / name / "LOCK").unlink()
