"""One run of the pumps, filtered; and a gap in it, with one trajectory and with many.

    python docs/pictures/sensors.py runs/sensors

makes `what_it_is.png` and `one_past.png` of the run of the quick start, which is
`varfilter train examples/data/sensors.csv`.
"""

import numpy as np
import polars
from drawing import HERE, canvas, parser, save
from matplotlib.dates import DateFormatter, HourLocator

from varfilter.plots.style import ALARM, COLOURS, INK, MISSING, plain, title, x_label, y_label
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
    save(filtered(run, given.num_particles), given.out, "what_it_is.png")
    save(gap(run, given.num_particles), given.out, "one_past.png")


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
    """Two columns with their bands, the fault, what may follow, and the surprise of each step."""
    data, figure = table(FAULTY), canvas(9.2, 5.6)
    options = {"num_particles": num_particles, "levels": LEVELS}
    seen = columns(filter_data(run, data, fill_gaps=True, **options))
    ahead = columns(forecast_data(run, data, HORIZON, **options))
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
    explain(axes[0])
    axes[2].xaxis.set_major_locator(HourLocator())
    axes[2].xaxis.set_major_formatter(DateFormatter("%H:%M"))
    x_label(axes[2], "time")
    return figure


def explain(axis):
    """Say above a panel what the colours are."""
    words = {"fontsize": 8.5, "transform": axis.transAxes, "va": "bottom"}
    for place, text, colour in (
        (0.0, "● measured", INK),
        (0.115, "■ expected before it was measured: mean, and nine in ten", COLOURS[0]),
        (0.555, "■ forecast", COLOURS[1]),
        (0.66, "│ alarm", ALARM),
    ):
        axis.text(place, 1.04, text, color=colour, **words)


def gap(run, num_particles):
    """A gap of twenty steps: three filters with one trajectory each, and one with many."""
    data, figure = table(WHOLE), canvas(9.2, 2.9)
    numbers = polars.int_range(polars.len())
    is_cut = (numbers >= GAP.start) & (numbers < GAP.stop)
    names = [name for name in data.columns if name not in ("run", "pump", "time")]
    cut = data.with_columns(polars.when(~is_cut).then(polars.col(names)))
    many = num_particles or run.medium.num_particles
    axes = figure.subplots(1, 2, sharex=True, sharey=True)
    for axis, number, seeds in ((axes[0], 1, (0, 1, 2)), (axes[1], many, (0,))):
        for seed, colour in zip(seeds, COLOURS, strict=False):
            options = {"alarm_rate": 0.0, "levels": LEVELS, "seed": seed}
            found = columns(filter_data(run, cut, num_particles=number, **options))
            low, high = found["temperature_q05"], found["temperature_q95"]
            axis.fill_between(found["time"], low, high, color=colour, alpha=0.22, lw=0)
            axis.plot(found["time"], found["temperature_mean"], color=colour, lw=1.1)
        hidden = np.isnan(found["temperature"])
        known = np.array(data["temperature"], float)
        axis.plot(found["time"][~hidden], known[~hidden], ".", color=INK, ms=4)
        axis.plot(found["time"][hidden], known[hidden], "o", color=INK, ms=3.4, mfc="white")
        plain(axis)
        several = f"{number} weighted trajectories"
        title(axis, "one trajectory, by three seeds" if number == 1 else several)
        axis.xaxis.set_major_locator(HourLocator(interval=2))
        axis.xaxis.set_major_formatter(DateFormatter("%H:%M"))
        x_label(axis, "time")
    y_label(axes[0], "temperature, °C")
    return figure


if __name__ == "__main__":
    main()
