"""Tiny runs on each medium with their reports, made once for all tests here."""

import json

import pytest

from tiny_runs import keep_untrained, tiny
from varfilter.report import report
from varfilter.runs import Run


@pytest.fixture(scope="session")
def reported(tmp_path_factory):
    """By medium: the run, its page and the numbers."""
    known = {}

    def make(medium):
        if medium not in known:
            folder = tmp_path_factory.mktemp(medium)
            experiment, dataset = tiny(medium, folder)
            run = Run.begin(folder / "run", experiment, dataset)
            run.dataset = dataset
            keep_untrained(run)
            page = report([run], run.folder / "report.html")
            known[medium] = run, page, json.loads(page.with_suffix(".json").read_text())
        return known[medium]

    return make
