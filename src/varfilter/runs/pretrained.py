"""Models that come trained with varfilter: folders of runs inside the package, known by name.

Whatever takes the folder of a run takes such a name too, unless the folder of a run is called so.
"""

from pathlib import Path

from varfilter._arguments import nearest

RECORD = "run.json"
FOLDER = Path(__file__).parent.parent / "pretrained"


def pretrained_names() -> list[str]:
    """The names of the models that come with this varfilter."""
    return sorted(path.parent.name for path in FOLDER.glob(f"*/{RECORD}"))


def run_folder(word: str | Path) -> Path:
    """The folder that is meant: the one at this path, or else that of the model of this name."""
    path = Path(word).expanduser()
    is_name = path.name == str(word) and str(word) in pretrained_names()
    return FOLDER / path if is_name and not (path / RECORD).exists() else path


def is_pretrained(folder: Path) -> bool:
    """Whether a folder is the package's own, in which nothing is to be kept."""
    return folder.parent == FOLDER


def known_models(word: str | Path) -> str:
    """A sentence on the models that have a name, for an error about another one; or nothing."""
    names = pretrained_names()
    if not names or Path(word).name != str(word):
        return ""
    verb = "is" if len(names) == 1 else "are"
    return (
        f"{nearest(str(word), names)} What comes trained with varfilter {verb} {', '.join(names)}."
    )
