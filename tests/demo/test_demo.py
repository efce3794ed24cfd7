"""The demo as a user runs it: the whole of it, in a process of its own."""

import json
import re
import signal
import subprocess
import sys
import time

import pytest

from commands import PROGRAM, refuse, script


def run(out, *options, is_optimized=False):
    done = script(PROGRAM, "demo", "--out", out, "--seed", "0", *options, is_optimized=is_optimized)
    assert done.code == 0, done.err
    return done.out, out, json.loads((out / "results.json").read_text())


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    # Optimized, as its users run it: it computes for longer than it compiles.
    return run(tmp_path_factory.mktemp("demo") / "page", is_optimized=True)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [2, 20, 60])
def test_it_can_be_interrupted_at_any_time(seconds, tmp_path):
    """Also while both of its threads are inside the compiler, which used to abort the process."""
    child = subprocess.Popen(
        [sys.executable, "-m", "varfilter", "demo", "--out", str(tmp_path / "page")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    time.sleep(seconds)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=30)
    assert child.returncode == 130, err
    assert "Traceback" not in err
    assert "FATAL" not in err


@pytest.mark.slow
def test_avf_is_within_two_percent_of_the_exact_optimum(demo):
    _, _, results = demo
    exact = results["tracker"]["exact"]["free_energy"]
    assert results["tracker"]["avf"]["free_energy"] < 1.02 * exact
    # The Kalman filter's exact evidence lies below every sampled recursion's bound.
    kalman = results["tracker"]["kalman"]["free_energy"]
    assert all(score["free_energy"] >= kalman for score in results["tracker"].values())
    # Many trajectories come close to it: within a tenth of what one trajectory loses.
    many = results["tracker"]["particles"]["free_energy"]
    assert results["tracker_gap"] == pytest.approx(many - kalman)
    assert many - kalman < 0.1 * (exact - kalman)


@pytest.mark.slow
def test_inference_helps_and_the_fault_is_found(demo):
    _, _, results = demo
    for world in ("tracker", "pendulum"):
        avf, prior = results[world]["avf"], results[world]["prior"]
        assert avf["free_energy"] < prior["free_energy"]
        assert avf["free_energies"][-1] < avf["free_energies"][0]
    # 205 seen pixels of unit-variance noise alone cost 0.5 log(2 pi e 0.2^2) each: -39.0 nats.
    # A model that predicts the mean image costs far more; one that has learned is in between.
    assert -39.0 < results["pendulum"]["avf"]["free_energy"] < -25.0
    assert results["is_fault_found"]
    assert {45, 46} & set(results["alarms"])


@pytest.mark.slow
def test_the_page_is_whole_and_its_path_is_printed_last(tmp_path):
    stdout, out, results = run(tmp_path / "page", "--quick")
    # A few updates of the inference network alone already beat no inference.
    assert results["tracker"]["avf"]["free_energy"] < results["tracker"]["prior"]["free_energy"]
    page = (out / "index.html").read_text(encoding="utf-8")
    # Four pictures, each once for wide and once for narrow screens.
    assert page.count("<img ") == page.count("<source ") == 4
    assert page.count("data:image/png;base64,") == 8
    # Self-contained: nothing is fetched from anywhere.
    assert not re.search(r'(?:src|srcset|href)="(?!data:)', page)
    assert "from the exact answer" in page
    assert str((out / "index.html").resolve()) in stdout.splitlines()[-1]


def test_a_folder_that_cannot_be_made_is_refused_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    assert "--out" in refuse("demo", "--out", tmp_path / "file" / "page")
