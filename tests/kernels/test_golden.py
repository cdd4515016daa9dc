"""A few kernels as they read, in both dialects; ``pytest --update-golden`` renews them: read the difference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mmsbgen.families import family
from mmsbgen.kernels.render import render
from mmsbgen.kernels.space import Traits

GOLDEN = Path(__file__).parents[1] / "golden"
CUDA = Traits("cuda", "gpu", sub_group_size=32)
HOPPER = Traits("cuda", "gpu", sub_group_size=32, launch_memory=227 * 1024, warp_groups=True)
OPENCL = Traits("opencl", "cpu", max_block_size=4096)
OPENCL_GPU = Traits("opencl", "gpu", sub_group_size=32)

PHI: dict[str, Any] = {"rows_in_flight": 1, "prefetch": 0, "normalise": True}
RRS: dict[str, Any] = PHI | {
    "placement": "RRS",
    "team": "block",
    "vector_width": 4,
    "block_size": 64,
    "reduction": "shuffle",
}
THREAD: dict[str, Any] = PHI | {
    "placement": "THREAD",
    "team": "item",
    "vector_width": 8,
    "block_size": 1,
    "reduction": "none",
}
SHARED: dict[str, Any] = PHI | {
    "placement": "SHARED",
    "team": "block",
    "vector_width": 2,
    "block_size": 24,
    "reduction": "local",
    "rows_in_flight": 2,
    "prefetch": 0,
    "normalise": False,
}
CASES: dict[str, tuple[str, Traits, dict[str, Any], dict[str, Any]]] = {
    "update_phi-rrs.cu": ("update_phi", CUDA, {}, RRS),
    "update_phi-rrs.cl": ("update_phi", OPENCL_GPU, {}, RRS),
    "update_phi-thread.cl": ("update_phi", OPENCL, {"K": 100}, THREAD),
    "update_phi-shared.cl": (
        "update_phi",
        OPENCL,
        {"K": 50, "dtype": "float64", "step": "reflected", "partners": "block"},
        SHARED | {"block_size": 16},
    ),
    "block_links-ahead.cu": (
        "block_links",
        CUDA,
        {"K": 256, "noise": "off", "partners": "block"},
        {
            "placement": "RRR",
            "team": "block",
            "vector_width": 4,
            "block_size": 32,
            "rows_in_flight": 2,
            "reduction": "shuffle",
            "groups": 64,
            "counts": "registers",
            "lookahead": True,
        },
    ),
    "theta_partial.cu": (
        "theta_partial",
        CUDA,
        {"K": 1000},
        {
            "team": "block",
            "vector_width": 4,
            "block_size": 128,
            "reduction": "shuffle",
            "accumulators": "registers",
            "pairs_in_flight": 2,
        },
    ),
    "sample_partners.cl": ("sample_partners", OPENCL, {"partners": "stratified"}, {"team": "item", "block_size": 1}),
    "block_shared-item.cl": (
        "block_shared",
        OPENCL,
        {"K": 100, "n": 200},
        {
            "team": "item",
            "tile": 2,
            "partners_in_flight": 2,
            "panel": 256,
            "vector_width": 4,
            "block_size": 1,
        },
    ),
    "block_shared-block.cu": (
        "block_shared",
        CUDA,
        {"K": 1024, "n": 512},
        {
            "team": "block",
            "tile": 4,
            "partners_in_flight": 2,
            "panel": 256,
            "vector_width": 4,
            "block_size": 128,
        },
    ),
    "block_scales.cu": (
        "block_scales",
        CUDA,
        {"K": 100, "n": 512},
        {"tile_rows": 128, "tile_columns": 128, "depth": 32, "stages": 3, "instruction": "mma", "block_size": 256},
    ),
    "block_sums.cu": (
        "block_sums",
        CUDA,
        {"K": 1024, "n": 512},
        {"tile_rows": 128, "tile_columns": 64, "depth": 64, "stages": 2, "instruction": "mma", "block_size": 128},
    ),
    "block_sums-wgmma.cu": (
        "block_sums",
        HOPPER,
        {"K": 1024, "n": 512},
        {"tile_rows": 64, "tile_columns": 64, "depth": 64, "stages": 3, "instruction": "wgmma", "block_size": 128},
    ),
    "shared_partners.cu": ("shared_partners", CUDA, {"n": 512}, {"block_size": 512}),
    "star_factors-labels.cu": (
        "star_factors",
        CUDA,
        {"K": 100, "n": 256, "partners": "shared-uniform"},
        {"block_size": 128},
    ),
    "star_rows-links.cl": (
        "star_rows",
        OPENCL,
        {"K": 100, "step": "reflected", "noise": "off", "partners": "shared"},
        {
            "placement": "THREAD",
            "team": "item",
            "vector_width": 8,
            "block_size": 1,
            "rows_in_flight": 2,
            "reduction": "none",
        },
    ),
    "theta_end.cu": ("theta_end", CUDA, {"theta_step": "reflected"}, {"share": 32, "block_size": 256}),
    "theta_end.cl": ("theta_end", OPENCL, {"K": 100, "theta_step": "gain"}, {"share": 1, "block_size": 64}),
}


@pytest.mark.parametrize("name", CASES)
def test_reads_as_before(name: str, update_golden: bool) -> None:
    kernel, traits, values, config = CASES[name]
    mmsb = family()
    text = render(mmsb.kernel(kernel), mmsb.problem(**values), config, traits).text
    if update_golden:
        GOLDEN.joinpath(name).write_text(text)
    assert GOLDEN.joinpath(name).read_text() == text, f"tests/golden/{name} differs; pytest --update-golden renews it"


def test_no_file_is_left_over() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_is_laid_out(name: str) -> None:
    """No tabs, no trailing white space, no two blank lines, no line that no screen holds; braces give the indent."""
    lines = GOLDEN.joinpath(name).read_text().splitlines()
    depth = 0
    for line, after in zip(lines, [*lines[1:], "end"], strict=True):
        assert line == line.rstrip()
        assert "\t" not in line
        assert line or after
        assert len(line) <= 130
        code = line.split("/*")[0].strip()
        if code and not line.lstrip().startswith("*"):
            closing = code.startswith("}")
            assert (len(line) - len(line.lstrip())) >= 4 * (depth - closing) or code == "{"
            depth += code.count("{") - code.count("}")
    assert depth == 0
