"""Draw the README's figure from the H200 logs in data/h200: `.venv/bin/python docs/figure.py` (needs Chromium)."""

import subprocess
import tempfile
from pathlib import Path

from cuzkbench import charts, read

HERE = Path(__file__).parent
WIDTH, HEIGHT = 1200, 900


def main() -> None:
    """Write docs/h200.png."""
    logs = [read(HERE.parent / "data" / "h200" / f"{name}.parquet") for name in ("seed-case", "fixed")]
    figure = charts.compare(logs).update_layout(width=WIDTH, height=HEIGHT)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "figure.html"
        page.write_text(figure.to_html(include_plotlyjs=True, config={"displayModeBar": False}))
        target = Path(folder) / "demo.png"
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=10000"]
        options += [f"--user-data-dir={folder}/profile", f"--window-size={WIDTH + 16},{HEIGHT + 16}"]
        subprocess.run(["chromium", *options, f"--screenshot={target}", page.as_uri()], check=True, capture_output=True)
        (HERE / "h200.png").write_bytes(target.read_bytes())


if __name__ == "__main__":
    main()
