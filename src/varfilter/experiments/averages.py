"""Averages of the metrics of many updates, which a checkpoint can hold."""

from typing import Any

import jax
import numpy as np

from varfilter.learning import Metrics


class Averages:
    """Of all updates that were added; begins with what `saved` gave."""

    def __init__(self, saved: dict[str, Any] | None = None):
        self._count: int = saved["count"] if saved else 0
        self._sums: dict[str, Any] = saved["sums"] if saved else {}
        # Fetched from the device only when asked for: training does not wait for them.
        self._parts: list[Metrics] = []

    def add(self, metrics: Metrics) -> None:
        """Some updates, stacked."""
        self._parts.append(metrics)

    def saved(self) -> dict[str, Any]:
        """All that was added, as plain JSON."""
        for part in jax.device_get(self._parts):
            named = {name: value for name, value in vars(part).items() if value is not None}
            for name, value in named.items():
                total = np.sum(np.asarray(value, np.float64), axis=0)
                self._sums[name] = (total + self._sums.get(name, 0.0)).tolist()
            self._count += len(part.free_energy)
        self._parts = []
        return {"count": self._count, "sums": dict(self._sums)}

    def means(self) -> dict[str, Any]:
        """By name."""
        found = self.saved()
        return {
            name: (np.asarray(total) / found["count"]).tolist()
            for name, total in found["sums"].items()
        }
