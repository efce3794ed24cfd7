"""The media that there are: which of them some data are, and one function that loads any."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np

from varfilter._arguments import kind, nearest, require_known_options
from varfilter._text import count
from varfilter.data.dataset import Dataset
from varfilter.data.sets.registry import CATALOGUE, entry_named, read_set
from varfilter.filters.base import Filtered
from varfilter.media.base import AbstractMedium, ArrayMedium, Figure
from varfilter.media.cells import whole_quantiles
from varfilter.media.formats import Row
from varfilter.media.music import MusicMedium
from varfilter.media.rows import (
    filtering_of,
    quantile_name,
    require_shape,
    restored,
    times_from,
)
from varfilter.media.sequences import NewSequence, Source
from varfilter.media.sound import SoundMedium
from varfilter.media.table import TableMedium
from varfilter.media.video import VideoMedium
from varfilter.simulation import Forecast

# In the order in which they are asked whether some data are theirs.
MEDIA: dict[str, AbstractMedium] = {
    medium.name: medium
    for medium in (MusicMedium(), SoundMedium(), VideoMedium(), TableMedium(), ArrayMedium())
}

# Endings that a note lists at most.
MOST_ENDINGS = 6
BUILT_IN = frozenset(type(medium) for medium in MEDIA.values())


def register(medium: AbstractMedium) -> None:
    """Add a medium of your own; it is asked before the others whether some data are its own.

    One that was registered before under its name is replaced; those of the library are not.
    """
    _require_medium(medium)
    others = {name: each for name, each in MEDIA.items() if name != medium.name}
    MEDIA.clear()
    MEDIA.update({medium.name: medium} | others)


def _require_medium(medium: Any) -> None:
    if not isinstance(medium, AbstractMedium):
        raise TypeError(
            f"`medium` must be an instance of a subclass of `AbstractMedium`; got {kind(medium)}."
        )
    own = type(medium).__name__
    for attribute in ("name", "plural", "source"):
        if not getattr(medium, attribute, None):
            raise TypeError(f"`{own}.{attribute}` is missing: every medium has one.")
    if type(MEDIA.get(medium.name)) in BUILT_IN and type(medium) not in BUILT_IN:
        raise ValueError(
            f"`{own}.name` is {medium.name!r}, which is a medium of varfilter itself. Give another."
        )
    if medium.source.medium != medium.name:
        raise ValueError(
            f"`{own}.source` is `{medium.source.__name__}`, whose `medium` is"
            f" {medium.source.medium!r}; it must be {medium.name!r}, the name of the medium."
        )
    for suffix in (*medium.suffixes, *medium.frame_suffixes):
        if not suffix.startswith(".") or suffix != suffix.lower():
            raise ValueError(
                f"`{own}.suffixes` has {suffix!r}; an ending is like '.wav', in small letters."
            )
        for other in MEDIA.values():
            if other.name != medium.name and suffix in other.suffixes:
                raise ValueError(
                    f"`{own}.suffixes` has {suffix!r}, which is an ending of {other.plural}."
                    " A folder of such files could be either."
                )


def _register_plugins() -> None:
    """Add the media that installed packages offer, so that every command takes them too."""
    for entry in entry_points(group="varfilter.media"):
        register(entry.load()())


def medium_named(name: str) -> AbstractMedium:
    """Look up a medium by its name."""
    if name in MEDIA:
        return MEDIA[name]
    raise ValueError(
        f"There is no medium {name!r}.{nearest(name, MEDIA)} The media are {', '.join(MEDIA)};"
        " `varfilter.media.register` adds one of your own."
    )


def medium_of(dataset: Dataset) -> AbstractMedium:
    """The medium that a data set names, or else the one that its rows are like."""
    if dataset.medium:
        return medium_named(dataset.medium)
    return next((m for m in MEDIA.values() if m.holds(dataset)), MEDIA["array"])


def source_of(word: str | Path) -> Source:
    """A name or a path as the source of its medium, with no option given."""
    word = str(word)
    if word in CATALOGUE or not _is_path(word):
        return medium_named(entry_named(word).medium).source(word)
    path = _existing(word)
    # Whole: it has to be found from any folder.
    return medium_at(path).source(str(path.resolve()))


def _existing(word: str | Path) -> Path:
    """The path of a file or a folder that is there."""
    path = Path(word).expanduser()
    if not path.exists():
        raise FileNotFoundError(
            f"`source` is {str(word)!r}: there is no such file or folder."
            f"{nearest(str(word), CATALOGUE)} The sets that have a name are"
            f" {', '.join(CATALOGUE)}."
        )
    return path


def load(source: str | Path | Source, *, at: str | Path | None = None, **options: Any) -> Dataset:
    """A data set: one that has a name, or the user's own by its path.

    - a name, such as "jsb": looked for in the data folder, or `at` a given place;
    - a folder of MIDI files, of sound, of videos or of folders of images: recognised by what it
      holds, and read by `midi_folder`, `audio_folder` or `video_folder`;
    - a file: a table (`read_table`), or rolls in a pickle, .mat or .npz file (`read_rolls`).

    `options` go to the function that reads it. `Dataset.notes` says how it was read, where there
    was something to decide. A data frame, or arrays: use `varfilter.data.read_table`.
    """
    if isinstance(source, Source):
        # Which kind it is, is known: others may lie beside it.
        known = MEDIA.get(source.medium)
        return _loaded(source.source, source.at, source.options(), known)
    return _loaded(source, at, options)


def _loaded(
    source: str | Path,
    at: str | Path | None,
    options: dict[str, Any],
    known: AbstractMedium | None = None,
) -> Dataset:
    """What `load` says, of a folder by the medium that is `known`, or by what the folder holds."""
    if not isinstance(source, str | Path):
        raise TypeError(
            f"`source` must be a name or a path; got {kind(source)}. For a data frame, arrays or a"
            " dictionary of them use `varfilter.data.read_table(source)`."
        )
    if isinstance(source, str) and (source in CATALOGUE or not _is_path(source)):
        return read_set(entry_named(source), at=at, **options)
    if at is not None:
        raise ValueError(f"`at` is for the sets that have a name; {str(source)!r} is a path.")
    path = _existing(source)
    medium = known if known is not None and path.is_dir() else medium_at(path)
    read = medium.reader(path)
    require_known_options(read, options)
    found = read(Path(source).expanduser(), **options)
    if not isinstance(found, Dataset):
        raise TypeError(
            f"`{read.__name__}`, which reads {medium.plural}, must return a `Dataset`; got"
            f" {kind(found)}."
        )
    # A reader of somebody's own may not say which medium it is of.
    named = {} if found.medium else {"medium": medium.name}
    return replace(found, notes=(*found.notes, *_unread(path, medium)), **named)


def medium_at(path: Path) -> AbstractMedium:
    """The medium that reads a file or a folder, by its ending or by what it is full of."""
    return _medium_of_folder(path) if path.is_dir() else _medium_of_file(path)


def new_sequences(dataset: Dataset, source: Source, data: Any) -> Iterator[NewSequence]:
    """Sequences of the kind of `dataset`, read as it was, to be filtered.

    `dataset` need hold no numbers. A table may also be a data frame or a dictionary of arrays;
    all else is a path.
    """
    medium = medium_of(dataset)
    if isinstance(data, str | Path) and not Path(data).expanduser().exists():
        raise FileNotFoundError(
            f"`INPUT` is {str(data)!r}: there is no such file or folder. For this run, give"
            f" {medium.inputs}."
        )
    return medium.sequences(dataset, source, data)


def step_rows(dataset: Dataset, rows: Any, filtered: Filtered, **options: Any) -> Iterator[Row]:
    """A row for each step of one sequence; what it holds, the medium says (`step_rows` there).

    The arguments are those of `filtering_of`.
    """
    return medium_of(dataset).step_rows(dataset, filtering_of(dataset, rows, filtered, **options))


def forecast_rows(
    dataset: Dataset,
    forecast: Forecast,
    *,
    sequence: str | int = 0,
    last: Any = 0,
    times: Any = None,
) -> Iterator[Row]:
    """A row for each step ahead, in the user's units; what it holds, the medium says.

    `last` is the time of the last step seen, a number or a `datetime64`: the times go on from
    there, a step of the data apart, unless `times` says when the steps are.
    """
    mean = np.asarray(forecast.mean)
    require_shape("forecast", mean, dataset)
    parts = {"mean": restored(dataset, mean)}
    for level, values in zip(forecast.levels, np.asarray(forecast.quantiles), strict=True):
        parts[quantile_name(level)] = whole_quantiles(dataset, level, restored(dataset, values))
    times = times_from(dataset, last, len(mean), begin=1) if times is None else times
    return medium_of(dataset).forecast_rows(dataset, times, parts, sequence)


def write_samples(
    path: Path | str,
    dataset: Dataset,
    sequences: Any,
    times: Sequence[Any] | None = None,
    names: Sequence[str | int | None] | None = None,
    schemas: Sequence[Any] | None = None,
) -> list[Path]:
    """Sequences (steps, *event) in the model's units, as recordings like those of `dataset`.

    The ending of `path` says the format: the medium's own, or .npz. `times` has those of the steps
    of each sequence, or None where they count from the beginning, and `names` what tells several in
    one table apart; None: their numbers. `schemas` are the `NewSequence.schema` of what goes on
    from a recording, as a song keeps its own tempo. Returns what was written.
    """
    path, medium = Path(path), medium_of(dataset)
    if path.suffix.lower() not in medium.endings:
        raise ValueError(
            f"`path` must end in {' or '.join(medium.endings)}, for what {dataset.name!r} holds"
            f" ({medium.name}); got {str(path)!r}."
        )
    arrays = [np.asarray(xs) for xs in sequences]
    for xs in arrays:
        if xs.shape[1:] != dataset.observation_shape or not len(xs) or xs.dtype.kind not in "buif":
            raise ValueError(
                f"`sequences` must each hold one observation or more, of the shape"
                f" {dataset.observation_shape} of {dataset.name!r}; got {kind(xs)}."
            )
    unknown = [None] * len(arrays)
    return medium.write_samples(
        path,
        dataset,
        arrays,
        list(times or unknown),
        list(names or unknown),
        list(schemas or unknown),
    )


def picture(dataset: Dataset, *, split: str = "train", seed: int = 0) -> Figure:
    """Some sequences of a split, drawn with `seed`, in the recording's units, 1280 pixels wide.

    Music is shown as scores, sound as waves and spectra, video as strips of frames, tables and a
    few numbers as lines, all else as heat maps. Save it with `savefig`.
    """
    from varfilter.plots.datasets import ShownSequence, headed_page
    from varfilter.plots.style import legible

    ragged = dataset.split(split)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"`seed` must be a whole number, at least 0; got {seed!r}.")
    whole = np.flatnonzero(ragged.lengths >= dataset.rows_per_step)
    if not whole.size:
        raise ValueError(
            f"`split` {split!r} of {dataset.name!r} has no sequence of a step or more: there is"
            " nothing to show. Give another split."
        )
    medium = medium_of(dataset)
    most_sequences, most_rows, missing = medium.gallery_of(dataset)
    num_shown = min(most_sequences, whole.size)
    chosen = np.sort(np.random.default_rng(seed).choice(whole, num_shown, replace=False))
    names = dataset.sequence_names(split)
    shown = [
        ShownSequence(legible(names[i], 60), np.asarray(ragged[i][:most_rows]), len(ragged[i]))
        for i in chosen
    ]
    notes = [f"Shown: {num_shown:,} of {count(len(ragged), 'sequence')} (seed {seed})"]
    if any(np.isnan(sequence.rows).any() for sequence in shown):
        notes.append(missing)
    return medium.draw_dataset(partial(headed_page, dataset, split, notes), dataset, shown)


def _is_path(source: str) -> bool:
    """A name has neither a slash nor an ending; what exists is a path in any case."""
    return bool(Path(source).suffix) or Path(source).name != source or Path(source).exists()


def _endings_in(path: Path) -> Counter[str]:
    """How many files of a folder and its subfolders have which ending."""
    found: Counter[str] = Counter()
    for file in path.rglob("*"):
        if not file.name.startswith(".") and file.is_file():
            found[file.suffix.lower()] += 1
    return found


def _unread(path: Path, medium: AbstractMedium) -> tuple[str, ...]:
    """A note on the files of a folder that a medium does not read, by their endings."""
    if not path.is_dir():
        return ()
    read = medium.suffixes | medium.frame_suffixes
    others = {ending: n for ending, n in _endings_in(path).items() if ending not in read}
    if not others:
        return ()
    number, listed = sum(others.values()), _listed(sorted(others, key=lambda each: -others[each]))
    return (f"{count(number, 'file')} of other endings ({listed}) {_are(number)} not read.",)


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _listed(endings: Sequence[str]) -> str:
    """Some endings, those of most files first."""
    words = [ending or "without any" for ending in endings[:MOST_ENDINGS]]
    return ", ".join(words + ["and others"] * (len(endings) > MOST_ENDINGS))


def _medium_of_folder(path: Path) -> AbstractMedium:
    found = _endings_in(path)
    counts = {name: sum(found[s] for s in medium.suffixes) for name, medium in MEDIA.items()}
    there = [name for name, number in counts.items() if number]
    if len(there) > 1:
        listed = " and ".join(count(counts[name], f"{name} file") for name in there)
        raise ValueError(
            f"`source` {str(path)!r} has {listed}: it could be either. Move the files of each kind"
            " to a folder of their own, and give that."
        )
    there += [name for name, m in MEDIA.items() if any(found[s] for s in m.frame_suffixes)]
    if there:
        return MEDIA[there[0]]
    endings = ", ".join(
        f"{number} {suffix or 'without ending'}" for suffix, number in found.items()
    )
    kinds = [medium for medium in MEDIA.values() if medium.suffixes]
    readable = "; ".join(f"{each.name} {' '.join(sorted(each.suffixes))}" for each in kinds)
    images = sorted(set[str]().union(*(each.frame_suffixes for each in kinds)))
    raise FileNotFoundError(
        f"`source` {str(path)!r} has no {', '.join(each.name for each in kinds)} or image files"
        f" ({endings[:120] or 'it is empty'}). What is read: {readable}; images"
        f" {' '.join(images)}. For a table, or for rolls, give the file itself."
    )


def _medium_of_file(path: Path) -> AbstractMedium:
    for medium in MEDIA.values():
        if path.suffix.lower() in medium.suffixes:
            raise ValueError(
                f"`source` {str(path)!r} is a single {medium.name} file; a data set needs three or"
                " more, one for each split. Give the folder that holds them."
            )
    return next(medium for medium in MEDIA.values() if medium.reads(path))


_register_plugins()
