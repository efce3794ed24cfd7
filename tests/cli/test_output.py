"""What commands write: nothing that moves a cursor, options by their names, commands to paste."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest

from commands import PROGRAM, command, refuse, succeed
from servers import raw_server
from songs import LAST
from varfilter._text import count, in_options, pasteable, printable
from varfilter.cli.comparison import tell_what_comes
from varfilter.cli.options import meant_by, overridden
from varfilter.cli.overview import overview
from varfilter.media import MEDIA, load
from varfilter.runs.plan import plan_run
from varfilter.runs.run import Run

pytestmark = pytest.mark.usefixtures("as_users_run_it")

# Clear the screen, ring, write from right to left, go to the line's start, end the line.
HARMFUL = "\x1b[2J\x07\u202e\r\n\x9b31m\u2028\x7f"


def test_text_is_made_visible():
    for plain in ("", "warm", "Größe 漢字 №5", "a\u00a0b\u3000c", r"C:\x1b"):
        assert printable(plain) == plain
    shown = printable(f"a{HARMFUL}b\udc80")
    assert shown == r"a\x1b[2J\x07\u202e\r\n\x9b31m\u2028\x7fb\udc80"
    assert shown.isprintable()


def test_a_table_says_that_more_than_training_comes(capsys):
    for medium in ("table", "music"):
        tell_what_comes(SimpleNamespace(medium=MEDIA[medium]))
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "alarms" in said
    assert "as long as a short training" in said


def test_one_of_a_thing_is_no_plural():
    assert [count(n, "step") for n in (0, 1, 2, 4793)] == [
        "0 steps",
        "1 step",
        "2 steps",
        "4,793 steps",
    ]
    assert [count(x, "epoch") for x in (0.25, 1.0, 4 / 3)] == [
        "0.25 epochs",
        "1 epoch",
        "1.333 epochs",
    ]


def test_a_table_of_one_sequence_and_one_column_is_told_of_in_the_singular(tmp_path):
    path = tmp_path / "one.csv"
    path.write_text("a\n" + "\n".join(str(n * n % 7) for n in range(40)) + "\n")
    words = ("--schedule.batch-size", "1", "--schedule.patience-epochs", "1")
    experiment, _ = overridden(meant_by(str(path)), words)
    dataset = load(experiment.data)
    run = Run.begin(tmp_path / "run", experiment, dataset)
    lines = overview(run, dataset, plan_run(experiment, dataset, max_updates=1))
    said = " ".join(text for _, text in lines)
    for words in ("1 for training (32 steps)", "1 number", "1 update (", "1 window of"):
        assert words in said
    assert not re.search(r"\b1 [a-z]{2,}s\b", said), said
    # One update cannot be halved, nor one window.
    assert "max-updates" not in said
    assert "batch-size" not in said


def test_commands_are_the_words_that_a_shell_gives_back():
    words = ["varfilter", "train", "runs/my run; rm -rf ~", "$HOME", "it's", ""]
    assert shlex.split(pasteable(*words)) == words


def write_table(path, name="cold", sequence="a"):
    rows = [f"{sequence}{i % 4},{i}.5,{i % 7}.25" for i in range(60)]
    path.write_text("\n".join([f'run,warm,"{name}"', *rows]) + "\n", encoding="utf-8")
    return path


def test_control_characters_of_files_do_not_reach_the_terminal(tmp_path):
    columns = write_table(tmp_path / "columns.csv", HARMFUL)
    sequences = write_table(tmp_path / "sequences.csv", sequence="\x1b[2J")
    named = write_table(tmp_path / "re\x1b]0;x\x07\nad\udc80ings.csv")
    for words in (
        (columns,),
        (columns, "--columns", "wram"),
        (columns, "--kinds", f"{HARMFUL}=count"),
        (sequences, "--time", "run"),
        (named,),
        (named, "--time", "warm", "--sequence", "no"),
        (named, "--split-by", "x"),
    ):
        result = command("data", "check", *map(os.fspath, words))
        for line in (result.out + result.err).splitlines():
            assert line.isprintable(), (words, line)
        assert result.code in (0, 2)
    assert r"\x1b[2J\x07\u202e\r\n" in succeed("data", "check", columns).out
    assert r"re\x1b]0;x\x07\nad\udc80ings" in succeed("data", "check", os.fspath(named)).out


def test_control_characters_of_servers_do_not_reach_the_terminal(tmp_path):
    answer = b"HTTP/1.1 404 \x1b[2J\x07gone\r\n\r\n"
    with raw_server(answer) as url:
        said = refuse("data", "fetch", "jsb", "--folder", tmp_path, "--from", url)
    assert r"404 \x1b[2J\x07gone" in said
    assert said.strip().isprintable()


# Options by the names that were typed.


def test_arguments_become_options():
    flags = {"sequence": "--data.sequence", "kinds": "--kinds", "source": "TABLE", "path": "--out",
             "schedule.num_steps": "--schedule.num-steps", "time": "--time"}  # fmt: skip
    for before, after in {
        "`sequence` names it.": "`--data.sequence` names it.",
        "`schedule.num_steps` is 1.": "`--schedule.num-steps` is 1.",
        "Give `kinds={'a b': 'count'}`.": "Give `--kinds a b=count`.",
        "`kinds['a']` must be": "`--kinds a` must be",
        "or `time=False`.": "or `--time none`.",
        "Column `time` is none; `time` is": "Column `time` is none; `--time` is",
        "`source` '/a.csv' is empty.": "'/a.csv' is empty.",
        "`source` is '/a.csv': none.": "'/a.csv': none.",
        "`source` has no rows.": "`TABLE` has no rows.",
        "`path` must end in .csv": "`--out` must end in .csv",
        "`path` is 'a.x', but": "`--out` is 'a.x', but",
        "`num_keys` is 3.": "`num_keys` is 3.",
        "`varfilter list` has it.": "`varfilter list` has it.",
    }.items():
        assert in_options(before, flags) == after


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--sequence", "rum"), "`--sequence` names the column 'rum'. Did you mean 'run'?"),
        (("--time", "wram"), "`--time` names the column 'wram'"),
        (("--columns", "wram"), "`--columns` names the column 'wram'"),
        (("--kinds", "warm=much"), "`--kinds warm` must be one of numeric, heavy, zeros"),
        (("--kinds", "warm"), "`--kinds` must be like COLUMN=count"),
        (("--step", "3"), "`--step` is 3.0, but no column is the time. Name it in `--time`."),
        (("--long", "warm", "rum"), "`--long` names the column 'rum'"),
        (("--inputs", "rum"), "`--inputs` names the column 'rum'"),
    ],
)
def test_errors_name_what_was_typed(words, said, tmp_path):
    path = write_table(tmp_path / "readings.csv")
    assert said in refuse("data", "check", path, *words)
    data = [word.replace("--", "--data.", 1) for word in words]
    given = said.replace("`--", "`--data.")
    assert given in refuse("train", path, *data, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_errors_of_places_name_the_place_alone(tmp_path):
    (tmp_path / "empty.csv").write_text("")
    path = tmp_path / "empty.csv"
    assert refuse("data", "check", path).startswith(f"'{path}' is empty.")
    assert refuse("train", path, "--out", tmp_path / "run").startswith(f"'{path}' is empty.")
    path = tmp_path / "a.pickle"
    path.write_bytes(b"not a pickle")
    assert refuse("data", "check", path).startswith(f"'{path}' is not a whole pickle")
    said = refuse("train", write_table(tmp_path / "t.csv"), "--schedule.num-steps", 1)
    assert "`--schedule.num-steps` must be at least 2" in said


# Places where nothing can be written, and readers that have seen enough.


def run(words, **streams):
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *words], check=False, text=True,
        **({"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams),
    )  # fmt: skip
    assert "Traceback" not in (done.stderr or "")
    assert "Exception ignored" not in (done.stderr or "")
    return done


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_standard_output_is_said(tmp_path):
    with open("/dev/full", "w") as full:
        for words in (["--help"], ["train", "--help"], ["data", "list"]):
            done = run(words, stdout=full)
            assert done.returncode == 2
            assert "Standard output cannot be written to (No space left" in done.stderr
        done = run(["trian"], stderr=full)
        assert done.returncode == 2


def test_a_reader_that_has_seen_enough_is_no_error():
    reading, writing = os.pipe()
    os.close(reading)
    for words in (["--help"], ["train", "--help"]):
        done = run(words, stdout=writing)
        # As of every other command that writes to a closed pipe.
        assert done.returncode == 141
        assert done.stderr == ""
    assert run(["trian"], stderr=writing).returncode in (2, 141)
    os.close(writing)


def test_closed_streams_are_no_error():
    for redirection, code in ((">&-", 0), ("2>&-", 0), (">&- 2>&-", 0)):
        words = [sys.executable, str(PROGRAM), "--help"]
        done = subprocess.run(
            ["sh", "-c", f"{shlex.join(words)} {redirection}"],
            check=False, capture_output=True, text=True,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (code, "")


def test_commands_that_are_suggested_can_be_pasted(unbroken, tmp_path):
    folder = tmp_path / "my run; it's"
    shutil.copytree(unbroken[0], folder)
    out = succeed("train", folder, "--max-updates", LAST, "--quiet").out
    (line,) = [line for line in out.splitlines() if line.startswith("next: ")]
    assert shlex.split(line.removeprefix("next: ")) == ["varfilter", "evaluate", str(folder)]
