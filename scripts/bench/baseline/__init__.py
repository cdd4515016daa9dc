"""A plain C program of the same iteration on one thread: the denominator of every speed-up.

The paper compares with "an efficient sequential baseline version" in C++ (its section 3.1); this is ours.  The
stages have the names and the arguments of the family's kernels, so that whatever is given to a kernel can be given
to the baseline, and both are checked against the same reference::

    seconds = Baseline("float32").run("update_phi", values, k=1024)

====================  ==========================================================================================
sample_partners       stage 2: n partners of every vertex, drawn uniformly, each pair looked up; of R iterations
update_phi            stage 3: gradient over n partners' rows, then a step; rows go unnormalised to the spares
update_pi             stage 4: normalise the new rows; old and new rows change places
theta_partial         stage 5: sums of responsibilities over the pairs of the mini-batch (``n_groups`` may be 1)
theta_end             stages 5 and 6: add groups up, move theta, normalise its link column
update_beta           stage 6 alone, as a chain starts
perplexity_pairs      p(y = 1) of every held-out pair
perplexity_sum        log-likelihoods of the held-out pairs; one row of sums
====================  ==========================================================================================

It is compiled once with the system's C compiler at :data:`FLAGS` (``-O3``): the platform's basic instruction set,
strict floating-point arithmetic, no vectors written by hand.  Subexpressions that do not depend on the inner loop
stand outside it, and one reciprocal a partner replaces its K divisions.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from baseline._library import FLAGS, compiler_version, load
from mmsbgen.base.errors import InputError
from mmsbgen.families.mmsb.numbers.row_layout import row_length

__all__ = ["FLAGS", "STAGES", "Baseline", "compiler_version"]

Form = Literal["paper", "fused"]
StepName = Literal["published", "reflected"]

_GRAPH = (
    "link_buckets:u64* link_n_buckets:u32 link_seed0:u64 link_seed1:u64 "
    "held_buckets:u64* held_n_buckets:u32 held_seed0:u64 held_seed1:u64"
)
_RANDOM = "seed:u64 iteration:u32"
_PAIRS = "pi:real* slots:u32* beta:real* pairs_a:u32* pairs_b:u32*"
_SIZES = "k_count:u64 ld:u64"
# Parameters of the C functions in their order: * is an array, *! an array that is written.
_DECLARATIONS = {
    "sample_partners": f"vertices:u32* sizes:u32* {_GRAPH} partners:u32*! weights:real*! n_vertices:u32 stride:u32 "
    f"n_partners:u32 n_total:u32 {_RANDOM}",
    "update_phi": "pi:real*! row_sums:real* slots:u32* spares:u32* beta:real* vertices:u32* partners:u32* "
    "weights:real* n_vertices:u32 first_vertex:u32 n_partners:u32 half_step:real alpha:real delta:real "
    f"{_RANDOM} {_SIZES} published:u32 noise:u32 fused:u32",
    "update_pi": "pi:real*! row_sums:real*! slots:u32*! spares:u32*! vertices:u32* n_vertices:u32 first_vertex:u32 "
    f"{_SIZES}",
    "theta_partial": f"{_PAIRS} pair_weights:real* counts:real*! first_pair:u64 n_pairs:u32 n_groups:u32 delta:real "
    f"{_SIZES}",
    "theta_end": f"counts:real* theta:real*! beta:real*! n_groups:u32 step:double eta_0:double eta_1:double {_RANDOM} "
    f"{_SIZES} published:u32 noise:u32",
    "update_beta": f"theta:real* beta:real*! {_SIZES}",
    "perplexity_pairs": f"{_PAIRS} probabilities:double*! published:double*! sums:double*! n_pairs:u32 delta:real "
    f"{_SIZES}",
    "perplexity_sum": "probabilities:double* published:double* sums:double* labels:u32* partial:double*! n_pairs:u32 "
    "n_samples:double",
}

#: The stages that can be run, in the order of an iteration.
STAGES = tuple(_DECLARATIONS)


def _names(stage: str) -> list[str]:
    return [declared.partition(":")[0] for declared in _DECLARATIONS[stage].split()]


class Baseline:
    """The compiled baseline of one type.

    ``dtype`` is float32 or float64; ``flags`` are the compiler's, :data:`FLAGS` unless something is to be compared.
    """

    def __init__(self, dtype: Literal["float32", "float64"] = "float32", flags: tuple[str, ...] = FLAGS) -> None:
        self.dtype = np.dtype(dtype)
        self.flags = flags
        self._library = load(dtype, flags)
        self._types: dict[str, Any] = {
            "real": ctypes.c_float if dtype == "float32" else ctypes.c_double,
            "double": ctypes.c_double,
            "u32": ctypes.c_uint32,
            "u64": ctypes.c_uint64,
        }

    @property
    def command(self) -> str:
        """Compiler and flags in words, for reports."""
        return f"{compiler_version()}, {' '.join(self.flags)}"

    def run(
        self,
        stage: str,
        values: Mapping[str, Any],
        *,
        k: int,
        step: StepName = "published",
        noise: bool = True,
        form: Form = "paper",
    ) -> float:
        """Run one stage on NumPy arrays and return the seconds that it took, by the clock inside.

        Args:
            stage: one of :data:`STAGES`.
            values: arrays and scalars by the names of the kernel's arguments; more names may be there.  Arrays are
                C-contiguous and of exactly the kernel's types; outputs are changed in place.  Sizes and indices are
                those of a workload of the kernel: C follows them without a look.
            k: communities; rows are stored with ``row_length(k)`` elements, padding is left alone.
            step: how update_phi and theta_end end: ``published``, or ``reflected`` (eq. 3.4 and 3.8).
            noise: whether these two draw.
            form: update_phi's gradient as in the paper (probabilities, their sum, gradient) or fused as in the kernels.

        Raises:
            InputError: there is no such stage, or an array or a scalar is missing or has another type.
            MemoryError: no room for two rows.
        """
        if stage not in _DECLARATIONS:
            raise InputError(f"the baseline has no stage {stage!r}; it has {', '.join(STAGES)}")
        options = {"k_count": k, "ld": row_length(k), "noise": int(noise), "fused": int(form == "fused")}
        if stage in ("update_phi", "theta_end"):
            options["published"] = int(step == "published")
        given = {**values, **options}
        missing = [name for name in _names(stage) if name not in given]
        if missing:
            raise InputError(f"the baseline's {stage} needs {', '.join(missing)}")
        given = {name: given[name] for name in _names(stage)}
        arguments = [self._argument(stage, declared, given) for declared in _DECLARATIONS[stage].split()]
        function = self._library[stage]
        function.restype = ctypes.c_double
        seconds = float(function(*arguments))
        if seconds < 0:
            raise MemoryError(f"the baseline's {stage} found no room for its rows")
        return seconds

    def _argument(self, stage: str, declared: str, given: Mapping[str, Any]) -> Any:
        name, _, kind = declared.partition(":")
        value = given[name]
        base, star, _ = kind.partition("*")
        ctype = self._types[base]
        if not star:
            return ctype(float(value) if base in ("real", "double") else int(value))
        dtype = np.dtype(ctype)
        if not isinstance(value, np.ndarray) or value.dtype != dtype or not value.flags.c_contiguous:
            what = f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
            raise InputError(f"{stage}: {name} is {what}; give a C-contiguous array of {dtype}")
        return ctypes.c_void_p(value.ctypes.data)
