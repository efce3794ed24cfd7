"""Tables that come inside packages, and simulated ones, as dictionaries of columns.

`statsmodels`, `vega_datasets`, `river`, `sktime`, `pmdarima` and `arch` have their data sets
inside; only these files are read, nothing of the packages is imported. `prepared(folder)` writes
each table as an .npz, which is all that another machine needs.
"""

import ast
import csv
import gzip
import importlib.util
from collections.abc import Callable
from pathlib import Path

import numpy as np

Table = dict[str, np.ndarray]
ROOT = Path(__file__).parent.parent


def prepared(folder: Path, tables: dict[str, Callable[[], Table]] | None = None) -> list[Path]:
    """Write the tables into the folder; those whose package is not installed are left out."""
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for name, table in (TABLES if tables is None else tables).items():
        try:
            columns = table()
        except ModuleNotFoundError as error:
            print(f"{name} is left out: {error}")
            continue
        path = folder / f"{name}.npz"
        np.savez_compressed(path, **columns)
        found.append(path)
    return found


def kept(folder: Path, names: list[str] | None = None) -> dict[str, Table]:
    """The tables that were written into the folder, by name, in the order of `TABLES`."""
    wanted = names or [name for name in TABLES if (folder / f"{name}.npz").exists()]
    found = {}
    for name in wanted:
        with np.load(folder / f"{name}.npz") as arrays:
            found[name] = dict(arrays)
    return found


def sensors() -> Table:
    """39 runs of two pumps: four measured columns, a valve and a count of particles."""
    columns = _columns(ROOT / "examples" / "data" / "sensors.csv")
    numeric = ("temperature", "pressure", "vibration", "flow", "valve", "particles")
    return {"run": np.array(columns["run"]), "time": _dates(columns["time"])} | {
        name: _numbers(columns[name]) for name in numeric
    }


def weather() -> Table:
    """Four years of days in Seattle: rain, temperatures and wind."""
    columns = _columns(_inside("vega_datasets", "_data/seattle-weather.csv"))
    numeric = ("precipitation", "temp_max", "temp_min", "wind")
    days = [day.replace("/", "-") for day in columns["date"]]
    return {"time": _dates(days)} | {name: _numbers(columns[name]) for name in numeric}


def temperatures() -> Table:
    """A year of hours in San Francisco."""
    columns = _columns(_inside("vega_datasets", "_data/sf-temps.csv"))
    return {"temperature": _numbers(columns["temp"])}


def sunspots() -> Table:
    """309 years of sunspot activity; the root of it, whose spread does not follow its level."""
    columns = _columns(_inside("statsmodels", "datasets/sunspots/sunspots.csv"))
    return {"root_activity": np.sqrt(_numbers(columns["SUNACTIVITY"]))}


def co2() -> Table:
    """44 years of weeks on Mauna Loa, with gaps: the change from week to week."""
    columns = _columns(_inside("statsmodels", "datasets/co2/co2.csv"))
    return {"change": np.diff(_numbers(columns["co2"]))}


def co2_levels() -> Table:
    """44 years of weeks on Mauna Loa, with gaps, as they were measured: they rise."""
    columns = _columns(_inside("statsmodels", "datasets/co2/co2.csv"))
    days = [f"{day[:4]}-{day[4:6]}-{day[6:]}" for day in columns["date"]]
    return {"time": _dates(days), "co2": _numbers(columns["co2"])}


def elnino() -> Table:
    """61 years of months: the temperature of the sea."""
    columns = _columns(_inside("statsmodels", "datasets/elnino/elnino.csv"))
    months = [_numbers(values) for name, values in columns.items() if name != "YEAR"]
    return {"temperature": np.stack(months, axis=1).ravel()}


def economy() -> Table:
    """50 years of quarters in the United States: growth in percent, and rates."""
    columns = _columns(_inside("statsmodels", "datasets/macrodata/macrodata.csv"))
    growth = {
        name: 100.0 * np.diff(np.log(_numbers(columns[name])))
        for name in ("realgdp", "realcons", "realinv")
    }
    return growth | {name: _numbers(columns[name])[1:] for name in ("unemp", "tbilrate", "infl")}


def economy_levels() -> Table:
    """50 years of quarters in the United States, as they were measured: most columns rise."""
    columns = _columns(_inside("statsmodels", "datasets/macrodata/macrodata.csv"))
    names = [name for name in columns if name not in ("year", "quarter")]
    return {name: _numbers(columns[name]) for name in names}


def autoregression() -> Table:
    """24 simulated sequences of AR(1) with noise, seen by two sensors: z' = 0.9 z + 0.4 e."""
    random = np.random.default_rng(0)
    z = _autoregression(random, 24, 200, 0.9, 0.4)
    xs = z[..., None] + random.normal(size=(*z.shape, 2)) * np.array([0.5, 1.0])
    return _stacked({"near": xs[..., 0], "far": xs[..., 1]})


