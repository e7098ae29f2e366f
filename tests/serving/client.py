"""Speaks to a running server as a browser or a script does, with the standard library alone."""

from __future__ import annotations

import http.client
import json
from urllib.parse import urlsplit

JSON = {"Content-Type": "application/json"}
BYTES = {"Content-Type": "application/octet-stream"}


class Answer:
    def __init__(self, response):
        self.status, self.headers, self.body = response.status, response.headers, response.read()

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def events(self):
        return [json.loads(line) for line in self.body.splitlines() if line.strip()]


class Client:
    """Requests to one server."""

    def __init__(self, url, **headers):
        parts = urlsplit(url)
        self.host, self.port, self.headers = parts.hostname, parts.port, headers

    def __call__(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        data = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
        try:
            connection.request(method, path, data, {**self.headers, **{k.replace("_", "-"): v for k, v in headers.items()}})
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def ask(self, room, action="explain", /, **values):
        """The answer to a form that was filled in."""
        return self("POST", f"/api/{room}/{action}", values, **JSON)

    def upload(self, data, name="cat.jpg"):
        """The key of an uploaded photo."""
        answer = self("POST", "/api/uploads", data, **BYTES, X_File_Name=name)
        assert answer.status == 200, answer.body
        return answer.json["upload"]

    def begin(self, room, action="explain", /, **values):
        """A connection on which a request has been sent, and nothing read."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        connection.request("POST", f"/api/{room}/{action}", json.dumps(values).encode(), {**self.headers, **JSON})
        return connection


def result(events):
    """The last result among events, which must have no failure."""
    assert not [one for one in events if one["event"] == "failed"], events
    return [one for one in events if one["event"] == "result"][-1]
