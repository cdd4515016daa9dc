"""The tokens of C source: what changes a program's digest and what does not."""

from __future__ import annotations

import pytest

from mmsbgen.kernels.source.source_text import digest_of_tokens, tokens

SOURCE = """\
#define TWICE(x) \\
    ((x) + (x))
#if defined(A)
__kernel void f(__global float *a) {
    a[0] = TWICE(0x1.8p-3f) / 2; // half
    print("/* no comment */ // \\" at all");
}
#endif
"""


def test_tokens() -> None:
    assert list(tokens('#define F(x) x\n a->b <<= 1e-3f; /* c */ s = "a // b";')) == [
        *("define F(", "x", ")", "x", "\n"),
        *("a", "->", "b", "<<=", "1e-3f", ";", "s", "=", '"a // b"', ";"),
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("// half", "// another word"),
        (" // half", ""),
        ("    a[0] = ", "a [ 0 ]\n\n="),
        ("{\n", "{ /* over\n   lines */\n"),
        ("((x) + (x))", "((x)+(x))  // of it"),
        ("\\\n    ((x)", "((x)"),
        ("#if defined", "  #  if  defined"),
    ],
)
def test_comments_and_white_space_do_not_count(before: str, after: str) -> None:
    assert before in SOURCE
    assert digest_of_tokens(SOURCE.replace(before, after)) == digest_of_tokens(SOURCE)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("/ 2", "/ 3"),
        ("/ 2; //", "/ /* 2; */"),
        ("0x1.8p-3f", "0x1.8p-3"),
        ("no comment", "no  comment"),
        ('// \\"', '//  \\"'),
        ("TWICE(x) ", "TWICE (x) "),
        ("\\\n    ((x)", "\n    ((x)"),
        ("defined(A)\n", "defined(A) "),
        ("float *a", "floata"),
        ("= TWICE", "== TWICE"),
    ],
)
def test_every_token_counts(before: str, after: str) -> None:
    assert before in SOURCE
    assert digest_of_tokens(SOURCE.replace(before, after)) != digest_of_tokens(SOURCE)