def volatility() -> Table:
    """24 simulated sequences of stochastic volatility: x = exp(z / 2) e, z' = 0.95 z + 0.3 e."""
    random = np.random.default_rng(1)
    z = _autoregression(random, 24, 200, 0.95, 0.3)
    return _stacked({"returns": np.exp(z / 2.0) * random.normal(size=z.shape)})


def economy_quarters() -> Table:
    """50 years of quarters in the United States, with their dates: most columns rise."""
    columns = _columns(_inside("statsmodels", "datasets/macrodata/macrodata.csv"))
    years, quarters = _numbers(columns["year"]), _numbers(columns["quarter"])
    pairs = zip(years, quarters, strict=True)
    days = [f"{year:.0f}-{3 * quarter - 2:02.0f}-01" for year, quarter in pairs]
    return {"time": _dates(days)} | economy_levels()


def sunspot_numbers() -> Table:
    """309 years of sunspot activity, as it was counted."""
    columns = _columns(_inside("statsmodels", "datasets/sunspots/sunspots.csv"))
    return {"sunspots": _numbers(columns["SUNACTIVITY"])}


def sea() -> Table:
    """61 years of months, with their dates: the temperature of the sea."""
    columns = _columns(_inside("statsmodels", "datasets/elnino/elnino.csv"))
    days = [f"{year}-{month:02}-01" for year in columns["YEAR"] for month in range(1, 13)]
    return {"time": _dates(days), **elnino()}


def equipment() -> Table:
    """21 years of months: the turnover of makers of electrical equipment in the euro area."""
    columns = _columns(_inside("statsmodels", "datasets/elec_equip/elec_equip.csv"))
    dates, values = columns.values()
    return {
        "time": _dates([_iso(*date.split("-")) for date in dates]),
        "turnover": _numbers(values),
    }


def weather_types() -> Table:
    """Four years of days in Seattle: rain, temperatures, wind, and what kind of day it was."""
    columns = _columns(_inside("vega_datasets", "_data/seattle-weather.csv"))
    return weather() | {"weather": np.array(columns["weather"])}


def city() -> Table:
    """A year of hours in San Francisco, with their dates."""
    columns = _columns(_inside("vega_datasets", "_data/sf-temps.csv"))
    days = [day.replace("/", "-") for day in columns["date"]]
    return {"time": _dates(days), "temperature": _numbers(columns["temp"])}


def passengers() -> Table:
    """39 years of months: passengers of airlines."""
    columns = _columns(_inside("river", "drift/datasets/airline_passengers.csv"))
    days = [_iso(month, "1", year) for year, month in (d.split("-") for d in columns["date"])]
    return {"time": _dates(days), "passengers": _numbers(columns["Total Passengers"])}


def oil() -> Table:
    """32 years of trading days: the price of a barrel."""
    columns = _columns(_inside("river", "drift/datasets/brent_crude_oil.csv"))
    return {"time": _dates(_days(columns["day"])), "price": _numbers(columns["DPB"])}


def office() -> Table:
    """Six days in an office, every quarter of an hour: warmth, damp, light and carbon dioxide."""
    columns = _columns(_inside("river", "drift/datasets/occupancy.csv"))
    named = {"V1": "temperature", "V2": "humidity", "V3": "light", "V4": "co2"}
    return {"time": _dates(columns["time"])} | {
        name: _numbers(columns[old]) for old, name in named.items()
    }


def water() -> Table:
    """53 days of hours: the flow of water through a pipe, with gaps."""
    columns = _columns(_inside("river", "datasets/water-flow.csv"))
    hours = [text[:19] for text in columns["Time"]]
    return {"time": _dates(hours), "flow": _numbers(columns["Water flow [l/s]"])}


def scripts() -> Table:
    """17 years of months: how often a medicine was prescribed, often not at all."""
    columns = _columns(_inside("sktime", "datasets/data/PBS_dataset/PBS_dataset.csv"))
    days = [_iso(month, "1", year) for year, month in (text.split() for text in columns["Month"])]
    return {"time": _dates(days), "scripts": _numbers(columns["Scripts"])}


def approval() -> Table:
    """Three years of days: how a president is approved of, by five pollsters and on average."""
    columns = _columns(_inside("river", "datasets/trump_approval.csv.gz"))
    # Days since the first of January of the year 1, which is day 1.
    days = [np.datetime64("0001-01-01") + (int(day) - 1) for day in columns.pop("ordinal_date")]
    return {"time": np.array(days, "datetime64[m]")} | {
        name: _numbers(values) for name, values in columns.items()
    }


