"""`varfilter list`: what it says of the experiments is so, though it builds none of them."""

import json
import math
from dataclasses import replace

import jax
import pytest

from commands import command
from real_data import DATA, needs_data
from varfilter.data.sets.registry import CATALOGUE
from varfilter.experiments import AVF, EXPERIMENTS
from varfilter.experiments.costs import H200_MINUTES, cpu_minutes, num_parameters, parameters
from varfilter.media import load, source_of

pytestmark = pytest.mark.usefixtures("as_users_run_it")


def test_list(monkeypatch, tmp_path):
    monkeypatch.setenv("VARFILTER_DATA", str(tmp_path))
    assert all(cpu_minutes(name, 1) for name in EXPERIMENTS)
    assert set(H200_MINUTES) <= set(EXPERIMENTS)
    found = json.loads(command("list", "--json")[1])["experiments"]
    assert list(found) == list(EXPERIMENTS)
    assert [name for name in found if found[name]["is_here"]] == ["table"]
    jsb = found["srnn-jsb-avf"]
    assert jsb["published"]["nats"] == 6.97
    assert jsb["num_updates"] == 800 * math.ceil(229 / 16)
    assert jsb["num_parameters"] == found["srnn-nottingham-avf"]["num_parameters"]
    assert 60 < jsb["cpu_minutes"] < 600
    assert jsb["h200_minutes"] == 3.3
    # A preset for a few minutes is there for each.
    minutes = {name: facts["small_cpu_minutes"] for name, facts in found.items()}
    assert all(0 < each < 5 for each in minutes.values() if each is not None)
    # The baseline of SVG was not timed at that size.
    untimed = [name for name, each in minutes.items() if each is None]
    assert untimed == ["svg-kth-baseline", "svg-weizmann-baseline"]
    code, out, _ = command("list")
    assert code == 0
    for name in EXPERIMENTS:
        assert name in out
    assert "6.97 (7.1)" in out
    assert "3 min" in out
    assert "timit-sample (not here)" in out
    for name in ("small", "paper"):
        assert f"--preset {name}" in out


def test_sizes_are_told_without_the_data(songs):
    experiment = EXPERIMENTS["srnn-jsb-avf"]
    experiment = replace(
        experiment,
        data=replace(source_of("jsb"), at=str(songs)),
        model=replace(experiment.model, latent_size=3, recurrent_size=5),
        filter=replace(experiment.filter, inference=replace(AVF(), hidden_size=4)),
    )
    model, filter, _ = experiment.build(load(experiment.data))
    arrays = [x for x in jax.tree.leaves((model, filter)) if isinstance(x, jax.Array)]
    assert num_parameters(experiment).total == sum(x.size for x in arrays)


def test_parameters_that_are_listed_are_those_of_the_models():
    # The same sizes on data of the same shape are counted once: tracing SVG takes a second.
    counted = {}
    for name, experiment in EXPERIMENTS.items():
        entry = CATALOGUE.get(experiment.data.source)
        case = experiment.model, experiment.filter, entry and entry.observation
        if case not in counted:
            counted[case] = num_parameters(experiment)
        found = counted[case]
        assert parameters(name) == (None if found is None else found.total), name


@needs_data
@pytest.mark.parametrize("source", ["jsb", "nottingham", "timit-sample"])
def test_observations_are_known_without_the_data(source, monkeypatch):
    monkeypatch.setenv("VARFILTER_DATA", str(DATA))
    dataset, entry = load(source), CATALOGUE[source]
    assert dataset.observation_shape == entry.observation
    assert dataset.family.distribution is entry.family.distribution
