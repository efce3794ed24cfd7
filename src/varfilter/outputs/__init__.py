"""What filtering, forecasting and sampling leave: tables of numbers, and recordings."""

from varfilter.outputs.files import replacing
from varfilter.outputs.futures import forecast_rows
from varfilter.outputs.medium import Medium, medium
from varfilter.outputs.recordings import ENDINGS_OF, recording_rows, write_recording
from varfilter.outputs.rows import ENDINGS, Row, Vector, require_ending, write_rows
from varfilter.outputs.steps import step_row, step_rows

__all__ = [
    "ENDINGS",
    "ENDINGS_OF",
    "Medium",
    "Row",
    "Vector",
    "forecast_rows",
    "medium",
    "recording_rows",
    "replacing",
    "require_ending",
    "step_row",
    "step_rows",
    "write_recording",
    "write_rows",
]
