"""Search spaces and schedulers alone, without trials."""

import math
import random
from typing import Any

import pytest

from aktis import tune
from aktis.tune.schedulers import ASHAScheduler, MedianStoppingRule, PopulationBasedTraining
from aktis.tune.space import variants


def drawn(domain: Any, count: int = 300) -> list[Any]:
    generator = random.Random(1)
    return [domain.sample(generator) for _ in range(count)]


def test_values_stay_in_their_domains() -> None:
    assert all(2 <= value <= 3 for value in drawn(tune.uniform(2, 3)))
    assert set(drawn(tune.randint(1, 4))) == {1, 2, 3}
    assert set(drawn(tune.qrandint(2, 8, 2))) == {2, 4, 6, 8}
    assert set(drawn(tune.quniform(0, 1, 0.5))) == {0, 0.5, 1}
    assert set(drawn(tune.choice("abc"))) == set("abc")
    assert all(1 <= value < 100 for value in drawn(tune.lograndint(1, 100)))
    logarithms = [math.log10(value) for value in drawn(tune.loguniform(1e-4, 1e-2))]
    assert min(logarithms) >= -4 and max(logarithms) <= -2
    assert abs(sum(logarithms) / len(logarithms) + 3) < 0.1
    assert abs(sum(drawn(tune.randn(5, 1))) / 300 - 5) < 0.3


def test_grids_are_combined_and_the_rest_is_drawn() -> None:
    space = {
        "a": tune.grid_search([1, 2]),
        "deep": {"b": tune.grid_search(["x", "y"]), "rate": tune.uniform(0, 1)},
        "twice": tune.sample_from(lambda config: config["a"] * 2),
        "after": tune.sample_from(lambda spec: spec.config.twice + spec.config.deep.rate),
        "fixed": [1, 2],
    }
    found = list(variants(space, 2, random.Random(3)))
    assert [(config["a"], config["deep"]["b"]) for config in found] == [
        (1, "x"),
        (1, "y"),
        (2, "x"),
        (2, "y"),
    ] * 2
    assert len({config["deep"]["rate"] for config in found}) == 8
    for config in found:
        assert config["twice"] == config["a"] * 2 and config["fixed"] == [1, 2]
        assert config["after"] == config["twice"] + config["deep"]["rate"]
    assert found == list(variants(space, 2, random.Random(3)))


def test_bad_domains_are_refused() -> None:
    bad: list[tuple[Any, str]] = [
        (lambda: tune.uniform(1, 1), "below the upper"),
        (lambda: tune.loguniform(0, 1), "must be positive"),
        (lambda: tune.quniform(0, 1, 0), "step must be positive"),
        (lambda: tune.choice([]), "nothing to choose"),
        (lambda: tune.grid_search([]), "gives no trials"),
        (lambda: list(variants({"a": tune.sample_from(lambda c: c["b"])}, 1, random.Random())), "for a read"),
        (lambda: tune.TuneConfig(mode="best"), '"min" or "max"'),
        (lambda: ASHAScheduler(grace_period=200), "grace_period"),
        (lambda: ASHAScheduler(reduction_factor=1), "more than 1"),
        (lambda: PopulationBasedTraining(), "hyperparam_mutations"),
    ]
    for make, text in bad:
        with pytest.raises(ValueError, match=text):
            make()
    with pytest.raises(TypeError, match="must be a number"):
        tune.uniform("a", 1)  # type: ignore[arg-type]


def test_asha_keeps_the_best_of_each_rung() -> None:
    scheduler = ASHAScheduler(metric="score", mode="max", max_t=9, grace_period=1, reduction_factor=3)
    for trial in "abcdef":
        scheduler.on_trial_add(trial, {})

    def report(trial: str, time: int, score: float) -> str:
        return scheduler.on_trial_result(trial, {}, {"training_iteration": time, "score": score}, 0).kind

    assert report("a", 1, 5.0) == "CONTINUE", "the first has nobody to be compared with"
    assert report("b", 1, 4.0) == "STOP"
    assert report("c", 1, 6.0) == "CONTINUE"
    assert report("d", 1, math.nan) == "STOP"
    assert report("a", 2, 0.0) == "CONTINUE", "there is no rung"
    assert report("c", 3, 6.0) == "CONTINUE"
    assert report("a", 3, 5.0) == "STOP"
    assert report("c", 9, 6.0) == "STOP", "max_t"


def test_the_median_rule_stops_the_lower_half() -> None:
    rule = MedianStoppingRule(metric="loss", mode="min", min_samples_required=2)

    def report(trial: str, time: int, loss: float) -> str:
        return rule.on_trial_result(trial, {}, {"training_iteration": time, "loss": loss}, 0).kind

    assert [report(trial, 1, loss) for trial, loss in [("a", 1), ("b", 2)]] == ["CONTINUE"] * 2
    assert report("c", 1, 3) == "STOP"
    assert report("d", 1, 1.5) == "CONTINUE"


def test_population_based_training_changes_within_the_domains() -> None:
    scheduler = PopulationBasedTraining(
        metric="score",
        mode="max",
        perturbation_interval=2,
        quantile_fraction=0.5,
        hyperparam_mutations={
            "rate": tune.uniform(0, 1),
            "size": [1, 2, 3],
            "deep": {"n": tune.randint(1, 5)},
        },
        seed=0,
    )
    good: dict[str, Any] = {"rate": 0.9}
    scheduler.on_trial_add("good", good)
    assert set(good) == {"rate", "size", "deep"}, "what the space lacks is drawn"
    bad = {"rate": 0.1, "size": 1, "deep": {"n": 1}}
    scheduler.on_trial_add("bad", bad)
    kinds = set()
    for time in range(2, 40, 2):
        better = scheduler.on_trial_result("good", good, {"training_iteration": time, "score": 9}, 0)
        assert better.kind == "CONTINUE"
        early = scheduler.on_trial_result("bad", bad, {"training_iteration": time - 1, "score": 1}, 0)
        assert early.kind == "CONTINUE"
        decision = scheduler.on_trial_result("bad", bad, {"training_iteration": time, "score": 1}, 0)
        assert decision.kind == "EXPLOIT" and decision.donor == "good" and decision.config is not None
        assert 0 <= decision.config["rate"] <= 1 and decision.config["size"] in (1, 2, 3)
        assert 1 <= decision.config["deep"]["n"] < 5
        kinds.add(decision.config["rate"])
    assert len(kinds) > 3
    assert scheduler.on_trial_result("good", good, {"training_iteration": 50, "score": 9}, 1).kind == "PAUSE"
