"""Weizmann: nine people, ten actions, people held out."""

import shutil
from itertools import combinations

import numpy as np
import pytest

from real_data import DATA, needs_data
from refusals import refuses
from varfilter.data.dataset import SPLITS
from varfilter.data.sets.videos import PEOPLE, weizmann
from varfilter.data.video import read_video

WEIZMANN = DATA / "video" / "weizmann"


@pytest.fixture(scope="module")
def people():
    return weizmann(WEIZMANN, 16)


@needs_data
def test_weizmann_is_nine_people_with_ten_actions(people):
    assert [len(people.split(split)) for split in SPLITS] == [60, 10, 20]
    assert sum(len(people.split(split).values) for split in SPLITS) == 5855
    pairs = {split: [name.split("_") for name in people.names[split]] for split in SPLITS}
    found = {split: {person for person, _ in pairs[split]} for split in SPLITS}
    assert found == {split: set(PEOPLE[split]) for split in SPLITS}
    assert [len(found[split]) for split in SPLITS] == [6, 1, 2]
    for one, other in combinations(SPLITS, 2):
        assert not found[one] & found[other]
    actions = {action for split in SPLITS for _, action in pairs[split]}
    assert len(actions) == 10
    assert len({tuple(pair) for split in SPLITS for pair in pairs[split]}) == 90
    assert people.rate == 25.0
    assert people.train.values.dtype == np.uint8
    number = people.names["test"].index("shahar_wave1")
    np.testing.assert_array_equal(
        people.test[number], read_video(WEIZMANN / "shahar_wave1.avi", 16)
    )


@needs_data
def test_weizmann_refuses_other_videos_and_missing_people(tmp_path):
    for person in PEOPLE["train"] + PEOPLE["valid"]:
        shutil.copy(WEIZMANN / f"{person}_run.avi", tmp_path)
    refuses(lambda: weizmann(tmp_path), FileNotFoundError, str(tmp_path), "moshe, shahar")
    shutil.copy(WEIZMANN / "ira_run.avi", tmp_path / "holiday.avi")
    refuses(lambda: weizmann(tmp_path), ValueError, "holiday.avi", "`video_folder`")
    refuses(lambda: weizmann(tmp_path / "no"), FileNotFoundError, "`folder`", "no")
