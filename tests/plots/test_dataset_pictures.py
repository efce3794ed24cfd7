"""Pictures of data sets: what is drawn is what is in them, of every kind and however odd."""

import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from refusals import refuses
from varfilter.data import Dataset, Family, Ragged, Scaling
from varfilter.distributions import Bernoulli, DiscretizedNormal, Normal
from varfilter.media import picture
from varfilter.plots.datasets import MOST_FRAMES, MOST_PANELS

pytestmark = pytest.mark.usefixtures("as_users_run_it")

ROOT = Path(__file__).parent.parent.parent
DATA = Path(os.environ.get("VARFILTER_DATA", ROOT.parent / "shared" / "data"))
NAN = float("nan")
SPLITS = ("train", "valid", "test")


def dataset(sequences, family=None, *, names=None, **options):
    """The same sequences in every split."""
    ragged = Ragged.of(sequences)
    named = {} if names is None else dict.fromkeys(SPLITS, tuple(names))
    family = Family(Normal) if family is None else family
    return Dataset("things", ragged, ragged, ragged, family, names=named, **options)


def parts(figure):
    """(the header's axis, the panels that are seen)."""
    header, body = figure.subfigs
    return header.axes[0], [axis for axis in body.axes if axis.get_visible()]


def heading(figure):
    return [text.get_text() for text in figure.subfigs[0].texts]


def titles(axes):
    return [axis.get_title(loc="left") for axis in axes]


def names(figure):
    """All that tells which sequences are shown."""
    legends = [text.get_text() for each in figure.subfigs[1].legends for text in each.get_texts()]
    return titles(figure.subfigs[1].axes) + legends


def png(figure):
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def size(data):
    """(width, height) as the header of a PNG says."""
    return int.from_bytes(data[16:20]), int.from_bytes(data[20:24])


def rolls(*lengths, seed=0):
    generator = np.random.default_rng(seed)
    return [(generator.random((n, 88)) < 0.05).astype(np.uint8) for n in lengths]


# Heading


def test_heading_and_lengths():
    songs = rolls(5, 9, 9, 40, 12, 9)
    figure = picture(dataset(songs, Family(Bernoulli)), split="valid", seed=3)
    title, facts = heading(figure)
    assert title == "things, valid"
    assert facts.splitlines() == [
        "6 sequences of 5 to 40 steps; an observation is (88,), Bernoulli",
        "Shown: 4 of 6 sequences (seed 3)",
    ]
    histogram, _ = parts(figure)
    counts = {
        length: sum(
            bar.get_height()
            for bar in histogram.patches
            if bar.get_x() < length < bar.get_x() + bar.get_width()
        )
        for length in (5, 9, 12, 40)
    }
    assert counts == {5: 1, 9: 3, 12: 1, 40: 1}
    assert sum(bar.get_height() for bar in histogram.patches) == 6
    assert [text.get_text() for text in histogram.get_xticklabels()] == ["5", "40"]


def test_lengths_are_in_steps():
    sounds = [np.zeros(1999, np.int16), np.ones(400, np.int16)]
    figure = picture(dataset(sounds, rows_per_step=200, rate=8000.0))
    assert "2 sequences of 2 to 9 steps; an observation is (200,), Normal" in heading(figure)[1]
    histogram, _ = parts(figure)
    assert [text.get_text() for text in histogram.get_xticklabels()] == ["2", "9"]


def test_families_of_a_table_are_counted():
    family = (Family(Normal), Family(Bernoulli), Family(Normal))
    figure = picture(dataset([np.zeros((3, 3))], family, columns=("a", "b", "c")))
    assert "an observation is (3,), 2 Normal, 1 Bernoulli" in heading(figure)[1]
    assert "1 sequence of 3 steps" in heading(figure)[1]


# Rolls


