"""One server over the real networks, for all tests of this folder."""

from __future__ import annotations

import time

import pytest
import torch

from tests.serving.client import Client

pytest.importorskip("starlette", reason="needs the extra serve")
pytest.importorskip("uvicorn", reason="needs the extra serve")


@pytest.fixture(scope="session")
def rooms():
    """The rooms over integrand's own networks."""
    from integrand.serving.server import known_rooms

    return {room.name: room for room in known_rooms()}


@pytest.fixture(scope="session")
def small():
    """A room over a small network, as ig.serve makes one: a module, classes, no ImageNet."""
    from integrand.apps import networks
    from integrand.serving.picture_rooms import PhotoRoom

    torch.manual_seed(0)
    head = (torch.nn.Linear(3 * 28 * 28, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    module = torch.nn.Sequential(torch.nn.AvgPool2d(8), torch.nn.Flatten(), *head)
    network = networks.network_of(module, classes=["red", "green", "blue"])
    room = PhotoRoom({"mine": lambda: network}, code={"mine": "network"}, shown={})
    room.name, room.title = "small", "Small"
    return room


@pytest.fixture(scope="session")
def server(rooms, small):
    """A running server over them and a small one, with limits that tests can reach."""
    from integrand.serving.server import serve_rooms

    with serve_rooms([*rooms.values(), small], port=0, megabytes=2.0, queue=8).start() as here:
        yield here


@pytest.fixture(scope="session")
def client(server):
    return Client(server.url)


@pytest.fixture
def idle(client):
    """Waits until the server has nothing to do; a callable to be used once more after a test has left."""

    def wait(seconds=20.0):
        until = time.monotonic() + seconds
        while (now := client("GET", "/health").json) and (now["running"] or now["waiting"]):
            assert time.monotonic() < until, now
            time.sleep(0.02)
        return now

    wait()
    return wait
