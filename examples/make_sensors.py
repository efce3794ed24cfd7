"""Three pumps that share a header, as their logger would have written them: data/sensors.csv.

    python examples/make_sensors.py [--out FILE]

Each run is a shift of one pump. What moves everything is never written down: the demand, which
drifts and now and then jumps, the load that follows it, and the wear of the bearing, which grows
through a run. The logger sees, each five minutes, a temperature that lags behind the load, a
pressure and a flow that a relief valve takes from, a vibration whose noise grows with the wear,
the valve, and the particles counted in the oil. Some rows are lost, and some cells.

In one run the pressure transmitter's cable comes loose for half an hour. No column says so.
"""

import argparse
import datetime
import math
from pathlib import Path

import numpy as np

NUM_RUNS, NUM_STEPS, MINUTES = 60, 80, 5
PUMPS = "ABC"
# One of the runs that `varfilter.data.tables.read.table` puts aside for test; where, and how long.
FAULTY_RUN, FAULT_STEP, FAULT_LENGTH = 24, 52, 6
# The columns that the logger writes, and with how many digits after the point.
DIGITS = {
    "temperature": 1, "pressure": 2, "vibration": 2, "flow": 1, "valve": 0, "particles": 0,
}  # fmt: skip
HEADER = f"run,pump,time,{','.join(DIGITS)}"
OUT = Path(__file__).parent / "data" / "sensors.csv"


class Chance:
    """Random numbers from uniform ones alone, which NumPy keeps the same in every version."""

    def __init__(self, seed):
        self.uniform = np.random.Generator(np.random.PCG64(seed)).random

    def normal(self):
        """By Box and Muller."""
        radius = math.sqrt(-2.0 * math.log(1.0 - self.uniform()))
        return radius * math.cos(2.0 * math.pi * self.uniform())

    def poisson(self, rate):
        """By inversion."""
        count, mass, rest = 0, math.exp(-rate), self.uniform()
        while rest > mass and count < 1000:
            rest -= mass
            count += 1
            mass *= rate / count
        return count


class Pump:
    """What moves everything in a run: the pump's state, and one step of it at a time."""

    def __init__(self, number, chance):
        self.chance, self.pump = chance, (number - 1) % len(PUMPS)
        self.demand = 0.35 + 0.6 * chance.uniform()
        self.load = self.demand
        self.wear = 0.15 + 0.5 * chance.uniform()
        self.ambient = 21.0 + 3.0 * chance.normal()
        self.temperature = self.ambient + (30.0 + 14.0 * self.wear) * self.load
        self.valve = 0

    def step(self):
        """Move on by five minutes, and return what the logger sees then, by column."""
        chance = self.chance
        self.demand += 0.12 * (0.65 - self.demand) + 0.05 * chance.normal()
        if chance.uniform() < 1 / 60:
            self.demand = 0.35 + 0.6 * chance.uniform()
        before = self.load
        load = before + 0.45 * (self.demand - before) + 0.015 * chance.normal()
        load = self.load = min(max(load, 0.1), 1.1)
        wear = self.wear = min(max(self.wear + 0.002 + 0.008 * chance.normal(), 0.0), 1.0)
        warm = self.ambient + (30.0 + 14.0 * wear + 2.0 * self.pump) * load
        self.temperature += 0.25 * (warm - self.temperature) + 0.1 * chance.normal()
        line = 1.5 + 4.2 * load**2
        # The relief valve opens late and closes late.
        opens, closes = (line - 4.3) / 0.15, (3.7 - line) / 0.15
        chance_to_turn = 1.0 / (1.0 + math.exp(-(closes if self.valve else opens)))
        turns = chance.uniform() < 0.6 * chance_to_turn
        self.valve = 1 - self.valve if turns else self.valve
        pressure = line - 0.55 * self.valve + 0.05 * chance.normal()
        flow = 58.0 * load * (1.0 - 0.12 * wear) - 7.0 * self.valve + 0.5 * chance.normal()
        roughness = (0.04 + 0.06 * wear) * chance.normal()
        vibration = (0.7 + 0.8 * load + 1.8 * wear) * math.exp(roughness)
        particles = chance.poisson(1.0 + 7.0 * wear + 20.0 * abs(load - before))
        return {
            "temperature": self.temperature + 0.15 * chance.normal(),
            "pressure": pressure,
            "vibration": vibration,
            "flow": flow,
            "valve": self.valve,
            "particles": particles,
        }


def lost(chance, num_lost):
    """Which cells of a row are lost, and of how many rows the loss that this row is in has left.

    Rows are lost one or several in a row; below 0 there is no loss.
    """
    cells = [chance.uniform() < 0.01 for _ in DIGITS]
    if chance.uniform() < 0.008:
        num_lost = 1 + int(5.0 * chance.uniform())
    return cells, num_lost - 1


def run_of(number):
    """Lines of one run, and the time at which its fault begins (None: there is none)."""
    chance = Chance(1000 + number)
    pump = Pump(number, chance)
    start = datetime.datetime(2024, 3, 4, 6) + datetime.timedelta(hours=8 * (number - 1))
    num_lost = 0
    lines, fault_at = [], None
    for step in range(NUM_STEPS):
        seen = pump.step()
        is_faulty = number == FAULTY_RUN and 0 <= step - FAULT_STEP < FAULT_LENGTH
        if is_faulty:
            seen["pressure"] *= 0.55
        values = [f"{seen[name]:.{digits}f}" for name, digits in DIGITS.items()]
        cells, num_lost = lost(chance, num_lost)
        # None is lost while the fault is on.
        values = [
            "" if is_lost and not is_faulty else value
            for value, is_lost in zip(values, cells, strict=True)
        ]
        if step > 0 and num_lost >= 0 and not is_faulty:
            continue
        stamp = start + datetime.timedelta(minutes=MINUTES * step)
        if is_faulty and fault_at is None:
            fault_at = stamp
        lines.append(f"{number},{PUMPS[pump.pump]},{stamp:%Y-%m-%d %H:%M},{','.join(values)}")
    return lines, fault_at


def sensors():
    """The whole table as text, and (run, time) of its fault."""
    lines, place = [HEADER], None
    for number in range(1, NUM_RUNS + 1):
        more, fault_at = run_of(number)
        lines += more
        place = place if fault_at is None else (number, fault_at)
    return "\n".join(lines) + "\n", place


def main(arguments=None):
    """Write the table; say where the fault is."""
    parser = argparse.ArgumentParser(description="Simulate the table of the pumps.")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    text, (run, time) = sensors()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    if not options.out.exists() or options.out.read_text() != text:
        options.out.write_text(text, newline="\n")
    print(f"{text.count(chr(10)) - 1} rows in {NUM_RUNS} runs, {len(text) / 1000:.0f} kB")
    print(f"the fault: run {run}, from {time:%Y-%m-%d %H:%M}, for {FAULT_LENGTH} steps")


if __name__ == "__main__":
    main()
