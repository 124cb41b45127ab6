"""The words of the field, one sentence each: hover texts in notebooks and reports, and their list of words."""

from __future__ import annotations

import re
from html import escape

TERMS: dict[str, str] = {
    "partition": "One piece of a large proof that is synthesised, uploaded and proved on its own.",
    "synthesis": "The CPU's work before the GPU's: it computes the witness and the vectors a, b and c of a partition.",
    "witness": "The values of all variables of a partition, which are the scalars of most MSMs.",
    "NTT": "Number-theoretic transform: a Fourier transform over a prime field, for the quotient polynomial.",
    "MSM": "Multi-scalar multiplication: the sum of many curve points, each multiplied by a scalar of its own.",
    "kernel": "One function that the GPU computes; the kernels of a partition are its NTTs and MSMs.",
    "worker": "A thread that brings one partition at a time through the GPU; two share one GPU so that one may copy.",
    "upload": "The copy of a partition's vectors from host memory to the GPU, also called H2D.",
    "download": "The copy of a partition's few result points from the GPU to the host, also called D2H.",
    "pageable": "Ordinary host memory, which the GPU cannot read directly, so that copies go through a bounce buffer.",
    "pinned": "Host memory that never moves, so that the GPU copies it directly and at line rate.",
    "registered": "Ordinary host memory that is pinned for the time of one copy, which itself takes time.",
    "staged": "Data that CPU threads copy from ordinary memory into a small ring of pinned buffers, piece by piece.",
    "bounce buffer": "A small pinned buffer of the driver through which every copy of pageable memory is squeezed.",
    "GPU lock": "The lock that a worker holds while it has the GPU for itself; the first to come is the first served.",
    "narrow lock": "The GPU lock held over the kernels only, so that another worker's transfer may run beside them.",
    "device lock": "The GPU lock held over transfers and kernels, so that no transfer hides behind another's kernels.",
    "coarse lock": "The GPU lock held over CPU work, transfers and kernels, so that only one worker gets on at a time.",
    "cadence": "The mean time between two completed partitions after the warm-up.",
    "ideal cadence": "The cadence that the slowest resource allows: kernels, bus, synthesis or the workers' CPU work.",
    "efficiency": "Ideal cadence divided by cadence, which is 100% where nothing waits but for the slowest resource.",
    "line rate": "The rate that a pinned copy reaches on this link.",
    "kernel utilisation": "The share of time, from the first measured kernel to the last, in which a kernel runs.",
    "lock utilisation": "The share of time in which some worker holds the GPU lock, whatever the GPU does then.",
    "worker utilisation": "The share of time in which some worker has a partition, whatever the GPU does then.",
    "hidden transfer": "The share of copying time in which a kernel ran, so that the copy cost nothing.",
    "interleaving": "The share of copying time in which a kernel of another worker ran: what two workers are for.",
    "prove_start": "The wall time from a worker's taking a partition to the end of its kernels.",
    "warm-up": "The first partitions of a run, which metrics leave out.",
    "knee": "The link rate at which a partition's transfer takes as long as its kernels.",
    "emulated": "Real arithmetic on the CPU behind a link that is made as slow as stated, where there is no GPU.",
    "simulated": "Every time comes from a model of the costs, and nothing was proved.",
}
_NAMES = "|".join(re.escape(term) for term in sorted(TERMS, key=len, reverse=True))
# text that is code, a control, a large heading or explained already stays as it is; so do the insides of tags
_PLACES = re.compile(
    rf"<(code|pre|abbr|script|style|h[12]|svg|a|form|details)\b.*?</\1>|<[^>]*>|(?<![\w-])(?P<term>{_NAMES})s?(?![\w-])",
    re.DOTALL | re.IGNORECASE,
)
_BY_LOWER = {term.lower(): term for term in TERMS}


def explained(html: str, told: set[str] | None = None) -> str:
    """HTML with the first place of each term as an abbreviation that says its meaning on hover, focus or tap.

    `told` holds the terms that the page has explained already, and takes the new ones.
    """
    told = set() if told is None else told

    def mark(found: re.Match[str]) -> str:
        if found["term"] is None or (term := _BY_LOWER[found["term"].lower()]) in told:
            return found[0]
        told.add(term)
        return f'<abbr tabindex="0" title="{escape(TERMS[term])}">{found[0]}</abbr>'

    return _PLACES.sub(mark, html)


def listed() -> str:
    """All terms as an HTML list."""
    return f"<dl>{''.join(f'<dt>{escape(term)}</dt><dd>{escape(said)}</dd>' for term, said in TERMS.items())}</dl>"
