"""sktime: forecasts that are evaluated by Ray's tasks."""

import ray
from sktime.datasets import load_airline
from sktime.forecasting.model_evaluation import evaluate
from sktime.forecasting.naive import NaiveForecaster
from sktime.split import ExpandingWindowSplitter

ray.init(num_cpus=2)
splitter = ExpandingWindowSplitter(initial_window=72, step_length=12, fh=[1, 2, 3])
found = evaluate(
    forecaster=NaiveForecaster(strategy="mean", sp=12),
    cv=splitter,
    y=load_airline(),
    backend="ray",
    backend_params={"mute_warnings": True},
)
errors = found["test_MeanAbsolutePercentageError"]
assert len(errors) == 6 and errors.between(0, 1).all()
print("result: errors", [round(float(error), 6) for error in errors])
