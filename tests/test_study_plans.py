"""The plans of the study: each cell is one program, and the methods are searched alike."""

import gzip
import importlib
import json
import sys
from pathlib import Path

import pytest

from varfilter.experiments import AVF, Baseline
from varfilter.experiments.experiment import differences
from varfilter.report.study import METHODS, PROTOCOLS
from varfilter.runs.several import require_one_program

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def plans():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        return importlib.import_module("study_plans")
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


@pytest.fixture
def choices(plans):
    """Another point for each method, as a search would have chosen."""
    points = zip(plans.SEARCHED, plans.POINTS[40], strict=False)
    return {m: {"changes": {**point, "schedule.num_steps": 40}} for m, point in points}


def test_every_cell_is_one_program_with_a_name_of_its_own(plans, choices):
    names = set()
    for plan in ("call-1", "call-2", "call-3", "rest"):
        for cell in plans.PLANS[plan](choices):
            require_one_program(cell.experiments)
            assert len(set(cell.folders)) == len(cell.experiments)
            assert cell.name not in names
            names.add(cell.name)
            if cell.part is not None:
                _, data, rest = cell.name.split("-", 2)
                method, _, protocol = rest.rpartition("-")
                assert (method in METHODS, protocol in PROTOCOLS) == (True, True)
                assert len(cell.experiments) == {"jsb": 8}.get(data, 4)


def test_methods_are_given_the_same_search(plans):
    """They differ in how they infer, and in nothing else; no seed of the table is searched with."""
    cells = plans.search()
    for num_steps, points in plans.POINTS.items():
        own = [cell for cell in cells if cell.name.endswith(f"-{num_steps}")]
        assert [len(cell.experiments) for cell in own] == [len(points)] * 3
        for members in zip(*(cell.experiments for cell in own), strict=True):
            for other in members[1:]:
                found = {name.split(".")[0] for name in differences(members[0], other)}
                assert found == {"name", "filter"}
            assert {member.seed for member in members} == {plans.SEARCH_SEED}


def test_cells_have_what_was_chosen_and_the_papers_have_the_papers(plans, choices):
    by_name = {
        cell.name: cell.experiments[0]
        for plan in ("call-2", "call-3", "rest")
        for cell in plans.PLANS[plan](choices)
    }
    ours = by_name["srnn-jsb-residual-best"]
    assert ours.optimizer.theta.weight_decay == choices["residual"]["changes"][plans.DECAY] == 1.0
    assert ours.schedule.num_steps == 40
    assert ours.filter.inference == Baseline(residual=True)
    five = by_name["srnn-jsb-avf-5-best"]
    assert five.optimizer == by_name["srnn-jsb-avf-best"].optimizer
    assert five.filter.inference == AVF(num_iterations=5, num_samples=64)
    paper = by_name["srnn-jsb-avf-paper"]
    assert paper.filter.inference == AVF()
    assert (paper.schedule.annealing_epochs, paper.schedule.annealing_power) == (50, 1.0)
    assert paper.optimizer.theta.learning_rate == paper.optimizer.phi.learning_rate == 1e-4
    assert paper.schedule.num_epochs == 800
    assert by_name["srnn-jsb-avf-released"].filter.inference.normalize_mean


def test_the_lowest_validation_is_chosen(plans, tmp_path):
    scores = {"search-jsb-avf-25": [[7.2, 7.1], [7.3, 7.05]], "search-jsb-avf-40": [[7.0, 7.4]]}
    for name, curves in scores.items():
        members = []
        for number, curve in enumerate(curves):
            folder = tmp_path / name / f"point-{number}"
            folder.mkdir(parents=True)
            lines = [{"epoch": 10.0 * n, "valid": {"nats": nats}} for n, nats in enumerate(curve)]
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (folder / "metrics.jsonl.gz").write_bytes(gzip.compress(text.encode()))
            members.append({"folder": folder.name})
        record = dict.fromkeys(("command", "revision", "device", "seconds"))
        record |= {"name": name, "members": members}
        (tmp_path / name / "cell.json").write_text(json.dumps(record))
    found = plans.chosen(sorted(tmp_path.iterdir()))["avf"]
    assert found["changes"] == {**plans.POINTS[40][0], "schedule.num_steps": 40}
    assert (found["valid"], found["epoch"]) == (7.0, 0.0)
    assert len(found["points"]) == 3


def test_a_setting_that_is_not_there_is_refused(plans):
    with pytest.raises(ValueError, match="Adam has no setting 'rate'"):
        plans.best("jsb", "avf", {"optimizer.theta.rate": 1.0})
