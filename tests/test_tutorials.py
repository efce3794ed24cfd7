"""The tutorials: their commands and their Python, tiny by default, and to the letter when slow."""

import functools

import numpy as np
import pytest
import soundfile

import videos
from commands import PROGRAM, command, script
from pages import DOCS, assert_quotes, python_of, run_commands, stand_in_a_checkout
from real_data import DATA, needs_data
from songs import TINY
from varfilter.data.midi import write_midi

TUTORIALS = DOCS / "tutorials"
FEW = ["--num-particles", "2", "--num-samples", "4"]
STEPS = ["--num-steps", "6"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    stand_in_a_checkout(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_chorales(folder):
    """Songs of four voices that wander, as the tutorial on music writes those of `jsb`."""
    rng = np.random.default_rng(0)
    for place, count in (("songs", 12), ("new", 2)):
        (folder / place).mkdir()
        for number in range(count):
            steps = np.cumsum(rng.integers(-2, 3, (14, 4)), 0)
            roll = np.zeros((14, 88), np.uint8)
            roll[np.arange(14)[:, None], np.array([30, 37, 42, 49]) + steps] = 1
            write_midi(roll, folder / place / f"test-{number:03}.mid")


def write_sentences(folder):
    """Tones with the names of some of the sentences that are fetched."""
    rng = np.random.default_rng(0)
    place = folder / "speech" / "timit_sample"
    place.mkdir(parents=True)
    for number, name in enumerate([f"tone-{i}" for i in range(11)] + ["dr8-mbcg0_sx147"]):
        tone = 3000 * np.sin(np.arange(8 * 200) * (0.02 + 0.01 * number))
        samples = np.rint(tone + rng.normal(0, 20, len(tone))).astype(np.int16)
        soundfile.write(place / f"{name}.flac", samples, 16000)


def write_clips(folder):
    """A spot that moves, with the names of some of the clips that are fetched."""
    rng = np.random.default_rng(0)
    for name in [f"spot-{i}" for i in range(11)] + ["daria_walk"]:
        at = rng.uniform(2, 8) + 0.5 * np.arange(14)
        grid = np.arange(16)
        frames = np.exp(-((grid - at[:, None, None]) ** 2 + (grid[:, None] - 8) ** 2) / 6)
        path = folder / "video" / "weizmann" / f"{name}.avi"
        videos.write_video(path, np.rint(255 * frames).astype(np.uint8))
    write_walkers(num_clips=6)


def write_walkers(num_clips):
    """Clips of walking figures, as the tutorial on video has them drawn."""
    for words in (
        ("walkers", "--clips", num_clips),
        ("new", "--clips", 1, "--seed", 1),
        ("seen", "--clips", 1, "--seed", 1, "--frames", 20),
    ):
        done = script(DOCS / "pictures" / "walkers.py", *words)
        assert done.code == 0, done.err


MUSIC = [*TINY, "--max-updates", "2"]
SMALLEST = [
    *("--model.latent-size", 3, "--model.recurrent-size", 4, "--filter.inference.hidden-size", 4),
    *(
        "--filter.inference.num-layers",
        1,
        "--optimizer.num-phi-steps",
        1,
        "--schedule.batch-size",
        2,
    ),
    *("--schedule.num-steps", 4, "--schedule.epochs-per-validation", 1, "--max-updates", 1),
]
SPEECH = [
    *SMALLEST,
    *("--model.data-feature-size", 4, "--model.latent-feature-size", 4, "--model.prior-size", 4),
    *("--model.decoder-size", 4, "--model.num-layers", 1),
]
VIDEO = [
    *SMALLEST,
    *("--data.size", 8, "--model.code-size", 4, "--model.channels", 4, "--model.convolutions", 1),
]


TINY_RUNS = {
    "music": (write_chorales, MUSIC),
    "speech": (write_sentences, SPEECH),
    "video": (write_clips, VIDEO),
}


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    "name", ["music", *(pytest.param(each, marks=pytest.mark.slow) for each in ("speech", "video"))]
)
def test_commands_of_a_tutorial_run_tiny(name, folder):
    """On made-up files with the names of those that are fetched."""
    write, train = TINY_RUNS[name]
    write(folder)
    more = {"train": train, "filter": FEW, "forecast": FEW, "sample": STEPS}
    run_commands(
        TUTORIALS / f"{name}.md", command, more=more, only=("train", "filter", "forecast", "sample")
    )
    draw_what_was_made(name, folder)


def draw_what_was_made(name, folder):
    """The picture of the tutorial, by the script that made it, of the files that lie here now."""
    given = {
        "music": ("new/test-000.mid", "goes-on.mid", "made-up.mid"),
        "speech": ("speech/timit_sample/dr8-mbcg0_sx147.flac", "goes-on.wav", "made-up.wav"),
        "video": ("new/000_walk.gif", "walks.gif", "walks-ahead.gif", "walks-on.gif"),
    }[name]
    done = script(DOCS / "pictures" / f"{name}.py", *given, "--out", "drawn")
    assert done.code == 0, done.err
    assert (folder / "drawn" / f"{name}.png").stat().st_size > 1000


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize("name", ["music", "speech", "video"])
def test_tutorial_works_to_the_letter(name, folder, monkeypatch):
    """On the real sets, each command a process; but for what is fetched, which lies here."""
    monkeypatch.setenv("VARFILTER_DATA", str(DATA))
    if name == "music":
        (folder / "page.py").write_text(python_of(TUTORIALS / "music.md"), encoding="utf-8")
        done = script("page.py")
        assert done.code == 0, done.err
        assert done.out == "305 songs\n"
    else:
        (folder / name).symlink_to(DATA / name)
    if name == "video":
        write_walkers(num_clips=60)
    program = functools.partial(script, PROGRAM, is_optimized=True, timeout=3600.0)
    written = run_commands(
        TUTORIALS / f"{name}.md",
        program,
        only=("data check", "train", "evaluate", "filter", "forecast", "sample", "report"),
    )
    assert_quotes(TUTORIALS / f"{name}.md", written)
    draw_what_was_made(name, folder)


@pytest.mark.slow
def test_tutorials_on_tables_and_streams_work_to_the_letter(folder):
    program = functools.partial(script, PROGRAM, is_optimized=True)
    assert_quotes(TUTORIALS / "tables.md", run_commands(TUTORIALS / "tables.md", program))
    for name in ("tables", "streams"):
        (folder / "page.py").write_text(python_of(TUTORIALS / f"{name}.md"), encoding="utf-8")
        done = script("page.py")
        assert done.code == 0, done.err
    assert "the same to the bit: True" in done.out
    assert_quotes(TUTORIALS / "streams.md", run_commands(TUTORIALS / "streams.md", command))
    done = script(DOCS / "pictures" / "sensors.py", "runs/sensors", "--out", "drawn")
    assert done.code == 0, done.err
    assert len(list((folder / "drawn").glob("*.png"))) == 4


def test_python_of_your_own_model_runs_tiny(folder):
    code = python_of(TUTORIALS / "your-own-model.md").replace(
        "num_updates = 300", "num_updates = 2"
    )
    assert "num_updates = 2\n" in code
    (folder / "page.py").write_text(code, encoding="utf-8")
    done = script("page.py")
    assert done.code == 0, done.err
    assert "22 checks passed" in done.out


def test_an_excerpt_that_no_command_wrote_is_found_out(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```text\nbest: 6.98 nats at step 2,860 ...\n...\nsongs   12\n```\n")
    wrote = "read\nsongs\n  12\nbest: 7.01 nats at\nstep 40 of 3,000\n"
    assert_quotes(page, wrote)
    for other in (wrote.replace("7.01", "8.2"), wrote.replace("best:", "best is"), "songs 12"):
        with pytest.raises(AssertionError):
            assert_quotes(page, other)
