"""A trace-event file of any size as a stream of its events: bytes -> text window -> one JSON value at a time.

Takes what profilers and killed jobs leave behind: an object with `traceEvents` anywhere in it or a bare array, cut or
never closed, with damage inside. Numbers with a point stay text, so that no digit of a time is lost.
Memory: one window, whatever the file's size. Cost: the standard library's C scanner, some 100 MB/s.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any

from cuzkbench.logs.limits import Source

_SPACE = re.compile(r"[\s,]*")
_NEXT = re.compile(r"\}\s*,?\s*(?=\{)")
_LONGEST = 2 << 20  # characters: a value that breaks off earlier than this before the window's end is damaged
_MOST_DAMAGE = 100  # places; each may cost a scan of the window


class Damaged(Exception):
    """What no value can be read from; no ValueError, since a refusal by a limit is one and must pass."""


class Events:
    """Iterate for the events; then `facts` holds the other members of the object, `cut` and `damaged` what broke."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.facts: dict[str, Any] = {}
        self.damaged = 0
        self.cut: str | None = None
        self.trailing = False  # whether something follows the trace
        self.found = False  # whether an array of events was reached
        self._chunks = iter(source)
        self._decode = codecs.getincrementaldecoder("utf-8-sig")("replace").decode
        decoder: Any = json.JSONDecoder(parse_float=str, parse_constant=str, strict=False)
        self._scan = decoder.scan_once
        self._text, self._at, self._ended = "", 0, False

    def __iter__(self) -> Iterator[Any]:
        opening = self._peek()
        if opening == "[":
            self._at += 1
            yield from self._array()
        elif opening == "{":
            self._at += 1
            yield from self._object()
        self.trailing = bool(self._peek()) and not self.cut
        for _ in self._chunks:  # to its end: only there gzip data shows that it is whole
            pass
        if self.source.cut:
            self.cut = self.source.cut

    def _fill(self) -> bool:
        """Append a chunk to the window, dropping what was read; False at the end of the file."""
        chunk = next(self._chunks, None)
        self._text, self._at = self._text[self._at :] + self._decode(chunk or b"", chunk is None), 0
        self._ended = chunk is None
        return not self._ended

    def _peek(self) -> str:
        """The next character that is neither space nor comma, "" at the end of the file."""
        while True:
            self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._fill():
                return ""

    def _broken(self, what: str) -> None:
        left = len(self._text[self._at :].encode("utf-8", "replace"))
        self.cut = self.cut or f"byte {self.source.taken - left}: {what}"

    def _value(self) -> Any:
        """The JSON value at the window's position; raises Damaged where it is cut or damaged."""
        while True:
            try:
                value, end = self._scan(self._text, self._at)
            except (StopIteration, ValueError, RecursionError) as error:
                place = getattr(error, "pos", self._at)
                if not self._ended and place > len(self._text) - _LONGEST and self._fill():
                    continue
                raise Damaged(str(error)) from None
            if end == len(self._text) and self._text[end - 1] not in '}]"' and self._fill():
                continue  # a number may go on in the next chunk
            self._at = end
            return value

    def _array(self) -> Iterator[Any]:
        self.found = True
        while (opening := self._peek()) != "]":
            if not opening:
                return self._broken("the file ends before the array of events is closed")
            try:
                yield self._value()
            except Damaged as error:
                following = _NEXT.search(self._text, self._at + 1)
                if following is None or self.damaged == _MOST_DAMAGE:
                    return self._broken(f"no event can be read from here ({error})")
                self.damaged += 1
                self._at = following.end()
        self._at += 1

    def _object(self) -> Iterator[Any]:
        while (opening := self._peek()) != "}":
            if not opening:
                return self._broken("the file ends before its object is closed")
            try:
                key = self._value()
                colon = self._peek()
                self._at += colon == ":"
                opening = self._peek()
                if not isinstance(key, str) or colon != ":" or not opening:
                    raise Damaged(f"a key and its value are needed, not {str(key)[:40]!r}")
                if key == "traceEvents" and opening == "[":
                    self._at += 1
                    yield from self._array()
                    if self.cut:
                        return
                else:
                    self.facts[key] = self._value()
            except Damaged as error:
                return self._broken(f"no member can be read from here ({error})")
        self._at += 1
