"""`varfilter doctor`: every oracle holds on this machine, and a failure is not hidden."""

import itertools
import json

import pytest

from commands import command, succeed
from varfilter.testing import doctor


@pytest.mark.slow
def test_the_first_oracles_hold():
    # The same checks as a user gets, but only the first two: Kalman against the dense joint.
    first = list(itertools.islice(doctor.examine(), 2))
    assert all(row.passed and row.tolerance <= 1e-10 for row in first)
    assert all(row.check.startswith("Kalman = dense joint") for row in first)


@pytest.mark.slow
def test_doctor_passes_on_this_machine():
    report = json.loads(succeed("doctor", "--json").out)
    assert report["passed"]
    checks = {row["check"]: row for row in report["checks"]}
    assert all(row["passed"] and row["value"] <= row["tolerance"] for row in checks.values())
    for start in ("Kalman = dense joint", "bootstrap particles = Kalman", "bound - evidence",
                  "converged E-step", "time-parallel = step-by-step", "stream = run",
                  "padded = unpadded", "optimal particles = Kalman, elements missing"):  # fmt: skip
        assert any(name.startswith(start) for name in checks), start
    # What the project promises: 1e-10 in x64, 1e-5 relative in float32, K = 1 and 3, θ and φ.
    assert checks["Kalman = dense joint, log evidence (x64)"]["tolerance"] == 1e-10
    for letter in "θφ":
        for num_iterations in (1, 3):
            name = f"time-parallel = step-by-step, {letter}, K={num_iterations}"
            assert checks[f"{name} (float32)"]["tolerance"] == 1e-5
            assert checks[f"{name} (x64)"]["tolerance"] == 1e-10


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize("value", [0.5, None, float("nan")])
def test_a_failing_check_gives_exit_code_1(monkeypatch, value, as_json):
    rows = [doctor.Row("good", 0.0, 0.1), doctor.Row("bad", value, 0.1, "what went wrong")]
    monkeypatch.setattr(doctor, "examine", lambda: iter(rows))
    words = ("doctor", "--json") if as_json else ("doctor",)
    code, printed, _ = command(*words)
    assert code == 1
    if as_json:
        report = json.loads(printed)
        assert not report["passed"]
        assert [row["passed"] for row in report["checks"]] == [True, False]
    else:
        assert "what went wrong" in " ".join(printed.split())
        assert "1 of 2 checks failed" in printed
    monkeypatch.setattr(doctor, "examine", lambda: iter(rows[:1]))
    assert command(*words).code == 0
