"""Flower: a simulation whose clients are run by Ray's actors."""

from logging import ERROR

import numpy
from flwr.client import ClientApp, NumPyClient
from flwr.common import Context, ndarrays_to_parameters
from flwr.common.logger import FLOWER_LOGGER
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.simulation import run_simulation

FLOWER_LOGGER.setLevel(ERROR)
GOAL = 4.0
losses: list[float] = []


class Client(NumPyClient):
    def fit(self, parameters, config):
        return [parameters[0] + 0.5 * (GOAL - parameters[0])], 10, {}

    def evaluate(self, parameters, config):
        return float(numpy.abs(parameters[0] - GOAL).sum()), 10, {}


def make_client(context: Context):
    return Client().to_client()


def evaluate(turn, parameters, config):
    losses.append(round(float(numpy.abs(parameters[0] - GOAL).sum()), 6))
    return losses[-1], {}


def make_server(context: Context):
    strategy = FedAvg(
        fraction_fit=1.0,
        min_available_clients=3,
        evaluate_fn=evaluate,
        initial_parameters=ndarrays_to_parameters([numpy.zeros(2)]),
    )
    return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=3))


run_simulation(
    server_app=ServerApp(server_fn=make_server),
    client_app=ClientApp(client_fn=make_client),
    num_supernodes=3,
    backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": 2}},
)
assert losses == [8, 4, 2, 1], losses
print("result: losses", losses)
