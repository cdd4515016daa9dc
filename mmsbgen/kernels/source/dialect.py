"""Tables of the keywords in which CUDA C and OpenCL C differ.

Templates use these keywords, so the rendered source is native in either language.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from mmsbgen.base.errors import InputError


@dataclass(frozen=True)
class Dialect:
    """The keywords of one language.  An empty string is a keyword that the language does not need."""

    name: str
    kernel: str
    function: str
    outlined: str
    glob: str
    local: str
    restrict: str
    group_id: str
    local_id: str
    n_groups: str
    barrier: str
    sub_group_barrier: str
    mul_hi32: str
    mul_hi64: str
    max_vector_width: int
    stage: bool = False
    """Whether a kernel is rendered as a function of the block index, to be a stage of a fused kernel."""

    def block_attribute(self, block_size: int) -> str:
        """The attribute that fixes the block size at compile time."""
        if self.stage:
            return ""
        if self.name == "cuda":
            return f"__launch_bounds__({block_size})"
        return f"__attribute__((reqd_work_group_size({block_size}, 1, 1)))"

    def sub_group_attribute(self, size: int) -> str:
        """The attribute that fixes the sub-group size, or "" where the language has none."""
        return "" if self.name == "cuda" or size == 0 else f"__attribute__((intel_reqd_sub_group_size({size})))"

    def lane(self, vector: str, index: int, width: int) -> str:
        """Element ``index`` of a vector of ``width`` elements."""
        if width == 1:
            return vector
        return f"{vector}.s[{index}]" if self.name == "cuda" else f"{vector}.s{index:x}"


#: Each keyword in OpenCL C and in CUDA C.
_WORDS: dict[str, tuple[Any, Any]] = {
    "name": ("opencl", "cuda"),
    "kernel": ("__kernel", 'extern "C" __global__'),
    "function": ("static inline", "static __device__ __forceinline__"),
    "outlined": ("static __attribute__((noinline))", "static __device__ __noinline__"),
    "glob": ("__global", ""),
    "local": ("__local", "__shared__"),
    "restrict": ("restrict", "__restrict__"),
    "group_id": ("(uint)get_group_id(0)", "blockIdx.x"),
    "local_id": ("(uint)get_local_id(0)", "threadIdx.x"),
    "n_groups": ("(uint)get_num_groups(0)", "gridDim.x"),
    "barrier": ("barrier(CLK_LOCAL_MEM_FENCE)", "__syncthreads()"),
    "sub_group_barrier": ("sub_group_barrier(CLK_LOCAL_MEM_FENCE)", "__syncwarp()"),
    "mul_hi32": ("mul_hi", "__umulhi"),
    "mul_hi64": ("mul_hi", "__umul64hi"),
}
OPENCL, CUDA = (
    Dialect(**{name: words[at] for name, words in _WORDS.items()}, max_vector_width=width)
    for at, width in enumerate((16, 4))
)

#: Stages share one kernel, and later stages read what earlier ones wrote, so no pointer is restrict.
CUDA_STAGE = replace(
    CUDA, kernel="static __device__ __forceinline__", restrict="", group_id="block", n_groups="blocks", stage=True
)

DIALECTS = {"opencl": OPENCL, "cuda": CUDA}


def dialect(name: str) -> Dialect:
    """The dialect called ``name``; raises :class:`InputError` for an unknown language."""
    try:
        return DIALECTS[name]
    except KeyError:
        raise InputError(f"no dialect {name!r}; there are {', '.join(DIALECTS)}") from None