def test_rolls():
    songs = rolls(30, 20)
    songs[0][:, :10] = songs[1][:, :10] = songs[0][:, 60:] = songs[1][:, 60:] = 0
    songs[0][3, [30, 59]] = songs[0][0, 10] = 1
    figure = picture(dataset(songs, Family(Bernoulli), names=("air", "bourrée")))
    _, axes = parts(figure)
    assert titles(axes) == ["air, 30 steps", "bourrée, 20 steps"]
    for axis, song in zip(axes, songs, strict=True):
        (image,) = axis.images
        np.testing.assert_array_equal(image.get_array(), song.T)
        # Column j is the MIDI note 21 + j, and a note's place is its number.
        left, right, bottom, top = image.get_extent()
        assert (left, right, bottom, top) == (-0.5, len(song) - 0.5, 20.5, 108.5)
        assert axis.get_xlim() == (-0.5, 29.5)
        assert axis.get_ylim() == (28.5, 82.5)
    marks = dict(
        zip([t.get_text() for t in axes[0].get_yticklabels()], axes[0].get_yticks(), strict=True)
    )
    assert marks["C4"] == 60
    assert [mark for mark, note in marks.items() if 28.5 <= note <= 82.5] == [
        "C2",
        "C3",
        "C4",
        "C5",
    ]
    assert axes[-1].get_xlabel() == "step"


def test_no_more_songs_and_steps_than_said():
    songs = rolls(*[1793] * 20)
    figure = picture(dataset(songs, Family(Bernoulli)))
    _, axes = parts(figure)
    assert len(axes) == 4
    for axis in axes:
        number = int(axis.get_title(loc="left").split(",")[0].removeprefix("sequence "))
        np.testing.assert_array_equal(axis.images[0].get_array(), songs[number][:200].T)
        assert axis.get_title(loc="left") == f"sequence {number}, the first 200 of 1,793 steps"


# Sound


