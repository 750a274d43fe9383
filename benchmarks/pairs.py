"""Side-by-side measurements: what two ways of doing the same take, in turns, in one run.

Owns the order of measurements and the table. Promises that both ways meet the same noise: they are
measured in the order A B B A, and a ratio is taken within each pair. Refuses to time anything.
"""

import dataclasses
import os
import statistics
import sys
import tempfile

HEAD = (
    "| figure | ours | beside | unit | ratio | spread | pairs | target | |\n"
    "|---|---|---|---|---|---|---|---|---|"
)


@dataclasses.dataclass
class Result:
    """Pairs of measurements of the same thing.

    Args:
        name: what was measured.
        ours: measurements of this package.
        theirs: measurements of what it is compared with.
        unit: unit of both.
    """

    name: str
    ours: list
    theirs: list
    unit: str = "s"

    def ratios(self):
        """Returns ours / theirs of each pair."""
        return [a / b for a, b in zip(self.ours, self.theirs, strict=True)]

    def line(self, target, at_most=True):
        """Returns a row of the table, with the target and whether the median meets it.

        The spread is the range of the ratios without the lowest and the highest eighth of them.
        """
        ratios = sorted(self.ratios())
        middle = statistics.median(ratios)
        met = middle <= target if at_most else middle >= target
        cut = len(ratios) // 8
        return (
            f"| {self.name} | {statistics.median(self.ours):.4g} "
            f"| {statistics.median(self.theirs):.4g} | {self.unit} | {middle:.3f} "
            f"| {ratios[cut]:.3f} to {ratios[-1 - cut]:.3f} | {len(ratios)} "
            f"| {'at most' if at_most else 'at least'} {target} | {'met' if met else 'MISSED'} |"
        )


def alternate(pairs, ours, theirs, warm_up=1):
    """Calls two functions in the order A B B A … and returns what each returned.

    Args:
        pairs: how many measurements of each.
        ours: function without arguments that returns a figure.
        theirs: the same.
        warm_up: calls of each before the first that counts.
    """
    for _ in range(warm_up):
        ours()
        theirs()
    found = ([], [])
    for number in range(pairs):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            found[which].append((ours, theirs)[which]())
    return found


def table(figures, names):
    """Prints the table of the figures named, or of all.

    Args:
        figures: functions that print rows, by name; each takes a folder to work in, which lies in
            BENCH_DIR if the environment has that.
        names: which of them.
    """
    unknown = sorted(set(names) - set(figures))
    if unknown:
        sys.exit(f"there is no figure {', '.join(unknown)}; choose of {', '.join(figures)}")
    print(HEAD)
    for name in names or figures:
        with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as scratch:
            figures[name](scratch)
