"""swifter: functions over the rows of a frame, which it may hand to Dask or to Modin."""

import numpy
import pandas
import swifter

numbers = numpy.arange(1_000)
frame = pandas.DataFrame({"value": numbers, "name": [f"n{n % 3}" for n in numbers]})
found = frame.swifter.progress_bar(False).apply(lambda row: row["value"] + len(row["name"]), axis=1)
assert (found == frame["value"] + 2).all()
found = frame["value"].swifter.progress_bar(False).apply(lambda value: value * 2)
assert (found == frame["value"] * 2).all()
print("well", swifter.__name__)
