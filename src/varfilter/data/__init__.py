"""Data: sequences from files, by name or from the user's own, and worlds simulated here."""

from varfilter.data.audio import audio_folder, read_audio, write_wav
from varfilter.data.batches import Batch, RandomWindows, consecutive_windows, whole_sequences
from varfilter.data.catalogue import data_folder, load
from varfilter.data.dataset import Dataset, Family, Scaling
from varfilter.data.digits import moving_digits
from varfilter.data.fetch import fetch
from varfilter.data.kth import kth, kth_sample, kth_table
from varfilter.data.midi import midi_folder, read_midi, write_midi
from varfilter.data.music import read_rolls
from varfilter.data.prefetch import prefetched
from varfilter.data.ragged import Ragged
from varfilter.data.simulated import Pendulum, pendulum_video, tracker
from varfilter.data.splits import split_by_sequence
from varfilter.data.tables import Table, table
from varfilter.data.thinned import Thinning
from varfilter.data.timit import check_timit, timit, timit_sample
from varfilter.data.video import read_video, video_folder
from varfilter.data.weizmann import weizmann

__all__ = [
    "Batch",
    "Dataset",
    "Family",
    "Pendulum",
    "Ragged",
    "RandomWindows",
    "Scaling",
    "Table",
    "Thinning",
    "audio_folder",
    "check_timit",
    "consecutive_windows",
    "data_folder",
    "fetch",
    "kth",
    "kth_sample",
    "kth_table",
    "load",
    "midi_folder",
    "moving_digits",
    "pendulum_video",
    "prefetched",
    "read_audio",
    "read_midi",
    "read_rolls",
    "read_video",
    "split_by_sequence",
    "table",
    "timit",
    "timit_sample",
    "tracker",
    "video_folder",
    "weizmann",
    "whole_sequences",
    "write_midi",
    "write_wav",
]
