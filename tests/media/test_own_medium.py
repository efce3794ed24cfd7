"""A fifth medium, defined here: motion on three axes, from load to report, with no other change."""

import json
import os
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

import varfilter as vf
from commands import refuse, succeed
from refusals import refuses
from varfilter.data import Dataset, Family, Ragged, Scaling, split_by_sequence
from varfilter.data.dataset import SPLITS
from varfilter.distributions import Normal
from varfilter.experiments import AVF, FilterChoice, TableSizes, own_experiment
from varfilter.media import (
    MEDIA,
    AbstractMedium,
    Source,
    catalogue,
    medium_of,
    picture,
    register,
    source_of,
    write_samples,
)
from varfilter.media.reference import last_value_reference
from varfilter.media.sequences import files_in
from varfilter.report import report
from varfilter.runs import Run, filter_data, forecast_data, sample_run, score_run, train_run

AXES = ("x", "y", "z")


@dataclass(frozen=True)
class MotionSource(Source):
    """Motion and how it is read."""

    medium: ClassVar[str] = "motion"

    gravity: float | None = None
    """What is subtracted from the axis z (9.81)."""


def read_motion(path, gravity=9.81):
    """(steps, 3) of a text file with three numbers a line, without gravity."""
    return (np.loadtxt(path, ndmin=2) - [0.0, 0.0, gravity]).astype(np.float32)


def motion_folder(folder, gravity=9.81):
    """The .xyz files of a folder as a data set."""
    files = sorted(folder.glob("*.xyz"))
    chosen = split_by_sequence(len(files))
    parts = {s: [read_motion(files[i], gravity) for i in chosen[s]] for s in SPLITS}
    train = Ragged.of(parts["train"])
    return Dataset(
        folder.name, train, Ragged.of(parts["valid"]), Ragged.of(parts["test"]), Family(Normal),
        Scaling.standardizing(train.values, axis=0), rate=50.0, medium="motion",
        names={s: tuple(files[i].stem for i in chosen[s]) for s in SPLITS},
    )  # fmt: skip


