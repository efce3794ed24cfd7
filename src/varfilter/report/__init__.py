"""Reports: what runs have learned, as a page to look at and numbers to go on with."""

from varfilter.report.report import report
from varfilter.report.reproduce import reproduce

__all__ = ["report", "reproduce"]
