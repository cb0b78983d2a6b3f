"""scikit-learn on joblib's backend for Ray: a search over parameters and a forest."""

import joblib
import ray
from ray.util.joblib import register_ray
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

ray.init(num_cpus=2)
register_ray()
features, labels = make_classification(n_samples=200, random_state=0)
with joblib.parallel_backend("ray"):
    search = GridSearchCV(SVC(), {"C": [0.1, 1, 10]}, cv=3).fit(features, labels)
    forest = RandomForestClassifier(20, n_jobs=2, random_state=0).fit(features, labels)
    scores = joblib.Parallel()(joblib.delayed(pow)(number, 2) for number in range(20))
assert search.best_params_["C"] in (0.1, 1, 10)
assert forest.score(features, labels) > 0.9
assert scores == [number**2 for number in range(20)]
print(
    "result:",
    search.best_params_,
    round(float(search.best_score_), 6),
    round(forest.score(features, labels), 6),
)
