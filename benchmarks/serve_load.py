"""Many people at once on the web app: ``python -m benchmarks.serve_load``.

Starts ``integrand serve`` as a process of its own and lets so many users ask about words and molecules, one after the other
without a pause, for two minutes. Some leave before their answer is there, as closed tabs do. Prints how long answers took, what
went wrong, and how the memory of the server and its workers grew; with ``--json`` as JSON. Sends to this machine only.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from statistics import median, quantiles

QUESTIONS = (
    "how many {} won a medal in {}?",
    "who was the first {} of {}?",
    "did the {} play more games than {}?",
    "what is the name of the {} that was built in {}?",
    "in which year did the {} of {} begin?",
)
NAMES = ("player", "river", "senator", "bridge", "team", "city", "album", "museum")
MOLECULES = (
    "CC(=O)Oc1ccccc1C(=O)O",
    "Cn1cnc2c1c(=O)n(C)c(=O)n2C",
    "COc1ccc(C(=O)Nc2nc3cc4c(cc3s2)OCCO4)c(OC)c1",
    "CC(C)Cc1ccc(cc1)C(C)C(=O)O",
    "CN1CCC[C@H]1c1cccnc1",
    "O=C(O)c1ccccc1O",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--leave", type=float, default=0.05, help="the share of requests whose user leaves at once")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "integrand.cli", "serve", "--no-open", "--port", str(port)]
    server = subprocess.Popen([*command, "--room", "words", "--room", "molecule"], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        server.stdout.readline()
        found = load(port, server.pid, asked.users, asked.seconds, asked.leave)
    finally:
        server.terminate()
        server.wait(20)
    print(json.dumps(found, indent=1) if asked.json else report(found))


def load(port: int, pid: int, users: int, seconds: float, leave: float) -> dict[str, object]:
    took: dict[str, list[float]] = {"words": [], "molecule": []}
    wrong: list[str] = []
    left = [0]
    lock = threading.Lock()
    end = time.monotonic() + seconds

    def user(seed: int) -> None:
        draw = random.Random(seed)
        while time.monotonic() < end:
            room = draw.choice(("words", "molecule"))
            text = draw.choice(QUESTIONS).format(draw.choice(NAMES), draw.randint(1900, 2020))
            values = {"text": text} if room == "words" else {"smiles": draw.choice(MOLECULES)}
            begun = time.monotonic()
            try:
                gone = draw.random() < leave
                problem = ask(port, room, values, gone=gone)
            except OSError as error:
                problem = repr(error)
            with lock:
                if problem:
                    wrong.append(problem)
                elif gone:
                    left[0] += 1
                else:
                    took[room].append(time.monotonic() - begun)

    memory = [resident(pid)]
    threads = [threading.Thread(target=user, args=(k,)) for k in range(users)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        time.sleep(5)
        memory.append(resident(pid))
    all_of = sorted(took["words"] + took["molecule"])
    late = [megabytes for megabytes in memory[len(memory) // 3 :] if megabytes]
    return {
        "users": users,
        "seconds": seconds,
        "cores": os.cpu_count(),
        "answers": {room: len(times) for room, times in took.items()},
        "left before the answer": left[0],
        "errors": len(wrong),
        "first errors": wrong[:5],
        "median seconds": round(median(all_of), 3),
        "95% seconds": round(quantiles(all_of, n=20)[-1], 3),
        "slowest seconds": round(all_of[-1], 3),
        "memory MB, every 5 s": memory,
        "growth MB in the last two thirds": round(late[-1] - late[0], 1) if late else None,
        "still busy": idle(port),
    }


def ask(port: int, room: str, values: dict[str, str], *, gone: bool) -> str:
    """One answer with its page; '' if all went well."""
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        line.request("POST", f"/api/{room}/explain", json.dumps(values), {"Content-Type": "application/json"})
        if gone:
            return ""
        answer = line.getresponse()
        if answer.status != 200:
            return f"{answer.status} {answer.read()[:200]!r}"
        events = [json.loads(one) for one in answer.read().splitlines() if one.strip()]
        shown = [one for one in events if one["event"] == "result"]
        if not shown or events[-1]["event"] != "done":
            return str(events[-1])
        line.request("GET", f"/results/{shown[-1]['id']}/page")
        page = line.getresponse()
        body = page.read()
        return "" if page.status == 200 and b"<!doctype html>" in body else f"page: {page.status}"
    finally:
        line.close()


def idle(port: int) -> dict[str, int]:
    """What the server still does a moment after everybody has gone."""
    for _ in range(50):
        line = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        line.request("GET", "/health")
        found: dict[str, int] = json.loads(line.getresponse().read())
        line.close()
        if not found["running"] and not found["waiting"]:
            break
        time.sleep(0.1)
    return {name: found[name] for name in ("running", "waiting")}


def resident(pid: int) -> float:
    """Megabytes that a process and its descendants hold, what they share counted once; 0 where the system does not say."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    family = {pid}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    total = 0
    for member in family:
        with suppress(OSError):
            lines = Path(f"/proc/{member}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return round(total / 1024, 1)


def report(found: dict[str, object]) -> str:
    return "\n".join(f"{name}: {value}" for name, value in found.items())


if __name__ == "__main__":
    main()
