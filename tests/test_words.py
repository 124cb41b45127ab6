"""Numbers in words, by hand; the glossary's terms found once each; and that tables on a terminal need no plotly."""

import dataclasses
import subprocess
import sys

import pytest

from cuzkbench import words
from cuzkbench.events import GapCause
from cuzkbench.glossary import TERMS, explained
from cuzkbench.logs.log import told_apart
from cuzkbench.plan import LOCKS, MEMORIES
from tests import handmade


@pytest.mark.parametrize(
    ("ns", "said"),
    [(0, "0 s"), (1, "1 ns"), (1500, "1.5 µs"), (999_600, "1 ms"), (1_753_000_000, "1.75 s"), (2e12, "2,000 s")],
)
def test_durations_in_words(ns, said):
    assert words.spaced(words.duration(ns)) == said


def test_sizes_rates_and_shares_in_words():
    assert words.spaced(words.size(12_506_771_424)) == "12.5 GB" and words.size(12) == "12\u00a0B"
    assert words.spaced(words.rate(0.0144)) == "14.4 MB/s"
    shares = (0.5, 0.9999, 1.0, None, float("nan"))
    assert " ".join(map(words.percent, shares)) == "50% 99.9% 100% – –"
    assert (words.workers(1), words.workers(2)) == ("one worker", "2 workers")


def test_every_cause_has_its_words():
    assert set(words.CAUSES) == set(GapCause)


def test_terms_are_one_sentence_each_and_cover_every_policy():
    assert all(meaning.endswith(".") and ". " not in meaning for meaning in TERMS.values())
    assert {f"{lock} lock" for lock in LOCKS} | set(MEMORIES) <= set(TERMS)


def test_terms_are_explained_once_each_and_never_inside_tags_or_code():
    page = explained('<p title="pinned">Pinned copies, pinned. <code>cadence</code> Ideal cadence, cadences.</p>')
    assert page.count("<abbr") == 3 and '<p title="pinned">' in page and "<code>cadence</code>" in page
    assert ">Pinned</abbr> copies, pinned." in page and ">Ideal cadence</abbr>, <abbr" in page


def test_tables_load_without_plotly():
    check = "import sys, cuzkbench.tables, cuzkbench.analysis; assert 'plotly' not in sys.modules"
    subprocess.run([sys.executable, "-c", check], check=True)


def test_logs_are_told_apart_by_what_they_do_not_share():
    def named(**plan):
        return handmade.log(handmade.row("KERNEL", 0, 1), plan=plan)

    memories = [named(lock="narrow", memory=memory, workers=2) for memory in ("pageable", "pinned")]
    assert told_apart(memories) == ["pageable", "pinned"]
    assert told_apart([memories[0], named(preset="fixed")]) == ["narrow lock, pageable, 2 workers", "fixed"]
    assert told_apart(memories[:1]) == ["narrow lock, pageable, 2 workers"]
    again = [dataclasses.replace(memories[0], path=path) for path in ("a/1.parquet", "b/2.parquet")]
    assert told_apart(again) == ["1.parquet", "2.parquet"]
