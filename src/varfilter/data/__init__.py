"""Data: for now, worlds that are simulated here."""

from varfilter.data.simulated import Pendulum, pendulum_video, tracker

__all__ = ["Pendulum", "pendulum_video", "tracker"]
