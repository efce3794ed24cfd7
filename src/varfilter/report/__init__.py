"""Reports: what runs have learned, as a page to look at and numbers to compute with."""

from varfilter.report.page import report
from varfilter.report.reproduction import reproduce

__all__ = ["report", "reproduce"]