def beer() -> Table:
    """53 years of quarters: the beer that was brewed in Australia."""
    values = _literal(_inside("pmdarima", "datasets/ausbeer.py"))
    days = [f"{1956 + i // 4}-{3 * (i % 4) + 1:02}-01" for i in range(len(values))]
    return {"time": _dates(days), "beer": values}


def load() -> Table:
    """Twelve weeks of half hours: the demand for electricity in England and Wales."""
    values = _literal(_inside("pmdarima", "datasets/taylor.py"))
    times = np.datetime64("2000-06-05", "m") + 30 * np.arange(len(values))
    return {"time": times, "load": values}


def vix() -> Table:
    """Five years of trading days: how uncertain the stock market is."""
    columns = _columns(_inside("arch", "data/vix/vix.csv.gz"))
    return {"time": _dates(_days(columns["Date"])), "vix": _numbers(columns["vix"])}


def prices() -> Table:
    """Sixty years of months: consumer prices in the United States, without food and energy."""
    columns = _columns(_inside("arch", "data/core_cpi/core-cpi.csv.gz"))
    dates, values = columns.values()
    return {"time": _dates(_days(dates)), "prices": _numbers(values)}


TABLES: dict[str, Callable[[], Table]] = {
    "sensors": sensors,
    "weather": weather,
    "temperatures": temperatures,
    "co2": co2,
    "elnino": elnino,
    "economy": economy,
    "sunspots": sunspots,
    "autoregression": autoregression,
    "volatility": volatility,
}
# Tables with columns that move on, as their users have them.
LEVELS: dict[str, Callable[[], Table]] = {
    "co2-levels": co2_levels,
    "economy-levels": economy_levels,
}


# Tables as they come, with their times and kinds, and how far ahead their users would look.
DATED: dict[str, tuple[Callable[[], Table], int]] = {
    "co2": (co2_levels, 13),
    "economy": (economy_quarters, 8),
    "sunspots": (sunspot_numbers, 11),
    "sea": (sea, 12),
    "equipment": (equipment, 12),
    "weather": (weather_types, 14),
    "city": (city, 24),
    "passengers": (passengers, 12),
    "oil": (oil, 20),
    "office": (office, 20),
    "water": (water, 24),
    "scripts": (scripts, 12),
}
# Tables that nobody had looked at while forecasts, pools and bands were built and decided.
UNSEEN: dict[str, tuple[Callable[[], Table], int]] = {
    "approval": (approval, 14),
    "beer": (beer, 8),
    "load": (load, 48),
    "vix": (vix, 20),
    "prices": (prices, 12),
}
PUBLIC = DATED | UNSEEN
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def _iso(month: str, day: str, year: str) -> str:
    return f"{year}-{MONTHS.index(month[:3].lower()) + 1:02}-{int(day):02}"


def _autoregression(
    random: np.random.Generator, num_sequences: int, num_steps: int, factor: float, std: float
) -> np.ndarray:
    z = random.normal(size=num_sequences) * std / np.sqrt(1.0 - factor**2)
    found = []
    for _ in range(num_steps):
        found.append(z)
        z = factor * z + std * random.normal(size=num_sequences)
    return np.stack(found, axis=1)


def _stacked(columns: Table) -> Table:
    """Arrays (sequences, steps) as one table."""
    shape = next(iter(columns.values())).shape
    series = np.repeat(np.arange(shape[0]).astype(str), shape[1])
    return {"series": series} | {name: values.ravel() for name, values in columns.items()}


def _inside(package: str, path: str) -> Path:
    spec = importlib.util.find_spec(package)
    places = [] if spec is None else list(spec.submodule_search_locations or ())
    if not places:
        raise ModuleNotFoundError(f"it comes inside `{package}`: `pip install {package}`")
    return Path(places[0]) / path


def _columns(path: Path) -> dict[str, list[str]]:
    reader = gzip.open if path.suffix == ".gz" else open
    with reader(path, "rt", encoding="utf-8", newline="") as file:
        names, *rows = list(csv.reader(file))
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def _literal(path: Path) -> np.ndarray:
    """The numbers of the first `np.array([...])` in a source file, which is only read."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "array":
            return np.array(ast.literal_eval(node.args[0]), np.float64)
    raise ValueError(f"{path} has no array.")


def _days(texts: list[str]) -> list[str]:
    """Days that are written month/day/year."""
    parts = (map(int, text.split("/")) for text in texts)
    return [f"{year}-{month:02}-{day:02}" for month, day, year in parts]


def _numbers(texts: list[str]) -> np.ndarray:
    return np.array([float(text) if text.strip(" .") else np.nan for text in texts])


def _dates(texts: list[str]) -> np.ndarray:
    return np.array([text.replace(" ", "T") for text in texts], "datetime64[m]")
