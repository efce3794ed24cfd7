"""Crashes at any moment of a training with frequent saves: nothing saved is lost, to the bit.

Here each moment is an image of the folder as the crash would leave it: a process killed in the
middle of a write, a power cut that undoes renames and takes bytes that were not synced. Processes
that are really killed are in `cli/test_crashes.py`.
"""

import dataclasses

import jax
import numpy as np
import pytest

from disks import ImagedDisk
from tiny_runs import tiny
from varfilter import _saved
from varfilter.experiments import Baseline, FilterChoice
from varfilter.runs import Run, train_run
from varfilter.runs.checkpointing import Checkpointing, newest_standing
from varfilter.runs.folder import make_folder
from varfilter.runs.run import Progress
from varfilter.training.checkpoints import load_checkpoint

pytestmark = pytest.mark.usefixtures("as_users_run_it")

NUM_EPOCHS = 8


class NotingDisk(ImagedDisk):
    """An image is kept with the step that was on the disk for certain when it was taken."""

    certain = 0

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.notes = {}

    def note(self, image):
        self.notes[image] = self.certain


@pytest.fixture(scope="module")
def crashed(tmp_path_factory):
    """(the disk with its images, fingerprints of the states by step, the run, its data)."""
    folder = tmp_path_factory.mktemp("crashed")
    experiment, dataset = tiny("music", folder)
    schedule = dataclasses.replace(
        experiment.schedule, num_epochs=NUM_EPOCHS, windows_per_epoch=12, epochs_per_validation=2
    )
    # A baseline compiles in half the time.
    filter = FilterChoice(Baseline(hidden_size=4, num_layers=1))
    experiment = dataclasses.replace(experiment, schedule=schedule, filter=filter)
    states, real = {}, Checkpointing._write

    def write(self, standing):
        # From memory: what is read from a file is held against it.
        states[standing.mark] = fingerprint(standing.state)
        real(self, standing)
        disk.certain = max(disk.certain, standing.step)

    disk = NotingDisk(folder / "run", folder / "images", share=0.12)
    with pytest.MonkeyPatch.context() as patch, disk.watched():
        patch.setattr(Checkpointing, "_write", write)
        (folder / "run").mkdir()
        run = Run.begin(folder / "run", experiment, dataset)
        options = {"seconds_per_checkpoint": 0.0, "seconds_per_dispatch": 0.0}
        for _ in train_run(run, dataset, **options):
            pass
    return disk, states, run, dataset


def fingerprint(state):
    return _saved.fingerprint([np.asarray(leaf) for leaf in jax.tree.leaves(state)])


def test_whatever_the_moment_all_that_was_saved_is_there_to_the_bit(crashed):
    disk, states, run, dataset = crashed
    lines = [line | {"seconds": 0} for line in run.metrics()]
    assert [line["step"] for line in lines] == list(range(6, 3 * NUM_EPOCHS + 1, 6))
    model, filter, learner = run.experiment.build(dataset)
    start = Progress(learner.init(model, filter), model, filter)
    resumed, best = [], []
    for image in disk.taken:
        if not (image / "run.json").exists():
            assert disk.notes[image] == 0
            make_folder(image)  # it is begun anew
            continue
        found = Run.load(image)
        with found.held():
            standing = newest_standing(found, start)
        assert not standing.refused
        standing = standing.standing
        # No step is lost that was saved, ...
        assert standing.step >= disk.notes[image]
        if standing.step:
            assert fingerprint(standing.state) == states[standing.mark]
        # ... nor a line of the metrics; and the best is there that it speaks of.
        expected = [line for line in lines if line["step"] <= standing.validated]
        assert [line | {"seconds": 0} for line in found.metrics()] == expected
        if standing.best.step:
            kept = load_checkpoint(image / "best.safetensors", (model, filter))
            assert kept.step >= standing.best.step
            assert kept.manifest["valid"] <= standing.best.valid
            best.append(kept.step)
        assert not list(image.rglob("*.partial"))
        resumed.append(standing.step)
    # They came at all times of the training.
    assert len(disk.taken) > 15
    assert len(set(resumed)) > 6
    assert len(set(best)) > 1


@pytest.mark.slow
def test_one_of_the_images_is_trained_to_the_end_with_the_same_bits(crashed):
    disk, states, run, dataset = crashed
    image = disk.taken[len(disk.taken) // 2]
    found = Run.load(image)
    *_, end = train_run(found, dataset)
    assert end.step == 3 * NUM_EPOCHS
    assert fingerprint(newest(found, dataset)) == states[end.step, end.step]
    lines = [[line | {"seconds": 0} for line in each.metrics()] for each in (found, run)]
    assert lines[0] == lines[1]


def newest(run, dataset):
    model, filter, learner = run.experiment.build(dataset)
    path = run.checkpoints / f"step-{3 * NUM_EPOCHS:09}.safetensors"
    return load_checkpoint(path, Progress(learner.init(model, filter), model, filter)).state
