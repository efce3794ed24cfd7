"""Several devices, or processes, learn what one device does; each file is written once."""

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from many_devices import RUNS, begun, windows
from refusals import refuses
from varfilter import devices
from varfilter.data.batches import prefetched
from varfilter.training.checkpoints import newest_checkpoint
from varfilter.training.fitting import fit
from worlds import KEY, vector

pytestmark = pytest.mark.usefixtures("as_users_run_it")

SCRIPT = Path(__file__).parent / "many_devices.py"
CLUSTERS = ("SLURM_", "OMPI_", "KUBERNETES_", "JAX_COORDINATOR", "JAX_NUM_PROC", "JAX_PROCESS")

EXPLICIT = {"JAX_COORDINATOR_ADDRESS": "a:1", "JAX_NUM_PROCESSES": "4", "JAX_PROCESS_ID": "3"}


def start(folder, *names, num_devices, **variables):
    """The script with so many devices, which must be known before jax starts."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(CLUSTERS)}
    flags = f"{environment.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count"
    environment |= {
        "XLA_FLAGS": f"{flags}={num_devices}",
        "JAX_PLATFORMS": "cpu",
        "JAX_NUMPY_DTYPE_PROMOTION": "strict",
        "JAX_NUMPY_RANK_PROMOTION": "raise",
    }
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), str(folder), *names],
        env=environment | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(*children):
    """What they print; all are ended, whatever happens."""
    try:
        outputs = [child.communicate(timeout=200)[0] for child in children]
    finally:
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            child.wait()
    for child, output in zip(children, outputs, strict=True):
        assert child.returncode == 0, output
    return outputs


@pytest.fixture(scope="module")
def one_process(tmp_path_factory):
    """(folder, output) of runs with four devices in one process."""
    folder = tmp_path_factory.mktemp("one")
    names = ("mesh", "stream", "avf, plain", "avf, 4")
    return folder, finish(start(folder, *names, num_devices=4))[0]


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    in_two_processes(folder, "processes", "avf, 2", num_devices=1)
    return folder


def in_two_processes(folder, *names, num_devices):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}", "JAX_NUM_PROCESSES": "2"}
    options["num_devices"] = num_devices
    finish(*(start(folder, *names, JAX_PROCESS_ID=number, **options) for number in "01"))


def assert_same_training(folder, name, one, process=0):
    """As on one device, but for the order in which float32 numbers are summed.

    That changes a gradient, of order 1, by some 1e-7 of it, which a rate of 0.1 and 20
    steps with a momentum of 0.9 (each counts up to ten times) make 2e-6 of parameters of norm
    10; 1e-5 leaves a factor of 50 for how much training itself magnifies.
    """
    found = np.load(folder / name / f"learned {process}.npz")
    wanted = np.load(one / f"{name.split(',')[0].split(' from')[0]}, plain" / "learned 0.npz")
    assert len(found["free_energies"]) == 20
    np.testing.assert_allclose(found["free_energies"], wanted["free_energies"], rtol=1e-5)
    distance = np.linalg.norm(found["parameters"] - wanted["parameters"])
    assert distance < 1e-5 * np.linalg.norm(wanted["parameters"])


def test_four_devices_learn_what_one_does(one_process):
    folder, _ = one_process
    assert_same_training(folder, "avf, 4", folder)


@pytest.mark.slow
def test_so_do_other_learners_numbers_and_places_of_the_data(tmp_path):
    alone, together = tmp_path / "alone", tmp_path / "together"
    alone.mkdir()
    together.mkdir()
    names = [name for name in RUNS if name != "avf, 4"]
    finish(start(alone, *names, num_devices=4))
    for name in names:
        assert_same_training(alone, name, alone)
    names = ("avf, 4", "avf from the host, 4", "end to end from the host, 2")
    in_two_processes(together, *names[:2], num_devices=2)
    in_two_processes(together, *names[2:], num_devices=1)
    for name in names:
        for process in (0, 1):
            assert_same_training(together, name, alone, process)


@pytest.mark.slow
def test_two_processes_learn_what_one_does(one_process, two_processes):
    name = "avf, 2"
    for process in (0, 1):
        assert_same_training(two_processes, name, one_process[0], process)
    # The first process alone writes, and one device reads.
    kept = [path.name for path in (two_processes / name).iterdir() if path.is_dir()]
    assert kept == ["of 0"]
    _, learning = begun(RUNS[name][0])
    found, refused = newest_checkpoint(two_processes / name / "of 0", learning)
    assert not refused
    assert found.step == 20
    learned = np.load(two_processes / name / "learned 0.npz")["parameters"]
    np.testing.assert_array_equal(vector((found.state.model, found.state.filter)), learned)


def test_each_process_reads_its_part_of_a_batch():
    source = windows(on_device=False)
    whole = next(prefetched(source, KEY, first_step=3))
    part = next(prefetched(source, KEY, first_step=3, part=slice(2, 5)))
    np.testing.assert_array_equal(part.xs, whole.xs[2:5])
    np.testing.assert_array_equal(part.mask, whole.mask[2:5])
    assert devices.own_places(devices.device_mesh(8, jax.devices()[:1]), 8) == slice(0, 8)


@pytest.mark.parametrize(
    ("variables", "arguments", "wanted"),
    [
        (EXPLICIT, (), ("a:1", 4, 3)),
        (EXPLICIT, ("b:2", 2, 0), ("b:2", 2, 0)),
        ({"OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_RANK": "5"}, (), (None, 8, 5)),
        ({"SLURM_NTASKS": "8", "SLURM_PROCID": "5"}, (), (None, None, None)),  # jax reads them
    ],
)  # fmt: skip
def test_where_the_other_processes_are_found(variables, arguments, wanted, monkeypatch):
    forget_clusters(monkeypatch)
    asked = []
    monkeypatch.setattr(jax.distributed, "initialize", lambda *where, **_: asked.append(where))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    devices.connect(*arguments)
    assert asked == [wanted]


def test_refusals(one_process, monkeypatch):
    forget_clusters(monkeypatch)
    assert "No other processes were found" in one_process[1]
    assert "JAX_COORDINATOR_ADDRESS" in one_process[1]

    def connect(*arguments):
        return lambda: devices.connect(*arguments)

    refuses(connect("host"), ValueError, "`address`", "host:port")
    refuses(connect("host:1", 2), ValueError, "`num_processes` and `process_id`", "2 and None")
    refuses(connect("host:1", 2, 2), ValueError, "`process_id`", "got 2")
    refuses(connect("host:1", 0, 0), ValueError, "`num_processes`", "got 0")
    refuses(connect("host:1", 1, 0), RuntimeError, "too late")
    monkeypatch.setenv("JAX_PROCESS_ID", "one")
    refuses(connect("host:1"), ValueError, "JAX_NUM_PROCESSES", "''")
    monkeypatch.setenv("JAX_NUM_PROCESSES", "2")
    refuses(connect("host:1"), ValueError, "JAX_PROCESS_ID", "'one'")

    learner, learning = begun("end to end")

    def train(mesh):
        return lambda: next(fit(learner, learning, windows(True), KEY, num_updates=1, devices=mesh))

    refuses(train(jax.devices()), TypeError, "`devices`", "device_mesh")
    refuses(lambda: devices.device_mesh(0), ValueError, "`batch_size`", "got 0")


def forget_clusters(monkeypatch):
    for name in [name for name in os.environ if name.startswith(CLUSTERS)]:
        monkeypatch.delenv(name)
