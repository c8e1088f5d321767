"""The distribution of s as a PNG, with the range that is proposed."""

from __future__ import annotations

from pathlib import Path

from gateway.calibrate.measure import Measurement
from gateway.calibrate.profile import Profile
from gateway.errors import CalibrationError

_INCHES = (7.0, 4.0)
_DPI = 130
_NUM_BINS = 40
_BARS, _RANGE, _INK = "#9ca3af", "#c2410c", "#111827"


def check_plot(file: Path) -> None:
    """Raise CalibrationError where no plot could be written to ``file`` once there is something to show."""
    if file.suffix.lower() != ".png":
        raise CalibrationError(f"{file}: a plot is written as .png")
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise CalibrationError(
            f"{error.name or error} is missing: pip install 'narrative-gravity[evaluation]'"
        ) from error


def plot_calibration(measured: Measurement, found: Profile, file: Path) -> None:
    """Write the histogram of s, s_low and s_high as lines, and the turns' means below. Raises OSError."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(_INCHES, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    values = [value for turn in measured.turns for value in turn.normalised]
    axes.hist(values, bins=_NUM_BINS, color=_BARS, weights=[1.0 / len(values)] * len(values))
    proposal = found.proposal
    for value, name in ((proposal.s_low, "s_low"), (proposal.s_high, "s_high")):
        axes.axvline(value, color=_RANGE, linewidth=1.4)
        axes.annotate(
            f" {name} {value:g}", (value, 0.92), xycoords=("data", "axes fraction"), color=_RANGE, fontsize=9
        )
    means = [turn.mean_s for turn in measured.turns]
    axes.plot(means, [0.0] * len(means), "|", color=_INK, markersize=12, label="mean s of a turn")
    axes.set_title(f"{measured.task}: {measured.model} at temperature {measured.temperature:g}", color=_INK)
    axes.set_xlabel("s = H / ln V")
    axes.set_ylabel("share of the steps")
    axes.legend(frameon=False, loc="upper right", bbox_to_anchor=(1.0, 0.88))
    figure.savefig(file, dpi=_DPI)
