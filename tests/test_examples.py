"""Every example runs as it says, in a process of its own, and shows what it promises."""

import ast
import functools
import os
import re
from pathlib import Path

import pytest

from commands import script

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("[a-z]*.py"))
DATA = Path(os.environ.get("VARFILTER_DATA", ROOT.parent / "shared" / "data"))
# Run by test_real_data.py: the first in the default run, the others with `-m slow`.
ELSEWHERE = {
    "srnn_music.py": "it runs at length in test_real_data.py",
    "vrnn_speech.py": "`-m slow` runs it at length in test_real_data.py",
    "svg_video.py": "over a minute of compiling; `-m slow` runs it at length in test_real_data.py",
}


@functools.cache
def output_of(name):
    """What an example prints; it is run once."""
    # Those that train for long can be told to stop early.
    path = ROOT / "examples" / name
    short = ["--updates", "2"] if "--updates" in path.read_text() else []
    # Most of the time goes into compiling, also where it trains to the end.
    done = script(path, *short)
    assert done.code == 0, done.err
    return done.out


# Much compiling, of models that other examples and the tests of inputs have too.
LONG = ("driven_pendulum.py", "linear_dynamics_dial.py", "deep_markov_wells.py")
RUN = [
    pytest.param(path, marks=[pytest.mark.slow] if path.name in LONG else [], id=path.stem)
    for path in EXAMPLES
]


@pytest.mark.parametrize("path", RUN)
def test_it_runs_without_a_warning_and_prints(path):
    if DATA.is_dir() and path.name in ELSEWHERE:
        pytest.skip(ELSEWHERE[path.name])
    assert output_of(path.name).strip()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_says_how_to_run_it(path):
    assert f"python examples/{path.name}" in ast.get_docstring(ast.parse(path.read_text()))


def test_a_model_is_five_functions_in_under_40_lines():
    models = [
        node
        for path in EXAMPLES
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)
        and any("AbstractModel" in ast.unparse(base) for base in node.bases)
    ]
    assert models
    for model in models:
        functions = [node.name for node in model.body if isinstance(node, ast.FunctionDef)]
        assert functions == ["init", "embed", "prior", "emission", "advance"]
        assert model.end_lineno - model.lineno + 1 < 40, model.name


class TestYourOwnModel:
    @pytest.fixture
    def text(self):
        return output_of("your_own_model.py")

    def test_the_model_passes_its_checks(self, text):
        assert int(re.search(r"check_model: (\d+) checks passed", text)[1]) >= 10

    @pytest.mark.parametrize(
        "row",
        ["Variational, Prior", "Variational, GradientDescent", "Variational, Amortized",
         "Variational, Recurrent", "Variational, Iterative (AVF)", "Particle, Prior (bootstrap)",
         "Particle, Iterative (AVF)"],
    )  # fmt: skip
    def test_everything_runs(self, text, row):
        nats, seconds = re.search(rf"^{re.escape(row)} +(\S+) +(\S+)$", text, re.M).groups()
        assert abs(float(nats)) < 1000
        assert 0 <= float(seconds) < 60

    @pytest.mark.parametrize("row", ["Variational, Exact", "Kalman"])
    def test_the_exact_ones_say_why_not(self, text, row):
        assert re.search(rf"^{row} .*`LinearGaussian`; got `HaresAndFoxes`\. Use `", text, re.M)

    def test_learning_helps_and_the_bound_holds(self, text):
        def value(row):
            return float(re.search(rf"^  {row} +(\S+)$", text, re.M)[1])

        before, after = value("AVF, before learning"), value("AVF, after learning")
        learned, true = value("-log p, learned model"), value("-log p, true model")
        assert after < before - 5
        # A free energy lies above -log p, which 500 particles estimate to about 0.02 nats a step.
        assert after > learned - 0.1
        # No model predicts data from an island better than the island itself, in expectation;
        # 300 steps scatter by about 2 / sqrt(300) = 0.12 nats a step.
        assert learned > true - 0.3

    def test_the_stream_looks_ahead(self, text):
        assert re.search(r"after 50 steps: [\d.]+ hares and [\d.]+ foxes per trap", text)
        ranges = re.findall(r"in (-?[\d.]+) to ([\d.]+).*?\(came (-?[\d.]+)\)", text)
        assert len(ranges) == 8
        inside = sum(float(low) <= float(came) <= float(high) for low, high, came in ranges)
        # Nine in ten are expected inside; fewer than half would be another model's forecast.
        assert inside >= 4
