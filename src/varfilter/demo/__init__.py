"""`varfilter demo`: the main job, start to end, on two simulated worlds."""

from varfilter.demo.page import run_demo

__all__ = ["run_demo"]
