"""One run of the pumps, filtered; and a gap in it, with one trajectory and with many.

    python docs/pictures/sensors.py runs/sensors

makes `what_it_is.png` and `one_past.png` of the run of the quick start, which is
`varfilter train examples/data/sensors.csv`.
"""

import numpy as np
import polars
from drawing import HERE, canvas, parser, save_both
from matplotlib.dates import DateFormatter, HourLocator

from varfilter.plots.style import (
    ALARM,
    COLOURS,
    INK,
    MISSING,
    NARROW,
    plain,
    title,
    x_label,
    y_label,
)
from varfilter.runs import Run, filter_data, forecast_data

TABLE = HERE.parent.parent / "examples" / "data" / "sensors.csv"
# Two that were held out: in the first, the cable of the pressure transmitter comes loose.
FAULTY, WHOLE = 24, 20
HORIZON = 18
# The steps that are cut out of the whole run.
GAP = slice(30, 50)
LEVELS = (0.05, 0.95)
UNITS = {"pressure": "bar", "temperature": "°C"}


def main():
    options = parser(__doc__)
    options.add_argument("run", help="the folder of the run of the quick start")
    options.add_argument("--num-particles", type=int, help="trajectories (256)")
    given = options.parse_args()
    run = Run.load(given.run)
    rows = filtered(run, given.num_particles)
    save_both(lambda width: what_it_is(*rows, width), given.out, "what_it_is.png")
    beliefs = gap(run, given.num_particles)
    save_both(lambda width: one_past(beliefs, width), given.out, "one_past.png")


def table(number):
    """One run of the table."""
    return polars.read_csv(TABLE).filter(polars.col("run") == number)


def columns(rows):
    """Rows of a filter as arrays by name; what is empty is NaN, times are times."""
    rows = list(rows)
    found = {
        name: np.array([np.nan if row[name] is None else row[name] for row in rows])
        for name in rows[-1]
        if not isinstance(rows[-1][name], str)
    }
    found["time"] = np.array([np.datetime64(str(row["time"]).replace(" ", "T")) for row in rows])
    return found


def filtered(run, num_particles):
    """(the run with the fault as it was filtered, and what may follow)."""
    data, options = table(FAULTY), {"num_particles": num_particles, "levels": LEVELS}
    seen = columns(filter_data(run, data, fill_gaps=True, **options))
    return seen, columns(forecast_data(run, data, HORIZON, **options))


def what_it_is(seen, ahead, width):
    """Two columns with their bands, the fault, what may follow, and the surprise of each step."""
    is_narrow = width == NARROW
    figure = canvas(width, 4.6 if is_narrow else 5.6)
    axes = figure.subplots(3, 1, sharex=True, height_ratios=(1.2, 1, 0.8))
    alarms = seen["time"][seen["alarm"] == 1]
    for axis, name in zip(axes, UNITS, strict=False):
        for rows, colour in ((seen, COLOURS[0]), (ahead, COLOURS[1])):
            low, high = rows[f"{name}_q05"], rows[f"{name}_q95"]
            axis.fill_between(rows["time"], low, high, color=colour, alpha=0.22, lw=0)
            axis.plot(rows["time"], rows[f"{name}_mean"], color=colour, lw=1.1)
        axis.plot(seen["time"], seen[name], ".", color=INK, ms=4)
        y_label(axis, f"{name}, {UNITS[name]}")
    bars = axes[2].vlines(seen["time"], 0.0, seen["surprise"].clip(0.0), color=MISSING, lw=2)
    bars.set_color([ALARM if each else MISSING for each in seen["alarm"] == 1])
    y_label(axes[2], "surprise, nats")
    for axis in axes:
        plain(axis)
        for moment in alarms:
            axis.axvline(moment, color=ALARM, lw=0.9, alpha=0.35, zorder=0)
    axes[2].set_ylim(bottom=0.0)
    explain(axes[0], is_narrow)
    axes[2].xaxis.set_major_locator(HourLocator(interval=2 if is_narrow else 1))
    axes[2].xaxis.set_major_formatter(DateFormatter("%H:%M"))
    x_label(axes[2], "time")
    return figure


def explain(axis, is_narrow):
    """Say above a panel what the colours are."""
    words = {"fontsize": 8.5, "transform": axis.transAxes, "va": "bottom"}
    expected = "■ expected before it was measured: mean, and nine in ten"
    places = ((0.0, 1.2), (0.0, 1.04), (0.36, 1.2), (0.68, 1.2))
    if is_narrow:
        expected = "■ expected before: mean, and nine in ten"
    else:
        places = ((0.0, 1.04), (0.115, 1.04), (0.555, 1.04), (0.66, 1.04))
    texts = ("● measured", expected, "■ forecast", "│ alarm")
    colours = (INK, COLOURS[0], COLOURS[1], ALARM)
    for place, text, colour in zip(places, texts, colours, strict=True):
        axis.text(*place, text, color=colour, **words)


def gap(run, num_particles):
    """What several filters say of a run with a gap of twenty steps, by number of trajectories.

    Beside each, the temperature as it was.
    """
    data = table(WHOLE)
    numbers = polars.int_range(polars.len())
    is_cut = (numbers >= GAP.start) & (numbers < GAP.stop)
    names = [name for name in data.columns if name not in ("run", "pump", "time")]
    cut = data.with_columns(polars.when(~is_cut).then(polars.col(names)))
    many = num_particles or run.medium.num_particles
    known, found = np.array(data["temperature"], float), {}
    for number, seeds in ((1, (0, 1, 2)), (many, (0,))):
        found[number] = (
            known,
            [
                columns(
                    filter_data(
                        run, cut, num_particles=number, alarm_rate=0.0, levels=LEVELS, seed=seed
                    )
                )
                for seed in seeds
            ],
        )
    return found


def one_past(beliefs, width):
    """A gap of twenty steps: three filters with one trajectory each, and one with many."""
    is_narrow = width == NARROW
    figure = canvas(width, 4.6 if is_narrow else 2.9)
    axes = figure.subplots(*((2, 1) if is_narrow else (1, 2)), sharex=True, sharey=True)
    for axis, (number, (known, each)) in zip(axes, beliefs.items(), strict=True):
        for found, colour in zip(each, COLOURS, strict=False):
            low, high = found["temperature_q05"], found["temperature_q95"]
            axis.fill_between(found["time"], low, high, color=colour, alpha=0.22, lw=0)
            axis.plot(found["time"], found["temperature_mean"], color=colour, lw=1.1)
        hidden = np.isnan(found["temperature"])
        axis.plot(found["time"][~hidden], known[~hidden], ".", color=INK, ms=4)
        axis.plot(found["time"][hidden], known[hidden], "o", color=INK, ms=3.4, mfc="white")
        plain(axis)
        several = f"{number} weighted trajectories"
        title(axis, "one trajectory, by three seeds" if number == 1 else several)
        axis.xaxis.set_major_locator(HourLocator(interval=2))
        axis.xaxis.set_major_formatter(DateFormatter("%H:%M"))
        y_label(axis, "temperature, °C" if is_narrow or axis is axes[0] else "")
    for axis in axes[-1:] if is_narrow else axes:
        x_label(axis, "time")
    return figure


if __name__ == "__main__":
    main()