def test_sound():
    rate = 8000.0
    seconds = np.arange(4000) / rate
    tone = np.round(1000 * np.sin(2 * np.pi * 1500 * seconds)).astype(np.int16)
    scaling = Scaling(3.0, 500.0)
    figure = picture(
        dataset(
            [tone, tone[:2000]], Family(DiscretizedNormal), scaling=scaling,
            rows_per_step=200, rate=rate, names=("dr1-fcjf0_sa1", "dr2-marc0_sx1"),
        )
    )  # fmt: skip
    _, axes = parts(figure)
    waves, spectra = axes[::2], axes[1::2]
    assert titles(waves) == [
        "dr1-fcjf0_sa1, 20 steps (0.50 s)",
        "dr2-marc0_sx1, 10 steps (0.25 s)",
    ]
    # As recorded: not scaled.
    np.testing.assert_array_equal(waves[0].lines[0].get_xdata(), seconds)
    np.testing.assert_array_equal(waves[0].lines[0].get_ydata(), tone)
    assert axes[-1].get_xlabel() == "seconds"
    assert axes[-1].get_xlim() == (0.0, 0.5)
    for axis, end in zip(spectra, (0.5, 0.25), strict=True):
        levels = axis.images[0].get_array()
        # Half of 25 ms of 8,000 samples a second: bands of 40 Hz, of which 1500 Hz is number 37.5.
        assert levels.shape[0] == 101
        assert np.argmax(levels[:, levels.shape[1] // 2]) in (37, 38)
        assert axis.images[0].get_extent() == [0.0, end, 0.0, 4.0]
        assert axis.get_ylabel() == "kHz"


def test_a_long_sound_is_an_outline():
    samples = np.random.default_rng(0).normal(size=300_000).astype(np.float32)
    figure = picture(dataset([samples], rate=16000.0))
    _, (wave, _) = parts(figure)
    times, values = wave.lines[0].get_data()
    assert len(values) <= 4002
    shown = samples[: 1 << 17]
    assert values.min() == shown.min()
    assert values.max() == shown.max()
    for place in (100, 1500):
        begin = round(times[2 * place] * 16000)
        end = round(times[2 * place + 2] * 16000)
        assert values[2 * place] == samples[begin:end].min()
        assert values[2 * place + 1] == samples[begin:end].max()
    assert wave.get_title(loc="left") == "sequence 0, the first 131,072 of 300,000 steps (18.75 s)"


# Videos


@pytest.mark.parametrize("channels", [1, 3])
def test_videos(channels):
    generator = np.random.default_rng(0)
    videos = [generator.integers(0, 256, (n, channels, 24, 48), np.uint8) for n in (40, 3)]
    family = Family(DiscretizedNormal, width=1 / 255, low=0.0, high=1.0)
    figure = picture(
        dataset(videos, family, scaling=Scaling(0.0, 255.0), rate=25.0, names=("run", "jump"))
    )
    _, axes = parts(figure)
    assert titles(axes) == ["run, 40 steps (1.60 s)", "jump, 3 steps (0.12 s)"]
    steps = [[0, 6, 11, 17, 22, 28, 33, 39], [0, 1, 2]]
    for axis, video, chosen in zip(axes, videos, steps, strict=True):
        assert [text.get_text() for text in axis.get_xticklabels()] == [f"t={t}" for t in chosen]
        strip = axis.images[0].get_array()
        assert strip.shape == (24, MOST_FRAMES * 50 - 2, 3)
        for i, step in enumerate(chosen):
            frame = np.moveaxis(video[step], 0, -1) / 255
            np.testing.assert_allclose(
                strip[:, 50 * i : 50 * i + 48], np.broadcast_to(frame, (24, 48, 3)), atol=1e-6
            )
        assert (strip[:, 50 * len(chosen) - 2 :] == 1.0).all()


def test_missing_pixels_have_a_colour_of_their_own():
    video = np.linspace(-2.0, 2.0, 256).reshape(1, 16, 16).astype(np.float32)
    video[0, 3, 5] = NAN
    figure = picture(dataset([video]))
    _, (axis,) = parts(figure)
    strip = axis.images[0].get_array()
    assert len(set(strip[3, 5])) == 3
    # Black is the lowest and white the highest value, where no levels are known.
    assert strip[0, 0].tolist() == [0.0] * 3
    assert strip[15, 15].tolist() == [1.0] * 3
    assert "missing values are grey-blue" in heading(figure)[1]


# Tables


def plant(num_sequences=5, num_columns=3):
    """Columns with a scale of their own; the second is binary, the last is in parts missing."""
    generator = np.random.default_rng(0)
    tables = []
    for _ in range(num_sequences):
        values = generator.normal(50.0, 3.0, (12, num_columns)).astype(np.float32)
        values[:, 1] = generator.random(12) < 0.5
        values[[0, 2, 3, 4, 6], -1] = NAN
        tables.append(values)
    family = tuple(Family(Bernoulli if i == 1 else Normal) for i in range(num_columns))
    scale = np.where(np.arange(num_columns) == 1, 1.0, 3.0)
    scaling = Scaling(np.where(np.arange(num_columns) == 1, 0.0, 50.0), scale)
    names = [f"batch {i}" for i in range(num_sequences)]
    columns = tuple(f"column {i}" for i in range(num_columns))
    return tables, dataset(tables, family, scaling=scaling, names=names, columns=columns)


def test_tables_are_drawn_in_the_users_units():
    tables, data = plant()
    figure = picture(data)
    _, axes = parts(figure)
    assert titles(axes) == ["column 0", "column 1", "column 2"]
    assert [axis.get_title(loc="right") for axis in axes] == [
        "Normal", "Bernoulli", "Normal, 42% missing",
    ]  # fmt: skip
    (legend,) = figure.subfigs[1].legends
    labels = [text.get_text() for text in legend.get_texts()]
    assert len(labels) == 3
    chosen = [int(label.split(",")[0].removeprefix("batch ")) for label in labels]
    for i, number in enumerate(chosen):
        for column in (0, 2):
            line = axes[column].lines[i]
            np.testing.assert_array_equal(line.get_xdata(), np.arange(12))
            np.testing.assert_array_equal(line.get_ydata(), tables[number][:, column])
            assert legend.legend_handles[i].get_color() == line.get_color()
        # A step between two gaps is no line: it is a dot.
        alone = axes[2].lines[len(chosen) + i]
        assert (alone.get_xdata().tolist(), alone.get_marker()) == ([1, 5], "o")
        np.testing.assert_array_equal(alone.get_ydata(), tables[number][[1, 5], 2])
        marks = axes[2].lines[2 * len(chosen) + i]
        assert (marks.get_xdata().tolist(), marks.get_marker()) == ([0, 2, 3, 4, 6], "|")
        # Marks lie below all that is drawn.
        bottom, top = axes[2].get_ylim()
        height = bottom + marks.get_ydata().max() * (top - bottom)
        assert height < min(np.nanmin(tables[n][:, 2]) for n in chosen)
    np.testing.assert_allclose(
        data.scaling.restore(data.observations(tables[chosen[0]]))[:, 0],
        axes[0].lines[0].get_ydata(),
        rtol=1e-6,
    )


def test_binary_columns_are_steps_that_do_not_hide_each_other():
    tables, data = plant(3)
    _, axes = parts(picture(data))
    for i, values in enumerate(tables):
        line = axes[1].lines[i]
        assert line.get_drawstyle() == "steps-mid"
        np.testing.assert_array_equal(line.get_ydata() - 1.5 * (2 - i), values[:, 1])
    assert axes[1].get_yticks().tolist() == [3.0, 4.0, 1.5, 2.5, 0.0, 1.0]
    assert [text.get_text() for text in axes[1].get_yticklabels()] == ["0", "1"] * 3


def test_the_columns_left_out_are_counted():
    _, data = plant(4, num_columns=20)
    figure = picture(data)
    _, axes = parts(figure)
    assert len(axes) == MOST_PANELS
    assert titles(axes) == [f"column {i}" for i in range(MOST_PANELS)]
    assert "Shown: 3 of 4 sequences (seed 0), 8 of 20 columns" in heading(figure)[1]
    _, axes = parts(picture(plant(4, num_columns=5)[1]))
    assert len(axes) == 5


def test_long_tables_are_cut():
    figure = picture(dataset([np.arange(5000.0)[:, None]], columns=("a",)))
    _, (axis,) = parts(figure)
    np.testing.assert_array_equal(axis.lines[0].get_ydata(), np.arange(1000.0))
    (legend,) = figure.subfigs[1].legends
    assert legend.get_texts()[0].get_text() == "sequence 0, the first 1,000 of 5,000 steps"


def test_a_few_numbers_without_names_are_lines():
    xs = np.random.default_rng(0).normal(size=(7, 2))
    _, axes = parts(picture(dataset([xs])))
    assert titles(axes) == ["element 0", "element 1"]
    np.testing.assert_array_equal(axes[1].lines[0].get_ydata(), xs[:, 1])
    _, (axis,) = parts(picture(dataset([xs[:, 0]])))
    np.testing.assert_array_equal(axis.lines[0].get_ydata(), xs[:, 0])
    figure = picture(dataset([np.arange(1500.0)] * 4))
    _, (axis,) = parts(figure)
    assert "Shown: 3 of 4 sequences" in heading(figure)[1]
    np.testing.assert_array_equal(axis.lines[2].get_ydata(), np.arange(1000.0))


# All else


def test_heat_maps():
    xs = np.random.default_rng(0).normal(size=(2, 700, 4, 5)).astype(np.float32)
    xs[0, 3, 1, 2] = NAN
    figure = picture(dataset(list(xs)))
    _, axes = parts(figure)
    first, second, bar = axes
    for axis, sequence in zip((first, second), xs, strict=True):
        image = axis.images[0]
        expected = sequence[:500].reshape(500, 20).T
        np.testing.assert_array_equal(np.ma.filled(image.get_array(), NAN), expected)
        assert image.get_clim() == (np.nanmin(xs[:, :500]), np.nanmax(xs[:, :500]))
    low, high = np.nanmin(xs[:, :500]), np.nanmax(xs[:, :500])
    assert bar.get_ylim() == pytest.approx((low, high))
    assert first.get_title(loc="left") == "sequence 0, the first 500 of 700 steps"


# Whatever it is


def everything():
    """A data set of each kind, large enough that the seed matters."""
    generator = np.random.default_rng(0)
    return {
        "rolls": dataset(rolls(*range(10, 40)), Family(Bernoulli)),
        "sound": dataset([generator.normal(size=400) for _ in range(20)], rate=100.0),
        "videos": dataset([generator.random((6, 1, 16, 16)) for _ in range(20)]),
        "table": plant(20)[1],
        "heat maps": dataset([generator.random((6, 30)) for _ in range(20)]),
    }


@pytest.mark.parametrize("kind", ["rolls", "sound", "videos", "table", "heat maps"])
def test_the_same_seed_gives_the_same_picture(kind):
    data = everything()[kind]
    figure, other = picture(data, seed=1), picture(data, seed=2)
    drawn = png(figure)
    assert drawn == png(picture(data, seed=1))
    assert size(drawn)[0] == 1280
    assert names(figure) != names(other)


@pytest.mark.parametrize(("value", "lengths"), [(0.0, (1,)), (NAN, (1, 6)), (1e30, (1, 6))])
@pytest.mark.parametrize("row", [(), (88,), (3,), (12, 12), (3, 12, 12), (2, 2, 9)])
def test_constant_missing_and_short_sequences(row, value, lengths):
    # That there are no warnings is checked by drawing: they are errors.
    sequences = [np.full((n, *row), value, np.float32) for n in lengths]
    family = Family(Bernoulli if row == (88,) else Normal)
    png(picture(dataset(sequences, family, rate=8000.0 if row == () else None)))


def test_names_that_no_font_has():
    names = ("a\nb $x$ 日本\x00", "W" * 300)
    columns = ("$\\frac{", "\t", "日" * 50)
    xs = np.zeros((2, 4, 3))
    figure = picture(dataset(list(xs), names=names, columns=columns))
    assert len(png(figure)) > 1000
    _, axes = parts(figure)
    assert axes[0].get_title(loc="left") == "$\\frac{"
    (legend,) = figure.subfigs[1].legends
    first, second = [text.get_text() for text in legend.get_texts()]
    assert first == "a b $x$ ???, 4 steps"
    assert len(second) < 40


def test_steps_of_many_rows_and_sequences_of_none():
    sequences = [np.zeros((n, 20)) for n in (3, 10, 11)]
    data = dataset(sequences, rows_per_step=4)
    figure = picture(data)
    _, axes = parts(figure)
    assert titles(axes)[:2] == ["sequence 1, 2 steps", "sequence 2, 2 steps"]
    assert len(axes) == 3  # the colour bar is one
    assert axes[1].get_xlabel() == "row"


def test_what_cannot_be_shown():
    ragged, empty = Ragged.of([np.zeros((3, 2))]), Ragged.of([], like=np.zeros((1, 2)))
    data = Dataset("things", ragged, empty, ragged, Family(Normal))
    refuses(lambda: picture(data, split="valid"), ValueError, "`split` 'valid'", "'things'")
    refuses(lambda: picture(data, split="all"), ValueError, "`split` must be one of")
    refuses(lambda: picture(data, seed=-1), ValueError, "`seed`", "-1")
    refuses(lambda: picture(data, seed=0.5), ValueError, "`seed`", "0.5")


def test_no_screen_and_no_state_of_pyplot():
    program = (
        "import sys, numpy as np\n"
        "from varfilter.data import Dataset, Family, Ragged\n"
        "from varfilter.media import picture\n"
        "from varfilter.distributions import Normal\n"
        "x = Ragged.of([np.zeros((3, 2))])\n"
        "picture(Dataset('a', x, x, x, Family(Normal))).canvas.draw()\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    environment = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "MPLBACKEND")}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not DATA.is_dir(), reason=f"needs the data sets in {DATA}")
def test_real_chorales():
    from varfilter.data.rolls import read_rolls

    data = read_rolls(DATA / "music" / "jsb_chorales.npz")
    figure = picture(data)
    assert "229 sequences of 25 to 129 steps" in heading(figure)[1]
    _, axes = parts(figure)
    for axis in axes:
        number = int(axis.get_title(loc="left").split(",")[0].removeprefix("sequence "))
        np.testing.assert_array_equal(axis.images[0].get_array(), data.train[number].T)
    # Four voices, from G2 to C7, for which an axis of 88 keys would be too long.
    assert axes[0].get_ylim()[0] > 40
    assert size(png(figure))[0] == 1280
