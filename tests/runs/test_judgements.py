"""What is bad about a run is said, and what is good is not: by metrics that are made up."""

from types import SimpleNamespace

import numpy as np
import pytest

from tiny_runs import chorales, sentences
from varfilter.media import medium_of
from varfilter.media.reference import Reference
from varfilter.report.page import _reference_card
from varfilter.runs.comparison import losses
from varfilter.runs.metrics import (
    TrainingRange,
    collapse,
    judgements,
    naivety,
    only,
    remember_reference,
    rise,
    shortfall,
    training_range,
    unfinished,
    validated_reference,
    verdict,
)
from varfilter.runs.scores import outdone_by


def lines_of(scores, *, kl=1.0, kl_weight=1.0, count=10, of=10):
    """The metrics of validations, ten steps apart."""
    return [
        {
            "step": 10 * (i + 1),
            "epoch": i + 1,
            "kl_weight": kl_weight,
            "train": {"free_energy": nats, "kl": kl},
            "valid": {"nats": nats, "num_sequences": count, "of": of},
            "best": min(scores[: i + 1]),
        }
        for i, nats in enumerate(scores)
    ]


LEARNING = [10.0, 8.0, 7.0, 6.5]


@pytest.mark.parametrize(
    ("scores", "is_said"),
    [
        (LEARNING, False),
        ([*LEARNING, 7.0], False),  # one that is worse may be chance
        ([*LEARNING, 6.55, 6.6], False),  # 0.1 of the 3.5 that were gained are lost again
        ([*LEARNING, 6.7, 6.9], True),
        ([*LEARNING, 9.0, 6.5], True),  # by the mean of the last two
        ([10.0, 10.0], False),
        ([10.0, 11.0, 12.0], True),  # nothing was ever gained
        ([], False),
    ],
)
def test_a_rise_since_the_best(scores, is_said):
    text = rise(lines_of(scores))
    assert (text is not None) == is_said
    if is_said:
        assert (
            f"{min(scores):.4f} nats per step at step {10 * (1 + int(np.argmin(scores)))}," in text
        )


def test_validations_of_other_sequences_are_not_compared():
    whole = lines_of([5.0, 4.0], count=10)
    part = [line | {"step": line["step"] + 20} for line in lines_of([9.0, 8.0], count=3)]
    assert rise([*whole, *part]) is None
    assert "step, 40" in unfinished([*whole, *part])


@pytest.mark.parametrize(
    ("scores", "is_said"),
    [(LEARNING, True), ([*LEARNING, 6.6], False), ([10.0], False), ([], False)],
)
def test_the_best_is_the_last(scores, is_said):
    text = unfinished(lines_of(scores))
    assert (text is not None) == is_said
    assert text is None or "--schedule.num-epochs" in text


def test_where_the_schedule_was_not_at_its_end_there_is_nothing_to_change_about_it():
    lines = [line | {"epoch": 2.5} for line in lines_of(LEARNING)]
    assert "--schedule.num-epochs" in unfinished(lines, 2)
    early = unfinished(lines, 30)
    assert "epoch 2.5 of 30" in early
    assert "--schedule.num-epochs" not in early


def test_a_kl_of_nothing():
    assert "0.001 nats" in collapse(lines_of(LEARNING, kl=0.001))
    assert collapse(lines_of(LEARNING, kl=0.5)) is None
    # It says nothing before it has its full weight, nor where the bound has no such part.
    assert collapse(lines_of(LEARNING, kl=0.001, kl_weight=0.5)) is None
    assert collapse(lines_of(LEARNING, kl=None)) is None
    assert collapse([]) is None


def test_no_better_than_the_naive_reference():
    reference = Reference("each note by its frequency", 7.0)
    assert naivety(6.9, reference) is None
    for nats in (7.0, 7.1):
        assert "each note by its frequency" in naivety(nats, reference)


def test_no_better_than_linear_prediction():
    """A tone foretells itself: what only beats noise as loud is no model of it."""
    dataset = sentences()
    sound = medium_of(dataset)
    naive = sound.reference(dataset, "valid")
    linear = sound.stronger_reference(dataset, "valid")
    assert linear.nats < naive.nats
    between = (linear.nats + naive.nats) / 2
    metrics, record = lines_of([naive.nats, between]), {}
    record["validation"] = {}
    run = SimpleNamespace(
        medium=sound, record=record, metrics=lambda: metrics, remember=lambda **x: record.update(x)
    )
    remember_reference(run, dataset)
    said = verdict(run)
    assert said.startswith("The model is no better than linear prediction (each sample from the")
    assert f"{between:.4f} nats per step, where that has {linear.nats:.4f}." in said
    metrics[-1]["best"] = linear.nats - 1.0
    assert verdict(run) is None
    metrics[-1]["best"] = naive.nats + 1.0
    assert "no better than a naive predictor" in verdict(run)
    # `evaluate` and the card of a report say the same.
    scores = {"nats": between, "reference": naive._asdict(), "stronger_reference": linear._asdict()}
    assert outdone_by(scores).startswith("The model is no better than linear prediction")
    assert outdone_by(scores | {"nats": linear.nats - 1.0}) is None
    value, text = _reference_card({"results": scores, "comparison": None})
    assert value.startswith("+")
    assert "NO BETTER than linear prediction" in text
    # Where the field has nothing stronger, and in records of before, nothing is said.
    assert medium_of(chorales()).stronger_reference(chorales(), "valid") is None
    assert outdone_by({"nats": 1.0}) is None


def scored(rmse, nats, *, has_bands=True):
    return {"rmse": rmse, "nats": nats, "within_90": 0.9 if has_bands else None}


