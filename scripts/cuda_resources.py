#!/usr/bin/env python
"""Registers, shared memory and spills of update_phi's CUDA variants, compiled here without a GPU.

scripts/cuda_resources.py            # writes docs/reports/cuda-resources.md
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.progress import track

from mmsbgen.backends.nvidia.cuda_compile import KernelResources, compile_cuda, find_compiler
from mmsbgen.families import family
from mmsbgen.kernels.render import render
from mmsbgen.kernels.space import Traits

TRAITS = Traits("cuda", "gpu", local_memory=48 * 1024, sub_group_size=32, launch_memory=227 * 1024)
BLOCKS = (32, 64, 96, 128, 256)
WIDTHS = (1, 2, 4)


def configs(problem: Any) -> list[dict[str, Any]]:
    """One configuration for each valid placement, width and block size: a block a vertex, one row in flight."""
    spec = family().kernel("update_phi")
    found = []
    for config in spec.space.configs(problem, TRAITS):
        reduction = "shuffle" if config["block_size"] % 32 == 0 else "local"
        if (
            config["team"] == ("item" if config["placement"] == "THREAD" else "block")
            and config["block_size"] in BLOCKS
            and config["vector_width"] in WIDTHS
            and config["rows_in_flight"] == 1
            and config["normalise"]
            and config["reduction"] in (reduction, "none")
        ):
            found.append(config)
    return found


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.option("-k", type=int, default=1024, show_default=True, help="Communities.")
@click.option("--arch", default="sm_90", show_default=True)
@click.option("--jobs", type=int, default=2, show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("docs/reports/cuda-resources.md"))
def main(k: int, arch: str, jobs: int, output: Path) -> None:
    mmsb, compiler = family(), find_compiler("nvrtc")
    spec, problem = mmsb.kernel("update_phi"), mmsb.problem(K=k)
    chosen = configs(problem)

    def build(config: dict[str, Any]) -> KernelResources:
        text = render(spec, problem, config, TRAITS).text
        return compile_cuda(text, arch, compiler=compiler).resources[spec.name]

    with ThreadPoolExecutor(jobs) as pool:
        used = list(track(pool.map(build, chosen), "compiling", total=len(chosen)))
    lines = [
        f"# What update_phi uses on {arch} at K = {k}",
        "",
        f"Compiled by {compiler.version} on {datetime.now(UTC):%Y-%m-%d} for {arch}, float32, split step with noise,",
        "uniform partners, pi normalised in the same kernel, one row in flight; a block a vertex (THREAD: a thread).",
        f"Made by `scripts/cuda_resources.py -k {k} --arch {arch}`.",
        "",
        "Each cell: registers a thread, bytes of shared memory a block; **spilled bytes a thread** and the stack of",
        "thread-local arrays where there are any; `-` where a constraint refuses the configuration.",
        "",
        f"| placement | width | {' | '.join(f'block {block}' for block in BLOCKS)} |",
        f"|---|--:|{'---|' * len(BLOCKS)}",
    ]
    table = {(c["placement"], c["vector_width"], c["block_size"]): u for c, u in zip(chosen, used, strict=True)}
    for placement in next(axis for axis in spec.space.axes if axis.name == "placement").values:
        for width in WIDTHS:
            cells = [_cell(table.get((placement, width, block))) for block in BLOCKS]
            lines.append(f"| {placement} | {width} | {' | '.join(cells)} |")
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text("\n".join(lines) + "\n")
    spilling = sum(u.spill_stores > 0 for u in used)
    click.echo(f"{output}: {len(used)} variants, {spilling} spill, at most {max(u.registers for u in used)} registers")


def _cell(used: KernelResources | None) -> str:
    if used is None:
        return "-"
    text = f"{used.registers} regs, {used.shared_bytes} B"
    if used.spill_stores:
        text += f", **{used.spill_stores} B spilled**"
    if used.stack_bytes > used.spill_stores:
        text += f", {used.stack_bytes} B stack"
    return text


if __name__ == "__main__":
    main()