class MotionMedium(AbstractMedium):
    name = "motion"
    plural = "motion"
    source = MotionSource
    suffixes = frozenset({".xyz"})
    endings = (".xyz", ".npz")
    inputs = "an .xyz file, or a folder of them"
    caption = "The acceleration along three axes, its prediction, and the surprise."

    def reader(self, path):
        return motion_folder

    def recordings(self, dataset, source, path):
        for name, file in files_in(path, self):
            yield name, read_motion(file, **source.options())

    def reference(self, dataset, split):
        return last_value_reference(dataset, split)

    def step_rows(self, dataset, filtering):
        for t, time in enumerate(filtering.times):
            means = dict(zip(AXES, filtering.parts["mean"][t], strict=True))
            yield {"sequence": filtering.sequence, "time": time, **means,
                   "surprise": filtering.surprise[t]}  # fmt: skip

    def write(self, path, dataset, xs):
        np.savetxt(path, dataset.scaling.restore(xs))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Six pendulums on a train: swings of other phases, and noise."""
    folder = tmp_path_factory.mktemp("walks")
    rng = np.random.default_rng(0)
    t = np.arange(40)[:, None]
    for i in range(6):
        swing = np.sin(0.4 * t + rng.uniform(0, 6, 3)) + 0.1 * rng.normal(size=(40, 3))
        np.savetxt(folder / f"walk{i}.xyz", swing + np.array([0.0, 0.0, 9.81]))
    return folder


@pytest.fixture(autouse=True, scope="module")
def _registered():
    before = dict(MEDIA)
    register(MotionMedium())
    yield
    MEDIA.clear()
    MEDIA.update(before)


@pytest.fixture(scope="module")
def run(folder, tmp_path_factory):
    source = source_of(folder)
    assert source == MotionSource(str(folder))
    experiment = own_experiment(source)
    experiment = replace(
        experiment,
        num_members=1,
        model=TableSizes(latent_size=2, hidden_size=4),
        filter=FilterChoice(AVF(encode_observation=True, hidden_size=4, num_layers=1)),
        optimizer=replace(experiment.optimizer, num_phi_steps=1),
        schedule=replace(experiment.schedule, num_epochs=1, batch_size=4, windows_per_epoch=8),
    )
    dataset = vf.load(folder)
    run = Run.begin(tmp_path_factory.mktemp("runs") / "walks", experiment, dataset)
    for _ in train_run(run, dataset):
        pass
    return Run.load(run.folder)


def test_it_is_loaded_and_drawn(folder, tmp_path):
    dataset = vf.load(folder, gravity=0.0)
    assert medium_of(dataset).name == "motion"
    assert 9.0 < float(np.mean(dataset.train.values[:, 2])) < 11.0
    with pytest.raises(TypeError, match=r"`motion_folder`.* no option 'size'; it has gravity"):
        vf.load(folder, size=3)
    with pytest.raises(ValueError, match="a single motion file"):
        vf.load(folder / "walk0.xyz")
    picture(dataset).savefig(tmp_path / "walks.png")


def test_it_is_trained_and_scored(run):
    assert run.medium.name == "motion"
    assert isinstance(run.experiment.data, MotionSource)
    scores = score_run(run)
    assert np.isfinite(scores["nats"])
    assert scores["reference"]["what"].startswith("the last value")


def test_it_is_filtered_forecast_and_sampled(run, folder, tmp_path):
    rows = list(filter_data(run, folder / "walk0.xyz", num_samples=4))
    assert list(rows[0]) == ["sequence", "time", *AXES, "surprise"]
    assert [row["time"] for row in rows[:3]] == [0.0, 0.02, 0.04]
    assert len(rows) == 40
    assert np.isfinite([row["surprise"] for row in rows[1:]]).all()
    ahead = list(forecast_data(run, folder, 2, num_samples=4))
    assert len(ahead) == 12
    assert ahead[0]["prediction"].values.shape == (3,)
    paths = write_samples(
        tmp_path / "new.xyz", run.template, [each.xs for each in sample_run(run, 5, 2)]
    )
    assert [path.name for path in paths] == ["new-1.xyz", "new-2.xyz"]
    assert read_motion(paths[0]).shape == (5, 3)
    with pytest.raises(ValueError, match="motion cannot be read from lines"):
        run.medium.lines(run.template)
    with pytest.raises(FileNotFoundError, match=r"an \.xyz file"):
        list(filter_data(run, tmp_path / "none.xyz"))


def test_every_command_takes_it(run, folder, tmp_path):
    assert "motion" in succeed("data", "check", folder, "--gravity", "0").out
    succeed("data", "show", folder, "--out", tmp_path / "walks.png")
    assert "--data.gravity" in succeed("train", folder, "--help").out
    words = ("--out", tmp_path / "rows.csv", "--num-samples", "4")
    succeed("filter", run.folder, folder / "walk1.xyz", *words)
    assert (tmp_path / "rows.csv").read_text().startswith("sequence,time,x,y,z,surprise")
    succeed("sample", run.folder, "--num-steps", "3", "--out", tmp_path / "new.xyz")
    assert read_motion(tmp_path / "new.xyz").shape == (3, 3)
    assert "motion" in refuse("filter", run.folder, "-")


def test_media_of_installed_packages_are_found(monkeypatch):
    class Entry:
        def load(self):
            return MotionMedium

    before = dict(MEDIA)
    MEDIA.pop("motion")
    monkeypatch.setattr(catalogue, "entry_points", lambda group: [Entry()])
    catalogue._register_plugins()
    assert next(iter(MEDIA)) == "motion"  # asked first
    MEDIA.clear()
    MEDIA.update(before)


@pytest.mark.usefixtures("as_users_run_it")
def test_a_medium_that_does_not_fit_is_refused():
    class Nameless(AbstractMedium):
        plural = "nothing"
        source = MotionSource

    class Sound(MotionMedium):
        name = "sound"

    class Other(MotionMedium):
        name = "steps"

    @dataclass(frozen=True)
    class StepsSource(Source):
        medium: ClassVar[str] = "steps"

    class Same(Other):
        source = StepsSource

    class Bare(Same):
        suffixes = frozenset({"xyz"})

    refuses(lambda: register(MotionMedium), TypeError, "`medium`", "an instance is needed")
    refuses(lambda: register(Nameless()), TypeError, "`Nameless.name` is missing")
    refuses(lambda: register(Sound()), ValueError, "'sound'", "Give another")
    refuses(lambda: register(Other()), ValueError, "`MotionSource`", "must be 'steps'")
    refuses(lambda: register(Same()), ValueError, "'.xyz'", "an ending of motion")
    refuses(lambda: register(Bare()), ValueError, "'xyz'", "like '.wav'")
    assert set(MEDIA) == {"motion", "music", "sound", "video", "table", "array"}


def test_what_its_reader_does_not_say_is_known(folder, monkeypatch):
    def unnamed(folder, gravity=9.81):
        return replace(motion_folder(folder, gravity), medium="")

    monkeypatch.setattr(MotionMedium, "reader", lambda self, path: unnamed)
    assert vf.load(folder).medium == "motion"
    monkeypatch.setattr(MotionMedium, "reader", lambda self, path: lambda folder: 5)
    with pytest.raises(TypeError, match="must return a `Dataset`"):
        vf.load(folder)
    monkeypatch.delattr(MotionMedium, "reader")
    with pytest.raises(TypeError, match="has no `reader`"):
        vf.load(folder)


def test_an_ending_that_it_cannot_write_is_refused(folder, monkeypatch, tmp_path):
    dataset = vf.load(folder)
    monkeypatch.delattr(MotionMedium, "write")
    with pytest.raises(TypeError, match="`MotionMedium` has no `write`"):
        write_samples(tmp_path / "new.xyz", dataset, [np.zeros((2, 3))])
    assert not list(tmp_path.iterdir())


def test_it_is_reported(run, tmp_path):
    page = report([run], tmp_path / "walks.html")
    text = page.read_text(encoding="utf-8")
    assert "The acceleration along three axes" in text
    numbers = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))
    assert numbers["runs"][0]["data"]["name"] == os.path.basename(run.experiment.data.source)
