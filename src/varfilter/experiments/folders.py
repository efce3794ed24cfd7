"""The experiment for the user's own folder of songs, sounds or films."""

from dataclasses import replace
from pathlib import Path

from varfilter.data.audio import audio_folder
from varfilter.data.midi import midi_folder
from varfilter.data.video import video_folder
from varfilter.experiments.experiment import Experiment
from varfilter.experiments.names import named
from varfilter.experiments.source import Source
from varfilter.media.catalogue import reader_of_folder

# What reads the folder, and the experiment of the paper on data of that kind.
LIKE = {
    midi_folder: "srnn-jsb-avf",
    audio_folder: "vrnn-timit-sample-avf",
    video_folder: "svg-weizmann-avf",
}


def recordings_experiment(folder: Path | str) -> Experiment:
    """The paper's model and schedule for recordings of this kind, on those of the folder."""
    path = Path(folder).expanduser().resolve()
    like = named(LIKE[reader_of_folder(path)])
    return replace(like, name=path.name, data=Source(str(path)), published=None)
