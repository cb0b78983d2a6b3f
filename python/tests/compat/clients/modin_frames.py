"""Modin: frames from a file, groups, merges and functions over rows, on its engine for Ray."""

import os
import tempfile

os.environ["MODIN_ENGINE"] = "ray"

import modin.pandas as frames
import numpy
import pandas
import ray

ray.init(num_cpus=2)
numbers = numpy.arange(2_000)
plain = pandas.DataFrame({"key": numbers % 7, "value": numbers * 0.5, "name": [f"n{n % 3}" for n in numbers]})
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "rows.csv")
    plain.to_csv(path, index=False)
    read = frames.read_csv(path)
other = pandas.DataFrame({"key": range(7), "weight": [n / 10 for n in range(7)]})
for found, wanted in [
    (read.groupby("key").sum(numeric_only=True), plain.groupby("key").sum(numeric_only=True)),
    (read.merge(frames.DataFrame(other), on="key"), plain.merge(other, on="key")),
    (read[["value"]].apply(lambda row: row * 2, axis=1), plain[["value"]] * 2),
    (read.describe(), plain.describe()),
    (read.sort_values("value", ascending=False).head(3), plain.sort_values("value", ascending=False).head(3)),
]:
    pandas.testing.assert_frame_equal(found._to_pandas(), wanted, check_dtype=False)
print("well")
