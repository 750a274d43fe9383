"""Side-by-side measurements: what two ways of doing the same take, in turns, in one run.

Owns the order of measurements and their summary. Promises that both ways meet the same noise: they
are measured in the order A B B A, and a ratio is taken within each pair. Refuses to time anything.
"""

import dataclasses
import statistics


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
        """Returns a line of the table, with the target and whether the median meets it."""
        ratios = sorted(self.ratios())
        middle = statistics.median(ratios)
        met = middle <= target if at_most else middle >= target
        return (
            f"{self.name:<44} {statistics.median(self.ours):>9.4f} "
            f"{statistics.median(self.theirs):>9.4f} {self.unit:<5} "
            f"{middle:>7.3f}  [{ratios[0]:.3f} … {ratios[-1]:.3f}] n={len(ratios):<3} "
            f"{'at most' if at_most else 'at least'} {target:<5} {'met' if met else 'MISSED'}"
        )


HEAD = f"{'':<44} {'ours':>9} {'beside':>9} {'unit':<5} {'ratio':>7}  [spread of the ratio]"


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
