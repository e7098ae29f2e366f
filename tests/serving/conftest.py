"""One server over the real networks, for all tests of this folder."""

from __future__ import annotations

import time

import pytest

from tests.serving.client import Client

pytest.importorskip("starlette", reason="needs the extra serve")
pytest.importorskip("uvicorn", reason="needs the extra serve")


@pytest.fixture(scope="session")
def rooms():
    """The rooms over integrand's own networks."""
    from integrand.serving.server import known_rooms

    return {room.name: room for room in known_rooms()}


@pytest.fixture(scope="session")
def server(rooms):
    """A running server over them, with limits that tests can reach."""
    from integrand.serving.server import serve_rooms

    with serve_rooms(list(rooms.values()), port=0, megabytes=2.0, queue=8).start() as here:
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
