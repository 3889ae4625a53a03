"""A model's curve over epsilon: a figure, and some of its radii in a table."""

import math
from dataclasses import dataclass

from fairbench.leaderboard.searches import SEARCH
from fairbench.metrics.curves import Curves, success_curves
from fairbench.outcomes import Outcomes
from fairbench.reports.site import charts
from fairbench.reports.values import epsilon_text, rate

_RADII, _TABLE_RADII = 32, 8


@dataclass(frozen=True)
class Curve:
    """A model's success rates over epsilon, as a figure and as rows of a table."""

    search: Outcomes
    found: Curves

    @property
    def lines(self) -> charts.Lines:
        """The figure."""
        return charts.lines(self.found)

    @property
    def examples(self) -> int:
        """How many examples were searched."""
        return len(self.search)

    @property
    def radius(self) -> str:
        """The largest radius."""
        return epsilon_text(self.search.manifest["attacks"][SEARCH]["epsilon"])

    @property
    def rows(self) -> list[dict[str, str]]:
        """Some of the radii: epsilon, average, worst class, CRU_s."""
        records = self.found.overall.to_dict("records")
        step = max(1, math.ceil((len(records) - 1) / _TABLE_RADII))
        return [
            {
                "epsilon": epsilon_text(row["epsilon"]),
                "average": rate(row["average"], (row["average_low"], row["average_high"])),
                "worst": f"{row['worst']:.2f} {row['worst_class']}",
                "cru_s": rate(row["cru_s"], (row["cru_s_low"], row["cru_s_high"])),
            }
            for row in records[::step]
        ]


def curve(search: Outcomes) -> Curve:
    """Return the curve of a search, at 33 of its radii at most."""
    held = search.manifest["attacks"][SEARCH]
    levels = round(held["epsilon"] / held["resolution"])
    step = max(1, math.ceil(levels / _RADII))
    return Curve(search, success_curves(search, SEARCH, [n * held["resolution"] for n in range(0, levels + 1, step)]))
