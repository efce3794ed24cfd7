"""How training is saved: often enough, in the background, where its folder is; what it averages."""

import itertools
import math
import threading

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from tiny_runs import tiny
from varfilter.learning import Metrics
from varfilter.runs import Run, checkpointing
from varfilter.runs.checkpointing import Averages, Checkpointing, Standing
from varfilter.runs.run import Progress
from varfilter.training.checkpoints import kept_checkpoints

pytestmark = pytest.mark.usefixtures("as_users_run_it")


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """(experiment, data, what training begins with)."""
    experiment, dataset = tiny("music", tmp_path_factory.mktemp("data"))
    model, filter, learner = experiment.build(dataset)
    return experiment, dataset, Progress(learner.init(model, filter), model, filter)


@pytest.fixture
def run(begun, tmp_path):
    return Run.begin(tmp_path / "run", *begun[:2])


def at(start, step):
    """A standing after so many updates."""
    learning = eqx.tree_at(lambda s: s.num_updates, start.learning, jnp.asarray(step, jnp.int32))
    return Standing(Progress(learning, start.best_model, start.best_filter), step)


def newest_step(run):
    return max([0, *(step for step, _ in kept_checkpoints(run.checkpoints))])


class Clock:
    """A clock that only goes on when it is told to."""

    def __init__(self):
        self.now = 100.0

    def perf_counter(self):
        return self.now


@pytest.mark.parametrize(("seconds", "update", "write"), [(5, 1, 0), (30, 7, 2), (5, 4, 3)])
def test_a_crash_costs_at_most_the_seconds_between_checkpoints(
    begun, run, monkeypatch, seconds, update, write
):
    """Updates and writes take so many seconds each; after any update the power may fail."""
    clock = Clock()
    monkeypatch.setattr(checkpointing, "time", clock)
    keep = checkpointing.keep_checkpoint

    def keep_checkpoint(*arguments):
        keep(*arguments)
        clock.now += write

    monkeypatch.setattr(checkpointing, "keep_checkpoint", keep_checkpoint)
    reached, worst = {0: clock.now}, 0.0
    with run.held() as lock:
        saving = Checkpointing(run, lock, seconds, Standing(begun[2]), 0)
        for step in range(1, 13):
            clock.now += update
            reached[step] = clock.now
            # What would be lost now is all that came after what is on the disk.
            worst = max(worst, clock.now - reached[newest_step(run)])
            saving.reached(at(begun[2], step), update)
            if saving._writer is not None:
                saving._writer.join()
    # An update and a write may be longer than the time between two checkpoints; and before the
    # first write nobody knows how long one takes.
    assert worst <= max(seconds, update + write) + write
    assert newest_step(run) > 0


def test_training_goes_on_while_a_checkpoint_is_written(begun, run, monkeypatch):
    keep, may_write, num_writes = checkpointing.keep_checkpoint, threading.Event(), []

    def slow(folder, checkpoint):
        num_writes.append(checkpoint.step)
        assert may_write.wait(60)
        keep(folder, checkpoint)

    monkeypatch.setattr(checkpointing, "keep_checkpoint", slow)
    with run.held() as lock:
        saving = Checkpointing(run, lock, 1e-9, Standing(begun[2]), 0)
        for step in range(1, 21):
            saving.reached(at(begun[2], step), 0.0)
        # The first is still being written, and no other waits in memory.
        assert num_writes == [1]
        assert newest_step(run) == 0
        may_write.set()
        saving.save()
        assert num_writes == [1, 20]
        assert newest_step(run) == 20
        # What is on the disk is not written again.
        saving.save()
        assert num_writes == [1, 20]


def test_an_error_of_the_writer_is_raised_in_the_trainer(begun, run, monkeypatch):
    def full(folder, checkpoint):
        raise OSError(f"`path`: cannot write {str(folder)!r} (No space left on device).")

    with run.held() as lock:
        saving = Checkpointing(run, lock, 1e-9, Standing(begun[2]), 0)
        with monkeypatch.context() as patch:
            patch.setattr(checkpointing, "keep_checkpoint", full)
            saving.reached(at(begun[2], 1), 0.0)
            saving._writer.join()
            with pytest.raises(OSError, match="No space left"):
                saving.reached(at(begun[2], 2), 0.0)
        # It is said once; where there is room again, nothing is lost.
        saving.save()
    assert newest_step(run) == 2


def test_a_folder_that_moved_is_not_made_again(begun, run, tmp_path):
    with run.held() as lock:
        saving = Checkpointing(run, lock, 0.0, Standing(begun[2]), 0)
        saving.reached(at(begun[2], 1), 0.0)
        run.folder.rename(tmp_path / "moved")
        with pytest.raises(FileNotFoundError, match=r"moved, renamed or removed.*new name"):
            saving.reached(at(begun[2], 2), 0.0)
        # Nor is another that took its place written to.
        run.folder.mkdir()
        with pytest.raises(FileNotFoundError, match="no longer what it was"):
            saving.save()
    assert not list(run.folder.iterdir())
    assert newest_step(Run.load(tmp_path / "moved")) == 1


def test_averages_do_not_depend_on_how_updates_were_dispatched():
    random, num_updates = np.random.default_rng(0), 150
    values = random.normal(1.0, 100.0, (7, num_updates)).astype(np.float32)
    iterates = random.normal(size=(num_updates, 3)).astype(np.float32)

    def metrics(begin, end):
        rows = [row[begin:end] for row in values]
        return Metrics(rows[0], rows[1], None, iterates[begin:end], *rows[4:])

    def averages(sizes):
        found, ends = Averages(), list(itertools.accumulate(sizes, initial=0))
        for begin, end in itertools.pairwise(ends):
            found = found.with_updates(metrics(begin, end))
            if begin % 3 == 0:  # saved, and resumed from
                found = Averages(**found.as_json())
        return found

    one, many = averages([1] * num_updates), averages([50, 32, 1, 60, 7])
    assert one.as_json() == many.as_json()
    assert many.as_json()["count"] == num_updates
    means = many.means()
    assert "kl" not in means
    # 150 sums in float64 are off by at most 150 * 2^-53 of the sum of magnitudes: 2e-12.
    exact = math.fsum(map(float, values[0])) / num_updates
    assert means["free_energy"] == pytest.approx(exact, abs=1e-11)
    np.testing.assert_allclose(means["free_energies"], iterates.mean(0, np.float64), atol=1e-12)
