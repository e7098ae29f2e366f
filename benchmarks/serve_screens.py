"""Pictures of every room of the web app, and how long one waits: ``python -m benchmarks.serve_screens --out out/screens``.

Starts ``integrand serve`` and opens its examples in Chromium through Playwright, at desktop and phone width, in light and dark.
Prints for each room the seconds from the request to the network's answer, to the first result and to the last one, as the
browser saw them: the median of ``--rounds``, measured after one round that does not count.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

ROOMS = {
    "photo": "photo=cat",
    "eye": "photo=retina",
    "words": "text=how+many+medals+did+Norway+win+in+1994%3F",
    "translation": "text=good+morning+ladies+and+gentlemen",
    "molecule": "smiles=COc1ccc(C(%3DO)Nc2nc3cc4c(cc3s2)OCCO4)c(OC)c1",
    "table": "table=diabetes&row=3&changes=bmi+%3D+35",
}
SIZES = {"desktop": (1400, 900, "light"), "phone": (390, 844, "dark")}


def main() -> None:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/screens"))
    parser.add_argument("--room", action="append", choices=list(ROOMS))
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "integrand.cli", "serve", "--no-open", "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        server.stdout.readline()
        with sync_playwright() as driver:
            chromium = driver.chromium.launch(
                executable_path=next(filter(None, map(shutil.which, ("chromium", "google-chrome")))), args=["--no-sandbox"]
            )
            print("room          answer  first result  last result   (seconds)")
            for room in asked.room or ROOMS:
                times = [waited(chromium, port, room) for _ in range(asked.rounds + 1)][1:]
                answer, first, last = (median(one[k] for one in times) for k in range(3))
                print(f"{room:12} {answer:7.2f} {first:13.2f} {last:12.2f}", flush=True)
                for name, (width, height, scheme) in SIZES.items():
                    picture(chromium, port, room, asked.out / f"{room}-{name}.png", width, height, scheme)
    finally:
        server.terminate()
        server.wait(20)


def waited(chromium: Any, port: int, room: str) -> tuple[float, float, float]:
    """Seconds from pressing the button to what the network says, to a result on the screen, and to the exact one."""
    context = chromium.new_context(viewport={"width": 1400, "height": 900})
    page = context.new_page()
    page.set_default_timeout(180_000)
    page.goto(f"http://localhost:{port}/?room={room}&{ROOMS[room]}")
    page.locator("#status", has_text="Done in").wait_for()
    begun = time.perf_counter()
    page.get_by_role("button", name="Explain").click()
    page.locator("#answers p").wait_for()
    answer = time.perf_counter() - begun
    frame = page.locator("#frame iframe").element_handle().content_frame()
    frame.locator("h1").wait_for()
    first = time.perf_counter() - begun
    page.locator("#status", has_text="Done in").wait_for()
    last = time.perf_counter() - begun
    context.close()
    return answer, first, last


def picture(chromium: Any, port: int, room: str, file: Path, width: int, height: int, scheme: str) -> None:
    context = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    page = context.new_page()
    page.goto(f"http://localhost:{port}/?room={room}&{ROOMS[room]}&tol=5%25")
    page.locator("#status", has_text="Done in").wait_for(timeout=180_000)
    page.wait_for_timeout(500)
    page.evaluate("scrollTo(0, 0)" if width > 500 else "document.getElementById('result').scrollIntoView()")
    page.wait_for_timeout(300)
    page.screenshot(path=str(file))
    context.close()


if __name__ == "__main__":
    main()
