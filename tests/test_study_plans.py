"""The plans of the study: each cell is one program, and the methods are searched alike."""

import gzip
import importlib
import json
import sys
from pathlib import Path

import pytest

from varfilter.experiments import AVF, Baseline
from varfilter.experiments.experiment import as_json, differences
from varfilter.report.study import METHODS, PROTOCOLS
from varfilter.runs.sweep import require_one_program

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
    return dict(
        zip(plans.SEARCHED, ({"changes": point} for point in plans.POINTS[10:]), strict=False)
    )


def test_every_cell_is_one_program_with_a_name_of_its_own(plans, choices):
    names = set()
    for plan in ("search-1", "search-2", "finals-1", "finals-2", "rest"):
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
    cells = [*plans.PLANS["search-1"]({}), *plans.PLANS["search-2"]({})]
    by_method = {
        method: [e for cell in cells if f"-jsb-{method}-" in cell.name for e in cell.experiments]
        for method in plans.SEARCHED
    }
    counts = [len(members) for members in by_method.values()]
    assert counts == [len(plans.POINTS) + 2 * len(plans.MORE_POINTS)] * 3
    for members in zip(*by_method.values(), strict=True):
        for other in members[1:]:
            found = {name.split(".")[0] for name in differences(members[0], other)}
            assert found == {"name", "filter"}
        (seed,) = {member.seed for member in members}
        assert seed >= plans.SEARCH_SEED > max(plans.SEEDS.values())


def test_cells_have_what_was_chosen_and_the_papers_have_the_papers(plans, choices):
    by_name = {
        cell.name: cell.experiments[0]
        for plan in ("finals-1", "finals-2", "rest")
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
    cells = [cell for cell in plans.PLANS["search-1"]({}) if "-avf-" in cell.name]
    for cell in cells:
        members = []
        for folder, experiment in zip(cell.folders, cell.experiments, strict=True):
            place = tmp_path / cell.name / folder
            place.mkdir(parents=True)
            # The lowest is that of the highest rate with longer windows and the most dropout.
            low = 7.0 - experiment.optimizer.dropout - experiment.schedule.num_steps / 100
            lines = [{"epoch": n, "valid": {"nats": low + 0.1 * (n == 1)}} for n in (1.0, 2.0)]
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (place / "metrics.jsonl.gz").write_bytes(gzip.compress(text.encode()))
            record = {"experiment": as_json(experiment)}
            (place / "run.json").write_text(json.dumps(record))
            members.append({"folder": folder})
        record = dict.fromkeys(("command", "revision", "device", "seconds"))
        record |= {"name": cell.name, "members": members}
        (tmp_path / cell.name / "cell.json").write_text(json.dumps(record))
    found = plans.chosen(sorted(tmp_path.iterdir()))["avf"]
    assert found["changes"] == {plans.RATE: 6e-4, plans.DROPOUT: 0.5, plans.LENGTH: 40}
    assert found["valid"] == 6.1
    assert len(found["points"]) == len(plans.POINTS)
    # What was chosen makes the experiment that was searched, but for its seed and length.
    again = plans.best("jsb", "avf", found["changes"])
    known = next(e for cell in cells for e in cell.experiments if e.optimizer == again.optimizer)
    assert set(differences(again, known)) == set(plans.NOT_SEARCHED) - {"name"}


def test_a_setting_that_is_not_there_is_refused(plans):
    with pytest.raises(ValueError, match="Adam has no setting 'rate'"):
        plans.best("jsb", "avf", {"optimizer.theta.rate": 1.0})