def compared(own, last, *, horizons=(1,)):
    """A comparison of a model and the last value, with the same scores at each horizon."""
    columns = {"model": own, "pooled": own, "last value": last}
    nats = {name: sum(each["nats"] for each in found.values()) for name, found in columns.items()}
    return {
        "horizons": list(horizons),
        "columns": {name: {str(h): each for h in horizons} for name, each in columns.items()},
        "nats": {name: {str(h): each for h in horizons} for name, each in nats.items()},
    }


def test_columns_that_are_worse_than_a_reference_are_named():
    """Although the sum over all columns is better, by what others gained."""
    last = {"a": scored(0.49, 1.0), "b": scored(1.0, 1.0), "c": scored(9.0, 9.0)}
    own = {"a": scored(1.03, 0.9), "b": scored(1.0, 1.2), "c": scored(1.0, 1.0)}
    lost = losses(compared(own, last))
    assert list(lost["columns"]) == ["a", "b"]
    assert lost["ahead"] == {}
    said = shortfall({"model": 3.1, "last value": 11.0}, **lost)
    assert said == (
        "The model is worse than the best reference in 'a' (RMSE 1.03, last value 0.49);"
        " 'b' (nats 1.2, last value 1), on the validation part."
    )
    # Within a margin nothing is said; what has levels has no error but its log score.
    near = {"a": scored(0.53, 1.09), "b": scored(5.0, 1.0, has_bands=False), "c": scored(1.0, 1.0)}
    assert losses(compared(near, last))["columns"] == {}
    assert shortfall({"model": 3.1, "last value": 11.0}, **losses(compared(near, last))) is None
    many = {name: scored(2.0, 1.0) for name in "abcde"}
    none = {name: scored(1.0, 1.0) for name in "abcde"}
    said = shortfall({"model": 5.0, "last value": 5.0}, "test", **losses(compared(many, none)))
    assert said.startswith("The model is no better than the last value: 5.0000 nats per step of")
    assert said.endswith("'c' (RMSE 2, last value 1) and 2 more.")


def test_a_horizon_that_was_asked_for_is_judged_too():
    last = {"a": scored(1.0, 1.0)}
    found = compared({"a": scored(1.0, 0.5)}, last, horizons=(1, 6))
    found["nats"]["model"]["6"] = 1.25
    found["columns"]["model"]["6"] = {"a": scored(3.0, 1.25)}
    said = shortfall({"model": 0.5, "last value": 1.0}, **losses(found))
    assert said == (
        "6 steps ahead the model is no better than the last value: 1.2500 nats per step of the"
        " validation part, where that has 1.0000. Worse than the best reference in 'a' (RMSE 3,"
        " last value 1, 6 steps ahead)."
    )


def test_all_of_it_together():
    reference = Reference("the last value", 5.0)
    found = judgements(lines_of([*LEARNING, 8.0, 9.0], kl=0.0), reference)
    assert [text.split()[:2] for text in found] == [
        ["Validation", "has"],
        ["The", "KL"],
        ["The", "model"],
    ]
    assert judgements(lines_of([*LEARNING, 6.5001]), Reference("", 7.0)) == []
    assert judgements([], reference) == []


def test_the_reference_is_of_the_sequences_that_were_validated():
    class Medium:
        def reference(self, dataset, split):
            return Reference("", float(len(dataset.split(split))))

    dataset = chorales()
    part = lines_of(LEARNING, count=1, of=2)
    assert validated_reference(Medium(), dataset, lines_of(LEARNING), [1]).nats == 2
    assert validated_reference(Medium(), dataset, part, [1]).nats == 1
    # The best was scored on all in the end: then that counts, and the reference's on all.
    part[-1]["full"] = {"step": 40, "nats": 6.4}
    whole = validated_reference(Medium(), dataset, part, [1])
    assert whole.nats == 2
    assert "6.4000" in judgements(part, whole)[-1]


def test_one_split_can_be_cut_to_some_of_its_sequences():
    dataset = sentences()
    found = only(dataset, "valid", np.array([1]))
    np.testing.assert_array_equal(found.valid[0], dataset.valid[1])
    assert (len(found.train), len(found.valid)) == (6, 1)


def test_new_data_outside_of_the_training_range():
    record = {"low": [0.0, None, 5.0], "high": [10.0, None, 5.0], "columns": ["a", "b", "c"]}
    known = TrainingRange.of_record(record)
    # A tenth of the span is allowed beyond it; a column that was never seen has no range.
    inside = np.array([[-1.0, 99.0, 5.0], [11.0, np.nan, 5.0], [np.nan, 1.0, np.nan]])
    assert known.outside(inside) == {}
    found = known.outside(np.array([[-1.1, 0.0, 5.0], [30.0, 0.0, 5.5]]))
    assert list(found) == ["a", "c"]
    assert found["a"].startswith(
        "Column 'a' has -1.1 and 30, outside of the training data (0 to 10)"
    )
    assert found["c"].startswith("Column 'c' has 5.5, outside")
    assert TrainingRange.of_record({"columns": ["a"]}) is None


def test_the_training_range_of_data():
    dataset = sentences()
    found = training_range(dataset)
    assert (found["low"], found["high"]) == (
        float(dataset.train.values.min()),
        float(dataset.train.values.max()),
    )
    known = TrainingRange.of_record(found | {"columns": []})
    assert known.outside(dataset.train.values) == {}
    assert list(known.outside(dataset.train.values * 2)) == [""]
    # Of keys that are up or down there is nothing to say.
    assert training_range(chorales()) == {"low": None, "high": None}
